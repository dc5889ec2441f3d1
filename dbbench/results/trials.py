"""The directory of a trial: filled under a temporary name, made durable, renamed once."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from dbbench.metrics.histogram import PER_E, Histogram
from dbbench.metrics.series import Series, write_csv_gz
from dbbench.model import Trial, plain
from dbbench.results.fileio import (
    read_bytes,
    real_folder,
    sha256,
    sync,
    write_json,
    write_text,
    writing,
)
from dbbench.units import one_line

SUMS = "SHA256SUMS"
# directory of a run for the part of a cluster that is not on the filesystem under test
ELSEWHERE = ".elsewhere"
SET_ASIDE = "set-aside"  # directory of a run for finished trials that were repeated


class Draft:
    """The directory of a trial that is not a result yet. Tools write their output to `raw` while
    they run.
    """

    def __init__(self, run_folder: Path, trial_id: str) -> None:
        self.final = run_folder / "trials" / trial_id
        self.folder = run_folder / "trials" / f".partial-{trial_id}"
        self.raw = self.folder / "raw"
        real_folder(self.folder, run_folder.parent)
        with writing(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)  # left by an interrupted trial
            self.folder.mkdir()  # without parents: a removed run must not come back almost empty
            self.raw.mkdir()

    def publish(
        self,
        trial: Trial,
        series: Series | None,
        phases: Sequence[str],
        histogram: Histogram | None,
    ) -> Path:
        """Write the results and the checksums, fsync everything and rename. After this the trial is
        finished.
        """
        with writing(self.folder):
            if series is not None:
                write_csv_gz(self.folder / "series.csv.gz", series, phases)
            if histogram is not None:
                counts = {
                    str(bucket): histogram.counts[bucket] for bucket in sorted(histogram.counts)
                }
                write_json(
                    self.folder / "histogram.json", {"per_e": PER_E, "unit": "us", "counts": counts}
                )
            write_json(self.folder / "trial.json", plain(trial))
            files = sorted(path for path in self.folder.rglob("*") if path.is_file())
            for path in files:
                sync(path)
            lines = [
                f"{sha256(path, self.folder)}  {path.relative_to(self.folder)}\n" for path in files
            ]
            write_text(self.folder / SUMS, "".join(lines))
            for folder in (self.raw, self.folder):
                sync(folder)
            self.folder.rename(self.final)
            sync(self.final.parent)
        return self.final


def set_aside(run_folder: Path, ids: Iterable[str], why: str) -> list[str]:
    """Move trials to `set-aside/WHY`, to run again; return the ids that existed. Raises
    NotWritable.
    """
    moved = []
    for trial in (run_folder / "trials" / name for name in ids):
        if trial.is_dir():
            target = run_folder / SET_ASIDE / why / trial.name
            number = 1
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                while target.exists():  # keep trials that were set aside earlier
                    number += 1
                    target = target.with_name(f"{trial.name}.{number}")
                trial.rename(target)
            moved.append(trial.name)
    return moved


def results_of(trial: Path) -> Path:
    """Return the results folder that contains a trial's directory; below it no link is followed."""
    return trial.absolute().parents[2]


def damage(
    folder: Path,
    below: Path | None = None,
    least: str = "trial.json",
) -> list[str]:
    """Return one line for each file of a finished trial that is not as it was written; [] if all
    are intact. `below`: the results folder, if `folder` is not a trial's. `least`: a file that
    the checksums must name. Raises ResultNotRegular, ResultDamaged.
    """
    below = below or results_of(folder)
    try:
        text = read_bytes(folder / SUMS, below).decode(errors="replace")
    except OSError as error:
        return [f"{SUMS}: {error.strerror}"]
    # The list must be exactly what its own lines make.
    lines = re.findall(r"([0-9a-f]{64})  ([^\n]+)\n", text)
    expected = {name: digest for digest, name in lines}
    whole = text == "".join(f"{digest}  {name}\n" for name, digest in expected.items())
    # an added line names a file that does not exist
    faults = [] if whole else [f"{SUMS} is altered or truncated"]
    # A name must stay within the folder, whatever the list says.
    for name, digest in expected.items():
        path = PurePosixPath(name)
        is_name = str(path) == name and name.isprintable()
        if not is_name or ".." in path.parts or path.is_absolute():
            faults.append(f"{one_line(name)} points outside the folder")
            continue
        try:
            faults += (
                []
                if sha256(folder / path, below) == digest
                else [f"{name} is altered or truncated"]
            )
        except OSError as error:
            faults.append(
                f"{name} is missing" if error.errno == errno.ENOENT else f"{name}: {error.strerror}"
            )
    return faults + (
        [] if least in expected else [f"{SUMS} is truncated: it does not list {least}"]
    )


def leftovers(run_folder: Path) -> list[Path]:
    """Return directories of interrupted trials, and of parts kept next to a filesystem; no link is
    followed.
    """
    trials = run_folder / "trials"
    cut_off = [] if trials.is_symlink() else sorted(trials.glob(".partial-*"))
    return [
        path
        for path in (run_folder / ELSEWHERE, *cut_off)
        if path.is_dir() and not path.is_symlink()
    ]
