"""Sessions that insert rows while something goes wrong, and what they know afterwards. Each
transaction inserts two rows with the same content, so that half of one is noticed.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from dbbench import process
from dbbench.engines.port import Server
from dbbench.engines.sql import cursor_of, execute, rows
from dbbench.labs.powercut.recovery import kill
from dbbench.machine import threads

SESSIONS: Final = 4
MARK: Final = "dbbench-row"  # each row's content begins with it: a write of a row can be recognised
LATEST: Final = 2  # rows of a session
PIECE: Final = 24  # bytes
STRIDE: Final = 400  # bytes from one piece to the next
_POLL_S: Final = 0.05
_TABLE: Final = (
    "CREATE TABLE filling (session INT NOT NULL, n INT NOT NULL, part INT NOT NULL, "
    "content VARCHAR(16000) NOT NULL, PRIMARY KEY (session, n, part))"
)


@dataclass
class RowWriter:
    """Sessions that insert rows, and the server's answers. Rows cannot be compressed."""

    seed: str
    row_bytes: int
    acknowledged: dict[int, list[int]] = field(
        default_factory=lambda: {number: [] for number in range(SESSIONS)}
    )
    # when the first error was returned (monotonic clock), and the error
    failed: tuple[float, str] | None = None
    answered: float = 0.0  # when the last commit was acknowledged
    _numbers: dict[int, Iterator[int]] = field(
        default_factory=lambda: {number: itertools.count() for number in range(SESSIONS)}
    )

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    @contextlib.contextmanager
    def writing(self, server: Server) -> Iterator[None]:
        """Insert rows during the block. If it raises, kill the server, so that no session waits for
        an answer.
        """
        stop = threading.Event()
        self.answered = time.monotonic()
        helpers = []
        for session in range(SESSIONS):
            helper = threads.Helper(f"rows-{session}", self._write, server, session, stop)
            helper.start()
            helpers.append(helper)
        try:
            yield
        except BaseException:
            kill(server)
            raise
        finally:
            stop.set()
            for helper in helpers:
                helper.join(30)

    def _write(
        self,
        server: Server,
        session: int,
        stop: threading.Event,
    ) -> None:
        """Insert rows until `stop`; continue with the next ones in a new session after an error."""
        while not stop.wait(_POLL_S):
            try:
                with cursor_of(server) as cursor:
                    while not stop.is_set():
                        number = next(self._numbers[session])
                        content = self._content(session, number)
                        values = (session, number, 0, content, session, number, 1, content)
                        cursor.execute(
                            "INSERT INTO filling VALUES (%s, %s, %s, %s), (%s, %s, %s, %s)", values
                        )
                        self.acknowledged[session].append(number)
                        self.answered = time.monotonic()
            except Exception as error:  # of psycopg2 or mysql.connector
                self._fails(error)

    def read(self, server: Server, query: str) -> None:
        """Run a query as another session."""
        try:
            rows(server, query)
        except Exception as error:  # of psycopg2 or mysql.connector
            self._fails(error)

    def accepts(self, server: Server, within_s: float) -> bool:
        """Return whether the server acknowledges a commit in this time, and kill it otherwise."""
        before = self.count
        process.wait_while(lambda: self.count == before and server.alive(), within_s, _POLL_S)
        if self.count == before:
            kill(server)
        return self.count > before

    def _fails(self, error: Exception) -> None:
        self.failed = self.failed or (time.monotonic(), str(error).strip())

    def _content(self, session: int, number: int) -> str:
        noise = random.Random(f"{self.seed}/{session}/{number}").randbytes(self.row_bytes)
        return f"{MARK}-{base64.b64encode(noise).decode()}"

    def snapshot(self) -> RowWriter:
        """Return what was acknowledged so far."""
        acknowledged = {session: [*numbers] for session, numbers in self.acknowledged.items()}
        return replace(self, acknowledged=acknowledged)

    def pieces(self) -> set[bytes]:
        """Return pieces of the rows that each session wrote last; no two are the same."""
        pieces = set[bytes]()
        for session, numbers in self.acknowledged.items():
            for number in numbers[-LATEST:]:
                content = self._content(session, number).encode()
                for begin in range(len(MARK), len(content) - PIECE, STRIDE):
                    pieces.add(content[begin : begin + PIECE])
        return pieces

    def harms(self, server: Server) -> dict[str, str]:
        """Return kind -> evidence of acknowledged transactions that are missing or changed, and of
        others of which a part exists. Raises the server's own errors.
        """
        lost = 0
        halves = 0
        for session, numbers in self.acknowledged.items():
            stored = defaultdict[int, list[str]](list)
            query = f"SELECT n, content FROM filling WHERE session = {session}"
            for number, content in rows(server, query):
                stored[number].append(content)
            wrong = {
                number
                for number in (*numbers, *stored)
                if stored[number] != [self._content(session, number)] * 2
            }
            lost += len(wrong.intersection(numbers))
            halves += len(wrong.difference(numbers))
        harms = {}
        if lost:
            harms["lost"] = f"{lost} of {self.count} acknowledged commits are missing"
        if halves:
            harms["damaged"] = f"of {halves} unacknowledged transactions a part is there"
        return harms


def create_table(server: Server) -> None:
    """Create the table of the rows."""
    execute(server, _TABLE)
