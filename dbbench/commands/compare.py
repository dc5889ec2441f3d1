"""`dbbench compare RUN..`: ratios, intervals and verdicts, for people and for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import complete_run, load_runs, runs_argument, without_copies
from dbbench.commands.options import OneOf, Options, command_line, completing, results_option
from dbbench.errors import EXIT_OK
from dbbench.metrics.table import METRICS
from dbbench.report import verdicts as judge
from dbbench.report.exports import export
from dbbench.report.pooling import check_pool
from dbbench.report.text import put, put_json
from dbbench.report.verdict_table import as_document, put_tables
from dbbench.results.fileio import write_text


@command_line(
    "dbbench compare RUN --metric p95_ms",
    "dbbench compare NEW --against OLD --gate",
    "dbbench compare RUN --format markdown -o verdict.md",
    statuses=(0, 1, 2, 3, 4),
)
@runs_argument
@click.option(
    "--baseline",
    metavar="NAME",
    help="Compare with this fs setup instead of the plan's baseline.",
)
@click.option(
    "--metric",
    metavar="NAME",
    shell_complete=completing(lambda: [*METRICS, "all"]),
    help="Compare by this metric, for example p95_ms, or by all [default: each workload's own].",
)
@click.option(
    "--by",
    type=OneOf(["fs", "kernel", "engine_version"]),
    default="fs",
    show_default=True,
    help="Compare filesystems, or (unpaired) runs with different kernels or engine versions; "
    "--baseline is then one of these versions.",
)
@click.option(
    "--against",
    metavar="RUN",
    shell_complete=complete_run,
    help="Compare each run with this one, unpaired; their parameters, versions and devices may "
    "differ.",
)
@click.option(
    "--gate",
    is_flag=True,
    help="Exit with 3 if any result is worse, or 4 if any is inconclusive.",
)
@click.option(
    "--format",
    "form",
    default="text",
    show_default=True,
    help="Output format.",
    type=OneOf(["text", "markdown", "csv", "json", "junit", "openmetrics"]),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE instead of stdout; add --format.",
)
@results_option
def command(
    options: Options,
    runs: tuple[str, ...],
    baseline: str | None,
    metric: str | None,
    by: str,
    against: str | None,
    gate: bool,
    form: str,
    output: str | None,
) -> int:
    """Compare each filesystem with the baseline: ratio, confidence interval and verdict, paired by
    block.

    Several runs count as one with more blocks; runs that differ in parameters, versions or
    device are refused (E809). The exit status does not depend on the verdicts unless --gate is
    given.
    """
    if against is not None and (baseline is not None or by != "fs"):
        raise click.UsageError("--against cannot be combined with --baseline or --by")

    # Runs are paired by block, or compared as wholes.
    read = load_runs(options, runs)
    if against is not None:
        read = without_copies([*load_runs(options, (against,)), *read])
        verdicts = judge.compare_groups(read, "run", None, metric)
    else:
        check_pool(read, by)
        if by == "fs":
            verdicts = judge.verdicts(read, baseline, metric)
        else:
            verdicts = judge.compare_groups(read, by, baseline, metric)

    # Text is for people, everything else for programs.
    form = "json" if options.json else form
    if form == "text" and output is not None:
        raise click.UsageError(
            "-o FILE is for other programs: add --format markdown, csv, json, junit or openmetrics "
            "(to keep this text, use > FILE)"
        )
    if form == "text":
        put_tables(verdicts, options.verbose)
    elif form == "json" and output is None:
        put_json(as_document(verdicts))
    elif output is None:
        put(export(form, verdicts).rstrip("\n"))
    else:
        write_text(Path(output), export(form, verdicts))
    return judge.gate(verdicts) if gate else EXIT_OK
