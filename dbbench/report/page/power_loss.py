"""Section "Power loss": one row for each setup and engine, the controls, and contradictions of a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.engines import profile_of
from dbbench.errors import LabContradicts
from dbbench.model import ControlFacts, LabFacts, LabRow
from dbbench.report.page.theme import Mark
from dbbench.results import LoadedRun
from dbbench.units import MISSING, count, number, size_text

COLUMNS: Final[tuple[tuple[str, Callable[[LabRow], str]], ...]] = (
    ("valid cuts", lambda row: number(row.valid)),
    ("commits checked", lambda row: number(row.acknowledged)),
    ("lost", lambda row: number(row.lost)),
    ("cuts with torn pages", lambda row: number(row.torn)),
    ("failed recoveries", lambda row: number(row.failed_recoveries)),
    ("flushes per commit",
     lambda row: MISSING if row.flushes_per_commit is None else number(row.flushes_per_commit)),
)  # fmt: skip


@dataclass(frozen=True)
class CutRow:
    """A row of the table."""

    mark: Mark
    durability: str
    server: str  # with its settings
    figures: tuple[str, ...]  # one per entry of `COLUMNS`
    statement: str
    harmed: bool


@dataclass(frozen=True)
class PowerCuts:
    """A power-loss test, as the page shows it."""

    run: str
    rows: tuple[CutRow, ...]
    controls: tuple[str, ...]
    blind: tuple[str, ...]  # titles of engines whose controls lost nothing
    contradictions: tuple[tuple[Mark, str], ...]
    invalid: tuple[str, ...]
    skipped: tuple[str, ...]
    disk: str
    complete: bool
    headings: tuple[str, ...] = tuple(heading for heading, _ in COLUMNS)
    contradiction_id: str = LabContradicts.id


def power_cuts(runs: Sequence[LoadedRun], marks: Mapping[str, Mark]) -> tuple[PowerCuts, ...]:
    """Return the power-loss tests of these runs; () if there was none."""
    return tuple(_power_cuts(run.run.name, run.lab, marks) for run in runs if run.lab is not None)


def _power_cuts(run: str, lab: LabFacts, marks: Mapping[str, Mark]) -> PowerCuts:
    disk = lab.disk
    return PowerCuts(
        run=run,
        rows=tuple(_row(row, marks[row.fs_setup]) for row in lab.rows),
        controls=tuple(map(_control, lab.controls)),
        blind=tuple(profile_of(engine).title for engine in lab.blind),
        contradictions=tuple((marks[row.fs_setup], f"{_engine(row)}, class {row.durability_class}: {row.contradiction}")
                             for row in lab.rows if row.contradiction),
        invalid=tuple(f"{row.fs_setup}, {_engine(row)}, cut {cut.number}: {cut.invalid}"
                      for row in lab.rows for cut in row.cuts if cut.invalid),
        skipped=tuple(f"{arm}: {why}" for arm, why in lab.skipped.items()),
        disk=f"a volatile cache of {size_text(int(disk['cache_bytes']))} that writes back after {disk['destage_s']} s, "
             f"units of {disk['sector_bytes']} or {disk['block_bytes']} bytes",
        complete=lab.complete,
    )  # fmt: skip


def _row(row: LabRow, mark: Mark) -> CutRow:
    settings = ", ".join(f"{name}={value}" for name, value in row.settings.items()) or "defaults"
    figures = tuple(text(row) for _, text in COLUMNS)
    return CutRow(mark, row.durability_class, f"{_engine(row)}, {settings}", figures, row.statement, row.harmed > 0)


def _engine(row: LabRow) -> str:
    return f"{profile_of(row.engine).title} {row.engine_version}".strip()


def _control(control: ControlFacts) -> str:
    harmed = (
        f"{control.harmed} of {count(control.valid, 'cut')} harmed ({control.needed} of {control.tries} are needed)"
    )
    note = f"; {control.note}" if control.note else ""
    return f"{profile_of(control.engine).title}, {control.name}: {control.what}: {harmed}{note}"
