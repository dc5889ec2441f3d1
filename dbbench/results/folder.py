"""A run as read from its folder: for the processes that work on it, and as a whole for verdicts and
pages.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dbbench.errors import ProgramMissing, ResultDamaged, RunLocked, RunMissing
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.series import Series, read_csv_gz
from dbbench.model import Cell, Json, LabFacts, Plan, Run, Trial, TrialSpec, plain
from dbbench.results.at_ceiling import Exceeded, judge, load_ceiling
from dbbench.results.fileio import plain_file, read_as, read_bytes, sound_json
from dbbench.results.journal import Journal
from dbbench.results.runs import (
    drivable,
    folders,
    list_results,
    load_lab,
    load_spec,
    lock,
    pending,
    save_spec,
)
from dbbench.results.trials import damage, results_of, set_aside
from dbbench.units import group_by

# what a damaged file makes its readers raise
_UNREADABLE: Final = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    zlib.error,
)
_MOST_KEYS: Final = 8  # differing keys that an error lists
_MOST_NAMED: Final = 5  # damaged trials, or damaged files of a trial, that an error lists


class RunFolder:
    """The folder of a run, for the programs that work on it. run.json and each trial.json are read
    once. `run` is run.json as it was read or saved last. Whoever changes the run holds its lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = load_spec(path)
        self.journal = Journal(path / "journal.jsonl")
        self._trials: dict[str, Trial] = {}

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        with lock(self.path):
            self.run = load_spec(self.path)
            yield

    def save(self, run: Run) -> None:
        save_spec(self.path, run)
        self.run = run

    @property
    def pending(self) -> list[TrialSpec]:
        return pending(self.path, self.run)

    def trial(self, spec: TrialSpec) -> Trial:
        """Return a finished trial. Raises ResultDamaged."""
        if spec.id not in self._trials:
            try:
                self._trials[spec.id] = read_trial(self.path, spec, self.run.cell(spec.cell))
            except ResultDamaged as error:
                raise _of_run(self.path, {spec.id: error}) from error
        return self._trials[spec.id]

    @property
    def trials(self) -> list[Trial]:
        done = list_results(self.path)
        return [self.trial(spec) for spec in self.run.order if spec.id in done]

    def set_aside(self, ids: Iterable[str], why: str) -> list[str]:
        """Move finished trials to `set-aside/WHY`, so that they run again; return the ids of those
        that existed.
        """
        moved = set_aside(self.path, ids, why)
        for trial_id in moved:
            self._trials.pop(trial_id, None)
        return moved


def must_match(
    folder: RunFolder,
    plan: Plan,
    cells: Sequence[Cell],
    scripts: Mapping[str, str],
) -> None:
    """Raise RunLocked with the keys of run.json that differ from what the user's plan gives, and
    with the scripts of the run that do: a results folder does not decide what is executed.
    Another size of the budget or of the margin, and what earlier trials did, are not
    differences.
    """
    stored = folder.run
    path = folder.path
    plan = replace(plan, margin=stored.plan.margin)
    if None not in (plan.budget_s, stored.plan.budget_s):
        plan = replace(plan, budget_s=stored.plan.budget_s)
    # What run.json says, key by key.
    keys = list(_differing("", _plain(plan, cells), _plain(stored.plan, stored.cells)))
    # Scripts are executed, so their copies must be those of the user.
    for name, text in scripts.items():
        copy = path / "scripts" / name
        if os.path.lexists(copy) and read_bytes(copy, path.parent) != text.encode(
            errors="surrogateescape"
        ):
            keys.append(f"scripts/{name}")
    if keys:
        text = f"{path} was not made from this plan, although run.json names its hash"
        names = ", ".join(keys[:_MOST_KEYS])
        if len(keys) > _MOST_KEYS:
            names += f" and {len(keys) - _MOST_KEYS} more"
        why = "Another program or user changed the run, or its folder was moved."
        raise RunLocked(
            f"{text}; keys that differ: {names}",
            remedy=f"{why} Start another run with --name.",
        )


def _plain(plan: Plan, cells: Sequence[Cell]) -> Json:
    return {"plan": plain(plan), "cells": [plain(cell.without_measurements) for cell in cells]}


def _differing(key: str, typed: Any, stored: Any) -> Iterator[str]:
    """Yield the keys below `key` whose values differ."""
    if isinstance(typed, dict) and isinstance(stored, dict):
        for name in dict.fromkeys((*typed, *stored)):
            below = f"{key}.{name}".lstrip(".")
            yield from _differing(below, typed.get(name), stored.get(name))
    elif isinstance(typed, list) and isinstance(stored, list) and len(typed) == len(stored):
        for number, pair in enumerate(zip(typed, stored, strict=True)):
            yield from _differing(f"{key}[{number}]", *pair)
    else:
        to_or_from_bool = isinstance(typed, bool) is not isinstance(stored, bool)
        if typed != stored or to_or_from_bool:  # to Python, True is 1
            yield key


@dataclass(frozen=True)
class LoadedRun:
    """A run as stored: the plan and the finished trials, in the order of the run."""

    path: Path
    run: Run
    trials: tuple[Trial, ...]
    lab: LabFacts | None = None  # results of the power-loss lab, if it wrote to this run
    # trial ID -> why it could not be read
    damaged: Mapping[str, ResultDamaged] = field(default_factory=dict)
    # measurements of the bare device that are no limits: trials exceed them
    exceeded: tuple[Exceeded, ...] = ()

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame: a row for each finished trial, with its conditions and a
        column for each metric of its summary. Raises ProgramMissing without pandas.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            remedy = "Install it:  python3 -m pip install pandas"
            text = "the Python package pandas is not installed"
            raise ProgramMissing(text, remedy=remedy) from None
        keys = ("run", "id", "host", "fs_setup", "engine", "workload", "block", "attempt")
        rows = []
        for trial in self.trials:
            row = {key: getattr(trial, key) for key in keys}
            row["status"] = trial.status.value
            for name, value in trial.parameters.items():
                row[f"parameter {name}"] = value
            rows.append(row | trial.summary)
        return pandas.DataFrame(rows)

    @property
    def remaining(self) -> list[str]:
        done = {trial.id for trial in self.trials} | set(self.damaged)
        return [spec.id for spec in self.run.order if spec.id not in done]

    @property
    def versions(self) -> dict[str, str]:
        versions = dict[str, str]()
        if self.run.host.get("kernel"):
            versions["kernel"] = str(self.run.host["kernel"])
        started = [trial for trial in self.trials if trial.engine_version]
        for engine, trials in group_by(started, lambda trial: trial.engine).items():
            of_engine = dict.fromkeys(trial.engine_version for trial in trials)
            versions[f"{engine} server"] = " and ".join(of_engine)
        for name, version in self.run.versions.items():
            if version:
                versions[name] = str(version)
        return {**versions, "dbbench": self.run.dbbench_version}

    def readable(self) -> LoadedRun:
        """Return the run with only the trials whose series and histogram can be read; the others
        are damaged.
        """
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
        """Return the trial's series and the phase of each second, or None without one. Raises
        ResultDamaged.
        """
        path = self.path / "trials" / trial.id / "series.csv.gz"
        if not os.path.lexists(path):
            return None
        with _reading(self.path, path), plain_file(path, self.path.parent) as file:
            return read_csv_gz(file)

    def histogram(self, trial: Trial) -> Histogram | None:
        """Return the latencies of the trial's window, or None without them. Raises ResultDamaged."""
        path = self.path / "trials" / trial.id / "histogram.json"
        if not os.path.lexists(path):
            return None
        with _reading(self.path, path):
            counts = sound_json(read_bytes(path, self.path.parent))["counts"]
            return Histogram({int(bucket): _count(n) for bucket, n in counts.items()})


@contextlib.contextmanager
def _of(run: Path) -> Iterator[None]:
    try:
        yield
    except ResultDamaged as error:
        error.run = str(run)
        raise


@contextlib.contextmanager
def _reading(run: Path, path: Path) -> Iterator[None]:
    with _of(run):
        try:
            yield
        except _UNREADABLE as error:
            raise ResultDamaged(f"{path}: {error}") from error


def _count(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is not a count")
    return number


def load_run(path: str | Path, *, verify: bool = True) -> LoadedRun:
    """Read the directory of a run. `verify` compares every file with SHA256SUMS. Raises RunMissing
    if it is not a run, and ResultDamaged with the names of all damaged trials and files.
    """
    loaded = load_whole(path, verify=verify)
    if loaded.damaged:
        raise all_of(loaded)
    return loaded


def load_whole(path: str | Path, *, verify: bool = True) -> LoadedRun:
    """Read the directory of a run with all undamaged trials; `damaged` describes the others. Raises
    RunMissing if it is not a run, and ResultDamaged if run.json, ceiling.json or the result of
    the power-loss lab is damaged.
    """
    folder = Path(path)
    with _of(folder):
        run = load_spec(folder)
        lab = load_lab(folder, verify=verify)
        ceiling = load_ceiling(folder)
    trials = []
    damaged = dict[str, ResultDamaged]()
    # A damaged trial does not hide the others.
    for spec in sorted(run.order, key=lambda spec: spec.position):
        try:
            with _of(folder):
                if os.path.lexists(folder / "trials" / spec.id):
                    trials.append(read_trial(folder, spec, run.cell(spec.cell), verify=verify))
        except ResultDamaged as error:
            damaged[spec.id] = error
    whole, exceeded = judge(trials, ceiling)
    return LoadedRun(folder, run, whole, lab, damaged, exceeded)


def all_of(loaded: LoadedRun, since: LoadedRun | None = None) -> ResultDamaged:
    """Return one error for all damaged trials of a run, or for those damaged `since`, of the kind
    of the first one.
    """
    damaged = dict(loaded.damaged)
    if since is not None:
        for name in since.damaged:
            damaged.pop(name, None)
    return _of_run(loaded.path, damaged)


def _of_run(folder: Path, damaged: Mapping[str, ResultDamaged]) -> ResultDamaged:
    first = next(iter(damaged))
    texts = [f"{trial_id}: {error.evidence}" for trial_id, error in damaged.items()]
    remove = f"remove the damaged trial (rm -r {folder / 'trials' / first})"
    error = type(damaged[first])(
        f"{folder}: {_shorten(texts, 'trials')}",
        effect="Nothing was changed.",
        remedy=f"Restore the folder from a copy, or {remove} and run the plan again.",
    )
    error.run = str(folder)
    return error


def _shorten(texts: list[str], things: str) -> str:
    if len(texts) > _MOST_NAMED:
        more = f"and {len(texts) - _MOST_NAMED} more {things}"
        texts = [*texts[:_MOST_NAMED], more]
    return "; ".join(texts)


def read_trial(
    run_folder: Path,
    spec: TrialSpec,
    cell: Cell,
    *,
    verify: bool = False,
) -> Trial:
    """Return the finished trial of `spec`. Raises ResultDamaged."""
    # Checksums take time, so they are verified only when it is asked for.
    folder = run_folder / "trials" / spec.id
    faults = damage(folder) if verify else []
    if faults:
        raise ResultDamaged(_shorten(faults, "files"))
    trial = load_trial(folder)
    # A folder that was copied to another name is not this trial.
    expected = (
        spec.id,
        cell.arm,
        cell.engine.name,
        cell.workload.name,
        cell.variant,
        spec.block,
        spec.attempt,
    )
    if expected != (
        trial.id,
        trial.fs_setup,
        trial.engine,
        trial.workload,
        trial.variant,
        trial.block,
        trial.attempt,
    ):
        raise ResultDamaged(f"{folder / 'trial.json'} belongs to another trial")
    return trial


def load_trial(folder: Path) -> Trial:
    """Read trial.json."""
    return read_as(Trial, folder / "trial.json", results_of(folder))


def find_runs(results: Path, plan_sha256: str) -> list[RunFolder]:
    """Return the runs of that plan that `dbbench run` may continue, the newest first. Other runs
    are recognised by their bytes, because parsing hundreds takes seconds.
    """
    of_plan = []
    for path in folders(results):
        with contextlib.suppress(ResultDamaged, RunMissing, OSError):
            if plan_sha256.encode() in read_bytes(path / "run.json", results):
                folder = RunFolder(path)
                if folder.run.plan_sha256 == plan_sha256 and drivable(folder.run):
                    of_plan.append(folder)
    return sorted(
        of_plan,
        key=lambda folder: (folder.run.created, folder.path),
        reverse=True,
    )


def find_open(results: Path, plan_sha256: str) -> RunFolder | None:
    """Return the newest run of the plan with unfinished trials, or None."""
    return next((folder for folder in find_runs(results, plan_sha256) if folder.pending), None)
