"""The groups of cells that are compared: one for each run, engine, workload and variant, with its
arms' figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dbbench.compare import Comparison, Row, chosen, stop_reasons
from dbbench.compare.remarks import RemarkKind, remark
from dbbench.engines import profile_of
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Status, Trial, TrialSpec
from dbbench.report.page.theme import Mark
from dbbench.results import LoadedRun
from dbbench.units import group_by

Value = Callable[[Trial], float | None]


class ArmLabel(NamedTuple):
    """An arm as every section names it. `apart`: its durability class differs from that of the
    baseline.
    """

    mark: Mark
    durability: str
    apart: bool

    @property
    def name(self) -> str:
        return self.mark.name


@dataclass(frozen=True)
class Group:
    """The trials of one engine, workload and variant of one run. `rows` has one row for each arm of
    the plan.
    """

    index: int
    loaded: LoadedRun
    cells: tuple[Cell, ...]  # one cell per arm, in the order of the plan
    trials: tuple[Trial, ...]
    marks: dict[str, Mark]
    of_several_runs: bool
    comparison: Comparison  # comparison of all trials of the run

    @property
    def ident(self) -> str:
        return f"c{self.index}"

    @property
    def engine(self) -> str:
        return self.cells[0].engine.name

    @property
    def workload(self) -> str:
        return self.cells[0].title

    @property
    def plain_name(self) -> str:
        """Return what the workload does in plain words; "" if its file does not say."""
        return self.cells[0].workload.plain_name

    @property
    def baseline(self) -> str:
        return self.loaded.run.baseline

    @property
    def arms(self) -> list[str]:
        return [cell.arm for cell in self.cells]

    @property
    def metric(self) -> Metric:
        return METRICS[self.cells[0].workload.primary]

    @property
    def engine_title(self) -> str:
        versions = " / ".join(
            sorted({trial.engine_version for trial in self.trials if trial.engine_version})
        )
        return f"{profile_of(self.engine).title} {versions}".strip()

    @property
    def title(self) -> str:
        run = f" · {self.loaded.run.name}" if self.of_several_runs else ""
        return f"{self.engine_title} · {self.workload}{run}"

    @cached_property
    def counted_ids(self) -> frozenset[str]:
        return frozenset(trial.id for trial in chosen(self.trials))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Return the rows of the primary metric, the baseline first, then from best to worst."""
        rows = self.rows_of(self.metric.name)
        seen = {row.fs_setup for row in rows}
        missing = [self._without_figures(arm) for arm in self.arms if arm not in seen]
        return tuple(sorted([*rows, *missing], key=lambda row: row.fs_setup != self.baseline))

    @cached_property
    def ordered_rows(self) -> tuple[Row, ...]:
        return tuple(sorted(self.rows, key=self.apart))

    def rows_of(self, metric: str) -> list[Row]:
        cell = self.cells[0]
        return self.comparison.rows(cell.group, metric)

    def row(self, arm: str, metric: str) -> Row | None:
        return next((row for row in self.rows_of(metric) if row.fs_setup == arm), None)

    def value(self, arm: str, metric: str) -> float | None:
        row = self.row(arm, metric)
        return None if row is None else row.value

    def missing(self) -> list[TrialSpec]:
        cells = {cell.id for cell in self.cells}
        todo = set(self.loaded.remaining)
        return [spec for spec in self.loaded.run.order if spec.cell in cells and spec.id in todo]

    def apart(self, row: Row) -> bool:
        class_known = "unknown" not in (row.durability_class, self.rows[0].durability_class)
        return row.mixed_durability and class_known

    def arm(self, row: Row) -> ArmLabel:
        return ArmLabel(self.marks[row.fs_setup], row.durability_class, self.apart(row))

    def trials_of(self, arm: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.fs_setup == arm]

    def used_of(self, arm: str) -> list[Trial]:
        return [trial for trial in self.trials_of(arm) if trial.id in self.counted_ids]

    def exclusions(self, arm: str) -> list[tuple[Trial, str]]:
        return [
            (trial, reason(trial))
            for trial in self.trials_of(arm)
            if trial.id not in self.counted_ids
        ]

    def _without_figures(self, arm: str) -> Row:
        failed = sum(trial.status is Status.FAILED for trial in self.trials_of(arm))
        note = remark(RemarkKind.FAILED, failed=failed) if failed else remark(RemarkKind.NOT_DRIVEN)
        return Row(
            arm,
            self.engine,
            self.cells[0].workload.name,
            notes=(note,),
            variant=self.cells[0].variant,
        )


def reason(trial: Trial) -> str:
    """Return in a few words why a trial is excluded."""
    if trial.error is not None:
        return f"{trial.error.id} in phase {trial.error.phase or 'unknown'}"
    if trial.status is Status.FAILED:
        return "failed"
    causes = sorted({warning.id for warning in trial.warnings if warning.suspect})
    if causes:
        return f"suspect ({', '.join(causes)})"
    return "its block was repeated"


def groups(runs: Sequence[LoadedRun]) -> list[Group]:
    """Return all groups in the order of the plans. Runs are never compared with each other here."""
    marks = marks_of(runs)
    page_groups: list[Group] = []
    # A run has its own baseline, margin and reasons to stop.
    for loaded in runs:
        run = loaded.run
        comparison = Comparison(
            loaded.trials,
            run.baseline,
            run.primary,
            run.plan.margin,
            stop_reasons(run),
        )
        for key, cells_of in group_by(run.cells, lambda cell: cell.group).items():
            trials = tuple(t for t in loaded.trials if (t.engine, t.workload, t.variant) == key)
            page_groups.append(
                Group(
                    len(page_groups),
                    loaded,
                    tuple(cells_of),
                    trials,
                    marks,
                    len(runs) > 1,
                    comparison,
                )
            )
    return page_groups


def marks_of(runs: Sequence[LoadedRun]) -> dict[str, Mark]:
    """Return a mark for each arm of the page: the same colour, dash and shape in every chart."""
    arms = dict.fromkeys(cell.arm for loaded in runs for cell in loaded.run.cells)
    return {arm: Mark(index, arm) for index, arm in enumerate(arms)}


def loaded_runs(groups: Sequence[Group]) -> list[LoadedRun]:
    """Return the runs of these groups, each once."""
    return list({group.loaded.path: group.loaded for group in groups}.values())


def all_arms(groups: Sequence[Group]) -> list[str]:
    """Return the arms of all groups in the order of the plans."""
    return list(dict.fromkeys(arm for group in groups for arm in group.arms))
