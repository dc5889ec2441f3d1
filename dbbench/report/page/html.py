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
from types import SimpleNamespace as View
from typing import Any, Final

import jinja2
from markupsafe import Markup

from dbbench import __version__, units
from dbbench.compare import remarks
from dbbench.errors import LabContradicts
from dbbench.metrics.histogram import LEAST_ABOVE
from dbbench.model import plain
from dbbench.model.base import data_folder
from dbbench.report.harm_table import HarmTable
from dbbench.report.page.charts import latency, nights
from dbbench.report.page.charts.dots import dot_plots
from dbbench.report.page.charts.figures import RELATIVE, figures, picture
from dbbench.report.page.charts.nights import Course, night_charts
from dbbench.report.page.charts.telemetry import telemetry
from dbbench.report.page.charts.timelines import timelines
from dbbench.report.page.charts.why import whys
from dbbench.report.page.choose import choose
from dbbench.report.page.environment import conditions, environment
from dbbench.report.page.findings import findings
from dbbench.report.page.groups import Group, groups, marks_of
from dbbench.report.page.headline import SIGNS, verdict
from dbbench.report.page.method import method, subtitle
from dbbench.report.page.operations import operation_tables, snapshot_tables
from dbbench.report.page.redaction import redact_run
from dbbench.report.page.results import document, headings_of, result_table
from dbbench.report.page.space import space_table
from dbbench.report.page.studies import then_and_now
from dbbench.report.page.theme import LIGHT, dark_colors, template
from dbbench.report.verdict_table import row_document
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


def render(
    runs: Sequence[LoadedRun | Path | str],
    redact: Sequence[str] = (),
    nights: Sequence[Course] = (),
) -> str:
    """Return the page of these runs (loaded, or their folders) as HTML, without the "hosts",
    "paths", "params" in `redact`. `nights`: from `dbbench.nightly.analysis.courses_of`. Raises
    RunMissing, ResultDamaged, UnknownName.
    """
    return html(
        build(
            [run if isinstance(run, LoadedRun) else load_run(run) for run in runs], redact, nights
        )
    )


def build(
    runs: Sequence[LoadedRun], redact: Sequence[str] = (), courses: Sequence[Course] = ()
) -> View:
    """Return the page for its template, an attribute a section, without what `redact` names. Raises
    ResultDamaged if a series cannot be read.
    """
    courses = nights.without_hosts(courses) if "hosts" in redact else courses
    regressions = nights.regressions(courses, [run.path.name for run in runs])
    runs = [redact_run(run, tuple(redact)) for run in runs]
    page_groups = groups(runs)
    marks = marks_of(runs)
    comparisons = tuple(map(_comparison, page_groups))
    warnings = findings(page_groups)
    distributions = latency.latencies(page_groups)
    return View(
        title=" + ".join(loaded.run.name for loaded in runs),
        subtitle=subtitle(page_groups),
        marks=tuple(marks.values()),
        verdict=verdict(page_groups, warnings, regressions),
        comparisons=comparisons,
        terms=headings_of([comparison.table for comparison in comparisons]),
        choose=choose(page_groups),
        latencies=distributions,
        findings=warnings,
        space=space_table(page_groups),
        operations=(*snapshot_tables(page_groups), *operation_tables(page_groups)),
        nights=night_charts(courses, marks),
        studies=then_and_now(page_groups),
        power_cuts=[HarmTable(loaded, loaded.lab) for loaded in runs if loaded.lab is not None],
        mark_of=marks,  # of the arms
        # without trials, the sections about them are omitted
        lab_alone=not any(loaded.run.order for loaded in runs),
        conditions=conditions(page_groups),
        environment=environment(page_groups),
        method=method(page_groups, redact),
        drawing={  # for the page's script
            "about": subtitle(page_groups),
            "template": template(LIGHT),
            "dark": dark_colors(tuple(marks.values())),
            "relative": RELATIVE,
            "picture": picture(),
            "groups": [
                c.timelines.data | {"charts": c.figures, "table": document(c.table)}
                for c in comparisons
            ],
        },
        results=_results(runs, comparisons)  # for download
        | {"latency": list(map(latency.document, distributions))}
        | ({"nights": nights.document(courses)} if courses else {}),
    )


def _comparison(group: Group) -> View:
    """Return what the page shows about one engine and workload."""
    seconds = telemetry(group)
    lines = timelines(group, seconds)
    return View(
        group=group,
        table=result_table(group),
        dots=dot_plots(group),
        whys=whys(group, seconds),
        timelines=lines,
        figures=figures(seconds, lines),
    )


def _results(runs: Sequence[LoadedRun], comparisons: Sequence[View]) -> dict[str, Any]:
    tables: list[dict[str, Any]] = []
    for group, metric in [
        (c.group, heading.metric) for c in comparisons for heading in c.table.headings
    ]:
        names = {"run": group.loaded.run.name, "baseline": group.baseline, "metric": metric.name}
        rows = [row_document(row, metric) for row in group.rows_of(metric.name)]
        tables.append(
            {**names, "rows": [{key: row[key] for key in row if key not in names} for row in rows]}
        )
    trials = []
    for group, trial in [(c.group, trial) for c in comparisons for trial in c.group.trials]:
        whole = plain(trial)
        trials.append(
            {key: whole[key] for key in TRIAL_KEYS} | {"used": trial.id in group.counted_ids}
        )
    labs = [
        {"run": loaded.run.name, **plain(loaded.lab)} for loaded in runs if loaded.lab is not None
    ]
    return {
        "schema": SCHEMA,
        "runs": [loaded.run.name for loaded in runs],
        "compare": tables,
        "trials": trials,
        **({"powercut": labs} if labs else {}),
    }


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
    environment.filters.update(
        change=units.change,
        interval=units.interval,
        number=units.number,
        count=units.count,
        times=units.times,
        remarks=remarks.texts,
    )
    environment.globals.update(
        signs=SIGNS,
        least_above=LEAST_ABOVE,
        latency_headings=latency.HEADINGS,
        contradiction_id=LabContradicts.id,
        version=__version__,
    )
    return environment


def html(model: View) -> str:
    """Return the whole page as text."""
    folder = data_folder() / "reports"
    own = (
        '(() => {\n"use strict";\n'
        + "\n".join(_asset(folder, name) for name in SCRIPTS)
        + "\n})();"
    )
    library_text = (
        _asset(folder, LIBRARY)
        if any(comparison.figures for comparison in model.comparisons)
        else ""
    )
    head, library, script = map(Markup, (_asset(folder, HEAD_SCRIPT), library_text, own))
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            page=model,
            style=Markup(_asset(folder, "page.css")),
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
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(
        text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _asset(folder: Path, name: str) -> str:
    return (folder / "assets" / name).read_text(encoding="utf-8").strip()


def _policy(scripts: list[Markup]) -> str:
    """Return the content security policy: it allows these scripts, inline styles, and pictures made
    by the page.
    """
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    ]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src "
        "data: blob:; connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
