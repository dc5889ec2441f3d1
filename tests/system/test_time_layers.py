"""Planted delays on real servers: the sampler names the layer in which the sessions wait."""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines.port import Server
from dbbench.machine import threads
from dbbench.machine.host.proc import below, tasks
from dbbench.process import wait_while
from dbbench.samplers.thread_waits import Second, ThreadWaits
from tests.support.servers import query, served

SAMPLED_S = 2.4  # of these, the last whole second counts: sessions may begin late
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
BLKIO_GROUPS = Path("/sys/fs/cgroup/blkio")
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
UPDATE = "UPDATE t SET v = v + 1 WHERE id = {id}"

pytestmark = [pytest.mark.needs("root"), pytest.mark.alone]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.needs("engine:postgres")),
        pytest.param("mariadb", marks=pytest.mark.needs("engine:mariadb")),
        pytest.param("mysql", marks=pytest.mark.needs("engine:mysql")),
    ],
)
def server(request: Any) -> Iterator[Server]:
    """A server with a table of ten rows."""
    with served(request.param) as running:
        query(running, TABLE, *(f"INSERT INTO t VALUES ({n}, 0)" for n in range(10)))
        yield running


def sessions(
    server: Server, count: int, work: Callable[[Any, int], None]
) -> contextlib.AbstractContextManager[None]:
    """Run `work(cursor, number)` again and again in that many sessions of another process.

    A load in this process would share Python's lock with the sampler, which would then see the
    server mostly at the moment at which a client has sent a statement.
    """
    forked = multiprocessing.get_context("fork")
    begun = forked.Event()
    ended = forked.Event()

    def run(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            while not ended.is_set():
                work(cursor, number)

    def client() -> None:
        begun.wait()
        running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    # It is made before the sampler's thread begins: a fork beside other threads may hang.
    process = forked.Process(target=client, daemon=True)
    process.start()

    @contextlib.contextmanager
    def load() -> Iterator[None]:
        begun.set()
        try:
            time.sleep(0.3)
            yield
        finally:
            ended.set()
            process.join()

    return load()


def observed(server: Server, *delays: contextlib.AbstractContextManager[None]) -> dict[str, float]:
    """The mean number of sessions in each layer in a second with these loads and delays."""
    assert server.pid is not None
    server.sessions()
    sampler = ThreadWaits(server.pid, Path(os.devnull), server.session_threads)
    assert wait_while(lambda: not sampler.leave_out_idle(), 2.0) is False
    with threads.beside("threads", sampler.work):
        time.sleep(0.1)
        with contextlib.ExitStack() as stack:
            for delay in delays:
                stack.enter_context(delay)
            begin = time.time()
            time.sleep(SAMPLED_S)
            end = time.time()
    whole: list[Second] = []
    for second in sampler.seconds:
        if begin + 1 <= second.utc <= end:
            whole.append(second)
    return whole[-1].sessions()


def test_only_the_sessions_of_the_load_are_counted(server: Server) -> None:
    """Of dbbench's own, which read the server's counters, there is nothing."""
    layers = observed(server, sessions(server, 3, commit))
    assert sum(layers.values()) == pytest.approx(3, abs=0.1)


def largest(layers: dict[str, float]) -> str:
    """The layer with most sessions."""
    return max(layers, key=lambda layer: layers[layer])


def commit(cursor: Any, number: int) -> None:
    """Each session changes a row of its own."""
    cursor.execute(UPDATE.format(id=number))


@pytest.mark.skipif(not BLKIO_GROUPS.is_dir(), reason="no blkio controller of version 1")
def test_commits_wait_for_the_log(server: Server) -> None:
    """One session flushes, the others wait for it; the disk writes 40 times a second."""
    file = "blkio.throttle.write_iops_device"
    slow = group(server, BLKIO_GROUPS, file, f"{disk(server)} 40")
    assert largest(observed(server, slow, sessions(server, 4, commit))) == "log"


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_client_that_sleeps_or_has_one_core_is_the_client(server: Server, is_busy: bool) -> None:
    """The server has nothing to do between the statements; Python's threads share a core."""

    def pause(cursor: Any, number: int) -> None:
        cursor.execute("SELECT 1")
        cursor.fetchall()
        until = time.monotonic() + 0.1
        while is_busy and time.monotonic() < until:
            pass
        time.sleep(0.0 if is_busy else 0.1)

    assert largest(observed(server, sessions(server, 4, pause))) == "client"


def test_a_row_lock_of_another_session_is_a_lock(server: Server) -> None:
    """Four sessions wait for a row that a fifth has changed and not committed."""
    with contextlib.closing(server.connect()) as holder:
        holder.autocommit = False
        cursor = holder.cursor()
        cursor.execute(UPDATE.format(id=9))
        timer = threading.Timer(SAMPLED_S + 2, holder.commit)
        timer.start()
        waiting = sessions(server, 4, lambda cursor, _: cursor.execute(UPDATE.format(id=9)))
        layers = observed(server, waiting)
        timer.join()
    assert largest(layers) == "lock"


def disk(server: Server) -> str:
    """The number of the disk with the server's data."""
    name = "data_directory" if server.engine == "postgres" else "datadir"
    device = Path(server.effective_settings()[name]).stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


@contextlib.contextmanager
def group(server: Server, parent: Path, file: str, value: str) -> Iterator[None]:
    """A control group of version 1 with this limit, which has the server in it."""
    folder = parent / f"dbbench-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / file).write_text(value)
        for pid in sorted(below([server.pid or 0], tasks())):
            with contextlib.suppress(ProcessLookupError):
                (folder / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        # A process that starts or ends at this moment keeps the group for longer.
        for _ in range(100):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.02)


@pytest.mark.skipif(not CPU_GROUPS.is_dir(), reason="no cpu controller of version 1")
def test_a_quota_of_cpu_time_is_throttling(server: Server) -> None:
    """The server may use a tenth of a CPU, and could use two."""
    statement = "SELECT count(*) FROM t a, t b, t c, t d, t e, t f"

    def count(cursor: Any, number: int) -> None:
        cursor.execute(statement)
        cursor.fetchall()

    quota = group(server, CPU_GROUPS, "cpu.cfs_quota_us", "10000")
    layers = observed(server, sessions(server, 2, count), quota)
    assert largest(layers) == "throttled"


@pytest.mark.needs("engine:postgres")
@pytest.mark.skipif(not BLKIO_GROUPS.is_dir(), reason="no blkio controller of version 1")
def test_a_small_cache_on_a_slow_disk_is_reading() -> None:
    """A table of 6 MB is not in memory, and the disk reads 2 MB a second."""
    fill = "CREATE TABLE big AS SELECT n, repeat('x', 100) FROM generate_series(1, 45000) n"
    with served("postgres", shared_buffers="1MB") as server:
        query(server, fill, "VACUUM big", "CHECKPOINT")
        data = Path(query(server, "SHOW data_directory")[0][0])
        for path in (data / "base").rglob("*"):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

        def scan(cursor: Any, number: int) -> None:
            cursor.execute("SET max_parallel_workers_per_gather = 0")
            cursor.execute("SELECT sum(n) FROM big")

        file = "blkio.throttle.read_bps_device"
        slow = group(server, BLKIO_GROUPS, file, f"{disk(server)} 2000000")
        layers = observed(server, slow, sessions(server, 1, scan))
    assert layers["read"] > 0.8


@pytest.mark.needs("engine:postgres")
@pytest.mark.skipif(not BLKIO_GROUPS.is_dir(), reason="no blkio controller of version 1")
def test_a_table_that_is_written_to_a_slow_disk_is_writing() -> None:
    """Without a log of its rows, the session itself flushes a new table; the disk writes 2 MB/s."""
    fill = "CREATE TABLE big AS SELECT n, repeat('x', 100) FROM generate_series(1, 45000) n"
    with served("postgres", wal_level="minimal", max_wal_senders=0) as server:

        def write(cursor: Any, number: int) -> None:
            cursor.execute("DROP TABLE IF EXISTS big")
            cursor.execute(fill)

        file = "blkio.throttle.write_bps_device"
        slow = group(server, BLKIO_GROUPS, file, f"{disk(server)} 2000000")
        assert largest(observed(server, slow, sessions(server, 1, write))) == "write"


@pytest.mark.soak
@pytest.mark.skipif(not (BLKIO_GROUPS.is_dir() and CPU_GROUPS.is_dir()), reason="no groups")
def test_every_planted_delay_of_a_long_series_has_its_layer(server: Server) -> None:
    """Of each kind three, on each of the three servers: 45."""
    for _ in range(3):
        test_commits_wait_for_the_log(server)
        test_a_client_that_sleeps_or_has_one_core_is_the_client(server, False)
        test_a_client_that_sleeps_or_has_one_core_is_the_client(server, True)
        test_a_row_lock_of_another_session_is_a_lock(server)
        test_a_quota_of_cpu_time_is_throttling(server)
