"""What loads of our own sessions share: statements are cancelled at the end, and a fault is told by its cause."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

from dbbench.drivers.scan_queries import rows_of
from dbbench.engines.port import Server
from dbbench.errors import DbbenchError, DriverFailed, EngineDied

POLL_S: Final = 0.1
_DEATH_S: Final = 1.0  # a server that was killed is seen dead this much later than its clients notice it, at most


def cancelled(server: Server, connection: Any) -> None:
    """Cancel what the session is at; nothing where server or session are gone."""
    with contextlib.suppress(Exception):
        if server.engine == "postgres":
            connection.cancel()
            return
        with contextlib.closing(server.connect()) as other:
            rows_of(other, f"KILL QUERY {connection.connection_id}")


def fault(server: Server, said: str, error: BaseException | None) -> BaseException:
    """What a session's failure is: EngineDied where the server is gone, an error of ours as it is, DriverFailed."""
    until = time.monotonic() + _DEATH_S
    while server.alive() and time.monotonic() < until:
        time.sleep(0.02)
    if not server.alive():
        return EngineDied(f"the server (pid {server.pid}) is gone; {said}")
    return error if isinstance(error, DbbenchError) else DriverFailed(said)
