import os
import shutil
import tarfile
from pathlib import Path
from typing import Final

import pytest

from dbbench import plan
from dbbench.datasets import generated, golden, sources
from dbbench.datasets.sources import Source
from dbbench.datasets.sources.look import _page_size, has_applied_log, tablespaces
from dbbench.datasets.sources.look import header_of as header
from dbbench.drivers.scan import choose
from dbbench.engines.sql import Table
from dbbench.errors import DriverFailed, PlanInvalid, SourceRefused, SourceUnusable
from dbbench.model import EngineSpec
from tests.support.files import write_file
from tests.support.plans import SHIPPED, plan_of

REAL: Final = Path(__file__).parents[1] / "fixtures/sources"
STOPPED: Final = 1
RUNNING: Final = 6


def cluster(folder: Path, state: int = STOPPED, label: bool = False) -> Path:
    """What of a cluster's data directory is looked at."""
    for name in ("global", "pg_wal", "pg_tblspc", "base/5"):
        (folder / name).mkdir(parents=True)
    (folder / "PG_VERSION").write_text("15\n")
    (folder / "global/pg_control").write_bytes(
        bytes(16) + state.to_bytes(4, "little") + bytes(8172)
    )
    (folder / "pg_wal/000000010000000000000002").touch()
    (folder / "base/5/16384").write_bytes(bytes(8192))
    if label:
        (folder / "backup_label").touch()
    return folder


def innodb(folder: Path, page0: str = "ibdata1.page0") -> Path:
    """What of a MariaDB's data directory is looked at."""
    (folder / "shop").mkdir(parents=True)
    shutil.copy(REAL / page0, folder / "ibdata1")
    (folder / "mysql_upgrade_info").write_text("10.11.19-MariaDB")
    return folder


def put(name: str, to: Path) -> Path:
    """A recorded file, copied."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(REAL / name, to)
    return to


def seen(path: Path) -> tuple[str, str, str]:
    """Form, engine and version of what lies there."""
    found = sources.look(path)
    return found.form, found.engine, found.version


def test_dumps_and_folders_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """A file by what its writer put at its head, whatever its name (MariaDB's tool dumps MySQL
    too); dumps of many files, backups and data directories, of each engine.
    """
    assert seen(REAL / "pg_dump.sql") == ("pg_dump plain", "postgres", "15.18")
    assert seen(REAL / "pg_dump.custom") == ("pg_dump custom", "postgres", "15.18")
    assert seen(REAL / "mariadb-dump.sql") == ("mysqldump", "mariadb", "10.11.19")
    assert seen(REAL / "mysql-dump.sql") == ("mysqldump", "mysql", "9.7.4")
    put("toc.dat", tmp_path / "dir/toc.dat")
    assert seen(tmp_path / "dir") == ("pg_dump directory", "postgres", "15.18")
    assert seen(cluster(tmp_path / "pg")) == ("data directory", "postgres", "15")
    assert seen(cluster(tmp_path / "backup", RUNNING, label=True)) == (
        "pg_basebackup plain",
        "postgres",
        "15",
    )
    (tmp_path / "tar").mkdir()
    with tarfile.open(tmp_path / "tar/base.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "pg/PG_VERSION", "PG_VERSION")
    assert seen(tmp_path / "tar") == ("pg_basebackup tar", "postgres", "15")
    assert seen(innodb(tmp_path / "my")) == ("data directory", "mariadb", "10.11.19")
    mysql = innodb(tmp_path / "mysql", "mysql-ibdata1.page0")
    (mysql / "mysql.ibd").touch()
    put("mysql_upgrade_history", mysql / "mysql_upgrade_history")
    assert seen(mysql) == ("data directory", "mysql", "9.7.4")
    backup = innodb(tmp_path / "mb")
    for name in ("xtrabackup_checkpoints", "xtrabackup_info"):
        put(name, backup / name)
    assert seen(backup) == ("mariabackup", "mariadb", "10.11.19")
    assert not has_applied_log(backup)
    (tmp_path / "md").mkdir()
    (tmp_path / "md/metadata").write_text(
        "Started dump at: 2026-11-21 17:43:24\nFinished dump at: 2026-11-21 17:43:25\n"
    )
    (tmp_path / "md/shop.orders-schema.sql").write_text(
        "CREATE TABLE `orders` (\n  `id` int(11)\n);\n"
    )
    assert seen(tmp_path / "md") == ("mydumper", "mariadb", "")


def test_the_page_size_is_read_from_the_first_page() -> None:
    """MariaDB's full_crc32 and MySQL's tablespaces keep it in different bits."""
    assert _page_size(REAL / "ibdata1.page0") == _page_size(REAL / "mysql-ibdata1.page0") == 16384


def test_an_archive_that_is_cut_off_is_none() -> None:
    """No cut of a real header is read as another version, and none raises."""
    whole = (REAL / "pg_dump.custom").read_bytes()
    assert header(whole) == ("15.18", 0)
    for length in range(120):
        cut = header(whole[:length])
        assert cut is None or cut[0] in ("", "1", "15", "15.1", "15.18")


def test_what_is_unknown_is_refused_with_what_is_known(tmp_path: Path) -> None:
    """A missing path, an empty folder and a text are no source; a packed file says how to unpack
    it.
    """
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "empty").mkdir()
    for name in ("gone", "empty", "notes.txt"):
        with pytest.raises(SourceUnusable):
            sources.look(tmp_path / name)
    (tmp_path / "page.html").write_bytes("<html>\né\x00\x1b[31m\xff".encode("latin-1") + b"x" * 99)
    for name, text in (
        ("notes.txt", 'it begins with "hello."'),
        ("page.html", 'it begins with "<html>....[31m.xx'),
    ):
        with pytest.raises(SourceUnusable) as strange:
            sources.look(tmp_path / name)
        assert text in strange.value.evidence and "x" * 50 not in strange.value.evidence
    (tmp_path / "shop.sql.gz").write_bytes(b"\x1f\x8b\x08" + bytes(20))
    with pytest.raises(SourceUnusable) as packed:
        sources.look(tmp_path / "shop.sql.gz")
    path = tmp_path / "shop.sql"
    assert packed.value.remedy == f"Decompress it first:  gunzip -c < {path}.gz > {path}"
    path.write_bytes(b"\x1f\x8b\x08" + bytes(20))
    with pytest.raises(SourceUnusable) as packed:
        sources.look(path)
    unpacked = tmp_path / "unpacked-shop.sql"
    assert packed.value.remedy == f"Decompress it first:  gunzip -c < {path} > {unpacked}"


def test_a_cluster_that_runs_or_crashed_is_refused(tmp_path: Path) -> None:
    """By its pid file, or by the state that its control file has; a base backup is in it too, with
    its label.
    """
    crashed = cluster(tmp_path / "crashed", RUNNING)
    with pytest.raises(SourceRefused, match="neither a backup"):
        sources.look(crashed)
    running = cluster(tmp_path / "running")
    (running / "postmaster.pid").write_text("1\n")
    with pytest.raises(SourceRefused, match=r"postmaster\.pid"):
        sources.look(running)


def test_a_backup_without_its_log_or_tablespace_is_refused(tmp_path: Path) -> None:
    """Both are named; a tablespace whose link leads nowhere is found beside the backup."""
    backup = cluster(tmp_path / "backup", RUNNING, label=True)
    (backup / "pg_tblspc/16400").symlink_to("/nowhere/fast")
    with pytest.raises(SourceUnusable, match=r"16400 .* at /nowhere/fast"):
        sources.look(backup)
    write_file(tmp_path / "fast/PG_15_202209061/16385", bytes(100))
    assert tablespaces(backup) == [("16400", tmp_path / "fast")]
    assert sources.look(backup).bytes >= 8192 + 100
    (backup / "pg_wal/000000010000000000000002").unlink()
    with pytest.raises(SourceUnusable, match="no write-ahead log"):
        sources.look(backup)


def test_a_backup_that_must_be_put_together_first_is_refused(tmp_path: Path) -> None:
    """Incremental and packed backups; a system tablespace in several files."""
    backup = innodb(tmp_path / "mb")
    (backup / "xtrabackup_checkpoints").write_text("backup_type = incremental\n")
    with pytest.raises(SourceUnusable, match="incremental"):
        sources.look(backup)
    put("xtrabackup_checkpoints", backup / "xtrabackup_checkpoints")
    for ending in ("qp", "zst", "lz4"):
        file = backup / f"shop/orders.ibd.{ending}"
        file.touch()
        with pytest.raises(SourceUnusable, match="compressed"):
            sources.look(backup)
        file.unlink()
    (several := innodb(tmp_path / "two") / "ibdata2").touch()
    with pytest.raises(SourceUnusable, match=r"ibdata1, ibdata2"):
        sources.look(several.parent)


def source(
    form: str,
    engine: str,
    version: str,
    page: int | None = None,
) -> Source:
    """A source of that form."""
    return Source(Path("/backup/shop"), form, engine, version, 10**6, "abc", page)


@pytest.mark.parametrize(
    ("one", "engine", "version", "said"),
    [
        (
            source("pg_dump custom", "postgres", "15.18"),
            "mariadb",
            "10.11.19",
            "made by postgres, but",
        ),
        (
            source("pg_dump custom", "postgres", "17.2"),
            "postgres",
            "15.18",
            "newer than the server",
        ),
        (
            source("data directory", "postgres", "14"),
            "postgres",
            "15.18",
            "postgres 14, but .* 15.18",
        ),
        (
            source("mariabackup", "mariadb", "10.6.7"),
            "mariadb",
            "10.11.19",
            "made by mariadb 10.6, but the server",
        ),
        (source("data directory", "mysql", "8.4.3", 32768), "mysql", "8.4.3", "page size of 32768"),
        (source("mydumper", "mysql", ""), "mariadb", "10.11.19", "made by mysql"),
    ],
)
def test_what_a_server_cannot_take_is_refused(
    one: Source,
    engine: str,
    version: str,
    said: str,
) -> None:
    """Another engine, a later dump, files of any other release, other pages: each with both sides
    in the reason.
    """
    with pytest.raises(SourceUnusable, match=said) as refused:
        sources.fits(one, engine, version, 8192 if engine == "postgres" else 16384)
    assert refused.value.exit_code == 2
    assert refused.value.effect == "Nothing was changed."


def test_what_a_server_can_take_is_taken() -> None:
    """Older dumps, the same release of files, and a mydumper folder, which does not tell its
    server.
    """
    sources.fits(source("pg_dump plain", "postgres", "9.6.24"), "postgres", "15.18", 8192)
    sources.fits(source("data directory", "postgres", "15"), "postgres", "15.18", 8192)
    sources.fits(source("mariabackup", "mariadb", "10.11.2"), "mariadb", "10.11.19", 16384)
    sources.fits(source("mydumper", "mariadb", ""), "mysql", "9.7.4", 16384)


def test_another_content_is_another_dataset(tmp_path: Path) -> None:
    """The key of the copy follows from names, sizes and times, and not from where the source lies.
    A copy that is kept as it is, or has other checksums, has a different key; for a dump,
    neither changes the key.
    """
    first = cluster(tmp_path / "a")
    moved = tmp_path / "b"
    shutil.copytree(first, moved)
    assert sources.look(first).identity == sources.look(moved).identity
    assert _key(first) == _key(moved) == _key(first, settle=True)
    os.utime(moved / "base/5/16384", (1, 1))
    assert sources.look(moved).identity != sources.look(first).identity
    asked: list[dict[str, bool]] = [
        {},
        {"settle": False},
        {"checksums": True},
        {"checksums": False},
    ]
    assert len({_key(moved), *(_key(first, **one) for one in asked)}) == 5
    assert (
        "settle" not in sources.look(put("pg_dump.sql", tmp_path / "shop.sql")).dataset().parameters
    )


def _key(path: Path, **chosen: bool) -> str:
    dataset = sources.look(path).dataset(**chosen)  # type: ignore[arg-type]
    return golden.Recipe(EngineSpec("postgres"), "15.18", "", dataset, {}).key


PLAN: Final = """
name = "own"
fs_setups = ["ext4"]
[[engine]]
name = "postgres"
[[workload]]
name = "{workload}"
{own}
"""


def expanded(
    tmp_path: Path,
    own: str,
    workload: str = "scan",
) -> plan.Expanded:
    """The cells of a plan with these lines in its workload."""
    return plan.expand(plan_of(tmp_path, PLAN.format(own=own, workload=workload)), SHIPPED)


def test_a_plan_names_its_source(tmp_path: Path) -> None:
    """A path, or a table of engines; what is generated otherwise says nothing of it, but for what
    the plan gives. A run is never resumed with other data.
    """
    data = cluster(tmp_path / "pg")
    for written in (f'"{data}"', f'{{ postgres = "{data}" }}'):
        before = expanded(
            tmp_path, f'source = {written}\ntablespace = "fast"\ntables = "a,b"'
        ).cells
        assert before[0].dataset.kind == "source"
        assert before[0].dataset.parameters["form"] == "data directory"
        assert before[0].dataset.parameters["tablespace"] == "fast"
        assert before[0].parameters == {"tables": "a,b", "repeat_for": 0}
    (data / "base/5/16385").touch()
    after = expanded(tmp_path, f'source = {written}\ntablespace = "fast"\ntables = "a,b"').cells
    asked = plan.load(tmp_path / "plan.toml", SHIPPED)
    assert plan.identity(asked, before) != plan.identity(asked, after)
    (cell,) = expanded(tmp_path, f'source = "{data}"', "pgbench-select-only").cells
    assert cell.parameters == {"clients": 4, "threads": 2, "rate": 0, "protocol": "prepared"}
    assert generated.size_bytes(cell.dataset, "postgres") > int(cell.dataset.parameters["bytes"])
    # generated tables, another golden copy
    (cell,) = expanded(tmp_path, 'tablespace = "fast"').cells
    assert cell.dataset.kind == "clone-tables" and cell.dataset.parameters["tablespace"] == "fast"
    (plain,) = expanded(tmp_path, "").cells
    assert "tablespace" not in plain.dataset.parameters


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ('database = "shop"', '"database" has no effect without a "source"'),
        ('tablespace = "Fast"', '"Fast" is not a name for a tablespace'),
        ('source = "SQL"\ntable_bytes = "1MiB"', '"table_bytes" cannot be combined with "source"'),
        ('source = { oracle = "SQL" }', 'unknown engine "oracle"'),
        ('source = { mariadb = "SQL" }', "has no path for postgres"),
        ('source = "SQL"\ntablespace = "fast"', "requires a physical copy of PostgreSQL"),
        ("settle = false", '"settle" has no effect without a "source"'),
        ("checksums = false", '"checksums" has no effect without a "source"'),
        ('source = "SQL"\nsettle = false', "settle = false requires a physical copy"),
        ('source = "SQL"\nchecksums = true', '"checksums" requires a physical copy of PostgreSQL'),
    ],
)
def test_what_does_not_fit_a_source_is_a_flaw(
    own: str,
    said: str,
    tmp_path: Path,
) -> None:
    """Each is reported with its reason before anything is looked at on the machine."""
    dump = put("pg_dump.sql", tmp_path / "shop.sql")
    with pytest.raises(PlanInvalid, match=said):
        expanded(tmp_path, own.replace("SQL", str(dump)))


TABLES: Final = [
    Table("a", 10),
    Table("b", 30, "fast"),
    Table("own.c", 20, "fast"),
    Table("empty", 0),
]


def test_a_scan_takes_the_largest_tables_or_those_named() -> None:
    """Only those of the tablespace under test, if there is one; an unknown name is an error."""
    assert [table.name for table in choose(TABLES, 2, "")] == ["b", "own.c"]
    assert [table.name for table in choose(TABLES, 9, "")] == ["b", "own.c", "a"]
    assert [table.name for table in choose(TABLES, "own.c, a", "")] == ["own.c", "a"]
    assert [table.name for table in choose(TABLES, 9, "fast")] == ["b", "own.c"]
    with pytest.raises(
        DriverFailed, match=r"no table a in the tablespace fast; there are b, own.c"
    ):
        choose(TABLES, "a", "fast")
    with pytest.raises(DriverFailed, match="all tables of the dataset are empty"):
        choose(TABLES[3:], 4, "")
