"""statements: a script of SQL steps, each of them timed: maintenance that a DBA waits for.

Untimed steps run first, before the window, followed by a checkpoint. Rows are those that the server counted (COPY, LOAD
DATA, INSERT ...), otherwise those of the dataset. Bytes are the size of the file of rows once for each table, otherwise
the logical size of the tables before or after, whichever is larger. Parameters: clients (sessions), file_bytes (of the
file of rows), tables; every other one is a `{name}` of the script.

A step begins with a line "-- step NAME" and attributes after semicolons: "on ENGINE ..." (default: all), "each table",
"untimed". Its statements follow, each ending with a semicolon at the end of a line. `{name}` is a parameter of the
workload, `{table}` the table's name, `{file}` the file of rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask, located
from dbbench.drivers.tool import POLL_S, cancelled, fault
from dbbench.engines import SERVERS, sql_of
from dbbench.engines.port import Server
from dbbench.errors import DriverFailed, ScriptInvalid
from dbbench.machine import threads
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Clock, Series
from dbbench.model import Cell, Scalar

_CANCEL_S: Final = 10.0
_READ: Final = 1 << 20  # bytes that the client reads and sends at a time
_HEADING: Final = re.compile(r"^-- step\b(.*)$", re.MULTILINE)
_END: Final = re.compile(r";[ \t]*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*$", re.MULTILINE)
_NAME: Final = re.compile(r"\{(\w+)\}")


def programs() -> tuple[str, ...]:
    """Return (): the sessions are dbbench's own."""
    return ()


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Run the script of the workload. See `protocol.Driver`."""
    path = located(task.cell.workload.script)
    (task.raw / "statements.sql").write_text(text := path.read_text(encoding="utf-8"))
    file = task.scratch / "rows.tsv"
    values = {**task.cell.dataset.parameters, **task.cell.workload.options, **task.cell.parameters, "file": file}
    try:
        steps = [step.of(values) for step in parse(text, task.server.engine)]
    except ScriptInvalid as error:
        error.where = str(path)
        raise
    sent = rows_written(file, int(task.cell.parameters["file_bytes"]), task.seed) if "file_bytes" in values else None
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(contextlib.closing(task.server.connect()))
            for _ in range(max(1, int(task.cell.parameters.get("clients", 1))))
        ]
        worker = _Worker(task, sessions, steps, sent)
        stack.callback(file.unlink, missing_ok=True)
        load = StatementsLoad(task.server, task.clock, worker, task.raw)
        try:
            yield load
        finally:
            load.cancel()


def dataset_rows(cell: Cell) -> int | None:
    """Return the rows per table of a generated dataset, or None if not known."""
    parameters = cell.dataset.parameters
    count = parameters.get("table_size" if cell.dataset.kind == "sysbench" else "rows")
    return int(count) if count else None


def _tables(server: Server, cell: Cell) -> list[str]:
    """Return the tables of the dataset; without one, those that the script makes itself: t1, t2 ..."""
    if cell.dataset.kind == "none":
        return [f"t{number}" for number in range(1, int(cell.parameters.get("tables", 1)) + 1)]
    with contextlib.closing(server.connect()) as connection:
        return [table.name for table in sql_of(server).tables(connection)]


@dataclass
class Done:
    """A completed step."""

    step: str
    timed: bool
    seconds: float
    rows: int | None = None
    bytes: int | None = None
    statements: list[dict[str, Any]] = field(default_factory=list)  # each with `sql`, `seconds`, `rows`


class _Worker:
    """Runs steps in sequence, and the statements of a step on several tables in parallel."""

    def __init__(self, task: LoadTask, sessions: list[Any], steps: list[SqlStep], sent: Sent | None) -> None:
        self.server, self.sessions, self.steps, self.sent = task.server, sessions, steps, sent
        self.tables, self.dataset_rows = _tables(task.server, task.cell), dataset_rows(task.cell)
        self.free: SimpleQueue[Any] = SimpleQueue()
        for session in sessions:
            self.free.put(session)
        self.done: list[Done] = []
        self.at = ""  # the current step
        self.left = False

    def run(self, timed: bool) -> None:
        """Run the timed steps, or the untimed ones and a checkpoint, so that their writes are not part of the first
        timed one."""
        steps = [step for step in self.steps if step.timed is timed]
        for step in steps:
            self._carry_out(step)
        if steps and not timed:
            self.server.checkpoint()

    def _carry_out(self, step: SqlStep) -> None:
        self.at = step.name
        before = self._sizes()
        began = time.monotonic()
        jobs = self.tables if step.each_table else [""]
        with ThreadPoolExecutor(len(self.sessions)) as pool:
            statements = [
                statement for several in pool.map(lambda table: self._one(step, table), jobs) for statement in several
            ]
        done = Done(step.name, step.timed, time.monotonic() - began, statements=statements)
        after = self._sizes()
        from_file = sum("file" in statement for statement in statements)
        rows = [statement["rows"] for statement in statements if statement["rows"]]
        done.rows = sum(rows) or (self.dataset_rows * len(jobs) if self.dataset_rows and step.each_table else None)
        done.bytes = (
            self.sent.bytes * from_file
            if self.sent and from_file
            else sum(max(before.get(name, 0), size) for name, size in after.items())
        )
        self.done.append(done)

    def _one(self, step: SqlStep, table: str) -> list[dict[str, Any]]:
        """Run the step's statements for one table, in one session."""
        session, plan_lines = self.free.get(), []
        try:
            for statement in step.statements:
                if self.left:
                    raise DriverFailed(f'step "{step.name}" was interrupted')
                sql = for_table(statement, table)
                began = time.monotonic()
                file, rows = self._executed(session, sql)
                plan_lines.append({"sql": sql, "seconds": time.monotonic() - began, "rows": rows,
                             **({"file": True} if file else {})})  # fmt: skip
        finally:
            self.free.put(session)
        return plan_lines

    def _executed(self, session: Any, sql: str) -> tuple[bool, int | None]:
        """Return (whether it read the file, rows that the server counted)."""
        with contextlib.closing(session.cursor()) as cursor:
            if self.sent is not None and sql.upper().startswith("COPY ") and "FROM STDIN" in sql.upper():
                with self.sent.path.open("rb") as rows:
                    cursor.copy_expert(sql, rows, _READ)
                return True, cursor.rowcount
            cursor.execute(sql)
            if cursor.description is not None:
                if wrong := sql_of(self.server).refused(cursor.fetchall()):
                    raise DriverFailed(f"{sql}: {wrong[0]}")
                return False, None
            return self.sent is not None and str(self.sent.path) in sql, max(0, cursor.rowcount)

    def _sizes(self) -> dict[str, int]:
        """Return logical bytes by table, without tables that do not exist yet."""
        with contextlib.closing(self.server.connect()) as connection:
            sizes = {table.name: table.size_bytes for table in sql_of(self.server).tables(connection)}
        return {name: sizes[name] for name in self.tables if name in sizes}


class StatementsLoad:
    """The steps. The untimed ones run before the window; the timed ones start with it."""

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(self, server: Server, clock: Clock, worker: _Worker, raw: Path) -> None:
        self.server, self.clock, self.worker, self.raw = server, clock, worker, raw
        self.begin_utc, self.ended = 0.0, False
        self._helper: threads.Helper | None = None

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Run the untimed steps. Raises as `wait`."""
        del second
        self._run(False, watch)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Run the timed steps. Raises EngineDied or DriverFailed as soon as one statement fails."""
        self._run(True, watch)
        self.ended = True

    def _run(self, timed: bool, watch: Callable[[Live], None]) -> None:
        self.begin_utc, began, shown_second = self.clock.now_utc(), time.monotonic(), -1
        self._helper = helper = threads.Helper("statements", self.worker.run, timed)
        helper.start()
        while helper.alive:
            if not self.server.alive():
                raise self._fault(None)
            if (second := int(time.monotonic() - began)) > shown_second:
                shown_second = second
                watch(Live(second, None, None))
            helper.join(POLL_S)
        if (error := helper.error()) is not None:
            raise self._fault(error)

    def outcome(self) -> Outcome:
        """Return the total time of the timed steps with rows and bytes per second; the times of statements
        are in raw."""
        if not self.ended:
            raise DriverFailed("not all statements were executed")
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
            claims=_claims([statement for done in timed for statement in done.statements]),
        )

    def cancel(self) -> None:
        """Cancel the running statement, so that it does not outlive the load."""
        self.worker.left = True
        if self._helper is not None and self._helper.alive:
            for session in self.worker.sessions:
                cancelled(self.server, session)
            self._helper.join(_CANCEL_S)

    def _fault(self, error: BaseException | None) -> BaseException:
        evidence = f'step "{self.worker.at}" failed: {str(error).strip()}' if error else f'in step "{self.worker.at}"'
        return fault(self.server, evidence, error)


def _claims(statements: Sequence[dict[str, Any]]) -> tuple[Claim, ...]:
    """Return the number of statements and of rows loaded from the file. A procedure may run further statements."""
    sent = sum(statement["rows"] or 0 for statement in statements if statement.get("file"))
    rows = (Claim("rows", total=sent),) if sent else ()
    return (Claim("statements", total=len(statements), custom=True), *rows)


def _sum(parts: Sequence[int | None]) -> int | None:
    measured = [part for part in parts if part]
    return sum(measured) if len(measured) == len(parts) and measured else None


@dataclass(frozen=True)
class SqlStep:
    """Some statements, which are timed together on all their tables."""

    name: str
    statements: tuple[str, ...]
    engines: tuple[str, ...] = SERVERS
    each_table: bool = False  # runs once per table, in as many sessions as there are clients
    timed: bool = True

    def of(self, values: Mapping[str, Scalar | Path]) -> SqlStep:
        """Return the step with every `{name}` except `{table}` filled in. Raises ScriptInvalid for an unknown name."""
        return replace(self, statements=tuple(_filled(statement, values, self.name) for statement in self.statements))


def for_table(statement: str, table: str) -> str:
    """Return the statement for one table."""
    return statement.replace("{table}", table)


def parse(text: str, engine: str) -> tuple[SqlStep, ...]:
    """Return the steps of one engine, in order. Raises ScriptInvalid."""
    head, *parts = _HEADING.split(text)
    if _COMMENT.sub("", head).strip():
        raise ScriptInvalid('SQL before the first line "-- step NAME"')
    steps = [_step(words, body) for words, body in zip(parts[::2], parts[1::2], strict=True)]
    of_engine = tuple(step for step in steps if engine in step.engines)
    if not any(step.timed for step in of_engine):
        raise ScriptInvalid(f"the script has no timed step for {engine}")
    untimed_after = [later for earlier, later in itertools.pairwise(of_engine) if earlier.timed and not later.timed]
    if untimed_after:
        raise ScriptInvalid(f'step "{untimed_after[0].name}" is untimed, but follows a timed step')
    return of_engine


def _step(words: str, body: str) -> SqlStep:
    name, *about = (word.strip() for word in words.strip().split(";"))
    statements = tuple(statement.strip() for statement in _END.split(_COMMENT.sub("", body)) if statement.strip())
    if not name or not statements:
        raise ScriptInvalid(f'step "{name}" has no {"name" if not name else "statement"}')
    step = SqlStep(name, statements)
    for word in about:
        if word.startswith("on "):
            engines = tuple(word.split()[1:])
            if unknown := [statement for statement in engines if statement not in SERVERS]:
                raise ScriptInvalid(f'step "{name}" names the unknown engine "{unknown[0]}"')
            step = replace(step, engines=engines)
        elif word == "each table":
            step = replace(step, each_table=True)
        elif word == "untimed":
            step = replace(step, timed=False)
        else:
            raise ScriptInvalid(f'step "{name}": unknown word "{word}"; use "on ENGINE", "each table" or "untimed"')
    return step


def _filled(statement: str, values: Mapping[str, Scalar | Path], step: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "table":
            return match[0]
        if match[1] not in values:
            raise ScriptInvalid(f'step "{step}": {match[0]} is not a parameter of the workload')
        return str(values[match[1]])

    return _NAME.sub(value, statement)


@dataclass(frozen=True)
class Sent:
    """The file: rows of (id, k, body), ids from 1."""

    path: Path
    rows: int
    bytes: int


def rows_written(path: Path, size_bytes: int, seed: int) -> Sent:
    """Write whole rows of at least `size_bytes`. The same seed and size give the same bytes. At least 30 MB/s."""
    words, rows, size = pool(seed), 0, 0
    with path.open("w", encoding="ascii") as file:
        while size < size_bytes:
            rows += 1
            # 7919 is a prime, so that neighbouring rows use different texts; the hash makes every row unique.
            mark = hashlib.sha256(b"%d" % rows).hexdigest()[:32]
            size += file.write(f"{rows}\t{rows * 48271 % 10000}\t{words[rows * 7919 % POOL_ROWS]} {mark}\n")
    return Sent(path, rows, size)


POOL_ROWS: Final = 1024  # number of different texts; in all 200 kB, more than any filesystem's compression window


def pool(seed: int) -> list[str]:
    """Return POOL_ROWS different texts of at most 170 characters (Zipf)."""
    rng = random.Random(seed)
    letters, weights = "etaoinshrdlucmfwypvbgk", [1 / (rank + 2) for rank in range(22)]
    words = ["".join(rng.choices(letters, weights, k=rng.randint(2, 9))) for _ in range(2000)]
    frequencies = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(rng.choices(words, frequencies, k=40))[:170] for _ in range(POOL_ROWS)]
