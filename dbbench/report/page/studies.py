"""Section "Then and now" of the run of a published study: the published figures next to those of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dbbench.compare import Row
from dbbench.engines import profile_of
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Trial
from dbbench.plan import studies
from dbbench.plan.studies import Study, StudyTable
from dbbench.report.page.axes import Axis, polyline, step_above
from dbbench.report.page.groups import Group
from dbbench.report.page.telemetry import Telemetry, Values, telemetry
from dbbench.report.page.theme import Mark
from dbbench.units import duration_text, level_text, number, size_text, times

WIDTH, HEIGHT = 360, 120  # size of a chart in SVG units
# Charts of the machine in the published articles, per second: (title, unit, columns that are added, factor).
_CHARTS: Final[dict[str, tuple[str, str, tuple[str, ...], float]]] = {
    "cpu": ("CPU", "% of all cores", ("cpu_user_pct", "cpu_nice_pct", "cpu_system_pct", "cpu_irq_pct",
                                      "cpu_softirq_pct"), 1.0),
    "disk": ("Block transfer", "MB/s read and written", ("disk_read_kb_per_s", "disk_write_kb_per_s"), 0.001),
    "iowait": ("iowait", "% of all cores", ("cpu_iowait_pct",), 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class StudyLine:
    """One arm of one table. `ratio`s are to the study's baseline."""

    mark: Mark
    then: str
    then_ratio: str
    now: str
    row: Row | None
    why: str  # why nothing was measured


@dataclass(frozen=True)
class ThenNowTable:
    """One metric of one workload."""

    title: str
    published: bool
    lines: tuple[StudyLine, ...]
    note: str
    superseded: str


@dataclass(frozen=True)
class StudyCurve:
    """The mean over an arm's trials that count, as an SVG path."""

    mark: Mark
    path: str
    mean: str


@dataclass(frozen=True)
class StudyChart:
    """The article's chart, drawn from this run; `top` is the highest value of the scale, `why` the reason if it is not
    drawn.
    """

    title: str
    top: str
    seconds: int
    curves: tuple[StudyCurve, ...]
    why: str = ""
    missing: tuple[tuple[Mark, str], ...] = ()  # arms without a curve, and why


@dataclass(frozen=True)
class ThenNow:
    """The section of one run."""

    study: Study
    scale: str
    takes: str
    tables: tuple[ThenNowTable, ...]
    conditions: tuple[tuple[str, str, str], ...]  # (condition, published, measured here)
    charts: tuple[StudyChart, ...]
    skipped: tuple[tuple[str, str], ...]  # (arm, why it was not run)


def then_and_now(groups: Sequence[Group]) -> tuple[ThenNow, ...]:
    """Return an entry for each run of a study that this version knows."""
    sections = []
    for run in {group.loaded.path: group.loaded.run for group in groups}.values():
        asked = run.plan.study
        if asked is None or asked.name not in studies.names():
            continue
        of_run = [group for group in groups if group.loaded.run is run]
        study = studies.study(asked.name)
        scale = study.scales.get(asked.scale)
        sections.append(ThenNow(
            study,
            asked.scale,
            scale.takes if scale else "",
            tuple(made for table in study.table
                  for made in _tables(study, table, studies.variant_of(table, scale), of_run)),
            tuple(_conditions(study, of_run)),
            tuple(_chart(name, telemetry(group)) for group in of_run[:1] for name in study.charts),
            tuple(run.skipped.items()),
        ))  # fmt: skip
    return tuple(sections)


def _tables(study: Study, table: StudyTable, wanted: str, groups: Sequence[Group]) -> Iterator[ThenNowTable]:
    """Yield a table for each group of the workload that has the published variant."""
    of_workload = [group for group in groups if group.cells[0].workload.name == table.workload]
    metric = METRICS[table.metric]
    for group in of_workload:
        if not _is_variant(group.cells[0], wanted):
            continue
        rows = {row.fs_setup: row for row in group.rows_of(metric.name)}
        lines = tuple(_line(group, table, metric, arm, rows.get(arm)) for arm in group.arms)
        yield ThenNowTable(
            f"{group.title}: {metric.label}" + (f", {metric.unit}" if metric.unit not in ("", "bytes") else ""),
            bool(table.then or table.ratios),
            lines,
            table.note,
            study.superseded if table.then else "",
        )


def _is_variant(cell: Cell, wanted: str) -> bool:
    """Return whether the cell has the published variant, by a sweep of the plan or by its only value; "" is any."""
    if cell.variant or not wanted:
        return not wanted or wanted in cell.variant.split("+")
    name, _, value = wanted.partition("=")
    return name not in cell.parameters or level_text(cell.parameters[name]) == value


def _line(group: Group, table: StudyTable, metric: Metric, arm: str, row: Row | None) -> StudyLine:
    base, value = table.then.get(group.baseline), table.then.get(arm)
    ratio = table.ratios.get(arm) or (value / base if value is not None and base and arm != group.baseline else None)
    why = "" if row is not None and row.value is not None else _why(group, arm, metric)
    return StudyLine(
        group.marks[arm],
        metric.text(value),
        times(ratio) + studies.interval_text(table, arm),
        metric.text(row.value if row else None),
        row,
        why,
    )


def _why(group: Group, arm: str, metric: Metric) -> str:
    if not group.trials_of(arm):
        return "not run"
    if group.used_of(arm):  # the reasons why other trials do not count say nothing about these
        return f"no trial has a result for {metric.label}"
    return "; ".join(dict.fromkeys(why for _, why in group.excluded(arm)))


# --- conditions ------------------------------------------------------------------------------------


def _conditions(study: Study, groups: Sequence[Group]) -> Iterator[tuple[str, str, str]]:
    """Yield (condition, published, measured here), without conditions of which both are unknown."""
    trials = [trial for group in groups for trial in group.trials]
    for what, now in _NOW.items():
        today, then = now(groups, trials), study.then.get(what, "")
        if today or then:
            yield what, then or "not published", today or "unknown"


def _host(groups: Sequence[Group]) -> dict[str, Any]:
    return groups[0].loaded.run.host


def _hardware(groups: Sequence[Group], trials: Sequence[Trial]) -> str:
    host = _host(groups)
    parts = [host.get("cpu_model"), f"{host['cpu_threads']} CPUs" if host.get("cpu_threads") else None]
    virtual = host.get("virtualisation")
    parts.append(f"a virtual machine ({virtual})" if virtual and virtual != "none" else None)
    kinds = {(t.device.kind, t.device.model, t.device.size_bytes) for t in trials if t.device}
    parts += [f"{kind} device of {size_text(size)} {model}".strip() for kind, model, size in sorted(kinds)]
    return ", ".join(str(part) for part in parts if part)


def _memory(groups: Sequence[Group], trials: Sequence[Trial]) -> str:
    whole, limits = _host(groups).get("memory_bytes"), {t.memory.limit_bytes for t in trials if t.memory}
    held = [size_text(limit) for limit in sorted(value for value in limits if value)]
    return (size_text(whole) if whole else "") + (f", limited to {' and '.join(held)}" if held else "")


def _server(groups: Sequence[Group], _trials: Sequence[Trial]) -> str:
    return ", ".join(dict.fromkeys(group.engine_title for group in groups if profile_of(group.engine).has_server))


def _data(groups: Sequence[Group], _trials: Sequence[Trial]) -> str:
    sizes = {}
    for group in groups:
        logical_sizes = [
            trial.space.logical_bytes for trial in group.trials if trial.space and trial.space.logical_bytes
        ]
        if logical_sizes:
            sizes[group.cells[0].title] = f"{size_text(max(logical_sizes))} ({group.cells[0].title})"
    return ", ".join(sizes.values())


def _load(groups: Sequence[Group], _trials: Sequence[Trial]) -> str:
    windows = {group.cells[0].window for group in groups}
    load_windows = sorted({f"{duration_text(w.measure_s)} after {duration_text(w.warmup_s)}" if w.kind == "fixed"
                   else "to completion" for w in windows})  # fmt: skip
    clients = {str(c) for group in groups if (c := group.cells[0].parameters.get("clients"))}
    blocks = f"{groups[0].loaded.run.blocks} blocks"
    return ", ".join([*load_windows, *(f"{c} clients" for c in sorted(clients)), blocks])


def _durability(groups: Sequence[Group], _trials: Sequence[Trial]) -> str:
    classes: dict[str, list[str]] = {}
    for arm in dict.fromkeys(arm for group in groups for arm in group.arms):
        durability_classes = [t.filesystem.durability_class for g in groups for t in g.trials_of(arm) if t.filesystem]
        if durability_classes:
            classes.setdefault(durability_classes[0], []).append(arm)
    return "; ".join(f"{name}: {', '.join(arms)}" for name, arms in classes.items())


def _flags(groups: Sequence[Group], _trials: Sequence[Trial]) -> str:
    return " ".join(_host(groups).get("cpu_flags") or ())


def _checksums(_groups: Sequence[Group], trials: Sequence[Trial]) -> str:
    filesystems = [t.filesystem for t in trials if t.filesystem is not None]
    checksums = [fs.tunables.get("checksum_implementation") or fs.geometry.get("checksum") for fs in filesystems]
    return ", ".join(sorted({str(checksum) for checksum in checksums if checksum}))


_NOW: Final[dict[str, Callable[[Sequence[Group], Sequence[Trial]], str]]] = {
    "hardware": _hardware,
    "memory": _memory,
    "kernel": lambda groups, _trials: str(_host(groups).get("kernel") or ""),
    "server": _server,
    "data": _data,
    "load": _load,
    "durability": _durability,
    "CPU flags": _flags,
    "checksum of btrfs": _checksums,
}


# --- charts ----------------------------------------------------------------------------------------


def _chart(name: str, seconds: Telemetry) -> StudyChart:
    """Return the chart with the mean of each arm's trials per second."""
    title, unit, columns, factor = _CHARTS[name]
    means = {arm: factor * _mean(seconds, arm, columns) for arm in seconds.group.arms if seconds.used(arm)}
    measured = {arm: values for arm, values in means.items() if np.isfinite(values).any()}
    if not measured:
        why = f"no trial recorded {columns[0]}; a load shorter than two seconds leaves no samples"
        return StudyChart(f"{title}, {unit}", "", 0, (), why)
    length = max(len(values) for values in measured.values())
    most = max(float(np.nanmax(values)) for values in measured.values())
    top = step_above(most) if most > 0 else 1.0
    curves = tuple(
        StudyCurve(seconds.group.marks[arm], _path(values, length, top), number(float(np.nanmean(values))))
        for arm, values in measured.items()
    )
    missing = tuple(
        (seconds.group.marks[arm], "no complete second was recorded" if arm in means else "no trial counts")
        for arm in seconds.group.arms
        if arm not in measured
    )
    return StudyChart(f"{title}, {unit}", number(top), length, curves, missing=missing)


def _mean(seconds: Telemetry, arm: str, columns: Sequence[str]) -> Values:
    """Return the mean of the summed columns per second, over the trials that have that second; trials may have
    different lengths."""
    rows = [seconds.values(trial.id, columns[0]) + sum(np.nan_to_num(seconds.values(trial.id, name))
                                                       for name in columns[1:])
            for trial in seconds.used(arm)]  # fmt: skip
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    count = np.isfinite(table).sum(axis=0)
    return np.where(count > 0, np.nansum(table, axis=0) / np.maximum(count, 1), np.nan)


def _path(values: Values, length: int, top: float) -> str:
    x, y = Axis(-0.5, length - 0.5, 0.0, WIDTH), Axis(0.0, top, HEIGHT - 1.0, 3.0)
    return polyline((x(second), y(value)) if math.isfinite(value) else None for second, value in enumerate(values))
