"""What the sessions of a server wait for, as layers: states of threads in, layers out.
`data/time_layers.toml` is the table.
"""

from __future__ import annotations

import functools
import platform
import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from dbbench.model import Json, TimeLayer
from dbbench.model.base import data_folder

SESSION: Final = "session"
IO_WORKER: Final = "I/O worker"
RUNNING: Final = "running"  # on a TimeLayer.CPU, or waiting for one
_LEAST_FLUSHED: Final = 0.2  # of the waits for a lock, so that it is one of the log
# what a call does -> its layer, if neither file nor function say more
_LAYER_OF_CALL: Final = {
    "read": TimeLayer.READ,
    "write": TimeLayer.WRITE,
    "change": TimeLayer.FILESYSTEM,
    "lock": TimeLayer.LOCK,
    "complete": TimeLayer.READ,
}


class ThreadState(NamedTuple):
    """What a thread did at one moment. `call` is "" while it runs; `file` is a kind of file, and
    `title` the title of a process of PostgreSQL.
    """

    role: str
    call: str = ""
    file: str = ""
    function: str = ""  # of the kernel, in which it sleeps
    title: str = ""
    lock: str = ""  # address of the lock that it waits for; "" for PostgreSQL, which has few


class Wait(NamedTuple):
    """What a session waited for. `through` is its own call, if it waited for another thread that
    did this.
    """

    layer: str
    call: str = ""
    file: str = ""
    function: str = ""
    through: str = ""


@functools.cache
def table() -> dict[str, Json]:
    """Return the table of calls, functions, files and roles."""
    return tomllib.loads((data_folder() / "time_layers.toml").read_text(encoding="utf-8"))


@functools.cache
def calls_by_number(machine: str = platform.machine()) -> dict[int, str]:
    """Return the names of system calls on this architecture; {} on one that the table lacks."""
    calls = table()["calls"]
    return {call[machine]: name for name, call in calls.items() if machine in call}


@functools.lru_cache(4096)
def kind_of(text: str, names: str) -> str:
    """Return the kind of a path ("files"; "data": any other), or the role of a title ("roles")."""
    for part, kind in table()[names].items():
        if part in text:
            return str(kind)
    return "data" if names == "files" else "other"


@functools.lru_cache(4096)
def layer_of(state: ThreadState) -> str:
    """Return what this thread itself waits for."""
    if not state.call:
        return RUNNING
    does = table()["calls"].get(state.call, {}).get("does")
    for function, layer in table()["functions"].items():
        if state.function.startswith(function):
            if layer == TimeLayer.FILESYSTEM and state.file == "log":
                return TimeLayer.LOG
            return str(layer)
    if does == "events":
        return _awaited_event(state.title)
    if state.file == "socket":
        return TimeLayer.CLIENT
    if does == "write" and state.file == "log":
        return TimeLayer.LOG
    return _LAYER_OF_CALL.get(str(does), TimeLayer.UNKNOWN)


def _awaited_event(title: str) -> str:
    """Return the layer of a wait for events. PostgreSQL's titles end with the statement, "idle" or
    "waiting" (for a lock); other servers poll only their clients.
    """
    if title.endswith(" waiting"):
        return TimeLayer.LOCK
    if not title or " idle" in title:
        return TimeLayer.CLIENT
    return TimeLayer.UNKNOWN


class LockCounts(NamedTuple):
    """How often sessions waited at each address, and how often of these while the log was flushed."""

    waited: Counter[str]
    flushed: Counter[str]


def waits(states: Sequence[ThreadState], locks: LockCounts) -> Counter[Wait]:
    """Count what the sessions wait for at one moment. Who waits for a lock while another thread
    writes or flushes the log waits for that; who waits for an I/O worker, for what it reads. The
    thread that flushes may also run, or wait for a CPU: `locks`, to which this moment is added,
    tells its locks from others.
    """
    flushing: Wait | None = None
    reading: Wait | None = None
    alike = Counter(states)
    for state in alike:
        layer = layer_of(state)
        if layer == TimeLayer.LOG:
            flushing = Wait(layer, state.call, state.file, state.function)
        if layer == TimeLayer.READ and state.role == IO_WORKER and state.file == "data":
            reading = Wait(layer, state.call, state.file, state.function)

    counted = Counter[Wait]()
    for state, count in alike.items():
        if state.role != SESSION:
            continue
        wait = Wait(layer_of(state), state.call, state.file, state.function)
        if wait.layer == TimeLayer.LOCK and not state.title.endswith(" waiting"):
            lock = state.lock
            locks.waited[lock] += count
            if flushing:
                locks.flushed[lock] += count
                wait = flushing._replace(through=state.call)
            elif lock and locks.flushed[lock] >= _LEAST_FLUSHED * locks.waited[lock]:
                wait = Wait(TimeLayer.LOG, through=state.call)
        if wait.layer == TimeLayer.UNKNOWN and reading:
            wait = reading._replace(through=state.call)
        counted[wait] += count
    return counted
