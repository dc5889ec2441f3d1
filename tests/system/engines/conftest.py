"""Each engine with a small table, which is made once; every test gets a copy of the data in a
separate folder.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dbbench.engines import ENGINES, SERVERS
from dbbench.engines.port import Engine, Place, Server
from dbbench.model import Scalar, Settings, merge_settings
from tests.support.servers import place, query

ROWS = 20_000


@dataclass(frozen=True)
class Case:
    """An engine with data that a test may change."""

    name: str
    engine: Engine
    datadir: Path
    place: Place

    @property
    def log(self) -> Path:
        return self.place.logs / "server.log"

    def settings(self, **plan: Scalar) -> Settings:
        """Return the settings: the defaults of the engine, and those of a plan."""
        return merge_settings(("default", self.engine.defaults(None)), ("plan", plan))

    def serving(self, **plan: Scalar) -> AbstractContextManager[Server]:
        return self.engine.serving(self.datadir, self.settings(**plan), self.place)

    def check(self) -> str:
        return self.engine.check(self.datadir, self.settings(), self.place)


def _case(name: str, folder: Path) -> Case:
    return Case(name, ENGINES[name], folder / "data", place(name, folder))


def _load(server: Server) -> None:
    numbers = f"SELECT n, repeat(chr(97), 100) FROM generate_series(1, {ROWS}) n"
    if server.engine != "postgres":
        depth = (
            "max_recursive_iterations" if server.engine == "mariadb" else "cte_max_recursion_depth"
        )
        numbers = (
            f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"
            " SELECT n, repeat('a', 100) FROM s"
        )
        query(
            server,
            "CREATE TABLE t (id int PRIMARY KEY, v varchar(200), KEY (v))",
            f"SET SESSION {depth} = 1000000",
            f"INSERT INTO t {numbers}",
        )
        return
    query(
        server,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE INDEX ON t (v)",
        f"INSERT INTO t {numbers}",
    )


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Callable[[], Path]]:
    """Yield a function that makes folders that the accounts of the engines can enter, with paths
    that are short enough for a socket.
    """
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="dbb", dir="/var/tmp")))
        made[-1].chmod(0o755)
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(short_folder: Callable[[], Path]) -> Callable[[str], Path]:
    """Return a function for the loaded data directory of an engine, which is made at the first
    call.
    """
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            case = _case(name, short_folder())
            case.engine.create(case.datadir, case.place)
            with case.serving() as server:
                _load(server)
            made[name] = case.datadir
        return made[name]

    return get


@pytest.fixture
def case_of(
    template: Callable[[str], Path], short_folder: Callable[[], Path]
) -> Iterator[Callable[[str], Case]]:
    """Yield a function that makes cases with separate data."""
    folders = []

    def make(name: str) -> Case:
        folder = short_folder()
        folders.append(folder)
        subprocess.run(["cp", "-a", template(name), folder / "data"], check=True)
        return _case(name, folder)

    yield make
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.needs(f"engine:{name}")) for name in SERVERS]
)
def case(request: pytest.FixtureRequest, case_of: Callable[[str], Case]) -> Case:
    """Return the case of each engine that has a server, in turn."""
    return case_of(request.param)


def seen(folders: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """Return the state of all files below the folders."""
    states = {str(path): path.lstat() for folder in folders for path in Path(folder).rglob("*")}
    return {
        path: (state.st_mtime_ns, state.st_size, state.st_uid) for path, state in states.items()
    }
