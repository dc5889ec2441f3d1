"""Backup, crash and repair on real filesystems with real servers."""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbbench.engines import ENGINES
from dbbench.errors import FilesystemDamaged
from dbbench.machine import pagecache
from dbbench.model import FsSetup, Mkfs, merge_settings
from dbbench.operations import StoredDatabase, crash, operate
from dbbench.storage import filesystems
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from tests.conftest import engine_bin
from tests.support import servers
from tests.system.test_operations import named

MIB = 2**20
SMALL: dict[str, dict[str, Any]] = {
    "postgres": {"shared_buffers": "16MB", "autovacuum": False},
    "mariadb": {"innodb_log_file_size": 32 * MIB},
    "mysql": {"innodb_redo_log_capacity": 64 * MIB},
}
ENGINE = {name: pytest.mark.needs(f"engine:{name}") for name in SMALL}
Filling = Callable[..., contextlib.AbstractContextManager[StoredDatabase]]


@pytest.fixture
def filled(loop_device: Device) -> Iterator[Filling]:
    """A filesystem with a data directory of a server in it, and its logs in `filled.room`."""
    with tempfile.TemporaryDirectory(prefix="dbb") as name:
        folder = Path(name)
        folder.chmod(0o755)

        @contextlib.contextmanager
        def made(family: str, engine: str) -> Iterator[StoredDatabase]:
            setup = FsSetup("of the test", Mkfs(family))
            kind = ENGINES[engine]
            place = servers.place(engine, folder)
            settings = merge_settings(("default", kind.defaults(None)), ("plan", SMALL[engine]))
            filesystems.make(setup, loop_device)
            with filesystems.mount(setup, loop_device, folder / "mnt") as fs:
                datadir = filesystems.data_directory(setup, fs)
                kind.create(datadir, place)
                yield StoredDatabase(
                    setup,
                    loop_device,
                    fs,
                    datadir,
                    folder,
                    lambda: kind.serving(datadir, settings, place),
                    lambda data: kind.serving(data, settings, place),
                    cold=lambda files: pagecache.empty_and_prove(files, 1, loop_device.leaves),
                    check=lambda data: kind.check(data, settings, place),
                    data_files=kind.data_files,
                )

        yield made


def fill(one: StoredDatabase, tables: int = 2, rows: int = 1 << 14) -> None:
    """Tables that grow side by side, a piece at a time: their files lie in pieces."""
    with (
        one.serving() as server,
        closing(server.connect()) as connection,
        closing(connection.cursor()) as cursor,
    ):
        for table in range(tables):
            cursor.execute(
                f"CREATE TABLE grown{table} (id INT PRIMARY KEY, filler VARCHAR(250) NOT NULL)"
            )
            cursor.execute(f"INSERT INTO grown{table} VALUES (0, '{'x' * 250}')")
        done = 1
        while done < rows:
            for table in range(tables):
                cursor.execute(
                    f"INSERT INTO grown{table} SELECT id + {done}, filler FROM grown{table}"
                )
            server.checkpoint()
            filesystems.sync(one.fs.path)
            done *= 2


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4")
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("postgres", marks=ENGINE["postgres"]),
        pytest.param("mariadb", marks=[ENGINE["mariadb"], pytest.mark.needs("mariadb-backup")]),
    ],
)
def test_base_backup_streams_the_whole_data(engine: str, filled: Filling) -> None:
    """Its bytes are those of all data files and the log that belongs to them, read from a cold
    cache; a rate beside.
    """
    with filled("ext4", engine) as one:
        fill(one)
        assert one.data_files is not None
        data = sum(path.stat().st_size for path in one.data_files(one.datadir))
        step = named(operate(["base-backup"], one))["base-backup"]
        assert step.seconds is not None and step.bytes is not None
        assert data < step.bytes < data + 200 * MIB
        said = re.match(r"(\d+) MB/s by .*; from a cold cache", step.text)
        assert said is not None and int(said[1]) == pytest.approx(
            step.bytes / 1e6 / step.seconds, abs=1
        )
        assert not list(one.room.glob("backup/*")) and not list(one.room.glob("tmp*"))


LONG = {"mysql": [pytest.mark.soak]}  # it needs half a minute to start twice
CRASHED = [
    pytest.param(
        family,
        engine,
        marks=[
            pytest.mark.needs("root", f"mkfs.{family}", f"fs:{family}", f"engine:{engine}"),
            *LONG.get(engine, []),
        ],
    )
    for family, engine in (("ext4", "postgres"), ("xfs", "mariadb"), ("btrfs", "mysql"))
]


@pytest.fixture
def short_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load before the crash: longer than a machine stands still, so that some rows are
    acknowledged.
    """
    monkeypatch.setattr(crash, "LOAD_S", 4.0)


@pytest.mark.parametrize(("family", "engine"), CRASHED)
@pytest.mark.usefixtures("short_load")
def test_crash_recovery_replays_the_log_and_loses_nothing(
    family: str,
    engine: str,
    filled: Filling,
) -> None:
    """Seconds from the start to an answer, the log's bytes as the server itself tells them, and a
    sound check.
    """
    with filled(family, engine) as one:
        steps = named(operate(["crash-recovery"], one))
        start = steps["crash-recovery: start"]
        check = steps["crash-recovery: check"]
        assert start.seconds is not None and start.bytes is not None
        # a transaction's rows; a slow disk has few, and InnoDB may flush earlier
        assert start.bytes > 200 * crash.ROWS
        acknowledged = int(start.text.split()[0])
        assert acknowledged >= crash.ROWS and "from a cold cache" in start.text
        assert check.text
        log = (one.room / "logs/server.log").read_text(errors="replace")
        if engine == "postgres":
            begun, done = (
                re.findall(rf"redo {word} at ([0-9A-F]+)/([0-9A-F]+)", log)[-1]
                for word in ("starts", "done")
            )
            span = _lsn(done) - _lsn(begun)
            # more came between the reading and the kill
            assert start.bytes == pytest.approx(span, rel=0.5)
        else:
            assert "crash recovery" in log or "Apply batch completed" in log or engine == "mysql"


def _lsn(found: tuple[str, str]) -> int:
    return (int(found[0], 16) << 32) + int(found[1], 16)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "engine:postgres")
@pytest.mark.usefixtures("short_load")
def test_a_server_that_loses_acknowledged_rows_fails_the_trial(filled: Filling) -> None:
    """Planted: the log since the last checkpoint is taken away before the server starts again."""
    with filled("ext4", "postgres") as one:

        def forget(files: Any) -> Any:
            from dbbench import process

            argv = [Path(engine_bin("postgres") or "") / "pg_resetwal", "--force", one.datadir]
            (one.datadir / "postmaster.pid").unlink()
            process.run(argv, as_user=ENGINES["postgres"].account())
            return pagecache.empty_and_prove(files)

        with pytest.raises(Exception, match=r"acknowledged|dbbench_crash") as failed:
            operate(["crash-recovery"], replace(one, cold=forget))
        assert isinstance(failed.value, FilesystemDamaged) or "dbbench_crash" in str(failed.value)


REPAIRED = [
    pytest.param(
        family,
        engine,
        marks=pytest.mark.needs("root", f"mkfs.{family}", tool, f"fs:{family}", f"engine:{engine}"),
    )
    for family, engine, tool in (
        ("ext4", "postgres", "e4defrag"),
        ("xfs", "postgres", "xfs_fsr"),
        ("btrfs", "mariadb", "btrfs"),
    )
]


@pytest.mark.parametrize(("family", "engine"), REPAIRED)
def test_repair_leaves_fewer_pieces(
    family: str,
    engine: str,
    filled: Filling,
) -> None:
    """The filesystem's own tool, then the tables written anew; both are timed, and say what they
    did.
    """
    with filled(family, engine) as one:
        fill(one)
        assert one.data_files is not None
        before = common.extents_of(one.data_files(one.datadir)) or 0
        steps = named(operate(["repair"], one))
        after = common.extents_of(one.data_files(one.datadir)) or 0
        by_tool = steps["repair: filesystem"]
        by_engine = steps["repair: engine"]
        assert by_tool.seconds is not None and by_engine.seconds is not None
        said = re.search(r"(\d+) extents before, (\d+) after", by_tool.text)
        assert said is not None and int(said[1]) == before and int(said[2]) <= before
        assert after <= before
        words = {
            "postgres": "VACUUM (FULL, ANALYZE) of 2 tables",
            "mariadb": "OPTIMIZE TABLE of 2 tables",
        }
        assert words[engine] in by_engine.text
        assert one.check is not None and one.check(one.datadir)
