"""scan: read tables of the dataset sequentially, each in its own session, all at once.

It starts with the window, when the server is otherwise idle. The duration is from the common start to the end of the
last session; MB/s is the tables' logical size (10^6 bytes), times the scans, divided by it. There are no transactions
per second: those columns of the series are gaps.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.tool import POLL_S, cancelled, fault
from dbbench.engines import sql_of
from dbbench.engines.port import Server, Sql, Table
from dbbench.errors import DriverFailed
from dbbench.machine import threads
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Clock, Series
from dbbench.model import Cell, TrialWarning

_CANCEL_S: Final = 10.0
_NAMED: Final = 8  # tables that an error message lists


def programs() -> tuple[str, ...]:
    """Return (): the sessions are dbbench's own."""
    return ()


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Scan all tables of the dataset. See `protocol.Driver`."""
    sql = sql_of(task.server)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(task.server.connect()))
        tables = _tables(sql, first, task.cell)
        sessions = []
        for table in tables:
            connection = stack.enter_context(contextlib.closing(task.server.connect()))
            statement, repeat_s = sql.scan(connection, table.name), float(task.cell.parameters.get("repeat_for", 0))
            sessions.append(_Session(sql, connection, table, statement, repeat_s))
        task.server.settle()  # so that no autovacuum, purge or write-back from the start runs during the scan
        load = ScanLoad(task.server, task.clock, sessions, task.raw)
        try:
            yield load
        finally:
            load.cancel()


def _tables(sql: Sql, connection: Any, cell: Cell) -> list[Table]:
    """Return all tables of a generated dataset; of a user's own data those that `tables` names, or as many of the
    largest."""
    tables, asked = sql.tables(connection), cell.parameters.get("tables", cell.dataset.parameters.get("tables"))
    if cell.dataset.kind == "source":
        return chosen(tables, asked, str(cell.dataset.parameters.get("tablespace", "")))
    if not tables or (asked is not None and len(tables) != asked):
        raise DriverFailed(f"the plan requires {asked} tables to scan, but the dataset has {len(tables)}")
    return tables


def chosen(tables: list[Table], asked: object, tablespace: str) -> list[Table]:
    """Return the tables named in "a,b,c", or the `asked` largest that are not empty.

    `tablespace`: only tables in it, if it is what is under test. Raises DriverFailed if a named table, or any table, is
    missing.
    """
    there = {table.name: table for table in tables if tablespace in ("", table.tablespace)}
    if isinstance(asked, str):
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if absent := [name for name in names if name not in there]:
            where = f" in the tablespace {tablespace}" if tablespace else ""
            raise DriverFailed(f"no table {', '.join(absent)}{where}; there are {', '.join(sorted(there)[:_NAMED])}")
        return [there[name] for name in names]
    filled = sorted((table for table in there.values() if table.size_bytes), key=lambda table: -table.size_bytes)
    if not filled:
        raise DriverFailed("all tables of the dataset are empty")
    return filled[: int(str(asked))]


class _Session:
    """One session that scans one table, again until `repeat_s` have passed. Python waits; the server does the work."""

    def __init__(self, sql: Sql, connection: Any, table: Table, statement: str, repeat_s: float) -> None:
        self.sql, self.connection, self.table, self.statement = sql, connection, table, statement
        self.repeat_s = repeat_s
        self.plan = ""  # query plan of the first scan, which is cold
        self.scans = 0
        self.ended: float | None = None  # monotonic time; None: the table was not read to the end
        self.helper = threads.Helper(f"scan-{table.name}", self._scan)

    def _scan(self) -> None:
        began = time.monotonic()
        while not self.scans or time.monotonic() - began < self.repeat_s:
            plan = self.sql.scanned(self.connection, self.statement)
            self.plan = self.plan or plan
            self.scans += 1
        self.ended = time.monotonic()
        self.plan = self.plan or self.sql.explained(self.connection, self.statement)


class ScanLoad:
    """All sessions. They start at the first wait, which is within the window whose totals are measured."""

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(self, server: Server, clock: Clock, sessions: list[_Session], raw: Path) -> None:
        self.server, self.clock, self.sessions, self.raw = server, clock, sessions, raw
        self.begin_utc = self._began = 0.0  # set when the scan begins
        self._told = -1

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Return immediately: a scan has no warm-up and no fixed time."""

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Scan, and block until all tables are read. Raises EngineDied or DriverFailed as soon as one session fails."""
        self.begin_utc, self._began = self.clock.now_utc(), time.monotonic()
        for session in self.sessions:
            session.helper.start()
        while self._goes_on(watch):
            time.sleep(POLL_S)

    def outcome(self) -> Outcome:
        """Return duration and rate; plans and times of the individual tables go to raw/scan.json."""
        times = {s.table.name: s.ended - self._began for s in self.sessions if s.ended is not None}
        if len(times) < len(self.sessions):
            raise DriverFailed(
                f"{len(self.sessions) - len(times)} of {len(self.sessions)} tables were not read completely"
            )
        duration_s, size = (
            max(times.values()),
            sum(session.table.size_bytes * session.scans for session in self.sessions),
        )
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
            claims=(Claim("table_bytes", total=size),),
            warnings=self._dirtied(),
        )

    def cancel(self) -> None:
        """Cancel the sessions that are still reading, so that they do not outlive the load."""
        for session in self.sessions:
            if session.helper.alive:
                cancelled(self.server, session.connection)
        for session in self.sessions:
            if session.helper.started:
                session.helper.join(_CANCEL_S)

    def _keep(self, times: dict[str, float]) -> None:
        tables = [
            {"table": name, "size_bytes": s.table.size_bytes, "scans": s.scans, "duration_s": times[name]}
            for s in self.sessions
            if (name := s.table.name) in times
        ]
        (self.raw / "scan.json").write_text(json.dumps({"tables": tables}, indent=1) + "\n")
        (self.raw / "scan.sql").write_text("".join(f"{session.statement};\n" for session in self.sessions))
        for session in self.sessions:
            (self.raw / f"plan_{session.table.name}.json").write_text(session.plan + "\n")

    def _dirtied(self) -> tuple[TrialWarning, ...]:
        """Return W118 if scans changed pages."""
        counted = {session.table.name: session.sql.dirtied_blocks(session.plan) for session in self.sessions}
        changed = [f"{blocks} blocks of {table}" for table, blocks in counted.items() if blocks]
        return (TrialWarning("W118", f"EXPLAIN reports dirtied blocks: {', '.join(changed)}"),) if changed else ()

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _goes_on(self, watch: Callable[[Live], None]) -> bool:
        failed = next((session for session in self.sessions if session.helper.error() is not None), None)
        if failed is not None or not self.server.alive():
            raise self._fault(failed)
        if (second := int(self._now_s())) > self._told:
            self._told = second
            watch(Live(second, None, None))
        return any(session.helper.alive for session in self.sessions)

    def _fault(self, session: _Session | None) -> BaseException:
        if session is None:
            return fault(self.server, "while it was scanned", None)
        error = session.helper.error()
        return fault(self.server, f"the scan of {session.table.name} failed: {str(error).strip()}", error)
