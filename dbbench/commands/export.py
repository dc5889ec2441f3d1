"""`dbbench export RUN --to FMT`: a run for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import loaded
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json


@command_line()
@click.argument("run", metavar="RUN")
@click.option("--to", "form", type=click.Choice(["bencher", "junit", "markdown", "openmetrics"]), required=True)
@click.option("--metric", metavar="NAME", help="E.g. p95_ms; default: each workload's own.")
@click.option("-o", "--output", metavar="FILE", help="Where to write; default: stdout.")
@results_option
def command(options: Options, run: str, form: str, metric: str | None, output: str | None, results: str) -> None:
    """Write a run's verdicts in another program's format."""
    from dbbench.commands.exporting import report_of_run
    from dbbench.exports import FORMATS
    from dbbench.store.files import write_text

    text = FORMATS[form](report_of_run(loaded(Path(results), (run,))[0], metric))
    if output is not None:
        write_text(Path(output).resolve(), text)
        if options.json:
            put_json({"path": output, "format": form})
    else:
        put(text.rstrip("\n"))
