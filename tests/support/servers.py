"""Servers that tests start themselves: their programs, their names in a plan, and queries."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbbench.datasets import generated
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.model import Dataset, EngineSpec, Scalar, merge_settings
from tests.conftest import engine_bin


def programs(engine: str) -> Path | None:
    """Return the directory of the engine's programs. MySQL may be outside PATH, and a release is
    ("postgres-18"); the others are those of packages.
    """
    return engine_bin(engine) if engine == "mysql" or "-" in engine else None


def place(engine: str, folder: Path) -> Place:
    """Return the place of a server's sockets and logs in that folder."""
    return Place(folder / "s", folder / "logs", programs(engine))


def spec(engine: Any) -> EngineSpec:
    """Return the engine, or a release of it, as in a plan."""
    bin_ = programs(engine)
    return EngineSpec(engine.partition("-")[0], bins=(str(bin_),) if bin_ else ())


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder that the accounts of the engines can enter, unlike pytest's, with a path that
    is short enough for a socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="dbb", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def serving(
    engine: str, data: Path, where: Place, *, memory_bytes: int | None = None, **settings: Scalar
) -> contextlib.AbstractContextManager[Server]:
    """Run a server with the defaults of a trial and these settings."""
    kind = ENGINES[engine]
    return kind.serving(
        data,
        merge_settings(("default", kind.defaults(memory_bytes)), ("plan", settings)),
        where,
    )


@contextlib.contextmanager
def served(
    engine: str, *datasets: Dataset, memory_bytes: int | None = None, **settings: Scalar
) -> Iterator[Server]:
    """Run a server with these datasets; its data is removed at the end of the block."""
    with open_folder() as folder:
        where = place(engine, folder)
        ENGINES[engine].create(folder / "data", where)
        with serving(
            engine, folder / "data", where, memory_bytes=memory_bytes, **settings
        ) as server:
            for dataset in datasets:
                generated.build(server, dataset)
            yield server


def query(server: Server, *statements: str, at: str | None = None) -> list[tuple[Any, ...]]:
    """Run the statements in the server's database, or in `at`; return the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with (
        contextlib.closing(server.connect(at)) as connection,
        contextlib.closing(connection.cursor()) as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
    return rows
