"""The files of a run: run.json, which is written before the first trial and extended when a block
is repeated; powercut.json of the power-loss lab. Only one process at a time works on a run. The
index of a results folder is a cache of what was computed from each run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench import model
from dbbench.errors import DbbenchError, ResultDamaged, RunLocked, RunMissing
from dbbench.model.base import NAME
from dbbench.results import fileio
from dbbench.results.fileio import (
    read_as,
    read_bytes,
    real_folder,
    sha256,
    sound_json,
    write_text,
    writing,
)
from dbbench.results.trials import SUMS, damage

LAB: Final = "powercut.json"
FLEETS: Final = ".fleet"  # directory of the coordinators' own files
KEPT: Final = "powercut"  # directory of disk images and logs
INDEX_NAME: Final = ".dbbench-index.json"  # caches what was computed from each run
IndexRow = dict[str, Any]


def create_run(results: Path, run: model.Run, plan_text: str) -> Path:
    """Make the directory of a run with plan.toml and run.json atomically; return it. Raises
    RunLocked if it exists: another process was faster. A hidden directory that a killed process
    left while creating a run with this name is removed, unless a process is still using it.
    """
    folder = results / run.name
    making = _hidden(folder)
    # A process that was killed here has left its hidden directory.
    for left in results.glob(f".{run.name}.*.new"):
        maker = left.name.split(".")[-2]
        if left == making or not Path("/proc", maker).exists():
            shutil.rmtree(left, ignore_errors=True)
    try:
        with writing(folder):
            (making / "trials").mkdir(parents=True)
        write_text(making / "plan.toml", plan_text)
        save_spec(making, run)
        with writing(folder):
            try:
                making.rename(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise _in_use(folder, "another process, which has just created it") from None
            fileio.sync(results)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def discard(folder: Path) -> None:
    """Remove the directory of a run: at once for others, because it is renamed first."""
    hidden = _hidden(folder)
    with writing(folder):
        folder.rename(hidden)
        shutil.rmtree(hidden)


def _hidden(folder: Path) -> Path:
    """Return the name that the directory of a run has while this process makes or removes it."""
    return folder.with_name(f".{folder.name}.{os.getpid()}.new")


def runs(results: Path) -> list[Path]:
    """Return the directories of all runs in `results`, by name. Raises RunMissing."""
    if not results.is_dir():
        raise RunMissing(
            f"{results} is not a results folder",
            remedy="Name the results folder with --results DIR.",
        )
    return folders(results)


def folders(results: Path) -> list[Path]:
    """Return the runs in a directory, by name; hidden directories are still being made and are not
    included.
    """
    with os.scandir(results) as entries:
        # Names may come from someone else; a line feed would begin another line of a table.
        named = sorted(e.name for e in entries if e.name[0] != "." and e.name.isprintable())
    return [results / name for name in named if os.path.lexists(results / name / "run.json")]


def save_spec(folder: Path, run: model.Run) -> None:
    """Write run.json atomically."""
    fileio.write_with_sum(folder / "run.json", model.plain(run))


def load_spec(folder: Path) -> model.Run:
    """Read run.json. Raises RunMissing if there is none, ResultDamaged if it cannot be read."""
    remedy = "List the runs with: dbbench show"
    missing = RunMissing(f"{folder} contains no run.json", remedy=remedy)
    path = folder / "run.json"
    run = read_as(model.Run, path, folder.parent, missing)
    for name in (run.name, *(spec.id for spec in run.order)):
        if not NAME.fullmatch(name):  # directories have these names
            text = f"{name!r} is not a valid name of a run or trial"
            raise ResultDamaged(f"{path} is invalid: {text}")
    cells = {cell.id for cell in run.cells}
    for spec in run.order:
        if spec.cell not in cells:
            text = f"trial {spec.id} belongs to a cell that is not listed"
            raise ResultDamaged(f"{path} is invalid: {text}")
    return run


def list_results(folder: Path) -> set[str]:
    """Return the ids of the trials that have a result. Lists the directory once, because a run may
    have thousands.
    """
    try:
        with os.scandir(folder / "trials") as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
            return {name for name in folders if not name.startswith(".")}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def pending(folder: Path, run: model.Run) -> list[model.TrialSpec]:
    """Return the trials without a result, in the recorded order."""
    done = list_results(folder)
    return [spec for spec in run.order if spec.id not in done]


def drivable(run: model.Run) -> bool:
    """Whether `dbbench run` may continue the run: it is not a fleet's, not imported, and not a
    share of a plan.
    """
    if run.hosts or (run.budget is not None and run.budget.step != 1):
        return False
    return len({spec.block for spec in run.order}) >= run.plan.blocks


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock this run within the block. Raises RunLocked with the process that holds it."""
    with fileio.exclusive(
        real_folder(folder, folder.parent) / ".lock", lambda pid: _in_use(folder, f"process {pid}")
    ):
        yield


def _in_use(folder: Path, by: str) -> DbbenchError:
    remedy = "Wait for that process, or stop it with Ctrl-C in its terminal."
    return RunLocked(f"{folder.name} is in use by {by}", remedy=remedy)


def save_lab(folder: Path, lab: model.LabFacts) -> None:
    """Write powercut.json and the checksums atomically."""
    (folder / SUMS).unlink(missing_ok=True)  # the checksums of the previous result would not match
    fileio.write_json(folder / LAB, model.plain(lab))
    kept = real_folder(folder / KEPT, folder.parent)
    files = sorted(path for path in kept.rglob("*") if path.is_file())
    sums = ""
    for path in (folder / LAB, *files):
        sums += f"{sha256(path, folder.parent)}  {path.relative_to(folder)}\n"
    write_text(folder / SUMS, sums)


def load_lab(folder: Path, *, verify: bool = True) -> model.LabFacts | None:
    """Read powercut.json; None without a power-loss lab. Raises ResultDamaged with the files that
    were changed.
    """
    path = folder / LAB
    if not os.path.lexists(path):
        return None
    faults = damage(folder, folder.parent, LAB) if verify else []
    if faults:
        raise ResultDamaged(
            f"{folder}: " + "; ".join(faults),
            effect="Nothing was changed.",
            remedy="Restore the folder from a copy, or run the command again with another --name.",
        )
    return read_as(model.LabFacts, path, folder.parent)


def index_rows(
    results: Path,
    runs: list[Path],
    make: Callable[[Path], IndexRow],
    maker: str,
) -> list[IndexRow]:
    """Return `make(run)` for each run, from the index if neither run.json nor the directory of
    trials has changed. A trial's directory is written once, so the time of `trials/` changes
    with every trial that is added or removed. It is the kernel's (ctime), which no archive can
    set: the rows of an index that came with its runs are not used. An entry of another `maker`
    (version of dbbench) is computed again.
    """
    indexed = _read_index(results)
    # Runs that have left the folder leave the index, too.
    now = dict[str, tuple[str, IndexRow]]()
    for run in runs:
        stamp = _index_stamp(run, maker)
        before = indexed.get(run.name)
        now[run.name] = before if before and before[0] == stamp else (stamp, make(run))
    if now != indexed:
        # in a read-only directory every run is read each time
        with contextlib.suppress(DbbenchError):
            write_text(results / INDEX_NAME, json.dumps(now))
    return [row for _, row in now.values()]


def _index_stamp(run: Path, maker: str) -> str:
    """Return a text that changes with the run, with its trials, and with who makes the rows."""
    times = []
    for path in (run / "run.json", run / "trials"):
        try:
            times.append(str(path.lstat().st_ctime_ns))
        except OSError:
            times.append("-")
    return " ".join([maker, str(run), *times])


def _read_index(results: Path) -> dict[str, tuple[str, IndexRow]]:
    """Return (stamp, row) by the run's name; {} if the index cannot be read or was not written by
    this user.
    """
    try:
        if (results / INDEX_NAME).lstat().st_uid != os.geteuid():
            return {}
        content = sound_json(read_bytes(results / INDEX_NAME, results))
        return {str(name): (str(stamp), dict(row)) for name, (stamp, row) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, DbbenchError):
        return {}
