"""Trade-offs: for each setup its measured speed and cost, and its features. A setup of another
durability class than the baseline is never ranked: it is in the last rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.verdict import GUARD
from dbbench.metrics.table import METRICS
from dbbench.report.page.groups import ArmLabel, Group, all_arms
from dbbench.report.page.operations import operation_of
from dbbench.storage.filesystems.family import Character
from dbbench.storage.filesystems.volumes import character
from dbbench.units import MISSING, duration_text

CPU: Final = {
    "cpu_ms_per_tx": "tx",
    "cpu_ms_per_gib": "GiB",
}  # a workload has one of them
HEADINGS: Final = (
    "checksums",
    "repairs itself",
    "snapshots",
    "send, receive",
    "resize online",
    "fsck, scrub",
    "when full",
)


class Choice(NamedTuple):
    """A setup. `speeds` has its row in each group, None where it was not measured; `abilities` has
    a text for each of HEADINGS.
    """

    arm: ArmLabel
    speeds: list[Row | None]
    stability: str
    disk: str
    cpu: str
    abilities: tuple[str, ...]


class Choices(NamedTuple):
    """The table over all groups."""

    groups: Sequence[Group]
    rows: list[Choice]
    headings: tuple[str, ...] = HEADINGS


def choose(groups: Sequence[Group]) -> Choices:
    """Return the table over all groups of one run, without arms that no group has measured."""
    guards = {group.baseline + GUARD for group in groups}
    choices = []
    for arm in all_arms(groups):
        rows = []
        for group in groups:
            row = group.row(arm, group.metric.name)
            rows.append(row if row and row.value is not None else None)
        if arm not in guards and any(rows):
            choices.append(_choice(arm, groups, rows))
    return Choices(groups, sorted(choices, key=lambda choice: choice.arm.apart))


def _choice(
    arm: str,
    groups: Sequence[Group],
    rows: list[Row | None],
) -> Choice:
    measured = [(group, row) for group, row in zip(groups, rows, strict=True) if row is not None]
    first, row = measured[0]

    # What the filesystem of this setup can do.
    setup = next(cell.setup for cell in first.cells if cell.arm == arm)
    apart = any(group.apart(row) for group, row in measured)
    return Choice(
        arm=ArmLabel(first.marks[arm], row.durability_class, apart),
        speeds=rows,
        stability=_stability(arm, groups),
        disk=METRICS["disk_bytes"].text(first.value(arm, "disk_bytes")),
        cpu=_cpu(arm, groups),
        abilities=_abilities(character(setup), _check_text(arm, groups)),
    )


def _stability(arm: str, groups: Sequence[Group]) -> str:
    stalls = []
    for group in groups:
        if group.cells[0].window.kind == "fixed":
            stalls += [trial.summary.get("stall_s") for trial in group.used_of(arm)]
    measured = [seconds for seconds in stalls if seconds is not None]
    if not measured:
        return MISSING
    stalled = math.fsum(measured)
    if stalled:
        return f"{duration_text(stalled)} stalled in all trials"
    return "no stalls"


def _cpu(arm: str, groups: Sequence[Group]) -> str:
    for group in groups:
        for metric, unit in CPU.items():
            value = group.value(arm, metric)
            if value is not None:
                return f"{METRICS[metric].with_unit(value)}/{unit}"
    return MISSING


def _abilities(able: Character | None, checked: str) -> tuple[str, ...]:
    if able is None:
        return (*([MISSING] * 5), checked, MISSING)
    # A filesystem that never overwrites needs free space even for a change.
    overwriting = "existing blocks can be overwritten"
    return (
        able.checksums,
        "yes" if able.repairs else "no",
        able.snapshots,
        "yes" if able.sends else "no",
        able.resize,
        checked,
        overwriting if able.in_place else "overwriting also needs free space",
    )


def _check_text(arm: str, groups: Sequence[Group]) -> str:
    took = []
    for group in groups:
        for trial in group.used_of(arm):
            for operation in trial.operations:
                if operation_of(operation.name) in ("fsck", "scrub"):
                    took.append(operation.seconds)
    measured = [seconds for seconds in took if seconds is not None]
    if measured:
        return duration_text(statistics.fmean(measured))
    return MISSING
