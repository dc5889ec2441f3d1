"""Trade-offs: for each setup its measured speed and cost, its features, and a summary in one sentence.

A setup of another durability class than the baseline is never ranked: its summary begins with the class.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND, GUARD
from dbbench.metrics.table import METRICS
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.storage.filesystems import character
from dbbench.storage.filesystems.port import Character
from dbbench.units import MISSING, change, duration_text, listed

CPU: Final = (METRICS["cpu_ms_per_tx"], METRICS["cpu_ms_per_gib"])  # a workload has one of them
WORTH_SAYING: Final = math.log(1.05)  # smaller differences of space and CPU are not mentioned


@dataclass(frozen=True)
class Choice:
    """One fs setup. `speeds` has a row of compare for each group, None where it was not measured there."""

    mark: Mark
    durability: str
    apart: bool
    speeds: tuple[Row | None, ...]
    stability: str
    disk: str
    cpu: str
    abilities: tuple[str, ...]
    trade: str


@dataclass(frozen=True)
class Choose:
    """The table over all groups of one run."""

    groups: tuple[Group, ...]
    headings: tuple[str, ...]  # headings of the columns of abilities
    rows: tuple[Choice, ...]


HEADINGS: Final = ("checksums", "repairs itself", "snapshots", "send, receive", "resize online", "fsck, scrub",
                   "when full")  # fmt: skip


def choose(groups: Sequence[Group]) -> Choose:
    """Return the table, without arms that no group has measured."""
    arms = dict.fromkeys(arm for group in groups for arm in group.arms if arm != group.baseline + GUARD)
    rows = [_choice(arm, groups) for arm in arms if any(_row(group, arm) for group in groups)]
    return Choose(tuple(groups), HEADINGS, tuple(sorted(rows, key=lambda choice: choice.apart)))


def _row(group: Group, arm: str) -> Row | None:
    return next((row for row in group.rows if row.fs_setup == arm and row.value is not None), None)


def _choice(arm: str, groups: Sequence[Group]) -> Choice:
    rows_of_arm = [(group, row) for group in groups if (row := _row(group, arm)) is not None]
    first, row = rows_of_arm[0]
    apart = any(group.apart(row) for group, row in rows_of_arm)
    setup = next(cell.setup for cell in first.cells if cell.arm == arm)
    able = character(setup)
    return Choice(
        mark=first.marks[arm],
        durability=row.durability_class,
        apart=apart,
        speeds=tuple(_row(group, arm) for group in groups),
        stability=_stability(arm, groups),
        disk=METRICS["disk_bytes"].text(_value(first, arm, "disk_bytes")),
        cpu=_cpu(arm, groups),
        abilities=_abilities(able, arm, groups),
        trade=_trade(arm, apart, row.durability_class, rows_of_arm, able),
    )


def _stability(arm: str, groups: Sequence[Group]) -> str:
    """Return the sum of stalled seconds in all used trials with a fixed window."""
    stalls = [trial.summary.get("stall_s") for group in groups if group.cells[0].window.kind == "fixed"
              for trial in group.used_of(arm)]  # fmt: skip
    measured = [stalled for stalled in stalls if stalled is not None]
    if not measured:
        return MISSING
    stalled = math.fsum(measured)
    return f"{duration_text(stalled)} stalled in all trials" if stalled else "no stalls"


def _cpu(arm: str, groups: Sequence[Group]) -> str:
    for group in groups:
        for metric in CPU:
            if (value := _value(group, arm, metric.name)) is not None:
                return f"{metric.with_unit(value)}/{'tx' if metric is CPU[0] else 'GiB'}"
    return MISSING


def _value(group: Group, arm: str, metric: str) -> float | None:
    return next((row.value for row in group.rows_of(metric) if row.fs_setup == arm), None)


def _abilities(able: Character | None, arm: str, groups: Sequence[Group]) -> tuple[str, ...]:
    checked = _checked(arm, groups)
    if able is None:
        return (*([MISSING] * 5), checked, MISSING)
    return (
        able.checksums,
        "yes" if able.repairs else "no",
        able.snapshots,
        "yes" if able.sends else "no",
        able.resize,
        checked,
        able.when_full,
    )


def _checked(arm: str, groups: Sequence[Group]) -> str:
    """Return the mean time of the operations fsck and scrub on the filled filesystem, if the plan has them."""
    took = [operation.seconds for group in groups for trial in group.used_of(arm) for operation in trial.operations
            if operation.name.split(":")[0] in ("fsck", "scrub") and operation.seconds is not None]  # fmt: skip
    return duration_text(statistics.fmean(took)) if took else MISSING


def _trade(arm: str, apart: bool, durability: str, mine: Sequence[tuple[Group, Row]], able: Character | None) -> str:
    """Return the gains and costs compared with the baseline, as far as the intervals support them."""
    if all(row.verdict == "baseline" for _, row in mine):
        return "The baseline."
    gains, costs = [], []
    for group, row in mine:
        where = f" ({group.engine_title}, {group.workload})" if len(mine) > 1 else ""
        if row.verdict in AHEAD:
            gains.append(f"{change(row.ratio)} {group.metric.label}{where}")
        elif row.verdict in BEHIND:
            costs.append(f"{change(row.ratio)} {group.metric.label}{where}")
    for metric, what in (("disk_bytes", "space on disk"), *((cpu.name, cpu.label) for cpu in CPU)):
        ratio = _ratio(mine[0][0], arm, metric)
        if ratio is not None and abs(math.log(ratio)) >= WORTH_SAYING:
            (gains if ratio < 1 else costs).append(f"{change(ratio)} {what}")
    _compare_abilities(able, _of_baseline(mine[0][0]), gains, costs)
    gets, pays = listed(gains) if gains else "", listed(costs) if costs else ""
    text = "; ".join(part for part in (f"gains {gets}" if gets else "", f"costs {pays}" if pays else "") if part)
    text = f"{text[0].upper()}{text[1:]}." if text else "No measured difference from the baseline."
    return (
        f"Weaker or different durability after a power loss ({durability}): not directly comparable. {text}"
        if apart
        else text
    )


def _ratio(group: Group, arm: str, metric: str) -> float | None:
    """Return the ratio of an arm's value to that of the baseline if the interval excludes 1, else None."""
    arm_row = next((row for row in group.rows_of(metric) if row.fs_setup == arm), None)
    return arm_row.ratio if arm_row is not None and arm_row.verdict in (*AHEAD, *BEHIND) else None


def _of_baseline(group: Group) -> Character | None:
    return next((character(cell.setup) for cell in group.cells if cell.arm == group.baseline), None)


def _compare_abilities(mine: Character | None, base: Character | None, gains: list[str], costs: list[str]) -> None:
    if mine is None or base is None:
        return
    for has, had, what in (
        (mine.checksums == "data and metadata", base.checksums == "data and metadata", "data checksums"),
        (mine.repairs, base.repairs, "self-repair"),
        (mine.snapshots != "no", base.snapshots != "no", "snapshots"),
    ):
        if has and not had:
            gains.append(what)
        elif had and not has:
            costs.append(f"no {what}")
