"""`dbbench import DIR..`: merge runs of other machines into the results folder."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json
from dbbench.store import merging


@command_line()
@click.argument("folders", nargs=-1, required=True, metavar="DIR..")
@results_option
def command(options: Options, folders: tuple[str, ...], results: str) -> None:
    """Take over the finished trials of runs that lie elsewhere: a run's folder, or a results folder.

    Each trial is held against its SHA256SUMS and written once; the same one again is no error. Runs of one name and
    plan become one run, and each trial keeps the host that it came from.
    """
    root = Path(results).resolve()
    done = [merging.merge(source, root) for folder in folders for source in merging.sources(Path(folder))]
    if options.json:
        put_json([{"run": one.folder.name, "path": str(one.folder), "added": list(one.added),
                   "known": list(one.known)} for one in done])  # fmt: skip
        return
    for one in done:
        put(f"{one.folder.name}: {len(one.added)} trials added, {len(one.known)} known before; {one.folder}")
