"""Record what servers of a release return, for tests/fixtures/engines: their counters before and
after a small load.

    python -m tests.record_engines postgres-18 mariadb-11.8 ...

"postgres", "mariadb" and "mysql" without a release are the installed ones.
"""

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_counters import COLUMNS, reading
from dbbench.engines.sql import cursor_of, execute, rows
from dbbench.model import Settings, merge_settings
from tests.conftest import engine_bin

FIXTURES: Final = Path(__file__).parent / "fixtures/engines"
KEPT: Final = ("innodb_", "com_", "binlog_", "threads_", "handler_", "questions")
COMMITS: Final = 200
ROWS: Final = 20_000


def main(names: list[str]) -> None:
    """Record each of the servers."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="dbb", dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)
            record(name, Path(folder))


def record(name: str, folder: Path) -> None:
    """Start a new server, load it, and write its answers before and after into the fixtures."""
    kind = name.partition("-")[0]
    engine = ENGINES[kind]
    place = Place(folder / "s", folder / "logs", engine_bin(name))
    engine.create(folder / "data", place)
    with engine.serving(folder / "data", settings_of(kind), place) as server:
        release = ".".join(server.version.split(".")[: 1 if kind == "postgres" else 2])
        title = f"{kind}-{release if kind != 'postgres' else server.version[:2]}"
        execute(server, "CREATE TABLE t (id int PRIMARY KEY, v varchar(2000))")
        server.settle()
        before = answers(server)
        load(server)
        server.checkpoint()
        # one checkpoint by time, of which there is none where nothing was written
        if kind == "postgres":
            execute(server, "UPDATE t SET v = 'c' WHERE id = 1")
            time.sleep(40)
        after = answers(server)
    if kind == "postgres":
        both = {"version": server.version, "before": before, "after": after}
        write(FIXTURES / f"{title}.views.json", both)
        lines = [line for line in server.log.read_text().splitlines() if "checkpoint" in line]
        (FIXTURES / f"{title}.checkpoints.log").write_text("\n".join(lines) + "\n")
    else:
        write(FIXTURES / f"{title}.status-before.json", before)
        write(FIXTURES / f"{title}.status-after.json", after)


def settings_of(kind: str) -> Settings:
    """Return the default settings, with frequent checkpoints."""
    small = {
        "checkpoint_timeout": "30s",
        "max_wal_size": "32MB",
        "min_wal_size": "32MB",
        "track_wal_io_timing": True,
    }
    return merge_settings(
        ("default", ENGINES[kind].defaults(None)), ("plan", small if kind == "postgres" else {})
    )


def load(server: Server) -> None:
    """Insert some thousand rows at once, then commit single rows."""
    if server.engine == "postgres":
        execute(
            server, f"INSERT INTO t SELECT n, repeat('a', 1500) FROM generate_series(1, {ROWS}) n"
        )
    else:
        numbers = (
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) "
            "SELECT n FROM s"
        )
        execute(
            server,
            f"INSERT INTO t SELECT a.n * 1000 + b.n, repeat('a', 1500) FROM ({numbers}) a, "
            f"({numbers}) b"
            f" WHERE a.n <= {ROWS // 900}",
        )
    with cursor_of(server) as cursor:
        for number in range(COMMITS):
            cursor.execute(f"UPDATE t SET v = 'b{number}' WHERE id = {number + 1001}")


def answers(server: Server) -> Any:
    """PostgreSQL's views with their columns and rows, and the row of dbbench's own statement of the
    same moment; SHOW GLOBAL STATUS of the others.
    """
    if server.engine != "postgres":
        status = rows(server, "SHOW GLOBAL STATUS")
        return sorted([name, value] for name, value in status if name.lower().startswith(KEPT))
    time.sleep(1)  # sessions that ended hand their counts in
    with cursor_of(server) as cursor:
        cursor.execute(COLUMNS)
        columns = dict(cursor.fetchall())
        with contextlib.suppress(Exception):  # from 15 on
            cursor.execute("SET stats_fetch_consistency = 'snapshot'")
        cursor.execute("BEGIN")
        cursor.execute(reading(server.version, columns).statement)
        found = {"columns": columns, "row": cursor.fetchone(), "views": {}}
        for view in sorted(columns):
            cursor.execute(f"SELECT to_jsonb(v) FROM {view} v")
            found["views"][view] = [row for (row,) in cursor.fetchall() if has_counted(row)]
        cursor.execute("COMMIT")
        return found


def has_counted(row: dict[str, Any]) -> bool:
    """Return whether a row has any count; most rows of pg_stat_io have none."""
    return any(
        value
        for name, value in row.items()
        if isinstance(value, int | float) and name != "op_bytes"
    )


def write(path: Path, content: Any) -> None:
    """Write JSON with one line for each row."""
    path.write_text(lines(content, 4 if isinstance(content, dict) else 1) + "\n")


def lines(value: Any, depth: int) -> str:
    """Return JSON with line breaks down to that depth."""
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    if isinstance(value, dict):
        return (
            "{\n"
            + ",\n".join(
                f"{json.dumps(name)}: {lines(one, depth - 1)}" for name, one in value.items()
            )
            + "\n}"
        )
    return "[\n" + ",\n".join(lines(one, depth - 1) for one in value) + "\n]"


if __name__ == "__main__":
    main(sys.argv[1:])
