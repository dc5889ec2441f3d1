"""Sessions of dbbench's own in a load: followed while they work, and cancelled so that they do not
outlive it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dbbench import process
from dbbench.drivers.protocol import Live
from dbbench.drivers.tool import DEATH_S, POLL_S
from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.errors import DbbenchError, DriverFailed, EngineDied
from dbbench.machine import threads

_CANCEL_S: Final = 10.0


class SessionWork(threads.Helper):
    """A thread that works with sessions. `what`: the name of the work in messages."""

    def __init__(
        self,
        what: str,
        sessions: Sequence[Any],
        work: Callable[[], object],
    ) -> None:
        super().__init__(what, work)
        self.what = what
        self.sessions = sessions


@contextlib.contextmanager
def connect(server: Server, number: int) -> Iterator[list[Any]]:
    """Yield so many sessions, which end with the block."""
    with contextlib.ExitStack() as stack:
        sessions = []
        for _ in range(number):
            session = server.connect()
            stack.callback(session.close)
            sessions.append(session)
        yield sessions


def check(server: Server, works: Sequence[SessionWork]) -> None:
    """Raise EngineDied, or the error of the first work that failed."""
    for work in works:
        error = None if work.alive else work.error()
        if error is not None:
            raise fault(server, f"{work.what} failed: {str(error).strip()}", error)
    if works and not server.alive():
        raise fault(server, f"during {works[0].what}", None)


def carry_out(
    server: Server,
    works: Sequence[SessionWork],
    watch: Callable[[Live], None],
) -> None:
    """Start all works, and block until they have ended, calling `watch` once per second. Raises as
    `check`.
    """
    began = time.monotonic()
    shown = -1
    for work in works:
        work.start()
    while running := [work for work in works if work.alive]:
        check(server, works)
        second = int(time.monotonic() - began)
        if second > shown:
            shown = second
            watch(Live(second, None, None))
        running[0].join(POLL_S)
    check(server, works)


def cancel(server: Server, works: Sequence[SessionWork]) -> None:
    """Cancel the statements of works that have not ended; ignore a server or a session that has
    ended.
    """
    alive = [work for work in works if work.alive]
    for work in alive:
        for session in work.sessions:
            with contextlib.suppress(Exception):
                sql_of(server).cancel(server, session)
    for work in alive:
        work.join(_CANCEL_S)


def fault(
    server: Server,
    evidence: str,
    error: BaseException | None,
) -> BaseException:
    """Return the cause of a session's failure: EngineDied, an error of dbbench as it is, or
    DriverFailed.
    """
    if not process.wait_while(server.alive, DEATH_S, 0.02):
        return EngineDied(f"the server (pid {server.pid}) died; {evidence}")
    if isinstance(error, DbbenchError):
        return error
    return DriverFailed(evidence)
