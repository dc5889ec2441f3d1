"""The verdicts of runs: a table for each engine and workload, by that workload's primary metric."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench import compare
from dbbench.compare import Row
from dbbench.compare.interaction import Interaction, curves, interactions
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.compare.unpaired import ByHost, by_host, unpaired_rows
from dbbench.compare.verdict import BEHIND, without_guard
from dbbench.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, UnknownName
from dbbench.errors.similar_names import did_you_mean
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Scalar, Trial, Verdict, title_of
from dbbench.plan.variants import LIMIT
from dbbench.report import pooling, sentences
from dbbench.results import LoadedRun
from dbbench.storage.layers.delay import OFF
from dbbench.units import group_by

ALL: Final = "all"  # value of `--metric`: every metric that was measured


class VerdictTable(NamedTuple):
    """The rows of one engine, workload and variant. `plain_name`: the workload in plain words.
    `place`, among `tests`: its name in an answer, see `pairs.with_places`.
    """

    engine: str
    workload: str
    variant: str
    metric: Metric
    rows: list[Row]
    plain_name: str = ""
    place: str = ""
    tests: int = 1

    @property
    def group(self) -> compare.Group:
        return (self.engine, self.workload, self.variant)


class Verdicts(NamedTuple):
    """What `compare` prints, in every format. `findings` are sentences about several tables, or
    about a whole run.
    """

    baseline: str
    tables: list[VerdictTable]
    findings: Sequence[str] = ()
    hosts: Sequence[ByHost] = ()
    interactions: Sequence[Interaction] = ()
    runs: Sequence[LoadedRun] = ()


def verdicts(
    runs: Sequence[LoadedRun],
    baseline: str | None = None,
    metric: str | None = None,
) -> Verdicts:
    """Return the tables of one or more runs, whose blocks stay separate. Without `metric` each
    workload is judged by its primary metric. Raises UnknownName for an unknown baseline or
    metric.
    """
    _check_metric(metric, (*METRICS, ALL))
    cells = [cell for run in runs for cell in run.run.cells]
    primary = _primaries(runs)
    plain_names = {cell.workload.name: cell.workload.plain_name for cell in cells}
    arms = list(dict.fromkeys(cell.arm for cell in cells))
    chosen = baseline or runs[0].run.baseline
    if chosen not in arms:
        raise UnknownName(f'"{chosen}" is not a setup of these runs{did_you_mean(chosen, arms)}')

    # The trials of all runs, and why pairs were not measured to the end.
    trials = list(runs[0].trials)
    if len(runs) > 1:
        trials = list(itertools.chain(*_separate(runs)))
    stopped: dict[tuple[compare.Group, str], Remark] = {}
    for run in runs:
        stopped |= compare.stop_reasons(run.run)
    comparison = compare.Comparison(
        trials,
        chosen,
        primary,
        runs[0].run.plan.margin,
        stopped,
    )
    cautions = tuple(pooling.cautions(runs))

    # A table for each engine and workload.
    tables = []
    hosts: list[ByHost] = []
    for key, group in compare.groups(trials).items():
        workload = key[1]
        judged = [metric or primary.get(workload, "tps")]
        names = list(METRICS) if metric == ALL else judged
        for name in names:
            rows = comparison.rows(key, name)
            if not rows:
                continue
            noted = _with_notes(rows, cautions)
            tables.append(VerdictTable(*key, METRICS[name], noted, plain_names[workload]))
            hosts += by_host(group, chosen, name)
    planned: list[compare.Group] = [cell.group for cell in cells]
    tables.sort(key=lambda table: planned.index(table.group))  # as on the page

    # What is true of several tables.
    levels = {cell.group: cell.levels for cell in cells if cell.levels}
    factors = set(itertools.chain.from_iterable(levels.values()))
    combined: list[Interaction] = []
    flush_ms = _flush_delays(cells, trials)
    findings: list[str] = []
    for name, of_metric in group_by(tables, lambda table: table.metric.name).items():
        rows = list(itertools.chain.from_iterable(table.rows for table in of_metric))
        for about in interactions(rows, levels, METRICS[name]):
            delays = flush_ms if about.factor == LIMIT else {}
            combined.append(dataclasses.replace(about, flush_ms=delays))
        swept = [curve for curve in curves(rows) if curve.parameter not in factors]
        lead = f"{METRICS[name].label}: " if metric == ALL else ""
        crossed = sentences.join(sentences.crossing(curve, chosen) for curve in swept)
        findings += [lead + text for text in crossed]
    for arm in hosts:
        where = f"{arm.engine} {title_of(arm.workload, arm.variant)}"
        text = sentences.disagreement(arm, chosen)
        findings += [f"{where}: {line}" for line in sentences.join([text])]
    return Verdicts(
        chosen,
        tables,
        findings,
        hosts,
        combined,
        runs,
    )


def _flush_delays(cells: Sequence[Cell], trials: Sequence[Trial]) -> dict[Scalar, int]:
    """Return the delay of a flush of each level of `limit`, shortest first, as measured where that is
    another one; none if they differ in more than that.
    """
    limits = {cell.limit.name: cell.limit for cell in cells if cell.limit is not None}
    others = set()
    delays: dict[Scalar, int] = {}
    for name, limit in limits.items():
        others.add(dataclasses.replace(limit, flush_ms=None, label=None))
        delays[name] = limit.flush_ms or 0
    # A kernel may delay by another time, because it counts ticks.
    measured: dict[str, list[float]] = {}
    for trial in trials:
        layers = trial.filesystem.layers if trial.filesystem else ()
        for layer in layers:
            if trial.limit is not None and "flush_measured_ms" in layer:
                delay_ms = float(layer["flush_measured_ms"])
                measured.setdefault(trial.limit.asked.name, []).append(delay_ms)
    for name, values in measured.items():
        asked = delays.get(name, 0)
        delay_ms = statistics.median(values)
        if abs(delay_ms - asked) > OFF * asked > 0:
            delays[name] = round(delay_ms)
    if len(others) == 1 and len(set(delays.values())) > 1:
        return dict(sorted(delays.items(), key=lambda item: item[1]))
    return {}


def compare_groups(
    runs: Sequence[LoadedRun],
    by: str,
    baseline: str | None = None,
    metric: str | None = None,
) -> Verdicts:
    """Return tables of each arm with each kernel, server version or run. UnknownName also if all
    have the same one.
    """
    _check_metric(metric, METRICS)
    primary = _primaries(runs)
    trials: list[Trial] = []
    names: list[str] = []
    for run, of_run in zip(runs, _separate(runs), strict=True):
        trials += of_run
        names += pooling.version_names(run, by, runs)
    # Each trial belongs to one kernel, version or run; of a single one there is no comparison.
    value_of = {trial.id: name for trial, name in zip(trials, names, strict=True)}
    values = list(dict.fromkeys(value_of.values()))
    if len(values) < 2 or (baseline is not None and baseline not in values):
        hint = "" if baseline is None else did_you_mean(baseline, values)
        option = "--against" if by == "run" else f"--by {by}"
        raise UnknownName(
            f"{option}: these runs have {', '.join(values) or 'no trial'}{hint}; at least two "
            "are needed"
        )

    # What else differs between the runs is in every ratio.
    unlike = ", ".join(pooling.differences(runs)) if by == "run" else ""
    cautions = tuple(pooling.profile_cautions(runs))
    if unlike:
        cautions = (remark(RemarkKind.RUNS_DIFFER, what=unlike),)
    margin = runs[-1].run.plan.margin  # of `compare NEW --against OLD` that of NEW
    # An arm is a table, with a row for each of the values.
    tables: dict[tuple[compare.Group, str], VerdictTable] = {}
    for key, group in compare.groups(trials).items():
        judged = METRICS[metric or primary.get(key[1], "tps")]
        rows = unpaired_rows(group, value_of, judged.name, baseline, margin)
        for row in _with_notes(rows, cautions):
            arm = row.fs_setup.rpartition(" @ ")[0]
            table = tables.setdefault((key, arm), VerdictTable(*key, judged, []))
            table.rows.append(row)
    return Verdicts(baseline or values[0], list(tables.values()), runs=runs)


def _check_metric(metric: str | None, known: Sequence[str] | dict[str, Metric]) -> None:
    if metric is not None and metric not in known:
        remedy = "The entries of `summary` in `dbbench show RUN TRIAL --json` are the metrics."
        raise UnknownName(f'no metric "{metric}"{did_you_mean(metric, METRICS)}', remedy=remedy)


def _with_notes(rows: Sequence[Row], notes: Sequence[Remark]) -> list[Row]:
    return [dataclasses.replace(row, notes=(*row.notes, *notes)) for row in rows]


def _separate(runs: Sequence[LoadedRun]) -> list[list[Trial]]:
    """Return the trials of each run with ids and block numbers that no other run has."""
    offset = 0
    separate = []
    for run in runs:
        trials = []
        for trial in run.trials:
            ident = f"{run.path}/{trial.id}"
            trials.append(
                dataclasses.replace(
                    trial,
                    id=ident,
                    block=trial.block + offset,
                )
            )
        separate.append(trials)
        offset += max((spec.block for spec in run.run.order), default=0)
    return separate


def _primaries(runs: Sequence[LoadedRun]) -> dict[str, str]:
    primary = dict[str, str]()
    for run in runs:
        primary |= run.run.primary
    return primary


def gate(verdicts: Verdicts) -> int:
    """Return 3 if any row is slower or worse without the plan expecting it, else 4 if any is
    undecided, else 0.
    """
    rows = [row for table in verdicts.tables for row in without_guard(table.rows)]
    if any(row.verdict in BEHIND and not is_expected(row, verdicts) for row in rows):
        return EXIT_REGRESSION
    # A run without rows has not decided anything.
    undecided = any(row.verdict in (Verdict.INCONCLUSIVE, Verdict.LIMITED) for row in rows)
    return EXIT_INCONCLUSIVE if undecided or not rows else EXIT_OK


def is_expected(row: Row, verdicts: Verdicts) -> bool:
    """Return whether `expect` of the plans says that the setup may be slower."""
    return any(row.fs_setup.partition(" @ ")[0] in run.run.plan.expect for run in verdicts.runs)
