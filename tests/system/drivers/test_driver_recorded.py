"""A slow log is converted into a script, which sends the logged statements to the server that wrote
the log.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import cli
from dbbench.engines import sql_of
from dbbench.engines.sql import execute, rows
from dbbench.introspect.recordings import read
from dbbench.model import Dataset
from dbbench.process import wait_while

ENGINES: Final = [
    pytest.param(
        name, marks=pytest.mark.needs("root", "sysbench", "pt-query-digest", f"engine:{name}")
    )
    for name in ("mariadb", "mysql")
]
IGNORED: Final = {"mysql-ignore-errors": "all"}  # as in the workload that is written
STATEMENTS: Final = [
    "SELECT hex(uuid) FROM kinds WHERE uuid = 0xDEADBEEF000000000000000000000001",
    "SELECT id FROM kinds WHERE lat BETWEEN 52.5101 AND 52.5301 AND lat > 1.337e1",
    "SELECT id FROM kinds WHERE id = 1234567890123456789",
    "SELECT id FROM kinds ORDER BY id LIMIT 100, 50",
    "SELECT id FROM kinds ORDER BY id LIMIT 7 OFFSET 3",
    "SELECT id FROM kinds WHERE name IN ('#a', 'O''Brien \\\"x\\\"', _utf8mb4'ö', '日本')",
    "SELECT /*+ MAX_EXECUTION_TIME(9000) */ id FROM kinds /*!50000 FORCE INDEX (PRIMARY) */ "
    "WHERE id > -3",
    "SELECT id -- a comment; with # signs\nFROM kinds\n\n# Time: none\nWHERE name = 'a;\n -- # b'",
    "INSERT INTO kinds (id, name, uuid) VALUES (5, 'five', x'05'), (6, 'six', b'00000110')",
    "UPDATE kinds SET lat = lat + 0.5 WHERE id = 5",
    "DELETE FROM kinds WHERE id = 6 LIMIT 1",
    "REPLACE INTO kinds (id, name) VALUES (7, 'seven')",
]


def recorded(server: Any, run: Any) -> Path:
    """Return the slow log of what `run` does."""
    log = Path(server.socket_dir / f"slow-{run.__name__}.log")
    execute(
        server,
        f"SET GLOBAL slow_query_log_file = '{log}'",
        "SET GLOBAL long_query_time = 0",
        "SET GLOBAL slow_query_log = 1",
    )
    run()
    # A server logs a statement after its client has the answer.
    others = "SELECT count(*) - 1 FROM information_schema.processlist WHERE command <> 'Daemon'"
    assert not wait_while(lambda: rows(server, others)[0][0], 60)
    execute(server, "SET GLOBAL slow_query_log = 0")
    return log


@pytest.mark.parametrize("engine", ENGINES)
def test_a_slow_log_is_driven_again(
    drive: Any,
    served: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    engine: str,
) -> None:
    """Statements of sysbench, with keys and texts of the log. A second conversion writes over
    nothing.
    """
    with served(engine, Dataset("sysbench", {"tables": 1, "table_size": 500})) as server:
        command = [
            "sysbench",
            "oltp_read_write",
            *sql_of(server).login(server),
            "--tables=1",
            "--table-size=500",
        ]

        def sysbench() -> None:
            subprocess.run(
                [*command, "--events=30", "--time=20", "run"],
                check=True,
                capture_output=True,
            )

        log = recorded(server, sysbench)
        convert = [
            "workload",
            "from-statements",
            str(log),
            "-o",
            str(tmp_path / "workloads/ours.toml"),
            "--data-of",
            "sysbench-oltp-read-write",
        ]
        assert cli.run(convert) == 0
        printed = capsys.readouterr().out
        assert "of the calls" in printed and "of the time" in printed and "COMMIT" not in printed
        script = tmp_path / "workloads/ours.lua"
        before = rows(server, "SELECT count(*) FROM sbtest1")[0][0]
        outcome = drive(server, "sysbench", str(script), measure_s=5, clients=2, **IGNORED).outcome
        assert outcome.transactions > 10 and before == 500
        assert (
            rows(server, "SELECT count(*) FROM sbtest1 WHERE id NOT BETWEEN 1 AND 500")[0][0] == 0
        )
        assert cli.run(convert) == 2 and "E804" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ENGINES)
def test_statements_are_sent_as_they_were_recorded(
    drive: Any,
    served: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    environ: dict[str, str],
    engine: str,
) -> None:
    """Values of every type, hints, comments and two databases: the server logs the same texts
    again. A statement that fails is counted as an error, and one that the server refuses is left
    out if it is asked.
    """
    with served(engine, Dataset("sysbench", {"tables": 1, "table_size": 500})) as server:
        execute(
            server,
            "CREATE DATABASE `bl``og`",
            "CREATE TABLE `bl``og`.posts (id INT PRIMARY KEY)",
            "CREATE TABLE kinds (id BIGINT PRIMARY KEY, uuid BINARY(16), lat DOUBLE, name TEXT)",
        )

        def statements() -> None:
            execute(
                server,
                "SET NAMES utf8mb4",
                *STATEMENTS,
                "CREATE TABLE gone (id INT)",
                "SELECT id FROM gone",
                "DROP TABLE gone",
                "USE `bl``og`",
                "SELECT id FROM posts WHERE id = 4",
            )

        log = recorded(server, statements)
        sent = {(kind.database, text) for kind in read(log).in_workload for text in kind.samples}
        assert {text for _, text in sent} == {
            *STATEMENTS,
            "SELECT id FROM gone",
            "SELECT id FROM posts WHERE id = 4",
        }
        convert = [
            "--json",
            "workload",
            "from-statements",
            str(log),
            "-o",
            str(tmp_path / "workloads/ours.toml"),
        ]
        assert cli.run(convert) == 0
        told = json.loads(capsys.readouterr().out)
        assert {row["why"].split(" (")[0] for row in told["left_out"]} <= {
            "not a statement on rows",
            "it concerns the server or its session",
        }

        def replayed() -> None:
            outcome = drive(
                server,
                "sysbench",
                str(tmp_path / "workloads/ours.lua"),
                measure_s=5,
                clients=2,
                **IGNORED,
            )
            assert outcome.outcome.transactions > 100 and outcome.outcome.errors > 0

        again = read(recorded(server, replayed))
        logged = {(kind.database, text) for kind in again.in_workload for text in kind.samples}
        assert {pair for pair in logged if "SCHEMATA" not in pair[1]} == sent
        ask = ["--socket", str(server.socket), "--user", server.user, "--database", server.database]
        environ["MYSQL_PWD"] = server.env["MYSQL_PWD"]
        assert cli.run([*convert[:-1], str(tmp_path / "workloads/asked.toml"), *ask]) == 0
        asked = json.loads(capsys.readouterr().out)
        assert [row["statement"] for row in asked["left_out"] if "refuses" in row["why"]] == [
            "select id from gone"
        ]
        assert asked["shares"]["reproduced"]["calls"] < told["shares"]["reproduced"]["calls"]
