"""Operation `crash-recovery`: kill the server in the middle of a load, and time its start from a
cold cache to the first answer. Every acknowledged row must exist; the power-loss lab tests what
the kernel had not written.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from dbbench.engines.port import Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import EngineDied, FilesystemDamaged, OperationFailed
from dbbench.machine import threads
from dbbench.model import OperationFacts
from dbbench.operations.steps import StoredDatabase, cold, end_step, time_step

LOAD_S: Final = 5.0  # long enough for about 10 MB of log on a slow disk
SESSIONS: Final = 4
ROWS: Final = 20  # rows per transaction
TABLE: Final = "dbbench_crash"


def crash_recovery(filled: StoredDatabase) -> Iterator[OperationFacts]:
    """Run two steps: recovery, with the size of the log to replay, and the check after it. Raises
    FilesystemDamaged.
    """
    acknowledged, log_bytes = _kill(filled)
    cache_text = cold(filled)
    began = time.monotonic()
    with filled.serving() as server:
        text = f"{acknowledged} rows acknowledged before; {cache_text}"
        yield end_step("crash-recovery: start", began, text, log_bytes)
        _must_have(server, acknowledged)
    yield time_step("crash-recovery: check", lambda: filled.check(filled.datadir))


def _kill(filled: StoredDatabase) -> tuple[int, int | None]:
    writers = list[_Writer]()
    log_bytes = None
    killed = False
    try:
        with filled.serving() as server:
            # A table of its own, so that what was acknowledged can be counted.
            columns = "writer INT, id INT, filler VARCHAR(200) NOT NULL, PRIMARY KEY (writer, id)"
            execute(
                server,
                f"DROP TABLE IF EXISTS {TABLE}",
                f"CREATE TABLE {TABLE} ({columns})",
            )
            server.checkpoint()
            # The load, for long enough that there is something to recover.
            writers = [_Writer(server, number) for number in range(SESSIONS)]
            for writer in writers:
                writer.helper.start()
            time.sleep(LOAD_S)
            log_bytes = server.recovery_bytes()
            for writer in writers:
                error = writer.helper.error()
                if error:
                    raise OperationFailed(f"the load before the crash failed: {error}")
            if server.pid is None:
                raise OperationFailed("this engine has no server to kill")
            # The server is killed while the sessions write.
            killed = True
            os.kill(server.pid, signal.SIGKILL)
            for writer in writers:
                writer.helper.join()
                writer.helper.error()  # expected: the server was killed
    except EngineDied:
        if not killed:
            raise
    return sum(writer.acknowledged for writer in writers) * ROWS, log_bytes


class _Writer:
    def __init__(self, server: Server, number: int) -> None:
        self.number = number
        self.connection = server.connect()
        self.acknowledged = 0  # number of acknowledged transactions
        self.helper = threads.Helper(f"crash-{number}", self._write)

    def _write(self) -> None:
        with closing(self.connection), closing(self.connection.cursor()) as cursor:
            while True:
                first = self.acknowledged * ROWS
                numbers = range(first, first + ROWS)
                values = [f"({self.number}, {number}, '{'x' * 200}')" for number in numbers]
                cursor.execute(f"INSERT INTO {TABLE} VALUES {', '.join(values)}")
                self.acknowledged += 1


def _must_have(server: Server, acknowledged: int) -> None:
    """Raise FilesystemDamaged if an acknowledged row is missing; one more per session may be
    committed.
    """
    ((count, whole),) = rows(server, f"SELECT COUNT(*), COUNT(DISTINCT writer) FROM {TABLE}")
    if not acknowledged <= int(count) <= acknowledged + SESSIONS * ROWS:
        text = f"after the crash there are {count} rows of {whole} sessions"
        raise FilesystemDamaged(f"{text}; {acknowledged} were acknowledged")
    execute(server, f"DROP TABLE {TABLE}")
