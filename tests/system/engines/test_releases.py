"""Each supported release as a real server: its settings, its counters, start and stop."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.innodb_server import lacking
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_counters import COLUMNS
from dbbench.engines.serving import grown_between
from dbbench.engines.sql import cursor_of, execute, rows
from dbbench.model import merge_settings
from tests.conftest import engine_bin
from tests.server_roots import RECIPES

RECORDED = Path(__file__).parents[2] / "fixtures/engines"
COMMITS = 100


def release(name: str) -> Any:
    """A release as a parameter, skipped where it cannot be had."""
    return pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))


@pytest.mark.long
@pytest.mark.parametrize("name", [release(name) for name in ("postgres", "mariadb", *RECIPES)])
def test_a_release_starts_with_the_defaults_and_counts(
    name: str, short_folder: Callable[[], Path]
) -> None:
    """All defaults of that release are in force, no counter is missing, commits are counted and
    written, a checkpoint is counted, the version is the one that the server reports, and what it
    wrote is sound after its stop.
    """
    engine = ENGINES[name.partition("-")[0]]
    folder = short_folder()
    place = Place(folder / "s", folder / "logs", engine_bin(name))
    engine.create(folder / "data", place)
    settings = merge_settings(
        ("default", {**engine.defaults(None), **engine.window_settings(1, 60)})
    )
    with engine.serving(folder / "data", settings, place) as server:
        assert reported_version(server).startswith(server.version)
        assert server.version == engine.installed_version(place.bin)
        execute(server, "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
        server.settle()
        before = server.counters()
        commit(server)
        server.checkpoint()
        after = server.counters()
        grown = grown_between(before, after)
        assert [warning for warning in server.warnings() if warning.id != "W147"] == []
        assert (server.checkpoints(grown).ended or 0) >= (1 if server.engine == "postgres" else 0)
        assert (server.written_bytes(grown) or 0) > COMMITS * 32
        assert before.keys() == after.keys()
        check_recorded(name, server)
    assert (
        "checksums of" in (said := engine.check(folder / "data", settings, place))
        or "CHECK TABLE of" in said
    )


def commit(server: Server) -> None:
    """Single commits, each with a flush; until the server counts them: a session hands its counts
    in after its end.
    """
    flushes = "wal_sync" if server.engine == "postgres" else "innodb_data_fsyncs"
    before = server.counters()[flushes]
    with cursor_of(server) as cursor:
        for number in range(COMMITS):
            cursor.execute(f"UPDATE t SET v = {number}")
    until = time.monotonic() + 60
    while server.counters()[flushes] - before < COMMITS:
        assert time.monotonic() < until, f"{flushes} counts less than one flush for each commit"
        time.sleep(0.1)


def reported_version(server: Server) -> str:
    """What the server says when asked."""
    asked = "SHOW server_version" if server.engine == "postgres" else "SELECT version()"
    return str(rows(server, asked)[0][0])


def check_recorded(name: str, server: Server) -> None:
    """What was recorded of this release for the unit tests is what it still answers."""
    if server.engine != "postgres":
        assert lacking(profile_of(server.engine), rows(server, "SHOW GLOBAL STATUS")) == ()
        return
    recorded = json.loads((RECORDED / f"postgres-{server.version[:2]}.views.json").read_text())
    with cursor_of(server) as cursor:
        cursor.execute(COLUMNS)
        assert dict(cursor.fetchall()) == recorded["after"]["columns"]


@pytest.mark.needs("engine:postgres")
def test_a_view_without_a_column_is_reported(short_folder: Callable[[], Path]) -> None:
    """A real server whose pg_stat_wal was replaced by one without wal_bytes: W140 names it, all
    else is counted, and the bytes written are unknown instead of too few.
    """
    engine = ENGINES["postgres"]
    folder = short_folder()
    place = Place(folder / "s", folder / "logs")
    engine.create(folder / "data", place)
    with engine.serving(
        folder / "data",
        merge_settings(("default", engine.defaults(None))),
        place,
    ) as server:
        execute(
            server,
            "SET allow_system_table_mods = on",
            "DROP VIEW pg_stat_wal",
            "CREATE VIEW pg_catalog.pg_stat_wal AS SELECT wal_records, wal_fpi FROM "
            "pg_stat_get_wal()",
        )
        before = server.counters()
        after = server.counters()
        (warning,) = server.warnings()
    assert (warning.id, warning.suspect) == ("W140", True)
    assert "pg_stat_wal.wal_bytes, pg_stat_wal.wal_buffers_full" in warning.text
    assert "wal_bytes" not in after
    assert {"wal_fpi", "xact_commit", "buffers_clean"} <= after.keys()
    assert server.written_bytes(grown_between(before, after)) is None


@pytest.mark.needs("engine:postgres")
def test_a_dropped_default_is_the_servers_own(short_folder: Callable[[], Path]) -> None:
    """The configuration does not name it, and the server says that its value is its own default."""
    engine = ENGINES["postgres"]
    folder = short_folder()
    place = Place(folder / "s", folder / "logs")
    engine.create(folder / "data", place)
    settings = merge_settings(
        ("default", engine.defaults(None)), ("plan", {"random_page_cost": "default"})
    )
    with engine.serving(folder / "data", settings, place) as server:
        found = rows(
            server, "SELECT setting, source FROM pg_settings WHERE name = 'random_page_cost'"
        )
    assert found == [("4", "default")]
    assert "random_page_cost" not in (place.logs / "postgresql.conf").read_text()


@pytest.mark.needs("engine:postgres")
@pytest.mark.parametrize("measured", [True, False])
def test_times_of_the_log_are_counted_only_where_the_server_measures_them(
    short_folder: Callable[[], Path], measured: bool
) -> None:
    """A setting of the plan turns them on; by default the server's views have 0, which is no
    time.
    """
    engine = ENGINES["postgres"]
    folder = short_folder()
    place = Place(folder / "s", folder / "logs")
    engine.create(folder / "data", place)
    settings = merge_settings(
        ("default", engine.defaults(None)), ("plan", {"track_wal_io_timing": measured})
    )
    with engine.serving(folder / "data", settings, place) as server:
        execute(server, "CREATE TABLE t AS SELECT generate_series(1, 1000)", "CHECKPOINT")
        # A session hands its counts in after its end.
        assert not process.wait_while(lambda: not server.counters()["wal_sync"], 60)
        counters = server.counters()
        assert server.warnings() == ()
    assert counters["wal_sync"] > 0
    assert counters.keys() & {"wal_sync_ms", "wal_write_ms"} == (
        {"wal_sync_ms", "wal_write_ms"} if measured else set()
    )
