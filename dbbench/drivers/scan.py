"""scan: read tables of the dataset sequentially, each in its own session, all at once. A pass is
one scan of every table; MB/s is the tables' logical size (10^6 bytes) divided by its duration.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.sessions import SessionWork, cancel, carry_out, connect
from dbbench.drivers.tool import could_hold, whole_outcome
from dbbench.engines import sql_of
from dbbench.engines.sql import Sql, Table
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.model import Cell, TrialWarning
from dbbench.results.fileio import write_json
from dbbench.units import number

_NAMED: Final = 8  # tables that an error message lists


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Scan all tables of the dataset. See `protocol.Driver`."""
    sql = sql_of(task.server)
    with connect(task.server, 1) as (connection,):
        tables = _tables(sql, connection, task.cell)
    passes = _Passes(len(tables), float(task.cell.parameters.get("repeat_for", 0)))
    with connect(task.server, len(tables)) as connections:
        sessions = []
        for connection, table in zip(connections, tables, strict=True):
            sessions.append(_Session(sql, connection, table, passes))
        # so that no autovacuum, purge or write-back from the start runs during the scan
        task.server.settle()
        load = ScanLoad(task, sessions, passes)
        try:
            yield load
        finally:
            cancel(task.server, load.works)


def _tables(
    sql: Sql,
    connection: Any,
    cell: Cell,
) -> list[Table]:
    """Return all tables of a generated dataset; of a user's own data those in `tables`, or as many
    of the largest.
    """
    tables = sql.tables(connection)
    generated = cell.dataset.parameters
    required = cell.parameters.get("tables", generated.get("tables"))
    if cell.dataset.kind == "source":
        return choose(
            tables,
            required,
            str(generated.get("tablespace", "")),
        )
    if not tables or required not in (None, len(tables)):
        raise DriverFailed(
            f"the plan requires {required} tables to scan, but the dataset has {len(tables)}"
        )
    return tables


def choose(
    tables: list[Table],
    required: object,
    tablespace: str,
) -> list[Table]:
    """Return the tables named in "a,b,c", or so many of the largest non-empty ones. `tablespace`:
    only tables in it. Raises DriverFailed if a named table, or any table, is missing.
    """
    by_name = {table.name: table for table in tables if tablespace in ("", table.tablespace)}
    if isinstance(required, str):
        names = [name.strip() for name in required.split(",") if name.strip()]
        absent = [name for name in names if name not in by_name]
        if absent:
            where = f" in the tablespace {tablespace}" if tablespace else ""
            present = ", ".join(sorted(by_name)[:_NAMED])
            raise DriverFailed(f"no table {', '.join(absent)}{where}; there are {present}")
        return [by_name[name] for name in names]
    filled = [table for table in by_name.values() if table.size_bytes]
    if not filled:
        raise DriverFailed("all tables of the dataset are empty")
    filled.sort(key=lambda table: -table.size_bytes)
    return filled[: int(str(required))]


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
        if len(self.ends) == 1:
            return True
        repeated_s = self.ends[-1] - self.ends[0]
        return repeated_s < self.repeat_s


class _Session:
    def __init__(
        self,
        sql: Sql,
        connection: Any,
        table: Table,
        passes: _Passes,
    ) -> None:
        self.sql = sql
        self.connection = connection
        self.table = table
        self.passes = passes
        self.statement = sql.scan(connection, table.name)
        self.plan = ""  # query plan of the first scan, which is cold
        self.seconds: list[float] = []  # of each scan
        self.work = SessionWork(
            f"the scan of {table.name}",
            [connection],
            self._scan,
        )

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

    def __init__(
        self,
        task: LoadTask,
        sessions: list[_Session],
        passes: _Passes,
    ) -> None:
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
        changed pages, W158 if all but the first read memory.
        """
        passes = self.passes.seconds
        if not passes or any(len(session.seconds) < len(passes) for session in self.sessions):
            raise DriverFailed(f"the {len(self.sessions)} tables were not all read completely")
        self._keep(passes)
        window_s = sum(passes)
        size = 0
        changes = []
        for session in self.sessions:
            size += len(passes) * session.table.size_bytes
            blocks = session.sql.dirtied_blocks(session.plan)
            if blocks:
                changes.append(f"{blocks} blocks of {session.table.name}")
        warnings = list(warm_passes(passes, size // len(passes), could_hold(self.task.cell)))
        if changes:
            text = f"EXPLAIN reports dirtied blocks: {', '.join(changes)}"
            warnings.append(TrialWarning("W118", text))
        return whole_outcome(
            self.begin_utc,
            window_s,
            {"duration_s": window_s / len(passes), "mb_per_s": size / 1e6 / window_s},
            scanned_bytes=size,
            claims=(Claim("table_bytes", total=size),),
            warnings=tuple(warnings),
        )

    def _keep(self, passes: list[float]) -> None:
        raw = self.task.raw
        tables = []
        statements = ""
        for session in self.sessions:
            table = session.table
            times = {
                "table": table.name,
                "size_bytes": table.size_bytes,
                "scans_s": session.seconds,
            }
            tables.append(times)
            statements += f"{session.statement};\n"
            (raw / f"plan_{table.name}.json").write_text(session.plan + "\n")
        write_json(raw / "scan.json", {"passes_s": passes, "tables": tables})
        (raw / "scan.sql").write_text(statements)


def warm_passes(
    passes: list[float],
    size: int,
    memory: int,
) -> Iterator[TrialWarning]:
    """Yield W158 if passes over `size` bytes were repeated and memory could hold them."""
    if len(passes) > 1 and size < memory:
        megabytes = size / 1e6
        first = number(float(f"{megabytes / passes[0]:.3g}"))
        mean = number(float(f"{megabytes * len(passes) / sum(passes):.3g}"))
        text = f"{len(passes)} passes: {first} MB/s in the first, cold one, {mean} MB/s on average"
        yield TrialWarning("W158", text)
