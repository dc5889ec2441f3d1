"""What the coordinator remembers on its disk, so that the same command goes on after it was killed.

RESULTS/.fleet/RUN/fleet.json    mode, plan, dealing, hosts that are gone: written before it is acted on
RESULTS/.fleet/RUN/status.json   where each host stands: for `fleet status`
RESULTS/.fleet/RUN/.lock         held by the coordinator
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from dbbench import store
from dbbench.clock import iso
from dbbench.errors import ResultDamaged, RunMissing
from dbbench.fleet.dealing import Dealing
from dbbench.model import Run, TrialSpec
from dbbench.store.files import write_json, writing

FOLDER = ".fleet"
SET_ASIDE = "set-aside"  # in the run's folder: trials of blocks that were dealt again


@dataclass(frozen=True)
class Fleet:
    """One plan over its hosts: the content of fleet.json."""

    name: str
    mode: Literal["each", "spread"]
    created: str
    plan_sha256: str
    dealing: Dealing
    gone: dict[str, str] = field(default_factory=dict)  # host -> why nothing more is expected of it
    finished: bool = False
    scheduler: str = ""  # that we started: where the next coordinator finds it


def folder_of(results: Path, name: str) -> Path:
    """Where the coordinator's own files are."""
    return results / FOLDER / name


def save(results: Path, fleet: Fleet) -> None:
    """Write fleet.json, whole."""
    folder = folder_of(results, fleet.name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "fleet.json", dataclasses.asdict(fleet))


def load(results: Path, name: str) -> Fleet:
    """The fleet of that name. RunMissing, ResultDamaged."""
    path = folder_of(results, name) / "fleet.json"
    try:
        return TypeAdapter(Fleet).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise RunMissing(f'no fleet "{name}" in {results}', remedy="dbbench fleet status") from None
    except ValidationError as error:
        raise ResultDamaged(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def fleets(results: Path) -> list[Fleet]:
    """All fleets of a results folder, oldest first."""
    found = [load(results, path.parent.name) for path in (results / FOLDER).glob("*/fleet.json")]
    return sorted(found, key=lambda fleet: (fleet.created, fleet.name))


@contextlib.contextmanager
def coordinating(results: Path, name: str) -> Iterator[None]:
    """One coordinator at a time. RunLocked."""
    folder = folder_of(results, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with store.locked(folder):
        yield


def run_name(fleet: Fleet, host: str) -> str:
    """What the run is called on a host, and in the results: with `each` every host's is a run of its own."""
    return fleet.name if fleet.mode == "spread" else f"{fleet.name}-{host}"


def run_names(fleet: Fleet) -> list[str]:
    """What its runs are called in the results."""
    return sorted({run_name(fleet, host) for host in fleet.dealing})


def create_runs(results: Path, fleet: Fleet, run: Run, plan_text: str, scripts: dict[str, str]) -> None:
    """Make the folders that results come home to, those that are not there yet."""
    from dbbench.store.merging import keep_scripts, own_scripts

    for name in run_names(fleet):
        if not (results / name / "run.json").exists():
            hosts = [host for host in fleet.dealing if run_name(fleet, host) == name]
            cells = own_scripts(run.cells, results / name)
            mine = dataclasses.replace(run, name=name, cells=cells, hosts={host: {} for host in sorted(hosts)})
            store.create_run(results, mine, plan_text)
        keep_scripts(results / name, scripts)


def set_aside(folder: Path, specs: tuple[TrialSpec, ...], host: str) -> list[str]:
    """Move the trials of a torn block out of the results: the block is driven again, whole, elsewhere. Their ids."""
    moved = []
    for spec in specs:
        trial = folder / "trials" / spec.id
        if trial.is_dir():
            target = folder / SET_ASIDE / host / spec.id
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                trial.rename(target)
            moved.append(spec.id)
    return moved


def tell(results: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write status.json; not durable, it is of the moment."""
    folder = folder_of(results, name)
    temporary = folder / ".status.tmp"
    temporary.write_text(json.dumps({"utc": iso(time.time()), "hosts": rows}))
    temporary.rename(folder / "status.json")


def told(results: Path, name: str) -> dict[str, Any]:
    """What was told last; {} where nothing was."""
    try:
        known: dict[str, Any] = json.loads((folder_of(results, name) / "status.json").read_text())
        return known
    except (FileNotFoundError, ValueError):
        return {}
