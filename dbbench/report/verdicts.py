"""The verdict tables: one for each engine and workload, by that workload's primary metric."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dbbench import compare
from dbbench.compare import ByHost, Interaction, Row
from dbbench.compare.remarks import Kind, Remark, has, remark
from dbbench.compare.verdict import BEHIND, document_of, without_guard
from dbbench.engines import profile_of
from dbbench.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, RunsUnlike, UnknownName
from dbbench.metrics.table import METRICS, Metric
from dbbench.model import SCHEMA, Cell, Run, Scalar, Trial, plain, titled
from dbbench.plan.tomlfile import did_you_mean
from dbbench.report import sentences
from dbbench.report.page.environment import flat
from dbbench.report.text import put, put_table, put_wrapped, table_text
from dbbench.results import LoadedRun
from dbbench.units import change, interval

ALL = "all"  # value of `--metric`: every metric that was measured
KEYS = [field.name for field in dataclasses.fields(Row)]
_DRAWING = frozenset(("jinja2", "numpy", "plotly", "psutil", "pydantic", "scipy"))  # packages that no trial needs
_HEADER = ("setup", "value", "change", "interval", "verdict", "blocks", "df", "level", "durability", "notes")


class VerdictTable(NamedTuple):
    """The rows of one engine, workload and variant."""

    engine: str
    workload: str
    variant: str
    metric: Metric
    rows: list[Row]


class Verdicts(NamedTuple):
    """What `compare` prints, in every format. `findings` are sentences about several tables, or about a whole run."""

    baseline: str
    tables: list[VerdictTable]
    findings: list[str] = []  # noqa: RUF012  (never changed)
    hosts: list[tuple[Metric, ByHost]] = []  # noqa: RUF012
    interactions: list[tuple[Metric, Interaction]] = []  # noqa: RUF012


def verdicts(runs: Sequence[LoadedRun], baseline: str | None = None, metric: str | None = None) -> Verdicts:
    """Return the tables of one or more runs.

    Blocks of different runs stay separate, because pairs are formed within a block. Without `metric` each workload is
    judged by its primary metric. Raises UnknownName for an unknown baseline or metric.
    """
    if metric is not None and metric not in (*METRICS, ALL):
        raise UnknownName(f'no metric "{metric}"{did_you_mean(metric, METRICS)}; known: {", ".join(METRICS)}')
    trials, primary = _merged(runs), _primaries(runs)
    arms = list(dict.fromkeys(cell.arm for run in runs for cell in run.run.cells))
    chosen = baseline or runs[0].run.baseline
    if chosen not in arms:
        raise UnknownName(f'"{chosen}" is not a setup of these runs{did_you_mean(chosen, arms)}')
    tables, cautions, hosts = [], tuple(_cautions(runs)), list[tuple[Metric, ByHost]]()
    comparison = compare.Comparison(trials, chosen, primary)
    for key, group in compare.groups(trials).items():
        engine, workload, variant = key
        for judged in METRICS if metric == ALL else [metric or primary.get(workload, "tps")]:
            if rows := comparison.rows(key, judged):
                cautioned = [dataclasses.replace(row, notes=(*row.notes, *cautions)) for row in rows]
                tables.append(VerdictTable(engine, workload, variant, METRICS[judged], cautioned))
                hosts += [(METRICS[judged], by_host) for by_host in compare.by_host(group, chosen, judged)]
    cells = [cell for run in runs for cell in run.run.cells]
    planned: list[compare.Group] = [(cell.engine.name, cell.workload.name, cell.variant) for cell in cells]
    tables.sort(key=lambda t: (t.workload, t.engine, planned.index((t.engine, t.workload, t.variant))))
    levels = levels_of(cells)
    factors = {factor for of in levels.values() for factor in of}
    interactions = [
        (METRICS[name], found)
        for name in dict.fromkeys(table.metric.name for table in tables)
        for found in compare.interactions(_rows_by(tables, name), levels, METRICS[name])
    ]
    crossed = [
        f"{label}: {text}" if metric == ALL else text
        for name, label in dict.fromkeys((table.metric.name, table.metric.label) for table in tables)
        for curve in compare.crossings(_rows_by(tables, name))
        if curve.parameter not in factors
        for text in sentences.joined([sentences.crossing(curve, chosen)])
    ]
    unlike = [
        f"{arm.engine} {titled(arm.workload, arm.variant)}: {text}"
        for measured, arm in hosts
        for text in sentences.joined([sentences.disagreement(arm, measured, chosen)])
    ]
    above = sentences.joined(sentences.no_limit(run.exceeded) for run in runs)
    return Verdicts(chosen, tables, [*crossed, *unlike, *above], hosts, interactions)


def levels_of(cells: Sequence[Cell]) -> dict[compare.Group, dict[str, Scalar]]:
    """Return the levels of the factors, for each engine, workload and variant that has factors."""
    return {(cell.engine.name, cell.workload.name, cell.variant): cell.levels for cell in cells if cell.levels}


def _rows_by(tables: Sequence[VerdictTable], metric: str) -> list[Row]:
    return [row for table in tables if table.metric.name == metric for row in table.rows]


def unpaired(runs: Sequence[LoadedRun], by: str, baseline: str | None = None, metric: str | None = None) -> Verdicts:
    """Return tables of each arm with each kernel, engine version or run (Welch's t on logarithms). Raises UnknownName
    like `verdicts`, and if all runs have the same value."""
    if metric is not None and metric not in METRICS:
        raise UnknownName(f'no metric "{metric}"{did_you_mean(metric, METRICS)}; known: {", ".join(METRICS)}')
    trials, primary = [trial for run in _separately(runs) for trial in run], _primaries(runs)
    value_of = {
        trial.id: value for run, loaded in zip(_separately(runs), runs, strict=True)
        for trial, value in zip(run, _values(loaded, by, runs), strict=True)
    }  # fmt: skip
    values = list(dict.fromkeys(value_of.values()))
    if len(values) < 2 or (baseline is not None and baseline not in values):
        hint = "" if baseline is None else did_you_mean(baseline, values)
        option = "--against" if by == "run" else f"--by {by}"
        raise UnknownName(f"{option}: these runs have {', '.join(values) or 'no trial'}{hint}; at least two are needed")
    unlike = ", ".join(differing(runs)) if by == "run" else ""
    tables, cautions = [], (remark(Kind.RUNS_DIFFER, what=unlike),) if unlike else tuple(_profiles(runs))
    for (engine, workload, variant), group in compare.groups(trials).items():
        judged = METRICS[metric or primary.get(workload, "tps")]
        rows = compare.unpaired_rows(group, value_of, judged.name, baseline)
        rows = [dataclasses.replace(row, notes=(*row.notes, *cautions)) for row in rows]
        for arm in dict.fromkeys(row.fs_setup.rpartition(" @ ")[0] for row in rows):
            rows_of_arm = [row for row in rows if row.fs_setup.rpartition(" @ ")[0] == arm]
            tables.append(VerdictTable(engine, workload, variant, judged, rows_of_arm))
    return Verdicts(baseline or values[0], tables)


def _values(loaded: LoadedRun, by: str, runs: Sequence[LoadedRun]) -> list[str]:
    """Return the name under which each trial of the run is compared: its kernel, its server's version or its run."""
    if by == "engine_version":
        return [trial.engine_version for trial in loaded.trials]
    alone = [run.path.name for run in runs].count(loaded.path.name) == 1
    of_run = str(loaded.run.host.get("kernel")) if by == "kernel" else loaded.path.name if alone else str(loaded.path)
    return [of_run] * len(loaded.trials)


def gate(found: Verdicts) -> int:
    """Return the exit status of a gate: 3 if any row is slower or worse, else 4 if any is undecided, else 0."""
    words = {row.verdict for table in found.tables for row in without_guard(table.rows)}
    if words & set(BEHIND):
        return EXIT_REGRESSION
    return EXIT_INCONCLUSIVE if words & {"inconclusive", "device-limited"} or not words else EXIT_OK


def check_pooled(runs: Sequence[LoadedRun], by: str = "fs") -> None:
    """Raise RunsUnlike if trials of runs that differ would have one mean: all runs, or those with the same versions
    `by` which they are compared."""
    pools: dict[frozenset[str], list[LoadedRun]] = {}
    for run in runs:
        pools.setdefault(frozenset(_values(run, by, runs) if by != "fs" else ()), []).append(run)
    for pool in pools.values():
        if unlike := differing(pool):
            first, *others = (run.path.name for run in pool)
            raise RunsUnlike(
                f"{', '.join(others)} cannot be compared together with {first}: the runs differ in {'; '.join(unlike)}",
                effect="Nothing was compared.",
                remedy=f"Compare them without pairs:  dbbench compare {' '.join(others)} --against {first}",
            )


def differing(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the parameters, versions and device settings in which the runs differ, each with its values.

    What only some of the runs have, for example a setup, is no difference. Versions may differ between hosts that ran
    one plan, because pairs never cross hosts.
    """
    of_fleet = len({run.run.plan_sha256 for run in runs}) == 1 < len({run.run.host.get("hostname") for run in runs})
    versions: dict[str, dict[str, None]] = {}
    facts: dict[str, list[dict[str, str]]] = {}
    for run in runs:
        host = f" on {run.run.host.get('hostname')}" if of_fleet else ""
        for name in run.versions.keys() - _DRAWING:
            versions.setdefault(name + host, {})[run.versions[name]] = None
        for what, tree in _conditions(run.run).items():
            facts.setdefault(what, []).append(flat(tree))
    values = {
        f"{key} of {what}": dict.fromkeys(known.get(key) or "none" for known in each)
        for what, each in facts.items()
        for key in dict.fromkeys(key for known in each for key in known)
    }
    every = {**values, **dict(sorted(versions.items()))}
    return [f"{key} ({' and '.join(each)})" for key, each in every.items() if len(each) > 1]


def _conditions(run: Run) -> dict[str, dict[str, Any]]:
    """Return what a plan determines of the trials: of the device, of each engine with a workload, and of each setup."""
    conditions: dict[str, dict[str, Any]] = {"the device": plain(run.plan.device)}
    for cell in run.cells:
        of_cell, setup, engine = plain(cell), plain(cell.setup), plain(cell.engine)
        of_engine = {name: engine[name] for name in ("settings", "profile", "cpus_server", "cpus_client", "numa_node")}
        kept = ("parameters", "dataset", "window", "memory_bytes", "checkpoints", "client")
        for name in cell.parameters:  # each difference once
            of_cell["dataset"]["parameters"].pop(name, None)
        conditions[f"{cell.engine.name} {cell.title}"] = {**{name: of_cell[name] for name in kept}, **of_engine}
        conditions[cell.arm] = {
            name: setup[name] for name in ("mkfs", "mount", "layers", "attributes", "volumes", "tuning")
        }
    return conditions


def _cautions(runs: Sequence[LoadedRun]) -> Iterator[Remark]:
    """Yield remarks about hosts that differ between runs whose trials share a row."""
    if len({str(run.run.host.get("hostname")) for run in runs}) > 1:
        yield remark(Kind.RUNS_DIFFER, what="the host")
    yield from _profiles(runs)
    if rehearsed := [run.path.name for run in runs if run.run.host.get("second_kernel")]:
        yield remark(Kind.SECOND_KERNEL, runs=", ".join(rehearsed))


def _profiles(runs: Sequence[LoadedRun]) -> Iterator[Remark]:
    """Yield a remark for each engine that has different settings profiles in the runs."""
    seen: dict[str, dict[str, None]] = {}
    for run in runs:
        for cell in run.run.cells:
            if profile_of(cell.engine.name).has_server:
                seen.setdefault(cell.engine.name, {})[cell.engine.profile] = None
    for engine, profiles in seen.items():
        if len(profiles) > 1:
            yield remark(Kind.RUNS_DIFFER, what=f"the settings profile of {engine} ({' and '.join(profiles)})")


def as_document(found: Verdicts) -> dict[str, Any]:
    """Return the JSON of `compare --json`. `metric` is "primary" if the tables have several."""
    metrics = {table.metric.name for table in found.tables}
    return {
        "schema": SCHEMA,
        "baseline": found.baseline,
        "metric": metrics.pop() if len(metrics) == 1 else "primary" if metrics else None,
        "rows": [{**document_of(row), "metric": table.metric.name} for table in found.tables for row in table.rows],
        "findings": found.findings,
        **(
            {"hosts": [{**plain(by_host), "metric": metric.name} for metric, by_host in found.hosts]}
            if found.hosts
            else {}
        ),
        **(
            {"interactions": [{**plain(factor), "metric": metric.name} for metric, factor in found.interactions]}
            if found.interactions
            else {}
        ),
    }


def as_csv(found: Verdicts) -> str:
    """Return the rows as CSV with a header; several notes are joined by "; "."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*KEYS, "metric"])
    for row in as_document(found)["rows"]:
        values = [_no_formula("; ".join(v) if isinstance(v, list) else v) for v in (row[key] for key in KEYS)]
        writer.writerow([*values, row["metric"]])
    return text.getvalue().rstrip("\n")


def _no_formula(value: Any) -> Any:
    """Return the value, with an apostrophe before text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def as_markdown(found: Verdicts) -> str:
    """Return a heading, a sentence and a table for each engine and workload, in Markdown."""
    parts = []
    for table in found.tables:
        parts.append(f"### {_title(table)}\n\n{sentences.plain_text(sentences.sentence(table.rows, table.metric))}\n")
        parts += [f"- Caveat: {sentences.plain_text(text)}\n" for _, text in sentences.caveats(table.rows)]
        parts.append(table_text(_HEADER, [_line(row, table.metric) for row in table.rows]) + "\n")
        parts += [f"- {line}" for line in _host_lines(found, table)]
    return "\n".join([*parts, *(f"- {text}" for text in (*_factor_lines(found), *found.findings))]).rstrip()


def put_tables(found: Verdicts) -> None:
    """Print the tables for people, the sentence of each above it."""
    if not found.tables:
        put("These runs have no results to compare.")
    for number, table in enumerate(found.tables):
        if number:
            put()
        put(_title(table))
        put_wrapped(sentences.plain_text(sentences.sentence(table.rows, table.metric)))
        for _, caveat in sentences.caveats(table.rows):
            put_wrapped(f"! {sentences.plain_text(caveat)}")
        put_table(_HEADER[:-1], [_line(row, table.metric)[:-1] for row in table.rows], right="-rr--rr")
        for row in table.rows:  # below the table, because a column of notes would be wider than a terminal
            if row.notes:
                put_wrapped(f"  {row.fs_setup}: {sentences.remarks(row)}")
        for line in _host_lines(found, table):
            put_wrapped(f"  {line}")
    _put_sentences(found)


def _put_sentences(found: Verdicts) -> None:
    """Print the sentences about several tables: factors, and findings."""
    factors = _factor_lines(found)
    if factors:
        put()
    for text in factors:
        put_wrapped(text)
    for text in found.findings:
        put_wrapped(f"! {text}")


def _factor_lines(found: Verdicts) -> list[str]:
    """Return a sentence for each factor; it names the metric if there are several."""
    several = len({metric.name for metric, _ in found.interactions}) > 1
    return [
        (f"{metric.label}: " if several else "") + sentences.plain_text(sentences.interaction(factor))
        for metric, factor in found.interactions
    ]


def _host_lines(found: Verdicts, table: VerdictTable) -> list[str]:
    """Return a line for each arm of the table with its ratio on each host."""
    here = (table.engine, table.workload, table.variant)
    return [
        sentences.by_host(arm)
        for metric, arm in found.hosts
        if metric == table.metric and (arm.engine, arm.workload, arm.variant) == here
    ]


def _title(table: VerdictTable) -> str:
    unit = f", {table.metric.unit}" if table.metric.unit else ""
    work = titled(table.workload, table.variant)
    return f"{table.engine} {work}: {table.metric.label}{unit} ({table.metric.better} is better)"


def _line(row: Row, metric: Metric) -> tuple[object, ...]:
    level = None if row.level is None else f"{100 * row.level:.3g} %"
    shared = row.df_shared or 0.0
    df = None if row.df is None else f"{row.df - shared:.3g}" + (f"+{shared:.1f}" if shared else "")
    durability = row.durability_class + (" (differs)" if row.mixed_durability else "")
    value = "no steady state" if has(row.notes, Kind.UNSTEADY) else metric.with_unit(row.value)
    size = None if row.verdict == "baseline" else change(row.ratio)
    return (row.fs_setup, value, size, interval(row.lo, row.hi), sentences.verdict_words(row), row.n, df, level,
            durability, sentences.remarks(row))  # fmt: skip


def _merged(runs: Sequence[LoadedRun]) -> list[Trial]:
    """Return all trials; those of further runs get new block numbers."""
    return list(runs[0].trials) if len(runs) == 1 else [trial for run in _separately(runs) for trial in run]


def _separately(runs: Sequence[LoadedRun]) -> Iterator[list[Trial]]:
    """Yield the trials of each run with ids and block numbers that no other run has."""
    offset = 0
    for run in runs:
        yield [
            dataclasses.replace(trial, id=f"{run.path}/{trial.id}", block=trial.block + offset) for trial in run.trials
        ]
        offset += max((spec.block for spec in run.run.order), default=0)


def _primaries(runs: Sequence[LoadedRun]) -> dict[str, str]:
    return {cell.workload.name: cell.workload.primary for run in runs for cell in run.run.cells}
