"""The thread that reads counters, with servers that answer, fail, hang or die."""

import json
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from dbbench.engines.port import Server, Sessions
from dbbench.samplers import engine_counters
from dbbench.samplers.engine_counters import CountersReading, foreign_sessions, is_gauge, to_series
from dbbench.samplers.sampler import Sampled


class FakeServer:
    """Counts its readings; `answer` may raise or block."""

    def __init__(self) -> None:
        self.calls = 0
        self.lives = True

    def counters(self) -> dict[str, float]:
        self.calls += 1
        return {"wal_bytes": 100.0 * self.calls, "dirty_bytes": 7.0}

    def sessions(self) -> Sessions:
        return Sessions({})

    def alive(self) -> bool:
        return self.lives


def wait_for(server: FakeServer, calls: int) -> None:
    """Until it was read so often, and a little longer for the reading to be kept."""
    until = time.monotonic() + 30
    while server.calls < calls and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.05)


def target(server: Any) -> Sampled:
    """A target with this server and no disk."""
    return Sampled(disk=None, server=cast(Server, server))


def readings(*values: float | None, every_s: float = 1.0) -> list[CountersReading]:
    """From UTC 100 on; None is a reading that failed."""
    counters = (None if v is None else {"wal_bytes": v, "dirty_bytes": v} for v in values)
    return [
        CountersReading(100.0 + every_s * i, 50.0 + every_s * i, found)
        for i, found in enumerate(counters)
    ]


def test_counters_are_differences_and_gauges_are_values() -> None:
    """What grows is shown as a rate, by the time of the answers, what is a state as it is; which it
    is one rule of names says for all engines. Without both ends there is no difference, and it
    is never 0: of a reading that failed, of a server that was restarted and counts from 0 again,
    of readings three seconds apart, which tell no single second's rate.
    """
    series = to_series(readings(10, 15, 15, 35), 100.0, 3)
    assert series["wal_bytes_per_s"] == [5.0, 0.0, 20.0]
    assert series["dirty_bytes"] == [15.0, 15.0, 35.0]
    series = to_series(readings(10, 15, None, 35, 40), 100.0, 4)
    assert series["wal_bytes_per_s"] == [5.0, None, None, 5.0]
    assert series["dirty_bytes"] == [15.0, None, 35.0, 40.0]
    assert to_series(readings(10, 15, 1, 3), 100.0, 3)["wal_bytes_per_s"] == [5.0, None, 2.0]
    assert to_series(readings(0, 9, 18, every_s=3.0), 100.0, 6)["wal_bytes_per_s"] == [None] * 6
    late = [CountersReading(100.0, 50.0, {"n": 0.0}), CountersReading(101.0, 51.25, {"n": 10.0})]
    assert to_series(late, 100.0, 1)["n_per_s"] == [8.0]
    gauges = {
        "innodb_history_list_length",
        "innodb_dirty_bytes",
        "innodb_redo_age_bytes",
        "innodb_pool_data_size_bytes",
        "innodb_buffer_pool_pages_free",
        "autovacuum_workers_running",
        "threads_running",
    }
    counters = {
        "wal_bytes",
        "innodb_buffer_pool_wait_free",
        "checkpoints_timed",
        "innodb_redo_checkpoint_bytes",
        "innodb_buffer_pool_read_requests",
        "innodb_pages_written",
    }
    assert {name for name in gauges | counters if is_gauge(name)} == gauges


def test_readings_come_once_a_second_and_are_kept(tmp_path: Path) -> None:
    """First reading at once, then on the schedule; each is a line of counters.jsonl with its UTC."""
    server = FakeServer()
    began = time.time()
    with engine_counters.beside(target(server), tmp_path) as sampling:
        wait_for(server, 3)
    assert server.calls == 3
    lines = [json.loads(line) for line in (tmp_path / "counters.jsonl").read_text().splitlines()]
    assert [line["counters"]["wal_bytes"] for line in lines] == [100.0, 200.0, 300.0]
    assert all(line["utc"].endswith("Z") for line in lines)
    series, warnings = sampling.read(began, 2)
    assert [pytest.approx(100, rel=0.5)] * 2 == series["wal_bytes_per_s"]
    assert not warnings


@pytest.mark.parametrize(
    ("dies", "error"),
    [
        (True, ConnectionError("server closed the connection unexpectedly\nThis probably means")),
        (False, PermissionError("permission denied for view pg_stat_wal")),
    ],
)
def test_a_server_that_is_gone_or_refuses_makes_the_trial_suspect(
    dies: bool,
    error: Exception,
    tmp_path: Path,
) -> None:
    """Gaps from there on, and W013 says why. One that refuses every reading lives and does its
    work.
    """

    class Failing(FakeServer):
        def counters(self) -> dict[str, float]:
            if dies and not self.calls:
                return super().counters()
            self.lives = not dies
            raise error

    began = time.time()
    with engine_counters.beside(target(Failing()), tmp_path) as sampling:
        time.sleep(1.5)
    series, warnings = sampling.read(began, 4)
    assert set(series.columns.get("wal_bytes_per_s", [None])) == {None}
    found = {warning.id: warning for warning in warnings}
    assert found["W013"].suspect and str(error).partition("\n")[0] in found["W013"].text
    assert not dies or set(found) == {"W013", "W014"}
    # no server, no column and no warning
    with engine_counters.beside(Sampled(None, None), tmp_path) as sampling:
        assert sampling is None


def test_one_bad_reading_does_not_end_the_sampler(tmp_path: Path) -> None:
    """A server that lives is asked again."""

    class Flaky(FakeServer):
        def counters(self) -> dict[str, float]:
            answer = super().counters()
            if self.calls == 2:
                raise TimeoutError("statement timeout")
            return answer

    server = Flaky()
    began = time.time()
    with engine_counters.beside(target(server), tmp_path) as sampling:
        time.sleep(3.3)
    assert server.calls == 4
    series, warnings = sampling.read(began, 3)
    assert [value is None for value in series["wal_bytes_per_s"]] == [True, True, False]
    assert [(warning.id, warning.suspect) for warning in warnings] == [("W014", False)]


def test_a_hanging_server_does_not_hold_the_end(tmp_path: Path) -> None:
    """The block ends within about a second; the hang is a warning."""
    release = threading.Event()

    class Hanging(FakeServer):
        def counters(self) -> dict[str, float]:
            release.wait(20)
            return {}

    with engine_counters.beside(target(Hanging()), tmp_path) as sampling:
        time.sleep(0.2)
        ending = time.monotonic()
    assert time.monotonic() - ending < 15  # the server would hold it for 20
    release.set()
    assert "W013" in {warning.id for warning in sampling.read(time.time(), 2)[1]}


def sessions(
    *seen: tuple[dict[int, str], int | None], configured: str = "monday"
) -> list[CountersReading]:
    """Readings of sessions from UTC 100 on: those that are present, and how many were opened."""
    return [
        CountersReading(100.0 + second, second, {}, Sessions(present, opened, configured))
        for second, (present, opened) in enumerate(seen)
    ]


LOAD = {1: "pgbench: UPDATE", 2: "pgbench: COMMIT"}
PSQL = {**LOAD, 7: "psql: LOCK TABLE\n pgbench_accounts"}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (sessions(({}, 0), (LOAD, 2), (LOAD, 2)), None),
        (
            sessions(({}, 0), (LOAD, 2), (PSQL, 3), (LOAD, 3)),
            "psql: LOCK TABLE pgbench_accounts (second 1)",
        ),
        (
            sessions(({}, 0), (LOAD, 2), (LOAD, 3)),
            "1 in total, not listed by the server (second 1)",
        ),
        (
            sessions(({}, 0), (PSQL, 3), (LOAD, 3)),
            "1 in total, not listed by the server (second 0)",
        ),
        (
            sessions(({}, None), (LOAD, None), (PSQL, None)),
            "psql: LOCK TABLE pgbench_accounts (second 1)",
        ),
        (
            [
                *sessions(({}, 0), (LOAD, 2)),
                CountersReading(102.0, 2.0, None),
                *sessions((LOAD, 2)),
            ],
            None,
        ),
    ],
)
def test_more_sessions_than_the_load_opens_are_reported(
    seen: list[CountersReading], expected: str | None
) -> None:
    """By name where one is still there; one that was over within a second is counted."""
    found = list(foreign_sessions(seen, 2, 101.0, 10))
    assert [(warning.id, warning.text) for warning in found] == (
        [("W135", expected)] if expected else []
    )
    assert all(warning.suspect for warning in found)


def test_a_configuration_that_was_read_again_is_reported() -> None:
    """Whoever weakens a setting and puts it back leaves this."""
    seen = [*sessions((LOAD, 2)), *sessions((LOAD, 2), (LOAD, 2), configured="tuesday")[1:]]
    (found,) = foreign_sessions(seen, 2, 100.0, 10)
    assert (found.id, found.second, found.suspect) == ("W128", 1, True)
