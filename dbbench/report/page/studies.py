"""Section "Then and now" of the run of a published study: the published figures next to those of
the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace as View
from typing import Any

from dbbench.engines import profile_of
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Trial
from dbbench.plan import studies
from dbbench.plan.studies import Study, StudyTable
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.units import duration_text, level_text, size_text, times


def then_and_now(groups: Sequence[Group]) -> tuple[View, ...]:
    """Return a section for each run of a study that this version knows."""
    sections = []
    for run in [loaded.run for loaded in loaded_runs(groups)]:
        planned = run.plan.study
        if planned is None or planned.name not in studies.names():
            continue
        of_run = [group for group in groups if group.loaded.run is run]
        study = studies.study(planned.name)
        scale = study.scales.get(planned.scale)
        sections.append(
            View(
                study=study,
                scale=planned.scale,
                takes=scale.takes if scale else "",
                tables=[
                    each
                    for table in study.table
                    for each in _tables(study, table, studies.variant_of(table, scale), of_run)
                ],
                conditions=tuple(_conditions(study, of_run)),
                skipped=tuple(run.skipped.items()),
            )
        )
    return tuple(sections)


def _tables(
    study: Study, table: StudyTable, wanted: str, groups: Sequence[Group]
) -> Iterator[View]:
    metric = METRICS[table.metric]
    for group in groups:
        if group.cells[0].workload.name == table.workload and is_variant(group.cells[0], wanted):
            unit = f", {metric.unit}" if metric.unit not in ("", "bytes") else ""
            yield View(
                title=f"{group.title}: {metric.label}{unit}",
                published=bool(table.then or table.ratios),
                lines=[_line(group, table, metric, arm) for arm in group.arms],
                note=table.note,
                superseded=study.superseded if table.then else "",
            )


def is_variant(cell: Cell, wanted: str) -> bool:
    """Return whether the cell has the published variant, by a sweep of the plan or by its only
    value; "" is any.
    """
    if cell.variant or not wanted:
        return not wanted or wanted in cell.variant.split("+")
    name, _, value = wanted.partition("=")
    return name not in cell.parameters or level_text(cell.parameters[name]) == value


def _line(group: Group, table: StudyTable, metric: Metric, arm: str) -> View:
    """Return one arm of a table; the ratios are to the study's baseline, `why` is why nothing was
    measured.
    """
    base = table.then.get(group.baseline)
    value = table.then.get(arm)
    row = group.row(arm, metric.name)
    ratio = table.ratios.get(arm) or (
        value / base if value is not None and base and arm != group.baseline else None
    )
    now = None if row is None else row.value
    why = _why(group, arm, metric) if now is None else ""
    then_ratio = times(ratio) + studies.interval_text(table, arm)
    return View(
        mark=group.marks[arm],
        then=metric.text(value),
        then_ratio=then_ratio,
        now=metric.text(now),
        row=row,
        why=why,
    )


def _why(group: Group, arm: str, metric: Metric) -> str:
    if not group.trials_of(arm):
        return "not run"
    if group.used_of(arm):  # the reasons why other trials do not count say nothing about these
        return f"no trial has a result for {metric.label}"
    return "; ".join(dict.fromkeys(why for _, why in group.exclusions(arm)))


def _conditions(study: Study, groups: Sequence[Group]) -> Iterator[tuple[str, str, str]]:
    """Yield (condition, published, measured here), without conditions of which both are unknown."""
    trials = [trial for group in groups for trial in group.trials]
    host = groups[0].loaded.run.host
    filesystems = [t.filesystem for t in trials if t.filesystem is not None]
    checksums = [
        fs.tunables.get("checksum_implementation") or fs.geometry.get("checksum")
        for fs in filesystems
    ]
    servers = [group.engine_title for group in groups if profile_of(group.engine).has_server]
    here = {
        "hardware": _hardware(host, trials),
        "memory": _memory(host, trials),
        "kernel": str(host.get("kernel") or ""),
        "server": ", ".join(dict.fromkeys(servers)),
        "data": _data(groups),
        "load": _load(groups),
        "durability": _durability(groups),
        "CPU flags": " ".join(host.get("cpu_flags") or ()),
        "checksum of btrfs": ", ".join(
            sorted({str(checksum) for checksum in checksums if checksum})
        ),
    }
    for what, now in here.items():
        then = study.then.get(what, "")
        if now or then:
            yield what, then or "not published", now or "unknown"


def _hardware(host: dict[str, Any], trials: Sequence[Trial]) -> str:
    virtual = host.get("virtualisation")
    kinds = {(t.device.kind, t.device.model, t.device.size_bytes) for t in trials if t.device}
    parts = [
        host.get("cpu_model"),
        f"{host['cpu_threads']} CPUs" if host.get("cpu_threads") else None,
        f"a virtual machine ({virtual})" if virtual and virtual != "none" else None,
        *(
            f"{kind} device of {size_text(size)} {model}".strip()
            for kind, model, size in sorted(kinds)
        ),
    ]
    return ", ".join(str(part) for part in parts if part)


def _memory(host: dict[str, Any], trials: Sequence[Trial]) -> str:
    whole = host.get("memory_bytes")
    limits = {t.memory.limit_bytes for t in trials if t.memory}
    held = [size_text(limit) for limit in sorted(value for value in limits if value)]
    return (size_text(whole) if whole else "") + (
        f", limited to {' and '.join(held)}" if held else ""
    )


def _data(groups: Sequence[Group]) -> str:
    sizes = {}
    for group in groups:
        if logical := [
            t.space.logical_bytes for t in group.trials if t.space and t.space.logical_bytes
        ]:
            sizes[group.workload] = f"{size_text(max(logical))} ({group.workload})"
    return ", ".join(sizes.values())


def _load(groups: Sequence[Group]) -> str:
    windows = {group.cells[0].window for group in groups}
    loads = sorted(
        {
            f"{duration_text(w.measure_s)} after {duration_text(w.warmup_s)}"
            if w.kind == "fixed"
            else "to completion"
            for w in windows
        }
    )
    clients = {str(c) for group in groups if (c := group.cells[0].parameters.get("clients"))}
    return ", ".join(
        [
            *loads,
            *(f"{c} clients" for c in sorted(clients)),
            f"{groups[0].loaded.run.blocks} blocks",
        ]
    )


def _durability(groups: Sequence[Group]) -> str:
    classes: dict[str, list[str]] = {}
    for arm in all_arms(groups):
        filesystems = [
            t.filesystem for group in groups for t in group.trials_of(arm) if t.filesystem
        ]
        if filesystems:
            classes.setdefault(filesystems[0].durability_class, []).append(arm)
    return "; ".join(f"{name}: {', '.join(arms)}" for name, arms in classes.items())
