"""The second witness: a session that only changes the schema, because files just created,
truncated, renamed or removed are lost in other ways than rows. Each numbered step leaves one
table with a known number of rows, or none. After a cut, the table must be as after the last
acknowledged step, or as after the next one, which may be carried out unanswered.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

from dbbench.engines import profile_of
from dbbench.engines.port import Server

PAUSE_S: Final = 0.03  # between two steps: a round of the lab has about two cycles
PART: Final = 400  # rows of each of the two partitions: a file that grows by some 100 kB
# Table and rows after each step. Where partitions cannot be dropped safely, their rows are deleted
# instead.
_AFTER: Final = {
    "create": ("table", 0),
    "grow": ("table", 2 * PART),
    "index": ("table", 2 * PART),
    "truncate": ("table", 0),
    "grow again": ("table", 2 * PART),
    "drop partition": ("table", PART),
    "rename": ("renamed", PART),
    "drop": ("", 0),
}
STEPS: Final = tuple(_AFTER)


def change(
    server: Server,
    round_: int,
    times: list[int],
    stop: threading.Event,
) -> None:
    """Carry out steps until `stop`, and note in `times` when each was acknowledged, in ns."""
    partitions = profile_of(server.engine).lab_partitions
    with contextlib.closing(server.connect()) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        while not stop.wait(PAUSE_S):
            for statement in _statements(round_, len(times), partitions):
                cursor.execute(statement)
            times.append(time.monotonic_ns())


def wrong(cursor: Any, round_: int, acknowledged: int) -> str:
    """Describe how a round's tables differ from its acknowledged steps, or "". Raises the server's
    own errors.
    """
    expected = [state(round_, acknowledged), state(round_, acknowledged + 1)]
    tables = {}
    cursor.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE "
        f"'change\\_{round_}\\_%'"
    )
    for name in sorted(name for (name,) in cursor.fetchall() if not name.endswith(("_a", "_b"))):
        cursor.execute(f"SELECT COUNT(*) FROM {name}")
        tables[name] = int(cursor.fetchone()[0])
    if tables in expected:
        return ""
    step = STEPS[(acknowledged - 1) % len(STEPS)] if acknowledged else "nothing"
    text = f"after {step!r} (step {acknowledged}) the tables are {tables}"
    return f"{text}, not {expected[0]} or {expected[1]}"


def state(round_: int, steps: int) -> dict[str, int]:
    """Return the tables of a round after so many steps, with their rows."""
    if steps == 0:
        return {}
    cycle, step = divmod(steps - 1, len(STEPS))
    kind, count = _AFTER[STEPS[step]]
    return {_name(round_, cycle, kind): count} if kind else {}


def _name(round_: int, cycle: int, kind: str) -> str:
    return f"change_{round_}_{cycle}" + ("_renamed" if kind == "renamed" else "")


def _statements(round_: int, done: int, partitions: str) -> list[str]:
    """Return the SQL of the step after `done` steps. `partitions`: see `Profile.lab_partitions`."""
    # The steps repeat with new tables, so that a cut can be dated by the names it finds.
    cycle, step = divmod(done, len(STEPS))
    table = _name(round_, cycle, "table")
    columns = "(id INT NOT NULL, v INT NOT NULL, filler CHAR(180) NOT NULL)"
    create = [f"CREATE TABLE {table} {columns}"]
    drop = f"DELETE FROM {table} WHERE id < {PART}"
    # Servers differ in how a partition is made and dropped.
    if partitions == "tables":
        statements = (
            "BEGIN",
            f"{create[0]} PARTITION BY RANGE (id)",
            f"CREATE TABLE {table}_a PARTITION OF {table} FOR VALUES FROM (0) TO ({PART})",
            f"CREATE TABLE {table}_b PARTITION OF {table} FOR VALUES FROM ({PART}) TO ({2 * PART})",
            "COMMIT",
        )
        create = ["; ".join(statements)]
        drop = f"DROP TABLE {table}_a"
    elif partitions == "clause":
        parts = f"PARTITION a VALUES LESS THAN ({PART}), PARTITION b VALUES LESS THAN ({2 * PART})"
        create = [f"{create[0]} PARTITION BY RANGE (id) ({parts})"]
        drop = f"ALTER TABLE {table} DROP PARTITION a"
    grow = [f"INSERT INTO {table} SELECT id, id % 7, filler FROM account WHERE id < {2 * PART}"]
    return {
        "create": create,
        "grow": grow,
        "index": [f"CREATE INDEX {table}_v ON {table} (v)"],
        "truncate": [f"TRUNCATE TABLE {table}"],
        "grow again": grow,
        "drop partition": [drop],
        "rename": [f"ALTER TABLE {table} RENAME TO {_name(round_, cycle, 'renamed')}"],
        "drop": [f"DROP TABLE {_name(round_, cycle, 'renamed')}"],
    }[STEPS[step]]
