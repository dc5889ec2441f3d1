"""The witness: a small bank whose acknowledged commits are all known outside of the server, and a
session beside it that changes the schema (`schema_changes`). Transaction `n` of a session moves
an amount between two accounts and records it in a ledger; accounts and amount depend only on
session and `n`. So the number of answers defines what must exist: a ledger row for each
acknowledged transaction, and for each account the balance according to the ledger.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dbbench.drivers.sessions import fault
from dbbench.engines import profile_of, sql_of
from dbbench.engines.port import Server
from dbbench.engines.sql import cursor_of
from dbbench.labs.powercut import schema_changes
from dbbench.machine import threads

DOUBLINGS: Final = 14
# 4 MB: several hundred pages, most of which are dirty at each checkpoint
ACCOUNTS: Final = 2**DOUBLINGS
SESSIONS: Final = 4
CHECKPOINT_S: Final = 0.6  # short, so that a recording of seconds contains several
# between two transactions of a session: more of them would cost time and show nothing else
PAUSE_S: Final = 0.004
FILLER: Final = "x" * 180

_UPDATE: Final = "UPDATE account SET balance = balance + ({}) WHERE id = {}"
_SUMS: Final = (
    "SELECT id, SUM(delta) AS moved FROM (SELECT debit AS id, -amount AS delta FROM ledger "
    "UNION ALL SELECT credit, amount FROM ledger) AS moves GROUP BY id"
)
UNEQUAL: Final = (
    f"SELECT COUNT(*) FROM account LEFT JOIN ({_SUMS}) AS sums ON sums.id = account.id "
    "WHERE account.balance <> COALESCE(sums.moved, 0)"
)
# By session: the sums of amounts and debits of its first 0, 1, 2 ... transactions, as far as they
# were needed.
_sums_of: defaultdict[int, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)])


@dataclass(frozen=True)
class Move:
    """One transaction, as defined by its session and number."""

    debit: int
    credit: int
    amount: int


def move(session: int, n: int) -> Move:
    """Return the transaction `n` of a session."""
    # spreads the transfers over all accounts
    mixed = (session * 2654435761 + n * 40503 + n * n * 97) & 0xFFFFFFFF
    debit = mixed % ACCOUNTS
    return Move(
        debit,
        (debit + 1 + mixed // ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS,
        1 + mixed % 97,
    )


@dataclass
class Acknowledged:
    """When the server's answers arrived: for each session the times in ns of its transactions 1, 2,
    3 ... Session -1 - round is that of the schema changes; its transactions are steps.
    """

    times: dict[int, list[int]] = field(default_factory=dict)

    @property
    def changes(self) -> list[tuple[str, int]]:
        changes = list[tuple[str, int]]()
        for session, times in self.times.items():
            if session < 0:
                changes += zip(itertools.cycle(schema_changes.STEPS), times, strict=False)
        return changes

    def before(self, ns: int) -> dict[int, int]:
        return {session: sum(when < ns for when in times) for session, times in self.times.items()}

    @property
    def count(self) -> int:
        return sum(map(len, self.times.values()))

    def rounds(self) -> list[tuple[int, int]]:
        rounds: dict[int, list[int]] = {}
        for session, times in self.times.items():
            if session >= 0:
                rounds.setdefault(session // SESSIONS, []).extend(times[:1] + times[-1:])
        return [(min(times), max(times)) for times in rounds.values() if times]


def create_tables(server: Server) -> None:
    """Create the tables, with all accounts empty."""
    with cursor_of(server) as cursor:
        cursor.execute(
            "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL, filler CHAR(180) "
            "NOT NULL)"
        )
        cursor.execute(
            "CREATE TABLE ledger (session INT NOT NULL, n INT NOT NULL, debit INT NOT NULL, "
            "credit INT NOT NULL, amount INT NOT NULL, PRIMARY KEY (session, n))"
        )
        cursor.execute("INSERT INTO account VALUES (0, 0, %s)", (FILLER,))
        for power in range(DOUBLINGS):
            cursor.execute(
                f"INSERT INTO account SELECT id + {2**power}, balance, filler FROM account"
            )


@contextlib.contextmanager
def banking(
    server: Server,
    round_: int,
    seen: Acknowledged,
    changes: bool,
) -> Iterator[Callable[[], None]]:
    """Run sessions, one with checkpoints, and one that changes the schema if `changes`, until the
    block or the server ends. `round_` makes their numbers new: a killed server may contain a
    transaction that was not acknowledged. Call the yielded function before the kill: it raises
    EngineDied or DriverFailed if a session has already ended.
    """
    stop = threading.Event()
    # One thread for each session, with the times of what was acknowledged to it.
    helpers = []
    if profile_of(server.engine).lab_checkpoint:
        helpers.append(threads.Helper("checkpoints", _checkpoints, server, stop))
    for number in range(round_ * SESSIONS, (round_ + 1) * SESSIONS):
        times = seen.times[number] = []
        name = f"witness-{number}"
        helpers.append(threads.Helper(name, _work, server, number, times, stop))
    if changes:
        times = seen.times[-1 - round_] = []
        change = schema_changes.change
        helpers.append(threads.Helper("schema-changes", change, server, round_, times, stop))
    for helper in helpers:
        helper.start()

    # A session that ended before the kill would make the cut too easy.
    def must_work() -> None:
        for helper in helpers:
            error = helper.error()
            if error is not None:
                text = f"the thread {helper.name} ended: {type(error).__name__}: {error}"
                raise fault(server, text, error)

    try:
        yield must_work
    finally:
        stop.set()
        for helper in helpers:
            helper.join(30)


def missing(cursor: Any, acknowledged: Mapping[int, int]) -> int:
    """Return how many acknowledged transactions the ledger lacks, or differ in it. Raises the
    server's own errors.
    """
    lost = 0
    for session, count in acknowledged.items():
        if session < 0:
            continue
        cursor.execute(
            "SELECT COUNT(*), COALESCE(SUM(amount), 0), COALESCE(SUM(debit), 0) FROM ledger "
            f"WHERE session = {session} AND n <= {count}"
        )
        row = cursor.fetchone()
        if int(row[0]) != count:
            lost += count - int(row[0])
        elif (int(row[1]), int(row[2])) != _sums(session, count):
            lost += 1  # at least one row exists with other content
    return lost


def _sums(session: int, count: int) -> tuple[int, int]:
    """Return the sums of amounts and debits of the first `count` transactions of a session."""
    sums = _sums_of[session]
    for n in range(len(sums), count + 1):
        transfer = move(session, n)
        amounts, debits = sums[-1]
        sums.append((amounts + transfer.amount, debits + transfer.debit))
    return sums[count]


def wrong_tables(cursor: Any, acknowledged: Mapping[int, int]) -> str:
    """Describe a table that an acknowledged schema change has not left like this; "" if there is
    none.
    """
    for session, count in acknowledged.items():
        text = schema_changes.wrong(cursor, -1 - session, count) if session < 0 else ""
        if text:
            return text
    return ""


def unequal(cursor: Any) -> int:
    """Return the accounts whose balance differs from the ledger. Raises the server's own errors."""
    cursor.execute(UNEQUAL)
    return int(cursor.fetchone()[0])


def _statements(session: int, n: int) -> list[str]:
    transfer = move(session, n)
    values = (session, n, transfer.debit, transfer.credit, transfer.amount)
    changes = {transfer.debit: -transfer.amount, transfer.credit: transfer.amount}
    statements = [f"INSERT INTO ledger VALUES ({', '.join(map(str, values))})"]
    for account in sorted(changes):  # always in the same order, to avoid deadlocks
        statements.append(_UPDATE.format(changes[account], account))
    return statements


def _work(
    server: Server,
    session: int,
    times: list[int],
    stop: threading.Event,
) -> None:
    with contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        whole = sql_of(server).one_message
        connection.autocommit = whole
        while not stop.wait(PAUSE_S):
            statements = _statements(session, len(times) + 1)
            if whole:
                cursor.execute("; ".join(("BEGIN", *statements, "COMMIT")))
            else:
                for statement in statements:
                    cursor.execute(statement)
                connection.commit()
            times.append(time.monotonic_ns())


def _checkpoints(server: Server, stop: threading.Event) -> None:
    """Cause checkpoints; InnoDB's settings here make it flush continuously."""
    with cursor_of(server) as cursor:
        while not stop.wait(CHECKPOINT_S):
            cursor.execute(profile_of(server.engine).lab_checkpoint)
