"""Section "Then and now" of the run of a published study: the published figures next to those of
the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dbbench.compare import Row
from dbbench.engines import profile_of
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import Cell, Json, Trial
from dbbench.plan import studies
from dbbench.plan.studies import Study, StudyTable
from dbbench.report.claims import JudgedClaim, judged_claims
from dbbench.report.page.groups import Group, all_arms, loaded_runs
from dbbench.report.page.theme import Mark
from dbbench.units import duration_text, level_text, size_text, times


class StudyLine(NamedTuple):
    """One arm of a table; the ratios are to the study's baseline, `why` is why nothing was
    measured.
    """

    mark: Mark
    then: str
    then_ratio: str
    now: str
    row: Row | None
    why: str


class ThenAndNow(NamedTuple):
    """A published table. `published` is whether it has figures; `superseded` is why they count no
    more.
    """

    title: str
    published: bool
    lines: list[StudyLine]
    note: str
    superseded: str


class StudySection(NamedTuple):
    """A run of a study. `conditions` are (condition, published, measured here)."""

    study: Study
    scale: str
    takes: str
    tables: list[ThenAndNow]
    claims: list[JudgedClaim]
    conditions: tuple[tuple[str, str, str], ...]
    skipped: tuple[tuple[str, str], ...]


def then_and_now(groups: Sequence[Group]) -> tuple[StudySection, ...]:
    """Return a section for each run of a study that this version knows."""
    sections = []
    for loaded in loaded_runs(groups):
        run = loaded.run
        planned = run.plan.study
        if planned is None or planned.name not in studies.names():
            continue
        # Only the groups of this run are compared with what was published.
        of_run = [group for group in groups if group.loaded.run is run]
        study = studies.study(planned.name)
        scale = study.scales.get(planned.scale)
        tables: list[ThenAndNow] = []
        for table in study.table:
            tables += _tables(
                study,
                table,
                studies.variant_of(table, scale),
                of_run,
            )
        sections.append(
            StudySection(
                study=study,
                scale=planned.scale,
                takes=scale.takes if scale else "",
                tables=tables,
                claims=judged_claims(loaded),
                conditions=tuple(_conditions(study, of_run)),
                skipped=tuple(run.skipped.items()),
            )
        )
    return tuple(sections)


def _tables(
    study: Study,
    table: StudyTable,
    variant: str,
    groups: Sequence[Group],
) -> Iterator[ThenAndNow]:
    metric = METRICS[table.metric]
    unit = f", {metric.unit}" if metric.unit not in ("", "bytes") else ""
    for group in groups:
        cell = group.cells[0]
        if cell.workload.name == table.workload and is_variant(cell, variant):
            yield ThenAndNow(
                title=f"{group.title}: {metric.label}{unit}",
                published=bool(table.then or table.ratios),
                lines=[_line(group, table, metric, arm) for arm in group.arms],
                note=table.note,
                superseded=study.superseded if table.then else "",
            )


def is_variant(cell: Cell, variant: str) -> bool:
    """Return whether the cell has the published variant, by a sweep of the plan or by its only
    value; "" is any.
    """
    if not variant:
        return True
    if cell.variant:
        return variant in cell.variant.split("+")
    name, _, value = variant.partition("=")
    return name not in cell.parameters or level_text(cell.parameters[name]) == value


def _line(
    group: Group,
    table: StudyTable,
    metric: Metric,
    arm: str,
) -> StudyLine:
    base = table.then.get(group.baseline)
    value = table.then.get(arm)

    # Some articles published ratios, others the figures.
    ratio = table.ratios.get(arm)
    if not ratio and value is not None and base and arm != group.baseline:
        ratio = value / base
    row = group.row(arm, metric.name)
    now = None if row is None else row.value
    return StudyLine(
        mark=group.marks[arm],
        then=metric.text(value),
        then_ratio=times(ratio) + studies.interval_text(table, arm),
        now=metric.text(now),
        row=row,
        why=_why(group, arm, metric) if now is None else "",
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
    # The checksum depends on the CPU, so it is read from each trial.
    checksums = set()
    for trial in trials:
        if fs := trial.filesystem:
            checksums.add(
                fs.tunables.get("checksum_implementation") or fs.geometry.get("checksum") or ""
            )

    # What the article names, as it is here.
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
        "checksum of btrfs": ", ".join(sorted(map(str, checksums - {""}))),
    }
    for what, now in here.items():
        then = study.then.get(what, "")
        if now or then:
            yield what, then or "not published", now or "unknown"


def _hardware(host: Json, trials: Sequence[Trial]) -> str:
    parts = [str(host.get("cpu_model") or "")]
    if host.get("cpu_threads"):
        parts.append(f"{host['cpu_threads']} CPUs")
    virtual = host.get("virtualisation") or "none"
    if virtual != "none":
        parts.append(f"a virtual machine ({virtual})")
    devices = {(t.device.kind, t.device.model, t.device.size_bytes) for t in trials if t.device}
    for kind, model, size in sorted(devices):
        parts.append(f"{kind} device of {size_text(size)} {model}".strip())
    return ", ".join(filter(None, parts))


def _memory(host: Json, trials: Sequence[Trial]) -> str:
    whole = host.get("memory_bytes")
    limits = {trial.memory.limit_bytes for trial in trials if trial.memory}
    sizes = [size_text(limit) for limit in sorted(filter(None, limits))]
    limited = f", limited to {' and '.join(sizes)}" if sizes else ""
    return (size_text(whole) if whole else "") + limited


def _data(groups: Sequence[Group]) -> str:
    texts = {}
    for group in groups:
        sizes = [trial.space.logical_bytes or 0 for trial in group.trials if trial.space]
        largest = max(sizes, default=0)
        if largest:
            texts[group.workload] = f"{size_text(largest)} ({group.workload})"
    return ", ".join(texts.values())


def _load(groups: Sequence[Group]) -> str:
    # What the load was, as articles describe it.
    loads = set()
    clients = set()
    for group in groups:
        cell = group.cells[0]
        window = cell.window
        if window.kind == "fixed":
            measured = duration_text(window.measure_s)
            loads.add(f"{measured} after {duration_text(window.warmup_s)}")
        else:
            loads.add("to completion")
        if cell.parameters.get("clients"):
            clients.add(f"{cell.parameters['clients']} clients")
    blocks = f"{groups[0].loaded.run.blocks} blocks"
    return ", ".join([*sorted(loads), *sorted(clients), blocks])


def _durability(groups: Sequence[Group]) -> str:
    arms_of: dict[str, list[str]] = {}
    for arm in all_arms(groups):
        trials = [trial for group in groups for trial in group.trials_of(arm)]
        made = [trial.filesystem for trial in trials if trial.filesystem]
        if made:
            arms_of.setdefault(made[0].durability_class, []).append(arm)
    return "; ".join(f"{name}: {', '.join(arms)}" for name, arms in arms_of.items())
