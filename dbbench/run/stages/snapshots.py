"""Snapshots during the load: a thread takes them, starts a second server on the newest and queries
it. These servers are not in the trial's control group, to take no memory from the load; sharing
its CPUs and disk is what is measured.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final

from dbbench import process
from dbbench.engines import profile_of, sql_of
from dbbench.engines.port import Server
from dbbench.engines.sql import rows_of
from dbbench.errors import DbbenchError, client_error
from dbbench.machine import threads
from dbbench.metrics import summary
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Column
from dbbench.model import SnapshotFacts, SnapshotSpec, SnapshotTaken, TrialWarning, Window
from dbbench.operations import StoredDatabase
from dbbench.operations.copies import REFLINK
from dbbench.storage.filesystems import volumes
from dbbench.storage.filesystems.family import Snapshots

_FIRST: Final = "1"  # tag of the first snapshot
# Least number of seconds with, and of seconds without, a snapshot; a mean of fewer scatters too
# much.
LEAST_SECONDS: Final = 3
RATES: Final = ("tps", "apply_kb_per_s")


def beside_load(
    plan: SnapshotSpec | None,
    filled: StoredDatabase,
    server: Server,
    now_utc: Callable[[], float],
) -> AbstractContextManager[SnapshotSchedule | None]:
    """Take the plan's snapshots within the block, then drop them. `fault`: why not; the load's
    results are valid.
    """
    if plan is None:
        return contextlib.nullcontext()
    how = way(filled, server)
    why = lacks(how, filled)
    if not profile_of(server.engine).has_server:
        why = "this engine has no server that could be started on a copy"
    if why is not None:
        return contextlib.nullcontext(SnapshotSchedule(plan, filled, how, now_utc, fault=why))
    return taking(plan, filled, how, now_utc)


def way(filled: StoredDatabase, server: Server) -> Snapshots:
    """Return the snapshots of the filesystem or of the layer below; otherwise reflinks, if the
    server supports them.
    """
    return volumes.snapshots_of(filled.setup) or replace(REFLINK, server=server)


def lacks(how: Snapshots, filled: StoredDatabase) -> str | None:
    """Return why no snapshot is possible while a server runs, or None."""
    why = replace(filled, tag=_FIRST).obstacle(how)
    if why is None or volumes.snapshots_of(filled.setup) is not None:
        return why
    return f"{filled.no_snapshots}; {why}"


@contextlib.contextmanager
def taking(
    plan: SnapshotSpec,
    filled: StoredDatabase,
    how: Snapshots,
    now_utc: Callable[[], float],
) -> Iterator[SnapshotSchedule]:
    """Take snapshots within the block; then complete one in progress, read the space of the kept
    ones, and drop all.
    """
    taking = SnapshotSchedule(plan, filled, how, now_utc)
    try:
        with threads.beside("snapshots", taking.work):
            yield taking
    finally:
        taking.end()


@dataclass
class SnapshotSchedule:
    """The work of the thread, and its observations. `fault` is why it ended early, or did not
    begin.
    """

    plan: SnapshotSpec
    filled: StoredDatabase
    how: Snapshots
    now_utc: Callable[[], float]
    fault: str = ""
    taken: list[SnapshotTaken] = field(default_factory=list)
    late: int = 0
    # (index in `taken`, snapshot)
    kept: list[tuple[int, StoredDatabase]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = "" if self.fault else self.how.name

    @property
    def facts(self) -> SnapshotFacts:
        return SnapshotFacts(
            self.plan.every_s,
            self.plan.keep,
            self.name,
            note=self.fault,
            taken=tuple(self.taken),
        )

    @property
    def warnings(self) -> Iterator[TrialWarning]:
        if self.fault:
            yield TrialWarning("W108", self.fault)
        if self.late:
            longer = f"{self.late} of {len(self.taken)} took longer than {self.plan.every_s:g} s"
            yield TrialWarning("W108", f"{longer}, so the next one started late")

    def end(self) -> None:
        with self._note_error("dropping them"):
            for number, copy in self.kept:
                if number < len(self.taken):
                    held = self.how.taken_bytes(copy)
                    self.taken[number] = replace(self.taken[number], bytes=held)
        for _number, copy in self.kept:
            with self._note_error("dropping one"):
                self.how.drop(copy)

    def work(self, ended: threading.Event) -> None:
        """Take snapshots until `ended` is set; one in progress is completed first."""
        due = time.monotonic() + self.plan.every_s
        # its servers are outside the trial's control group
        with process.placing({}), self._note_error("a snapshot"):
            while not ended.wait(max(0.0, due - time.monotonic())):
                self._turn()
                due += self.plan.every_s
                if time.monotonic() > due:
                    self.late += 1
                    due = time.monotonic()

    def _turn(self) -> None:
        number = len(self.taken)
        tagged = replace(self.filled, tag=str(number + 1))
        begin_utc = self.now_utc()
        began = time.monotonic()
        # before it is taken, so that `end` also drops one that failed half-way
        self.kept.append((number, tagged))
        self.how.snapshot(tagged)
        snapshot_s = time.monotonic() - began
        began = time.monotonic()
        # A second server must be able to use it.
        with self.how.clone(tagged) as datadir, tagged.serving_copy(datadir) as server:
            text = query(server)
            ready_s = time.monotonic() - began
        drop_s = None
        # The oldest one goes when there are more than the plan keeps.
        if len(self.kept) > self.plan.keep:
            began = time.monotonic()
            self.how.drop(self.kept[0][1])
            del self.kept[0]
            drop_s = time.monotonic() - began
        end_utc = self.now_utc()
        taken = SnapshotTaken(begin_utc, end_utc, snapshot_s, ready_s, drop_s, text=text)
        self.taken.append(taken)

    @contextlib.contextmanager
    def _note_error(self, what: str) -> Iterator[None]:
        """End the snapshots, but not the load, after an error of filesystem, tool or server; others
        fail the trial.
        """
        try:
            yield
        except Exception as error:
            if not (isinstance(error, DbbenchError | OSError) or client_error(error)):
                raise
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, DbbenchError):
                reason = error.evidence
            self.fault = self.fault or f"{what} failed after {len(self.taken)} snapshots: {reason}"


def query(server: Server) -> str:
    """Query the copy: count the rows of its smallest table that is not empty."""
    with contextlib.closing(server.connect()) as connection:
        sql = sql_of(server)
        tables = [table for table in sql.tables(connection) if table.size_bytes]
        if not tables:
            return "no table"
        name = min(tables, key=lambda table: (table.size_bytes, table.name)).name
        count = rows_of(connection, f"SELECT COUNT(*) FROM {sql.quote(name)}")[0][0]
        return f"{name}: {count} rows"


def with_cost(
    facts: SnapshotFacts,
    outcome: Outcome,
    window: Window,
) -> SnapshotFacts:
    """Return the facts with times since the start of the load, and its rates with and without a
    snapshot.
    """
    begin = outcome.begin_utc
    series = outcome.series

    # The seconds of the load in which a snapshot was taken.
    shifted = []
    busy = set[int]()
    for snapshot in facts.taken:
        at_s = round(snapshot.at_s - begin, 3)
        until_s = round(snapshot.until_s - begin, 3)
        shifted.append(replace(snapshot, at_s=at_s, until_s=until_s))
        busy.update(range(math.floor(at_s), math.ceil(until_s)))
    facts = replace(facts, taken=tuple(shifted))

    # The first rate that was measured, in these seconds and in others.
    rates: Column = []
    for name in RATES:
        if name in series and any(value is not None for value in series[name]):
            rates = series[name]
            break
    if window.kind != "fixed" and None in rates[: int(outcome.window_s)]:
        # If log arrives in batches, the rate of a second depends more on the batch than on a
        # snapshot.
        return facts
    first = round(window.warmup_s) if window.kind == "fixed" else 0
    within = list[float]()
    others = list[float]()
    for second, rate in enumerate(summary.measured_seconds(window, rates), first):
        if rate is not None:
            (within if second in busy else others).append(rate)
    if min(len(within), len(others)) < LEAST_SECONDS:
        return facts
    inner = statistics.fmean(within)
    outer = statistics.fmean(others)
    ratio = inner / outer if outer else None
    return replace(
        facts,
        rate_within=inner,
        rate_beside=outer,
        cost_ratio=ratio,
    )
