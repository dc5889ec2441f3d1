"""What sessions wait for: by hand, in recorded samples of servers, and in a process of this
test.
"""

import dataclasses
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from dbbench.metrics.histogram import Histogram, bucket_of
from dbbench.metrics.series import Series
from dbbench.model import TimeLayer
from dbbench.run.evaluate import time_layers
from dbbench.samplers import time_layers as in_time_layers
from dbbench.samplers.thread_waits import NO_PERMISSION, Second, ThreadWaits, affordable
from dbbench.samplers.time_layers import (
    RUNNING,
    LockCounts,
    ThreadState,
    Wait,
    calls_by_number,
    kind_of,
    layer_of,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED: Any = json.loads((FIXTURES / "samplers" / "threads.json").read_text())
FLUSH = ThreadState("session", "fdatasync", "log", "jbd2_log_wait_commit")
LOCKED = ThreadState("session", "futex", "", "futex_do_wait")


def waits(*moments: list[ThreadState]) -> Counter[Wait]:
    """What the sessions wait for in the last of these moments."""
    locks = LockCounts(Counter(), Counter())
    return [in_time_layers.waits(moment, locks) for moment in moments][-1]


@pytest.mark.parametrize(
    ("state", "layer"),
    [
        (ThreadState("session"), RUNNING),
        (FLUSH, TimeLayer.LOG),
        (ThreadState("session", "pwrite64", "log", "ext4_buffered_write_iter"), TimeLayer.LOG),
        (ThreadState("session", "pwrite64", "log", "balance_dirty_pages"), TimeLayer.THROTTLED),
        (ThreadState("session", "pread64", "data", "folio_wait_bit_common"), TimeLayer.READ),
        (ThreadState("session", "fault", "", "folio_wait_bit_common"), TimeLayer.READ),
        (ThreadState("session", "pwrite64", "data", "__iomap_dio_rw"), TimeLayer.WRITE),
        (ThreadState("session", "pwrite64", "data", "xfs_ilock"), TimeLayer.FILESYSTEM),
        (ThreadState("session", "fsync", "data", "rq_qos_wait"), TimeLayer.THROTTLED),
        (ThreadState("session", "fallocate", "data", "start_this_handle"), TimeLayer.FILESYSTEM),
        (
            ThreadState("session", "recvfrom", "socket", "unix_stream_read_generic"),
            TimeLayer.CLIENT,
        ),
        (ThreadState("session", "poll", "", "poll_schedule_timeout"), TimeLayer.CLIENT),
        (ThreadState("session", "epoll_wait", "", "do_epoll_wait", " idle"), TimeLayer.CLIENT),
        (
            ThreadState("session", "epoll_wait", "", "do_epoll_wait", " idle in transaction"),
            TimeLayer.CLIENT,
        ),
        (ThreadState("session", "epoll_wait", "", "do_epoll_wait", " waiting"), TimeLayer.LOCK),
        (ThreadState("session", "epoll_wait", "", "do_epoll_wait", " busy"), TimeLayer.UNKNOWN),
        (LOCKED, TimeLayer.LOCK),
        (ThreadState("session", "999"), TimeLayer.UNKNOWN),
    ],
)
def test_call_file_and_function_decide_the_layer(state: ThreadState, layer: str) -> None:
    """Each kind of wait has its layer, and an unlisted call is not known."""
    assert layer_of(state) == layer


def test_who_waits_for_the_flush_of_another_waits_for_the_log() -> None:
    """Group commit: one session flushes, the others sleep in a lock until it is done."""
    flush = Wait(TimeLayer.LOG, "fdatasync", "log", "jbd2_log_wait_commit")
    assert waits([LOCKED, FLUSH, LOCKED]) == {flush: 1, flush._replace(through="futex"): 2}


def test_the_flush_may_be_of_a_thread_that_is_not_a_session() -> None:
    """MySQL's log flusher, PostgreSQL's walwriter."""
    flush = Wait(TimeLayer.LOG, "fdatasync", "log", "jbd2_log_wait_commit", "futex")
    assert waits([LOCKED, FLUSH._replace(role="log writer")]) == {flush: 1}


def test_a_lock_without_a_flush_is_a_lock() -> None:
    """Nobody writes the log at that moment."""
    assert [wait.layer for wait in waits([LOCKED])] == [TimeLayer.LOCK]


def waited(*moments: list[ThreadState]) -> Counter[str]:
    """In which layers the sessions waited in the last moment, after the others."""
    return Counter(wait.layer for wait in waits(*moments))


def test_a_lock_of_the_log_is_known_by_its_address() -> None:
    """Who flushes may run, or wait for a CPU; then only the address tells what others wait for."""
    of_log = LOCKED._replace(lock="0x10")
    other = LOCKED._replace(lock="0x20")
    flushing = [of_log, FLUSH]
    assert waited(flushing, [of_log, other]) == {TimeLayer.LOG: 1, TimeLayer.LOCK: 1}


def test_a_lock_that_is_waited_for_without_the_log_stays_a_lock() -> None:
    """A row is locked for seconds, in one moment of which another thread flushes."""
    row = LOCKED._replace(lock="0x10")
    assert waited([row, FLUSH], *[[row]] * 5) == {TimeLayer.LOCK: 1}


def test_postgresql_has_one_address_for_all_locks() -> None:
    """It says nothing; the server counts which of them are the log's."""
    assert waited([LOCKED, FLUSH], [LOCKED]) == {TimeLayer.LOCK: 1}


def test_a_row_lock_of_postgresql_stays_a_lock_during_a_flush() -> None:
    """The title of the process says that it waits for a lock."""
    row = ThreadState("session", "epoll_wait", "", "do_epoll_wait", " waiting")
    assert TimeLayer.LOCK in [wait.layer for wait in waits([row, FLUSH])]


def test_a_wait_for_an_io_worker_is_a_read() -> None:
    """PostgreSQL 18 reads in processes of its own."""
    latch = ThreadState("session", "epoll_wait", "", "do_epoll_wait", " busy")
    worker = ThreadState("I/O worker", "pread64", "data", "folio_wait_bit_common")
    assert [wait.layer for wait in waits([latch, worker])] == [TimeLayer.READ]


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        ("ext4-postgres", {"client": 12, RUNNING: 28, "lock": 9, "log": 9, "read": 2}),
        (
            "xfs-postgres",
            {"client": 21, RUNNING: 16, "lock": 9, "log": 33, "read": 10, "unknown": 1},
        ),
        ("btrfs-postgres", {"client": 11, RUNNING: 7, "lock": 4, "log": 39, "read": 1}),
        ("ext4-mariadb", {"client": 12, RUNNING: 6, "log": 30}),
        ("xfs-mariadb", {"client": 15, RUNNING: 5, "log": 40}),
        ("btrfs-mariadb", {"client": 13, RUNNING: 2, "lock": 4, "log": 17}),
    ],
)
def test_recorded_samples_of_servers_have_their_layers(
    recording: str, expected: dict[str, int]
) -> None:
    """Twelve moments each, of servers with four clients and the session that reads counters."""
    counted: dict[str, int] = {}
    for moment in RECORDED[recording]:
        for wait, count in waits([ThreadState(*state) for state in moment]).items():
            counted[str(wait.layer)] = counted.get(str(wait.layer), 0) + count
    assert counted == expected


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/m/data/pg_wal/00000001000000000000000C", "log"),
        ("/m/data/ib_logfile0", "log"),
        ("/m/data/#innodb_redo/#ib_redo12", "log"),
        ("/m/data/binlog.000002", "log"),
        ("/m/data/#ib_16384_0.dblwr", "doublewrite"),
        ("/m/data/base/pgsql_tmp/pgsql_tmp1.0", "temporary"),
        ("socket:[12]", "socket"),
        ("/m/data/base/5/16384", "data"),
    ],
)
def test_files_have_kinds(path: str, kind: str) -> None:
    """The names are those of the servers."""
    assert kind_of(path, "files") == kind


def test_running_time_is_split_by_the_scheduler_s_count() -> None:
    """Of 4 running sessions that had a CPU for a quarter of the time, 3 wait for one."""
    second = Second(0.0, 10, part=0.5, on_cpu_s=1.0, queued_s=3.0)
    second.waits[Wait(RUNNING)] = 20
    sessions = second.sessions()
    assert (sessions["cpu"], sessions["queue"]) == (1.0, 3.0)


def test_a_used_up_quota_is_throttling() -> None:
    """A session without a CPU is throttled in a second in which the quota was used up."""
    second = Second(0.0, 10, on_cpu_s=1.0, queued_s=3.0, throttled=True)
    second.waits[Wait(RUNNING)] = 40
    assert second.sessions()["throttled"] == 3.0


def test_a_sleeping_thread_is_sampled() -> None:
    """The kernel says in which call, and behind which file, a real thread sleeps."""
    reading, writing = os.pipe()
    sleeper = threading.Thread(target=os.read, args=(reading, 1), daemon=True)
    sleeper.start()
    time.sleep(0.05)
    sampler = ThreadWaits(os.getpid(), Path(os.devnull), frozenset)
    sampler._find_threads()
    state = sampler._state(sampler._threads[sleeper.native_id or 0])
    os.write(writing, b"x")
    sleeper.join()
    assert state is not None
    assert (state.role, state.call, state.file) == ("session", "read", "socket")
    assert "pipe" in state.function


def facts(
    seconds: list[Second],
    grown: dict[str, float],
    note: str = "",
    columns: Any = MappingProxyType({}),
    **parameters: int,
) -> Any:
    """The facts of a window of two seconds with 8 transactions of 500 ms."""
    sampler = ThreadWaits(os.getpid(), Path(os.devnull), frozenset)
    sampler.seconds = seconds
    sampler.note = note
    histogram = Histogram({bucket_of(500_000): 8})
    begun = [0.0, 0.0, 1.0]
    series = Series(3, {"tps": [9.0, 5.0, 3.0], "checkpoints_begun_per_s": begun, **columns})
    outcome = SimpleNamespace(
        begin_utc=100.0, window_s=2.0, transactions=8, histogram=histogram, series=series
    )
    host = SimpleNamespace(seconds=2.0, kernel_s={"jbd2": 0.1, "idle": 0.001})
    readings = SimpleNamespace(
        engine=SimpleNamespace(grown=grown),
        host=host,
        processes=SimpleNamespace(client_threads={}),
    )
    window = SimpleNamespace(kind="fixed", warmup_s=1.0)
    cell = SimpleNamespace(window=window, parameters=parameters)
    return time_layers.facts(sampler, *(cast(Any, part) for part in (outcome, cell, readings)))


def second(utc: float) -> Second:
    """Two sessions in one sample: one flushes, one waits for it."""
    return Second(utc, 1, waits([FLUSH, LOCKED]))


def test_the_layers_of_a_window_add_up_to_the_latency() -> None:
    """Two sessions × 2 s are 8 transactions of 500 ms; the warm-up does not count."""
    observed = facts([second(101.0), second(102.0), second(103.0)], {})
    assert observed.samples == 2
    assert observed.shares["log"] == 1.0
    assert sum(observed.ms_per_tx.values()) == 500.0
    assert observed.latency_ms == pytest.approx(500, rel=0.01)


def test_a_second_in_which_the_load_ends_does_not_count() -> None:
    """Its sessions are gone for a part of it."""
    ending = Second(103.2, 2, waits([FLUSH, LOCKED]))
    observed = facts([second(102.0), second(103.0), ending], {})
    assert (observed.samples, observed.sessions) == (2, 2.0)


def test_slow_seconds_have_a_cause_and_an_event() -> None:
    """The slowest first."""
    observed = facts([second(102.0), second(103.0)], {})
    (slowest, other) = observed.slow
    assert (slowest.second, slowest.tps, slowest.events) == (2, 3.0, ("checkpoint",))
    assert (slowest.layer, slowest.share) == ("log", 1.0)
    assert slowest.function == "jbd2_log_wait_commit"
    assert (other.second, other.events) == (1, ())
    assert observed.kernel == {"jbd2": 0.05}


def test_a_slow_second_is_listed_once() -> None:
    """Two samples that ended in the same second."""
    observed = facts([second(102.0), second(102.4), second(103.0)], {})
    assert [slow.second for slow in observed.slow] == [2, 1]


def test_row_locks_of_innodb_are_counted_by_the_server() -> None:
    """A session waits for both in the same call; 1 s of 2 session-seconds was for a row."""
    observed = facts([second(102.0), second(103.0)], {"innodb_row_lock_ms": 1000.0})
    assert observed.shares["lock"] == observed.shares["log"] / 3 == 0.25


def test_locks_of_the_log_s_flush_are_counted_by_postgresql() -> None:
    """Nobody sleeps in a flush; three of four sessions that wait for a lock wait for that one."""
    locked = Second(102.0, 1, waits([LOCKED, LOCKED]))
    waiting = {"lwlock_waits_active": [2.0, None, 2.0], "wal_lock_waits_active": [1.0, None, 2.0]}
    observed = facts([locked, dataclasses.replace(locked, utc=103.0)], {}, columns=waiting)
    assert (observed.shares["log"], observed.shares["lock"]) == (0.75, 0.25)


def test_layers_that_do_not_add_up_to_the_latency_are_not_reported() -> None:
    """A session that was not recognized is missing in the sum: 250 instead of 500 ms."""
    half = [Second(utc, 1, waits([FLUSH])) for utc in (102.0, 103.0)]
    observed = facts(half, {})
    assert observed.shares == {}
    assert "do not add up" in observed.note


def test_of_an_open_loop_the_client_has_what_remains_of_the_latency() -> None:
    """Latency is from the schedule: of 500 ms, a session was busy for 250."""
    idle = ThreadState("session", "poll")
    seconds = [Second(utc, 1, waits([FLUSH, idle, idle, idle])) for utc in (102.0, 103.0)]
    observed = facts(seconds, {}, rate=4)
    assert observed.ms_per_tx["client"] == pytest.approx(250, rel=0.01)
    assert sum(observed.ms_per_tx.values()) == pytest.approx(observed.latency_ms)


def test_what_the_client_does_between_transactions_is_not_in_its_latency() -> None:
    """Of three sessions one is busy: 250 of 750 ms, 250 more are the client's in the transaction."""
    idle = ThreadState("session", "poll")
    observed = facts([Second(utc, 1, waits([FLUSH, idle, idle])) for utc in (102.0, 103.0)], {})
    assert observed.ms_per_tx["log"] == 250
    assert observed.ms_per_tx["client"] == pytest.approx(250, rel=0.01)
    assert observed.shares["client"] == pytest.approx(2 / 3)


def test_an_open_loop_with_more_than_its_latency_is_not_reported() -> None:
    """Two sessions were busy for 750 ms per transaction, whose latency is 500."""
    observed = facts([Second(utc, 1, waits([FLUSH] * 3)) for utc in (102.0, 103.0)], {}, rate=4)
    assert "do not add up" in observed.note


def test_sessions_before_the_load_are_left_out() -> None:
    """They are dbbench's own; a session that begins later is counted."""
    sampler = ThreadWaits(os.getpid(), Path(os.devnull), frozenset)
    present = {}
    for begins in ("before", "after"):
        reading, writing = os.pipe()
        sleeper = threading.Thread(target=os.read, args=(reading, 1), daemon=True)
        sleeper.start()
        time.sleep(0.05)
        present[sleeper.native_id] = (begins, writing)
        if begins == "before":
            assert sampler.leave_out_idle()
    sampler._find_threads()
    sampled = [present[tid][0] for tid in sampler._threads if tid in present]
    for _, writing in present.values():
        os.write(writing, b"x")
    assert sampled == ["after"]


@pytest.mark.parametrize("note", ["", NO_PERMISSION])
def test_what_was_not_sampled_is_not_zero(note: str) -> None:
    """Without enough samples there are no shares, and a reason."""
    observed = facts([], {}, note)
    assert observed.shares == {}
    assert observed.note


def test_numbers_of_calls_are_distinct() -> None:
    """On both architectures of the table."""
    for machine in ("x86_64", "aarch64"):
        numbers = calls_by_number(machine)
        assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize(
    ("looks", "cpu_s", "next_looks"),
    [(20, 0.006, 20), (20, 0.02, 6), (10, 0.006, 10), (20, 1.0, 4), (0, 0.0, 20)],
)
def test_many_threads_are_looked_at_less_often(
    looks: int,
    cpu_s: float,
    next_looks: float,
) -> None:
    """The load keeps 99.4 % of a core, whatever the number of its sessions."""
    assert affordable(looks, cpu_s) == pytest.approx(next_looks)
