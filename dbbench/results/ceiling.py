"""ceiling.json: what fio measured on the bare device, and which trials stayed at it. If a trial
exceeds a measurement, it is no limit for any trial of the run; therefore trials keep their
rates, and are judged whenever the run is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dbbench.errors import ResultDamaged
from dbbench.model import CeilingFacts, CeilingRow, Trial, TrialWarning, plain
from dbbench.results.fileio import read_as, write_with_sum

FILE: Final = "ceiling.json"
NEAR: Final = 0.90  # least rate ÷ limit of a trial at the limit
BEYOND: Final = 1.08  # rate ÷ limit above which it is no limit
COMMON: Final = 0.10  # if the limits of reads and writes differ by less, they are one common limit
FLUSHED: Final = "_fdatasync"  # rows of single flushed writes
BOTH: Final = "reads and writes"
Kind = tuple[str, str]  # side and unit of a DeviceRate


class Exceeded(NamedTuple):
    """A measurement of fio that a trial exceeded: `rate` is the highest, that of `arm`."""

    side: str
    unit: str
    before: float
    after: float | None  # of the second measurement, after the run
    arm: str
    rate: float


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
    limits = {(row.name, "IOPS"): row.iops for row in rows if row.name.endswith(FLUSHED)}
    for unit in ("IOPS", "MB/s"):
        reads, writes = (
            max(
                (
                    row.iops if unit == "IOPS" else row.mb_per_s
                    for row in rows
                    if row.name.startswith(side)
                ),
                default=0,
            )
            for side in ("read", "write")
        )
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
    measured = {
        trial.id: trial.ceiling
        for trial in trials
        if trial.ceiling is not None and trial.ceiling.rates
    }
    exceeded: list[Exceeded] = []
    limits: dict[tuple[CeilingRow, ...], dict[Kind, float]] = {}
    for rows in dict.fromkeys(facts.rows for facts in measured.values()):
        again = limits_of(whole.again if whole.rows == rows else ())
        of_rows = [
            trial for trial in trials if trial.id in measured and measured[trial.id].rows == rows
        ]
        limits[rows] = {}
        for kind, before in limits_of(rows).items():
            if again and kind not in again:
                continue  # reads and writes have a common limit according to one measurement only
            after = again.get(kind)
            limit = max(before, after or 0.0)
            rates = [
                (rate.median, trial.fs_setup)
                for trial in of_rows
                for rate in measured[trial.id].rates
                if (rate.side, rate.unit) == kind
            ]
            highest, arm = max(rates, default=(0.0, ""))
            if highest <= BEYOND * limit:
                limits[rows][kind] = limit
            elif (
                kind[0] != BOTH or {("reads", kind[1]), ("writes", kind[1])} <= limits[rows].keys()
            ):
                exceeded.append(Exceeded(*kind, before, after, arm, highest))
    with_limits = (
        _with_limits(t, limits[measured[t.id].rows]) if t.id in measured else t for t in trials
    )
    return tuple(with_limits), tuple(exceeded)


def _with_limits(trial: Trial, limits: dict[Kind, float]) -> Trial:
    rates = trial.ceiling.rates if trial.ceiling is not None else ()
    at = [
        rate
        for rate in rates
        if rate.constant and rate.median / limits.get((rate.side, rate.unit), math.inf) >= NEAR
    ]
    common = {rate.unit for rate in at if rate.side == BOTH}
    texts = [
        f"{rate.side} constant at {rate.median:.4g} {rate.unit}; the bare device delivers "
        f"{limits[rate.side, rate.unit]:.4g}"
        for rate in at
        if rate.side == BOTH or rate.unit not in common
    ]
    shares = [
        100 * rate.median / limits[rate.side, rate.unit]
        for rate in rates
        if rate.side.endswith(FLUSHED) and (rate.side, rate.unit) in limits
    ]
    warnings = (
        (*trial.warnings, TrialWarning("W042", "; ".join(texts))) if texts else trial.warnings
    )
    return replace(
        trial,
        warnings=warnings,
        summary={**trial.summary, "ceiling_pct": shares[0] if shares else None},
    )
