"""`dbbench nightly run|status|accept|baseline`: a plan every night, and what it is compared with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dbbench import results
from dbbench.commands.finding import folder_of, results_of, run_argument
from dbbench.commands.options import (
    Options,
    Whole,
    command_group,
    command_line,
    plan_argument,
    program_of_notify,
    progress_option,
    results_option,
)
from dbbench.commands.resuming import resumable, resume_command
from dbbench.errors import NightMissing
from dbbench.metrics.table import METRICS
from dbbench.model import Json, plain
from dbbench.model.base import NAME
from dbbench.nightly import analysis, history, tonight
from dbbench.nightly.judging import MOVED, NightFinding
from dbbench.nightly.night import Night
from dbbench.nightly.tonight import NightOutcome
from dbbench.plan import load
from dbbench.plan.catalog import catalog
from dbbench.plan.request import PlanRequest
from dbbench.report.progress import renderer
from dbbench.report.text import put, put_json, put_paragraph, put_table
from dbbench.results import LoadedRun
from dbbench.units import change, epoch


@command_group
def command(**_given: Any) -> None:
    """Run a plan every night, compare each night with the nights before, and detect regressions."""


@command_line(
    "dbbench nightly run plan.toml --junit night.xml",
    name="run",
    statuses=(0, 1, 2, 3, 4, 5, 130, 143),
)
@plan_argument
@results_option
@click.option(
    "--blocks",
    type=int,
    metavar="N",
    help="Override the number of blocks (7 detect 10 % at a CV of 5 %).",
)
@click.option(
    "--window",
    type=Whole(6),
    default=60,
    metavar="N",
    show_default=True,
    help="Compare with the median of the last N nights.",
)
@click.option(
    "--junit",
    metavar="FILE",
    help="Write JUnit XML to FILE.",
)
@click.option(
    "--openmetrics",
    metavar="FILE",
    help="Write OpenMetrics text to FILE.",
)
@click.option(
    "--markdown",
    metavar="FILE",
    help="Write GitHub Markdown to FILE.",
)
@click.option(
    "--notify",
    metavar="CMD",
    callback=program_of_notify,
    help="Start CMD when the state changes, with the night as JSON on its stdin.",
)
@click.option(
    "--wipe",
    multiple=True,
    metavar="ID",
    help="Allow this device to be erased, as in `dbbench run`.",
)
@progress_option
def run(
    options: Options,
    plan_file: str,
    blocks: int | None,
    window: int,
    notify: str | None,
    wipe: tuple[str, ...],
    **files: str | None,
) -> int:
    """Run tonight's benchmark and compare it with the nights before.

    The plan's baseline runs as the reference, twice (A/A guard). A suspect is confirmed at once
    by a second run of it and the reference alone.

    A night is inconclusive if the guard moved, nights are missing, or a suspect could not be
    confirmed. With -q, a night that needs no attention prints nothing.
    """
    root = options.results_folder.resolve()
    for option, path in files.items():
        _check_writable(option, path, root)

    def run_plan(request: PlanRequest, name: str) -> LoadedRun:
        with resumable(resume_command(options)), options.shown(renderer) as emit:
            return tonight.run_to_end(request, root, name, wipe, emit)

    # The night is judged and recorded before anyone is told.
    outcome = tonight.run_night(
        tonight.tonights_request(plan_file, options.paths, blocks),
        root,
        window,
        run_plan,
    )
    tonight.export(outcome, root, files)
    if outcome.news and notify:
        tonight.notify(notify, outcome.document)
    # A timer that runs quietly prints only what needs attention.
    nothing_to_say = options.quiet and outcome.state in analysis.QUIET
    if options.json or not nothing_to_say:
        _put(options, outcome)
    return outcome.exit_status


def _check_writable(option: str, path: str | None, root: Path) -> None:
    """Raise BadParameter for a file that cannot be written when the night has ended. Its folder may
    be the results folder, which the night makes.
    """
    if path is None:
        return
    folder = Path(path).resolve().parent
    if not (os.access(folder, os.W_OK) or folder.is_relative_to(root)):
        raise click.BadParameter(
            f"{folder} is not a directory in which files can be written", param_hint=f"--{option}"
        )


@command_line(
    "dbbench nightly status",
    "dbbench nightly status plan.toml   fails if the newest night is too old",
    name="status",
)
@click.argument("plan", metavar="[PLAN]", required=False)
@results_option
def status(options: Options, plan: str | None) -> None:
    """Show the newest night of each plan and all confirmed regressions.

    PLAN is the name of a plan, or its file. With it, a newest night older than 30 hours is an
    error (E806).
    """
    root = results_of(options)
    # A named plan must have nights; without a name, all plans are listed.
    nights = (
        _nights_of(plan, root, options.paths)
        if plan
        else history.every_plan(root, options.passed_over)
    )
    rows = [
        {
            "plan": name,
            "run": last.run,
            "created": last.created,
            "age_h": round((time.time() - epoch(last.created)) / 3600, 1),
            "states": last.states,
        }
        for name, each in nights.items()
        for last in each[-1:]
    ]
    # The list of regressions does not depend on how old the night is.
    regressions = analysis.regressions(nights)
    if options.json:
        put_json(
            {
                "nights": rows,
                "regressions": [plain(regression) for regression in regressions],
            }
        )
    else:
        _put_status(root, rows, regressions)
    if plan:
        _check_age(next(iter(nights)), root, rows)


@command_line("dbbench nightly accept RUN --reason 'PostgreSQL 17'", name="accept")
@run_argument()
@click.option(
    "--reason",
    metavar="TEXT",
    required=True,
    help="Reason for the new level; it is kept.",
)
@results_option
def accept(options: Options, run: str, reason: str) -> None:
    """Accept the level of a run as the new normal; earlier nights no longer count."""
    _accept(options, run, reason)


@command_line("dbbench nightly baseline", "dbbench nightly baseline RUN", name="baseline")
@run_argument(required=False)
@results_option
def baseline(options: Options, run: str | None) -> None:
    """Show or set the run that nights are compared with until there are five of them."""
    if run is not None:
        _accept(options, run, "set as the first baseline")
        return
    # Without a run, what was accepted so far is listed.
    accepted = history.acceptances(results_of(options))
    if options.json:
        put_json(
            {
                "baselines": {
                    plan: [plain(entry) for entry in entries] for plan, entries in accepted.items()
                }
            }
        )
        return
    rows = [
        (plan, e.run, e.at[:16].replace("T", " "), e.reason)
        for plan, entries in accepted.items()
        for e in entries
    ]
    if rows:
        put_table(("plan", "run", "accepted", "reason"), rows)
    else:
        put("No baseline is set. Set one with:  dbbench nightly baseline RUN")


for each in (run, status, accept, baseline):
    command.add_command(each)


def _accept(options: Options, run: str, reason: str) -> None:
    if not reason.strip():
        raise click.UsageError("--reason is empty")
    root = options.results_folder
    entry = history.accept(root, results.load_run(folder_of(root, run)), reason)
    options.put(plain(entry), f"{entry.run} is now the baseline of its plan: {reason}")


def _nights_of(
    plan: str,
    root: Path,
    paths: list[str],
) -> dict[str, list[Night]]:
    named = NAME.fullmatch(plan) and history.all_nights(root, plan)
    name = plan if named else load(Path(plan), catalog(paths)).name
    return {name: history.all_nights(root, name)}


def _check_age(name: str, root: Path, rows: list[Json]) -> None:
    """Raise NightMissing, which is the alarm, if there is no night or the newest one is too old."""
    if not rows:
        raise NightMissing(
            f"plan {name} has no nights in {root}",
            remedy="Check that the timer is enabled:  systemctl list-timers 'dbbench-nightly@*'",
        )
    if rows[0]["age_h"] < 0:
        raise NightMissing(
            f"the newest night of plan {name} began at {rows[0]['created']}, which is in the future "
            f"({rows[0]['run']})",
            remedy=f"Correct the clock, or remove that line of {root}/nightly/{name}.jsonl.",
        )
    if rows[0]["age_h"] > history.MOST_AGE_H:
        raise NightMissing(
            f"the newest night of plan {name} is {rows[0]['age_h']:.0f} hours old "
            f"({rows[0]['run']})",
            remedy=f"See why the last one did not run:  systemctl status 'dbbench-nightly@{name}'",
        )


def _put_status(
    root: Path,
    rows: list[Json],
    regressions: list[analysis.Regression],
) -> None:
    if not rows:
        put(f"There are no nights in {root}. Run one with:  dbbench nightly run PLAN")
        return
    ages = [(r["plan"], r["run"], f"{r['age_h']:.0f}") for r in rows]
    put_table(("plan", "newest night", "hours ago"), ages, right=("hours ago",))
    put()
    if not regressions:
        put("No regression was confirmed.")
        return
    table = []
    for r in regressions:
        table.append((r.since, r.plan, r.series, change(r.change), r.until or "still", r.run))
    put_table(("since", "plan", "series", "change", "until", "run"), table, right=("change",))


def _put(options: Options, outcome: NightOutcome) -> None:
    if options.json:
        put_json(outcome.document)
        return
    night = outcome.night
    findings = outcome.findings
    put(f"{outcome.plan}, night of {night.night}: {outcome.state}")
    for text in outcome.problems:
        put_paragraph(f"  {text}")
    # A row for each series, then what explains it.
    if findings:
        put_table(
            ("series", "ratio", "level", "change", "state", "since"),
            [_row(finding) for finding in findings],
            right=("ratio", "level", "change"),
        )
    for finding in findings:
        for note in (*_own_value(finding), *finding.notes):
            put_paragraph(f"  {finding.key}: {note}")
    for title, caution in outcome.cautions.items():
        put_paragraph(f"  {title}: {caution}")
    if breaks := outcome.document["night"]["breaks"]:
        put_paragraph(f"  changed since the night before: {'; '.join(breaks)}")
    # What to do about it.
    put(f"  run {night.run}")
    if any(finding.state in MOVED for finding in findings):
        put(f"  If this is expected:  dbbench nightly accept {night.run} --reason TEXT")


def _row(finding: NightFinding) -> tuple[str | None, ...]:
    """Return the cells of a series. The reference's own value is no ratio: only its change is."""
    ratio = None
    level = None
    if finding.is_ratio:
        ratio = f"{finding.ratio:.3f}"
        level = None if finding.level is None else f"{finding.level:.3f}"
    return finding.key, ratio, level, change(finding.change), finding.state, finding.since


def _own_value(finding: NightFinding) -> Iterator[str]:
    """Yield the reference's own value with its unit, and its level."""
    if not finding.is_ratio:
        metric = METRICS[finding.metric]
        level = ""
        if finding.level is not None:
            level = f", level {metric.with_unit(finding.level)}"
        yield f"{metric.with_unit(finding.ratio)}{level}"
