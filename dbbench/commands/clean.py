"""`dbbench clean [RUN]`: remove what runs have left. Only what is ours, never a finished result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from dbbench import store
from dbbench.commands.finding import folder_of
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json
from dbbench.errors import RunLocked
from dbbench.fleet import record, remains
from dbbench.fleet.record import Fleet
from dbbench.journal import Journal
from dbbench.store.trials import leftovers
from dbbench.units import inert, size_text

_TAKEN: Final = ("image", "runtime", "layer", "pool", "cgroup")  # of the journal: what a person may miss


class Left(NamedTuple):
    """Something that may go, and what it is."""

    what: str
    path: Path
    size_bytes: int


Unit = Callable[[bool], list[Left]]  # cleans, or only lists; RunLocked where somebody works on it


@command_line()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--golden", is_flag=True, help="Also the golden copies of datasets (they are built again when needed).")
@click.option("--dry-run", is_flag=True, help="Only list.")
@results_option
def command(options: Options, run: str | None, golden: bool, dry_run: bool, results: str) -> None:
    """Remove images, unfinished trials and temporary folders of runs and fleets that nobody works on, and list them.

    Results are never touched. An unfinished run can still be resumed: what is missing is made again. Of a finished
    fleet's hosts on this machine, the copies of trials go that are home.
    """
    gone = _clean_each(_units(Path(results), run), dry_run, passing=run is None)
    if golden:
        gone += _clean_golden(dry_run)
    _tell(options, gone, dry_run)


def _units(results: Path, run: str | None) -> list[Unit]:
    """What is asked for: fleets with all their runs, runs of none, the folder's worker."""
    fleets = [fleet for fleet in record.fleets(results) if run in (None, fleet.name, *record.run_names(fleet))]
    found: list[Unit] = [partial(_clean_fleet, results, fleet) for fleet in fleets]
    if run is None and results.is_dir():
        theirs = {name for fleet in fleets for name in record.run_names(fleet)}
        found += [partial(_clean_run, path) for path in store.runs(results) if path.name not in theirs]
        found.append(partial(_clean_worker, results))
    elif run is not None and not fleets:
        found.append(partial(_clean_run, folder_of(results, run)))
    return found


def _clean_each(units: list[Unit], dry_run: bool, *, passing: bool) -> list[Left]:
    """Clean them one after another. What somebody works on is told and passed over, or RunLocked."""
    gone: list[Left] = []
    for clean in units:
        try:
            gone += clean(dry_run)
        except RunLocked as error:
            if not passing:
                raise
            click.echo(inert(f"left alone: {error.evidence}"), err=True)
    return gone


def _clean_fleet(results: Path, fleet: Fleet, dry_run: bool) -> list[Left]:
    """Its runs, and what its hosts on this machine have; a host that drives on by itself is left alone."""
    with store.locked(record.folder_of(results, fleet.name)):  # else what arrives is no leftover
        runs = [results / name for name in record.run_names(fleet) if (results / name / "run.json").is_file()]
        units: list[Unit] = [partial(_clean_run, path) for path in (*runs, *remains.runs_here(results, fleet.name))]
        units += [partial(_clean_worker, path) for path in remains.hosts_here(results, fleet.name)]
        found = _clean_each(units, dry_run, passing=True)
        for path in remains.copies(results, fleet):
            found.append(Left("copy of a result", path, _size(path)))
            if not dry_run:
                shutil.rmtree(path)
    return found


def _clean_worker(results: Path, dry_run: bool) -> list[Left]:
    """The scratch folder of a worker that was killed."""
    if not (results / remains.SCRATCH).is_dir():
        return []
    with remains.worker_of(results) as scratch:
        found = [Left("scratch folder", scratch, _size(scratch))]
        if not dry_run:
            shutil.rmtree(scratch)
    return found


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
