"""What the coordinator of a fleet stores, so that the same command resumes after it was killed.
RESULTS/.fleet/RUN/fleet.json     mode, plan, hosts, and which parts have been collected
RESULTS/.fleet/RUN/.lock          held by the coordinator
RESULTS/.fleet/RUN/arrived        results of a part while they are imported
RESULTS/.fleet/RUN/hosts/HOST     results folder of a host of `--local`
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench import results
from dbbench.errors import DbbenchError, ResultDamaged, ResultNotRegular, RunMissing, collect_errors
from dbbench.model.base import NAME
from dbbench.results import fileio

FILE: Final = "fleet.json"
HOSTS: Final = "hosts"
ARRIVED: Final = "arrived"


@dataclass(frozen=True)
class Fleet:
    """One plan on its hosts: the content of fleet.json."""

    name: str
    mode: Literal["each", "spread"]
    created: str
    plan_sha256: str
    hosts: tuple[str, ...]  # those of its start
    collected: tuple[str, ...] = ()  # names of the parts whose results have been imported
    finished: bool = False
    budget_s: float | None = None  # of each host
    # of the scheduler that its last coordinator used: its address, the directory of certificates
    scheduler: str = ""
    certs: str | None = None

    def run_of(self, host: str) -> str:
        """Return the name of the host's run: with `each`, every host has its own."""
        if self.mode == "spread":
            return self.name
        return f"{self.name}-{host}"

    @property
    def runs(self) -> list[str]:
        return sorted({self.run_of(host) for host in self.hosts})


def folder_of(results_folder: Path, name: str) -> Path:
    """Return the directory of the coordinator's own files."""
    return results_folder / results.FLEETS / name


def save(results_folder: Path, fleet: Fleet) -> None:
    """Write fleet.json atomically."""
    path = folder_of(results_folder, fleet.name) / FILE
    with fileio.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    fileio.write_json(path, dataclasses.asdict(fleet))


def load(results_folder: Path, name: str) -> Fleet:
    """Return the fleet of that name. Raises RunMissing, ResultDamaged."""
    path = folder_of(results_folder, name) / FILE
    missing = RunMissing(
        f'no fleet "{name}" in {results_folder}',
        remedy="List the fleets with: dbbench fleet status",
    )
    fleet = fileio.read_as(Fleet, path, results_folder, missing)
    for word in (fleet.name, *fleet.hosts):
        # These words become names of files and folders.
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
    for path in fileio.matches(results_folder / results.FLEETS, f"*/{FILE}"):
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


def local_runs(results_folder: Path, name: str) -> list[Path]:
    """Return the runs of the fleet's hosts of `--local`; none that is reached through a link."""
    hosts = folder_of(results_folder, name) / HOSTS
    runs = []
    for host in fileio.matches(hosts, "*"):
        with contextlib.suppress(ResultNotRegular):
            if fileio.real_folder(host, results_folder).is_dir():
                runs += results.runs(host)
    return runs
