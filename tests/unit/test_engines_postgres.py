"""PostgreSQL's counters, checkpoints, settings and files, from what real servers printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from dbbench.engines import ENGINES, postgres
from dbbench.engines.port import Engine
from dbbench.engines.postgres_counters import CheckpointLog, checkpoint_events, statement
from dbbench.engines.postgres_server import PostgresServer, ready
from dbbench.model import Durability, merged
from dbbench.process import Running

RECORDED = Path(__file__).parents[1] / "fixtures" / "engines"


@pytest.fixture
def server(tmp_path: Path) -> PostgresServer:
    """One that is not running: what it computes from readings needs no process."""
    return PostgresServer(cast(Running, None), "15.18", tmp_path, tmp_path / "log", 0, tmp_path)


@pytest.fixture
def readings() -> tuple[dict[str, float], dict[str, float]]:
    """Two readings of PostgreSQL 15, 34 s of pgbench with max_wal_size = 160MB between them."""
    recorded = json.loads((RECORDED / "postgres-15.counters.json").read_text())
    return recorded["before"], recorded["after"]


def test_checkpoints_are_counted_by_cause_in_the_log() -> None:
    """Each way a checkpoint begins has its own name; only complete ones have ended."""
    lines = (RECORDED / "postgres-15.log").read_text().splitlines()
    assert checkpoint_events(lines) == [
        "begun", "timed", "ended", "begun", "wal", "ended", "begun", "requested", "ended",
        "begun", "recovery", "ended", "begun", "shutdown", "ended",
    ]  # fmt: skip


def test_a_line_that_is_being_written_is_counted_once(tmp_path: Path) -> None:
    """Half a line at the end of the log waits for its rest, and nothing before the offset counts."""
    line = "2026-11-21 11:24:53.832 UTC [14509] LOG:  checkpoint starting: time\n"
    log = tmp_path / "log"
    log.write_text(line + line[:50])
    reader = CheckpointLog(log, len(line))
    assert reader.read()["checkpoints_timed"] == 0
    with log.open("a") as file:
        file.write(line[50:])
    assert reader.read()["checkpoints_timed"] == 1
    assert reader.read()["checkpoints_timed"] == 1


def test_checkpoints_of_a_window(server: PostgresServer, readings: tuple[dict[str, float], dict[str, float]]) -> None:
    """begun and ended need not be equal: one may be under way at either end."""
    before, after = readings
    facts = server.checkpoints(before, after)
    assert facts.ended == after["checkpoints_ended"] - before["checkpoints_ended"] > 0
    assert facts.by_cause == {"wal": facts.begun}
    assert facts.fpi_bytes == (after["wal_fpi"] - before["wal_fpi"]) * 8192
    assert facts.note == ""


def test_no_checkpoint_in_the_window_is_a_burst(
    server: PostgresServer, readings: tuple[dict[str, float], dict[str, float]]
) -> None:
    """Without an ended checkpoint the figure is called a burst."""
    assert server.checkpoints(readings[1], readings[1]).note == "burst: no checkpoint in the window"


def test_written_bytes_are_log_and_pages(
    server: PostgresServer, readings: tuple[dict[str, float], dict[str, float]]
) -> None:
    """WAL bytes + pages written by checkpointer, background writer and backends."""
    grown = {name: readings[1][name] - value for name, value in readings[0].items()}
    pages = grown["buffers_checkpoint"] + grown["buffers_clean"] + grown["buffers_backend"]
    assert server.written_bytes(*readings) == grown["wal_bytes"] + pages * 8192


def test_written_bytes_prefer_pg_stat_io(server: PostgresServer) -> None:
    """From 16 on pg_stat_io knows all writers."""
    before = {"wal_bytes": 0.0, "data_write_bytes": 0.0, "data_extend_bytes": 0.0, "buffers_checkpoint": 0.0}
    after = {"wal_bytes": 7.0, "data_write_bytes": 100.0, "data_extend_bytes": 20.0, "buffers_checkpoint": 5.0}
    assert server.written_bytes(before, after) == 127


def test_what_13_does_not_count_is_unknown(server: PostgresServer) -> None:
    """Without pg_stat_wal the bytes written are None, not the pages alone."""
    assert server.written_bytes({"buffers_clean": 0.0}, {"buffers_clean": 5.0}) is None
    assert server.checkpoints({}, {}).fpi_bytes is None


def test_hit_ratio_is_of_the_window(server: PostgresServer) -> None:
    """The cache's history before the window does not count; no access is no ratio."""
    assert server.hit_ratio({"blks_hit": 1000, "blks_read": 0}, {"blks_hit": 1300, "blks_read": 100}) == 0.75
    assert server.hit_ratio({"blks_hit": 5, "blks_read": 5}, {"blks_hit": 5, "blks_read": 5}) is None


@pytest.mark.parametrize(
    ("major", "has", "has_not"),
    [
        (13, ["pg_stat_bgwriter"], ["pg_stat_wal", "pg_stat_io", "pg_stat_checkpointer"]),
        (15, ["pg_stat_wal", "buffers_backend"], ["pg_stat_io", "pg_stat_checkpointer"]),
        (16, ["pg_stat_io", "op_bytes"], ["pg_stat_checkpointer"]),
        (17, ["pg_stat_checkpointer", "op_bytes"], ["buffers_backend"]),
        (18, ["pg_stat_checkpointer", "write_bytes"], ["op_bytes", "buffers_backend"]),
    ],
)
def test_only_views_of_the_version_are_asked(major: int, has: list[str], has_not: list[str]) -> None:
    """A view or column that a version lacks would fail the whole reading."""
    asked = statement(major)
    assert [name for name in has if name not in asked] == []
    assert [name for name in has_not if name in asked] == []


@pytest.mark.parametrize(
    ("changed", "tears", "flags"),
    [
        ({}, True, ()),
        ({"fsync": "off"}, False, (Durability.NO_BARRIER,)),
        ({"synchronous_commit": "off"}, False, (Durability.ASYNC_COMMIT,)),
        ({"synchronous_commit": "local"}, False, ()),
        ({"full_page_writes": "off"}, True, (Durability.TORN_PAGES,)),
        ({"full_page_writes": "off"}, False, ()),
    ],
)
def test_durability_flags(changed: dict[str, str], tears: bool, flags: tuple[Durability, ...]) -> None:
    """What a power cut may cost follows from the effective settings and from whether a page can tear."""
    effective = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", **changed}
    assert postgres.durability(effective, tears) == flags


def test_a_window_holds_two_timed_checkpoints() -> None:
    """checkpoint_timeout is half the window, never below the server's least; the log's size starts none."""
    assert postgres.window_settings(60, 120) == {"checkpoint_timeout": "60s", "max_wal_size": "1TB"}
    assert postgres.window_settings(5, 20)["checkpoint_timeout"] == "30s"


def test_a_quote_stays_within_its_setting() -> None:
    """Quotes and backslashes of a value are doubled, and the origin is beside it."""
    lines = postgres._config(merged(("plan", {"search_path": "it's \\ x"})), {"port": 5432})
    assert "search_path = 'it''s \\\\ x'  # plan" in lines.splitlines()
    assert "port = '5432'  # private" in lines.splitlines()


def test_data_files_are_tables_and_indexes(tmp_path: Path) -> None:
    """Files of relations with their forks and segments; no log, no version file, no map."""
    wanted = ["base/5/1259", "base/5/1259_fsm", "base/5/16384.1", "base/16400/2619_vm"]
    other = ["base/5/PG_VERSION", "base/5/pg_filenode.map", "pg_wal/000000010000000000000001", "global/1262"]
    for name in wanted + other:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(str(path.relative_to(tmp_path)) for path in postgres.data_files(tmp_path)) == sorted(wanted)


def test_a_pid_file_of_another_server_is_not_ready(tmp_path: Path) -> None:
    """Line 8 says ready, and line 1 says who: what a crashed server left does not count."""
    assert not ready(10, tmp_path)
    (tmp_path / "postmaster.pid").write_text("10\n/d\n1\n5432\n/s\n\n1 2\nready   \n")
    assert ready(10, tmp_path)
    assert not ready(11, tmp_path)


def test_every_engine_of_a_plan_is_registered() -> None:
    """One line an engine; all give the same verbs."""
    assert list(ENGINES) == ["postgres", "mariadb", "mysql", "files"]
    verbs = [name for name in vars(Engine) if not name.startswith("_")]
    assert [f"{name}.{verb}" for name, e in ENGINES.items() for verb in verbs if not hasattr(e, verb)] == []
