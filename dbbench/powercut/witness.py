"""The witness: a small bank whose every acknowledged commit is known outside the server, to be asked for afterwards.

Transaction `n` of a session moves an amount between two accounts and notes it in a ledger; accounts and amount follow
from session and `n` alone. So what must be there is known from the number of answers: each ledger row of an
acknowledged transaction, and for each account the balance that the ledger says, whatever that holds beyond.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dbbench.engines.port import Server

DOUBLINGS: Final = 14
ACCOUNTS: Final = 2**DOUBLINGS  # 4 MB: some hundred pages, most of them dirty at each checkpoint
SESSIONS: Final = 4
CHECKPOINT_S: Final = 0.6  # several in a recording of seconds
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


@dataclass(frozen=True)
class Move:
    """One transaction, as it follows from its session and number."""

    debit: int
    credit: int
    amount: int


def move(session: int, n: int) -> Move:
    """The transaction `n` of a session."""
    mixed = (session * 2654435761 + n * 40503 + n * n * 97) & 0xFFFFFFFF  # spread over all accounts
    debit = mixed % ACCOUNTS
    return Move(debit, (debit + 1 + mixed // ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS, 1 + mixed % 97)


@dataclass
class Acknowledged:
    """When the server's answers were received: for each session the times in ns of its transactions 1, 2, 3 ..."""

    times: dict[int, list[int]] = field(default_factory=dict)

    def before(self, ns: int) -> dict[int, int]:
        """For each session how many of its transactions were acknowledged before that time."""
        return {session: sum(when < ns for when in times) for session, times in self.times.items()}

    @property
    def count(self) -> int:
        """All of them."""
        return sum(map(len, self.times.values()))

    def rounds(self) -> list[tuple[int, int]]:
        """Between which times in ns each round of sessions was answered."""
        found: dict[int, list[int]] = {}
        for session, times in self.times.items():
            found.setdefault(session // SESSIONS, []).extend(times[:1] + times[-1:])
        return [(min(times), max(times)) for times in found.values() if times]


def made(server: Server) -> None:
    """Create the tables, all accounts empty."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL, filler CHAR(180) NOT NULL)")
        cursor.execute("CREATE TABLE ledger (session INT NOT NULL, n INT NOT NULL, debit INT NOT NULL, "
                       "credit INT NOT NULL, amount INT NOT NULL, PRIMARY KEY (session, n))")  # fmt: skip
        cursor.execute("INSERT INTO account VALUES (0, 0, %s)", (FILLER,))
        for power in range(DOUBLINGS):
            cursor.execute(f"INSERT INTO account SELECT id + {2**power}, balance, filler FROM account")


@contextlib.contextmanager
def banking(server: Server, round_: int, seen: Acknowledged) -> Iterator[None]:
    """Sessions that work, and one that checkpoints, while the block lasts or until the server is gone. `round_` makes
    their numbers new: a server that was killed may hold a transaction that nobody knows of."""
    stop = threading.Event()
    threads = [threading.Thread(target=_checkpoints, args=(server, stop), daemon=True)]
    for number in range(round_ * SESSIONS, (round_ + 1) * SESSIONS):
        seen.times[number] = []
        work = _work_in_one_message if server.engine == "postgres" else _work
        threads.append(threading.Thread(target=work, args=(server, number, seen.times[number], stop), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def missing(server: Server, acknowledged: Mapping[int, int]) -> int:
    """How many of the acknowledged transactions the ledger does not hold as they were. The server's own errors."""
    lost = 0
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        for session, count in acknowledged.items():
            cursor.execute("SELECT COUNT(*), COALESCE(SUM(amount), 0), COALESCE(SUM(debit), 0) FROM ledger "
                           f"WHERE session = {session} AND n <= {count}")  # fmt: skip
            row = cursor.fetchone()
            moves = [move(session, n) for n in range(1, count + 1)]
            if int(row[0]) != count:
                lost += count - int(row[0])
            elif (int(row[1]), int(row[2])) != (sum(m.amount for m in moves), sum(m.debit for m in moves)):
                lost += 1  # one at least is there with other content
    return lost


def unequal(server: Server) -> int:
    """The accounts whose balance is not what the ledger says. The server's own errors."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(UNEQUAL)
        return int(cursor.fetchone()[0])


def _statements(session: int, n: int) -> list[str]:
    one = move(session, n)
    changes = sorted([(one.debit, -one.amount), (one.credit, one.amount)])  # in one order: no deadlocks
    return [
        f"INSERT INTO ledger VALUES ({session}, {n}, {one.debit}, {one.credit}, {one.amount})",
        *(_UPDATE.format(amount, account) for account, amount in changes),
    ]


def _work_in_one_message(server: Server, session: int, times: list[int], stop: threading.Event) -> None:
    with contextlib.suppress(Exception), contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        while not stop.is_set():
            cursor.execute("; ".join(("BEGIN", *_statements(session, len(times) + 1), "COMMIT")))
            times.append(time.monotonic_ns())


def _work(server: Server, session: int, times: list[int], stop: threading.Event) -> None:
    with contextlib.suppress(Exception), contextlib.closing(server.connect()) as connection:
        connection.autocommit = False
        cursor = connection.cursor()
        while not stop.is_set():
            for statement in _statements(session, len(times) + 1):
                cursor.execute(statement)
            connection.commit()
            times.append(time.monotonic_ns())


def _checkpoints(server: Server, stop: threading.Event) -> None:
    """PostgreSQL is asked for them; InnoDB's settings here have it flush all the time."""
    if server.engine != "postgres":
        return
    with contextlib.suppress(Exception), contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        while not stop.wait(CHECKPOINT_S):
            cursor.execute("CHECKPOINT")
