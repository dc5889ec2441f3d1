"""Scripts of SQL steps on real servers, with the workloads of the catalogue."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.drivers.protocol import Live
from dbbench.errors import DriverFailed, ScriptInvalid
from dbbench.model import Dataset
from dbbench.plan import catalog
from tests.support.servers import query

pytestmark = pytest.mark.needs("root")
TABLES = 2
ROWS = 3000
DATASET = Dataset("sysbench", {"tables": TABLES, "table_size": ROWS})
LOCAL = {"mysql": {"local_infile": True}}
SHIPPED = catalog.catalog()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("postgres", "mariadb", "mysql")
    ],
)
def server(request: pytest.FixtureRequest, served: Any) -> Iterator[Any]:
    """A server with two tables of sysbench, that takes files of its clients."""
    with served(request.param, DATASET, **LOCAL.get(request.param, {})) as running:
        yield running


def steps_of(raw: Path) -> dict[str, Any]:
    """The steps as kept in raw/, by name."""
    return {
        step["step"]: step for step in json.loads((raw / "statements.json").read_text())["steps"]
    }


def test_index_build_makes_an_index_on_each_table(drive: Any, server: Any) -> None:
    """Seconds are those of the step, rows those of the dataset; the server has the indexes
    afterwards.
    """
    driven = drive(
        server,
        "statements",
        workload=SHIPPED.workload("index-build"),
        dataset=DATASET,
        clients=2,
    )
    step = steps_of(driven.raw)["build"]
    figures = driven.outcome.figures
    assert (step["rows"], len(step["statements"])) == (TABLES * ROWS, TABLES)
    assert (
        max(one["seconds"] for one in step["statements"])
        <= figures["duration_s"]
        == step["seconds"]
    )
    assert figures["rows_per_s"] == pytest.approx(TABLES * ROWS / step["seconds"])
    view = (
        "indexname FROM pg_indexes"
        if server.engine == "postgres"
        else "index_name FROM information_schema.statistics"
    )
    assert {row[0] for row in query(server, f"SELECT {view}")} >= {"sbtest1_by_c", "sbtest2_by_c"}


def test_vacuum_cleans_up_what_was_updated_before(drive: Any, server: Any) -> None:
    """The updates are not timed; PostgreSQL's own statistics have one more vacuum of each table."""
    driven = drive(
        server,
        "statements",
        workload=SHIPPED.workload("vacuum"),
        dataset=DATASET,
        every=3,
    )
    steps = steps_of(driven.raw)
    assert (steps["update"]["timed"], steps["update"]["rows"]) == (False, TABLES * (ROWS // 3))
    timed = next(step for step in steps.values() if step["timed"])
    assert (
        driven.outcome.figures["duration_s"] == timed["seconds"]
        and timed["bytes"] > TABLES * ROWS * 180
    )
    if server.engine == "postgres":
        done = query(
            server, "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname LIKE 'sbtest%'"
        )
        # the first was the dataset's own
        assert len(done) == TABLES and all(row[0] >= 2 for row in done)


def test_copy_in_loads_the_whole_file_into_each_table(drive: Any, server: Any) -> None:
    """Rows are those that the server says that it took, and those that it has; the file is gone
    afterwards.
    """
    for table in ("t1", "t2"):
        query(server, f"DROP TABLE IF EXISTS {table}")
    driven = drive(
        server,
        "statements",
        workload=SHIPPED.workload("copy-in"),
        tables=2,
        file_bytes=300_000,
        clients=2,
    )
    step = steps_of(driven.raw)["load"]
    counted = [
        query(server, f"SELECT COUNT(*), MIN(id), MAX(id), SUM(LENGTH(body)) FROM {t}")[0]
        for t in ("t1", "t2")
    ]
    assert counted[0] == counted[1] and counted[0][0] == counted[0][2] and counted[0][1] == 1
    assert [one["rows"] for one in step["statements"]] == [counted[0][0]] * 2
    assert step["bytes"] >= 600_000 and step["rows"] == 2 * counted[0][0]
    assert driven.outcome.figures["mb_per_s"] == pytest.approx(
        step["bytes"] / 1e6 / step["seconds"]
    )
    assert not list(driven.raw.parent.glob("scratch/*"))


@pytest.mark.needs("sysbench")
def test_bulk_insert_counts_rows(drive: Any, server: Any) -> None:
    """Each event is one INSERT: the server has as many rows as sysbench's own summary has
    statements × rows.
    """
    for table in ("bulk1", "bulk2"):
        query(server, f"DROP TABLE IF EXISTS {table}")
    driven = drive(
        server,
        "sysbench",
        workload=SHIPPED.workload("bulk-insert"),
        measure_s=4,
        clients=2,
        rows=50,
    )
    said = (driven.raw / "sysbench.out").read_text()
    events = int(said.split("transactions:")[1].split()[0])
    there = sum(query(server, f"SELECT COUNT(*) FROM bulk{number}")[0][0] for number in (1, 2))
    assert there == 50 * events
    assert driven.outcome.figures["rows_per_s"] == driven.outcome.transactions * 50 / 4


def test_a_statement_that_fails_ends_the_load_with_the_servers_words(
    drive: Any,
    server: Any,
    tmp_path: Path,
) -> None:
    """The step and what the server reported about it are in the error."""
    script = tmp_path / "s.sql"
    script.write_text(
        "-- step good\nSELECT 1;\n-- step bad\nSELECT nothing_of_the_kind FROM sbtest1;\n"
    )
    with pytest.raises(DriverFailed, match=r'step "bad" failed: .*nothing_of_the_kind'):
        drive(server, "statements", str(script), dataset=DATASET)


def test_a_name_that_is_not_a_parameter_is_refused_before_anything_is_done(
    drive: Any,
    server: Any,
    tmp_path: Path,
) -> None:
    """With the file and the step."""
    script = tmp_path / "s.sql"
    script.write_text(
        "-- step make\nCREATE TABLE made (id integer);\n-- step bad\nSELECT {mistyped};\n"
    )
    with pytest.raises(ScriptInvalid, match="mistyped"):
        drive(server, "statements", str(script), dataset=DATASET)
    assert not [
        row
        for row in query(server, "SELECT table_name FROM information_schema.tables")
        if row[0] == "made"
    ]


def test_no_statement_outlives_its_block(
    drive: Any,
    server: Any,
    tmp_path: Path,
) -> None:
    """Whoever leaves the block early leaves nothing at work."""
    script = tmp_path / "s.sql"
    wait = "SELECT pg_sleep(60)" if server.engine == "postgres" else "SELECT SLEEP(60)"
    script.write_text(f"-- step wait; each table\n{wait};\n")
    listing = "SELECT query FROM pg_stat_activity WHERE state = 'active'"

    def sleepers() -> list[Any]:
        found = query(server, listing if server.engine == "postgres" else "SHOW PROCESSLIST")
        return [row for row in found if "sleep(60)" in str(row).lower()]

    def leave(live: Live) -> None:
        if live.second and len(sleepers()) == TABLES:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        drive(server, "statements", str(script), dataset=DATASET, clients=2, watch=leave)
    # MySQL shows a statement until its session is idle
    while sleepers() and time.monotonic() - began < 50:
        time.sleep(0.05)
    assert not sleepers()
    assert time.monotonic() - began < 50  # of 60
