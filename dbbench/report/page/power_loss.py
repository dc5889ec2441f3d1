"""Section "Power loss": one row for each setup and engine, the controls, and contradictions of a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbbench.engines import profile_of
from dbbench.errors import LabContradicts
from dbbench.model import ControlFacts, LabFacts, LabRow
from dbbench.report.page.theme import Mark
from dbbench.results import LoadedRun
from dbbench.units import MISSING, count, number, size_text


@dataclass(frozen=True)
class CutRow:
    """A row of the table."""

    mark: Mark
    engine: str
    settings: str
    durability: str
    figures: tuple[str, ...]  # one per entry of `HEADINGS`
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
    contradiction_id: str
    invalid: tuple[str, ...]
    skipped: tuple[str, ...]
    disk: str
    complete: bool


HEADINGS = (
    "valid cuts",
    "commits checked",
    "lost",
    "cuts with torn pages",
    "failed recoveries",
    "flushes per commit",
)


def power_cuts(runs: Sequence[LoadedRun], marks: Mapping[str, Mark]) -> tuple[PowerCuts, ...]:
    """Return the power-loss tests of these runs; () if there was none."""
    return tuple(_shown(run.run.name, run.lab, marks) for run in runs if run.lab is not None)


def _shown(run: str, lab: LabFacts, marks: Mapping[str, Mark]) -> PowerCuts:
    return PowerCuts(
        run=run,
        rows=tuple(_row(row, marks[row.fs_setup]) for row in lab.rows),
        controls=tuple(map(_control, lab.controls)),
        blind=tuple(profile_of(engine).title for engine in lab.blind),
        contradictions=tuple((marks[row.fs_setup], f"{_engine(row)}, class {row.durability_class}: {row.contradiction}")
                             for row in lab.rows if row.contradiction),
        contradiction_id=LabContradicts.id,
        invalid=tuple(f"{row.fs_setup}, {_engine(row)}, cut {cut.number}: {cut.invalid}"
                      for row in lab.rows for cut in row.cuts if cut.invalid),
        skipped=tuple(f"{arm}: {why}" for arm, why in lab.skipped.items()),
        disk=_disk(lab),
        complete=lab.complete,
    )  # fmt: skip


def _row(row: LabRow, mark: Mark) -> CutRow:
    figures = (row.valid, row.acknowledged, row.lost, row.torn, row.failed_recoveries)
    flushes = MISSING if row.flushes_per_commit is None else number(row.flushes_per_commit)
    settings = ", ".join(f"{name}={value}" for name, value in row.settings.items())
    return CutRow(mark, _engine(row), settings or "defaults", row.durability_class,
                  (*map(number, figures), flushes), row.statement, row.harmed > 0)  # fmt: skip


def _engine(row: LabRow) -> str:
    return f"{profile_of(row.engine).title} {row.engine_version}".strip()


def _control(one: ControlFacts) -> str:
    title = profile_of(one.engine).title
    harmed = f"{one.harmed} of {count(one.valid, 'cut')} harmed ({one.needed} of {one.tries} are needed)"
    return f"{title}, {one.name}: {one.what}: {harmed}" + (f"; {one.note}" if one.note else "")


def _disk(lab: LabFacts) -> str:
    kept = lab.disk
    return (f"a volatile cache of {size_text(int(kept['cache_bytes']))} that writes back after {kept['destage_s']} s, "
            f"units of {kept['sector_bytes']} or {kept['block_bytes']} bytes")  # fmt: skip
