"""What a fleet has on this machine in addition to its results: a worker's scratch directory, and
hosts of `--local`.
RESULTS/.fleet-worker/          files of dask for the worker that uses this results folder
RESULTS/.fleet-worker.lock      held by it
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
from dbbench.fleet import fleet_files
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.host_folder import HostFolder
from dbbench.fleet.messages import HostState
from dbbench.machine.host.proc import task
from dbbench.results.fileio import exclusive, read_bytes, real_folder
from dbbench.results.trials import SUMS, damage, results_of

SCRATCH: Final = ".fleet-worker"
STOP_S: Final = 90.0  # a clean stop of a trial may take a minute


@contextlib.contextmanager
def worker_of(results_folder: Path) -> Iterator[Path]:
    """Hold the worker's lock of a results folder within the block; yield its scratch directory. Two
    workers would answer for the same disk. Raises RunLocked, ResultNotRegular if that directory
    is a link.
    """
    results_folder.mkdir(parents=True, exist_ok=True)
    scratch = real_folder(results_folder / SCRATCH, results_folder)
    with exclusive(
        results_folder / f"{SCRATCH}.lock",
        lambda pid: RunLocked(
            f"{results_folder} is used by another fleet worker: process {pid}",
            remedy="Name another folder: --results DIR.",
        ),
    ):
        yield scratch


def hosts_here(results_folder: Path, name: str) -> list[Path]:
    """Return the results folders of the fleet's hosts that are workers of this machine."""
    hosts = fleet_files.folder_of(results_folder, name) / fleet_files.HOSTS
    return sorted(
        path
        for path in hosts.glob("*")
        if path.is_dir() and not _is_elsewhere(path, results_folder)
    )


def runs_here(results_folder: Path, name: str) -> list[Path]:
    """Return the runs of those hosts."""
    return [run for host in hosts_here(results_folder, name) for run in results.runs(host)]


@dataclass(frozen=True)
class RunningHost:
    """A host of a fleet on this machine that runs its share."""

    fleet: str
    host: str
    run: Path
    pid: int
    state: HostState

    def row(self) -> dict[str, Any]:
        return {
            "fleet": self.fleet,
            "host": self.host,
            "run": str(self.run),
            "pid": self.pid,
            "trial": self.state.trial,
            "phase": self.state.phase,
            "note": self.state.note,
        }


def running(results_folder: Path, name: str) -> list[RunningHost]:
    """Return the fleet's hosts that work here: those of `--local`, and one that has
    `results_folder` as its own.
    """
    working = []
    own_run = results_folder / name
    for run in (*runs_here(results_folder, name), own_run):
        host = HostFolder(run)
        if not (host.path / "lock").is_file():
            continue
        # a lock that is a link does not belong to a share
        with contextlib.suppress(OSError, ResultNotRegular):
            if (pid := host.pid()) is not None:
                host_name = os.uname().nodename if run == own_run else run.parent.name
                working.append(RunningHost(name, host_name, run, pid, host.state()))
    return working


def without_coordinator(results_folder: Path) -> list[RunningHost]:
    """Return hosts that work on this machine and whose fleets have no running coordinator."""
    folders = sorted(
        path.parent for path in (results_folder / fleet_files.FOLDER).glob("*/fleet.json")
    )
    names = [folder.name for folder in folders if fleet_files.coordinator(folder) is None]
    return [host for name in names for host in running(results_folder, name)]


def sentences(hosts: list[RunningHost]) -> list[str]:
    """Return lines about hosts that work without a coordinator; [] if there are none."""
    lines = [
        f"fleet {host.fleet}, host {host.host}: process {host.pid} is running without a "
        "coordinator "
        f"({host.state.trial or host.state.note or 'between trials'}{host.state.phase and ', ' + host.state.phase})"
        for host in hosts
    ]
    return [
        *lines,
        *(
            f"To stop them:  dbbench fleet stop {name}"
            for name in sorted({host.fleet for host in hosts})
        ),
    ]


def stop(hosts: list[RunningHost]) -> list[RunningHost]:
    """Stop those hosts cleanly without a scheduler; return those that still work after STOP_S."""
    for host in hosts:
        with contextlib.suppress(ProcessLookupError):
            os.kill(host.pid, signal.SIGTERM)

    def alive() -> list[RunningHost]:
        return [
            host
            for host in hosts
            if (entry := task(f"/proc/{host.pid}")) is not None and entry.state != "Z"
        ]

    return process.wait_while(alive, STOP_S, 0.1)


def copies(results_folder: Path, fleet: Fleet) -> list[Path]:
    """Return trials of a finished fleet's hosts here that are identical to their collected copies."""
    if not fleet.finished:
        return []
    trials = [
        path
        for run in runs_here(results_folder, fleet.name)
        for path in sorted((run / "trials").glob("[!.]*"))
    ]
    here = [path for path in trials if path.is_dir() and not _is_elsewhere(path, results_folder)]
    return [
        path
        for path in here
        if _is_complete_copy(path, results_folder / path.parts[-3] / "trials" / path.name)
    ]


def _is_elsewhere(path: Path, results_folder: Path) -> bool:
    """Whether the path is reached through a symbolic link below the results folder."""
    try:
        real_folder(path, results_folder)
    except ResultNotRegular:
        return True
    return False


def _is_complete_copy(copy: Path, result: Path) -> bool:
    """Whether the result is undamaged and identical to `copy`."""
    try:
        same = read_bytes(copy / SUMS, results_of(copy)) == read_bytes(
            result / SUMS, results_of(result)
        )
        return same and not damage(result)
    except (OSError, ResultDamaged):
        return False
