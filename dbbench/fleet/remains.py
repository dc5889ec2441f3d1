"""What a fleet has on a machine in addition to its results: a worker's scratch directory, hosts of `--local`.

RESULTS/.fleet-worker/          files of dask for the worker that uses this results folder
RESULTS/.fleet-worker.lock      held by it
RESULTS/.fleet/FLEET/hosts/     results folders of hosts that are workers of `--local`, with their own runs
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench import process, results
from dbbench.errors import ResultDamaged, ResultNotRegular, RunLocked
from dbbench.fleet import ledger
from dbbench.fleet.ledger import Fleet
from dbbench.fleet.room import HostState, Room
from dbbench.machine.host.proc import task
from dbbench.results.fileio import exclusive, read_bytes, real_folder
from dbbench.results.trials import SUMS, damage, results_of

SCRATCH: Final = ".fleet-worker"
STOP_S: Final = 90.0  # a clean stop of a trial may take a minute


@contextlib.contextmanager
def worker_of(results_folder: Path) -> Iterator[Path]:
    """Hold the worker's lock of a results folder within the block; yield its scratch directory.

    Two workers would answer for the same disk. Raises RunLocked, ResultNotRegular if that directory is a link.
    """
    results_folder.mkdir(parents=True, exist_ok=True)
    scratch = real_folder(results_folder / SCRATCH, results_folder)
    with exclusive(
        results_folder / f"{SCRATCH}.lock",
        lambda pid: RunLocked(f"{results_folder} is used by another fleet worker: process {pid}",
                              effect="Nothing was changed.", remedy="Name another folder: --results DIR."),
    ):  # fmt: skip
        yield scratch


def hosts_here(results_folder: Path, name: str) -> list[Path]:
    """Return the results folders of the fleet's hosts that are workers of this machine."""
    hosts = ledger.folder_of(results_folder, name) / ledger.HOSTS
    return sorted(path for path in hosts.glob("*") if path.is_dir() and not _is_elsewhere(path, results_folder))


def runs_here(results_folder: Path, name: str) -> list[Path]:
    """Return the runs of those hosts."""
    return [run for host in hosts_here(results_folder, name) for run in results.runs(host)]


@dataclass(frozen=True)
class AtWork:
    """A running supervisor on this machine."""

    fleet: str
    host: str
    folder: Path  # folder of the run that it works on
    pid: int
    state: HostState

    def row(self) -> dict[str, Any]:
        """Return it as a part of a JSON document."""
        return {"fleet": self.fleet, "host": self.host, "run": str(self.folder), "pid": self.pid,
                "trial": self.state.trial, "phase": self.state.phase, "note": self.state.note}  # fmt: skip


def at_work(results_folder: Path, name: str) -> list[AtWork]:
    """Return the fleet's supervisors on this machine: those of `--local`, and one whose host has `results`
    as its own."""
    working, own_run = [], results_folder / name
    for run in (*runs_here(results_folder, name), own_run):
        room = Room(run)
        pid = None
        if (room.path / "lock").is_file():
            # A lock that is a link elsewhere does not belong to a supervisor.
            with contextlib.suppress(OSError, ResultNotRegular):
                pid = room.supervisor()
        if pid is not None:
            working.append(
                AtWork(name, os.uname().nodename if run == own_run else run.parent.name, run, pid, room.state())
            )
    return working


def orphans(results_folder: Path) -> list[AtWork]:
    """Return supervisors on this machine whose fleets have no running coordinator."""
    names = sorted(path.parent.name for path in (results_folder / ledger.FOLDER).glob("*/fleet.json"))
    return [
        host
        for name in names
        if ledger.coordinator(results_folder, name) is None
        for host in at_work(results_folder, name)
    ]


def told_of(left: list[AtWork]) -> list[str]:
    """Return lines about supervisors that run without a coordinator; [] if there are none."""
    lines = [
        f"fleet {host.fleet}, host {host.host}: process {host.pid} is running without a coordinator "
        f"({host.state.trial or host.state.note or 'between trials'}{host.state.phase and ', ' + host.state.phase})"
        for host in left
    ]
    return [*lines, *(f"To stop them:  dbbench fleet stop {name}" for name in sorted({host.fleet for host in left}))]


def stop(hosts: list[AtWork], within_s: float = STOP_S) -> list[AtWork]:
    """Stop those supervisors cleanly without a scheduler; return those that still run after `within_s`."""
    for supervisor in hosts:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor.pid, signal.SIGTERM)
    return process.wait_while(lambda: [host for host in hosts if _lives(host.pid)], within_s, 0.1)


def _lives(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    process = task(f"/proc/{pid}")
    return process is not None and process.state != "Z"


def copies(results_folder: Path, fleet: Fleet) -> list[Path]:
    """Return collected trials of hosts on this machine that are identical to their copies here; none before the fleet
    is finished."""
    if not fleet.finished:
        return []
    trials = [path for run in runs_here(results_folder, fleet.name) for path in sorted((run / "trials").glob("[!.]*"))]
    here = [path for path in trials if path.is_dir() and not _is_elsewhere(path, results_folder)]
    return [path for path in here if _is_home(path, results_folder / path.parts[-3] / "trials" / path.name)]


def _is_elsewhere(path: Path, results_folder: Path) -> bool:
    """Whether the path is reached through a symbolic link below the results folder."""
    try:
        real_folder(path, results_folder)
    except ResultNotRegular:
        return True
    return False


def _is_home(copy: Path, home: Path) -> bool:
    """Whether the result at `home` is undamaged and identical to `copy`."""
    try:
        same = read_bytes(copy / SUMS, results_of(copy)) == read_bytes(home / SUMS, results_of(home))
        return same and not damage(home)
    except (OSError, ResultDamaged):
        return False
