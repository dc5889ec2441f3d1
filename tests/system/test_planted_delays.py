"""Planted delays of a disk, under real servers: the layer in which the sessions wait."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.labs.powercut import unavailable
from tests.support.servers import open_folder, place, query, serving
from tests.support.slow_disk import SlowDisk, slow_disk
from tests.system.test_time_layers import largest, observed, sessions

ROWS = 150_000  # of 130 bytes, in a table that is larger than the caches of these servers
SMALL = {
    "postgres": {"shared_buffers": "8MB"},
    "mariadb": {"innodb_buffer_pool_size": "16M"},
    "mysql": {"innodb_buffer_pool_size": "16M"},
}

pytestmark = [
    pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "losetup"),
    pytest.mark.alone,
    pytest.mark.soak,
    pytest.mark.skipif(unavailable() is not None, reason=f"no such disk: {unavailable()}"),
]


@dataclass(frozen=True)
class Planted:
    """A server on the disk."""

    server: Server
    disk: SlowDisk


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("postgres", "mariadb", "mysql")
    ],
)
def planted(request: Any) -> Iterator[Planted]:
    """A server with a table that is larger than its cache."""
    engine = request.param
    with open_folder() as folder, slow_disk(folder) as disk:
        where = place(engine, folder)
        ENGINES[engine].create(disk.folder / "data", where)
        with serving(engine, disk.folder / "data", where, **SMALL[engine]) as server:
            fill(server)
            yield Planted(server, disk)


def fill(server: Server) -> None:
    """Make the large table."""
    query(server, "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(100))")
    text = "x" * 100
    statements = []
    for base in range(0, ROWS, 1000):
        rows = ", ".join(f"({base + n}, '{text}')" for n in range(1000))
        statements.append(f"INSERT INTO big VALUES {rows}")
    query(server, *statements)
    if server.engine == "postgres":
        query(server, "VACUUM big")  # later, the first read of a row would log that it is visible
    server.checkpoint()


def commit(cursor: Any, number: int) -> None:
    """Each session changes a row of its own, on a page of its own."""
    cursor.execute(f"UPDATE big SET v = '{time.monotonic_ns()}' WHERE id = {number * 30_000}")


def read_rows(cursor: Any, number: int) -> None:
    """Read rows at random; so many that the client has little to do."""
    draw = random.Random(time.monotonic_ns() + number)
    rows = ", ".join(str(draw.randrange(ROWS)) for _ in range(50))
    cursor.execute(f"SELECT count(v) FROM big WHERE id IN ({rows})")
    cursor.fetchall()


@contextlib.contextmanager
def cold(folder: Path) -> Iterator[None]:
    """Drop the page cache of the files again and again."""
    ended = threading.Event()
    files = [path for path in folder.rglob("*") if path.is_file()]

    def drop() -> None:
        while not ended.wait(0.02):
            for path in files:
                with contextlib.suppress(OSError), path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def delayed(disk: SlowDisk, **seconds: float) -> Iterator[None]:
    """Requests take longer within the block."""
    disk.delay(**seconds)
    try:
        yield
    finally:
        disk.delay()


@contextlib.contextmanager
def committing_files(folder: Path) -> Iterator[None]:
    """Another writer makes small files and flushes each, which commits the journal."""
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            path = folder / f"other-{number % 50}"
            path.unlink(missing_ok=True)
            with path.open("w") as file:
                file.write("x" * 10_000)
                file.flush()
                os.fsync(file.fileno())

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        ended.set()
        for writer in writers:
            writer.join()


@pytest.mark.parametrize("seconds", [{"flush": 0.005}, {"write": 0.002}], ids=["flush", "write"])
def test_a_disk_that_writes_slowly_is_the_log(planted: Planted, seconds: dict[str, float]) -> None:
    """Sessions wait for the log; others write the data."""
    with sessions(planted.server, 4, commit):
        time.sleep(2)  # the first commits of a server read its undo log
    slow = delayed(planted.disk, **seconds)
    layers = observed(planted.server, sessions(planted.server, 4, commit), slow)
    assert largest(layers) == "log", layers


@pytest.mark.parametrize("seconds", [0.0, 0.002], ids=["small cache", "slow disk"])
def test_rows_that_are_not_in_memory_are_reading(planted: Planted, seconds: float) -> None:
    """The cache of the server is small, and that of the kernel is empty."""
    slow = delayed(planted.disk, read=seconds)
    reading = sessions(planted.server, 4, read_rows)
    layers = observed(planted.server, slow, cold(planted.disk.folder), reading)
    assert largest(layers) == "read", layers


def test_a_writer_that_commits_the_journal_is_the_log(planted: Planted) -> None:
    """Sessions flush their log to the same filesystem."""
    other = committing_files(planted.disk.folder)
    layers = observed(planted.server, other, sessions(planted.server, 4, commit))
    assert largest(layers) == "log", layers
