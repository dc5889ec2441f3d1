"""Scripts of a dump: what they contain, and what is refused because it is cut short or runs a
command.
"""

import io

import pytest

from dbbench.datasets.sources.mysql_script import MysqlScript
from dbbench.datasets.sources.postgres_dumps import PostgresScript
from dbbench.errors import SourceRefused, SourceUnusable
from tests.support.dump_texts import DUMP


def script(dump: bytes) -> PostgresScript:
    """The dump, read to its end."""
    read = PostgresScript(
        io.BytesIO(dump),
        lambda name: name == "other",
        lambda _role: None,
        "dbbench",
    )
    assert len(list(read)) == len(dump.splitlines())
    return read


def test_a_script_of_postgres_reports_what_it_contains() -> None:
    """Tables and rows, whatever the names; strings, comments and bodies of functions are no
    statements.
    """
    read = script(DUMP)
    assert read.tables == {("", 'public."t;""("'): 2}
    assert read.skipped == {}
    kept = list(PostgresScript(io.BytesIO(DUMP), lambda _: False, lambda _: None, "dbbench"))
    assert b"".join(kept).count(b"\\") == DUMP.count(b"\\") - 2 and b"OWNER" not in b"".join(kept)


def test_a_script_that_is_cut_anywhere_is_incomplete() -> None:
    """At every byte up to the closing comment."""
    end = DUMP.rindex(b"-- PostgreSQL database dump complete") + len(
        b"-- PostgreSQL database dump complete"
    )
    for size in range(DUMP.index(b"\\restrict"), end):
        with pytest.raises((SourceUnusable, SourceRefused)):
            script(DUMP[:size])
    script(DUMP[:end])


@pytest.mark.parametrize(
    "line",
    [
        rb"\! id",
        rb"SELECT 1; \! id",
        rb"SELECT 'a' \gexec",
        rb"/* x */ \! id",
        rb"$a$ $b$ $a$ \! id",
        rb'"a""" \o x',
        rb"\copy t to program 'id'",
        rb"\i /etc/shadow",
        rb"\connect dbname=x host=y",
        rb"E'\'' \! id",
        rb"SELECT a$1$ \! id",
    ],
)
def test_commands_for_psql_are_refused_wherever_they_are(line: bytes) -> None:
    """Also behind strings, comments and dollar quotes."""
    with pytest.raises(SourceRefused, match="command for psql"):
        script(DUMP.replace(b"SET statement_timeout = 0;", line))


@pytest.mark.parametrize(
    "line",
    [
        b"COPY t FROM PROGRAM 'id';",
        b"  copy t (a) from program 'id';",
        b"COPY t FROM '/etc/shadow';",
        b"COPY (SELECT 1) TO '/tmp/x';",
        b"COPY t",
    ],
)
def test_files_and_programs_of_the_server_are_refused(line: bytes) -> None:
    """The server is a superuser's, so it would run the program."""
    with pytest.raises(SourceRefused, match="reads or writes a file or a program"):
        script(DUMP.replace(b"SET statement_timeout = 0;", line))


def test_a_message_of_pg_dump_in_the_file_is_named() -> None:
    """As after `pg_dump > FILE 2>&1`."""
    with pytest.raises(SourceUnusable, match=r"line 1 .* is a message .*: pg_dump: warning: x"):
        script(b"pg_dump: warning: x\n" + DUMP)


def test_sessions_and_settings_of_a_cluster_dump() -> None:
    """\\connect changes the database; unknown settings, the own role and its database are left out
    and counted.
    """
    dump = (
        b"--\n-- PostgreSQL database cluster dump\n--\nCREATE ROLE dbbench;\nCREATE ROLE other;\n"
        b'ALTER ROLE dbbench WITH NOSUPERUSER;\n\\connect -reuse-previous=on "dbname=\'a\\\\\'b ""c\'"\n'
        b"SET search_path = s, pg_catalog;\nSET other = 1;\nCREATE TABLE t (\n a int);\n"
        b"\\connect plain\nCREATE TABLE p.t (a int);\n-- PostgreSQL database cluster dump complete\n"
    )
    dump = dump.replace(b"\\\\'", b"\\'")
    read = script(dump)
    assert list(read.tables) == [("a'b \"c", "s.t"), ("plain", "p.t")]
    assert list(read.skipped) == ["SET other = 1;"]
    kept = b"".join(PostgresScript(io.BytesIO(dump), lambda _: False, lambda _: None, "dbbench"))
    assert b"dbbench" not in kept and b"CREATE ROLE other" in kept


def test_a_script_of_mysql_without_the_server_of_its_own() -> None:
    """System schemas, accounts, replication and unknown variables are left out."""
    dump = (
        b"-- MySQL dump 10.13\n/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;\n"
        b"/*M!100616 SET @OLD_NOTE=@@NOTE_VERBOSITY, NOTE_VERBOSITY=0 */;\n"
        b"SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ 'a:1-5,\nb:1-7';\nCHANGE MASTER TO MASTER_LOG_FILE='a';\n"
        b"CREATE DATABASE /*!32312 IF NOT EXISTS*/ `mysql` /*!40100 */;\nUSE `mysql`;\n"
        b"CREATE TABLE `user` (\nINSERT INTO `user`;\n"
        b"CREATE DATABASE `a``b`;\nUSE `a``b`;\nCREATE TABLE `t` (\nINSERT INTO `t` VALUES ('GRANT');\n"
        b"DELIMITER ;;\nUSE `mysql`;\nCREATE TABLE `no` (;;\nDELIMITER ;\n-- Dump completed on 2026-11-21\n"
    )
    read = MysqlScript(io.BytesIO(dump), lambda name: name == "note_verbosity", "dbbench")
    kept = b"".join(read)
    assert read.tables == {("a`b", "t"): None}
    assert len(read.skipped) == 4 and kept.count(b"\n") == dump.count(b"\n")
    assert not any(word in kept for word in (b"user", b"GTID", b"MASTER", b"NOTE", b"b:1"))
    assert b"GRANT" in kept and b"CREATE TABLE `no`" in kept
    with pytest.raises(SourceUnusable):
        list(MysqlScript(io.BytesIO(dump[: dump.index(b"-- Dump")]), lambda _: False, "dbbench"))
