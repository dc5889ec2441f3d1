"""The verdict tables: one an engine and workload, each by that workload's own metric."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dbbench import compare
from dbbench.commands.text import put, put_table, table_text
from dbbench.compare import ByHost, Row
from dbbench.compare.verdict import BEHIND, UNSTEADY
from dbbench.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, UnknownName
from dbbench.metrics import METRICS, Metric
from dbbench.model import SCHEMA, Trial, plain, titled
from dbbench.progress.wording import figure
from dbbench.store import LoadedRun
from dbbench.tomlfile import did_you_mean

ALL = "all"  # every metric that was measured
KEYS = [field.name for field in dataclasses.fields(Row)]
_HEADER = ("filesystem", "value", "ratio", "interval", "verdict", "blocks", "level", "durability", "notes")


class Table(NamedTuple):
    """The rows of one engine, workload and variant."""

    engine: str
    workload: str
    variant: str
    metric: Metric
    rows: list[Row]


class Verdicts(NamedTuple):
    """What `compare` prints, in whatever format. `findings` are sentences about several tables: curves that cross."""

    baseline: str
    tables: list[Table]
    findings: list[str] = []  # noqa: RUF012  (never changed)
    hosts: list[tuple[Metric, ByHost]] = []  # noqa: RUF012


def verdicts(runs: Sequence[LoadedRun], baseline: str | None = None, metric: str | None = None) -> Verdicts:
    """The tables of one or more runs.

    Blocks of several runs stay apart: pairs are made within a block only. Without `metric` each workload is
    judged by its primary one. UnknownName for a baseline or metric that is not there.
    """
    if metric is not None and metric not in (*METRICS, ALL):
        raise UnknownName(f'no metric "{metric}"{did_you_mean(metric, METRICS)}; known: {", ".join(METRICS)}')
    trials, primary = _merged(runs), _primaries(runs)
    arms = list(dict.fromkeys(cell.arm for run in runs for cell in run.run.cells))
    chosen = baseline or runs[0].run.baseline
    if chosen not in arms:
        raise UnknownName(f'"{chosen}" is no filesystem of these runs{did_you_mean(chosen, arms)}')
    tables, cautions, hosts = [], tuple(_cautions(runs)), list[tuple[Metric, ByHost]]()
    for (engine, workload, variant), group in compare.groups(trials).items():
        for judged in METRICS if metric == ALL else [metric or primary.get(workload, "tps")]:
            if rows := compare.rows(group, chosen, judged):
                said = [dataclasses.replace(row, notes=(*row.notes, *cautions)) for row in rows]
                tables.append(Table(engine, workload, variant, METRICS[judged], said))
                hosts += [(METRICS[judged], one) for one in compare.by_host(group, chosen, judged)]
    cells = [cell for run in runs for cell in run.run.cells]
    planned: list[compare.Group] = [(cell.engine.name, cell.workload.name, cell.variant) for cell in cells]
    tables.sort(key=lambda t: (t.workload, t.engine, planned.index((t.engine, t.workload, t.variant))))
    crossed = [
        f"{label}: {text}" if metric == ALL else text
        for name, label in dict.fromkeys((table.metric.name, table.metric.label) for table in tables)
        for text in compare.crossings([r for t in tables if t.metric.name == name for r in t.rows], chosen)
    ]
    return Verdicts(chosen, tables, [*crossed, *filter(None, (_unlike(*one) for one in hosts))], hosts)


def unpaired(runs: Sequence[LoadedRun], by: str, baseline: str | None = None, metric: str | None = None) -> Verdicts:
    """Tables of each arm at each kernel or engine version, Welch's t on logarithms. UnknownName as of `verdicts`,
    and where the runs have one value only."""
    if metric is not None and metric not in METRICS:
        raise UnknownName(f'no metric "{metric}"{did_you_mean(metric, METRICS)}; known: {", ".join(METRICS)}')
    trials, primary = list[Trial](), _primaries(runs)
    value_of: dict[str, str] = {}
    for run, loaded in zip(_separately(runs), runs, strict=True):
        trials += run
        value_of |= {t.id: str(loaded.run.host.get("kernel")) if by == "kernel" else t.engine_version for t in run}
    values = list(dict.fromkeys(value_of.values()))
    if len(values) < 2 or (baseline is not None and baseline not in values):
        hint = "" if baseline is None else did_you_mean(baseline, values)
        raise UnknownName(
            f"--by {by}: these runs have {', '.join(values) or 'no trial'}{hint}; two at least are needed"
        )
    tables = []
    for (engine, workload, variant), group in compare.groups(trials).items():
        judged = METRICS[metric or primary.get(workload, "tps")]
        rows = compare.unpaired_rows(group, value_of, judged.name, baseline)
        for arm in dict.fromkeys(row.fs_setup.rpartition(" @ ")[0] for row in rows):
            mine = [row for row in rows if row.fs_setup.rpartition(" @ ")[0] == arm]
            tables.append(Table(engine, workload, variant, judged, mine))
    return Verdicts(baseline or values[0], tables)


def gate(found: Verdicts) -> int:
    """The exit code of a gate: 3 where any row is slower or worse, else 4 where any is not decided, else 0."""
    words = {row.verdict for table in found.tables for row in table.rows}
    if words & set(BEHIND):
        return EXIT_REGRESSION
    return EXIT_INCONCLUSIVE if words & {"inconclusive", "device-limited"} or not words else EXIT_OK


def _cautions(runs: Sequence[LoadedRun]) -> Iterator[str]:
    """Windows, datasets, devices and hosts that are not the same in all runs; their trials share a row."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        seen.setdefault("device", set()).add(str(plain(run.run.plan.device)))
        seen.setdefault("place of the load generator", set()).add("another host" if run.run.plan.client else "here")
        seen.setdefault("host", set()).add(str(run.run.host.get("hostname")))
        for cell in run.run.cells:
            what = f"{cell.engine.name} {cell.title}"
            seen.setdefault(f"window of {what}", set()).add(str(plain(cell.window)))
            seen.setdefault(f"parameters of {what}", set()).add(str(plain(cell.parameters)))
    for what, values in seen.items():
        if len(values) > 1:
            yield f"the runs differ in the {what}"
    if rehearsed := [run.path.name for run in runs if run.run.host.get("second_kernel")]:
        yield f"rehearsed in a second kernel, not comparable: {', '.join(rehearsed)}"


def as_document(found: Verdicts) -> dict[str, Any]:
    """The JSON contract of `compare --json`. `metric` is "primary" where the tables have several."""
    metrics = {table.metric.name for table in found.tables}
    return {
        "schema": SCHEMA,
        "baseline": found.baseline,
        "metric": metrics.pop() if len(metrics) == 1 else "primary" if metrics else None,
        "rows": [{**plain(row), "metric": table.metric.name} for table in found.tables for row in table.rows],
        "findings": found.findings,
        **({"hosts": [{**plain(one), "metric": metric.name} for metric, one in found.hosts]} if found.hosts else {}),
    }


def as_csv(found: Verdicts) -> str:
    """The same rows as CSV with a header; several notes are joined by "; "."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*KEYS, "metric"])
    for row in as_document(found)["rows"]:
        values = [_no_formula("; ".join(v) if isinstance(v, list) else v) for v in (row[key] for key in KEYS)]
        writer.writerow([*values, row["metric"]])
    return text.getvalue().rstrip("\n")


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would compute is quoted for it by an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def as_markdown(found: Verdicts) -> str:
    """A heading, a sentence and a table for each engine and workload."""
    parts = []
    for table in found.tables:
        parts.append(f"### {_title(table)}\n\n{compare.sentence(table.rows)}\n")
        parts.append(table_text(_HEADER, [_line(row, table.metric) for row in table.rows]) + "\n")
        parts += [f"- {line}" for line in _host_lines(found, table)]
    return "\n".join([*parts, *(f"- {text}" for text in found.findings)]).rstrip()


def put_tables(found: Verdicts) -> None:
    """Print the tables for people, the sentence of each above it."""
    if not found.tables:
        put("No trial of these runs has a result that can be compared.")
    for number, table in enumerate(found.tables):
        if number:
            put()
        put(_title(table))
        put(compare.sentence(table.rows))
        put_table(_HEADER[:-1], [_line(row, table.metric)[:-1] for row in table.rows], right="-rr--r")
        for row in table.rows:  # below the table: a column of them is wider than a terminal
            if row.notes:
                put(f"  {row.fs_setup}: {'; '.join(row.notes)}")
        for line in _host_lines(found, table):
            put(f"  {line}")
    for text in found.findings:
        put(f"! {text}")


def _host_lines(found: Verdicts, table: Table) -> list[str]:
    """A line for each arm of the table with its ratio on each host."""
    here = (table.engine, table.workload, table.variant)
    lines = []
    for metric, one in found.hosts:
        if metric == table.metric and (one.engine, one.workload, one.variant) == here:
            words = [f"{host.host} {host.ratio:.3f}{_interval(host.lo, host.hi)} ({host.n})" for host in one.hosts]
            lines.append(f"{one.fs_setup} by host: {', '.join(words)}; {_agreement(one)}")
    return lines


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:.3f}..{high:.3f}]"


def _agreement(one: ByHost) -> str:
    if one.spread is None:
        return "whether hosts agree needs more blocks a host"
    word = "the hosts disagree" if one.spread.disagree else "no sign that hosts disagree"
    return (
        f"{word} (Q {one.spread.q:.3g} of {len(one.hosts)} hosts, p {one.spread.p:.2g}, I² {100 * one.spread.i2:.0f} %)"
    )


def _unlike(metric: Metric, one: ByHost) -> str:
    """The finding about an arm on which hosts disagree; "" where they do not."""
    if one.spread is None or not one.spread.disagree:
        return ""
    low, high = min(one.hosts, key=lambda host: host.ratio), max(one.hosts, key=lambda host: host.ratio)
    return (
        f"{one.engine} {titled(one.workload, one.variant)}, {metric.label}: {_agreement(one)} about {one.fs_setup}: "
        f"{low.ratio:.3f} on {low.host}, {high.ratio:.3f} on {high.host}. The pooled ratio is that of no host."
    )


def _title(table: Table) -> str:
    unit = f", {table.metric.unit}" if table.metric.unit else ""
    work = titled(table.workload, table.variant)
    return f"{table.engine} {work}: {table.metric.label}{unit} ({table.metric.better} is better)"


def _line(row: Row, metric: Metric) -> tuple[object, ...]:
    interval = None if row.lo is None or row.hi is None else f"{row.lo:.3f}..{row.hi:.3f}"
    ratio = None if row.ratio is None else f"{row.ratio:.3f}"
    level = None if row.level is None else f"{100 * row.level:.3g} %"
    verdict = "same within 5 %" if row.verdict == "same" else row.verdict
    durability = row.durability_class + (" (differs)" if row.mixed_durability else "")
    value = figure(row.value) + (f" {metric.unit}" if row.value is not None and metric.unit else "")
    if any(note.startswith(f"{UNSTEADY}:") for note in row.notes):  # in every trial: a plain number would mislead
        value = UNSTEADY
    return (row.fs_setup, value, ratio, interval, verdict, row.n, level, durability, "; ".join(row.notes))


def _merged(runs: Sequence[LoadedRun]) -> list[Trial]:
    """All trials; those of a second run get blocks of their own."""
    return list(runs[0].trials) if len(runs) == 1 else [trial for run in _separately(runs) for trial in run]


def _separately(runs: Sequence[LoadedRun]) -> Iterator[list[Trial]]:
    """Each run's trials with ids and blocks that no other run has."""
    offset = 0
    for run in runs:
        yield [
            dataclasses.replace(trial, id=f"{run.path.name}/{trial.id}", block=trial.block + offset)
            for trial in run.trials
        ]
        offset += max((spec.block for spec in run.run.order), default=0)


def _primaries(runs: Sequence[LoadedRun]) -> dict[str, str]:
    return {cell.workload.name: cell.workload.primary for run in runs for cell in run.run.cells}
