"""Scans and other work that runs to completion as bars; restore, space and drain as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import Row, means
from dbbench.metrics.table import METRICS
from dbbench.model import FreeExtents
from dbbench.report.page.groups import Group, Of, of_summary
from dbbench.report.page.theme import Mark
from dbbench.units import GROUP, duration_text, number


@dataclass(frozen=True)
class Bar:
    """One arm of a scan. `share` is its length as a share of the longest."""

    mark: Mark
    apart: bool
    durability: str
    share: float
    value: str
    duration: str
    compression: str  # "data ÷ disk 2.31"; "" without compression
    row: Row


@dataclass(frozen=True)
class Bars:
    """The bars of one group."""

    group: Group
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class SpaceRow:
    """One arm of one group, as text and raw."""

    group: Group
    mark: Mark
    durability: str
    apart: bool
    cells: tuple[str, ...]
    raw: tuple[float | None, ...]


@dataclass(frozen=True)
class SpaceTable:
    """Restore, space and debt of all groups."""

    headings: tuple[str, ...]
    rows: tuple[SpaceRow, ...]
    absent: tuple[str, ...]


def bars(groups: Sequence[Group]) -> tuple[Bars, ...]:
    """Return MB/s (or seconds, if it is not known) of each workload that runs to its end."""
    all_bars = []
    for group in groups:
        if group.cells[0].window.kind != "to-completion":
            continue
        rates = {row.fs_setup: row.value for row in group.rows_of("mb_per_s")}
        durations = {row.fs_setup: row.value for row in group.rows_of("duration_s")}
        factors = {row.fs_setup: row.value for row in group.rows_of("compression_ratio")}
        unit, values = ("MB/s", rates) if any(rates.values()) else ("s", durations)
        top = max((v for v in values.values() if v is not None), default=0.0)
        if not top:
            continue
        all_bars.append(Bars(group, unit, tuple(
            Bar(group.marks[row.fs_setup], group.apart(row), row.durability_class,
                (values.get(row.fs_setup) or 0.0) / top, number(values.get(row.fs_setup)),
                duration_text(durations.get(row.fs_setup)), _compressed(factors.get(row.fs_setup)), row)
            for row in sorted(group.rows, key=group.apart)
        )))  # fmt: skip
    return tuple(all_bars)


def _compressed(factor: float | None) -> str:
    return "" if factor is None else f"data ÷ disk{GROUP}{number(factor)}"


def _space(attribute: str) -> Of:
    return lambda trial: getattr(trial.space, attribute) if trial.space is not None else None


def _bytes(value: float | None) -> str:
    return METRICS["disk_bytes"].text(value)


def _percent(value: float | None) -> str:
    return number(None) if value is None else f"{100 * value:.1f} %"


def _mean_free(free: tuple[FreeExtents, ...] | None) -> float | None:
    extents = sum(extent.extents for extent in free or ())
    return sum(extent.bytes for extent in free or ()) / extents if extents else None


# (heading, value of a trial, its text). The table has means over the trials that count.
COLUMNS: Final[tuple[tuple[str, Of, Callable[[float | None], str]], ...]] = (
    ("restore MB/s", of_summary("restore_mb_per_s"), number),
    ("first query s", of_summary("first_query_s"), number),
    ("data files", _space("logical_bytes"), _bytes),
    ("used on disk", _space("disk_bytes"), _bytes),
    ("data ÷ disk", _space("compression_ratio"), number),
    ("free", _space("free_bytes"), _bytes),
    ("of it metadata", _space("metadata_share"), _percent),
    ("extents of the largest file", of_summary("largest_file_extents"), number),
    ("mean free extent", lambda t: _mean_free(t.space.free) if t.space is not None else None, _bytes),
    ("mean free extent after ageing", lambda t: _mean_free(t.age.after) if t.age is not None else None, _bytes),
    ("unwritten at the end", lambda t: t.drain.debt_bytes if t.drain is not None else None, _bytes),
    ("drain s", lambda t: t.drain.drain_s if t.drain is not None else None, number),
)


def space_table(groups: Sequence[Group]) -> SpaceTable:
    """Return restore, space and debt of each arm; columns that no trial has are omitted and listed."""
    lines = []
    for group in groups:
        columns = [means({arm: map(of, group.used_of(arm)) for arm in group.arms}) for _, of, _ in COLUMNS]
        for row in sorted(group.rows, key=group.apart):
            values = [column[row.fs_setup] for column in columns]
            if any(value is not None for value in values):
                lines.append((group, row, values))
    kept = [i for i in range(len(COLUMNS)) if any(values[i] is not None for _, _, values in lines)]
    rows = tuple(
        SpaceRow(group, group.marks[row.fs_setup], row.durability_class, group.apart(row),
                 tuple(COLUMNS[i][2](values[i]) for i in kept), tuple(values[i] for i in kept))
        for group, row, values in lines
    )  # fmt: skip
    absent = tuple(COLUMNS[i][0] for i in range(len(COLUMNS)) if i not in kept)
    return SpaceTable(tuple(COLUMNS[i][0] for i in kept), rows, absent)
