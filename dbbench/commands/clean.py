"""`dbbench clean [RUN]`: remove what interrupted runs left behind, never a result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from dbbench import results
from dbbench.commands.finding import folder_of, results_of, run_argument
from dbbench.commands.options import Options, command_line, results_option
from dbbench.datasets.golden import cache_folder, disk_bytes, evict
from dbbench.errors import DbbenchError, RunLocked, collect_errors
from dbbench.fleet import fleet_files, security
from dbbench.fleet.fleet_files import Fleet
from dbbench.report.text import put, put_json, put_paragraph
from dbbench.results.journal import Journal
from dbbench.results.trials import leftovers
from dbbench.units import count, inert, size_text

_LARGEST: Final = 5  # runs that are listed by name
_MOST_TOLD: Final = 20  # listed resources of others that a journal names
# kinds of the journal that may be left behind
_TAKEN: Final = ("image", "runtime", "layer", "pool", "cgroup")
_NO_FILES: Final = ("layer", "pool")  # kinds that are not a path; a reboot may have ended them


class Left(NamedTuple):
    """Something that may be removed, with a description of it."""

    what: str
    path: Path
    size_bytes: int


# (dry_run) -> what was or would be removed; raises RunLocked if another process uses it.
Unit = Callable[[bool], list[Left]]


@command_line("dbbench clean --dry-run", statuses=(0, 1, 2))
@run_argument(required=False)
@click.option(
    "--golden",
    is_flag=True,
    help="Also remove the golden copies of datasets; they are built again when needed.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed.")
@results_option
def command(
    options: Options,
    run: str | None,
    golden: bool,
    dry_run: bool,
) -> None:
    """Remove images, unfinished trials and temporary folders of runs and fleets that no process
    uses.

    Results are never removed. An unfinished run can still be resumed. What takes space otherwise,
    golden copies and runs, is listed with its size.
    """
    passed_over = options.passed_over if run is None else None
    gone = _clean_each(_units(options, run), dry_run, passed_over)
    if golden:
        gone += _clean_golden(dry_run)

    # What takes space otherwise is only listed.
    kept = []
    if run is None:
        removed = {left.path for left in gone}
        for left in (*_golden_copies(), *_runs(options)):
            if left.path not in removed:
                kept.append(left)
    _tell(options, gone, kept, dry_run)


def _units(options: Options, run: str | None) -> list[Unit]:
    results_folder = results_of(options)
    fleets = [
        fleet
        for fleet in fleet_files.fleets(results_folder, options.passed_over)
        if run in (None, fleet.name, *fleet.runs)
    ]
    units: list[Unit] = [partial(_clean_fleet, results_folder, fleet) for fleet in fleets]
    if run is None and results_folder.is_dir():
        fleet_runs = {name for fleet in fleets for name in fleet.runs}
        units += [
            partial(_clean_run, path)
            for path in results.runs(results_folder)
            if path.name not in fleet_runs
        ]
    elif run is not None and not fleets:
        units.append(partial(_clean_run, folder_of(results_folder, run)))
    return units


def _clean_each(
    units: list[Unit],
    dry_run: bool,
    failed: list[DbbenchError] | None,
) -> list[Left]:
    """Clean the units. Those in use by another process are reported and skipped, and the errors of
    damaged runs are added to `failed`; without `failed`, both are raised.
    """
    gone: list[Left] = []
    for clean in units:
        with collect_errors(failed):
            try:
                gone += clean(dry_run)
            except RunLocked as error:
                if failed is None:
                    raise
                click.echo(inert(f"not removed: {error.evidence}"), err=True)
    return gone


def _clean_fleet(
    results_folder: Path,
    fleet: Fleet,
    dry_run: bool,
) -> list[Left]:
    """Clean the runs of a fleet, here and of its hosts of `--local`, and the keys that a killed
    coordinator has left. Runs of hosts that are still at work are skipped.
    """
    # so that no coordinator is collecting trials
    folder = fleet_files.folder_of(results_folder, fleet.name)
    with results.lock(folder):
        runs = [
            results_folder / name
            for name in fleet.runs
            if (results_folder / name / "run.json").is_file()
        ]
        runs += fleet_files.local_runs(results_folder, fleet.name)
        failed: list[DbbenchError] = []
        left = _clean_each([partial(_clean_run, path) for path in runs], dry_run, failed)
        keys = security.folder_of_fleet(folder)
        if keys.is_dir():
            left.append(Left("keys of a fleet", keys, _size(keys)))
            if not dry_run:
                shutil.rmtree(keys)
    if failed:
        raise failed[0]
    return left


def _clean_run(folder: Path, dry_run: bool) -> list[Left]:
    from dbbench.run.recover import give_back, must_be_trusted

    must_be_trusted(folder)
    with results.lock(folder):
        journal = Journal(folder / "journal.jsonl")
        left = [
            Left(what, Path(path), _size(Path(path)))
            for what in _TAKEN
            for path in journal.outstanding(what)
            if what in _NO_FILES or os.path.lexists(path)
        ]
        # Lines of another run are shown and not acted upon.
        for what, path in journal.foreign()[:_MOST_TOLD]:
            _put_what_stays(
                what,
                path,
                f"listed in the journal of {folder.name}: it does not belong to this run",
            )
        left += [Left("unfinished trial", path, _size(path)) for path in leftovers(folder)]
        if dry_run:
            return left
        from dbbench.machine.limits.cgroup import stop_units
        from dbbench.storage.devices import image

        stop_units(journal)
        ended = give_back(folder, journal)
        image.give_back_images(journal)
        kept = {path for what in _TAKEN for path in journal.outstanding(what)}
    # What is still there was not this run's, or is in use.
    for entry in left:
        if str(entry.path) in kept or os.path.lexists(entry.path):
            _put_what_stays(
                entry.what,
                entry.path,
                "it is in use, or is not a file that this run made",
            )
    gone = [
        entry for entry in left if str(entry.path) not in kept and not os.path.lexists(entry.path)
    ]
    return [entry for entry in gone if entry.what not in _NO_FILES or str(entry.path) in ended]


def _put_what_stays(what: str, path: str | Path, why: str) -> None:
    click.echo(inert(f"not removed: {what} {path}, {why}"), err=True)


def _golden_copies() -> list[Left]:
    copies = [
        path for path in sorted(cache_folder().glob("*")) if (path / "manifest.json").is_file()
    ]
    return [Left("golden copy", path, disk_bytes(path)) for path in copies]


def _clean_golden(dry_run: bool) -> list[Left]:
    copies = _golden_copies()
    if dry_run:
        return copies
    return [left for left in copies if evict(left.path)]  # `evict` keeps copies that are in use


def _runs(options: Options) -> list[Left]:
    """Return the runs of the results folder, the largest first."""
    folder = options.results_folder
    paths = results.runs(folder) if folder.is_dir() else []
    runs = [Left("run", path, _size(path)) for path in paths]
    return sorted(runs, key=lambda left: -left.size_bytes)


def _kept_text(kept: list[Left]) -> list[str]:
    """Return a line each for the golden copies and the runs, and how they are removed."""
    lines = []
    copies = [left for left in kept if left.what == "golden copy"]
    runs = [left for left in kept if left.what == "run"]
    if copies:
        text = f"kept: {_sum_text(copies, 'golden copy', 'golden copies')}"
        lines.append(f"{text} in {cache_folder()}; they are removed by:  dbbench clean --golden")
    if runs:
        largest = [f"{left.path.name} ({size_text(left.size_bytes)})" for left in runs[:_LARGEST]]
        folder = runs[0].path.parent.absolute()
        text = f"kept: {_sum_text(runs, 'run', 'runs')} in {folder}"
        listed = "" if len(runs) == 1 else f"the largest: {', '.join(largest)}; "
        lines.append(f"{text}; {listed}to remove one, delete its folder")
    return lines


def _sum_text(entries: list[Left], singular: str, plural: str) -> str:
    size = size_text(sum(left.size_bytes for left in entries))
    return f"{count(len(entries), singular, plural)} ({size})"


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(each.lstat().st_blocks * 512 for each in path.rglob("*"))
    if os.path.lexists(path):
        return path.lstat().st_blocks * 512
    return 0


def _tell(
    options: Options,
    gone: list[Left],
    kept: list[Left],
    dry_run: bool,
) -> None:
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {left.what} {left.path} ({size_text(left.size_bytes)})" for left in gone]
    if options.json:
        put_json(
            {
                "removed": [{**_as_data(left), "removed": not dry_run} for left in gone],
                "kept": [_as_data(left) for left in kept],
            }
        )
        return
    for line in lines or ["nothing to remove"]:
        put(line)
    for line in _kept_text(kept):
        put_paragraph(line)


def _as_data(left: Left) -> dict[str, object]:
    return {"what": left.what, "path": str(left.path), "size_bytes": left.size_bytes}
