"""Full scans on real servers."""

import json
import math
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from dbbench import process
from dbbench.drivers.protocol import Live
from dbbench.engines.innodb_sql import InnodbSql
from dbbench.engines.postgres_sql import PostgresSql
from dbbench.errors import DriverFailed, EngineDied
from dbbench.model import Dataset

pytestmark = pytest.mark.needs("root")
SCAN = Dataset("clone-tables", {"tables": 3, "table_bytes": 8 * 2**20})


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("postgres", "mariadb", "mysql")
    ],
)
def server(request: pytest.FixtureRequest, served: Any) -> Iterator[Any]:
    """A server with three equal tables."""
    with served(request.param, SCAN) as running:
        yield running


def test_the_rate_is_the_tables_size_by_the_time_of_the_slowest(drive: Any, server: Any) -> None:
    """10^6 bytes a second from the common start to the last session's end."""
    outcome = drive(server, "scan", tables=3).outcome
    kept = json.loads((drive.raw / "scan.json").read_text())
    size = sum(table["size_bytes"] for table in kept["tables"])
    assert kept["passes_s"] == [outcome.figures["duration_s"]]
    assert max(table["scans_s"][0] for table in kept["tables"]) <= kept["passes_s"][0]
    assert outcome.figures["mb_per_s"] == pytest.approx(size / outcome.figures["duration_s"] / 1e6)
    assert 3 * 7 * 2**20 < size < 3 * 12 * 2**20
    assert (outcome.scanned_bytes, outcome.window_s) == (size, outcome.figures["duration_s"])


def test_passes_are_repeated_for_as_long_as_asked(drive: Any, server: Any) -> None:
    """All sessions begin each pass together. The rate and the bytes count every pass; the duration
    is that of one.
    """
    # longer than a stop of the machine
    outcome = drive(server, "scan", tables=3, repeat_for=4.0).outcome
    kept = json.loads((drive.raw / "scan.json").read_text())
    passes = kept["passes_s"]
    tables = kept["tables"]
    assert sum(passes[:-1]) < 4.0 <= sum(passes) == outcome.window_s
    assert [len(table["scans_s"]) for table in tables] == 3 * [len(passes)]
    assert len(passes) > 1
    assert all(table["scans_s"][n] <= took for table in tables for n, took in enumerate(passes))
    size = sum(table["size_bytes"] for table in tables)
    assert outcome.figures["duration_s"] == pytest.approx(sum(passes) / len(passes))
    assert outcome.figures["mb_per_s"] == pytest.approx(size / outcome.figures["duration_s"] / 1e6)
    assert (
        [claim.total for claim in outcome.claims] == [outcome.scanned_bytes] == [len(passes) * size]
    )


@pytest.mark.parametrize(
    "server",
    [pytest.param("postgres", marks=pytest.mark.needs("engine:postgres"))],
    indirect=True,
)
def test_a_session_that_fails_ends_the_others(
    drive: Any,
    server: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that wait for it before the next pass too; the error names its table and what the
    server said.
    """
    scan = PostgresSql.scan

    def failing(sql: Any, connection: Any, table: str) -> str:
        return "SELECT pg_sleep(1), 1/0" if table == "clone_2" else scan(sql, connection, table)

    monkeypatch.setattr(PostgresSql, "scan", failing)
    began = time.monotonic()
    with pytest.raises(DriverFailed, match=r"the scan of clone_2 failed: .*division by zero"):
        drive(server, "scan", tables=3, repeat_for=600.0)
    assert time.monotonic() - began < 60


def test_a_scan_has_no_transactions_a_second(drive: Any, server: Any) -> None:
    """Gaps, not zeros; a row for every second that it lasted."""
    outcome = drive(server, "scan", tables=3).outcome
    seconds = outcome.series.seconds
    assert seconds == math.ceil(outcome.figures["duration_s"]) > 0
    assert [outcome.series[name] for name in ("tps", "p95_ms", "errors")] == [[None] * seconds] * 3
    assert outcome.histogram is None


def test_every_row_is_read_and_no_index_used(drive: Any, server: Any) -> None:
    """The plans are kept and say so."""
    drive(server, "scan", tables=3)
    plans = [json.loads(path.read_text()) for path in sorted(drive.raw.glob("plan_clone_*.json"))]
    assert len(plans) == 3
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT COUNT(*) FROM clone_1")
        rows = cursor.fetchone()[0]
    if server.engine == "postgres":
        assert ("Seq Scan", rows) == (
            plans[0][0]["Plan"]["Node Type"],
            plans[0][0]["Plan"]["Actual Rows"],
        )
        assert "Workers" not in json.dumps(plans)
    else:
        assert '"access_type": "ALL"' in json.dumps(
            plans[0]
        ) or '"access_type": "table"' in json.dumps(plans[0])


def test_another_number_of_tables_than_asked_is_an_error(drive: Any, server: Any) -> None:
    """The dataset is not the one that the plan means."""
    with pytest.raises(DriverFailed, match="requires 4 tables to scan, but the dataset has 3"):
        drive(server, "scan", tables=4)


@pytest.mark.parametrize(
    "server",
    [pytest.param("postgres", marks=pytest.mark.needs("engine:postgres"))],
    indirect=True,
)
def test_a_scan_waits_until_nothing_else_is_at_work(drive: Any, server: Any) -> None:
    """What pg_stat_activity shows at work when the scan is to begin ends first."""
    scanned: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        other = pool.submit(_sleep, server, 2)
        until = time.monotonic() + 60
        while (
            not (other.done() or "client backend" in str(server.at_work()))
            and time.monotonic() < until
        ):
            time.sleep(0.02)
        drive(server, "scan", tables=3, during=lambda load: scanned.append(time.monotonic()))
        other.result(60)
    assert scanned[0] - began > 1.9
    # a background process may be awake for a moment
    assert process.wait_while(server.at_work, 60) == []


def _sleep(server: Any, seconds: float) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT pg_sleep({seconds})")


def test_a_scan_begins_when_it_is_waited_for(drive: Any, server: Any) -> None:
    """Totals of devices are taken around the waiting: nothing was read before. In one of three
    tries, because the machine may stop during a scan.
    """
    took: list[float] = []
    while len(took) < 3 and min(took, default=1.0) >= 1.0:
        outcome = drive(server, "scan", tables=3, during=lambda load: time.sleep(1.2)).outcome
        took.append(outcome.figures["duration_s"])
    assert min(took) < 1.0


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans that take a minute."""
    for kind, text in ((PostgresSql, "SELECT pg_sleep(60)"), (InnodbSql, "SELECT SLEEP(60)")):
        monkeypatch.setattr(kind, "scan", lambda _sql, _connection, _table, text=text: text)


@pytest.mark.usefixtures("endless")
def test_no_session_outlives_its_block(drive: Any, server: Any) -> None:
    """Whoever leaves the block early leaves no scan behind."""
    listing = (
        "SELECT query FROM pg_stat_activity WHERE state = 'active'"
        if server.engine == "postgres"
        else "SHOW PROCESSLIST"
    )

    def sleepers() -> int:
        with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(listing)
            return sum(
                "select" in str(row).lower() and "sleep(60)" in str(row).lower()
                for row in cursor.fetchall()
            )

    def leave(live: Live) -> None:
        if live.second and sleepers() == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(server, "scan", tables=3, watch=leave)
    until = time.monotonic() + 50  # of 60
    # the server sees a closed session a little later
    while sleepers() and time.monotonic() < until:
        time.sleep(0.05)
    assert sleepers() == 0


@pytest.mark.usefixtures("endless")
@pytest.mark.needs("engine:mariadb")
def test_a_server_that_is_killed_is_reported_within_seconds(drive: Any, served: Any) -> None:
    """Not when the scan would have ended."""
    began = 0.0

    with pytest.raises(EngineDied, match="died"), served("mariadb", SCAN) as own:

        def kill(live: Live) -> None:
            nonlocal began
            if live.second and not began:
                began = time.monotonic()
                os.kill(own.pid, signal.SIGKILL)

        drive(own, "scan", tables=3, watch=kill)
    assert time.monotonic() - began < 40  # of 60
