"""Real servers with small datasets, and a function that runs a load on them."""

import contextlib
import dataclasses
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from dbbench.drivers import DRIVERS, beside
from dbbench.drivers.protocol import Live, Load, LoadTask
from dbbench.engines.port import Server
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.model import Cell, Dataset, EngineSpec, FsSetup, Mkfs, Scalar, Window, Workload
from tests.support import servers
from tests.support.servers import query

NONE = Dataset("none")
SYSBENCH = Dataset("sysbench", {"tables": 2, "table_size": 2000})
PGBENCH = Dataset("pgbench", {"scale": 4})


# A commit does not wait for the disk, which others use: a window of seconds has transactions
# however busy it is.
NO_FLUSH: dict[str, dict[str, Scalar]] = {
    "postgres": {"fsync": False},
    **{
        key: {"innodb_flush_log_at_trx_commit": 0, "sync_binlog": 0} for key in ("mariadb", "mysql")
    },
}


def _served(
    engine: str, *datasets: Dataset, **settings: Scalar
) -> contextlib.AbstractContextManager[Server]:
    return servers.served(
        engine, *datasets, memory_bytes=256 * 2**20, **NO_FLUSH[engine], **settings
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Yield PostgreSQL with tables of pgbench and of sysbench."""
    with _served("postgres", PGBENCH, SYSBENCH) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """Yield MariaDB with tables of sysbench."""
    with _served("mariadb", SYSBENCH) as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[Server]:
    """Yield MySQL with tables of sysbench."""
    with _served("mysql", SYSBENCH) as server:
        yield server


@dataclasses.dataclass(frozen=True)
class Driven:
    """The outcome of a load, and its files."""

    outcome: Outcome
    raw: Path
    seen: list[Live]


class Drive:
    """Runs a load like a trial: warm-up, window, outcome. `scratch` and `raw` are empty at the
    start.
    """

    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.scratch = folder / "scratch"

    def __call__(
        self,
        server: Server,
        driver: str,
        script: str = "",
        *,
        warmup_s: float = 0,
        measure_s: float = 1,
        during: Callable[[Load], None] = lambda load: None,
        watch: Callable[[Live], None] = lambda live: None,
        user: str | None = None,
        workload: Workload | None = None,
        dataset: Dataset = NONE,
        **parameters: Scalar,
    ) -> Driven:
        """Run a load and return its outcome. `during` is called after the warm-up, `watch` with
        each second. `user` replaces the account of the server, `workload` the one that has only
        the script.
        """
        for folder in (self.raw, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        seen: list[Live] = []
        to_end = driver in ("scan", "statements")
        window = Window("to-completion" if to_end else "fixed", warmup_s, measure_s)
        cell = _cell(server.engine, driver, script, window, parameters)
        cell = dataclasses.replace(cell, workload=workload or cell.workload, dataset=dataset)
        driven = cast(Server, _As(server, user)) if user else server
        with _load(driven, cell, self.raw, self.scratch) as load:
            load.wait_until(warmup_s, seen.append)
            during(load)
            load.wait(lambda live: (seen.append(live), watch(live))[1])
        return Driven(load.outcome(), self.raw, seen)


@pytest.fixture
def drive(tmp_path: Path) -> Drive:
    """Return a function that runs a load to its end."""
    return Drive(tmp_path)


@contextlib.contextmanager
def _load(
    server: Server,
    cell: Cell,
    raw: Path,
    scratch: Path,
) -> Iterator[Load]:
    """Start the load in the same way as `run.trial`."""
    clock = Clock()
    task = LoadTask(server, cell, 42, clock, raw, scratch)
    with DRIVERS[cell.workload.driver].driving(task) as load:
        if not cell.workload.during:
            yield load
            return
        with beside.beside(load, task) as both:
            yield both


def _cell(
    engine: str,
    driver: str,
    script: str,
    window: Window,
    parameters: dict[str, Scalar],
) -> Cell:
    workload = Workload(
        "t",
        cast(Any, driver),
        (cast(Any, engine),),
        {"kind": "none"},
        script=script,
    )
    setup = FsSetup("ext4", Mkfs("ext4"))
    spec = EngineSpec(cast(Any, engine))
    return Cell("c", "ext4", setup, spec, workload, parameters, Dataset("none"), window)


class _As:
    """A server with another user name; everything else is that of the real server."""

    def __init__(self, server: Server, user: str) -> None:
        self._server = server
        self.user = user

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@pytest.fixture(scope="session")
def served() -> Callable[..., contextlib.AbstractContextManager[Server]]:
    """Return a function for a separate server, which a test may kill: `with served("postgres",
    dataset) as server`.
    """
    return _served


@pytest.fixture
def slow_logins(postgres: Server) -> Iterator[Callable[[int], Server]]:
    """Return a function that lets every login at PostgreSQL wait for some seconds."""

    def slowed(seconds: int) -> Server:
        query(postgres, f"ALTER SYSTEM SET post_auth_delay = {seconds}", "SELECT pg_reload_conf()")
        return postgres

    yield slowed
    query(postgres, "ALTER SYSTEM RESET post_auth_delay", "SELECT pg_reload_conf()")


@pytest.fixture
def stall() -> Callable[[Server, float], None]:
    """Return a function that stops all processes of a server for some seconds."""

    def stopped(server: Server, seconds: float) -> None:
        _signal_all(server, signal.SIGSTOP)
        time.sleep(seconds)
        _signal_all(server, signal.SIGCONT)

    return stopped


def _signal_all(server: Server, how: signal.Signals) -> None:
    top = psutil.Process(server.pid)
    for process in (*top.children(recursive=True), top):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(how)
