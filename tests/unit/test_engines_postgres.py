"""PostgreSQL's start, counters and checkpoints, from recorded output."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.errors
import pytest

from dbbench.engines import postgres
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_counters import (
    CheckpointLog,
    Reading,
    checkpoint_events,
    reading,
)
from dbbench.engines.postgres_server import PostgresServer
from dbbench.engines.serving import grown_between
from dbbench.engines.settings import numbers_of
from tests.support.files import write_file

RECORDED = Path(__file__).parents[1] / "fixtures" / "engines"
RELEASES = ["15", "16", "17", "18", "19"]


@pytest.fixture(params=RELEASES)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a release answered before and after a small load, as `tests.record_engines` recorded it."""
    return dict(json.loads((RECORDED / f"postgres-{request.param}.views.json").read_text()))


def counters_of(recorded: dict[str, Any], when: str) -> dict[str, float]:
    """The counters that dbbench reads from the recorded answer."""
    return reading(recorded["version"], recorded[when]["columns"]).counters(recorded[when]["row"])


class NotRunning(PostgresServer):
    """What it computes from readings needs no process; its sessions are what `session` returns or
    raises.
    """

    session: Callable[[], object]

    def connect(self, database: str | None = None) -> Any:
        return self.session()


@pytest.fixture
def server(tmp_path: Path) -> NotRunning:
    """A server that is not running."""
    return NotRunning(postgres.PROFILE, Place(tmp_path, tmp_path), "15.18", tmp_path, None)


@pytest.fixture
def readings() -> tuple[dict[str, float], dict[str, float]]:
    """Two readings of PostgreSQL 15, 34 s of pgbench with max_wal_size = 160MB between them."""
    recorded = json.loads((RECORDED / "postgres-15.counters.json").read_text())
    return recorded["before"], recorded["after"]


class Unreadable:
    """A session, and its cursor, in a database whose catalogue cannot be read."""

    def cursor(self) -> "Unreadable":
        return self

    def execute(self, _statement: str, _values: object) -> None:
        raise psycopg2.errors.UndefinedFile(
            'could not open file "base/5/1259": No such file or directory'
        )

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("refusal", "answers"),
    [
        ("connection to server failed: No such file or directory", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  role is not permitted to log in", None),
    ],
)
def test_a_server_that_refuses_for_ever_is_not_waited_for(
    refusal: str,
    answers: bool | None,
    server: NotRunning,
) -> None:
    """One that cannot be reached yet is asked again."""

    def refuse() -> object:
        raise psycopg2.OperationalError(refusal)

    server.session = refuse
    if answers is None:
        with pytest.raises(psycopg2.OperationalError, match="not permitted"):
            server.answers()
    else:
        assert server.answers() is answers


def test_a_catalogue_that_cannot_be_read_is_an_error_at_once(server: NotRunning) -> None:
    """Not a server that is still starting, which the power-loss lab would call invalid instead of
    harmed.
    """
    server.session = Unreadable
    with pytest.raises(psycopg2.OperationalError, match="could not open file"):
        server.answers()


def test_checkpoints_are_counted_by_cause_in_the_log() -> None:
    """Each way a checkpoint begins has its own name; only complete ones have ended."""
    lines = (RECORDED / "postgres-15.log").read_text().splitlines()
    assert checkpoint_events(lines) == [
        "begun",
        "timed",
        "ended",
        "begun",
        "wal",
        "ended",
        "begun",
        "requested",
        "ended",
        "begun",
        "recovery",
        "ended",
        "begun",
        "shutdown",
        "ended",
    ]


def test_a_line_that_is_being_written_is_counted_once(tmp_path: Path) -> None:
    """Half a line at the end of the log waits for its rest, and nothing before the offset counts."""
    line = "2026-11-21 11:24:53.832 UTC [14509] LOG:  checkpoint starting: time\n"
    log = write_file(tmp_path / "log", line + line[:50])
    reader = CheckpointLog(log, len(line))
    assert reader.read()["checkpoints_timed"] == 0
    with log.open("a") as file:
        file.write(line[50:])
    assert reader.read()["checkpoints_timed"] == 1
    assert reader.read()["checkpoints_timed"] == 1


def test_checkpoints_of_a_window(
    server: PostgresServer, readings: tuple[dict[str, float], dict[str, float]]
) -> None:
    """begun and ended need not be equal: one may be under way at either end. Without one the figure
    is a burst.
    """
    before, after = readings
    facts = server.checkpoints(grown_between(before, after))
    assert facts.ended == after["checkpoints_ended"] - before["checkpoints_ended"] > 0
    assert facts.by_cause == {"wal": facts.begun}
    assert facts.fpi_bytes == (after["wal_fpi"] - before["wal_fpi"]) * 8192
    assert facts.note == ""
    assert (
        server.checkpoints(grown_between(after, after)).note == "burst: no checkpoint in the window"
    )
    assert server.checkpoints({}).fpi_bytes is None  # 13 does not count them


def test_written_bytes_are_log_and_pages(
    server: PostgresServer, readings: tuple[dict[str, float], dict[str, float]]
) -> None:
    """WAL bytes + pages written by checkpointer, background writer and backends; from 16 on
    pg_stat_io knows all writers. They are None, and too small never, where one of their parts is
    not counted.
    """
    grown = grown_between(*readings)
    pages = grown["buffers_checkpoint"] + grown["buffers_clean"] + grown["buffers_backend"]
    assert server.written_bytes(grown) == grown["wal_bytes"] + pages * 8192
    later = {
        "wal_bytes": 7.0,
        "data_write_bytes": 100.0,
        "data_extend_bytes": 20.0,
        "buffers_checkpoint": 5.0,
    }
    assert server.written_bytes(later) == 127
    for known in (
        ("buffers_clean",),
        ("wal_bytes", "data_write_bytes", "buffers_checkpoint", "buffers_clean"),
    ):
        assert server.written_bytes(dict.fromkeys(known, 5.0)) is None


def test_hit_ratio_is_of_the_window(server: PostgresServer) -> None:
    """Accesses before the window do not count. Without accesses, or without the reads, there is no
    ratio.
    """
    window = grown_between({"blks_hit": 1000, "blks_read": 0}, {"blks_hit": 1300, "blks_read": 100})
    assert server.hit_ratio(window) == 0.75
    assert (
        server.hit_ratio({"blks_hit": 0, "blks_read": 0})
        is server.hit_ratio({"blks_hit": 5})
        is None
    )


def test_every_release_has_what_is_read_from_it(recorded: dict[str, Any]) -> None:
    """No view of a recorded release lacks a column, no counter is without a value, and a later
    release has all the counters of an earlier one: no column of a trial's series becomes empty.
    """
    how = reading(recorded["version"], recorded["after"]["columns"])
    assert how.lacking == ()
    found = how.counters(recorded["after"]["row"])
    assert how.without_value(found) == ()
    earliest = json.loads((RECORDED / "postgres-15.views.json").read_text())
    assert counters_of(earliest, "after").keys() - found.keys() == set()


def test_counters_are_those_of_the_recorded_views(recorded: dict[str, Any]) -> None:
    """WAL writes, syncs and their times are in pg_stat_wal up to 17 and in pg_stat_io from 18 on;
    what checkpoints write is in pg_stat_bgwriter up to 16 and in pg_stat_checkpointer from 17
    on.
    """
    views = recorded["after"]["views"]
    found = counters_of(recorded, "after")
    major, (wal,) = numbers_of(recorded["version"])[0], views["pg_stat_wal"]
    written = [
        row
        for row in views.get("pg_stat_io", ())
        if (row["object"], row["context"]) == ("wal", "normal")
    ]
    columns = {
        "wal_write": "writes",
        "wal_sync": "fsyncs",
        "wal_write_ms": "write_time",
        "wal_sync_ms": "fsync_time",
    }
    if major < 18:
        columns = {
            name: name.removesuffix("_ms") + "_time" * name.endswith("_ms") for name in columns
        }
        written = [wal]
    sums = {name: sum(row[column] or 0 for row in written) for name, column in columns.items()}
    assert {name: found[name] for name in sums} == pytest.approx(sums)
    assert min(sums.values()) > 0
    (checkpointer,) = views["pg_stat_bgwriter" if major < 17 else "pg_stat_checkpointer"]
    assert (
        found["buffers_checkpoint"]
        == checkpointer["buffers_checkpoint" if major < 17 else "buffers_written"]
        > 0
    )
    assert found["wal_bytes"] == wal["wal_bytes"] > 0


def test_times_that_the_server_does_not_measure_are_not_zero(recorded: dict[str, Any]) -> None:
    """Without track_wal_io_timing the views have 0 for the times of WAL: they are not read, and
    nothing is lacking.
    """
    how = reading(recorded["version"], recorded["after"]["columns"], ["track_wal_io_timing"])
    assert how.lacking == ()
    measured = reading(recorded["version"], recorded["after"]["columns"])
    assert measured.origins.keys() - how.origins.keys() == {"wal_write_ms", "wal_sync_ms"}
    assert "wal_sync_ms" in measured.statement and "wal_sync_ms" not in how.statement


@pytest.mark.parametrize("release", ["17", "18", "19"])
def test_pages_written_by_sessions_are_in_pg_stat_io(release: str) -> None:
    """From 17 on pg_stat_bgwriter does not have them: writes and extensions of all but checkpointer
    and writer.
    """
    recorded = json.loads((RECORDED / f"postgres-{release}.views.json").read_text())
    found = counters_of(recorded, "after")
    rows = [
        row
        for row in recorded["after"]["views"]["pg_stat_io"]
        if row["object"] == "relation"
        and row["backend_type"] not in ("checkpointer", "background writer")
    ]
    names, page = (
        (("writes", "extends"), 1) if release == "17" else (("write_bytes", "extend_bytes"), 8192)
    )
    assert (
        found["buffers_backend"] == sum(row[name] or 0 for row in rows for name in names) / page > 0
    )
    assert found["buffers_backend_fsync"] == sum(row["fsyncs"] or 0 for row in rows)


def test_written_bytes_of_every_release_hold_the_rows(
    recorded: dict[str, Any], server: PostgresServer
) -> None:
    """20000 rows of 1500 bytes are written at least twice, to the log and to the table, and not ten
    times.
    """
    rows = 20_000 * 1500
    written = server.written_bytes(
        grown_between(counters_of(recorded, "before"), counters_of(recorded, "after"))
    )
    assert written is not None
    assert 2 * rows < written < 10 * rows


@pytest.mark.parametrize("release", RELEASES)
def test_checkpoints_of_every_release_are_counted_by_cause(release: str) -> None:
    """The log of each release says what began a checkpoint: its size, a command, the time, the
    stop.
    """
    events = checkpoint_events(
        (RECORDED / f"postgres-{release}.checkpoints.log").read_text().splitlines()
    )
    assert {"wal", "requested", "timed", "shutdown"} <= set(events)
    assert (
        events.count("begun")
        == events.count("ended")
        == sum(event not in ("begun", "ended") for event in events)
    )


def test_a_column_that_is_missing_is_named(recorded: dict[str, Any]) -> None:
    """Each column in turn is taken away: it alone is named, and what else can be read is read."""
    columns = recorded["after"]["columns"]
    version = recorded["version"]
    complete = reading(version, columns)
    for origin in set(complete.origins.values()):
        view, column = origin.split(".")
        how = reading(
            version, {**columns, view: [name for name in columns[view] if name != column]}
        )
        assert how.lacking == (origin,)
        gone = complete.origins.keys() - how.origins.keys()
        assert {name for name, of in complete.origins.items() if of == origin} <= gone
        assert not any(f"'{name}'" in how.statement for name in gone)


@pytest.mark.parametrize(
    ("column", "counter"),
    [
        ("pg_stat_io.object", "data_write_bytes"),
        ("pg_stat_io.op_bytes", "data_write_bytes"),
        ("pg_stat_io.backend_type", "buffers_backend"),
        ("pg_stat_database.datname", "xact_commit"),
    ],
)
def test_a_column_that_others_need_takes_them_along(column: str, counter: str) -> None:
    """Where the column that selects the rows is missing, nothing is read from all rows instead."""
    columns = json.loads((RECORDED / "postgres-17.views.json").read_text())["after"]["columns"]
    view, name = column.split(".")
    assert counter in reading("17.1", columns).origins
    how = reading("17.1", {**columns, view: [one for one in columns[view] if one != name]})
    assert how.lacking == (column,)
    assert f"'{counter}'" not in how.statement


def test_a_view_that_is_missing_is_named_by_its_columns(recorded: dict[str, Any]) -> None:
    """A view that is gone is one without columns. Nothing of another release is taken for what an
    unknown one lacks.
    """
    columns = {
        view: names for view, names in recorded["after"]["columns"].items() if view != "pg_stat_wal"
    }
    lacking = reading(recorded["version"], columns).lacking
    assert "pg_stat_wal.wal_bytes" in lacking
    assert {name.partition(".")[0] for name in lacking} == {"pg_stat_wal"}
    earliest = json.loads((RECORDED / "postgres-15.views.json").read_text())["after"]["columns"]
    newer = reading("20.1", earliest)
    assert (
        "pg_stat_checkpointer.buffers_written" in newer.lacking
        and "buffers_checkpoint" not in newer.origins
    )


def test_a_counter_without_a_value_is_named() -> None:
    """NULL is not zero: the sum over no rows, or a view that has none."""
    how = Reading("", {"wal_write": "pg_stat_io.writes", "wal_bytes": "pg_stat_wal.wal_bytes"}, ())
    found = how.counters([{"wal_write": None}, None, {"wal_bytes": 7}])
    assert found == {"wal_bytes": 7.0}
    assert how.without_value(found) == ("pg_stat_io.writes",)


def test_a_missing_column_makes_a_trial_suspect() -> None:
    """W140 names the server's release, the view and the column."""
    server = Server(postgres.PROFILE, Place(Path(), Path()), "15.18")
    server._lacking["pg_stat_wal.wal_sync"] = None
    (warning,) = server.warnings()
    assert (warning.id, warning.suspect) == ("W140", True)
    assert "postgres 15.18 should have pg_stat_wal.wal_sync" in warning.text
