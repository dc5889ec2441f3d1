"""The history: a line per night in RESULTS/nightly/PLAN.jsonl, which outlives the directories of
the runs, and the runs that a person accepted in RESULTS/baselines.json. Raw output of a night is
kept a month, its seconds a year.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench.errors import DbbenchError, ResultDamaged, RunLocked, collect_errors
from dbbench.model import plain
from dbbench.model.base import NAME
from dbbench.nightly.night import Accepted, Night, document_of, night_of
from dbbench.results import LoadedRun, fileio
from dbbench.results.trials import SUMS
from dbbench.units import iso

FOLDER: Final = "nightly"
BASELINES_FILE: Final = "baselines.json"
# age of the newest night: a day, and six hours for a night that begins or takes longer
MOST_AGE_H: Final = 30.0
RAW_DAYS: Final = 30
SERIES_DAYS: Final = 365
_SECONDS: Final = ("series.csv.gz", "histogram.json")


def all_nights(results: Path, plan: str) -> list[Night]:
    """Return all nights of the plan, the oldest first. Raises ResultDamaged with the line that
    cannot be read.
    """
    path = results / FOLDER / f"{plan}.jsonl"
    if not os.path.lexists(path):
        return []
    try:
        lines = fileio.read_bytes(path, results).splitlines()
    except OSError as error:
        raise ResultDamaged(f"{path} cannot be read: {error.strerror}") from error
    nights = []
    for number, line in enumerate(lines, 1):
        try:
            nights.append(_night(line))
        except ValueError as error:
            raise ResultDamaged(
                f"{path}:{number}: {error}", remedy="Restore the file from a copy."
            ) from error
    return sorted(nights, key=lambda night: night.created)


def every_plan(results: Path, damaged: list[DbbenchError] | None) -> dict[str, list[Night]]:
    """Return the nights of all plans, by the plan's name. Raises ResultDamaged, or adds the errors
    to `damaged`.
    """
    nights = {}
    for path in fileio.matches(results / FOLDER, "*.jsonl"):
        with collect_errors(damaged, ResultDamaged):
            nights[path.stem] = all_nights(results, path.stem)
    return nights


def append(results: Path, plan: str, night: Night) -> None:
    """Add a night, or replace that of the same run, atomically."""
    nights = [other for other in all_nights(results, plan) if other.run != night.run]
    folder = results / FOLDER
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        fileio.sync(results)
    lines = [
        json.dumps(
            document_of(entry),
            ensure_ascii=False,
            allow_nan=False,
        )
        for entry in (*nights, night)
    ]
    fileio.write_text(folder / f"{plan}.jsonl", "\n".join(lines) + "\n")


def _night(line: bytes) -> Night:
    """Parse the line of a night. Raises ValueError."""
    night = fileio.parsed_as(Night, line)
    datetime.date.fromisoformat(night.night)
    datetime.datetime.fromisoformat(night.created)
    if not NAME.fullmatch(night.run):  # the name becomes that of a folder
        raise ValueError(f"{night.run!r} is not the name of a run")
    if any(value.ratio <= 0 for value in (*night.ratios.values(), *night.confirmations.values())):
        raise ValueError("a ratio is not greater than 0")
    return night


def by_date(nights: Sequence[Night]) -> Iterator[tuple[str, Night | None]]:
    """Yield the nights with their dates, and between them None for each date without a night."""
    for before, night in zip((None, *nights), nights, strict=False):
        if before is not None:
            for date in _missing_between(before, night):
                yield date, None
        yield night.night, night


def missing_dates(nights: Sequence[Night]) -> list[str]:
    """Return dates without a night between the first night and the last one."""
    return [date for date, night in by_date(nights) if night is None]


def spans(dates: Sequence[str]) -> list[str]:
    """Return consecutive dates as one text: "from 2026-01-02 to 2026-01-09 (8 dates)"."""
    days = [datetime.date.fromisoformat(date) for date in dates]
    # Days in a row are one span.
    runs: list[list[datetime.date]] = []
    for day in days:
        if runs and (day - runs[-1][-1]).days == 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    texts = []
    for run in runs:
        if len(run) == 1:
            texts.append(f"on {run[0]}")
        else:
            texts.append(f"from {run[0]} to {run[-1]} ({len(run)} dates)")
    return texts


def _missing_between(earlier: Night, later: Night) -> list[str]:
    """Return the dates between two nights, none if the later one began within MOST_AGE_H of the
    earlier one. Then no night was left out, also if the schedule has another time zone than this
    machine, and the clock changed.
    """
    before = datetime.datetime.fromisoformat(earlier.created).astimezone()
    after = datetime.datetime.fromisoformat(later.created).astimezone()
    if after - before <= datetime.timedelta(hours=MOST_AGE_H):
        return []
    first = datetime.date.fromisoformat(earlier.night)
    last = datetime.date.fromisoformat(later.night)
    dates = []
    for n in range(1, (last - first).days):
        date = first + datetime.timedelta(n)
        dates.append(date.isoformat())
    return dates


@contextlib.contextmanager
def one_at_a_time(results: Path, plan: str) -> Iterator[None]:
    """Prevent a second nightly run of the same plan. Raises RunLocked."""
    folder = fileio.real_folder(results / FOLDER, results)
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    running = f"a nightly run of {plan} is in progress"
    remedy = "Wait until it has ended."
    with fileio.exclusive(
        folder / f".{plan}.lock", lambda pid: RunLocked(f"{running} (process {pid})", remedy=remedy)
    ):
        yield


def prune(
    results: Path,
    nights: Sequence[Night],
    today: datetime.date,
) -> list[str]:
    """Remove expired data from the runs of these nights, never from other runs; return one line for
    each run.
    """
    pruned = []
    for night in nights:
        age = (today - datetime.date.fromisoformat(night.night)).days
        trials = results / night.run / "trials"
        if age <= RAW_DAYS or not fileio.real_folder(trials, results).is_dir():
            continue
        folders = [
            folder
            for folder in sorted(trials.glob("[!.]*"))
            if folder.is_dir() and not folder.is_symlink()
        ]
        seconds_too = age > SERIES_DAYS
        removed = sum(_prune(folder, seconds_too) for folder in folders)
        if removed:
            what = "raw output and seconds" if seconds_too else "raw output"
            pruned.append(f"{night.run}: {what} of {removed} trials")
    return pruned


def _prune(trial: Path, seconds_too: bool) -> bool:
    """Remove expired data once checksums are written, so that the directory stays valid; return if
    there was any.
    """
    names = ["raw", *_SECONDS] if seconds_too else ["raw"]
    expired = [trial / name for name in names if os.path.lexists(trial / name)]
    if not expired:
        return False
    with fileio.writing(trial):
        # The checksums of what stays.
        lines = []
        for path in sorted(trial.rglob("*")):
            stays = not any(path.is_relative_to(root) for root in expired)
            if stays and path.is_file() and path.name != SUMS:
                lines.append(f"{fileio.sha256(path, trial)}  {path.relative_to(trial)}\n")
        fileio.write_text(trial / SUMS, "".join(lines))

        for path in expired:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return True


def acceptances(results: Path) -> dict[str, list[Accepted]]:
    """Return every acceptance by the plan's name, the oldest first. Raises ResultDamaged."""
    path = results / BASELINES_FILE
    if not os.path.lexists(path):
        return {}
    try:
        return fileio.parsed_as(dict[str, list[Accepted]], fileio.read_bytes(path, results))
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        raise ResultDamaged(f"{path}: {error}", remedy="Restore the file from a copy.") from error


def acceptance(results: Path, plan: str) -> Accepted | None:
    """Return the newest acceptance for a plan."""
    entries = acceptances(results).get(plan)
    return entries[-1] if entries else None


def accept(results: Path, loaded: LoadedRun, reason: str) -> Accepted:
    """Accept a run's level for its plan from now on."""
    night = night_of(loaded)
    entry = Accepted(
        loaded.path.name,
        loaded.run.created,
        reason,
        iso(time.time()),
        night.ratios,
    )
    all_entries = acceptances(results)
    all_entries.setdefault(loaded.run.plan.name, []).append(entry)
    fileio.write_json(results / BASELINES_FILE, plain(all_entries))
    return entry
