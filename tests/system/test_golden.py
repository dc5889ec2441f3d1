import fcntl
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from dbbench import process
from dbbench.datasets import generated, golden, manifest, restore_copy
from dbbench.datasets.manifest import Golden, lock_of
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import DatasetBuildFailed, DiskTooSmall
from dbbench.model import Dataset, merge_settings
from tests.support import servers
from tests.support.servers import query, spec

PGBENCH: Final = Dataset("pgbench", {"scale": 1, "fillfactor": 90})
SYSBENCH: Final = Dataset("sysbench", {"tables": 2, "table_size": 2000})
CLONES: Final = Dataset("clone-tables", {"tables": 2, "rows": 30_000})


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that the engines' accounts can reach, unlike pytest's own."""
    with servers.open_folder() as folder:
        yield folder


def place(folder: Path, name: str, engine: str) -> Place:
    """A place of its own for a server."""
    (folder / name).mkdir(exist_ok=True)
    return servers.place(engine, folder / name)


def row(server: Server, statement: str) -> tuple[object, ...]:
    """The first row of the query's answer."""
    return query(server, statement)[0]


def rows(server: Server, table: str) -> object:
    """How many rows the table has."""
    return row(server, f"SELECT count(*) FROM {table}")[0]


@pytest.fixture(scope="module")
def pgbench(open_folder: Path) -> Golden:
    """The golden copy of a small pgbench dataset, built once for this file."""
    return golden.ensure(
        golden.recipe(spec("postgres"), PGBENCH),
        place(open_folder, "pgbench", "postgres"),
        cache=open_folder / "cache",
    )


@pytest.mark.needs("root", "engine:postgres")
def test_a_copy_is_built_once(pgbench: Golden, open_folder: Path) -> None:
    """A second call finds it, starts no program that builds, and gives the same; nothing else lies
    in the cache.
    """
    before = pgbench.path.stat().st_ctime_ns
    with process.recording() as started:
        again = golden.ensure(
            golden.recipe(spec("postgres"), PGBENCH),
            place(open_folder, "again", "postgres"),
            cache=open_folder / "cache",
        )
    assert again == pgbench
    assert again.path.stat().st_ctime_ns == before
    assert started == []
    assert golden.exists(golden.recipe(spec("postgres"), PGBENCH).key, open_folder / "cache")
    assert not list((open_folder / "cache").glob(".making-*"))
    assert pgbench.path.stat().st_uid == 0


@pytest.mark.needs("root", "engine:postgres")
def test_the_manifest_says_what_was_made(pgbench: Golden) -> None:
    """Bytes, files and compressibility are those of the folder."""
    made = pgbench.manifest
    assert made.dataset.parameters == {"fillfactor": 90, "scale": 1}
    assert made.logical_bytes == sum(
        path.stat().st_size for path in pgbench.data.rglob("*") if path.is_file()
    )
    assert made.compressibility is not None
    assert 3 < made.compressibility < 60  # pgbench's filler is blanks
    assert "postmaster.pid" not in {entry.path for entry in made.entries}


@pytest.mark.needs("root", "engine:postgres")
def test_a_restored_postgres_holds_the_rows_vacuumed(pgbench: Golden, open_folder: Path) -> None:
    """It starts with a trial's settings, has every row and index, checksums on, and nothing left to
    be vacuumed.
    """
    engine = ENGINES["postgres"]
    data = open_folder / "restored-pg"
    restore_copy(pgbench, data, engine.account())
    here = place(open_folder, "serve-pg", "postgres")
    settings = merge_settings(("default", engine.defaults(None)))
    with engine.serving(data, settings, here) as server:
        assert rows(server, "pgbench_accounts") == 100_000
        assert server.effective_settings()["data_checksums"] == "on"
        pages = "relpages, relallvisible, relpages > 100000 * 97 / 0.9 / 8192"
        made, visible, filled = row(
            server, f"SELECT {pages} FROM pg_class WHERE relname = 'pgbench_accounts'"
        )
        assert made == visible
        assert filled is True
        assert row(
            server, "SELECT indisvalid FROM pg_index WHERE indrelid = 'pgbench_accounts'::regclass"
        ) == (True,)
    assert engine.check(data, settings, here).startswith("checksums of")


@pytest.mark.needs("root", "engine:mariadb", "sysbench")
def test_a_restored_mariadb_holds_the_rows(open_folder: Path) -> None:
    """sysbench's tables are there, with their secondary indexes, under a trial's settings."""
    _sysbench_restored("mariadb", open_folder)


@pytest.mark.needs("root", "engine:mysql", "sysbench")
def test_a_restored_mysql_holds_the_rows(open_folder: Path) -> None:
    """The same on MySQL."""
    _sysbench_restored("mysql", open_folder)


def _sysbench_restored(name: str, folder: Path) -> None:
    engine = ENGINES[name]
    here = place(folder, name, name)
    data = folder / f"restored-{name}"
    copy = golden.ensure(golden.recipe(spec(name), SYSBENCH), here, cache=folder / "cache")
    restore_copy(copy, data, engine.account())
    window = engine.window_settings(1, 1)
    settings = merge_settings(("default", engine.defaults(None)), ("window", window))
    with engine.serving(data, settings, here) as server:
        assert [rows(server, f"sbtest{number}") for number in (1, 2)] == [2000, 2000]
        indexes = "SELECT count(*) FROM information_schema.statistics WHERE table_name = 'sbtest1'"
        assert row(server, indexes) == (2,)
    assert "CHECK TABLE of 2 tables" in engine.check(data, settings, here)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs("root", f"engine:{name}"))
        for name in ("postgres", "mariadb", "mysql")
    ],
)
def test_clone_tables_are_equal_and_about_as_large_as_was_said(
    name: str, open_folder: Path
) -> None:
    """N tables hold the same rows; their size is near the estimate, and compresses like text."""
    engine = ENGINES[name]
    here = place(open_folder, f"clone-{name}", name)
    copy = golden.ensure(golden.recipe(spec(name), CLONES), here, cache=open_folder / "cache")
    data = open_folder / f"clones-{name}"
    restore_copy(copy, data, engine.account())
    with engine.serving(data, merge_settings(("default", engine.defaults(None))), here) as server:
        sums = [
            row(
                server,
                "SELECT count(*), sum(id), sum(k), sum(length(body)), min(body) FROM "
                f"clone_{number}",
            )
            for number in (1, 2)
        ]
        assert row(server, "SELECT count(DISTINCT body) FROM clone_1") == (30_000,)
    assert sums[0] == sums[1]
    assert sums[0][:2] == (30_000, 30_000 * 30_001 // 2)
    assert copy.manifest.logical_bytes <= generated.size_bytes(CLONES, name)
    largest = max(engine.data_files(data), key=lambda path: path.stat().st_size)
    if name == "postgres":  # InnoDB extends small files far beyond their rows
        assert largest.stat().st_size == pytest.approx(30_000 * generated.CLONE_ROW_BYTES, rel=0.05)
        assert manifest.compressibility([largest]) == pytest.approx(2.3, abs=0.4)


@pytest.mark.needs("root", "engine:postgres")
def test_two_that_want_the_same_copy_build_it_once(open_folder: Path) -> None:
    """The second one waits for the first, says so, and finds what that has built."""
    empty = Dataset("none")
    cache = open_folder / "twice"
    said = []

    def build(number: int) -> Golden:
        here = place(open_folder, f"twice-{number}", "postgres")
        return golden.ensure(golden.recipe(spec("postgres"), empty), here, said.append, cache=cache)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, (1, 2))
    assert first == second
    assert [what for what in said if "empty" in what] == ["making an empty postgres"]
    assert any("waiting" in what for what in said)


KILLED: Final = """
    import sys
    from pathlib import Path
    from dbbench.datasets import golden
    from dbbench.engines.port import Place
    from dbbench.model import Dataset, EngineSpec
    root, cache, runtime = map(Path, sys.argv[1:4])
    from dbbench.machine import namespaces
    def work():
        place = Place(runtime / "s", root / "logs")
        recipe = golden.recipe(EngineSpec("postgres"), Dataset("pgbench", {"scale": 30}))
        golden.ensure(recipe, place, print, cache=cache)
        return 0
    sys.exit(namespaces.isolate(work, keep=[root, cache]))
"""


def _build_in_namespaces(
    folder: Path,
    cache: Path,
    script: str,
) -> list[str | Path]:
    return [sys.executable, "-u", "-c", textwrap.dedent(script), folder, cache, "/run/dbbench"]


@pytest.mark.needs("root", "engine:postgres")
def test_a_build_that_was_killed_counts_for_nothing(open_folder: Path) -> None:
    """After SIGKILL in the middle no copy is there; the next build removes what is left and makes
    it whole.
    """
    cache = open_folder / "killed"
    folder = open_folder / "killed-place"
    folder.mkdir()
    told = folder / "told"
    with process.running(
        _build_in_namespaces(folder, cache, KILLED),
        stdout=told,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as child:
        _wait_for(lambda: told.exists() and "loading" in told.read_text(), 300)
        time.sleep(0.5)
        assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
    (making,) = cache.glob(".making-*")
    key = making.name.removeprefix(".making-")
    assert not golden.exists(key, cache)
    _wait_for(lambda: _free(lock_of(cache / key)), 120)  # its processes end one after the other
    golden.ensure(
        golden.recipe(spec("postgres"), Dataset("none")),
        place(open_folder, "after", "postgres"),
        cache=cache,
    )
    assert not list(cache.glob(".making-*"))
    assert not (cache / key).exists()


CLOSED: Final = KILLED.replace('"pgbench", {"scale": 30}', '"none"')


@pytest.mark.needs("root", "engine:postgres")
def test_a_cache_in_a_closed_home_folder_is_reached(tmp_path: Path) -> None:
    """Root's home is closed to the server's account: in namespaces of its own the build finds a
    way, else it says which folder is in the way, and leaves nothing.
    """
    closed = tmp_path / "home"
    closed.mkdir(0o700)
    (tmp_path / "place").mkdir()
    with pytest.raises(DatasetBuildFailed, match="postgres cannot access"):
        golden.ensure(
            golden.recipe(spec("postgres"), Dataset("none")),
            place(tmp_path, "p", "postgres"),
            cache=closed / "cache",
        )
    assert list(closed.iterdir()) == []
    process.run(
        _build_in_namespaces(tmp_path / "place", closed / "cache", CLOSED),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout_s=600,
    )
    (copy,) = (path for path in (closed / "cache").iterdir() if path.is_dir())
    found = manifest.load(copy)
    assert found is not None
    restore_copy(found, tmp_path / "data", ENGINES["postgres"].account())


@pytest.mark.needs("root", "engine:postgres")
def test_too_little_disk_is_reported_before_anything_is_built(
    open_folder: Path, environ: dict[str, str]
) -> None:
    """A dataset that fits neither under the limit nor on the disk is refused with both figures."""
    huge = Dataset("pgbench", {"scale": 10_000_000})
    cache = open_folder / "huge"
    here = place(open_folder, "huge-place", "postgres")
    with process.recording() as started, pytest.raises(DiskTooSmall, match=r"limited to 50 GiB"):
        golden.ensure(golden.recipe(spec("postgres"), huge), here, cache=cache)
    environ["DBBENCH_CACHE_LIMIT"] = "1000TiB"
    with process.recording() as started, pytest.raises(DiskTooSmall, match=r"has .* free"):
        golden.ensure(golden.recipe(spec("postgres"), huge), here, cache=cache)
    assert started == []
    assert not cache.exists()


def _free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _wait_for(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            "postgres",
            "clone-tables",
            marks=pytest.mark.needs("root", "engine:postgres"),
        ),
        pytest.param(
            "postgres",
            "sysbench",
            marks=pytest.mark.needs("root", "engine:postgres", "sysbench"),
        ),
        pytest.param(
            "mariadb",
            "sysbench",
            marks=pytest.mark.needs("root", "engine:mariadb", "sysbench"),
        ),
        pytest.param("mysql", "clone-tables", marks=pytest.mark.needs("root", "engine:mysql")),
    ],
)
def test_a_given_share_of_rows_compresses_away(
    name: str,
    kind: str,
    open_folder: Path,
) -> None:
    """Measured on the table's file it is within 0.08 of what was asked for, and every row is
    another one.
    """
    size = {"rows": 60_000} if kind == "clone-tables" else {"table_size": 60_000}
    asked = Dataset(kind, {"tables": 1, "compressibility": 0.7, **size})  # type: ignore[arg-type]
    copy = golden.ensure(
        golden.recipe(spec(name), asked),
        place(open_folder, f"pack-{name}-{kind}", name),
        cache=open_folder / "cache",
    )
    files = [
        copy.data / entry.path
        for entry in copy.manifest.of_kind("file")
        if "undo" not in entry.path
    ]
    tables = [
        path
        for path in files
        if path.parent.name not in ("pg_wal", "data", "#innodb_redo", "mysql")
    ]
    packed = manifest.compressibility([max(tables, key=lambda path: path.stat().st_size)])
    assert packed is not None
    assert 1 - 1 / packed == pytest.approx(0.7, abs=0.08)
    data = open_folder / f"packed-{name}-{kind}"
    restore_copy(copy, data, ENGINES[name].account())
    table, column = ("clone_1", "body") if kind == "clone-tables" else ("sbtest1", "c")
    with ENGINES[name].serving(
        data,
        merge_settings(("default", ENGINES[name].defaults(None))),
        place(open_folder, f"packed-{name}", name),
    ) as server:
        assert row(server, f"SELECT count(*), count(DISTINCT {column}) FROM {table}") == (
            60_000,
            60_000,
        )
        if kind == "sysbench":
            assert row(server, "SELECT max(length(c)), max(length(pad)) FROM sbtest1") in (
                (120, 60),
                (119, 59),
            )
