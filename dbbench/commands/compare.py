"""`dbbench compare RUN..`: ratios, intervals and words."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import loaded
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json
from dbbench.errors import EXIT_OK


@command_line()
@click.argument("runs", nargs=-1, required=True, metavar="RUN..")
@click.option("--baseline", metavar="NAME", help="The fs setup that others are compared with; default: the plan's.")
@click.option("--metric", metavar="NAME", help="E.g. p95_ms, or all; default: each workload's own.")
@click.option(
    "--by",
    type=click.Choice(["fs", "kernel", "engine_version"]),
    default="fs",
    show_default=True,
    help="Compare runs of other kernels or engine versions, unpaired; --baseline is one of them.",
)
@click.option("--gate", is_flag=True, help="Exit 3 where any is slower or worse, 4 where any is not decided.")
@click.option("--format", "form", type=click.Choice(["text", "md", "json", "csv"]), default="text", show_default=True)
@results_option
def command(
    options: Options, runs: tuple[str, ...], baseline: str | None, metric: str | None, by: str, gate: bool, form: str,
    results: str,
) -> int:  # fmt: skip
    """Ratio, interval and verdict of each filesystem against the baseline, paired by block.

    The exit code is 0 whatever the verdict, but with --gate.
    """
    from dbbench.commands import verdicts as made

    known = loaded(Path(results), runs)
    found = made.verdicts(known, baseline, metric) if by == "fs" else made.unpaired(known, by, baseline, metric)
    if options.json or form == "json":
        put_json(made.as_document(found))
    elif form == "csv":
        put(made.as_csv(found))
    elif form == "md":
        put(made.as_markdown(found))
    else:
        made.put_tables(found)
    return made.gate(found) if gate else EXIT_OK
