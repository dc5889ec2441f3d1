"""`dbbench clean [RUN]`: remove what runs have left. Only what is ours, never a finished result."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import click

from dbbench import store
from dbbench.commands.finding import folder_of
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json
from dbbench.errors import RunLocked
from dbbench.journal import Journal
from dbbench.store.trials import leftovers
from dbbench.units import inert, size_text

_TAKEN: Final = ("image", "runtime", "layer", "pool", "cgroup")  # of the journal: what a person may miss


class Left(NamedTuple):
    """Something that may go, and what it is."""

    what: str
    path: Path
    size_bytes: int


@command_line()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--golden", is_flag=True, help="Also the golden copies of datasets (they are built again when needed).")
@click.option("--dry-run", is_flag=True, help="Only list.")
@results_option
def command(options: Options, run: str | None, golden: bool, dry_run: bool, results: str) -> None:
    """Remove images, unfinished trials and temporary folders of runs that nobody works on, and list them.

    Finished trials are never touched. An unfinished run can still be resumed: what is missing is made again.
    """
    folder = Path(results)
    folders = [folder_of(folder, run)] if run else (store.runs(folder) if folder.is_dir() else [])
    gone: list[Left] = []
    for each in folders:
        try:
            gone += _clean_run(each, dry_run)
        except RunLocked as error:
            if run:
                raise
            click.echo(inert(f"left alone: {error.evidence}"), err=True)
    if golden:
        gone += _clean_golden(dry_run)
    _tell(options, gone, dry_run)


def _clean_run(folder: Path, dry_run: bool) -> list[Left]:
    with store.locked(folder):
        journal = Journal(folder / "journal.jsonl")
        found = [Left(what, Path(path), _size(Path(path))) for what in _TAKEN for path in journal.outstanding(what)]
        found += [Left("unfinished trial", path, _size(path)) for path in leftovers(folder)]
        if not dry_run:
            from dbbench import images
            from dbbench.runner import give_back

            give_back(folder, journal)
            images.give_back(journal)
    return found


def _clean_golden(dry_run: bool) -> list[Left]:
    from dbbench.datasets import cache

    folder = cache.cache_folder()
    copies = [path for path in sorted(folder.glob("*")) if (path / "manifest.json").is_file()]
    found = [Left("golden copy", path, cache.disk_bytes(path)) for path in copies]
    if dry_run:
        return found
    return [left for left in found if cache.evict(left.path)]  # one that is in use stays


def _size(path: Path) -> int:
    """Bytes on disk; 0 of what is not there any more."""
    if path.is_dir():
        return sum(inner.lstat().st_blocks * 512 for inner in path.rglob("*"))
    return path.lstat().st_blocks * 512 if path.exists() else 0


def _tell(options: Options, gone: list[Left], dry_run: bool) -> None:
    if options.json:
        put_json([{"what": left.what, "path": str(left.path), "size_bytes": left.size_bytes, "removed": not dry_run}
                  for left in gone])  # fmt: skip
        return
    for left in gone:
        put(f"{'would remove' if dry_run else 'removed'} {left.what} {left.path} ({size_text(left.size_bytes)})")
    if not gone:
        put("nothing to remove")
