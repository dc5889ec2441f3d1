"""The table of restore, space and drain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dbbench.compare import means
from dbbench.metrics.table import METRICS
from dbbench.model import FreeExtents
from dbbench.report.page.groups import ArmLabel, Group, Value
from dbbench.units import MISSING, number


class SpaceColumn(NamedTuple):
    """A figure of a trial and its text. The table has means over the trials that count."""

    heading: str
    value: Value
    text: Callable[[float | None], str]


class SpaceRow(NamedTuple):
    """An arm of a group."""

    group: Group
    arm: ArmLabel
    cells: list[str]


class SpaceTable(NamedTuple):
    """All groups; `absent` are the headings of columns that no trial has."""

    headings: list[str]
    rows: list[SpaceRow]
    absent: list[str]


def space_table(groups: Sequence[Group]) -> SpaceTable:
    """Return restore, space and debt of each arm; columns that no trial has are omitted and listed."""
    # The means of each arm, without arms that have none.
    lines = []
    for group in groups:
        columns = []
        for column in COLUMNS:
            values_of = {arm: map(column.value, group.used_of(arm)) for arm in group.arms}
            columns.append(means(values_of))
        for row in group.ordered_rows:
            values = [of_arm[row.fs_setup] for of_arm in columns]
            if any(value is not None for value in values):
                lines.append((group, group.arm(row), values))

    # A column that no trial has is only named below the table.
    kept = [any(values[i] is not None for _, _, values in lines) for i in range(len(COLUMNS))]
    shown = list(itertools.compress(COLUMNS, kept))
    rows = []
    for group, arm, values in lines:
        measured = itertools.compress(values, kept)
        cells = [column.text(value) for column, value in zip(shown, measured, strict=True)]
        rows.append(SpaceRow(group, arm, cells))
    absent = [column.heading for column in COLUMNS if column not in shown]
    return SpaceTable([column.heading for column in shown], rows, absent)


def _of_summary(name: str) -> Value:
    return lambda trial: trial.summary.get(name)


def _of_space(attribute: str) -> Value:
    return lambda trial: getattr(trial.space, attribute) if trial.space is not None else None


def _mean_free(free: tuple[FreeExtents, ...] | None) -> float | None:
    extents = sum(extent.extents for extent in free or ())
    if extents:
        return sum(extent.bytes for extent in free or ()) / extents
    return None


_bytes_text = METRICS["disk_bytes"].text


COLUMNS: Final = (
    SpaceColumn("restore MB/s", _of_summary("restore_mb_per_s"), number),
    SpaceColumn("first query s", _of_summary("first_query_s"), number),
    SpaceColumn("data files", _of_space("logical_bytes"), _bytes_text),
    SpaceColumn("used on disk", _of_space("disk_bytes"), _bytes_text),
    SpaceColumn("data ÷ disk", _of_space("compression_ratio"), number),
    SpaceColumn("free", _of_space("free_bytes"), _bytes_text),
    SpaceColumn(
        "of it metadata",
        _of_space("metadata_share"),
        lambda share: MISSING if share is None else f"{100 * share:.1f} %",
    ),
    SpaceColumn("extents of the largest file", _of_summary("largest_file_extents"), number),
    SpaceColumn(
        "mean free extent",
        lambda trial: _mean_free(trial.space.free) if trial.space else None,
        _bytes_text,
    ),
    SpaceColumn(
        "mean free extent after ageing",
        lambda trial: _mean_free(trial.age.after) if trial.age else None,
        _bytes_text,
    ),
    SpaceColumn(
        "unwritten at the end",
        lambda trial: trial.drain.debt_bytes if trial.drain else None,
        _bytes_text,
    ),
    SpaceColumn("drain s", lambda trial: trial.drain.drain_s if trial.drain else None, number),
)
