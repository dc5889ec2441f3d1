"""insert: load a table, index it, then query it with sysbench next to inserts at a fixed rate, like
Small Datum's insert benchmark. A session that is late skips nothing, and so catches up after a
stall.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dbbench.drivers import sysbench
from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.drivers.sessions import SessionWork, cancel, carry_out, check, connect
from dbbench.drivers.tool import whole_seconds
from dbbench.engines import sql_of
from dbbench.engines.sql import rows_of
from dbbench.errors import DriverFailed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.table import INSERT_INDEXES
from dbbench.model import TrialWarning
from dbbench.results.fileio import write_json
from dbbench.units import number

TABLE: Final = "purchases"
COLUMNS: Final = (
    "id bigint NOT NULL PRIMARY KEY, customer integer NOT NULL, shop integer NOT NULL, price "
    "integer NOT NULL, note varchar(100) NOT NULL"
)
# Each query reads only one of these indexes; see workloads/insert_benchmark.lua.
INDEXES: Final = dict(
    zip(
        INSERT_INDEXES,
        ("price, customer", "shop, price, customer", "customer, price"),
        strict=True,
    )
)
# different values of a column
VALUES: Final = {
    "customers": 100_000,
    "shops": 1000,
    "prices": 1_000_000,
}
# random, written as 100 hexadecimal digits: half of the bytes remain after compression
NOTE_BITS: Final = 400
LOAD_ROWS: Final = 1000  # rows per INSERT of the load
LEAST: Final = 0.95  # share of the required rate, below which the step has failed
RATE: Final = "insert_rows_per_s"  # a metric, and the column of the series


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Load, index, then query and insert. See `protocol.Driver`."""
    with (
        connect(task.server, int(task.cell.parameters["writers"])) as sessions,
        contextlib.ExitStack() as stack,
    ):
        load = InsertLoad(task, sessions, stack)
        try:
            yield load
        finally:
            load.left.set()
            cancel(task.server, load.works)


def insert(first: int, rows: int, seed: int) -> str:
    """Return the INSERT of so many rows, numbered from `first`. The same arguments give the same
    rows.
    """
    rng = random.Random(f"{seed} {first}")
    values = []
    for key in range(first, first + rows):
        customer = rng.randint(1, VALUES["customers"])
        shop = rng.randint(1, VALUES["shops"])
        price = rng.randint(1, VALUES["prices"])
        note = f"{rng.getrandbits(NOTE_BITS):0{NOTE_BITS // 4}x}"
        values.append(f"({key},{customer},{shop},{price},'{note}')")
    return f"INSERT INTO {TABLE} (id, customer, shop, price, note) VALUES {','.join(values)}"


class InsertLoad:
    """The steps. Load and indexes come before the warm-up, queries and inserts start with it."""

    def __init__(
        self,
        task: LoadTask,
        sessions: list[Any],
        stack: contextlib.ExitStack,
    ) -> None:
        self.task = task
        self.sessions = sessions
        self.stack = stack
        parameters = task.cell.parameters
        self.rows = int(parameters["rows"])
        self.batch = int(parameters["batch"])
        self.rate = int(parameters["insert_rate"])
        self.warmup, self.measure = whole_seconds(task.cell.window)
        self.steps: dict[str, float] = {}  # seconds of the load and of each index
        self.inserted: list[float] = []  # when each batch was committed, UTC
        self.deleted = 0  # number of deleted batches
        self.queries: Load | None = None
        self.works: list[SessionWork] = []
        self.left = threading.Event()

    @property
    def pids(self) -> tuple[int, ...]:
        if self.queries is not None:
            return self.queries.pids
        return ()

    def wait_until(self, second: float, watch: Callable[[Live], None]) -> None:
        """`second` is of the queries' clock. Raises EngineDied, DriverFailed and what sysbench's
        load raises.
        """
        if self.queries is None:
            # In a thread, so that a deadline can end it.
            self.works = [SessionWork("loading", self.sessions[:1], self._load_and_index)]
            carry_out(
                self.task.server,
                self.works,
                lambda _: None,
            )
            self.queries = self._start()
        self.queries.wait_until(second, lambda live: self._pass_on(live, watch))

    def wait(self, watch: Callable[[Live], None]) -> None:
        """Block until queries and inserts have ended. Raises as `wait_until`."""
        assert self.queries is not None
        self.queries.wait(lambda live: self._pass_on(live, watch))
        for work in self.works:
            work.join()
        check(self.task.server, self.works)

    def _pass_on(self, live: Live, watch: Callable[[Live], None]) -> None:
        """Check the inserts, so that the load ends with the first one that fails."""
        check(self.task.server, self.works)
        watch(live)

    def outcome(self) -> Outcome:
        """Return the outcome of the queries with the figures of all steps; W153 if the rate was
        missed.
        """
        assert self.queries is not None
        outcome = self.queries.outcome()
        # The inserts, counted by the second in which they ended.
        batches = Counter(math.floor(utc - outcome.begin_utc) for utc in self.inserted)
        per_second: list[float | None] = [
            float(self.batch * batches[second]) for second in range(self.warmup + self.measure)
        ]
        outcome.series.set(RATE, per_second)
        in_window = sum(batches[self.warmup + second] for second in range(self.measure))
        achieved = self.batch * in_window / self.measure

        # The batches that were under way at the edges of the window do not decide.
        at_edges = self.batch * len(self.sessions) / self.measure
        failed = achieved + at_edges < LEAST * self.rate
        warnings = list(outcome.warnings)
        if failed:
            rates = f"{number(achieved)} rows/s were inserted, and {number(self.rate)} rows/s"
            warnings.append(TrialWarning("W153", f"{rates} are required"))
        figures = {
            "queries_per_s": None if failed else outcome.transactions / outcome.window_s,
            "load_rows_per_s": self.rows / self.steps["load"],
            **{f"index_{name}_s": self.steps[f"index_{name}"] for name in INDEXES},
            RATE: achieved,
            "required_rows_per_s": float(self.rate),
        }
        write_json(self.task.raw / "insert.json", {"seconds": self.steps, **figures})

        # Each statement is its own transaction.
        statements = sum(claim.total for claim in outcome.claims)
        statements += math.ceil(self.rows / LOAD_ROWS) + len(self.inserted) + self.deleted
        return replace(
            outcome,
            figures={**outcome.figures, **figures},
            warnings=tuple(warnings),
            claims=(
                Claim("statements", statements),
                Claim("rows", self.rows + self.batch * len(self.inserted)),
            ),
            commits=2 * in_window,
        )

    def _load_and_index(self) -> None:
        server = self.task.server
        session = self.sessions[0]
        rows_of(session, f"DROP TABLE IF EXISTS {TABLE}")
        rows_of(session, f"CREATE TABLE {TABLE} ({COLUMNS})")
        with self._time("load"):
            for first in range(1, self.rows + 1, LOAD_ROWS):
                if self.left.is_set():
                    raise DriverFailed("the load was stopped")
                rows = min(LOAD_ROWS, self.rows + 1 - first)
                rows_of(session, insert(first, rows, self.task.seed))
        for name, columns in INDEXES.items():
            with self._time(f"index_{name}"):
                rows_of(session, f"CREATE INDEX {TABLE}_by_{name} ON {TABLE} ({columns})")
        for statement in sql_of(server).finish(TABLE):
            rows_of(session, statement)
        server.settle()  # what load and indexes left to be written is no part of the next step

    @contextlib.contextmanager
    def _time(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.steps[step] = time.monotonic() - began

    def _start(self) -> Load:
        cell = self.task.cell
        parameters = {
            "clients": cell.parameters["clients"],
            **VALUES,
        }
        task = replace(self.task, cell=replace(cell, parameters=parameters))
        queries = self.stack.enter_context(sysbench.driving(task))
        began = time.monotonic()
        self.works = []
        for index, session in enumerate(self.sessions):
            write = partial(self._write, index, session, began)
            self.works.append(SessionWork("inserting", [session], write))
        for work in self.works:
            work.start()
        return queries

    def _write(
        self,
        index: int,
        session: Any,
        began: float,
    ) -> None:
        """Insert every batch of this session when it is due, and delete as many of the oldest rows."""
        seconds = self.warmup + self.measure
        for batch in itertools.count(index, len(self.sessions)):
            due = batch * self.batch / self.rate
            if due >= seconds or self.left.wait(max(0.0, began + due - time.monotonic())):
                return
            if time.monotonic() - began >= seconds:
                return  # late: the rest was due in the window, and is missing in it
            last = (batch + 1) * self.batch
            first = last - self.batch + 1
            rows_of(session, insert(self.rows + first, self.batch, self.task.seed))
            self.inserted.append(self.task.clock.now_utc())
            rows_of(session, f"DELETE FROM {TABLE} WHERE id BETWEEN {first} AND {last}")
            self.deleted += 1
