"""Compare the load generator's counts with those of the server, of the kernel and of the trial's
devices. A trial fails (E352) if the server counted far less or more, if far fewer flushes or bytes
of log were written than its commits need, or if the devices transferred almost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dbbench import durability
from dbbench.errors import WorkUnconfirmed
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.model import WORK_KINDS, Cell, Durability, TrialWarning, WorkFacts
from dbbench.run.meter import Readings

# Measured on ext4, xfs and btrfs with PostgreSQL 15 and MariaDB 10.11. Each ratio is the server's
# count ÷ that of the load generator: its lower bound, and the upper one or None.
BOUNDS: Final[dict[str, tuple[float, float | None]]] = {
    # Measured: 1.00, plus up to 100 transactions of dbbench, of autovacuum and of sessions that
    # prepare statements. A ratio above 1.5 means that another client used the server.
    "transactions": (0.95, 1.5),
    "statements": (0.95, 1.5),
    # A script may do nothing in many of its transactions, or commit several times in one. A count
    # near zero means that the load did not run.
    "custom": (0.1, None),
    # The server counts exactly the rows that a session has inserted.
    "rows": (0.95, None),
    # Rows of bundled scripts. Measured: 1.00 of those inserted, updated and deleted; an aborted
    # transaction counts too.
    "updated": (0.9, 1.5),
    "deleted": (0.9, 1.5),
    # A row takes a page of its table, and those of an index.
    "read": (0.9, None),
    # Of the pages that uniformly chosen rows lie on, a server that starts with an empty cache reads
    # each at least once; the number of rows per page is an estimate.
    "pages": (0.5, None),
    # Every page of a table is read once; InnoDB's size of a table includes pages that have never
    # had a row.
    "table_bytes": (0.5, None),
    # System calls are counted exactly. dbbench's reads of /proc are added.
    "read_bytes": (0.95, None),
    "write_bytes": (0.95, None),
}
AROUND: Final = 1000  # transactions of dbbench itself and of autovacuum; 25 were measured
# Transactions of a session that prepares its statements, per table; 9 were measured with
# oltp_read_write.
PREPARED: Final = 20
# One flush serves the commits that wait for it, at most one of each client, and on average not many
# more than transactions are in progress at once. Measured: at most 2.3 commits per flush with 4
# clients, 7.3 with 32, 2.8 with 64. The rest of the slack is for transactions that were counted
# twice (subtransactions). With a binary log a commit waits for two flushes, one after the other: of
# the redo log and of the binary log. The kernel may merge flushes of different commits that are in
# progress at once, which the slack allows for too.
FLUSH_SLACK: Final = 4
# Transactions of the server itself: under a read-only load, MariaDB's count of writes grew by 2.
BACKGROUND: Final = 100
# Least bytes of log per commit. PostgreSQL's commit record has 34 bytes, its smallest change 54;
# measured were at least 340 per commit, and 450 with MariaDB.
LOG_PER_COMMIT: Final = 32
LOG_PER_CHANGE: Final = 64
# Least bytes of binary log per commit: its begin and end events alone have 42 and 31.
BINLOG_PER_COMMIT: Final = 64
# Bytes from which the devices must confirm what a load or a server wrote or read: below, metadata
# and a filesystem's own writes are as large.
CERTAIN: Final = 16 * 2**20
# Bytes of log, all different, for one byte of the device: btrfs compresses zeros to 1/32.
LOG_COMPRESSED: Final = 50
# The same for files and pages that are written again before they reach the device, and for the
# kernel's count: a write call of 4 KiB may dirty a folio of 2 MiB.
AGAIN: Final = 1000
# What programs read of themselves, which are on another disk; Python with numpy: 40 MB.
PROGRAMS: Final = 128 * 2**20
# Of the bytes of its files, the part that a load on them makes dirty at least.
DIRTIED: Final = 100


def compare(
    claims: tuple[Claim, ...],
    readings: Readings,
    cell: Cell,
) -> tuple[WorkFacts, ...]:
    """Return every claim of the load generator with the other count and its bounds."""
    # Each claim with the count of the server or of the kernel.
    work = readings.work(explicit(claims))
    facts = []
    for claim in claims:
        counted = getattr(work, claim.count) if claim.counted else None
        facts.append(_fact(claim, counted, cell))
    # what a transaction of a user's script does is only compared between setups
    for claim in claims:
        if not claim.custom:
            continue
        for kind in WORK_KINDS:
            rows = getattr(work, kind)
            if rows is not None:
                facts.append(WorkFacts(kind, round(claim.total), rows))
    return tuple(facts)


def _clients(cell: Cell) -> int:
    writers = int(cell.parameters["writers"]) if cell.workload.driver == "insert" else 0
    return max(1, int(cell.parameters.get("clients", 1))) + writers


def explicit(claims: tuple[Claim, ...]) -> bool:
    """Whether the load ends each of its transactions with COMMIT or ROLLBACK."""
    return any(claim.count == "transactions" for claim in claims)


def _fact(claim: Claim, counted: int | None, cell: Cell) -> WorkFacts:
    if counted is None:
        return WorkFacts(claim.count, round(claim.total), None)
    least_ratio, most_ratio = BOUNDS["custom" if claim.custom else claim.count]
    least = math.floor(least_ratio * claim.total)
    most = None
    # Autovacuum of a user's many tables, or a statement that runs next to the load, may have any
    # number of transactions.
    if most_ratio is not None and cell.dataset.kind != "source" and not cell.workload.during:
        tables = cell.parameters.get("tables", cell.dataset.parameters.get("tables", 1))
        sessions = _clients(cell) * (tables if isinstance(tables, int) else 1)
        most = math.ceil(most_ratio * claim.total) + AROUND + PREPARED * sessions
    return WorkFacts(claim.count, round(claim.total), counted, least, most)


def _in_progress(outcome: Outcome, cell: Cell) -> float:
    """Return how many transactions may wait for the same flush: at most one of each client. With a
    rate or think times most clients are idle (Little's law).
    """
    clients = _clients(cell)
    mean_ms = outcome.histogram.mean_ms if outcome.histogram else None
    if mean_ms is None or cell.workload.driver == "insert":  # its writers have no latencies
        return clients
    return min(clients, 1 + outcome.transactions * mean_ms / 1000 / outcome.window_s)


def flushes(
    outcome: Outcome,
    readings: Readings,
    cell: Cell,
    flags: tuple[Durability, ...],
    logs: int,
) -> Iterator[WorkFacts]:
    """Yield the flushes that commits needed, if promised and counted. `logs`: the logs that each
    commit flushes.
    """
    writes = readings.writes(explicit(outcome.claims))
    counted = readings.disks.io.flushes
    if not writes or counted is None or not logs or not durability.needs_flushes(flags):
        return
    least = math.floor(logs * (writes - BACKGROUND) / (_in_progress(outcome, cell) * FLUSH_SLACK))
    yield WorkFacts("flushes", writes, counted, max(0, least))


def log(
    outcome: Outcome,
    facts: tuple[WorkFacts, ...],
    readings: Readings,
) -> Iterator[WorkFacts]:
    """Yield the bytes of log and binary log of the commits that the server counted, or of changed
    rows.
    """
    work = readings.work(explicit(outcome.claims))
    if not outcome.claims or work.log_bytes is None:
        return
    commits = max(0, (work.writes or 0) - BACKGROUND)
    # The facts of the claims come first; those of a user's script by kind have no claim.
    changed = 0
    for claim, fact in zip(outcome.claims, facts, strict=False):
        if claim.changes:
            changed = max(changed, fact.least or 0)
    least = max(LOG_PER_COMMIT * commits, LOG_PER_CHANGE * changed)
    if not least:
        return
    yield WorkFacts("log_bytes", work.writes, work.log_bytes, least)
    if work.binlog_bytes is not None:
        least = BINLOG_PER_COMMIT * max(commits, changed)
        yield WorkFacts("binlog_bytes", work.writes, work.binlog_bytes, least)


class DataSizes(NamedTuple):
    """Bytes of the dataset that no cache had when the load began, and of the files at the end; 0: a
    load removes what it wrote, and has written each byte at most twice.
    """

    cold: int
    files: int


def device(
    outcome: Outcome,
    readings: Readings,
    cached_by_kernel: bool,
    sizes: DataSizes,
) -> Iterator[WorkFacts]:
    """Yield the bytes that the trial's devices must have transferred between the start of the load
    and the end of the drain, without those that a cache, a removed file or compression may have
    saved; and what a load on files must have written to any disk. `cached_by_kernel`: the
    kernel's counts of a process's disk I/O hold for this filesystem.
    """
    if readings.bench.elsewhere:
        return
    claimed = {claim.count: round(claim.total) for claim in outcome.claims}
    log_bytes = readings.work(explicit(outcome.claims)).log_bytes or 0
    written = {"log": (log_bytes, LOG_COMPRESSED)}
    read = {"tables": (min(claimed.get("table_bytes", 0), sizes.cold), AGAIN)}
    stored = readings.processes.stored
    if stored is not None and cached_by_kernel:
        calls = claimed.get("write_bytes", 0)
        reached = min(calls, max(0, stored.dirtied - stored.cancelled))
        written["files"] = (reached, AGAIN)
        read_calls = claimed.get("read_bytes", 0)
        read["files"] = (min(read_calls, max(0, stored.read - PROGRAMS)), AGAIN)
        # A filesystem in memory has no pages that become dirty for a disk.
        distinct = min(calls, sizes.files or calls // 2)
        if distinct >= CERTAIN:
            yield WorkFacts("dirtied_bytes", calls, stored.dirtied, distinct // DIRTIED)
    for count, sources, counted in (
        ("device_write_bytes", written, readings.device_write_bytes),
        ("device_read_bytes", read, readings.device_read_bytes),
    ):
        for size, share in sources.values():
            if counted is not None and size >= CERTAIN:
                yield WorkFacts(count, size, counted, size // share)


def list_uncertain(facts: tuple[WorkFacts, ...]) -> Iterator[TrialWarning]:
    """Yield W150 for the counts without another one to compare with."""
    uncounted = [fact.count for fact in facts if fact.counted is None]
    if uncounted:
        names = ", ".join(WORK_KINDS.get(count, count) for count in uncounted)
        text = f"{names}: neither the server nor the kernel counts them here"
        yield TrialWarning("W150", text)


def check(
    facts: Sequence[WorkFacts],
    outcome: Outcome,
    cell: Cell,
) -> Iterator[TrialWarning]:
    """Raise WorkUnconfirmed for a count outside its bounds; yield W151 instead if the commits may
    concern temporary or unlogged tables, which need neither log nor flush: in a script or a
    database that dbbench did not make.
    """
    foreign = cell.dataset.kind == "source" or any(claim.custom for claim in outcome.claims)
    for fact in filter(_outside, facts):
        if not (foreign and fact.count in ("flushes", "log_bytes", "binlog_bytes")):
            raise WorkUnconfirmed(_text(fact))
        yield TrialWarning("W151", _text(fact))


def _outside(fact: WorkFacts) -> bool:
    if fact.counted is None:
        return False
    few = fact.least is not None and fact.counted < fact.least
    return few or (fact.most is not None and fact.counted > fact.most)


def _text(fact: WorkFacts) -> str:
    bounds = f"expected at least {fact.least}"
    if fact.most is not None:
        bounds += f" and at most {fact.most}"
    # Some counts have units or words of their own.
    if fact.count == "flushes":
        return f"{fact.counted} device flushes for {fact.claimed} commits; {bounds}"
    if fact.count in ("log_bytes", "binlog_bytes"):
        log = "log" if fact.count == "log_bytes" else "binary log"
        return f"{fact.counted} bytes of {log} for {fact.claimed or 0} commits; {bounds}"
    if fact.count in ("device_write_bytes", "device_read_bytes"):
        verb = "wrote" if fact.count == "device_write_bytes" else "read"
        return f"the devices {verb} {fact.counted} bytes for {fact.claimed} of the load; {bounds}"
    if fact.count == "dirtied_bytes":
        return f"{fact.counted} of {fact.claimed} written bytes were for a disk; {bounds}"
    what = WORK_KINDS.get(fact.count, fact.count)
    return (
        f"{what}: the load generator reports {fact.claimed}, but {fact.counted} were counted; "
        f"{bounds}"
    )
