"""What a fleet's coordinator stores on its disk, so that the same command resumes after it was
killed.
RESULTS/.fleet/RUN/fleet.json    mode, plan, blocks of each host: written before it is acted on
RESULTS/.fleet/RUN/status.json   the state of each host: for `fleet status`
RESULTS/.fleet/RUN/.lock         held by the coordinator
RESULTS/.fleet/RUN/hosts/HOST    results folder of a host that is a worker of this machine
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dbbench import results
from dbbench.errors import DbbenchError, ResultDamaged, RunMissing, collect_errors
from dbbench.model import Run
from dbbench.model.base import NAME
from dbbench.results import fileio
from dbbench.results.merging import keep_scripts, own_scripts
from dbbench.units import iso

FOLDER: Final = ".fleet"
LOCK: Final = ".lock"
HOSTS: Final = "hosts"


@dataclass(frozen=True)
class Fleet:
    """One plan on its hosts: the content of fleet.json."""

    name: str
    mode: Literal["each", "spread"]
    created: str
    plan_sha256: str
    blocks: dict[str, tuple[int, ...]]  # host -> its blocks, in the order of assignment
    finished: bool = False
    scheduler: str = ""  # address of the scheduler that dbbench started, for the next coordinator

    def run_of(self, host: str) -> str:
        """Return the name of the host's run, there and in the results: with `each`, every host has
        its own.
        """
        return self.name if self.mode == "spread" else f"{self.name}-{host}"

    @property
    def runs(self) -> list[str]:
        return sorted({self.run_of(host) for host in self.blocks})


def folder_of(results_folder: Path, name: str) -> Path:
    """Return the directory of the coordinator's own files."""
    return results_folder / FOLDER / name


def exists(results_folder: Path, name: str) -> bool:
    """Whether the coordinator of the fleet of that name has its files here."""
    return (folder_of(results_folder, name) / "fleet.json").is_file()


def save(results_folder: Path, fleet: Fleet) -> None:
    """Write fleet.json atomically."""
    folder = folder_of(results_folder, fleet.name)
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    fileio.write_json(folder / "fleet.json", dataclasses.asdict(fleet))


def load(results_folder: Path, name: str) -> Fleet:
    """Return the fleet of that name. Raises RunMissing, ResultDamaged."""
    path = folder_of(results_folder, name) / "fleet.json"
    missing = RunMissing(
        f'no fleet "{name}" in {results_folder}',
        remedy="List the fleets with: dbbench fleet status",
    )
    fleet = fileio.read_as(Fleet, path, results_folder, missing)
    for word in (fleet.name, *fleet.blocks):
        # these words become names of files and folders
        if not NAME.fullmatch(word) or fleet.name != name:
            raise ResultDamaged(
                f"{path} cannot be read: {word!r} is not the name of this fleet or of a host"
            )
    return fleet


def fleets(results_folder: Path, damaged: list[DbbenchError] | None = None) -> list[Fleet]:
    """Return a results folder's fleets, oldest first. Raises ResultDamaged, or adds the errors to
    `damaged`.
    """
    all_fleets = []
    for path in (results_folder / FOLDER).glob("*/fleet.json"):
        with collect_errors(damaged, ResultDamaged):
            all_fleets.append(load(results_folder, path.parent.name))
    return sorted(all_fleets, key=lambda fleet: (fleet.created, fleet.name))


@contextlib.contextmanager
def coordinating(results_folder: Path, name: str) -> Iterator[None]:
    """Hold the coordinator's lock within the block. Raises RunLocked."""
    folder = folder_of(results_folder, name)
    with fileio.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with results.lock(folder):
        yield


def coordinator(folder: Path) -> int | None:
    """Return the process id of the coordinator whose files are in `folder`, or None if none is
    running.
    """
    lock = folder / LOCK
    results_folder = folder.parent.parent
    with contextlib.suppress(OSError, ValueError, ResultDamaged):
        pid = int(fileio.read_bytes(lock, results_folder))
        if Path(f"/proc/{pid}").exists():  # try the lock only if a coordinator seems to hold it
            with fileio.plain_file(lock, results_folder) as file:
                return None if fileio.try_lock(file.fileno(), shared=True) else pid
    return None


def create_runs(
    results_folder: Path, fleet: Fleet, run: Run, plan_text: str, scripts: dict[str, str]
) -> None:
    """Make the missing directories into which results are collected."""
    for name in fleet.runs:
        if not (results_folder / name / "run.json").exists():
            hosts = {
                host: dict[str, Any]()
                for host in sorted(fleet.blocks)
                if fleet.run_of(host) == name
            }
            cells = own_scripts(run.cells, results_folder / name)
            results.create_run(
                results_folder,
                dataclasses.replace(run, name=name, cells=cells, hosts=hosts),
                plan_text,
            )
        keep_scripts(results_folder / name, scripts)


def save_status(results_folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write status.json; it need not survive a power loss."""
    status = {"utc": iso(time.time()), "hosts": rows}
    fileio.write_text(
        folder_of(results_folder, name) / "status.json", json.dumps(status), durable=False
    )


def load_status(results_folder: Path, name: str) -> dict[str, Any]:
    """Return the last written status; {} if there is none."""
    try:
        status = fileio.sound_json(
            fileio.read_bytes(folder_of(results_folder, name) / "status.json", results_folder)
        )
        return status if isinstance(status, dict) else {}
    except (OSError, ValueError, ResultDamaged):
        return {}
