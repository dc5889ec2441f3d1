"""`dbbench import DIR..`: merge runs from other machines into the results folder."""

from __future__ import annotations

from pathlib import Path

import click

from dbbench.commands.finding import readable
from dbbench.commands.options import Options, command_line, results_option
from dbbench.errors import DbbenchError, ImportRefused, ResultDamaged, RunLocked, RunNameTaken
from dbbench.results import merging


@command_line("dbbench import /mnt/other/results", statuses=(0, 1, 2))
@click.argument("folders", nargs=-1, required=True, metavar="DIR..")
@results_option
def command(options: Options, folders: tuple[str, ...]) -> None:
    """Merge the finished trials of other results folders, or of single runs, into this results
    folder.

    Each trial is verified with its SHA256SUMS. Importing it again changes nothing. Runs of the
    same name and plan become one run, and each trial keeps the name of its host.
    """
    root = options.results_folder.resolve()
    merged: list[merging.Merged] = []
    refused: list[DbbenchError] = []
    # A folder that is refused does not stop the others.
    for source in [source for folder in folders for source in merging.sources(Path(folder))]:
        try:
            merged.append(merging.merge(source, root))
        except (ImportRefused, ResultDamaged, RunLocked, RunNameTaken) as error:
            refused.append(error)
    done = readable(options, merged, refused)
    options.put(
        {
            "runs": [
                {
                    "run": run.folder.name,
                    "path": str(run.folder),
                    "added": list(run.added),
                    "known": list(run.unchanged),
                }
                for run in done
            ]
        },
        *(
            f"{run.folder.name}: {len(run.added)} trials added, {len(run.unchanged)} already "
            f"present; {run.folder}"
            for run in done
        ),
    )
