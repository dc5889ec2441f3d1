"""`dbbench size PLAN --rate N`: which level of the plan's `limit` is enough?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from dbbench.commands.options import (
    Options,
    Time,
    Whole,
    command_line,
    plan_argument,
    plan_options,
    progress_option,
    results_option,
)
from dbbench.commands.resuming import resumable, resume_command
from dbbench.commands.run import drive, wipe_option
from dbbench.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_TRIAL_FAILED
from dbbench.units import seconds_of


@command_line(
    "dbbench size docs/plans/volume-size.toml --rate 900 --p99 20ms",
    statuses=(0, 1, 2, 4, 5, 130, 143),
)
@plan_argument
@click.option(
    "--rate",
    type=Whole(min=1),
    required=True,
    metavar="N",
    help="Transactions per second that are offered (open loop).",
)
@click.option(
    "--p99",
    type=Time(),
    help="Longest p99 latency, for example 20ms.",
)
@plan_options
@results_option
@wipe_option
@progress_option
def command(
    options: Options,
    plan_file: str,
    rate: int,
    p99: str | None,
    wipe: tuple[str, ...],
    **narrowing: Any,
) -> int:
    """Find the smallest level of the plan's `limit` that keeps a rate: the smallest volume.

    A level is enough if it does 95 % of the rate (less in a short window, whose random schedule
    varies more) with that percentile. Levels are bisected for each setup, and both sides of the
    border are measured in every block of the plan. The same command resumes. Exit status 4: no
    level keeps the rate.
    """
    if narrowing["budget"]:
        raise click.UsageError("size measures until the answer is settled; remove --budget")
    from dbbench.model import Search
    from dbbench.plan.catalog import catalog
    from dbbench.plan.forecast import recall
    from dbbench.plan.narrowing import Narrowing, at_rate
    from dbbench.plan.request import able, load_request
    from dbbench.plan.variants import device_limits
    from dbbench.run.create import begin_search, choose, create, deaths, must_be_of
    from dbbench.run.preflight import check_run
    from dbbench.run.queue import begin

    # The plan with the rate; its order is that of the search.
    request = load_request(
        plan_file,
        options.paths,
        Narrowing(**narrowing),
        partial(at_rate, available=catalog(options.paths), rate=rate),
    )
    root = options.results_folder.resolve()
    request = recall(able(request, options.paths), root)
    folder = choose(root, request, new=False, name=None)
    if folder is not None:
        must_be_of(folder, request)
    # A bisection runs few of the plan's trials, so that it needs less space than all of them.
    levels = len(device_limits(request.plan))
    searches = len(request.expanded.cells) // levels
    most = searches * (levels.bit_length() + 2 * request.plan.blocks)
    searched = request.expanded._replace(order=request.expanded.order[:most])
    check_run(replace(request, expanded=searched), plan_file, root, folder, wipe)
    empty = replace(request, expanded=request.expanded._replace(order=()))
    search = Search(rate, 1000 * seconds_of(p99) if p99 else None)
    make = partial(create, root, empty, None)
    with begin(folder, root, request, make) as folder:
        begin_search(folder, search)
        if folder.pending or deaths(folder):
            with resumable(resume_command(options), f"run {folder.path.name}"):
                drive(options, folder, request.sha256, wipe, [])
    return _conclude(options, folder)


def _conclude(options: Options, folder: Any) -> int:
    """Print the answer and write the page; return 4 if no setup has a level that keeps the rate."""
    from dbbench.commands.finding import REPORT
    from dbbench.commands.report import write
    from dbbench.compare.sizing import size_setups
    from dbbench.model import plain
    from dbbench.report.text import put, put_json, put_paragraph, put_table
    from dbbench.report.volume_sizes import sections
    from dbbench.results import load_run

    loaded = load_run(folder.path)
    page = write([loaded], folder.path / REPORT)
    searched = list(size_setups(loaded.run, {trial.id: trial for trial in loaded.trials}))
    if options.json:
        setups = []
        for each in searched:
            smallest = each.smallest.limit.name if each.smallest else None
            levels = [plain(level) for level in each.levels if level.trials]
            names = {"engine": each.engine, "workload": each.workload, "fs_setup": each.arm}
            setups.append({**names, "smallest": smallest, "levels": levels})
        put_json(
            {
                "schema": 1,
                "run": loaded.run.name,
                "report": str(page),
                "search": plain(loaded.run.search),
                "setups": setups,
            }
        )
    else:
        for section in sections(loaded):
            put_paragraph(section.title)
            for sentence in section.sentences:
                put_paragraph(f"  {sentence}")
            header = ("setup", "model", "held", "tx/s", "p99 ms")
            put_table(header, [row[:-1] for row in section.rows], right=header[2:])
            put()
        put_paragraph(f"Page: {page}")
    if any(each.smallest for each in searched):
        return EXIT_OK
    if all(each.failed for each in searched):
        return EXIT_TRIAL_FAILED
    return EXIT_INCONCLUSIVE
