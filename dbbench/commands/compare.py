"""`dbbench compare RUN..`: ratios, intervals and words."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import loaded
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json


@command_line()
@click.argument("runs", nargs=-1, required=True, metavar="RUN..")
@click.option("--baseline", metavar="NAME", help="The fs setup that others are compared with; default: the plan's.")
@click.option("--metric", metavar="NAME", help="E.g. p95_ms; default: each workload's own.")
@click.option("--format", "form", type=click.Choice(["text", "md", "json", "csv"]), default="text", show_default=True)
@results_option
def command(
    options: Options, runs: tuple[str, ...], baseline: str | None, metric: str | None, form: str, results: str
) -> None:
    """Ratio, interval and verdict of each filesystem against the baseline, paired by block.

    The exit code is 0 whatever the verdict.
    """
    from dbbench.commands import verdicts as made

    found = made.verdicts(loaded(Path(results), runs), baseline, metric)
    if options.json or form == "json":
        put_json(made.as_document(found))
    elif form == "csv":
        put(made.as_csv(found))
    elif form == "md":
        put(made.as_markdown(found))
    else:
        made.put_tables(found)
