"""`dbbench baseline set|show|accept`: which run's level nights are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbbench.commands.finding import loaded
from dbbench.commands.options import Options, command_line, global_options, results_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.model import plain


@click.group(name="baseline", context_settings={"help_option_names": ["-h", "--help"]})
@global_options
def command(**_given: Any) -> None:
    """Which run's level the nights of its plan are held against."""


@command_line(name="set")
@click.argument("run", metavar="RUN")
@click.option("--reason", metavar="TEXT", default="set as the first baseline", show_default=True)
@results_option
def set_baseline(options: Options, run: str, reason: str, results: str) -> None:
    """Hold the nights of this run's plan against this run, until there are nights enough."""
    _accept(options, run, reason, results)


@command_line(name="accept")
@click.argument("run", metavar="RUN")
@click.option("--reason", metavar="TEXT", required=True, help="Why the new level is as it should be; kept for ever.")
@results_option
def accept(options: Options, run: str, reason: str, results: str) -> None:
    """Accept the level of this run: nights before it no longer count."""
    _accept(options, run, reason, results)


@command_line(name="show")
@results_option
def show(options: Options, results: str) -> None:
    """Every baseline that was accepted, with its reason."""
    from dbbench.nightly import all_accepted

    known = all_accepted(Path(results))
    if options.json:
        put_json({plan: [plain(entry) for entry in entries] for plan, entries in known.items()})
        return
    rows = [(plan, e.run, e.at[:16].replace("T", " "), e.reason) for plan, entries in known.items() for e in entries]
    if rows:
        put_table(("plan", "run", "accepted", "reason"), rows)
    else:
        put("No baseline was accepted yet: dbbench baseline set RUN")


def _accept(options: Options, run: str, reason: str, results: str) -> None:
    from dbbench import nightly

    if not reason.strip():
        raise click.UsageError("--reason should say why")
    entry = nightly.accept(Path(results), loaded(Path(results), (run,))[0], reason)
    if options.json:
        put_json(plain(entry))
    else:
        put(f"{entry.run} is the baseline of its plan from now on: {reason}")


for _sub in (set_baseline, accept, show):
    command.add_command(_sub)
