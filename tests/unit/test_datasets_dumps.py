"""What reading a dump before it is loaded finds: what is missing, refused, or left out."""

import gzip
import io
import os
from pathlib import Path
from typing import Final

import pytest

from dbbench.datasets import sources
from dbbench.datasets.sources.mysql_script import MysqlScript
from dbbench.datasets.sources.postgres_dumps import PostgresScript, check_files, reading
from dbbench.errors import SourceRefused, SourceUnusable
from dbbench.model import SourceChange

REAL: Final = Path(__file__).parents[1] / "fixtures/sources"


def examine(path: Path) -> tuple[SourceChange, ...]:
    """What the copy of this source will not have."""
    return sources.examine(sources.look(path), None)


def mysql_script(*lines: str) -> tuple[MysqlScript, str]:
    """These lines of a dump, read to their end, and what a client would get."""
    dump = "".join(f"{line}\n" for line in lines).encode()
    read = MysqlScript(io.BytesIO(dump), lambda _: False, "shop")
    return read, b"".join(read).decode()


@pytest.mark.parametrize(
    "line",
    [
        "SET GLOBAL innodb_flush_log_at_trx_commit = 2;",
        "set global max_connections=1;",
        "/*!50100 SET @@GLOBAL.event_scheduler = ON */;",
        "SET PERSIST sync_binlog = 0;",
        "SET @@PERSIST_ONLY.port = 1;",
        "SET SESSION sort_buffer_size = 1, GLOBAL key_buffer_size = 2;",
        "SET  GLOBAL\tmax_connections = 1;",
        "/*!50003SET GLOBAL max_connections = 1 */;",
        "/* before */ SET /* between */ @@ `global`.max_connections = 1;",
        "SET /*!50003 GLOBAL*/ max_connections = 1;",
        "SET\nGLOBAL max_connections = 1;",
        "SET @a = 1,\nGLOBAL max_connections = 1;",
        "SET @a = 1; SET GLOBAL max_connections = 1;",
        "SELECT ';'; SET GLOBAL max_connections = 1;",
        "/*!50003 SELECT 1 */; /*!50003 SET GLOBAL max_connections = 1 */;",
        "SELECT '/*'; SET GLOBAL max_connections = 1; SELECT '*/';",
        "SELECT 1; SET\nGLOBAL max_connections = 1;",
        "SELECT 1; EXECUTE IMMEDIATE concat('SET GLO', 'BAL max_connections = 1');",
        "/*!50717 PREPARE s FROM @setting */;",
        "EXECUTE s;",
        "/*!50003 CALL changes_settings() */;",
    ],
)
def test_settings_of_the_whole_server_are_left_out_of_a_dump(line: str) -> None:
    """They would change what every trial measures."""
    read, kept = mysql_script(line)
    assert len(read.skipped) == 1
    assert kept.strip() == ""


@pytest.mark.parametrize(
    "line",
    [
        "INSERT INTO `t` VALUES (1); SET GLOBAL max_connections = 1;",
        "(2);/*!50003SET GLOBAL max_connections = 1 */;",
        "REPLACE INTO `t` VALUES ('a; b'); /* x */ EXECUTE s;",
        "REPLACE INTO `t` VALUES ('a\\\\'); CALL p('\\\\');",
        'INSERT INTO `t` VALUES (1) /*"*/; SET GLOBAL max_connections = 1; /*"*/',
        "INSERT INTO `t` VALUES ('a'''); SET\nGLOBAL max_connections = 1;",
        "(1); SET @a = 1,\nGLOBAL max_connections = 1;",
        "DELIMITER //\nSET GLOBAL max_connections = 1//",
        "DELIMITER ;;\nSELECT 1;;\n/*!50003 SET GLOBAL max_connections = 1 */;;",
    ],
)
def test_settings_beside_what_is_loaded_are_refused(line: str) -> None:
    """Its line cannot be left out."""
    with pytest.raises(SourceUnusable, match="changes settings"):
        mysql_script(line)


@pytest.mark.parametrize(
    "line",
    [
        "INSERT INTO `t` VALUES ('a\\'); SET GLOBAL x = 1;');",
        "INSERT INTO `t` VALUES ('''); SET GLOBAL x = 1;');",
        "INSERT INTO `t` VALUES ('\\\\'), ('; SET GLOBAL x = 1;');",
        'INSERT INTO `t` VALUES ("\'); SET GLOBAL x = 1;");',
        "  `a` int COMMENT 'first; SET GLOBAL x = 1',",
        "DELIMITER ;;\nCREATE PROCEDURE `p`() BEGIN SELECT 1; SET GLOBAL x = 1; END;;",
    ],
)
def test_a_text_or_a_routine_may_name_a_setting_of_the_server(line: str) -> None:
    """Loading executes neither."""
    read, kept = mysql_script(line)
    assert read.skipped == {}
    assert kept == f"{line}\n"


def test_a_line_of_many_statements_is_read_in_its_length() -> None:
    """200 KB took minutes; here the test would hang."""
    with pytest.raises(SourceUnusable, match="changes settings"):
        mysql_script("(1);" + "SET a = 1;" * 20_000 + "SET GLOBAL x = 1;")


@pytest.mark.parametrize("name", ["grant", "set", "global", "revoke"])
def test_a_column_may_have_the_name_of_a_statement(name: str) -> None:
    """A line of a table is not a statement."""
    lines = ("CREATE TABLE `t` (", f"  `{name}` int,", "  `a` int", ");")
    read, kept = mysql_script(*lines)
    assert read.skipped == {}
    assert f"`{name}` int" in kept


def test_settings_of_the_whole_server_are_left_out_of_a_folder_of_mydumper(tmp_path: Path) -> None:
    """Its statements are listed."""
    folder = mydumper(tmp_path / "a", metadata=ROWS.format(0))
    with (folder / "shop.t-schema.sql").open("a") as file:
        file.write("SET  GLOBAL max_connections = 1;\n")
    changes = examine(folder)
    assert [change.values for change in changes] == [
        {"statements": "SET GLOBAL max_connections = 1"}
    ]


def test_a_setting_after_rows_of_mydumper_is_refused(tmp_path: Path) -> None:
    """The message has the name of the file."""
    folder = mydumper(tmp_path / "a", metadata=ROWS.format(1))
    (folder / "shop.t.00000.sql").write_text("INSERT INTO `t` VALUES (1); SET GLOBAL x = 1;\n")
    with pytest.raises(SourceUnusable, match=r"shop\.t\.00000\.sql changes settings"):
        examine(folder)


def test_a_session_may_read_a_setting_of_the_server() -> None:
    """SET @old = @@GLOBAL.x changes nothing for others."""
    line = "SET @old = @@GLOBAL.max_connections;"
    read, kept = mysql_script(line)
    assert read.skipped == {}
    assert kept == f"{line}\n"


@pytest.mark.parametrize(
    "line",
    [
        "/*!50003 CREATE*/ /*!50017 DEFINER=`app`@`10.%`*/ /*!50003 TRIGGER a BEFORE INSERT ;;",
        "CREATE DEFINER=`a``pp`@`%` PROCEDURE `p`() SELECT 1 ;;",
        "/*!50013 DEFINER=`app`@`%` SQL SECURITY DEFINER */",
    ],
)
def test_a_definer_is_replaced_by_the_account_that_loads(line: str) -> None:
    """Each use of a view or trigger of an account that is left out would fail."""
    _read, kept = mysql_script("DELIMITER ;;", line)
    assert "DEFINER=CURRENT_USER" in kept
    assert "`%`" not in kept


def test_a_definer_within_a_row_stays() -> None:
    """It is text of the user."""
    row = "INSERT INTO `t` VALUES ('CREATE DEFINER=`a`@`b`');\n"
    _read, kept = mysql_script(row.strip())
    assert kept == row


def test_events_and_engines_of_a_dump_are_named() -> None:
    """Events do not run, and only InnoDB is measured."""
    read, _kept = mysql_script(
        "CREATE TABLE `old` (",
        "  `id` int",
        ") ENGINE=MyISAM DEFAULT CHARSET=latin1;",
        "INSERT INTO `old` VALUES",
        "(1);",
        "DELIMITER ;;",
        "/*!50106 CREATE*/ /*!50117 DEFINER=`a`@`b`*/ /*!50106 EVENT `ev` ON SCHEDULE EVERY 1 DAY ;;",
        "DELIMITER ;",
    )
    assert read.engines == {("shop", "old"): "MyISAM"}
    assert list(read.skipped) == ["event ev (it does not run)"]
    assert read.has_rows


def test_tablespaces_and_settings_of_a_cluster_are_left_out() -> None:
    """Their directories do not exist here, and ALTER SYSTEM would change every trial."""
    dump = (
        b"CREATE TABLESPACE fast OWNER postgres LOCATION '/mnt/fast';\n"
        b"ALTER TABLESPACE fast SET (random_page_cost=1);\n"
        b"CREATE DATABASE inv WITH TEMPLATE = template0 ENCODING = 'UTF8' TABLESPACE = fast;\n"
        b"ALTER SYSTEM SET fsync = off;\n"
    )
    read = PostgresScript(io.BytesIO(dump), lambda _: False, lambda _: None, "dbbench")
    assert len(list(read)) == 4
    assert len(read.skipped) == 4
    dump = (
        b"CREATE DATABASE inv WITH ENCODING = 'UTF8' TABLESPACE = \"f t\" CONNECTION LIMIT = 5;\n"
    )
    (kept,) = PostgresScript(io.BytesIO(dump), lambda _: False, lambda _: None, "dbbench")
    assert kept == b"CREATE DATABASE inv WITH ENCODING = 'UTF8' CONNECTION LIMIT = 5;\n"


EMPTY: Final = {
    "tables, but no rows": "CREATE TABLE t (a int);\nCOPY t (a) FROM stdin;\n\\.\n",
    "rows, but does not": "COPY t (a) FROM stdin;\n1\n\\.\n",
    "no tables": "CREATE ROLE a;\n",
}


@pytest.mark.parametrize("why", EMPTY)
def test_a_dump_from_which_nothing_can_be_measured_is_refused(why: str, tmp_path: Path) -> None:
    """--schema-only, --data-only and --globals-only, before anything is built."""
    path = tmp_path / "shop.sql"
    whole = f"-- PostgreSQL database dump\n{EMPTY[why]}-- PostgreSQL database dump complete\n"
    path.write_text(whole)
    with pytest.raises(SourceUnusable, match=why):
        examine(path)


def mysqldump(path: Path, *lines: str) -> Path:
    """A dump of MariaDB with these lines."""
    whole = ["-- MariaDB dump 10.19", *lines, "-- Dump completed on 2026-11-21", ""]
    path.write_text("\n".join(whole))
    return path


def test_a_dump_of_mysql_without_rows_is_refused(tmp_path: Path) -> None:
    """A table of the system schema does not count."""
    path = mysqldump(
        tmp_path / "a.sql",
        "CREATE TABLE `t` (",
        ") ENGINE=InnoDB;",
        "USE `mysql`;",
        "INSERT INTO `user` VALUES (1);",
    )
    with pytest.raises(SourceUnusable, match="tables, but no rows"):
        examine(path)


def test_tables_of_other_engines_are_named_or_refused(tmp_path: Path) -> None:
    """A dump that has no other tables cannot be measured."""
    old = ("CREATE TABLE `o` (", ") ENGINE=MyISAM;", "INSERT INTO `o` VALUES (1);")
    new = ("CREATE TABLE `n` (", ") ENGINE=InnoDB;", "INSERT INTO `n` VALUES (1);")
    (change,) = examine(mysqldump(tmp_path / "a.sql", *old, *new))
    assert sources.text(change).endswith("only InnoDB is: dbbench.o (MyISAM)")
    with pytest.raises(SourceUnusable, match="none of the tables"):
        examine(mysqldump(tmp_path / "b.sql", *old))


ROWS = "[`shop`.`t`]\nrows = {}\n"


def mydumper(folder: Path, *parts: str, metadata: str = "") -> Path:
    """A directory of mydumper with a table, and these files of rows."""
    folder.mkdir()
    finished = "Finished dump at: 2026-11-28 00:25:18\n"
    (folder / "metadata").write_text(finished + metadata)
    (folder / "shop.t-schema.sql").write_text("CREATE TABLE `t` (\n  `a` int(11)\n);\n")
    (folder / "shop.u-schema.sql").write_text("CREATE TABLE `u` (\n  `a` int(11)\n);\n")
    for part in ("shop.u.sql", *parts):
        (folder / part).write_text("INSERT INTO `t` VALUES (1);\n")
    return folder


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        ((), r"has no shop\.t\.sql"),
        (("shop.t.00000.sql", "shop.t.00002.sql"), r"has no shop\.t\.00001\.sql"),
    ],
)
def test_a_file_of_rows_that_is_missing_is_refused(
    parts: tuple[str, ...],
    missing: str,
    tmp_path: Path,
) -> None:
    """Old versions of mydumper write no numbers of rows."""
    folder = mydumper(tmp_path / "dump", *parts)
    with pytest.raises(SourceUnusable, match=missing) as refused:
        examine(folder)
    assert "touch" in str(refused.value.remedy)


def test_a_table_that_the_metadata_call_empty_needs_no_file(tmp_path: Path) -> None:
    """Nor is an empty one named."""
    folder = mydumper(tmp_path / "a", metadata=ROWS.format(0))
    assert examine(folder) == ()
    (folder / "shop.t.sql").touch()
    assert examine(folder) == ()


@pytest.mark.parametrize("content", ["", "/*!40101 SET NAMES binary*/;\n"])
def test_a_file_without_rows_is_compared_with_the_metadata(content: str, tmp_path: Path) -> None:
    """Where they have no numbers, the table is named."""
    folder = mydumper(tmp_path / "a")
    (folder / "shop.t.sql").write_text(content)
    (change,) = examine(folder)
    assert change.values == {"tables": "shop.t (no rows)"}
    folder = mydumper(tmp_path / "b", metadata=ROWS.format(3))
    (folder / "shop.t.00000.sql").write_text(content)
    with pytest.raises(SourceUnusable, match=r"shop\.t\.00000\.sql has no rows, by the metadata 3"):
        examine(folder)
    (folder / "shop.t.00001.sql").write_text("INSERT INTO `t` VALUES (1),(2),(3);\n")
    assert examine(folder) == ()


def test_a_file_that_is_cut_within_a_statement_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    folder = mydumper(tmp_path / "dump", "shop.t.sql")
    (folder / "shop.t.sql").write_text("INSERT INTO `t` VALUES (1),\n(2")
    with pytest.raises(SourceUnusable, match=r"shop\.t\.sql ends too early"):
        examine(folder)


def test_a_last_file_that_may_be_missing_is_named(tmp_path: Path) -> None:
    """Only where the metadata have no numbers of rows."""
    parts = ("shop.t.00000.sql", "shop.t.00001.sql")
    (change,) = examine(mydumper(tmp_path / "a", *parts))
    assert change.values == {"tables": "shop.t (2 files)"}
    folder = mydumper(tmp_path / "b", *parts, metadata=ROWS.format(2))
    assert examine(folder) == ()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("3000.dat.gz", b"1\n\\.\n\n\n", ""),
        ("3000.dat.gz", b"1\n", r"3000\.dat\.gz is .*: it ends within the rows of a table"),
        ("3000.dat.gz", None, r"its file 3000\.dat is missing"),
        ("blob_1.dat.gz", None, r"its file blob_1\.dat is missing"),
        ("blobs.toc", None, r"its file blobs\.toc is missing"),
    ],
)
def test_a_file_of_a_directory_that_is_missing_or_cut_is_refused(
    name: str,
    content: bytes | None,
    why: str,
    tmp_path: Path,
) -> None:
    """The files are those of the table of contents."""
    folder = directory(tmp_path / "dump")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(gzip.compress(content))
    if not why:
        check_files(folder)
        return
    with pytest.raises(SourceUnusable, match=why):
        check_files(folder)


def directory(folder: Path) -> Path:
    """A directory of pg_dump with the rows of a table and a large object."""
    folder.mkdir()
    names = b"".join(bytes([0, len(name), 0, 0, 0]) + name for name in (b"3000.dat", b"blobs.toc"))
    (folder / "toc.dat").write_bytes((REAL / "toc.dat").read_bytes() + names)
    (folder / "blobs.toc").write_text("1 blob_1.dat\n")
    (folder / "3000.dat.gz").write_bytes(gzip.compress(b"\\.\n\n\n"))
    (folder / "blob_1.dat.gz").write_bytes(gzip.compress(os.urandom(5000)))
    return folder


def test_a_large_object_that_is_cut_is_refused(tmp_path: Path) -> None:
    """pg_restore loads what is there of it, with status 0."""
    large = directory(tmp_path / "dump") / "blob_1.dat.gz"
    os.truncate(large, large.stat().st_size - 9)
    with pytest.raises(SourceUnusable, match=r"blob_1\.dat\.gz is damaged or truncated") as refused:
        check_files(large.parent)
    assert "Make the dump or backup again" in str(refused.value.remedy)


@pytest.mark.starts_processes
def test_a_program_ends_whose_output_is_refused_at_its_beginning(tmp_path: Path) -> None:
    """A pipe has 64 KiB; then the program would wait for a reader."""
    program = (Path("/bin/sh"), "-c", "head -c 300000 /dev/zero")
    with (
        pytest.raises(SourceUnusable, match="dump is damaged or truncated: no row"),
        reading(tmp_path / "dump", Path("/dev/null"), *program),
    ):
        raise SourceUnusable("no row")


@pytest.mark.parametrize("program", ["mysqldump", "mariadb-dump"])
def test_a_message_of_the_program_that_made_the_dump_is_named(program: str) -> None:
    """As after `mysqldump > FILE 2>&1`."""
    with pytest.raises(SourceUnusable, match=rf"line 2 .* is a message .*: {program}: Error 2013"):
        mysql_script("SET NAMES utf8mb4;", f"{program}: Error 2013: Lost connection")


def test_the_database_of_a_dump_is_made() -> None:
    """With --no-create-db nothing of the dump makes it."""
    _read, kept = mysql_script("USE `a``b`;", "USE `a``b`;", "CREATE DATABASE `c`;", "USE `c`;")
    made = "CREATE DATABASE IF NOT EXISTS `a``b`; USE `a``b`;\n"
    assert kept == made + "USE `a``b`;\nCREATE DATABASE `c`;\nUSE `c`;\n"


COLUMNS: Final = (
    "CREATE TABLE a (i int, t text);",
    "COPY a (i, t) FROM stdin;",
    "1\tone",
    "2\ttwo",
)
ONE: Final = ("CREATE TABLE b (t text);", "COPY b (t) FROM stdin;", "one")
NONE: Final = ("CREATE TABLE c ();", "COPY c  FROM stdin;", "", "\\.")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((*COLUMNS, "", *ONE, "\\."), "line 5 is not a row as line 3"),
        ((*COLUMNS[:3], "2", "\\."), "line 4 is not a row as line 3"),
        ((*ONE, "", *COLUMNS, "\\."), "line 6 is not a row as line 3"),
        ((*COLUMNS, "\\.", *ONE), "ends within the rows of line 7"),
    ],
)
def test_rows_without_an_end_are_refused(lines: tuple[str, ...], why: str) -> None:
    """Otherwise the next statements are rows of a table of one text."""
    with pytest.raises(SourceUnusable, match=why):
        postgres_script(*lines)


def test_rows_of_tables_with_any_number_of_columns_are_whole() -> None:
    """pg_dump writes two blanks for a table without columns."""
    read = postgres_script(*COLUMNS, "\\.", *ONE, "\\.", *NONE)
    assert list(read.tables.values()) == [2, 1, 1]


@pytest.mark.parametrize(
    "line",
    [
        "SELECT 1; COPY t FROM PROGRAM 'true';",
        "/* a */ COPY t TO '/etc/x';",
        "SELECT ';';COPY t FROM '/etc/x';",
    ],
)
def test_a_file_of_the_server_is_refused_behind_another_statement(line: str) -> None:
    """The server would read or write it with the rights of its account."""
    with pytest.raises(SourceRefused, match="line 1 of the dump"):
        postgres_script(line)


def test_a_text_is_no_later_statement() -> None:
    """A string may have a semicolon."""
    postgres_script("SELECT 'x; COPY t FROM PROGRAM';")


def postgres_script(*lines: str) -> PostgresScript:
    """These lines of a dump, read to their end."""
    dump = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    read = PostgresScript(dump, lambda _: False, lambda _: None)
    for _line in read:
        pass
    return read
