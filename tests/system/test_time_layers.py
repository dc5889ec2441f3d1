"""Planted delays on real servers: the sampler names the layer in which the sessions wait."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines.port import Server
from dbbench.machine import threads
from dbbench.samplers.thread_waits import Second, ThreadWaits
from tests.support.servers import query, served

SAMPLED_S = 2.2  # of these, one whole second counts
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
    ],
)
def server(request: Any) -> Iterator[Server]:
    """A server with a table of ten rows."""
    with served(request.param) as running:
        query(running, TABLE, *(f"INSERT INTO t VALUES ({n}, 0)" for n in range(10)))
        yield running


@contextlib.contextmanager
def sessions(server: Server, count: int, work: Callable[[Any, int], None]) -> Iterator[None]:
    """Run `work(cursor, number)` again and again in that many sessions."""
    ended = threading.Event()

    def run(number: int) -> None:
        with contextlib.closing(server.connect()) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            while not ended.is_set():
                work(cursor, number)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        ended.set()
        for thread in running:
            thread.join()


def observed(server: Server) -> dict[str, float]:
    """The mean number of sessions in each layer, without the first second."""
    assert server.pid is not None
    sampler = ThreadWaits(server.pid, Path(os.devnull), server.session_threads)
    with threads.beside("threads", sampler.work):
        time.sleep(SAMPLED_S)
    last: Second = sampler.seconds[1]
    return last.sessions()


def largest(layers: dict[str, float]) -> str:
    """The layer with most sessions."""
    return max(layers, key=lambda layer: layers[layer])


def commit(cursor: Any, number: int) -> None:
    """Each session changes a row of its own."""
    cursor.execute(UPDATE.format(id=number))


def test_commits_wait_for_the_log(server: Server) -> None:
    """One session flushes, the others wait for it; on a busy machine they also wait for a CPU."""
    with sessions(server, 4, commit):
        layers = observed(server)
    waiting = {layer: layers[layer] for layer in layers if layer not in ("cpu", "queue")}
    assert largest(waiting) == "log"


def test_a_client_that_sleeps_is_the_client(server: Server) -> None:
    """The server has nothing to do between the statements."""

    def pause(cursor: Any, number: int) -> None:
        cursor.execute("SELECT 1")
        cursor.fetchall()
        time.sleep(0.1)

    with sessions(server, 4, pause):
        assert largest(observed(server)) == "client"


def test_a_row_lock_of_another_session_is_a_lock(server: Server) -> None:
    """Four sessions wait for a row that a fifth has changed and not committed."""
    with contextlib.closing(server.connect()) as holder:
        holder.autocommit = False
        cursor = holder.cursor()
        cursor.execute(UPDATE.format(id=9))
        timer = threading.Timer(SAMPLED_S + 0.5, holder.commit)
        timer.start()
        with sessions(server, 4, lambda cursor, _: cursor.execute(UPDATE.format(id=9))):
            layers = observed(server)
        timer.join()
    assert largest(layers) == "lock"


@contextlib.contextmanager
def group(server: Server, parent: Path, file: str, value: str) -> Iterator[None]:
    """A control group of version 1 with this limit, which has the server in it."""
    folder = parent / f"dbbench-test-{os.getpid()}"
    folder.mkdir()
    (folder / file).write_text(value)
    pids = [str(server.pid)]
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in pids + children:
        (folder / "cgroup.procs").write_text(pid)
    try:
        yield
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


@pytest.mark.skipif(
    not (CPU_GROUPS / "cpu.cfs_quota_us").parent.is_dir(), reason="no cpu controller of version 1"
)
def test_a_quota_of_cpu_time_is_throttling(server: Server) -> None:
    """The server may use a tenth of a CPU, and could use two."""
    statement = "SELECT count(*) FROM t a, t b, t c, t d, t e, t f"

    def count(cursor: Any, number: int) -> None:
        cursor.execute(statement)
        cursor.fetchall()

    with (
        group(server, CPU_GROUPS, "cpu.cfs_quota_us", "10000"),
        sessions(server, 2, count),
    ):
        layers = observed(server)
    assert largest(layers) == "throttled"


@pytest.mark.needs("engine:postgres")
@pytest.mark.skipif(not BLKIO_GROUPS.is_dir(), reason="no blkio controller of version 1")
def test_a_small_cache_on_a_slow_disk_is_reading() -> None:
    """A table of 6 MB is not in memory, and the disk reads 2 MB a second."""
    fill = "CREATE TABLE big AS SELECT n, repeat('x', 100) FROM generate_series(1, 45000) n"
    with served("postgres", shared_buffers="1MB") as server:
        query(server, fill, "VACUUM big", "CHECKPOINT")
        data = Path(query(server, "SHOW data_directory")[0][0])
        for file in (data / "base").rglob("*"):
            if file.is_file():
                fd = os.open(file, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        device = data.stat().st_dev
        limit = f"{os.major(device)}:{os.minor(device)} 2000000"

        def scan(cursor: Any, number: int) -> None:
            cursor.execute("SET max_parallel_workers_per_gather = 0")
            cursor.execute("SELECT sum(n) FROM big")

        with (
            group(server, BLKIO_GROUPS, "blkio.throttle.read_bps_device", limit),
            sessions(server, 1, scan),
        ):
            layers = observed(server)
    assert layers["read"] > 0.8
