"""statements: a script of SQL steps (`steps.py`), each timed: what a DBA waits for.

Untimed steps come first, before the window, and a checkpoint after them. Rows are those that the server counted
(COPY, LOAD DATA, INSERT ...), where it counts none those of the dataset. Bytes are what a step was to work through: the
file of rows once for each table, else the logical size of the tables, before or after, whichever is more.
Parameters: clients (sessions), file_bytes (of the file of rows), tables; every other one is a `{name}` of the script.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from dbbench.clock import Clock
from dbbench.drivers import rows_file
from dbbench.drivers.port import Live, Load, Outcome
from dbbench.drivers.scan_queries import DIALECTS
from dbbench.drivers.scripts import located
from dbbench.drivers.sessions import POLL_S, cancelled, fault
from dbbench.drivers.steps import Step, for_table, parse
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed, ScriptInvalid
from dbbench.model import Cell
from dbbench.series import FIRST, Series

_CANCEL_S: Final = 10.0
_READ: Final = 1 << 20  # bytes that the client sends at once


def programs() -> tuple[str, ...]:
    """What `doctor` must find: nothing, the sessions are our own."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Run the script of the workload. See the port."""
    path = located(cell.workload.script)
    (raw / "statements.sql").write_text(text := path.read_text(encoding="utf-8"))
    file = scratch / "rows.tsv"
    values = {**cell.dataset.parameters, **cell.workload.options, **cell.parameters, "file": file}
    try:
        steps = [step.of(values) for step in parse(text, server.engine)]
    except ScriptInvalid as error:
        error.where = str(path)
        raise
    sent = rows_file.written(file, int(cell.parameters["file_bytes"]), seed) if "file_bytes" in values else None
    tables = _tables(server, cell)
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(contextlib.closing(server.connect()))
            for _ in range(max(1, int(cell.parameters.get("clients", 1))))
        ]
        worker = _Worker(server, sessions, steps, tables, sent, dataset_rows(cell))
        stack.callback(file.unlink, missing_ok=True)
        load = StatementsLoad(server, clock, worker, raw)
        try:
            yield load
        finally:
            load.cancel()


def dataset_rows(cell: Cell) -> int | None:
    """Rows of each table of a generated dataset; None where they are not known."""
    own = cell.dataset.parameters
    found = own.get("table_size" if cell.dataset.kind == "sysbench" else "rows")
    return int(found) if found else None


def _tables(server: Server, cell: Cell) -> list[str]:
    """The tables of the dataset; without one those that the script makes itself: t1, t2 ..."""
    if cell.dataset.kind == "none":
        return [f"t{number}" for number in range(1, int(cell.parameters.get("tables", 1)) + 1)]
    with contextlib.closing(server.connect()) as connection:
        return [table.name for table in DIALECTS[server.engine].tables(connection)]


@dataclass
class Done:
    """A step that was carried out."""

    step: str
    timed: bool
    seconds: float
    rows: int | None = None
    bytes: int | None = None
    statements: list[dict[str, Any]] = field(default_factory=list)  # sql, seconds, rows


class _Worker:
    """Carries out steps one after the other; the statements of a step on several tables at once."""

    def __init__(
        self, server: Server, sessions: list[Any], steps: list[Step], tables: list[str], sent: rows_file.Sent | None,
        rows: int | None,
    ) -> None:  # fmt: skip
        self.server, self.sessions, self.steps, self.tables = server, sessions, steps, tables
        self.sent, self.dataset_rows = sent, rows
        self.free: SimpleQueue[Any] = SimpleQueue()
        for session in sessions:
            self.free.put(session)
        self.done: list[Done] = []
        self.at = ""  # the step that is going on
        self.error: BaseException | None = None
        self.left = False

    def run(self, timed: bool) -> None:
        """The timed steps, or the others and a checkpoint: what those wrote is not owed when the first timed one
        begins. What goes wrong is kept in `error`."""
        steps = [step for step in self.steps if step.timed is timed]
        try:
            for step in steps:
                self._carry_out(step)
            if steps and not timed:
                self.server.checkpoint()
        except BaseException as error:
            self.error = error

    def _carry_out(self, step: Step) -> None:
        self.at = step.name
        before = self._sizes()
        began = time.monotonic()
        jobs = self.tables if step.each_table else [""]
        with ThreadPoolExecutor(len(self.sessions)) as pool:
            statements = [one for several in pool.map(lambda table: self._one(step, table), jobs) for one in several]
        done = Done(step.name, step.timed, time.monotonic() - began, statements=statements)
        after = self._sizes()
        from_file = sum("file" in one for one in statements)
        rows = [one["rows"] for one in statements if one["rows"]]
        done.rows = sum(rows) or (self.dataset_rows * len(jobs) if self.dataset_rows and step.each_table else None)
        done.bytes = (
            self.sent.bytes * from_file
            if self.sent and from_file
            else sum(max(before.get(name, 0), size) for name, size in after.items())
        )
        self.done.append(done)

    def _one(self, step: Step, table: str) -> list[dict[str, Any]]:
        """The step's statements for one table, in one session."""
        session, said = self.free.get(), []
        try:
            for statement in step.statements:
                if self.left:
                    raise DriverFailed(f'step "{step.name}" was left')
                sql = for_table(statement, table)
                began = time.monotonic()
                file, rows = self._executed(session, sql)
                said.append({"sql": sql, "seconds": time.monotonic() - began, "rows": rows,
                             **({"file": True} if file else {})})  # fmt: skip
        finally:
            self.free.put(session)
        return said

    def _executed(self, session: Any, sql: str) -> tuple[bool, int | None]:
        """(whether it took the file, rows that the server counted)."""
        with contextlib.closing(session.cursor()) as cursor:
            if self.sent is not None and sql.upper().startswith("COPY ") and "FROM STDIN" in sql.upper():
                with self.sent.path.open("rb") as rows:
                    cursor.copy_expert(sql, rows, _READ)
                return True, cursor.rowcount
            cursor.execute(sql)
            if cursor.description is not None:
                found = cursor.fetchall()
                if self.server.engine != "postgres":  # OPTIMIZE TABLE and the like say in rows what went wrong
                    _refuse_errors(sql, found)
                return False, None
            return self.sent is not None and str(self.sent.path) in sql, max(0, cursor.rowcount)

    def _sizes(self) -> dict[str, int]:
        """Logical bytes by table; those that are not there yet are missing."""
        with contextlib.closing(self.server.connect()) as connection:
            known = {table.name: table.size_bytes for table in DIALECTS[self.server.engine].tables(connection)}
        return {name: known[name] for name in self.tables if name in known}


def _refuse_errors(sql: str, rows: Sequence[Sequence[Any]]) -> None:
    bad = [row for row in rows if len(row) == 4 and str(row[2]).lower() == "error"]
    if bad:
        raise DriverFailed(f"{sql}: {bad[0][3]}")


class StatementsLoad:
    """The steps. The untimed ones are what is waited for before the window; the timed ones begin with it."""

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(self, server: Server, clock: Clock, worker: _Worker, raw: Path) -> None:
        self.server, self.clock, self.worker, self.raw = server, clock, worker, raw
        self.begin_utc, self.ended = 0.0, False
        self._thread: threading.Thread | None = None

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Carry out the untimed steps. The same errors."""
        del second
        self._run(False, watch)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Carry out the timed steps. EngineDied, DriverFailed as soon as one statement fails."""
        self._run(True, watch)
        self.ended = True

    def _run(self, timed: bool, watch: Callable[[Live], None]) -> None:
        self.begin_utc, began, told = self.clock.now_utc(), time.monotonic(), -1
        self._thread = threading.Thread(target=self.worker.run, args=(timed,), name="statements", daemon=True)
        self._thread.start()
        while self._thread.is_alive():
            if not self.server.alive():
                raise self._fault(None)
            if (second := int(time.monotonic() - began)) > told:
                told = second
                watch(Live(second, None, None))
            self._thread.join(POLL_S)
        if self.worker.error is not None:
            raise self._fault(self.worker.error)

    def outcome(self) -> Outcome:
        """Seconds of the timed steps together, rows and bytes by them; each statement's time is in raw."""
        if not self.ended:
            raise DriverFailed("not all statements were carried out")
        whole = {"steps": [asdict(done) for done in self.worker.done]}
        (self.raw / "statements.json").write_text(json.dumps(whole, indent=1) + "\n")
        timed = [done for done in self.worker.done if done.timed]
        duration_s = sum(done.seconds for done in timed)
        rows, size = (_sum([getattr(done, name) for done in timed]) for name in ("rows", "bytes"))
        return Outcome(
            begin_utc=self.begin_utc,
            window_s=duration_s,
            transactions=sum(len(done.statements) for done in timed),
            errors=0,
            series=Series(math.ceil(duration_s), {name: [] for name in FIRST}),
            histogram=None,
            figures={
                "duration_s": duration_s,
                "rows_per_s": None if rows is None else rows / duration_s,
                "mb_per_s": None if size is None else size / 1e6 / duration_s,
            },
        )

    def cancel(self) -> None:
        """End the statement that is going on, so that nothing of it outlives the load."""
        self.worker.left = True
        if self._thread is not None and self._thread.is_alive():
            for session in self.worker.sessions:
                cancelled(self.server, session)
            self._thread.join(_CANCEL_S)

    def _fault(self, error: BaseException | None) -> BaseException:
        said = f'step "{self.worker.at}" failed: {str(error).strip()}' if error else f'in step "{self.worker.at}"'
        return fault(self.server, said, error)


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part]
    return sum(known) if len(known) == len(parts) and known else None
