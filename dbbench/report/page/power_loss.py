"""Section "Power loss": one row for each setup and engine, the controls, and contradictions of a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbbench.engines import profile_of
from dbbench.errors import LabContradicts
from dbbench.model import LabFacts
from dbbench.report.harm_table import HarmTable, server_title
from dbbench.report.page.theme import Mark
from dbbench.results import LoadedRun
from dbbench.units import count, size_text


@dataclass(frozen=True)
class PowerCuts:
    """A power-loss test, as the page shows it."""

    run: str
    table: HarmTable
    marks: Mapping[str, Mark]
    contradiction_id: str = LabContradicts.id

    @property
    def lab(self) -> LabFacts:
        return self.table.lab

    @property
    def contradictions(self) -> list[tuple[Mark, str]]:
        return [(self.marks[row.fs_setup], f"{server_title(row)}, class {row.durability_class}: {row.contradiction}")
                for row in self.lab.rows if row.contradiction]  # fmt: skip

    @property
    def invalid(self) -> list[str]:
        return [f"{row.fs_setup}, {server_title(row)}, cut {cut.number}: {cut.invalid}"
                for row in self.lab.rows for cut in row.cuts if cut.invalid]  # fmt: skip

    @property
    def blind(self) -> list[str]:
        """Return the titles of engines whose controls lost nothing."""
        return [profile_of(engine).title for engine in self.lab.blind]

    @property
    def controls(self) -> list[str]:
        return [
            f"{profile_of(c.engine).title}, {c.name}: {c.what}: {c.harmed} of {count(c.valid, 'cut')} harmed "
            f"({c.needed} of {c.tries} are needed)" + (f"; {c.note}" if c.note else "")
            for c in self.lab.controls
        ]

    @property
    def disk(self) -> str:
        disk = self.lab.disk
        return (f"a volatile cache of {size_text(int(disk['cache_bytes']))} that writes back after {disk['destage_s']} "
                f"s, power-fail units of {disk['units']} bytes, also shifted by {disk['shift_bytes']}")  # fmt: skip


def power_cuts(runs: Sequence[LoadedRun], marks: Mapping[str, Mark]) -> tuple[PowerCuts, ...]:
    """Return the power-loss tests of these runs; () if there was none."""
    return tuple(PowerCuts(run.run.name, HarmTable(run, run.lab), marks) for run in runs if run.lab is not None)
