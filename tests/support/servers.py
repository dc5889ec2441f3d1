"""Servers that tests start by themselves: where they lie, how a plan names them, and what they answer."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbbench.datasets import generated
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.model import Dataset, EngineSpec, Scalar, merged
from tests.conftest import engine_bin


def programs(engine: str) -> Path | None:
    """Where its programs are. MySQL may be one that is not in PATH; the others are what packages put in place."""
    return engine_bin(engine) if engine == "mysql" else None


def place(engine: str, folder: Path) -> Place:
    """Sockets and logs of a server, in that folder."""
    return Place(folder / "s", folder / "logs", programs(engine))


def spec(engine: Any) -> EngineSpec:
    """The engine as a plan names it."""
    bin_ = programs(engine)
    return EngineSpec(engine, bins=(str(bin_),) if bin_ else ())


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the engines' accounts can enter, unlike pytest's own, with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dbb", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def serving(
    engine: str, data: Path, where: Place, *, memory_bytes: int | None = None, **settings: Scalar
) -> contextlib.AbstractContextManager[Server]:
    """A server with a trial's defaults and these settings."""
    kind = ENGINES[engine]
    return kind.serving(data, merged(("default", kind.defaults(memory_bytes)), ("plan", settings)), where)


@contextlib.contextmanager
def served(engine: str, *datasets: Dataset, memory_bytes: int | None = None, **settings: Scalar) -> Iterator[Server]:
    """A server with these datasets; gone with its data at the end of the block."""
    with open_folder() as folder:
        where = place(engine, folder)
        ENGINES[engine].create(folder / "data", where)
        with serving(engine, folder / "data", where, memory_bytes=memory_bytes, **settings) as server:
            for dataset in datasets:
                generated.build(server, dataset)
            yield server


def query(server: Server, *statements: str, at: str | None = None) -> list[tuple[Any, ...]]:
    """Run the statements, in another database than the server's own where `at` names it; the rows of the last."""
    rows: list[tuple[Any, ...]] = []
    with contextlib.closing(server.connect(at)) as connection, contextlib.closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
    return rows
