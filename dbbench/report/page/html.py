"""The whole page: its sections as one model (`build`), and from it one HTML file with its styles, scripts and data, and
a policy that allows nothing else (`html`).

All text goes through jinja2's autoescape. The scripts are allowed by their SHA-256, connections are not allowed
at all; JSON is in a separate block with `<` written as \\u003c, so that no name can end it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from dbbench import __version__, units
from dbbench.compare import remarks
from dbbench.compare.verdict import document_of
from dbbench.metrics.histogram import LEAST_ABOVE
from dbbench.model import plain
from dbbench.model.base import shipped
from dbbench.report.page import nights
from dbbench.report.page.choose import Choose, choose
from dbbench.report.page.dots import DotPlot, dot_plots
from dbbench.report.page.environment import Environment, conditions, environment
from dbbench.report.page.figures import RELATIVE, figures, picture
from dbbench.report.page.findings import Finding, findings
from dbbench.report.page.groups import Group, groups, marks_of
from dbbench.report.page.headline import SIGNS, Verdict, verdict
from dbbench.report.page.latency import Latency, latencies
from dbbench.report.page.method import Method, method, subtitle
from dbbench.report.page.nights import Course, NightPlot, night_plots
from dbbench.report.page.operations import OperationTable, WearTable, operation_tables, snapshot_tables, wear
from dbbench.report.page.power_loss import HEADINGS, PowerCuts, power_cuts
from dbbench.report.page.redaction import redacted
from dbbench.report.page.results import FactorPlot, ResultTable, factor_plots, result_table
from dbbench.report.page.space import Bars, SpaceTable, bars, space_table
from dbbench.report.page.studies import ThenNow, then_and_now
from dbbench.report.page.telemetry import telemetry
from dbbench.report.page.theme import LIGHT, Mark, dark_colors, template
from dbbench.report.page.timeline import Timeline, timeline
from dbbench.report.page.why import Why, whys
from dbbench.results import LoadedRun

LIBRARY: Final = "plotly-cartesian.min.js"
# The page has these scripts in this order in a single function, so a file can use the declarations of earlier files,
# and none of them is global.
SCRIPTS: Final = ("data.js", "figures.js", "page.js", "pictures.js")
HEAD_SCRIPT: Final = "head.js"
SCHEMA = 1  # version of the data that the page offers for download


@dataclass(frozen=True)
class GroupView:
    """Everything that the page shows about one engine and workload."""

    group: Group
    table: ResultTable
    dots: tuple[DotPlot, DotPlot] | None  # wide, narrow
    whys: tuple[Why, ...]
    timeline: Timeline
    figures: list[dict[str, Any]]  # the charts of the timelines, for the script


@dataclass(frozen=True)
class PageModel:
    """The page, section by section."""

    title: str
    subtitle: str
    marks: tuple[Mark, ...]
    verdict: Verdict
    comparisons: tuple[GroupView, ...]
    choose: Choose
    factors: tuple[FactorPlot, ...]
    latencies: tuple[Latency, ...]
    findings: tuple[Finding, ...]
    bars: tuple[Bars, ...]
    space: SpaceTable
    snapshots: tuple[OperationTable, ...]
    operations: tuple[OperationTable, ...]
    wear: tuple[WearTable, ...]
    nights: tuple[NightPlot, ...]
    studies: tuple[ThenNow, ...]
    power_cuts: tuple[PowerCuts, ...]
    lab_alone: bool  # the runs have only power-loss tests and no trials, so the page omits the sections about trials
    conditions: tuple[str, ...]
    environment: Environment
    method: Method
    drawing: dict[str, Any]  # the data for the page's script
    results: dict[str, Any]  # the data for download

    @property
    def beside_and_after(self) -> list[tuple[OperationTable, str, str, str]]:
        """Return the tables of snapshots and of operations: table, word for its ID, title, caption."""
        snapshots = "A second server is started on the newest snapshot and queried; figures are medians."
        operations = "On the filled filesystem. Times are medians; bytes are the space that the step used."
        return [
            *((table, "n", "Snapshots during the load", snapshots) for table in self.snapshots),
            *((table, "o", "Operations after the load", operations) for table in self.operations),
        ]


def build(runs: Sequence[LoadedRun], redact: Sequence[str] = (), courses: Sequence[Course] = ()) -> PageModel:
    """Return the page of these runs and of the nights of their plans, without what `redact` names. Raises ResultDamaged
    if a series cannot be read.
    """
    courses = nights.redacted(courses, redact)
    regressions = nights.regressed(courses, [run.path.name for run in runs])
    runs = [redacted(run, tuple(redact)) for run in runs]
    page_groups = groups(runs)
    comparisons = tuple(_comparison(group) for group in page_groups)
    warnings = findings(page_groups)
    marks = tuple(marks_of(runs).values())
    distributions = latencies(page_groups)
    return PageModel(
        title=" + ".join(loaded.run.name for loaded in runs),
        subtitle=subtitle(page_groups),
        marks=marks,
        verdict=verdict(page_groups, warnings, regressions),
        comparisons=comparisons,
        choose=choose(page_groups),
        factors=factor_plots(page_groups),
        latencies=distributions,
        findings=warnings,
        bars=bars(page_groups),
        space=space_table(page_groups),
        snapshots=snapshot_tables(page_groups),
        operations=operation_tables(page_groups),
        wear=wear(page_groups),
        nights=night_plots(courses, marks_of(runs)),
        studies=then_and_now(page_groups),
        power_cuts=power_cuts(runs, marks_of(runs)),
        lab_alone=not any(loaded.run.order for loaded in runs),
        conditions=conditions(page_groups),
        environment=environment(page_groups),
        method=method(page_groups, redact),
        drawing=_drawing(marks, comparisons, subtitle(page_groups)),
        results=_results(runs, comparisons)
        | {"latency": [distribution.raw() for distribution in distributions]}
        | ({"nights": nights.data(courses)} if courses else {}),
    )


def _comparison(group: Group) -> GroupView:
    seconds = telemetry(group)
    lines = timeline(group, seconds)
    return GroupView(
        group, result_table(group, seconds), dot_plots(group), whys(group, seconds), lines,
        figures(seconds, lines)
    )  # fmt: skip


def _drawing(marks: Sequence[Mark], comparisons: Sequence[GroupView], about: str) -> dict[str, Any]:
    return {
        "about": about,
        "template": template(LIGHT),
        "dark": dark_colors(marks),
        "relative": RELATIVE,
        "picture": picture(),
        "groups": [c.timeline.data | {"charts": c.figures, "table": c.table.raw()} for c in comparisons],
    }


def _results(runs: Sequence[LoadedRun], comparisons: Sequence[GroupView]) -> dict[str, Any]:
    """Return the rows in the form of `compare --json` for every measured metric, and the values of each trial."""
    tables = [
        {"run": c.group.loaded.run.name, "baseline": c.group.baseline, "metric": heading.metric.name,
         "rows": [document_of(row) for row in c.group.rows_of(heading.metric.name)]}
        for c in comparisons for heading in c.table.headings
    ]  # fmt: skip
    kept = (
            "id", "run", "host", "fs_setup", "engine", "engine_version", "workload", "block", "attempt", "position",
            "status", "error", "warnings", "summary", "space", "age", "age_engine", "snapshots", "operations",
            "drain",
            "checkpoints", "io", "parameters",
    )  # fmt: skip
    trials = []
    for c in comparisons:
        for trial in c.group.trials:
            whole = plain(trial)
            trials.append({key: whole[key] for key in kept} | {"used": trial.id in c.group.used})
    labs = [{"run": loaded.run.name, **plain(loaded.lab)} for loaded in runs if loaded.lab is not None]
    return {"schema": SCHEMA, "runs": [loaded.run.name for loaded in runs], "compare": tables, "trials": trials,
            **({"powercut": labs} if labs else {})}  # fmt: skip


def html(model: PageModel) -> str:
    """Return the whole page as text."""
    folder = shipped() / "reports"
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        change=units.change,
        interval=units.interval,
        number=units.number,
        count=units.count,
        times=units.times,
        remarks=remarks.texts,
    )
    head, library, script = (
        Markup(text) for text in (_asset(folder, HEAD_SCRIPT), _asset(folder, LIBRARY), _own_script(folder))
    )
    return templates.get_template("page.html.j2").render(
        page=model,
        version=__version__,
        signs=SIGNS,
        cut_headings=HEADINGS,
        least_above=LEAST_ABOVE,
        style=Markup(_asset(folder, "page.css")),
        head_script=head,
        library=library,
        script=script,
        policy=_policy([head, library, script]),
        drawing=embedded(model.drawing),
        results=embedded(model.results),
    )


def embedded(content: Any) -> Markup:
    """Return JSON that is safe inside a script element. Raises ValueError for NaN; keys keep their order."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _asset(folder: Path, name: str) -> str:
    return (folder / "assets" / name).read_text(encoding="utf-8").strip()


def _own_script(folder: Path) -> str:
    return '(() => {\n"use strict";\n' + "\n".join(_asset(folder, name) for name in SCRIPTS) + "\n})();"


def _policy(scripts: list[Markup]) -> str:
    """Return the content security policy: it allows these scripts, inline styles, and pictures made by the page."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
