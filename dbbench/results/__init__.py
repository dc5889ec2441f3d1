"""The results folder: written once, verified when read, never changed.

RUN/run.json plan.toml journal.jsonl    the plan, the order of trials, and what was acquired from the machine
RUN/trials/ID/                          a finished trial: trial.json, series.csv.gz, histogram.json, raw/, SHA256SUMS
RUN/powercut.json powercut/ SHA256SUMS  the result of the power-loss lab
RUN/trials/.partial-ID/                 a trial in progress or interrupted: never read as a result

Damage is detected by checksums and reported; nothing is repaired or guessed. The index is a cache of what was computed
from each run, valid while the run does not change.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError, ResultDamaged, ResultTooLarge, RunMissing
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series, SeriesTooLong, read_csv_gz
from dbbench.model import Cell, LabFacts, Run, Trial, TrialSpec
from dbbench.results.ceiling import Exceeded, judged, load_ceiling, save_ceiling
from dbbench.results.fileio import plain_file, read_as, read_bytes, sound_json, write_text
from dbbench.results.runs import (
    create_run,
    drivable,
    find_unfinished,
    finished,
    folders,
    load_lab,
    load_spec,
    locked,
    must_match,
    parsed_spec,
    pending,
    save_lab,
    save_spec,
    written_spec,
)
from dbbench.results.trials import Draft, damage, results_of

__all__ = [
    "Draft",
    "Exceeded",
    "LoadedRun",
    "all_of",
    "create_run",
    "drivable",
    "find_unfinished",
    "finished",
    "load_ceiling",
    "load_lab",
    "load_run",
    "load_spec",
    "load_trial",
    "load_whole",
    "locked",
    "must_match",
    "parsed_spec",
    "pending",
    "runs",
    "save_ceiling",
    "save_lab",
    "save_spec",
    "written_spec",
]


_MOST_TOLD: Final = 5  # damaged trials, or damaged files of a trial, that an error lists


@dataclass(frozen=True)
class LoadedRun:
    """A run as stored: the plan and the finished trials, in the order of the run."""

    path: Path
    run: Run
    trials: tuple[Trial, ...]
    lab: LabFacts | None = None  # results of the power-loss lab, if it wrote to this run
    damaged: Mapping[str, ResultDamaged] = field(default_factory=dict)  # trial ID -> why it could not be read
    exceeded: tuple[
        Exceeded, ...
    ] = ()  # measurements of the bare device that are no limits, because trials exceed them

    @property
    def unfinished(self) -> list[str]:
        """Return the ids of trials that are not finished."""
        done = {trial.id for trial in self.trials} | set(self.damaged)
        return [spec.id for spec in self.run.order if spec.id not in done]

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of the kernel, the servers, programs and packages, and dbbench, as far as known."""
        kernel = {"kernel": str(self.run.host["kernel"])} if self.run.host.get("kernel") else {}
        servers: dict[str, dict[str, None]] = {}
        for trial in self.trials:
            if trial.engine_version:
                servers.setdefault(f"{trial.engine} server", {})[trial.engine_version] = None
        programs = {name: str(version) for name, version in self.run.versions.items() if version}
        return {**kernel, **{name: " and ".join(of) for name, of in servers.items()}, **programs,
                "dbbench": self.run.dbbench_version}  # fmt: skip

    def readable(self) -> LoadedRun:
        """Return the run without trials whose series or histogram cannot be read; these are added to the
        damaged ones."""
        damaged = dict(self.damaged)
        for trial in self.trials:
            try:
                self.series(trial)
                self.histogram(trial)
            except ResultDamaged as error:
                damaged[trial.id] = error
        trials = tuple(trial for trial in self.trials if trial.id not in damaged)
        return replace(self, trials=trials, damaged=damaged)

    def series(self, trial: Trial) -> tuple[Series, list[str]] | None:
        """Return the trial's series and the phase of each second, or None without one. Raises ResultDamaged."""
        path = self.path / "trials" / trial.id / "series.csv.gz"
        try:
            with self._naming_the_run(), plain_file(path, self.path.parent) as file:
                return read_csv_gz(file)
        except FileNotFoundError:
            return None
        except SeriesTooLong as error:
            raise self._of_this(ResultTooLarge(f"{path}: {error}")) from error
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise self._of_this(ResultDamaged(f"{path}: {error}")) from error

    def histogram(self, trial: Trial) -> Histogram | None:
        """Return the latencies of the trial's window, or None without them. Raises ResultDamaged."""
        path = self.path / "trials" / trial.id / "histogram.json"
        try:
            with self._naming_the_run():
                counts = sound_json(read_bytes(path, self.path.parent))["counts"]
            return Histogram({int(bucket): _count(n) for bucket, n in counts.items()})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._of_this(ResultDamaged(f"{path}: {error}")) from error

    def _of_this(self, error: ResultDamaged) -> ResultDamaged:
        error.run = str(self.path)
        return error

    @contextlib.contextmanager
    def _naming_the_run(self) -> Iterator[None]:
        try:
            yield
        except ResultDamaged as error:
            raise self._of_this(error) from error


def _count(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is not a count")
    return number


def load_run(path: str | Path, *, verify: bool = True) -> LoadedRun:
    """Read the directory of a run. `verify` compares every file with SHA256SUMS.

    Raises RunMissing if it is not a run, and ResultDamaged with the names of all damaged trials and files.
    """
    loaded = load_whole(path, verify=verify)
    if loaded.damaged:
        raise all_of(loaded)
    return loaded


def load_whole(path: str | Path, *, verify: bool = True) -> LoadedRun:
    """Read the directory of a run with all undamaged trials; `damaged` describes the others.

    Raises RunMissing if it is not a run, and ResultDamaged if run.json, ceiling.json or the result of the power-loss
    lab is damaged.
    """
    folder = Path(path)
    try:
        run = load_spec(folder)
        lab, ceiling = load_lab(folder, verify=verify), load_ceiling(folder)
    except ResultDamaged as error:
        error.run = str(folder)
        raise
    trials, damaged = [], {}
    for spec in sorted(run.order, key=lambda spec: spec.position):
        try:
            if trial := _trial(folder / "trials" / spec.id, spec, run.cell(spec.cell), verify=verify):
                trials.append(trial)
        except ResultDamaged as error:
            error.run = str(folder)
            damaged[spec.id] = error
    whole, exceeded = judged(trials, ceiling)
    return LoadedRun(folder, run, whole, lab, damaged, exceeded)


def all_of(loaded: LoadedRun, since: LoadedRun | None = None) -> ResultDamaged:
    """Return one error for all damaged trials of a run, or for those damaged `since`, of the kind of the first one."""
    damaged = {name: error for name, error in loaded.damaged.items() if since is None or name not in since.damaged}
    lines = [f"{trial_id}: {error.evidence}" for trial_id, error in damaged.items()]
    if len(lines) > _MOST_TOLD:
        lines[_MOST_TOLD:] = [f"and {len(lines) - _MOST_TOLD} more trials"]
    first, folder = next(iter(damaged)), loaded.path
    error = type(damaged[first])(
        f"{folder}: " + "; ".join(lines),
        effect="Nothing was changed.",
        remedy=(
            f"Restore the folder from a copy, or remove the damaged trial (rm -r {folder / 'trials' / first}) and "
            "run the plan again."
        ),
    )
    error.run = str(folder)
    return error


def _trial(folder: Path, spec: TrialSpec, cell: Cell, *, verify: bool) -> Trial | None:
    """Return the trial of `spec`, or None if it is not finished. Raises ResultDamaged."""
    if not os.path.lexists(folder):
        return None
    faults = damage(folder) if verify else []
    if len(faults) > _MOST_TOLD:
        faults[_MOST_TOLD:] = [f"and {len(faults) - _MOST_TOLD} more files"]
    if faults:
        raise ResultDamaged("; ".join(faults))
    trial = load_trial(folder)
    expected = (spec.id, cell.arm, cell.engine.name, cell.workload.name, cell.variant, spec.block, spec.attempt)
    if expected != (trial.id, trial.fs_setup, trial.engine, trial.workload, trial.variant, trial.block, trial.attempt):
        raise ResultDamaged(f"{folder / 'trial.json'} belongs to another trial")
    return trial


def load_trial(folder: Path) -> Trial:
    """Read trial.json."""
    return read_as(Trial, folder / "trial.json", results_of(folder))


def runs(results: Path) -> list[Path]:
    """Return the directories of all runs in `results`, by name."""
    if not results.is_dir():
        raise RunMissing(f"{results} is not a results folder", remedy="Name the results folder with --results DIR.")
    return folders(results)


INDEX_NAME: Final = ".dbbench-index.json"
IndexRow = dict[str, Any]


def index_rows(results: Path, runs: list[Path], make: Callable[[Path], IndexRow], maker: str,
         fits: Callable[[IndexRow], bool] = bool) -> list[IndexRow]:  # fmt: skip
    """Return `make(run)` for each run, from the index if neither run.json nor the directory of trials has changed.

    A trial's directory is written once, so the modification time of `trials/` changes with every trial that is added or
    removed. An entry of another `maker` (version of dbbench), or one that does not fit, is computed again.
    """
    indexed = _known(results)
    all_rows, now, changed = list[IndexRow](), dict[str, tuple[str, IndexRow]](), False
    for run in runs:
        stamp = _stamp(run, maker)
        before = indexed.pop(run.name, None)
        if before is not None and before[0] == stamp and fits(before[1]):
            all_rows.append(before[1])
        else:
            all_rows.append(make(run))
            changed = True
        now[run.name] = (stamp, all_rows[-1])
    if changed or indexed:
        _keep(results, now)
    return all_rows


def _stamp(run: Path, maker: str) -> str:
    """Return a stamp that changes with the maker, with run.json and with the set of finished trials."""
    times = []
    for path in (run / "run.json", run / "trials"):
        try:
            times.append(str(path.stat().st_mtime_ns))
        except OSError:
            times.append("-")
    return " ".join([maker, str(run), *times])


def _known(results: Path) -> dict[str, tuple[str, IndexRow]]:
    """Return (stamp, row) by the run's name; {} if the index cannot be read or was not written by this user."""
    try:
        if (results / INDEX_NAME).lstat().st_uid != os.geteuid():
            return {}
        content = sound_json(read_bytes(results / INDEX_NAME, results))
        return {str(name): (str(stamp), dict(row)) for name, (stamp, row) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, DbbenchError):
        return {}


def _keep(results: Path, now: dict[str, tuple[str, IndexRow]]) -> None:
    """Write the index if possible; in a read-only directory every run is read each time."""
    with contextlib.suppress(DbbenchError):
        write_text(results / INDEX_NAME, json.dumps(now))
