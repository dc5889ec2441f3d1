"""Workloads from recorded statements and plans from running servers, made from private servers and
run again.
"""

import csv
import dataclasses
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from dbbench import plan
from dbbench.engines.port import Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.server import reading
from dbbench.model import Dataset
from dbbench.plan.catalog import catalog
from tests.support import plans
from tests.support.servers import served
from tests.system.conftest import Dbbench

PGBENCH: Final = Dataset("pgbench", {"scale": 1})
SYSBENCH: Final = Dataset("sysbench", {"tables": 1, "table_size": 500})


KINDS: Final = """CREATE TABLE kinds AS SELECT n::bigint AS id, md5(n::text)::uuid AS uid, n % 2 = 0 AS ok,
    n * 0.25 AS price, 'name ' || n % 7 AS name, ARRAY[n, n + 1] AS list, date '2024-01-01' + n AS day,
    timestamptz '2024-01-01' + n * interval '1 hour' AS at, (ARRAY['sad', 'ok'])[1 + n % 2]::mood AS feels,
    (2000 + n % 20)::year_of AS year, jsonb_build_object('a', n) AS doc FROM generate_series(1, 1000) AS n"""
TYPED: Final = [
    "SELECT count(*) FROM kinds WHERE at > now() - interval '300 days'",
    "SELECT count(*) FROM kinds WHERE at > now() - interval '3' month AND day <> date '2024-02-01'",
    "SELECT id FROM kinds WHERE at >= timestamp with time zone '2024-01-02' AND at < "
    "'2024-01-03' LIMIT 3 OFFSET 2",
    "SELECT id FROM kinds WHERE day BETWEEN '2024-02-01' AND '2024-03-01' AND ok = true",
    "SELECT id FROM kinds WHERE id = ANY('{1,2,3}'::bigint[]) OR id IN (4,5)",
    "SELECT id FROM kinds WHERE id = ANY('{1,2,3}') AND list[1:2] = '{5,6}'",
    "SELECT id FROM kinds WHERE uid = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b' AND price BETWEEN "
    "1.5 AND 2.5",
    "SELECT name FROM kinds WHERE name LIKE 'name%' AND name = 'name 3' FETCH FIRST 2 ROWS ONLY",
    "UPDATE kinds SET price = price + 0.5 WHERE id = 1234567890123456789",
    "SELECT id FROM kinds WHERE feels = 'sad' AND year = 2003",
    "SELECT doc ->> 'a' FROM kinds WHERE left(name, 4) = 'name'",
    "SELECT id FROM kinds WHERE day < date '2024-01-01' + 7",
    "SELECT EXTRACT('year' FROM at) FROM kinds WHERE id = 3",
    "SELECT date_trunc('year', at) FROM kinds WHERE id = 3",
    "SELECT id FROM gone",
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """PostgreSQL that records statements, with some of pgbench's and of a stranger."""
    with served(
        "postgres",
        PGBENCH,
        shared_preload_libraries="pg_stat_statements",
        work_mem="7MB",
    ) as server:
        execute(server, "CREATE EXTENSION pg_stat_statements")
        where = [f"--host={server.socket_dir}", f"--username={server.user}", server.database]
        subprocess.run(
            [server.bin / "pgbench", "-n", "-t", "40", "-M", "prepared", *where],
            check=True,
            capture_output=True,
        )
        execute(
            server,
            "SELECT ':evil' AS \"x\\! touch owned\"",
            "SELECT max(mtime) FROM pgbench_history WHERE mtime > timestamp '2020-01-01'",
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE DOMAIN year_of AS int",
            KINDS,
            "ANALYZE kinds",
            "CREATE TABLE gone (id int)",
            *TYPED,
            "DROP TABLE gone",
        )
        yield server


@pytest.mark.needs("root", "engine:postgres", "sysbench")
def test_recorded_statements_are_driven_again(dbbench: Dbbench, postgres: Server) -> None:
    """What pg_stat_statements holds, converted with the server asked for types and ranges, is
    driven on a dump of the same server: each statement is called by its weight, keys are those
    of the data, and utility and hostile ones are left out.
    """
    found = rows(
        postgres,
        "SELECT query, calls FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database "
        "WHERE datname = current_database())",
    )
    with (dbbench.folder / "export.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "calls"), *found])
    where = (f"--host={postgres.socket_dir}", f"--username={postgres.user}", postgres.database)
    dump = dbbench.folder / "dump"
    subprocess.run(
        [postgres.bin / "pg_dump", "--format=custom", f"--file={dump}", *where], check=True
    )
    done = dbbench(
        "workload",
        "from-statements",
        "export.csv",
        "-o",
        "workloads/ours.toml",
        "--socket",
        str(postgres.socket_dir),
        "--user",
        postgres.user,
        "--database",
        postgres.database,
        "--json",
    )
    told = json.loads(done.stdout)
    kept = {row["statement"]: row["calls"] for row in told["kept"]}
    left = {r["why"] for r in told["left_out"]}
    assert {"UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"} <= set(kept)
    refused = {row["statement"]: row["why"] for row in told["left_out"]}
    assert any("backslash" in why for why in left) and not any("BEGIN" in why for why in left)
    assert sum("kinds" in text for text in kept) == len(TYPED) - 3
    assert {text for text, why in refused.items() if "the server refuses it" in why} == {
        "SELECT EXTRACT($1 FROM at) FROM kinds WHERE id = $2",
        "SELECT id FROM gone",
    }
    assert not [row for row in told["kept"] if "another plan" in row["why"]]
    exact = sum(row["calls"] for row in told["kept"] if not row["why"])
    assert told["share"] == pytest.approx(
        exact / sum(row["calls"] for row in told["kept"] + told["left_out"])
    )
    samples = (dbbench.folder / "workloads/ours.statements").read_text()
    accounts = [
        int(number)
        for number in re.findall(r"abalance FROM pgbench_accounts WHERE aid = '(\d+)'", samples)
    ]
    assert 1 <= min(accounts) < 2000 and 98_000 < max(accounts) <= 100_000
    assert "evil" not in samples and "owned" not in samples
    load = {"name": "ours", "clients": 2, "source": str(dump)}
    text = plans.plan("ext4", "postgres", load, warmup=0, measure=4)
    trial = dbbench.trial(text, "--path", ".")
    assert trial["error"] is None and trial["dataset"]["kind"] == "source"
    assert trial["summary"]["tps"] > 0 and trial["summary"]["errors"] == 0


@pytest.mark.needs("root", "engine:postgres", "sysbench")
def test_a_bad_statement_does_not_end_the_load(dbbench: Dbbench) -> None:
    """Without a server a value may have the wrong type, or violate a constraint: an error of the
    trial. A kind of statement that always fails is left out by the load, which says its share of
    the calls.
    """
    with (dbbench.folder / "export.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("query", "calls"),
                ("SELECT abalance FROM pgbench_accounts WHERE aid = $1", 700),
                ("SELECT bid FROM pgbench_accounts WHERE aid = ANY($1)", 100),
                ("UPDATE pgbench_tellers SET tid = $1 WHERE tid = $2", 100),
                ("SELECT * FROM gone WHERE a = $1", 100),
            ]
        )
    dbbench(
        "workload",
        "from-statements",
        "export.csv",
        "-o",
        "workloads/ours.toml",
        "--data-of",
        "pgbench-tpcb",
    )
    text = plans.plan(
        "ext4",
        "postgres",
        {"name": "ours", "clients": 2, "scale": 1},
        warmup=0,
        measure=4,
    )
    trial = dbbench.trial(text, "--path", ".")
    assert trial["error"] is None and trial["summary"]["tps"] > 0 and trial["summary"]["errors"] > 0
    left_out = [each["text"] for each in trial["warnings"] if "left out" in each["text"]]
    assert len(left_out) == 1 and "10.0 % of the calls" in left_out[0] and "gone" in left_out[0]


@pytest.mark.needs("root", "engine:postgres")
def test_a_running_postgres_becomes_a_plan(dbbench: Dbbench, postgres: Server) -> None:
    """Its settings, sizes and filesystem; the session cannot write; the plan loads as it is."""
    dbbench(
        "init",
        "--from-running",
        "--socket",
        str(postgres.socket_dir),
        "--user",
        postgres.user,
        "--database",
        postgres.database,
        "-o",
        "live.toml",
    )
    _plan_is_of(dbbench, "postgres", postgres, {"work_mem": "7MB", "shared_buffers": "256MB"})
    with (
        reading(postgres.socket, postgres.user, postgres.database) as live,
        pytest.raises(LiveServerUnreadable, match="read-only"),
    ):
        live.rows("CREATE TABLE forbidden (a int)")
    with (
        reading(postgres.socket, postgres.user, postgres.database) as live,
        pytest.raises(LiveServerUnreadable, match="read-only"),
    ):
        live.rows("DELETE FROM pgbench_tellers")
    nobody = dbbench(
        "init",
        "--from-running",
        "--socket",
        str(dbbench.folder),
        "-o",
        "none.toml",
        status=2,
    )
    assert "E327" in nobody.stderr and not (dbbench.folder / "none.toml").exists()


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.needs("root", f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_a_running_innodb_becomes_a_plan(
    dbbench: Dbbench,
    engine: str,
    environ: dict[str, str],
) -> None:
    """The same of MariaDB and MySQL; the password comes from the environment."""
    with served(engine, SYSBENCH, innodb_io_capacity=1234, log_bin=True, sync_binlog=0) as server:
        environ["MYSQL_PWD"] = server.env["MYSQL_PWD"]
        dbbench = dataclasses.replace(dbbench, env={**dbbench.env, **server.env})
        dbbench(
            "init",
            "--from-running",
            "--socket",
            str(server.socket),
            "--user",
            server.user,
            "-o",
            "live.toml",
        )
        _plan_is_of(dbbench, engine, server, {"innodb_io_capacity": "1234", "sync_binlog": "0"})
        assert 'profile = "production"' in (dbbench.folder / "live.toml").read_text()
        with (
            reading(server.socket, server.user, "dbbench") as live,
            pytest.raises(LiveServerUnreadable, match="READ ONLY"),
        ):
            live.rows("DELETE FROM sbtest1")


def _plan_is_of(
    dbbench: Dbbench,
    engine: str,
    server: Server,
    settings: dict[str, str],
) -> None:
    text = (dbbench.folder / "live.toml").read_text()
    read = tomllib.loads(text)
    assert (
        read["engine"][0]["name"] == engine
        and settings.items() <= read["engine"][0]["settings"].items()
    )
    assert (
        not {"port", "data_directory", "datadir", "socket"} & read["engine"][0]["settings"].keys()
    )
    assert server.version in text.splitlines()[0] and "# The database has " in text
    assert ("pg_basebackup" if engine == "postgres" else "--backup --socket=") in text
    known = catalog()
    assert plan.expand(plan.load(dbbench.folder / "live.toml", known), known).order
