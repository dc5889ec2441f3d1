"""What loads with sessions in dbbench share: cancelling statements at the end, and finding the cause of a failure."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from dbbench.engines import sql_of
from dbbench.engines.port import Server
from dbbench.errors import DbbenchError, DriverFailed, EngineDied
from dbbench.metrics.clock import wait_while

POLL_S: Final = 0.1
_DEATH_S: Final = 1.0  # clients notice a killed server at most this much earlier than `alive` does


def cancelled(server: Server, connection: Any) -> None:
    """Cancel the session's statement; do nothing if the server or the session has ended."""
    with contextlib.suppress(Exception):
        sql_of(server).cancel(server, connection)


def fault(server: Server, said: str, error: BaseException | None) -> BaseException:
    """Return the cause of a session's failure: EngineDied, an error of dbbench as it is, or DriverFailed."""
    if not wait_while(server.alive, _DEATH_S, 0.02):
        return EngineDied(f"the server (pid {server.pid}) is gone; {said}")
    return error if isinstance(error, DbbenchError) else DriverFailed(said)
