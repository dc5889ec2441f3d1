"""ceiling.json: what fio measured on the bare device, and which trials stayed at it. If a trial
exceeds a measurement, it is no limit for any trial of the run; therefore trials keep their
rates, and are judged whenever the run is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dbbench.errors import ResultDamaged
from dbbench.model import (
    CeilingFacts,
    CeilingRow,
    DeviceRate,
    Durability,
    Phase,
    Trial,
    TrialWarning,
    plain,
)
from dbbench.results.fileio import read_as, write_with_sum

FILE: Final = "ceiling.json"
NEAR: Final = 0.90  # least rate ÷ limit of a trial at the limit
BEYOND: Final = 1.08  # rate ÷ limit above which it is no limit
COMMON: Final = 0.10  # if the limits of reads and writes differ by less, they are one common limit
FLUSHED: Final = "_fdatasync"  # rows of single flushed writes
BOTH: Final = "reads and writes"
Kind = tuple[str, str]  # side and unit of a DeviceRate
Rows = tuple[CeilingRow, ...]


class Exceeded(NamedTuple):
    """A measurement of fio that a trial exceeded: `rate` is the highest, that of `arm`."""

    side: str
    unit: str
    before: float
    after: float | None  # of the second measurement, after the run
    arm: str
    rate: float
    flushes: float | None = None  # per second, of a trial whose rate is that of its transactions


class Reached(NamedTuple):
    """The highest rate of a kind, its setup, and the flushes per second of that trial."""

    rate: float
    arm: str = ""
    flushes: float | None = None


def save_ceiling(folder: Path, ceiling: CeilingFacts) -> None:
    """Write ceiling.json."""
    write_with_sum(folder / FILE, plain(ceiling))


def load_ceiling(folder: Path) -> CeilingFacts | None:
    """Read ceiling.json; None if the device has not been measured. Raises ResultDamaged."""
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        return read_as(CeilingFacts, path, folder.parent)
    except ResultDamaged as error:
        error.remedy = f"Remove the file to measure the device again: rm {path}"
        raise


def limits_of(rows: Sequence[CeilingRow]) -> dict[Kind, float]:
    """Return the highest rate of reads, of writes and of both together in IOPS and MB/s, and the
    rates of single flushed writes.
    """
    limits = {}
    for row in rows:
        if row.name.endswith(FLUSHED):
            limits[row.name, "IOPS"] = row.iops
    for unit in ("IOPS", "MB/s"):
        reads = 0.0
        writes = 0.0
        for row in rows:
            rate = row.iops if unit == "IOPS" else row.mb_per_s
            if row.name.startswith("read"):
                reads = max(reads, rate)
            elif row.name.startswith("write"):
                writes = max(writes, rate)
        limits |= {("reads", unit): reads, ("writes", unit): writes}
        if min(reads, writes) > (1 - COMMON) * max(reads, writes):
            limits[BOTH, unit] = max(reads, writes)
    return {kind: limit for kind, limit in limits.items() if limit > 0}


def judge(
    trials: Sequence[Trial], ceiling: CeilingFacts | None
) -> tuple[tuple[Trial, ...], tuple[Exceeded, ...]]:
    """Return the trials with W042 if the device limited them, and the measurements that a trial
    exceeded. Trials of different hosts have different measurements. `ceiling` is that of this
    host.
    """
    whole = ceiling or CeilingFacts()

    # The highest rate of each kind, by the measurement of the trial's host.
    highest = dict[Rows, dict[Kind, Reached]]()
    for trial in trials:
        if trial.ceiling is None or not trial.ceiling.rates:
            continue
        of_rows = highest.setdefault(trial.ceiling.rows, {})
        for rate in _comparable(trial):
            kind = (rate.side, rate.unit)
            reached = Reached(rate.median, trial.fs_setup, _flushes_per_s(trial))
            of_rows[kind] = max(of_rows.get(kind, Reached(0.0)), reached, key=lambda r: r.rate)

    # Which measurements are limits, and which were exceeded.
    exceeded = list[Exceeded]()
    limits = dict[Rows, dict[Kind, float]]()
    for rows, of_rows in highest.items():
        again = limits_of(whole.again if whole.rows == rows else ())
        limits[rows] = {}
        for kind, before in limits_of(rows).items():
            if again and kind not in again:
                continue  # reads and writes have a common limit according to one measurement only
            side, unit = kind
            after = again.get(kind)
            limit = max(before, after or 0.0)
            most = of_rows.get(kind, Reached(0.0))
            if most.rate <= BEYOND * limit:
                limits[rows][kind] = limit
            elif side != BOTH or {("reads", unit), ("writes", unit)} <= limits[rows].keys():
                flushes = most.flushes if side.endswith(FLUSHED) else None
                exceeded.append(
                    Exceeded(
                        side,
                        unit,
                        before,
                        after,
                        most.arm,
                        most.rate,
                        flushes,
                    )
                )
    with_limits = tuple(_with_limits(trial, limits) for trial in trials)
    return with_limits, tuple(exceeded)


def _comparable(trial: Trial) -> Iterator[DeviceRate]:
    """Yield the trial's rates; that of its transactions only if each of them waits for a flush."""
    facts = trial.filesystem
    flags = facts.durability_flags if facts is not None else ()
    waits = Durability.ASYNC_COMMIT not in flags and Durability.NO_BARRIER not in flags
    rates = trial.ceiling.rates if trial.ceiling is not None else ()
    for rate in rates:
        if waits or not rate.side.endswith(FLUSHED):
            yield rate


def _flushes_per_s(trial: Trial) -> float | None:
    seconds = trial.phase_s(Phase.MEASURE)
    if trial.io is None or trial.io.flushes is None or not seconds:
        return None
    return trial.io.flushes / seconds


def _with_limits(trial: Trial, limits: Mapping[Rows, Mapping[Kind, float]]) -> Trial:
    if trial.ceiling is None or not trial.ceiling.rates:
        return trial
    of_rows = limits[trial.ceiling.rows]
    # A rate near a limit that it never leaves is the device's.
    shares = list[float]()  # of single flushed writes, in per cent
    texts = dict[Kind, str]()
    for rate in _comparable(trial):
        kind = (rate.side, rate.unit)
        limit = of_rows.get(kind, math.inf)
        if rate.side.endswith(FLUSHED) and kind in of_rows:
            shares.append(100 * rate.median / limit)
        if rate.constant and rate.median / limit >= NEAR:
            constant = f"{rate.side} constant at {rate.median:.4g} {rate.unit}"
            texts[kind] = f"{constant}; the bare device delivers {limit:.4g}"
    # The common limit of reads and writes says more than that of each.
    for side, unit in list(texts):
        if side != BOTH and (BOTH, unit) in texts:
            del texts[side, unit]
    if texts:
        warning = TrialWarning("W042", "; ".join(texts.values()))
        trial = replace(trial, warnings=(*trial.warnings, warning))
    ceiling_pct = shares[0] if shares else None
    return replace(trial, summary={**trial.summary, "ceiling_pct": ceiling_pct})
