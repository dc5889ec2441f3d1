"""Operation `crash-recovery`: the server is killed in the middle of a load, and started again on a cold cache.

The time is from the start to the first answer. Every row that was acknowledged before the kill must be there, and the
data pass the engine's check. Killing a server loses nothing that it had given to the kernel: what a power cut does is
another question.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from dbbench.engines.asking import execute, rows
from dbbench.engines.port import Server
from dbbench.errors import CopyWrong, EngineDied, OperationFailed
from dbbench.model import OperationFacts
from dbbench.operations.port import Filled
from dbbench.operations.steps import cold, ended

LOAD_S: Final = 5.0  # long enough for some ten MB of log on a slow disk
SESSIONS: Final = 4
ROWS: Final = 20  # of a transaction
TABLE: Final = "dbbench_crash"


def crash_recovery(filled: Filled) -> Iterator[OperationFacts]:
    """Two steps: recovery, with the bytes of log that it had before it, and the check afterwards. CopyWrong."""
    acknowledged, log_bytes = _killed(filled)
    said = cold(filled)
    began = time.monotonic()
    with filled.serving(filled.datadir) as server:
        yield ended("crash-recovery: start", began, f"{acknowledged} rows acknowledged before; {said}", log_bytes)
        _must_have(server, acknowledged)
    if filled.check is not None:
        began = time.monotonic()
        yield ended("crash-recovery: check", began, filled.check(filled.datadir))


def _killed(filled: Filled) -> tuple[int, int | None]:
    """Load the server and kill it: (rows that it acknowledged, bytes of log since its last checkpoint)."""
    written: list[_Writer] = []
    log_bytes = None
    killed = False
    try:
        with filled.serving(filled.datadir) as server:
            _prepare(server)
            server.checkpoint()
            written = [_Writer(server, number) for number in range(SESSIONS)]
            for writer in written:
                writer.start()
            time.sleep(LOAD_S)
            log_bytes = _log_bytes(server)
            if early := next((writer.error for writer in written if writer.error is not None), None):
                raise OperationFailed(f"the load before the crash failed: {early}")
            if server.pid is None:
                raise OperationFailed("there is no server to be killed")
            killed = True
            os.kill(server.pid, signal.SIGKILL)
            for writer in written:
                writer.join()
    except EngineDied:
        if not killed:
            raise
    return sum(writer.acknowledged for writer in written) * ROWS, log_bytes


class _Writer(threading.Thread):
    """Inserts rows until the server is gone."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(name=f"crash-{number}", daemon=True)
        self.number, self.connection = number, server.connect()
        self.acknowledged = 0  # transactions
        self.error: Exception | None = None

    def run(self) -> None:
        with contextlib.suppress(Exception), closing(self.connection), closing(self.connection.cursor()) as cursor:
            self._write(cursor)

    def _write(self, cursor: Any) -> None:
        try:
            while True:
                first = self.acknowledged * ROWS
                values = ", ".join(f"({self.number}, {first + row}, '{'x' * 200}')" for row in range(ROWS))
                cursor.execute(f"INSERT INTO {TABLE} VALUES {values}")
                self.acknowledged += 1
        except Exception as error:  # the server was killed
            self.error = error


def _prepare(server: Server) -> None:
    execute(server, f"DROP TABLE IF EXISTS {TABLE}")
    execute(
        server, f"CREATE TABLE {TABLE} (writer INT, id INT, filler VARCHAR(200) NOT NULL, PRIMARY KEY (writer, id))"
    )


def _must_have(server: Server, acknowledged: int) -> None:
    """CopyWrong where an acknowledged row is missing. One transaction a session may have come through unanswered."""
    ((found, whole),) = rows(server, f"SELECT COUNT(*), COUNT(DISTINCT writer) FROM {TABLE}")
    if not acknowledged <= int(found) <= acknowledged + SESSIONS * ROWS:
        raise CopyWrong(
            f"after the crash there are {found} rows of {whole} sessions; {acknowledged} were acknowledged",
            effect="The trial does not count.",
        )
    execute(server, f"DROP TABLE {TABLE}")


def _log_bytes(server: Server) -> int | None:
    """What recovery will have to read: the log from the last checkpoint's redo point on."""
    if server.engine == "postgres":
        wanted = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) FROM pg_control_checkpoint()"
        return int(rows(server, wanted)[0][0])
    age = server.counters().get("innodb_redo_age_bytes")
    return None if age is None else int(age)
