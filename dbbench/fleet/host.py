"""The worker's side on a host: answer a question from the directories that exist, and keep the supervisor running.

Every question may be repeated at any time, also by another coordinator. Only the host's identity is kept in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench import __version__, process, results
from dbbench.errors import CommandFailed, CoordinatorGone, DbbenchError, ImportRefused, RunNameTaken
from dbbench.fleet.room import (
    Answer,
    Chunk,
    Deal,
    Dealt,
    Halt,
    HostSeen,
    HostState,
    Leave,
    Question,
    Refused,
    Room,
    See,
)
from dbbench.fleet.supervisor import described
from dbbench.machine import host as machine
from dbbench.machine.host import tunables
from dbbench.model import plain
from dbbench.model.base import NAME
from dbbench.results import merging

CHUNK: Final = 4 * 2**20  # bytes per answer: limits what coordinator and scheduler keep in memory for each host
_STARTS: Final = 3  # starts of a supervisor without a trial between them, before it is given up
_WAKE_S: Final = 2.0  # seconds between checks, because a killed supervisor sends no signal


@dataclass
class Here:
    """Identity of this host. A worker that dbbench did not start itself reads it from its environment."""

    name: str = field(default_factory=lambda: os.environ.get("DBBENCH_FLEET_NAME") or os.uname().nodename)
    results: Path = field(default_factory=lambda: Path(os.environ.get("DBBENCH_FLEET_RESULTS") or "results").resolve())
    supervisor: tuple[str, ...] = (sys.executable, "-m", "dbbench.fleet.supervisor")
    leave: threading.Event = field(default_factory=threading.Event)
    starts: dict[str, int] = field(default_factory=dict)  # starts of the run's supervisor since its last trial
    # Run -> the identity of its plan, and the devices that may be wiped. Not kept in the results folder, which may come
    # from someone else: a worker that was restarted has its blocks assigned again.
    dealt: dict[str, tuple[str, ...]] = field(default_factory=dict)


HERE: Final = Here()


def answer(question: Question) -> Answer:
    """Answer a question. The only function that the transport calls here; errors of dbbench are returned as data."""
    try:
        match question:
            case Deal():
                return _deal(question)
            case See():
                return _see(question)
            case Chunk():
                folder = _folder(question.run) / "trials" / merging.checked_name(question.trial)
                return merging.read(folder / merging.inner(question.file), HERE.results, question.offset, CHUNK)
            case Halt():
                _halt(question)
                return None
            case Leave():
                HERE.leave.set()
                return None
    except DbbenchError as error:
        return Refused(described(error))
    except OSError as error:
        return Refused(described(DbbenchError(f"{HERE.name}: {error}")))


def _folder(run: str) -> Path:
    return HERE.results / merging.checked_name(run)


def _deal(question: Deal) -> Dealt:
    """Make the run's directory once, and record the blocks of this host.

    Raises RunNameTaken for another plan, RunLocked if the run that exists was changed.
    """
    if question.version != __version__:
        raise ImportRefused(
            f"{HERE.name} has dbbench {__version__}, the coordinator {question.version}",
            effect="Nothing was changed.",
            remedy="Install the same version on all hosts.",
        )
    folder, run = _folder(question.run), results.parsed_spec(question.spec)
    if (folder / "run.json").exists():
        there = results.RunFolder(folder)
        if there.run.plan_sha256 != run.plan_sha256:
            raise RunNameTaken(
                f"{folder} on {HERE.name} contains another plan", remedy="Choose another name with --name."
            )
        results.must_match(there, run.plan, merging.own_scripts(run.cells, folder), question.scripts)
    else:
        facts = {**machine.facts(), "hostname": HERE.name, "state": tunables.state()}
        run = dataclasses.replace(run, host=facts, versions=machine.versions(), dbbench_version=__version__,
                                  cells=merging.own_scripts(run.cells, folder))  # fmt: skip
        HERE.results.mkdir(parents=True, exist_ok=True)
        results.create_run(HERE.results, run, question.plan)
    merging.keep_scripts(folder, question.scripts)
    room = Room(folder)
    room.make()
    room.deal(run.order)
    HERE.starts.pop(question.run, None)
    HERE.dealt[question.run] = (run.plan_sha256, *question.wipe)
    return Dealt(merging.facts_of(results.load_spec(folder))[HERE.name])


def _see(question: See) -> HostSeen:
    folder = _folder(question.run)
    room = Room(folder)
    unknown = question.start and question.run not in HERE.dealt
    if unknown or not (folder / "run.json").exists() or {s.block for s in room.dealt()} != set(question.blocks):
        return HostSeen(False)
    taken, until = set(question.taken), time.monotonic() + question.patience_s
    room.listen()
    room.acknowledge(question.taken)
    with room.hearing("bell") as bell:
        while True:
            alive = _supervised(room, question.start)
            finished = next(iter(room.finished_beyond(taken)), "")
            state = room.state()
            # Nothing is transferred during a trial, because that would be load.
            new = "" if alive and state.trial else finished
            over = time.monotonic() >= until or not alive or state.ended or not (finished or question.start)
            if new or over:
                return _seen(room, new)
            bell.wait(min(_WAKE_S, until - time.monotonic()))
            room.listen()


def _seen(room: Room, trial: str) -> HostSeen:
    repeats = tuple(plain(spec) for spec in room.run().order if spec.attempt > 1)
    if not trial:
        return HostSeen(True, room.state(), repeats=repeats)
    folder = room.folder / "trials" / trial
    files = tuple(merging.files_of(folder))
    content, room_left = dict[str, bytes](), CHUNK
    for name, size in sorted(files, key=lambda file: file[1]):
        if size <= room_left:
            content[name] = merging.read(folder / name, HERE.results, most=CHUNK)
            room_left -= size
    return HostSeen(True, room.state(), trial, files, content, repeats)


def _supervised(room: Room, start: bool) -> bool:
    """Ensure that a supervisor runs the remaining trials; return False if none remain, or if it would stop again at
    once."""
    if room.supervised():
        return True
    run = room.wanted(room.run())
    state = room.state()
    if not results.pending(room.folder, run) and state.ended:
        return False
    dealt_since = (room.path / "dealt.json").stat().st_mtime > _mtime(room.path / "state.json")
    asked_again = state.error is not None and state.error.get("id") == CoordinatorGone.id
    if state.ended and state.error is not None and not dealt_since and not asked_again:
        return False
    if start:
        _start(room)
    return start


def _start(room: Room) -> None:
    """Start a supervisor that is not a child of this process, so that it outlives it."""
    name, done = room.folder.name, sum(1 for _ in (room.folder / "trials").glob("[!.]*"))
    key = f"{name}:{done}"
    HERE.starts[key] = HERE.starts.get(key, 0) + 1
    if HERE.starts[key] > _STARTS:
        raise DbbenchError(
            f"the supervisor of {name} on {HERE.name} ended {_STARTS} times without running a trial",
            remedy=f"See {room.path / 'supervisor.log'} and {room.folder / 'launcher.log'} on {HERE.name}.",
        )
    room.tell(HostState(note="starting"))  # clears the error of the previous supervisor
    # Another supervisor was faster, or this one ended; the state contains the reason.
    with contextlib.suppress(CommandFailed):
        argv = [*HERE.supervisor, str(room.folder), *HERE.dealt[name]]
        process.run(argv, env=process.kept_environment(), timeout_s=60, note=False)


def _halt(question: Halt) -> None:
    room = Room(_folder(question.run))
    if (pid := room.supervisor()) is not None:
        os.kill(pid, signal.SIGTERM)


def _mtime(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def named(name: str) -> str:
    """Return a host's name as used in results and resources. Raises ImportRefused if it is not valid."""
    if not NAME.fullmatch(name):
        raise ImportRefused(f"invalid host name {name!r}: use letters, digits and . _ + : = -")
    return name
