"""scan: read tables of the dataset sequentially, each in its own session, all at once. A pass is
one scan of every table; MB/s is the tables' logical size (10^6 bytes) divided by its duration.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.sessions import SessionWork, cancel, carry_out, connected
from dbbench.drivers.tool import whole_outcome
from dbbench.engines import sql_of
from dbbench.engines.sql import Sql, Table
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.model import Cell, TrialWarning

_NAMED: Final = 8  # tables that an error message lists


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Scan all tables of the dataset. See `protocol.Driver`."""
    sql = sql_of(task.server)
    with connected(task.server, 1) as (first,):
        tables = _tables(sql, first, task.cell)
    passes = _Passes(len(tables), float(task.cell.parameters.get("repeat_for", 0)))
    with connected(task.server, len(tables)) as connections:
        sessions = [_Session(sql, *of, passes) for of in zip(connections, tables, strict=True)]
        # so that no autovacuum, purge or write-back from the start runs during the scan
        task.server.settle()
        load = ScanLoad(task, sessions, passes)
        try:
            yield load
        finally:
            cancel(task.server, load.works)


def _tables(sql: Sql, connection: Any, cell: Cell) -> list[Table]:
    """Return all tables of a generated dataset; of a user's own data those in `tables`, or as many
    of the largest.
    """
    tables = sql.tables(connection)
    asked = cell.parameters.get("tables", cell.dataset.parameters.get("tables"))
    if cell.dataset.kind == "source":
        return chosen(tables, asked, str(cell.dataset.parameters.get("tablespace", "")))
    if not tables or (asked is not None and len(tables) != asked):
        raise DriverFailed(
            f"the plan requires {asked} tables to scan, but the dataset has {len(tables)}"
        )
    return tables


def chosen(tables: list[Table], asked: object, tablespace: str) -> list[Table]:
    """Return the tables named in "a,b,c", or the `asked` largest non-empty ones. `tablespace`: only
    tables in it. Raises DriverFailed if a named table, or any table, is missing.
    """
    there = {table.name: table for table in tables if tablespace in ("", table.tablespace)}
    if isinstance(asked, str):
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if absent := [name for name in names if name not in there]:
            where = f" in the tablespace {tablespace}" if tablespace else ""
            raise DriverFailed(
                f"no table {', '.join(absent)}{where}; there are "
                f"{', '.join(sorted(there)[:_NAMED])}"
            )
        return [there[name] for name in names]
    filled = sorted(
        (table for table in there.values() if table.size_bytes), key=lambda table: -table.size_bytes
    )
    if not filled:
        raise DriverFailed("all tables of the dataset are empty")
    return filled[: int(str(asked))]


class _Passes:
    """The passes of all sessions: each begins when the slowest session has ended the one before."""

    def __init__(self, sessions: int, repeat_s: float) -> None:
        self.repeat_s = repeat_s
        # monotonic time of the common start, then of the end of each pass
        self.ends: list[float] = []
        self.barrier = threading.Barrier(sessions, lambda: self.ends.append(time.monotonic()))

    @property
    def seconds(self) -> list[float]:
        return [end - begin for begin, end in itertools.pairwise(self.ends)]

    def go_on(self) -> bool:
        """Wait for the other sessions; return whether another pass begins. Raises
        BrokenBarrierError if one failed.
        """
        self.barrier.wait()
        return len(self.ends) == 1 or self.ends[-1] - self.ends[0] < self.repeat_s


class _Session:
    def __init__(self, sql: Sql, connection: Any, table: Table, passes: _Passes) -> None:
        self.sql = sql
        self.connection = connection
        self.table = table
        self.passes = passes
        self.statement = sql.scan(connection, table.name)
        self.plan = ""  # query plan of the first scan, which is cold
        self.seconds: list[float] = []  # of each scan
        self.work = SessionWork(f"the scan of {table.name}", [connection], self._scan)

    def _scan(self) -> None:
        try:
            while self.passes.go_on():
                plan = self.sql.scan_plan(self.connection, self.statement)
                self.seconds.append(time.monotonic() - self.passes.ends[-1])
                self.plan = self.plan or plan
        except threading.BrokenBarrierError:
            return  # another session failed, and has the error
        except BaseException:
            self.passes.barrier.abort()
            raise
        self.plan = self.plan or self.sql.explain(self.connection, self.statement)


class ScanLoad:
    """All sessions. They start at the first wait, which is within the window whose totals are
    measured.
    """

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(self, task: LoadTask, sessions: list[_Session], passes: _Passes) -> None:
        self.task = task
        self.sessions = sessions
        self.passes = passes
        self.works = [session.work for session in sessions]
        self.begin_utc = 0.0  # set when the scan begins

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Return immediately: a scan has no warm-up and no fixed time."""

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Raises EngineDied or DriverFailed as soon as one session fails."""
        self.begin_utc = self.task.clock.now_utc()
        carry_out(self.task.server, self.works, watch)

    def outcome(self) -> Outcome:
        """Return duration and rate of a pass; query plans and times go to raw/. W118 if scans
        changed pages.
        """
        passes = self.passes.seconds
        if not passes or any(len(session.seconds) < len(passes) for session in self.sessions):
            raise DriverFailed(f"the {len(self.sessions)} tables were not all read completely")
        self._keep(passes)
        window_s = sum(passes)
        size = len(passes) * sum(session.table.size_bytes for session in self.sessions)
        counted = {
            session.table.name: session.sql.dirtied_blocks(session.plan)
            for session in self.sessions
        }
        changed = ", ".join(
            f"{blocks} blocks of {table}" for table, blocks in counted.items() if blocks
        )
        return whole_outcome(
            self.begin_utc,
            window_s,
            {"duration_s": window_s / len(passes), "mb_per_s": size / 1e6 / window_s},
            scanned_bytes=size,
            claims=(Claim("table_bytes", total=size),),
            warnings=(TrialWarning("W118", f"EXPLAIN reports dirtied blocks: {changed}"),)
            if changed
            else (),
        )

    def _keep(self, passes: list[float]) -> None:
        tables = [
            {
                "table": session.table.name,
                "size_bytes": session.table.size_bytes,
                "scans_s": session.seconds,
            }
            for session in self.sessions
        ]
        raw = self.task.raw
        (raw / "scan.json").write_text(
            json.dumps({"passes_s": passes, "tables": tables}, indent=1) + "\n"
        )
        (raw / "scan.sql").write_text(
            "".join(f"{session.statement};\n" for session in self.sessions)
        )
        for session in self.sessions:
            (raw / f"plan_{session.table.name}.json").write_text(session.plan + "\n")
