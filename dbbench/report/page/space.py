"""The table of restore, space and drain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.compare import means
from dbbench.metrics.table import METRICS
from dbbench.model import FreeExtents
from dbbench.report.page.groups import Group, Value
from dbbench.units import MISSING, number


def _of_summary(name: str) -> Value:
    return lambda trial: trial.summary.get(name)


def _of_space(attribute: str) -> Value:
    return lambda trial: getattr(trial.space, attribute) if trial.space is not None else None


def _mean_free(free: tuple[FreeExtents, ...] | None) -> float | None:
    extents = sum(extent.extents for extent in free or ())
    return sum(extent.bytes for extent in free or ()) / extents if extents else None


def space_table(groups: Sequence[Group]) -> View:
    """Return restore, space and debt of each arm; columns that no trial has are omitted and listed."""
    lines = []
    for group in groups:
        columns = [
            means({arm: map(value, group.used_of(arm)) for arm in group.arms})
            for _, value, _ in COLUMNS
        ]
        for row in group.ordered_rows:
            values = [column[row.fs_setup] for column in columns]
            if any(value is not None for value in values):
                lines.append((group, group.arm(row), values))
    kept = [i for i in range(len(COLUMNS)) if any(values[i] is not None for _, _, values in lines)]
    return View(
        headings=[COLUMNS[i][0] for i in kept],
        rows=[
            View(group=group, arm=arm, cells=[COLUMNS[i][2](values[i]) for i in kept])
            for group, arm, values in lines
        ],
        absent=[heading for i, (heading, _, _) in enumerate(COLUMNS) if i not in kept],
    )


# (heading, value of a trial, its text). The table has means over the trials that count.
COLUMNS: Final[tuple[tuple[str, Value, Callable[[float | None], str]], ...]] = (
    ("restore MB/s", _of_summary("restore_mb_per_s"), number),
    ("first query s", _of_summary("first_query_s"), number),
    ("data files", _of_space("logical_bytes"), METRICS["disk_bytes"].text),
    ("used on disk", _of_space("disk_bytes"), METRICS["disk_bytes"].text),
    ("data ÷ disk", _of_space("compression_ratio"), number),
    ("free", _of_space("free_bytes"), METRICS["disk_bytes"].text),
    (
        "of it metadata",
        _of_space("metadata_share"),
        lambda value: MISSING if value is None else f"{100 * value:.1f} %",
    ),
    ("extents of the largest file", _of_summary("largest_file_extents"), number),
    (
        "mean free extent",
        lambda t: _mean_free(t.space.free) if t.space else None,
        METRICS["disk_bytes"].text,
    ),
    (
        "mean free extent after ageing",
        lambda t: _mean_free(t.age.after) if t.age else None,
        METRICS["disk_bytes"].text,
    ),
    (
        "unwritten at the end",
        lambda t: t.drain.debt_bytes if t.drain else None,
        METRICS["disk_bytes"].text,
    ),
    ("drain s", lambda t: t.drain.drain_s if t.drain else None, number),
)
