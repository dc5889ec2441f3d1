"""What the coordinator knows of each host and assigns to it, and what of this it stores on its disk, so that the same
command resumes after it was killed.

Blocks are assigned to all hosts (`each`) or a part to each (`spread`); those of a lost host are reassigned, and
further ones are added.

RESULTS/.fleet/RUN/fleet.json    mode, plan, assignment, lost hosts: written before it is acted on
RESULTS/.fleet/RUN/status.json   the state of each host: for `fleet status`
RESULTS/.fleet/RUN/.lock         held by the coordinator
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

from dbbench import results
from dbbench.errors import DbbenchError, ResultDamaged, RunMissing
from dbbench.fleet.room import HostSeen, HostState
from dbbench.model import Run, TrialSpec
from dbbench.model.base import NAME
from dbbench.plan import blocks
from dbbench.results.fileio import (
    plain_file,
    read_as,
    read_bytes,
    sound_json,
    try_lock,
    write_json,
    write_text,
    writing,
)
from dbbench.results.merging import Incoming
from dbbench.run.adaptive import another, further
from dbbench.units import iso

FOLDER = ".fleet"
HOSTS = "hosts"  # folder with the results of hosts that are workers of this machine


@dataclass(frozen=True)
class Fleet:
    """One plan on its hosts: the content of fleet.json."""

    name: str
    mode: Literal["each", "spread"]
    created: str
    plan_sha256: str
    dealing: Dealing
    gone: dict[str, str] = field(default_factory=dict)  # host -> why the fleet no longer waits for it
    finished: bool = False
    scheduler: str = ""  # address of the scheduler that dbbench started, for the next coordinator
    detached: bool = False  # hosts of this machine continue without a coordinator


def folder_of(results_folder: Path, name: str) -> Path:
    """Return the directory of the coordinator's own files."""
    return results_folder / FOLDER / name


def save(results_folder: Path, fleet: Fleet) -> None:
    """Write fleet.json atomically."""
    folder = folder_of(results_folder, fleet.name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "fleet.json", dataclasses.asdict(fleet))


def load(results_folder: Path, name: str) -> Fleet:
    """Return the fleet of that name. Raises RunMissing, ResultDamaged."""
    path = folder_of(results_folder, name) / "fleet.json"
    missing = RunMissing(f'no fleet "{name}" in {results_folder}', remedy="dbbench fleet status")
    fleet = read_as(Fleet, path, results_folder, missing)
    for word in (fleet.name, *fleet.dealing):
        if not NAME.fullmatch(word) or fleet.name != name:  # these words become names of files and folders
            raise ResultDamaged(f"{path} cannot be read: {word!r} is not the name of this fleet or of a host")
    return fleet


def fleets(results_folder: Path, damaged: list[DbbenchError] | None = None) -> list[Fleet]:
    """Return all fleets of a results folder, oldest first. Raises ResultDamaged; with `damaged`, errors are added to
    it."""
    all_fleets = []
    for path in (results_folder / FOLDER).glob("*/fleet.json"):
        try:
            all_fleets.append(load(results_folder, path.parent.name))
        except ResultDamaged as error:
            if damaged is None:
                raise
            damaged.append(error)
    return sorted(all_fleets, key=lambda fleet: (fleet.created, fleet.name))


@contextlib.contextmanager
def coordinating(results_folder: Path, name: str) -> Iterator[None]:
    """Hold the coordinator's lock within the block. Raises RunLocked."""
    folder = folder_of(results_folder, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with results.locked(folder):
        yield


def coordinator(results_folder: Path, name: str) -> int | None:
    """Return the process id of the fleet's coordinator, or None if none is running."""
    lock = folder_of(results_folder, name) / ".lock"
    try:
        pid = int(read_bytes(lock, results_folder))
        if not Path(f"/proc/{pid}").exists():  # try the lock only if a coordinator seems to hold it
            return None
        with plain_file(lock, results_folder) as file:
            return None if try_lock(file.fileno(), shared=True) else pid
    except (OSError, ValueError, ResultDamaged):
        pass
    return None


def abandoned(folder: Path) -> bool:
    """Whether the run belongs to a host of `--local` (RESULTS/.fleet/NAME/hosts/HOST/RUN) whose coordinator has ended
    and which must not continue without one."""
    hosts, fleet = folder.parent.parent, folder.parent.parent.parent  # `/` is its own parent
    if hosts.name != HOSTS or fleet.parent.name != FOLDER:
        return False
    try:
        detached = load(fleet.parent.parent, fleet.name).detached
    except DbbenchError:
        detached = False
    return not detached and coordinator(fleet.parent.parent, fleet.name) is None


def run_name(fleet: Fleet, host: str) -> str:
    """Return the name of the run on a host and in the results: with `each`, every host has a run of its own."""
    return fleet.name if fleet.mode == "spread" else f"{fleet.name}-{host}"


def run_names(fleet: Fleet) -> list[str]:
    """Return the names of its runs in the results."""
    return sorted({run_name(fleet, host) for host in fleet.dealing})


def create_runs(results_folder: Path, fleet: Fleet, run: Run, plan_text: str, scripts: dict[str, str]) -> None:
    """Make the missing directories into which results are collected."""
    from dbbench.results.merging import keep_scripts, own_scripts

    for name in run_names(fleet):
        if not (results_folder / name / "run.json").exists():
            hosts = [host for host in fleet.dealing if run_name(fleet, host) == name]
            cells = own_scripts(run.cells, results_folder / name)
            host_run = dataclasses.replace(run, name=name, cells=cells, hosts={host: {} for host in sorted(hosts)})
            results.create_run(results_folder, host_run, plan_text)
        keep_scripts(results_folder / name, scripts)


def tell(results_folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write status.json; it need not survive a power loss."""
    status = {"utc": iso(time.time()), "hosts": rows}
    write_text(folder_of(results_folder, name) / "status.json", json.dumps(status), durable=False)


def told(results_folder: Path, name: str) -> dict[str, Any]:
    """Return the last written status; {} if there is none."""
    try:
        reported = sound_json(read_bytes(folder_of(results_folder, name) / "status.json", results_folder))
        return reported if isinstance(reported, dict) else {}
    except (OSError, ValueError, ResultDamaged):
        return {}


@dataclass
class Transfer:
    """A trial whose files are arriving; `rest` are the incomplete ones, with their missing bytes."""

    trial: str
    incoming: Incoming
    rest: list[tuple[str, int]]
    offset: int = 0  # position in the first of these files

    def take(self, content: bytes) -> None:
        """Append bytes to the first file of `rest`. Raises ResultDamaged if it ends too early."""
        name, size = self.rest[0]
        if not content:
            raise ResultDamaged(f"{self.trial}: {name} ended at byte {self.offset} of {size}")
        self.incoming.write(name, content)
        self.offset += len(content)
        if self.offset >= size:
            self.rest.pop(0)
            self.offset = 0


@dataclass
class Book:
    """The state of one host of the fleet."""

    host: str
    run: str  # name of the run of this host
    blocks: tuple[int, ...]
    order: tuple[TrialSpec, ...]  # trials of this host, with repeats as soon as they are known
    taken: set[str]  # ids of trials that the coordinator has stored
    heard: float  # time of the last answer, UTC
    state: HostState = field(default_factory=HostState)
    dealt: bool = False  # whether the host knows its blocks
    asked: bool = False
    retry_at: float = 0.0
    transfer: Transfer | None = None
    arriving: str | None = None  # a trial that has arrived completely but is not stored yet
    damaged: int = 0  # damaged transfers in a row
    done: bool = False
    gone: str = ""  # why the fleet no longer waits for this host
    note: str = ""
    current: bool = False  # the last answer contained nothing new

    @property
    def open(self) -> bool:
        """Whether the coordinator still waits for results of this host."""
        return not self.done and not self.gone

    @property
    def expected(self) -> set[str]:
        """Return the ids of all its trials."""
        return {spec.id for spec in self.order}

    @property
    def arrived(self) -> set[str]:
        """Return the ids of the trials that the host need not send."""
        return self.taken if self.arriving is None else {*self.taken, self.arriving}

    def begin(self, seen: HostSeen, folder: Path) -> None:
        """Store what came with the answer; the rest is requested file by file."""
        incoming = Incoming(folder, seen.trial)
        for name, content in seen.content.items():
            incoming.write(name, content)
        self.transfer = Transfer(seen.trial, incoming, [file for file in seen.files if file[0] not in seen.content])

    def lost(self, why: str, retry_at: float) -> None:
        """Record that no answer came; a transfer starts again."""
        self.transfer, self.retry_at, self.note = None, retry_at, why

    def redeal(self, blocks: tuple[int, ...], order: tuple[TrialSpec, ...]) -> None:
        """Assign other blocks from now on."""
        self.blocks, self.order = blocks, order
        self.taken &= self.expected
        self.dealt, self.done = False, not order

    def row(self, now: float) -> dict[str, Any]:
        """Return the host's row in `fleet status`."""
        left = len(self.expected - self.taken)
        mean = self.state.mean_s
        what = "gone" if self.gone else "done" if self.done else self.state.phase or "between trials"
        return {
            "host": self.host, "run": self.run, "trial": self.state.trial, "phase": what,
            "phase_s": round(now - self.state.since, 1) if self.state.since and self.open else None,
            "done": len(self.taken), "trials": len(self.order), "blocks": list(self.blocks),
            "eta_s": 0.0 if not left else None if mean is None or self.gone else round(left * mean, 1),
            "heard": iso(self.heard), "note": self.gone or self.state.note,
        }  # fmt: skip


Dealing = dict[str, tuple[int, ...]]  # host -> its blocks, in the order of assignment


def deal(order: Sequence[TrialSpec], hosts: Sequence[str], mode: str) -> Dealing:
    """Assign all blocks to each host, or each block to one host in turn; hosts are sorted by name, so it is
    reproducible."""
    all_blocks, names = sorted(blocks(order)), sorted(hosts)
    if mode == "each":
        return {name: tuple(all_blocks) for name in names}
    return {name: tuple(all_blocks[index :: len(names)]) for index, name in enumerate(names)}


def deal_again(
    dealing: Mapping[str, tuple[int, ...]], gone: str, unfinished: Sequence[int], able: Mapping[str, int]
) -> Dealing:
    """Reassign the blocks that `gone` has not finished, each as a whole to the host with the fewest remaining.

    `able`: the hosts that can take them, with the number of blocks that they still have to run.
    """
    dealt, load = dict(dealing), dict(able)
    dealt[gone] = tuple(block for block in dealing[gone] if block not in unfinished)
    for block in unfinished:
        host = min(load, key=lambda name: (load[name], name))
        dealt[host] = (*dealt.get(host, ()), block)
        load[host] += 1
    return dealt


def deal_more(dealing: Mapping[str, tuple[int, ...]], order: Sequence[TrialSpec], hosts: Sequence[str]) -> Dealing:
    """Assign the unassigned blocks of the order to `hosts` in turn; these have nothing left to do."""
    has = {block for blocks_of_host in dealing.values() for block in blocks_of_host}
    dealt = dict(dealing)
    for block, host in zip((block for block in sorted(blocks(order)) if block not in has), cycle(sorted(hosts))):
        dealt[host] = (*dealt[host], block)
    return dealt


def trials_of_host(order: Sequence[TrialSpec], mine: Sequence[int]) -> tuple[TrialSpec, ...]:
    """Return the trials of those blocks in the order of the plan, blocks in the order of assignment."""
    host_blocks = set(mine)
    inside = blocks([spec for spec in order if spec.block in host_blocks])
    return tuple(spec for block in mine for spec in inside.get(block, ()))


def unfinished_blocks(order: Sequence[TrialSpec], mine: Sequence[int], taken: Collection[str]) -> list[int]:
    """Return those of the blocks `mine` that have a trial which has not been collected."""
    return [
        block for block, specs in blocks(trials_of_host(order, mine)).items() if any(s.id not in taken for s in specs)
    ]


def deal_longer(run: Run, dealt: Dealing, host: str, sharing: Sequence[str]) -> tuple[Run, Dealing]:
    """Return the run with another block for the host, and the assignment. `sharing`: the hosts of this run.

    A block that no host has is assigned first; there is one if a coordinator was killed before it assigned it.
    """
    has = {block for name in sharing for block in dealt[name]}
    block = next((block for block in sorted(blocks(run.order)) if block not in has), None)
    if block is None:
        block = max(blocks(run.order), default=0) + 1
        run = dataclasses.replace(run, order=(*run.order, *another(run, block, run.cells)))
    return run, {**dealt, host: (*dealt[host], block)}


def dealt_further(run: Run, dealt: Dealing, folder: Path, hosts: Sequence[str]) -> tuple[Run, Dealing]:
    """Return the run with another block of open questions for each host, and the assignment.

    All assigned trials are in `folder`. There are at most 15 blocks in total; both are unchanged if no question is
    open. The precision is checked once for as many blocks as there are hosts, which is less often than on one machine.
    """
    left = deal_more(dealt, run.order, hosts)
    if left != dealt:  # a coordinator was killed before it assigned them
        return run, left
    trials = {spec.id: results.load_trial(folder / "trials" / spec.id) for spec in run.order}
    for _ in hosts:
        run = further(run, trials)
    return run, deal_more(dealt, run.order, hosts)
