"""Import results from other machines: copy finished trials after verifying their SHA256SUMS, and
merge runs of the same plan with each trial once and with the facts of each host.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from dbbench.errors import ImportRefused, ResultDamaged, RunMissing, RunNameTaken
from dbbench.model import Cell, Json, Run
from dbbench.model.base import NAME
from dbbench.results.at_ceiling import FILE as CEILING
from dbbench.results.fileio import (
    RAW,
    plain_file,
    read_bytes,
    real_folder,
    sync,
    write_text,
    writing,
)
from dbbench.results.runs import create_run, folders, load_spec, lock, save_spec
from dbbench.results.runs import list_results as finished_here
from dbbench.results.trials import SUMS, damage, results_of

UNCHANGED: Final = "Nothing was imported from it."
_CHUNK: Final = 2**20
_SHOWN: Final = 8  # faults of a trial in a message


class Merged(NamedTuple):
    """The result of importing one directory."""

    folder: Path
    added: list[str]  # ids of trials that are new here
    unchanged: list[str]  # ids of trials that already exist here with the same content


def sources(folder: Path) -> list[Path]:
    """Return the runs in `folder`: itself, or those that it contains. Raises RunMissing if there is
    none.
    """
    if not folder.is_dir():
        raise RunMissing(
            f"{folder} is not a directory", remedy="Name the folder of a run, or a results folder."
        )
    folder = folder.resolve()  # the argument may be a symbolic link; below it no link is followed
    if os.path.lexists(folder / "run.json"):
        return [folder]
    contained = folders(folder)
    if not contained:
        remedy = "Name the folder of a run, or a results folder."
        raise RunMissing(f"{folder} contains no run", remedy=remedy)
    return contained


def merge(source: Path, results: Path) -> Merged:
    """Import the finished trials of the run in `source` into `results`. Everything is verified
    before anything is written. Raises ResultDamaged, ImportRefused, RunLocked, and RunNameTaken
    if the name belongs to a run of another plan here.
    """
    for name in ("", "run.json", "trials", "plan.toml", "scripts", CEILING):
        if (source / name).is_symlink():
            raise ImportRefused(
                f"{source / name} is a symbolic link",
                remedy="Name the folder that the link points to.",
            )

    # Read and verify all of it.
    incoming = load_spec(source)
    folder = results / checked_name(incoming.name)
    finished = _list_trials(source, incoming)
    scripts = dict[str, str]()
    if (source / "scripts").is_dir():
        for path in sorted((source / "scripts").iterdir()):
            scripts[path.name] = _text(source, f"scripts/{path.name}")
    if folder.exists():
        run = _same_plan(folder, incoming)
        for trial in finished:
            standing(trial, folder / "trials" / trial.name)
    else:
        cells = own_scripts(incoming.cells, folder)
        run = replace(incoming, hosts=facts_of(incoming), cells=cells)
        create_run(results, run, _text(source, "plan.toml"))

    # Write: what makes trials valid is there before they are.
    merged = Merged(folder, [], [])
    with lock(folder):
        keep_scripts(folder, scripts)
        done = finished_here(folder) | {trial.name for trial in finished}
        save_spec(folder, pool(unite(run, incoming), incoming, done))
        if (source / CEILING).is_file() and not os.path.lexists(folder / CEILING):
            write_text(folder / CEILING, _text(source, CEILING))
        for trial in finished:
            is_new = take(trial, folder)
            (merged.added if is_new else merged.unchanged).append(trial.name)
    return merged


def unite(ours: Run, theirs: Run) -> Run:
    """Return a run with the orders and the host facts of both. Raises ImportRefused if two trials
    have the same id.
    """
    specs = {spec.id: spec for spec in ours.order}
    for spec in theirs.order:
        if specs.setdefault(spec.id, spec) != spec:
            raise ImportRefused(f"{ours.name}: trial {spec.id} differs between the two runs")
    order = sorted(specs.values(), key=lambda spec: (spec.position, spec.attempt, spec.id))
    return replace(
        ours,
        order=tuple(order),
        hosts={**ours.hosts, **facts_of(theirs)},
    )


def pool(run: Run, theirs: Run, done: Collection[str]) -> Run:
    """Return the merged run with what the budgets of both gave together: both are spent at the same
    time, on two machines. `done`: ids of finished trials.
    """
    if run.budget is None or theirs.budget is None:
        return run
    longest = max(run.budget, theirs.budget, key=lambda budget: budget.used_s)
    blocks = None
    if None not in (run.budget.blocks, theirs.budget.blocks):
        torn = {spec.block for spec in run.order if spec.id not in done}
        blocks = len({spec.block for spec in run.order} - torn)
    return replace(run, budget=replace(longest, blocks=blocks))


def facts_of(run: Run) -> dict[str, Json]:
    """Return the hosts of a run with their facts; for a run of a single machine, that machine."""
    if run.hosts:
        return run.hosts
    name = str(run.host.get("hostname") or "unknown")
    versions = {**run.versions, "dbbench": run.dbbench_version}
    return {name: {**run.host, "versions": versions}}


def own_scripts(cells: tuple[Cell, ...], folder: Path) -> tuple[Cell, ...]:
    """Return the cells with their workloads' scripts in `folder`/scripts."""

    def place(script: str) -> str:
        path = Path(script)
        if path.is_absolute():
            return str(folder / "scripts" / path.name)
        return script

    def replace_scripts(cell: Cell) -> Cell:
        script = place(cell.workload.script)
        beside = tuple(map(place, cell.workload.beside))
        return replace(cell, workload=replace(cell.workload, script=script, beside=beside))

    return tuple(map(replace_scripts, cells))


def decoding(name: str) -> str:
    """Return how bytes of a file that are not UTF-8 are treated: recorded statements keep them."""
    if name.endswith(".statements"):
        return "surrogateescape"
    return "strict"


def keep_scripts(folder: Path, scripts: dict[str, str]) -> None:
    """Write scripts into the run's directory once. Raises ImportRefused if a different script has
    the same name.
    """
    for name, content in scripts.items():
        script = folder / "scripts" / checked_name(name)
        if not os.path.lexists(real_folder(script, folder.parent)):
            with writing(script):
                script.parent.mkdir(exist_ok=True)
            write_text(script, content)
        elif _text(folder, f"scripts/{name}") != content:
            raise ImportRefused(f"{script} exists already and has other contents")


def _list_trials(source: Path, run: Run) -> list[Path]:
    finished = []
    for spec in run.order:
        path = source / "trials" / checked_name(spec.id)
        if os.path.lexists(path):
            if path.is_symlink() or not path.is_dir():
                raise ImportRefused(f"{path} is not a directory")
            must_be_whole(path)
            finished.append(path)
    return finished


def _same_plan(folder: Path, theirs: Run) -> Run:
    ours = load_spec(folder)
    if ours.plan_sha256 != theirs.plan_sha256:
        raise RunNameTaken(
            f"{folder} belongs to another plan than the run to be imported",
            effect=UNCHANGED,
            remedy=f"Rename the existing run: mv {folder} {folder}-old",
        )
    unite(ours, theirs)
    if ours.hosts:
        return ours
    return replace(ours, hosts=facts_of(ours))


def _text(run: Path, name: str) -> str:
    try:
        return read_bytes(run / name, run.parent).decode("utf-8", decoding(name))
    except (OSError, UnicodeDecodeError) as error:
        raise ImportRefused(f"{run / name} cannot be read: {error}") from error


def checked_name(name: str) -> str:
    """Return a valid name of a run or trial. Raises ImportRefused for one that could lead out of
    the directory.
    """
    if not NAME.fullmatch(name):
        raise ImportRefused(f"{name!r} is not a valid name of a run or trial")
    return name


def inner(name: str) -> PurePosixPath:
    """Return the path of a file relative to its directory. Raises ImportRefused if it leads out of
    it.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or "\n" in name:
        raise ImportRefused(f"{name!r} points outside the folder of the trial")
    return path


def files_of(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield (name, size in bytes) of all files below `folder`. Raises ImportRefused for a link, a
    device or a FIFO.
    """
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(Path(entry.path))
                elif stat.S_ISREG(status.st_mode):
                    yield Path(entry.path).relative_to(folder).as_posix(), status.st_size
                else:
                    raise ImportRefused(f"{entry.path} is not a regular file")


def read(
    path: Path,
    below: Path,
    offset: int = 0,
    most: int = _CHUNK,
) -> bytes:
    """Return bytes of a file in the results folder `below`. Raises ImportRefused, ResultNotRegular,
    ResultDamaged.
    """
    try:
        with plain_file(path, below, RAW) as file:
            file.seek(offset)
            return file.read(most)
    except OSError as error:
        raise ImportRefused(f"{path}: {error.strerror}") from error


def must_be_whole(folder: Path) -> None:
    """Raise ResultDamaged if `folder` differs from its SHA256SUMS, ImportRefused for a link."""
    there = {name for name, _ in files_of(folder)}
    faults = [f"{SUMS} is missing"]
    if SUMS in there:
        sums = read_bytes(folder / SUMS, results_of(folder)).decode(errors="replace")
        listed = {str(inner(line.partition("  ")[2])) for line in sums.splitlines()}
        faults = damage(folder)
        for name in sorted(there - {SUMS} - listed):
            faults.append(f"{name} is not listed in {SUMS}")
    if faults:
        more = len(faults) - _SHOWN
        faults[_SHOWN:] = [f"and {more} more"] if more > 0 else []
        trial = folder.name.removeprefix(".partial-")
        raise ResultDamaged(f"{trial}: {'; '.join(faults)}", effect=UNCHANGED)


def standing(ours: Path, final: Path) -> bool:
    """Whether the same result already exists at `final`. Raises ImportRefused if a different one
    exists.
    """
    if not os.path.lexists(final):
        return False
    if read_bytes(final / SUMS, results_of(final)) != read_bytes(ours / SUMS, results_of(ours)):
        raise ImportRefused(
            f"{final} exists already and is another result",
            remedy="Two hosts that ran the same trials are two runs: name them differently with "
            "dbbench run --name.",
        )
    return True


def take(source: Path, run_folder: Path) -> bool:
    """Copy the finished trial at `source`, verify the copy and make it durable; return False if the
    same result exists. Raises ImportRefused, ResultDamaged.
    """
    final = run_folder / "trials" / checked_name(source.name)
    arriving = real_folder(final.with_name(f".partial-{source.name}"), run_folder.parent)
    try:
        with writing(arriving):
            shutil.rmtree(arriving, ignore_errors=True)  # left by an interrupted import
            arriving.mkdir(parents=True)
            for name, size in files_of(source):
                path = arriving / inner(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    for offset in range(0, size, _CHUNK):
                        file.write(read(source / name, results_of(source), offset))
        must_be_whole(arriving)
        if standing(arriving, final):
            return False
        with writing(final):
            for path in (*arriving.rglob("*"), arriving):
                sync(path)
            arriving.rename(final)
            sync(final.parent)
        return True
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
