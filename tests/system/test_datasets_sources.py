"""Sources made by private servers are converted into golden copies and restored with all rows."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import datasets, process
from dbbench.datasets import golden, manifest, sources
from dbbench.datasets.manifest import Golden
from dbbench.datasets.sources.look import has_applied_log
from dbbench.engines import ENGINES
from dbbench.engines.port import Place, Server
from dbbench.errors import ProgramMissing, SourceRefused, SourceUnusable
from tests.support import servers
from tests.support.plans import installed, plan
from tests.support.servers import query, spec
from tests.system.conftest import HANGS_S

# Sums of PostgreSQL's tables by their text, those of InnoDB by CHECKSUM TABLE.
POSTGRES_SUMS: Final = (
    "SELECT (SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM own.orders o),"
    " (SELECT md5(string_agg(i::text, ',' ORDER BY id)) FROM items i)"
)
INNODB_SUMS: Final = "CHECKSUM TABLE orders, items"
FILL: Final = (
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, "
)


class Room:
    """A folder that the servers' accounts can reach, and what the tests keep in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0

    def place(self, engine: str) -> Place:
        """A place of its own for a server."""
        self.number += 1
        folder = self.root / str(self.number)
        folder.mkdir()
        return servers.place(engine, folder)

    def serving(self, engine: str, data: Path) -> contextlib.AbstractContextManager[Server]:
        """A server with a trial's defaults."""
        return servers.serving(engine, data, self.place(engine))


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """Removed at the end."""
    with servers.open_folder() as folder:
        yield Room(folder)


@pytest.fixture(scope="module")
def postgres(room: Room) -> tuple[Path, Any]:
    """A user's cluster, with a tablespace and settings of its own, in every form; and the sums of
    its tables.
    """
    engine = ENGINES["postgres"]
    root = room.root / "postgres"
    root.mkdir()
    engine.create(root / "stopped", room.place("postgres"))
    (root / "fast").mkdir()
    shutil.chown(root / "fast", engine.account().name)
    with room.serving("postgres", root / "stopped") as server:
        query(
            server,
            "CREATE ROLE shopper LOGIN PASSWORD 'secret'",
            "CREATE DATABASE shop OWNER shopper",
            f"CREATE TABLESPACE fast LOCATION '{root}/fast'",
            "ALTER DATABASE shop SET work_mem = '9MB'",
            "ALTER SYSTEM SET shared_preload_libraries = 'not_here'",
            at="postgres",
        )
        rows = (
            "SELECT n AS id, md5(n::text) || repeat('x', 100) AS t FROM generate_series(1, 20000) n"
        )
        more = rows.replace("20000", "60000")
        query(
            server,
            "CREATE SCHEMA own AUTHORIZATION shopper",
            f"CREATE TABLE own.orders AS {rows}",
            "ALTER TABLE own.orders OWNER TO shopper",
            f"CREATE TABLE items TABLESPACE fast AS {more}",
            at="shop",
        )
        sums = query(server, POSTGRES_SUMS, at="shop")
        where = [f"--host={server.socket_dir}", f"--username={server.user}"]
        for word in ("plain", "custom", "directory"):
            dump = [
                server.bin / "pg_dump",
                *where,
                f"--format={word}",
                f"--file={root / word}",
                "shop",
            ]
            process.run(dump, timeout_s=HANGS_S)
        take = [server.bin / "pg_basebackup", *where, "--wal-method=stream", "--checkpoint=fast"]
        mapped = [f"--pgdata={root / 'base'}", f"--tablespace-mapping={root}/fast={root}/mapped"]
        process.run([*take, *mapped], timeout_s=HANGS_S)  # it flushes each file
        process.run(
            [*take, f"--pgdata={root / 'tar'}", "--format=tar", "--gzip"], timeout_s=HANGS_S
        )
        with pytest.raises(SourceRefused):
            sources.look(root / "stopped")
    (root / "mapped").rename(root / "base.fast")  # moved after it was taken: the link leads nowhere
    (root / "base/pg_tblspc").iterdir().__next__().unlink()
    (root / "base/pg_tblspc" / _oid(root)).symlink_to("/elsewhere/base.fast")
    return root, sums


def _oid(root: Path) -> str:
    """Of the tablespace: the name of its tar file."""
    return next(file.name.partition(".")[0] for file in (root / "tar").glob("[0-9]*.tar*"))


def built(room: Room, engine: str, path: Path, **chosen: str) -> Golden:
    """The golden copy of a source."""
    dataset = sources.look(path).dataset(**chosen)
    return golden.ensure(
        golden.recipe(spec(engine), dataset),
        room.place(engine),
        cache=room.root / "cache",
    )


def sums_of(
    room: Room,
    engine: str,
    copy: Golden,
    statement: str,
) -> tuple[Any, str]:
    """Restored, started with a trial's settings: the sums of its tables, and the database that
    drivers get.
    """
    data = room.root / f"restored-{copy.manifest.key}"
    datasets.restore_copy(copy, data, ENGINES[engine].account())
    with room.serving(engine, data) as server:
        return query(server, statement), server.database


@pytest.mark.needs("root", "engine:postgres", "psql")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("plain", "pg_dump plain"),
        ("custom", "pg_dump custom"),
        ("directory", "pg_dump directory"),
        ("base", "pg_basebackup plain"),
        ("stopped", "data directory"),
    ],
)
def test_postgres_data_is_the_users(
    name: str,
    form: str,
    postgres: tuple[Path, Any],
    room: Room,
) -> None:
    """In each form all tables are equal by their sums; what the user's server was told is left out,
    and told.
    """
    root, sums = postgres
    assert sources.look(root / name).form == form
    copy = built(room, "postgres", root / name)
    assert sums_of(room, "postgres", copy, POSTGRES_SUMS) == (sums, "dbbench")
    if name in ("base", "stopped"):
        sentences = list(map(sources.text, copy.manifest.changes))
        assert "the database shop is renamed to dbbench in the copy" in sentences
        assert any("shared_preload_libraries = 'not_here'" in line for line in sentences)
        assert any("work_mem=9MB" in line for line in sentences)
        assert list(copy.manifest.tablespaces) == ["fast"]


@pytest.mark.needs("root", "engine:postgres", "mkfs.xfs", "fs:xfs", "psql")
def test_one_tablespace_alone_on_the_device(
    postgres: tuple[Path, Any],
    room: Room,
    dbbench: Any,
    nothing_left: None,
) -> None:
    """A whole trial: its tables are scanned from the device, the cluster with its log lies in the
    run's folder and goes with the trial; the result says so, and how it was restored.
    """
    root, _sums = postgres
    load = {"name": "scan", "source": f"{root}/tar", "tablespace": "fast"}
    dbbench.plan(
        plan("xfs", "postgres", load, warmup=None, measure=None, device={"size": "320MiB"})
    )
    assert re.search(r"pg_basebackup tar of postgres \d+", dbbench("plan", "plan.toml").stdout)
    dbbench("run", "plan.toml", "--name", "own")
    (file,) = (dbbench.folder / "results/own/trials").glob("*/trial.json")
    trial = json.loads(file.read_text())
    assert trial["error"] is None
    found = trial["dataset"]
    assert (found["kind"], found["tablespace"]) == ("source", "fast")
    assert found["compressibility"] > 1
    size = 60000 * 170  # and a little room in each page
    assert size * 0.9 < trial["space"]["logical_bytes"] < size * 1.3
    assert trial["summary"]["dataset_bytes"] < 2 * size
    # dropped, and a sample of these files came from the device
    assert trial["cache"]["proved"] is True
    assert {"W101"} <= {warning["id"] for warning in trial["warnings"]}
    scanned = json.loads((file.parent / "raw/scan.json").read_text())["tables"]
    assert [table["table"] for table in scanned] == ["items"]
    assert not (dbbench.folder / "results/own/.elsewhere").exists()
    page = (dbbench.folder / "results/own/report.html").read_text()
    assert "compressibility of the data" in page


@pytest.mark.needs("root", "engine:postgres", "psql")
def test_names_that_are_not_in_the_source_are_refused(
    postgres: tuple[Path, Any], room: Room
) -> None:
    """An unknown tablespace or database is refused with the existing names; nothing is left in the
    cache.
    """
    root, _sums = postgres
    with pytest.raises(SourceUnusable, match=r'no tablespace "slow" \(tablespaces: fast'):
        built(room, "postgres", root / "base", tablespace="slow")
    with pytest.raises(SourceUnusable, match=r'no database "sop" \(databases: .*shop'):
        built(room, "postgres", root / "stopped", database="sop")
    assert not list((room.root / "cache").glob(".making-*"))


@pytest.mark.needs("root", "engine:postgres", "engine:mariadb", "psql")
def test_what_is_of_another_engine_or_was_changed_is_refused(
    postgres: tuple[Path, Any], room: Room
) -> None:
    """Before anything is built."""
    root, _sums = postgres
    with process.recording() as started, pytest.raises(SourceUnusable, match="is made by postgres"):
        built(room, "mariadb", root / "custom")
    assert started == []


@pytest.fixture(
    scope="module",
    params=["mariadb", pytest.param("mysql", marks=pytest.mark.needs("engine:mysql"))],
)
def innodb(request: pytest.FixtureRequest, room: Room) -> tuple[str, Path, Any]:
    """A user's MariaDB or MySQL in every form that is taken of it here, and the sums of its
    tables.
    """
    name = request.param
    root = room.root / request.param
    root.mkdir()
    ENGINES[name].create(root / "stopped", room.place(name))
    with room.serving(name, root / "stopped") as server:
        query(
            server,
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, t varchar(90)) ENGINE=InnoDB",
            f"INSERT INTO shop.orders {FILL} repeat(char(65 + i % 26), 80) FROM n",
            "CREATE TABLE shop.items (id int PRIMARY KEY, k int, KEY (k)) ENGINE=InnoDB",
            f"INSERT INTO shop.items {FILL} i * 7 FROM n",
            at="",
        )
        sums = [row[1] for row in query(server, "CHECKSUM TABLE shop.orders, shop.items", at="")]
        where = [f"--socket={server.socket}", f"--user={server.user}"]
        dump = [
            "mariadb-dump",
            "--no-defaults",
            "--skip-ssl",
            *where,
            f"--result-file={root / 'dump.sql'}",
            "shop",
        ]
        process.run(dump, env=server.env, timeout_s=HANGS_S)
        with contextlib.suppress(ProgramMissing):
            dump = ["mydumper", *where, "--database=shop", f"--outputdir={root / 'mydumper'}"]
            process.run(dump, env=server.env, timeout_s=HANGS_S)
        if name == "mariadb":
            data = f"--datadir={root}/stopped"
            to = f"--target-dir={root}/backup"
            copy = ["mariadb-backup", "--no-defaults", "--backup", *where, data, to]
            process.run(copy, env=server.env, timeout_s=HANGS_S)
        with pytest.raises(SourceRefused):
            sources.look(root / "stopped")
    return name, root, sums


def _innodb_equal(
    innodb: tuple[str, Path, Any],
    room: Room,
    form: str,
    name: str,
    database: str,
) -> Golden:
    engine, root, sums = innodb
    assert sources.look(root / name).form == form
    before = manifest.scan(root / name, 2) if (root / name).is_dir() else None
    copy = built(room, engine, root / name)
    found, connected = sums_of(room, engine, copy, INNODB_SUMS)
    assert ([row[1] for row in found], connected) == (sums, database)
    if before is not None:
        assert manifest.scan(root / name, 2) == before  # the source was only read
    return copy


INNODB: Final = ("root", "engine:mariadb", "mariadb", "mariadb-dump")


@pytest.mark.needs(*INNODB)
def test_a_mysqldump_is_loaded(innodb: tuple[str, Path, Any], room: Room) -> None:
    """Into MariaDB and real MySQL, equal by the sums of every table."""
    _innodb_equal(innodb, room, "mysqldump", "dump.sql", "dbbench")


@pytest.mark.needs(*INNODB)
def test_a_stopped_data_directory_is_copied(innodb: tuple[str, Path, Any], room: Room) -> None:
    """Its largest schema is the one that drivers connect to; its identity is not taken along."""
    copy = _innodb_equal(innodb, room, "data directory", "stopped", "shop")
    if (identity := innodb[1] / "stopped/auto.cnf").is_file():
        assert (copy.data / "auto.cnf").read_text() != identity.read_text()


@pytest.mark.needs(*INNODB, "mydumper", "mariadb-backup")
def test_a_mydumper_folder_and_a_backup(innodb: tuple[str, Path, Any], room: Room) -> None:
    """mydumper's and mariabackup's, not yet prepared, of MariaDB; of MySQL a prepared folder with
    the files that xtrabackup writes beside the data, for no package has the tool itself.
    """
    name, root, _sums = innodb
    if name == "mysql":
        version = json.loads((root / "stopped/mysql_upgrade_history").read_text())[
            "upgrade_history"
        ][-1]["version"]
        shutil.copytree(root / "stopped", root / "backup")
        (root / "backup/xtrabackup_checkpoints").write_text(
            "backup_type = full-prepared\nfrom_lsn = 0\n"
        )
        (root / "backup/xtrabackup_info").write_text(
            f"tool_name = xtrabackup\nserver_version = {version}\n"
        )
        copy = _innodb_equal(innodb, room, "xtrabackup", "backup", "shop")
        assert not list(copy.data.glob("xtrabackup_*"))
        return
    _innodb_equal(innodb, room, "mydumper", "mydumper", "shop")
    assert not has_applied_log(root / "backup")
    _innodb_equal(innodb, room, "mariabackup", "backup", "shop")


OWN_WORKLOAD: Final = """
title   = "Our orders"
driver  = "sysbench"
engines = ["mariadb", "mysql"]
script  = "orders.lua"
dataset = { kind = "none" }
parameters.clients = { type = "integer", default = 2 }
parameters.most = { type = "integer", default = 900 }
"""
OWN_SCRIPT: Final = """
sysbench.cmdline.options = { most = {"the largest id", 1} }
function thread_init() con = sysbench.sql.driver():connect() end
function event()
   local one = sysbench.rand.uniform(1, sysbench.opt.most)
   con:query("UPDATE orders SET t = 'sold' WHERE id = " .. one)
   con:query("SELECT k FROM items WHERE id = " .. one)
end
function thread_done() con:disconnect() end
"""


@pytest.mark.needs(*INNODB, "sysbench", "fs:ext4", "mkfs.ext4")
def test_an_own_script_on_own_data(
    innodb: tuple[str, Path, Any],
    dbbench: Any,
    nothing_left: None,
) -> None:
    """A script of sysbench in the user's folder drives the tables of the user's dump; no statement
    of it fails.
    """
    engine, root, _sums = innodb
    (folder := dbbench.folder / "mine/workloads").mkdir(parents=True)
    (folder / "orders.toml").write_text(OWN_WORKLOAD)
    (folder / "orders.lua").write_text(OWN_SCRIPT)
    load = {"name": "orders", "source": str(root / "dump.sql")}
    trial = dbbench.trial(
        plan("ext4", installed(engine), load, warmup=0, measure=5, device={"size": "1GiB"}),
        "--path",
        "mine",
    )
    assert trial["error"] is None and trial["dataset"]["kind"] == "source"
    assert trial["summary"]["errors"] == 0 and trial["summary"]["transactions"] > 0
