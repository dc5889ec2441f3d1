"""Trade-offs: for each setup its measured speed and cost, and its features. A setup of another
durability class than the baseline is never ranked: it is in the last rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.compare import Row
from dbbench.compare.verdict import GUARD
from dbbench.metrics.table import METRICS
from dbbench.report.page.groups import ArmLabel, Group, all_arms
from dbbench.storage.filesystems.port import Character
from dbbench.storage.filesystems.volumes import character
from dbbench.units import MISSING, duration_text

CPU: Final = {"cpu_ms_per_tx": "tx", "cpu_ms_per_gib": "GiB"}  # a workload has one of them
HEADINGS: Final = (
    "checksums",
    "repairs itself",
    "snapshots",
    "send, receive",
    "resize online",
    "fsck, scrub",
    "when full",
)


def choose(groups: Sequence[Group]) -> View:
    """Return the table over all groups of one run, without arms that no group has measured."""
    baselines = {group.baseline + GUARD for group in groups}
    choices = [
        _choice(arm, groups)
        for arm in all_arms(groups)
        if arm not in baselines and any(_row(group, arm) for group in groups)
    ]
    return View(
        groups=groups, rows=sorted(choices, key=lambda choice: choice.arm.apart), headings=HEADINGS
    )


def _row(group: Group, arm: str) -> Row | None:
    return next((row for row in group.rows if row.fs_setup == arm and row.value is not None), None)


def _choice(arm: str, groups: Sequence[Group]) -> View:
    measured = [(group, row) for group in groups if (row := _row(group, arm)) is not None]
    first, row = measured[0]
    able = character(next(cell.setup for cell in first.cells if cell.arm == arm))
    return View(
        arm=ArmLabel(
            first.marks[arm], row.durability_class, any(group.apart(row) for group, row in measured)
        ),
        speeds=[_row(group, arm) for group in groups],  # None where it was not measured
        stability=_stability(arm, groups),
        disk=METRICS["disk_bytes"].text(first.value(arm, "disk_bytes")),
        cpu=_cpu(arm, groups),
        abilities=_abilities(able, _check_text(arm, groups)),
    )


def _stability(arm: str, groups: Sequence[Group]) -> str:
    stalls = [
        trial.summary.get("stall_s")
        for group in groups
        if group.cells[0].window.kind == "fixed"
        for trial in group.used_of(arm)
    ]
    measured = [stalled for stalled in stalls if stalled is not None]
    if not measured:
        return MISSING
    stalled = math.fsum(measured)
    return f"{duration_text(stalled)} stalled in all trials" if stalled else "no stalls"


def _cpu(arm: str, groups: Sequence[Group]) -> str:
    for group in groups:
        for metric, unit in CPU.items():
            if (value := group.value(arm, metric)) is not None:
                return f"{METRICS[metric].with_unit(value)}/{unit}"
    return MISSING


def _abilities(able: Character | None, checked: str) -> tuple[str, ...]:
    if able is None:
        return (*([MISSING] * 5), checked, MISSING)
    repairs, sends = ("yes" if ability else "no" for ability in (able.repairs, able.sends))
    full = (
        "existing blocks can be overwritten"
        if able.in_place
        else "overwriting also needs free space"
    )
    return (able.checksums, repairs, able.snapshots, sends, able.resize, checked, full)


def _check_text(arm: str, groups: Sequence[Group]) -> str:
    took = [
        operation.seconds
        for group in groups
        for trial in group.used_of(arm)
        for operation in trial.operations
        if operation.name.split(":")[0] in ("fsck", "scrub") and operation.seconds is not None
    ]
    return duration_text(statistics.fmean(took)) if took else MISSING
