"""`dbbench probe DIR...`: is this disk fit for a database?"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbbench.commands.options import Options, Time, Whole, command_line
from dbbench.report.text import put, put_json, put_paragraph, put_table, table_text
from dbbench.units import duration_text, number, seconds_of

if TYPE_CHECKING:
    from dbbench.labs.disk_probe import Probed


@command_line("dbbench probe /var/lib/postgresql /mnt/new")
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, readable=False),
)
@click.option(
    "--time",
    type=Time(),
    default="1min",
    show_default=True,
    help="How long to measure, all directories together.",
)
@click.option(
    "--minutes",
    type=Whole(1, 1440),
    help="Minutes to measure instead of --time. Each is shown: a burst credit may end.",
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    help="Seed of the order and the data.",
)
@click.option(
    "--markdown",
    is_flag=True,
    help="Print the tables as Markdown.",
)
def command(
    options: Options,
    directories: tuple[Path, ...],
    time: str,
    minutes: int | None,
    seed: int,
    markdown: bool,
) -> None:
    """Measure how many commits per second a disk can do, and how long the slow ones take.

    It needs neither root nor a server. It writes files of 128 MiB into each DIR and removes
    them. Several directories are measured in random turns and compared with the first.
    """
    from dbbench.labs.disk_probe import probe

    seconds = seconds_of(f"{minutes}min" if minutes else time)
    with _progress(options, seconds) as tell:
        probed, pairs = probe(directories, seconds, seed, tell)
    if options.json:
        put_json(
            {
                "schema": 1,
                "directories": [dataclasses.asdict(each) for each in probed],
                "pairs": [dataclasses.asdict(pair) for pair in pairs],
            }
        )
        return

    # A table for each directory, then a sentence for each pair.
    for each in probed:
        _put(each, markdown)
    for pair in pairs:
        put_paragraph(pair.sentence)


def _put(probed: Probed, markdown: bool) -> None:
    from dbbench.storage.small_io import METHODS

    put_paragraph(f"{probed.path}: {probed.place}")
    put_paragraph(f"  {probed.sentence}")
    if probed.flushes:
        put_paragraph(f"  {probed.flushes}")
    if probed.minutes:
        rates = ", ".join(map(number, probed.minutes))
        put_paragraph(f"  commits per second in each minute: {rates}")
    if probed.limit:
        explanation, key = probed.model
        put_paragraph(f"  {explanation}")
        put(f"    {key}")
    for caution in probed.cautions:
        put_paragraph(f"  ! {caution}")
    titles = {method.name: method.title for method in METHODS}
    header = ("method", "values", "per s", "p50 ms", "p99 ms", "p99.9 ms", "max ms")
    rows = [
        (titles[row.method], *map(number, dataclasses.astuple(row)[1:])) for row in probed.latencies
    ]
    if markdown:
        put("\n" + table_text(header, rows))
    else:
        put_table(header, rows, right=header[1:])
    put()


@contextlib.contextmanager
def _progress(options: Options, seconds: float) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the seconds left: on one line of a terminal, elsewhere once."""
    whole = f"measuring for {duration_text(seconds)}"
    shown = ""

    def tell(left_s: float) -> None:
        nonlocal shown
        if options.quiet:
            return
        # A log gets one line, a terminal a clock.
        if not sys.stderr.isatty():
            if not shown:
                click.echo(whole, err=True)
            shown = whole
            return
        # A shorter text must cover the longer one before it.
        text = f"{whole}, {left_s:.0f} s left"
        click.echo(f"\r{text.ljust(len(shown))}", err=True, nl=False)
        shown = text

    try:
        yield tell
    finally:
        if shown and sys.stderr.isatty():
            click.echo(f"\r{' ' * len(shown)}\r", err=True, nl=False)
