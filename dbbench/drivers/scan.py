"""scan: tables of the dataset read from end to end, each in a session of its own, all at once.

It begins with the window, when nothing else is at work in the server. Duration is from the common start to the end of
the last session; MB/s is the tables' logical size (10^6 bytes) divided by it. There are no transactions a second:
those columns of the series are gaps.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench.clock import Clock
from dbbench.drivers.port import Live, Load, Outcome
from dbbench.drivers.scan_queries import DIALECTS, Dialect, Table
from dbbench.drivers.sessions import POLL_S, cancelled, fault
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed
from dbbench.model import Cell
from dbbench.series import FIRST, Series

_CANCEL_S: Final = 10.0
_NAMED: Final = 8  # tables that an error names


def programs() -> tuple[str, ...]:
    """What `doctor` must find: nothing, the sessions are our own."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Scan all tables of the dataset. See the port."""
    del seed, scratch  # a scan has no order to choose, and no log
    dialect = DIALECTS[server.engine]
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(server.connect()))
        tables = _tables(dialect, first, cell)
        sessions = []
        for table in tables:
            connection = stack.enter_context(contextlib.closing(server.connect()))
            sessions.append(_Session(dialect, connection, table, dialect.statement(connection, table.name)))
        server.settle()  # no autovacuum, purge or write-back of the start beside the scan
        load = ScanLoad(server, clock, sessions, raw)
        try:
            yield load
        finally:
            load.cancel()


def _tables(dialect: Dialect, connection: Any, cell: Cell) -> list[Table]:
    """All of a generated dataset; of a user's own data those named, or so many of the largest."""
    tables, asked = dialect.tables(connection), cell.parameters.get("tables", cell.dataset.parameters.get("tables"))
    if cell.dataset.kind == "source":
        return chosen(tables, asked, str(cell.dataset.parameters.get("tablespace", "")))
    if not tables or (asked is not None and len(tables) != asked):
        raise DriverFailed(f"the dataset has {len(tables)} tables to scan, {asked} were asked for")
    return tables


def chosen(tables: list[Table], asked: object, tablespace: str) -> list[Table]:
    """Those of the names "a,b,c", or the `asked` largest that are not empty (fewer where there are fewer); of one
    `tablespace` alone where that is under test. DriverFailed where one is not there, or none."""
    there = {table.name: table for table in tables if tablespace in ("", table.tablespace)}
    if isinstance(asked, str):
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if absent := [name for name in names if name not in there]:
            where = f" in the tablespace {tablespace}" if tablespace else ""
            raise DriverFailed(f"no table {', '.join(absent)}{where}; there are {', '.join(sorted(there)[:_NAMED])}")
        return [there[name] for name in names]
    filled = sorted((table for table in there.values() if table.size_bytes), key=lambda table: -table.size_bytes)
    if not filled:
        raise DriverFailed("the data has no table that is not empty")
    return filled[: int(str(asked))]


class _Session(threading.Thread):
    """One session that scans one table. Python waits, the work is in the server."""

    def __init__(self, dialect: Dialect, connection: Any, table: Table, statement: str) -> None:
        super().__init__(name=f"scan-{table.name}", daemon=True)
        self.dialect, self.connection, self.table, self.statement = dialect, connection, table, statement
        self.plan = ""
        self.ended: float | None = None  # monotonic; None: not read to the end
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.plan = self.dialect.scan(self.connection, self.statement)
            self.ended = time.monotonic()
            self.plan = self.plan or self.dialect.explain(self.connection, self.statement)
        except BaseException as error:
            self.error = error


class ScanLoad:
    """All sessions. They start when they are first waited for: within the window whose totals are taken."""

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(self, server: Server, clock: Clock, sessions: list[_Session], raw: Path) -> None:
        self.server, self.clock, self.sessions, self.raw = server, clock, sessions, raw
        self.begin_utc = self._began = 0.0  # not begun
        self._told = -1

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Nothing: a scan has no warm-up, and no time that it must fill."""

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Scan, and block until all tables are read. EngineDied, DriverFailed as soon as one session fails."""
        self.begin_utc, self._began = self.clock.now_utc(), time.monotonic()
        for session in self.sessions:
            session.start()
        while self._goes_on(watch):
            time.sleep(POLL_S)

    def outcome(self) -> Outcome:
        """The duration and the rate; plans and the times of the single tables go to raw/scan.json."""
        times = {s.table.name: s.ended - self._began for s in self.sessions if s.ended is not None}
        if len(times) < len(self.sessions):
            raise DriverFailed(
                f"{len(self.sessions) - len(times)} of {len(self.sessions)} tables were not read to the end"
            )
        duration_s, size = max(times.values()), sum(session.table.size_bytes for session in self.sessions)
        self._keep(times)
        seconds = math.ceil(duration_s)
        return Outcome(
            begin_utc=self.begin_utc,
            window_s=duration_s,
            transactions=len(times),
            errors=0,
            series=Series(seconds, {name: [] for name in FIRST}),
            histogram=None,
            figures={"duration_s": duration_s, "mb_per_s": size / 1e6 / duration_s},
        )

    def cancel(self) -> None:
        """End the sessions that still read, so that nothing of them outlives the load."""
        for session in self.sessions:
            if session.is_alive():
                cancelled(self.server, session.connection)
        for session in self.sessions:
            if session.ident is not None:  # it was started
                session.join(_CANCEL_S)

    def _keep(self, times: dict[str, float]) -> None:
        sizes = {session.table.name: session.table.size_bytes for session in self.sessions}
        tables = [{"table": name, "size_bytes": sizes[name], "duration_s": times[name]} for name in times]
        (self.raw / "scan.json").write_text(json.dumps({"tables": tables}, indent=1) + "\n")
        (self.raw / "scan.sql").write_text("".join(f"{session.statement};\n" for session in self.sessions))
        for session in self.sessions:
            (self.raw / f"plan_{session.table.name}.json").write_text(session.plan + "\n")

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _goes_on(self, watch: Callable[[Live], None]) -> bool:
        failed = next((session for session in self.sessions if session.error is not None), None)
        if failed is not None or not self.server.alive():
            raise self._fault(failed)
        if (second := int(self._now_s())) > self._told:
            self._told = second
            watch(Live(second, None, None))
        return any(session.is_alive() for session in self.sessions)

    def _fault(self, session: _Session | None) -> BaseException:
        if session is None:
            return fault(self.server, "while it was scanned", None)
        return fault(
            self.server, f"the scan of {session.table.name} failed: {str(session.error).strip()}", session.error
        )
