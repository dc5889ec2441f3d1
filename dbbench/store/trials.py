"""One trial's folder: filled under a temporary name, made durable, renamed once."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dbbench.histogram import PER_E, Histogram
from dbbench.model import Trial, plain
from dbbench.series import Series, write_csv_gz
from dbbench.store.files import read_bytes, sha256, sync, write_json, write_text, writing

SUMS = "SHA256SUMS"
ELSEWHERE = ".elsewhere"  # of the run: what of a cluster is not on the filesystem under test


class Draft:
    """A trial's folder before it is a result. `raw` takes what the tools print while they run."""

    def __init__(self, run_folder: Path, trial_id: str) -> None:
        self.final = run_folder / "trials" / trial_id
        self.folder = run_folder / "trials" / f".partial-{trial_id}"
        self.raw = self.folder / "raw"
        with writing(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)  # of an attempt that was cut off
            self.raw.mkdir(parents=True)

    def publish(self, trial: Trial, series: Series | None, phases: Sequence[str], histogram: Histogram | None) -> Path:
        """Write the figures and the sums, fsync all, rename. From here on the trial is finished."""
        with writing(self.folder):
            if series is not None:
                write_csv_gz(self.folder / "series.csv.gz", series, phases)
            if histogram is not None:
                counts = {str(bucket): histogram.counts[bucket] for bucket in sorted(histogram.counts)}
                write_json(self.folder / "histogram.json", {"per_e": PER_E, "unit": "us", "counts": counts})
            write_json(self.folder / "trial.json", plain(trial))
            files = sorted(path for path in self.folder.rglob("*") if path.is_file())
            for path in files:
                sync(path)
            lines = [f"{sha256(path)}  {path.relative_to(self.folder)}\n" for path in files]
            write_text(self.folder / SUMS, "".join(lines))
            for folder in (self.raw, self.folder):
                sync(folder)
            self.folder.rename(self.final)
            sync(self.final.parent)
        return self.final


def damage(folder: Path, least: str = "trial.json") -> list[str]:
    """What of a finished trial is not as it was written, one line each; [] when all is whole. `least`: the file that
    its checksums name whatever else they do."""
    try:
        lines = read_bytes(folder / SUMS).decode(errors="replace").splitlines()
    except OSError as error:
        return [f"{SUMS}: {error.strerror}"]
    wanted = {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}
    faults, inside = [], folder.resolve()
    for name, digest in wanted.items():
        path = folder / name
        if not path.resolve().is_relative_to(inside):
            faults.append(f"{name} leads out of the folder")
            continue
        try:
            faults += [] if sha256(path) == digest else [f"{name} was altered or cut off"]
        except OSError as error:
            faults.append(f"{name} is missing" if error.errno == errno.ENOENT else f"{name}: {error.strerror}")
    return faults + ([] if least in wanted else [f"{SUMS} is cut off: it has no {least}"])


def leftovers(run_folder: Path) -> list[Path]:
    """Folders of trials that were cut off, and what of a trial lay beside its filesystem."""
    beside = run_folder / ELSEWHERE
    found = [beside] if beside.is_dir() and not beside.is_symlink() else []
    if (run_folder / "trials").is_symlink():
        return found
    entries = os.scandir(run_folder / "trials")
    return found + sorted(Path(entry.path) for entry in entries if entry.name.startswith(".partial-"))
