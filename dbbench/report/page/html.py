"""The whole page: its sections as one model (`build`), and from it one HTML file with its styles,
scripts and data.

All text goes through jinja2's autoescape. The policy allows the scripts by their SHA-256 and no
connections at all; JSON is in a separate block with `<` written as \\u003c, so that no name can
end it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import jinja2
from markupsafe import Markup

from dbbench import __version__, units
from dbbench.errors import LabContradicts
from dbbench.metrics.histogram import LEAST_ABOVE
from dbbench.model import Json, plain
from dbbench.model.base import data_folder
from dbbench.report import volume_sizes
from dbbench.report.harm_table import HarmTable
from dbbench.report.page.charts import latency, nights
from dbbench.report.page.charts.dots import DotPlot, dot_plots
from dbbench.report.page.charts.figures import RELATIVE, figures, picture
from dbbench.report.page.charts.latency import Distribution
from dbbench.report.page.charts.nights import Course, NightChart, night_charts
from dbbench.report.page.charts.telemetry import telemetry
from dbbench.report.page.charts.time_bars import TimeSection, time_section
from dbbench.report.page.charts.timelines import Timelines, timelines
from dbbench.report.page.choose import Choices, choose
from dbbench.report.page.environment import Environment, conditions, environment
from dbbench.report.page.findings import Finding, findings
from dbbench.report.page.groups import Group, groups, marks_of
from dbbench.report.page.headline import SIGNS, VerdictSection, verdict
from dbbench.report.page.method import MethodSection, method, subtitle
from dbbench.report.page.operations import StepTable, operation_tables, snapshot_tables
from dbbench.report.page.redaction import redact_run
from dbbench.report.page.results import Heading, ResultTable, document, headings_of, result_table
from dbbench.report.page.space_table import SpaceTable, space_table
from dbbench.report.page.studies import StudySection, then_and_now
from dbbench.report.page.theme import LIGHT, Mark, dark_colors, template
from dbbench.report.verdict_table import row_document
from dbbench.report.volume_sizes import SizeSection
from dbbench.results import LoadedRun, load_run

SCHEMA: Final = 1  # version of the data that the page offers for download
# What the download has of each trial.
TRIAL_KEYS: Final = (
    "id",
    "run",
    "host",
    "fs_setup",
    "engine",
    "engine_version",
    "workload",
    "block",
    "attempt",
    "position",
    "status",
    "error",
    "warnings",
    "summary",
    "space",
    "age",
    "snapshots",
    "operations",
    "drain",
    "checkpoints",
    "io",
    "parameters",
)
LIBRARY: Final = "plotly-basic.min.js"  # only in a page with timelines
# The page has these scripts in this order in a single function, so a file can use the declarations
# of earlier files, and none of them is global.
SCRIPTS: Final = ("data.js", "figures.js", "page.js", "pictures.js")
HEAD_SCRIPT: Final = "head.js"


class GroupSection(NamedTuple):
    """What the page shows about one engine and workload."""

    group: Group
    table: ResultTable
    dots: tuple[DotPlot, DotPlot] | None
    time: TimeSection
    timelines: Timelines
    figures: list[Json]


class Page(NamedTuple):
    """The page for its template, mostly an attribute a section. `mark_of` is by arm; `drawing` is
    for the page's script, `results` for download. `lab_alone`: without trials, the sections about
    them are omitted.
    """

    title: str
    subtitle: str
    marks: tuple[Mark, ...]
    verdict: VerdictSection
    comparisons: tuple[GroupSection, ...]
    terms: tuple[Heading, ...]
    choose: Choices
    latencies: tuple[Distribution, ...]
    findings: tuple[Finding, ...]
    space: SpaceTable
    operations: tuple[StepTable, ...]
    nights: tuple[NightChart, ...]
    studies: tuple[StudySection, ...]
    power_cuts: list[HarmTable]
    sizes: list[SizeSection]
    mark_of: dict[str, Mark]
    lab_alone: bool
    conditions: tuple[str, ...]
    environment: Environment
    method: MethodSection
    drawing: Json
    results: Json


def render(
    runs: Sequence[LoadedRun | Path | str],
    redact: Sequence[str] = (),
    nights: Sequence[Course] = (),
) -> str:
    """Return the page of these runs (loaded, or their folders) as HTML, without the "hosts",
    "paths", "params" in `redact`. `nights`: from `dbbench.nightly.analysis.courses_of`. Raises
    RunMissing, ResultDamaged, UnknownName.
    """
    loaded = [run if isinstance(run, LoadedRun) else load_run(run) for run in runs]
    return html(build(loaded, redact, nights))


def build(
    runs: Sequence[LoadedRun],
    redact: Sequence[str] = (),
    courses: Sequence[Course] = (),
) -> Page:
    """Return the page for its template, without what `redact` names. Raises ResultDamaged if a
    series cannot be read.
    """
    # What is redacted leaves first, so that no section can show it.
    courses = nights.without_hosts(courses) if "hosts" in redact else courses
    regressions = nights.regressions(courses, [run.path.name for run in runs])
    runs = [redact_run(run, tuple(redact)) for run in runs]

    # What several sections use.
    page_groups = groups(runs)
    marks = marks_of(runs)
    comparisons = tuple(map(_comparison, page_groups))
    warnings = findings(page_groups)
    distributions = latency.latencies(page_groups)

    # What the script draws, and what a reader can download.
    drawn = []
    for section in comparisons:
        parts = {
            "charts": section.figures,
            "table": document(section.table),
        }
        drawn.append(section.timelines.data | parts)
    results = _results(runs, comparisons)
    results["latency"] = list(map(latency.document, distributions))
    if courses:
        results["nights"] = nights.document(courses)
    return Page(
        title=" + ".join(loaded.run.name for loaded in runs),
        subtitle=subtitle(page_groups),
        marks=tuple(marks.values()),
        verdict=verdict(page_groups, warnings, regressions),
        comparisons=comparisons,
        terms=headings_of([section.table for section in comparisons]),
        choose=choose(page_groups),
        latencies=distributions,
        findings=warnings,
        space=space_table(page_groups),
        sizes=[section for loaded in runs for section in volume_sizes.sections(loaded)],
        operations=(*snapshot_tables(page_groups), *operation_tables(page_groups)),
        nights=night_charts(courses, marks),
        studies=then_and_now(page_groups),
        power_cuts=[HarmTable(loaded, loaded.lab) for loaded in runs if loaded.lab is not None],
        mark_of=marks,
        lab_alone=not any(loaded.run.order for loaded in runs),
        conditions=conditions(page_groups),
        environment=environment(page_groups),
        method=method(page_groups, redact),
        drawing={
            "about": subtitle(page_groups),
            "template": template(LIGHT),
            "dark": dark_colors(tuple(marks.values())),
            "relative": RELATIVE,
            "picture": picture(),
            "groups": drawn,
        },
        results=results,
    )


def _comparison(group: Group) -> GroupSection:
    seconds = telemetry(group)
    lines = timelines(group, seconds)
    return GroupSection(
        group=group,
        table=result_table(group),
        dots=dot_plots(group),
        time=time_section(group),
        timelines=lines,
        figures=figures(seconds, lines),
    )


def _results(runs: Sequence[LoadedRun], comparisons: Sequence[GroupSection]) -> Json:
    tables: list[Json] = []
    trials = []
    # The tables that the page shows, and the trials behind them.
    for section in comparisons:
        group = section.group
        for heading in section.table.headings:
            metric = heading.metric
            table: Json = {
                "run": group.loaded.run.name,
                "baseline": group.baseline,
                "metric": metric.name,
            }
            rows = []
            for row in group.rows_of(metric.name):
                values = row_document(row, metric)
                rows.append({key: values[key] for key in values if key not in table})
            tables.append({**table, "rows": rows})
        for trial in group.trials:
            whole = plain(trial)
            entry = {key: whole[key] for key in TRIAL_KEYS}
            trials.append({**entry, "used": trial.id in group.counted_ids})
    results: Json = {
        "schema": SCHEMA,
        "runs": [loaded.run.name for loaded in runs],
        "compare": tables,
        "trials": trials,
    }
    # Power-loss labs have results of their own.
    labs = [{"run": run.run.name, **plain(run.lab)} for run in runs if run.lab is not None]
    if labs:
        results["powercut"] = labs
    return results


@cache
def templates() -> jinja2.Environment:
    """Return the templates of the page; each is compiled once."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_folder() / "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The page has the same formatters as the terminal.
    environment.filters.update(
        change=units.change,
        interval=units.interval,
        number=units.number,
        count=units.count,
        times=units.times,
    )
    environment.globals.update(
        signs=SIGNS,
        least_above=LEAST_ABOVE,
        latency_headings=latency.HEADINGS,
        contradiction_id=LabContradicts.id,
        version=__version__,
    )
    return environment


def html(model: Page) -> str:
    """Return the whole page as text."""
    # A page without timelines does not carry the library.
    pieces = "\n".join(_asset(name) for name in SCRIPTS)
    has_figures = any(section.figures for section in model.comparisons)
    head = Markup(_asset(HEAD_SCRIPT))
    library = Markup(_asset(LIBRARY) if has_figures else "")
    script = Markup(f'(() => {{\n"use strict";\n{pieces}\n}})();')
    # Scripts are marked as safe, so that their hashes are those of the policy.
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            page=model,
            style=Markup(_asset("page.css")),
            head_script=head,
            library=library,
            script=script,
            policy=_policy([head, library, script]),
            drawing=embed(model.drawing),
            results=embed(model.results),
        )
    )


def embed(content: Any) -> Markup:
    """Return JSON that is safe inside a script element. Raises ValueError for NaN; keys keep their
    order.
    """
    text = json.dumps(
        content,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    return Markup(
        text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _asset(name: str) -> str:
    return (data_folder() / "reports" / "assets" / name).read_text(encoding="utf-8").strip()


def _policy(scripts: list[Markup]) -> str:
    """Return the content security policy: it allows these scripts, inline styles, and pictures made
    by the page.
    """
    hashes = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src "
        "data: blob:; connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
