"""The history: one line per night in RESULTS/nightly/PLAN.jsonl. It outlives the directories of the runs.

The A/A guard: the reference a second time in every block. If the two differ, the night is not valid.

How long data of a night's run is kept: raw output a month, per-second series a year, metrics forever.

RESULTS/baselines.json: the accepted run of each plan, when and why. Entries are never overwritten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from dbbench import compare
from dbbench.compare.interval import LEAST_BLOCKS, estimate, paired
from dbbench.compare.verdict import GUARD
from dbbench.errors import DbbenchError, ResultDamaged, RunLocked
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Plan, Run, Status, Trial, plain
from dbbench.model.base import NAME
from dbbench.model.run import titled
from dbbench.results import LoadedRun, fileio
from dbbench.results.trials import SUMS
from dbbench.units import iso

FOLDER: Final = "nightly"
MOST_AGE_H: Final = 30.0  # age of the newest night: a day, and six hours for a night that begins or takes longer
ITSELF: Final = " itself"  # suffix of the reference's label for its own value, which is not a ratio
LEVEL: Final = 0.95
GUARD_P: Final = 0.005  # strict, because users would switch off a guard that calls one quiet night in twenty bad
GUARD_SHIFT: Final = 0.03  # the same least shift as of a change point
PROFILE: Final = " settings profile"  # suffix of the engine's name for the fact that records its profile
RAW_DAYS: Final = 30
SERIES_DAYS: Final = 365
_SECONDS: Final = ("series.csv.gz", "histogram.json")


@dataclass(frozen=True)
class Ratio:
    """Candidate ÷ reference of a night's blocks, with its interval if there were enough blocks; for the reference, its
    value."""

    ratio: float
    lo: float | None
    hi: float | None
    n: int
    better: str = "higher"


@dataclass(frozen=True)
class Change:
    """A fact that differs from the night before: a version, or the host."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


@dataclass(frozen=True)
class Night:
    """What is kept of a night. Keys of `ratios` and `states` are "ENGINE WORKLOAD, VARIANT: ARM"."""

    night: str  # YYYY-MM-DD, in the local time zone of the machine
    run: str
    created: str
    good: bool = True  # accepted: nothing failed, and the guard was equal to the reference
    reasons: tuple[str, ...] = ()  # why the night was not accepted
    failed: int = 0
    ratios: dict[str, Ratio] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)  # kernel, server and package versions
    changes: tuple[Change, ...] = ()  # facts that differ from the previous night
    states: dict[str, str] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)  # levels with which the ratios were compared
    since: dict[str, str] = field(default_factory=dict)  # for a regression or improvement: the night of the change
    confirmations: dict[str, Ratio] = field(default_factory=dict)


def night_of(loaded: LoadedRun, before: Night | None = None) -> Night:
    """Return the line of a run. A night with a failed trial, or with a guard that differs from the reference, is not
    good."""
    failed = sum(trial.status is Status.FAILED for trial in loaded.trials)
    reasons = [f"{failed} trials failed"] if failed else []
    if loaded.unfinished:
        reasons.append(f"{len(loaded.unfinished)} trials were not run")
    ratios: dict[str, Ratio] = {}
    for (engine, workload, variant), group in compare.groups(loaded.trials).items():
        title, metric = f"{engine} {titled(workload, variant)}", _metric(loaded.run, workload)
        reasons += [f"{sentence} ({title})" for sentence in _guard_says(group, loaded.run.baseline, metric)]
        ratios |= {f"{title}: {arm}": ratio for arm, ratio in _ratios(group, loaded.run.baseline, metric)}
    facts = _facts(loaded)
    changes = () if before is None else tuple(_changes(before.facts, facts))
    created = loaded.run.created
    return Night(
        local_date(created).isoformat(),
        loaded.path.name,
        created,
        not reasons,
        tuple(reasons),
        failed,
        ratios,
        facts,
        changes,
    )


def _metric(run: Run, workload: str) -> Metric:
    primary = next((cell.workload.primary for cell in run.cells if cell.workload.name == workload), "tps")
    return METRICS[primary]


def _ratios(group: Sequence[Trial], baseline: str, metric: Metric) -> Iterator[tuple[str, Ratio]]:
    """Yield (arm, ratio) for every arm except the guard. For the reference this is its own value, which shows changes
    that affect all arms."""
    for row in compare.rows(group, baseline, metric.name):
        if row.verdict == "baseline" and row.value is not None:
            yield baseline + ITSELF, _own(group, baseline, metric)
        elif not row.fs_setup.endswith(GUARD) and row.ratio is not None:
            yield row.fs_setup, Ratio(row.ratio, row.lo, row.hi, row.n, metric.better)


def _own(group: Sequence[Trial], arm: str, metric: Metric) -> Ratio:
    """Return the geometric mean of the arm's valid trials, with the t interval of their logarithms."""
    values = [trial.summary.get(metric.name) for trial in compare.chosen(group) if trial.fs_setup == arm]
    guess = estimate([(1.0, value) for value in values if value])
    if guess.n < LEAST_BLOCKS:
        return Ratio(guess.ratio, None, None, guess.n, metric.better)
    half = guess.half_width(LEVEL)
    return Ratio(guess.ratio, math.exp(guess.mean - half), math.exp(guess.mean + half), guess.n, metric.better)


def _guard_says(group: Sequence[Trial], baseline: str, metric: Metric) -> Iterator[str]:
    """Yield a line if the guard differs from the reference."""
    values = [
        (base.summary.get(metric.name), other.summary.get(metric.name))
        for base, other in paired(group, baseline, baseline + GUARD)
    ]
    measured = [(b, c) for b, c in values if b and c]
    if measured:
        guess = estimate(measured)
        if guess.p_value() < GUARD_P and abs(guess.mean) >= GUARD_SHIFT:
            yield f"the guard is {guess.ratio - 1:+.1%} from the reference that it is: the host was not quiet"


def _facts(loaded: LoadedRun) -> dict[str, str]:
    host = {"host": str(loaded.run.host["hostname"])} if loaded.run.host.get("hostname") else {}
    profiles = {f"{trial.engine}{PROFILE}": trial.profile for trial in loaded.trials if trial.profile}
    return {**host, **loaded.versions, **profiles}


def _changes(before: dict[str, str], now: dict[str, str]) -> Iterator[Change]:
    for name in now:
        if name in before and before[name] != now[name]:
            yield Change(name, before[name], now[name])


def document_of(night: Night) -> dict[str, Any]:
    """Return the line of a night; `breaks` are its changes as text."""
    return {**plain(night), "breaks": [change.text for change in night.changes]}


def known(results: Path, plan: str) -> list[Night]:
    """Return all nights of the plan, the oldest first. Raises ResultDamaged with the line that cannot be read."""
    path = results / FOLDER / f"{plan}.jsonl"
    if not os.path.lexists(path):
        return []
    try:
        lines = fileio.read_bytes(path, results).splitlines()
    except OSError as error:
        raise ResultDamaged(f"{path} cannot be read: {error.strerror}") from error
    known_plans = []
    for number, line in enumerate(lines, 1):
        try:
            known_plans.append(_night(fileio.sound_json(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ResultDamaged(f"{path}:{number}: {error}", remedy="Restore the file from a copy.") from error
    return sorted(known_plans, key=lambda night: night.created)


def every_plan(results: Path, damaged: list[DbbenchError]) -> dict[str, list[Night]]:
    """Return the nights of all plans, by the plan's name. Errors of unreadable files are added to `damaged`."""
    nights = {}
    for path in sorted((results / FOLDER).glob("*.jsonl")):
        try:
            nights[path.stem] = known(results, path.stem)
        except ResultDamaged as error:
            damaged.append(error)
    return nights


def append(results: Path, plan: str, night: Night) -> None:
    """Add a night, or replace that of the same run, atomically."""
    nights = [known_night for known_night in known(results, plan) if known_night.run != night.run]
    folder = results / FOLDER
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        fileio.sync(results)
    lines = [json.dumps(document_of(entry), ensure_ascii=False, allow_nan=False) for entry in (*nights, night)]
    fileio.write_text(folder / f"{plan}.jsonl", "\n".join(lines) + "\n")


def _night(content: dict[str, Any]) -> Night:
    """Parse the line of a night. Raises ValueError, TypeError, KeyError or AttributeError."""
    kept = {f.name: content[f.name] for f in dataclasses.fields(Night) if f.name in content}
    for name in ("ratios", "confirmations"):
        kept[name] = {key: Ratio(**value) for key, value in kept.get(name, {}).items()}
    night = TypeAdapter(Night).validate_python(kept)
    datetime.date.fromisoformat(night.night)
    datetime.datetime.fromisoformat(night.created)
    if not NAME.fullmatch(night.run):  # the name becomes that of a folder
        raise ValueError(f"{night.run!r} is not the name of a run")
    if any(value.ratio <= 0 for value in (*night.ratios.values(), *night.confirmations.values())):
        raise ValueError("a ratio is not greater than 0")
    return night


def local_date(utc: str) -> datetime.date:
    """Return the date of a time in the local time zone, in which the schedule of the nights is.

    By UTC, two nights at 01:30 in Central Europe would be two dates apart at the end of summer time.
    """
    return datetime.datetime.fromisoformat(utc).astimezone().date()


def missing_dates(nights: Sequence[Night], until: str | None = None) -> list[str]:
    """Return dates without a night between the first night and `until` (or the last night)."""
    missing = [date for one, other in itertools.pairwise(nights) for date in missing_between(one, other)]
    return missing + (missing_between(nights[-1], Night(until, "", until)) if until and nights else [])


def missing_between(one: Night, other: Night) -> list[str]:
    """Return the dates between two nights, none if the later one began within MOST_AGE_H of the earlier one.

    Then no night was left out, also if the schedule has another time zone than this machine, and the clock changed.
    """
    began, then = (datetime.datetime.fromisoformat(night.created).astimezone() for night in (one, other))
    if then - began <= datetime.timedelta(hours=MOST_AGE_H):
        return []
    first = datetime.date.fromisoformat(one.night)
    days = (datetime.date.fromisoformat(other.night) - first).days
    return [(first + datetime.timedelta(n)).isoformat() for n in range(1, days)]


@contextlib.contextmanager
def one_at_a_time(results: Path, plan: str) -> Iterator[None]:
    """Prevent a second nightly run of the same plan. Raises RunLocked."""
    folder = fileio.real_folder(results / FOLDER, results)
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with fileio.exclusive(
        folder / f".{plan}.lock",
        lambda pid: RunLocked(
            f"a nightly run of {plan} is in progress (process {pid})",
            remedy="Wait until it has ended.",
        ),
    ):
        yield


def guarded(plan: Plan) -> Plan:
    """Return the plan with the guard among its arms; the reference is its baseline.

    With kind `dir` and one directory per arm, the guard needs a separate directory; without one in the plan, there
    is no guard.
    """
    reference = next(arm for arm in plan.fs_setups if arm.label == (plan.baseline or plan.fs_setups[0].label))
    label = reference.label + GUARD
    if label in {arm.label for arm in plan.fs_setups} or (plan.device.paths and isinstance(plan.device.paths, dict)):
        return plan
    arms = (*plan.fs_setups, dataclasses.replace(reference, label=label))
    return dataclasses.replace(plan, fs_setups=arms, baseline=reference.label)


def prune(results: Path, nights: Sequence[Night], today: datetime.date) -> list[str]:
    """Remove expired data from the runs of these nights, never from other runs; return one line for each run."""
    pruned = []
    for night in nights:
        age = (today - datetime.date.fromisoformat(night.night)).days
        trials = results / night.run / "trials"
        if age <= RAW_DAYS or not fileio.real_folder(trials, results).is_dir():
            continue
        folders = [folder for folder in sorted(trials.glob("[!.]*")) if folder.is_dir() and not folder.is_symlink()]
        removed = sum(_pruned(folder, age > SERIES_DAYS) for folder in folders)
        if removed:
            pruned.append(f"{night.run}: raw output{' and seconds' if age > SERIES_DAYS else ''} of {removed} trials")
    return pruned


def _pruned(trial: Path, seconds_too: bool) -> bool:
    """Remove expired data; return whether there was any.

    Checksums are written first, so that an interrupted removal leaves a valid directory.
    """
    gone = [trial / "raw", *((trial / name for name in _SECONDS) if seconds_too else ())]
    gone = [path for path in gone if os.path.lexists(path)]
    if not gone:
        return False
    with fileio.writing(trial):
        kept = sorted(p for p in trial.rglob("*") if p.is_file() and p.name != SUMS
                      and not any(p == path or path in p.parents for path in gone))  # fmt: skip
        fileio.write_text(
            trial / SUMS, "".join(f"{fileio.sha256(path, trial)}  {path.relative_to(trial)}\n" for path in kept)
        )
        for path in gone:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return True


BASELINES_FILE: Final = "baselines.json"


@dataclass(frozen=True)
class Accepted:
    """An accepted run: nights are compared with its level from then on."""

    run: str
    created: str  # time at which the run was created
    reason: str
    at: str  # time at which it was accepted
    ratios: dict[str, Ratio]


def all_accepted(results: Path) -> dict[str, list[Accepted]]:
    """Return every acceptance by the plan's name, the oldest first. Raises ResultDamaged."""
    path = results / BASELINES_FILE
    if not os.path.lexists(path):
        return {}
    try:
        content: dict[str, list[dict[str, Any]]] = fileio.sound_json(fileio.read_bytes(path, results))
        return {plan: [_entry(entry) for entry in entries] for plan, entries in content.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultDamaged(f"{path}: {error}", remedy="Restore the file from a copy.") from error


def accepted(results: Path, plan: str) -> Accepted | None:
    """Return the newest acceptance for a plan."""
    entries = all_accepted(results).get(plan)
    return entries[-1] if entries else None


def accept(results: Path, loaded: LoadedRun, reason: str) -> Accepted:
    """Accept a run's level for its plan from now on."""
    night = night_of(loaded)
    entry = Accepted(loaded.path.name, loaded.run.created, reason, iso(time.time()), night.ratios)
    all_entries = all_accepted(results)
    all_entries.setdefault(loaded.run.plan.name, []).append(entry)
    fileio.write_json(
        results / BASELINES_FILE,
        {plan: [plain(entry_of_plan) for entry_of_plan in entries] for plan, entries in all_entries.items()},
    )
    return entry


def _entry(content: dict[str, Any]) -> Accepted:
    ratios = {key: Ratio(**value) for key, value in content["ratios"].items()}
    return Accepted(**{**content, "ratios": ratios})
