"""Work in several processes at once, each of which reports its progress. One that hangs where no
signal ends it, in the kernel or in a client library, is noticed while the others still work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, TypeVar

from dbbench import process
from dbbench.errors import DeadlinePassed, LabUnavailable
from dbbench.machine import namespaces

T = TypeVar("T")
Tell = Callable[[str], None]
Work = Callable[[Tell], T]
STOP_S: Final = 30.0  # for a clean end of a process, which is then killed


def in_processes(
    works: Sequence[Work[T]],
    tell: Tell,
    silent_s: float,
) -> list[T]:
    """Run each function in a forked process. Return the results in their order; a result must not
    be a string, because strings are progress, which is passed to `tell`. Raises LabUnavailable
    if a process ends without a result, and DeadlinePassed if one reports nothing for `silent_s`;
    then all processes are stopped.
    """
    results = dict[Connection, T]()
    children = dict[Connection, BaseProcess]()
    heard = dict[Connection, float]()
    try:
        # Every process has a pipe for its progress and its result.
        for work in works:
            reader, writer = Pipe(duplex=False)
            child = get_context("fork").Process(target=_do, args=(work, writer))
            child.start()
            writer.close()
            children[reader] = child
            heard[reader] = time.monotonic()
        # The process that was silent for the longest time decides how long to wait.
        while len(results) < len(children):
            working = [reader for reader in children if reader not in results]
            deadline = min(heard[reader] for reader in working) + silent_s
            ready = wait(working, max(0.0, deadline - time.monotonic()))
            for reader in working:
                if reader in ready:
                    message = _receive(reader, children[reader])
                    heard[reader] = time.monotonic()
                    if isinstance(message, str):
                        tell(message)
                    else:
                        results[reader] = message
                elif time.monotonic() >= heard[reader] + silent_s:
                    text = f"one process of the lab reported nothing for {silent_s:.0f} s"
                    raise DeadlinePassed(text)
        return [results[reader] for reader in children]
    finally:
        _stop(children.values(), done=len(results) == len(works))
        for reader in children:
            reader.close()


def _do(work: Work[T], writer: Connection) -> None:
    namespaces.die_with_parent()
    writer.send(work(writer.send))


def _receive(reader: Connection, child: BaseProcess) -> Any:
    try:
        return reader.recv()
    except EOFError:
        child.join(STOP_S)
        end = "unknown" if child.exitcode is None else abs(child.exitcode)
        text = f"one process of the lab ended without a result, with status or signal {end}"
        raise LabUnavailable(text) from None


def _stop(children: Collection[BaseProcess], done: bool) -> None:
    """End these processes, as far as they have not ended: with SIGTERM, and with SIGKILL after
    STOP_S. Those that are done end themselves; a signal would interrupt them in that.
    """

    def working() -> bool:
        return any([child.is_alive() for child in children])

    if done:
        process.wait_while(working, STOP_S)
    for end in (BaseProcess.terminate, BaseProcess.kill):
        for child in children:
            end(child)
        process.wait_while(working, STOP_S)
