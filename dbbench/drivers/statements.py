"""statements: SQL steps, each timed (docs/workloads.md). Untimed steps run before the window, then
a checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from dbbench.drivers.protocol import Live, Load, LoadTask, locate
from dbbench.drivers.sessions import SessionWork, cancel, carry_out, connect
from dbbench.drivers.tool import whole_outcome
from dbbench.engines import SERVERS, sql_of
from dbbench.errors import DriverFailed, ScriptInvalid
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.model import Json, Scalar
from dbbench.results.fileio import write_json

# number of different texts; in all 200 kB, more than any filesystem's compression window
POOL_ROWS: Final = 1024
_READ: Final = 1 << 20  # bytes that the client reads and sends at a time
_HEADING: Final = re.compile(r"^-- step\b(.*)$", re.MULTILINE)
_END: Final = re.compile(r";[ \t]*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*$", re.MULTILINE)
_NAME: Final = re.compile(r"\{(\w+)\}")


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Run the script of the workload. See `protocol.Driver`."""
    cell = task.cell
    # The script with the values of the plan, as steps.
    path = locate(cell.workload.script)
    text = path.read_text(encoding="utf-8")
    (task.raw / "statements.sql").write_text(text)
    file = task.scratch / "rows.tsv"
    values = {
        **cell.dataset.parameters,
        **cell.values,
        "file": file,
    }
    try:
        steps = [step.of(values) for step in parse(text, task.server.engine)]
    except ScriptInvalid as error:
        error.where = str(path)
        raise
    # Rows that the client sends are in a file before the load begins.
    sent_bytes = 0
    if "file_bytes" in values:
        sent_bytes = write_rows(
            file,
            int(cell.parameters["file_bytes"]),
            task.seed,
        )
    # All sessions are open before the first statement is timed.
    with connect(task.server, max(1, int(cell.parameters.get("clients", 1)))) as sessions:
        load = StatementsLoad(
            task,
            sessions,
            steps,
            file,
            sent_bytes,
        )
        try:
            yield load
        finally:
            load.left = True
            cancel(task.server, load.works)
            file.unlink(missing_ok=True)


@dataclass
class Done:
    """A completed step."""

    step: str
    timed: bool
    seconds: float
    rows: int | None
    bytes: int | None
    statements: list[Json]  # each with `sql`, `seconds`, `rows`


class StatementsLoad:
    """The steps, in sequence; the statements of a step run on several tables in parallel."""

    pids: tuple[int, ...] = ()  # the sessions are threads of this process

    def __init__(
        self,
        task: LoadTask,
        sessions: Sequence[Any],
        steps: Sequence[SqlStep],
        file: Path,
        sent_bytes: int,
    ) -> None:
        """`file` has so many bytes of generated rows; 0: there is none."""
        self.task = task
        self.server = task.server
        self.steps = steps
        self.file = file
        self.sent_bytes = sent_bytes
        self.sessions = sessions
        self.free = SimpleQueue[Any]()
        for session in sessions:
            self.free.put(session)
        if task.cell.dataset.kind == "none":  # those that the script makes itself
            count = int(task.cell.parameters.get("tables", 1))
            self.tables = [f"t{number}" for number in range(1, count + 1)]
        else:
            self.tables = list(self._all_sizes())
        self.done: list[Done] = []
        self.begin_utc = 0.0
        self.ended = False
        self.left = False
        self.works: list[SessionWork] = []

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """Run the untimed steps, and a checkpoint, so that their writes are not part of the first
        timed one.
        """
        del second
        self._carry_out(False, watch)

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Run the timed steps. Raises EngineDied or DriverFailed as soon as one statement fails."""
        self._carry_out(True, watch)
        self.ended = True

    def _carry_out(self, timed: bool, watch: Callable[[Live], None]) -> None:
        self.begin_utc = self.task.clock.now_utc()
        run = partial(self._run, timed)
        self.works = [SessionWork("the statements", self.sessions, run)]
        carry_out(self.server, self.works, watch)

    def _run(self, timed: bool) -> None:
        steps = [step for step in self.steps if step.timed is timed]
        for step in steps:
            self._run_step(step)
        if steps and not timed:
            self.server.checkpoint()

    def _run_step(self, step: SqlStep) -> None:
        self.works[0].what = f'step "{step.name}"'
        before = self._sizes()
        began = time.monotonic()
        tables = self.tables if step.each_table else [""]
        with ThreadPoolExecutor(self.free.qsize()) as pool:
            of_tables = pool.map(lambda table: self._run_on(step, table), tables)
            statements = list(itertools.chain.from_iterable(of_tables))
        seconds = time.monotonic() - began

        # Rows that the server counted; otherwise all rows of the tables, if it worked on each.
        rows = sum(statement["rows"] or 0 for statement in statements)
        if not rows and step.each_table:
            dataset = self.task.cell.dataset
            name = "table_size" if dataset.kind == "sysbench" else "rows"
            rows = int(dataset.parameters.get(name, 0)) * len(tables)

        # Bytes that were sent; otherwise the tables' size, before or after.
        from_file = sum("file" in statement for statement in statements)
        size = self.sent_bytes * from_file
        if not size:
            after = self._sizes()
            size = sum(max(before.get(name, 0), after[name]) for name in after)
        self.done.append(Done(step.name, step.timed, seconds, rows or None, size, statements))

    def _run_on(self, step: SqlStep, table: str) -> list[Json]:
        session = self.free.get()
        lines = []
        try:
            for statement in step.statements:
                if self.left:
                    raise DriverFailed(f'step "{step.name}" was interrupted')
                sql = statement.replace("{table}", table)
                began = time.monotonic()
                file, rows = self._execute(session, sql)
                line = {
                    "sql": sql,
                    "seconds": time.monotonic() - began,
                    "rows": rows,
                }
                if file:
                    line["file"] = True
                lines.append(line)
        finally:
            self.free.put(session)
        return lines

    def _execute(self, session: Any, sql: str) -> tuple[bool, int | None]:
        """Return (whether it read the file, rows that the server counted)."""
        with contextlib.closing(session.cursor()) as cursor:
            words = sql.upper()
            if self.sent_bytes and words.startswith("COPY ") and "FROM STDIN" in words:
                with self.file.open("rb") as rows:
                    cursor.copy_expert(sql, rows, _READ)
                return True, cursor.rowcount
            cursor.execute(sql)
            if cursor.description is None:
                from_file = self.sent_bytes > 0 and str(self.file) in sql
                return from_file, max(0, cursor.rowcount)
            refusals = sql_of(self.server).refusals(cursor.fetchall())
            if refusals:
                raise DriverFailed(f"{sql}: {refusals[0]}")
            return False, None

    def _all_sizes(self) -> dict[str, int]:
        with contextlib.closing(self.server.connect()) as connection:
            tables = sql_of(self.server).tables(connection)
        return {table.name: table.size_bytes for table in tables}

    def _sizes(self) -> dict[str, int]:
        """Return logical bytes by table of the load, without those that do not exist yet."""
        sizes = self._all_sizes()
        return {name: sizes[name] for name in self.tables if name in sizes}

    def outcome(self) -> Outcome:
        """Return the total of the timed steps, with rows and bytes per second; times of statements
        are in raw.
        """
        if not self.ended:
            raise DriverFailed("not all statements were executed")
        steps = [asdict(done) for done in self.done]
        write_json(self.task.raw / "statements.json", {"steps": steps})
        # Steps that prepare are not part of the rate.
        timed = [done for done in self.done if done.timed]
        duration_s = sum(done.seconds for done in timed)
        rows = _sum_if_all(done.rows for done in timed)
        size = _sum_if_all(done.bytes for done in timed)
        figures = {
            "duration_s": duration_s,
            "rows_per_s": None if rows is None else rows / duration_s,
            "mb_per_s": None if size is None else size / 1e6 / duration_s,
        }

        # The server may count more statements: a procedure may run further ones.
        count = 0
        loaded = 0
        for done in timed:
            count += len(done.statements)
            loaded += sum(line["rows"] or 0 for line in done.statements if "file" in line)
        claims = [Claim("statements", total=count, custom=True)]
        if loaded:
            claims.append(Claim("rows", total=loaded))
        return whole_outcome(
            self.begin_utc,
            duration_s,
            figures,
            transactions=count,
            claims=tuple(claims),
        )


def _sum_if_all(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if one of them is missing or 0, or if there are none."""
    total = 0
    for number in numbers:
        if not number:
            return None
        total += number
    return total or None


@dataclass(frozen=True)
class SqlStep:
    """Some statements, which are timed together on all their tables."""

    name: str
    statements: tuple[str, ...]
    engines: tuple[str, ...] = SERVERS
    each_table: bool = False  # runs once per table, in as many sessions as there are clients
    timed: bool = True

    def of(self, values: Mapping[str, Scalar | Path]) -> SqlStep:
        """Return the step with every `{name}` except `{table}` filled in. Raises ScriptInvalid for
        an unknown name.
        """
        statements = tuple(_fill(statement, values, self.name) for statement in self.statements)
        return replace(self, statements=statements)


def parse(text: str, engine: str) -> tuple[SqlStep, ...]:
    """Return the steps of one engine, in order. Raises ScriptInvalid."""
    head, *parts = _HEADING.split(text)
    if _COMMENT.sub("", head).strip():
        raise ScriptInvalid('SQL before the first line "-- step NAME"')
    steps = [_step(words, body) for words, body in zip(parts[::2], parts[1::2], strict=True)]
    of_engine = tuple(step for step in steps if engine in step.engines)
    if not any(step.timed for step in of_engine):
        raise ScriptInvalid(f"the script has no timed step for {engine}")
    for earlier, later in itertools.pairwise(of_engine):
        if earlier.timed and not later.timed:
            raise ScriptInvalid(f'step "{later.name}" is untimed, but follows a timed step')
    return of_engine


def _step(words: str, body: str) -> SqlStep:
    name, *keywords = [word.strip() for word in words.split(";")]
    statements = [statement.strip() for statement in _END.split(_COMMENT.sub("", body))]
    step = SqlStep(name, tuple(filter(None, statements)))
    if not name or not step.statements:
        raise ScriptInvalid(f'step "{name}" has no {"statement" if name else "name"}')
    for word in keywords:
        if word.startswith("on "):
            engines = tuple(word.split()[1:])
            unknown = [engine for engine in engines if engine not in SERVERS]
            if unknown:
                raise ScriptInvalid(f'step "{name}" names the unknown engine "{unknown[0]}"')
            step = replace(step, engines=engines)
        elif word == "each table":
            step = replace(step, each_table=True)
        elif word == "untimed":
            step = replace(step, timed=False)
        else:
            raise ScriptInvalid(
                f'step "{name}": unknown keyword "{word}"; use "on ENGINE", "each table" or '
                '"untimed"'
            )
    return step


def _fill(
    statement: str,
    values: Mapping[str, Scalar | Path],
    step: str,
) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "table":
            return match[0]
        if name not in values:
            raise ScriptInvalid(f'step "{step}": {match[0]} is not a parameter of the workload')
        return str(values[name])

    return _NAME.sub(value, statement)


def write_rows(path: Path, size_bytes: int, seed: int) -> int:
    """Write rows of (id, k, body), ids from 1, of at least `size_bytes`; return their bytes. The
    same arguments give the same rows. At least 30 MB/s.
    """
    words = pool(seed)
    rows = 0
    size = 0
    with path.open("w", encoding="ascii") as file:
        while size < size_bytes:
            rows += 1
            # 7919 is a prime, so that neighbouring rows use different texts; the hash makes every
            # row unique.
            mark = hashlib.sha256(b"%d" % rows).hexdigest()[:32]
            text = words[rows * 7919 % POOL_ROWS]
            size += file.write(f"{rows}\t{rows * 48271 % 10000}\t{text} {mark}\n")
    return size


def pool(seed: int) -> list[str]:
    """Return POOL_ROWS different texts of at most 170 characters (Zipf)."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgk"
    weights = [1 / (rank + 2) for rank in range(len(letters))]
    words = []
    for _ in range(2000):
        length = rng.randint(2, 9)
        words.append("".join(rng.choices(letters, weights, k=length)))
    frequencies = [1 / (rank + 1) for rank in range(len(words))]
    texts = []
    for _ in range(POOL_ROWS):
        text = " ".join(rng.choices(words, frequencies, k=40))
        texts.append(text[:170])
    return texts
