"""Work in several processes at once, each of which reports its progress. One that hangs where no signal ends it, in the
kernel or in a client library, is noticed while the others still work."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, TypeVar

from dbbench import process
from dbbench.errors import DeadlinePassed, LabUnavailable
from dbbench.machine import namespaces

T = TypeVar("T")
Tell = Callable[[str], None]
Work = Callable[[Tell], T]
STOP_S: Final = 30.0  # for a clean end of a process, which is then killed


def in_processes(works: Sequence[Work[T]], tell: Tell, silent_s: float) -> list[T]:
    """Run each function in a forked process. Return the results in their order; a result must not be a string, because
    strings are progress, which is passed to `tell`. Raises LabUnavailable if a process ends without a result, and
    DeadlinePassed if one reports nothing for `silent_s`; then all processes are stopped. Main thread only."""
    results = dict[Connection, T]()
    children, heard = dict[Connection, int](), dict[Connection, float]()
    try:
        for work in works:
            reader, writer = Pipe(duplex=False)
            if (child := os.fork()) == 0:
                process.end_with(_do, work, writer)
            writer.close()
            children[reader], heard[reader] = child, time.monotonic()
        while working := [reader for reader in children if reader not in results]:
            ready = wait(working, max(0.0, min(heard[reader] for reader in working) + silent_s - time.monotonic()))
            for reader in working:
                if reader in ready:
                    message, heard[reader] = _receive(reader, children[reader]), time.monotonic()
                    if isinstance(message, str):
                        tell(message)
                    else:
                        results[reader] = message
                elif time.monotonic() >= heard[reader] + silent_s:
                    raise DeadlinePassed(f"one process of the lab reported nothing for {silent_s:.0f} s")
        return [results[reader] for reader in children]
    finally:
        _stop(children.values(), done=len(results) == len(works))
        for reader in children:
            reader.close()


def _do(work: Work[T], writer: Connection) -> int:
    namespaces.die_with_parent()
    writer.send(work(writer.send))
    return 0


def _receive(reader: Connection, child: int) -> Any:
    try:
        return reader.recv()
    except EOFError:  # left for `_stop` to reap
        ended = partial(os.waitid, os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        process.wait_while(lambda: ended() is None, STOP_S)
        end = "unknown" if (status := ended()) is None else status.si_status
        raise LabUnavailable(f"one process of the lab ended without a result, with status or signal {end}") from None


def _stop(children: Iterable[int], done: bool) -> None:
    """End these processes, as far as they have not ended: with SIGTERM, and with SIGKILL after STOP_S. Those that are
    done end themselves; a signal would interrupt them in that."""
    rest = set(children)

    def working() -> set[int]:
        rest.difference_update([child for child in rest if os.waitpid(child, os.WNOHANG) != (0, 0)])
        return rest

    if done:
        process.wait_while(working, STOP_S)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in working():
            os.kill(child, number)
        process.wait_while(working, STOP_S)
