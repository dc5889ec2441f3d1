"""Dumps of PostgreSQL of every kind: loaded whole, refused if they are cut or contain commands."""

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.datasets import sources
from dbbench.datasets.sources import postgres_copies as postgres_sources
from dbbench.engines.sql import execute
from dbbench.errors import DatasetBuildFailed, DbbenchError, SourceRefused, SourceUnusable
from dbbench.model import SourceChangeKind
from tests.support.dumps import Loader, cuts, loading, with_line, with_link
from tests.support.servers import query
from tests.system.conftest import HANGS_S

SHOP: Final = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id int PRIMARY KEY, name text, at timestamptz DEFAULT now());
INSERT INTO shop.customers
  SELECT n, 'it''s "quoted" \\ ' || repeat(E';\\n-- no\\t/*', n % 5) FROM generate_series(1, 900) n;
CREATE TABLE shop."or""der's;" (id int, at date, t bytea) PARTITION BY RANGE (at);
CREATE TABLE shop.year PARTITION OF shop."or""der's;" FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
INSERT INTO shop."or""der's;" SELECT n, '2020-01-01', sha512(n::text::bytea) FROM generate_series(1, 900) n;
CREATE FUNCTION shop.touched() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  -- COPY shop.customers FROM stdin;
  NEW.at := now(); PERFORM 'a\\!;b'; RETURN NEW;
END $f$;
CREATE TRIGGER touched BEFORE UPDATE ON shop.customers FOR EACH ROW EXECUTE FUNCTION shop.touched();
COMMENT ON TABLE shop.customers IS E'first\\n\\\\! touch /nowhere\\nlast';
CREATE ROLE keeper; ALTER TABLE shop.customers OWNER TO keeper; GRANT SELECT ON shop.year TO keeper;
ALTER TABLE shop.customers ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON shop.customers TO keeper USING (true);
CREATE TABLE public.large (o oid); INSERT INTO public.large VALUES (lo_from_bytea(0, sha512('a')));
"""
SUMS: Final = (
    "SELECT count(*), md5(string_agg(c::text, ',' ORDER BY id)) FROM shop.customers c"
    " UNION ALL SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM "
    'shop."or""der\'s;"'
)
FORMS: Final = {
    "plain.sql": ["shop"],
    "inserts.sql": ["--inserts", "shop"],
    "clean.sql": ["--create", "--clean", "shop"],
    "custom": ["--format=custom", "shop"],
    "tar": ["--format=tar", "shop"],
    "directory": ["--format=directory", "shop"],
}

NEEDS_POSTGRES: Final = ("root", "engine:postgres", "psql")


@pytest.fixture(scope="module")
def postgres() -> Iterator[tuple[Loader, Path, Any]]:
    """A server, dumps of a shop in every form, and the sums of its tables."""
    with loading("postgres") as loader:
        query(loader.server, "CREATE DATABASE shop", at="postgres")
        query(loader.server, SHOP, at="shop")
        sums = query(loader.server, SUMS, at="shop")
        dumps = loader.folder / "dumps"
        dumps.mkdir(0o700)  # the server's account cannot read it, as below /root
        where = [f"--host={loader.server.socket_dir}", f"--username={loader.server.user}"]
        for name, options in FORMS.items():
            process.run(
                [loader.server.bin / "pg_dump", *where, f"--file={dumps / name}", *options],
                timeout_s=HANGS_S,
            )
        process.run(
            [loader.server.bin / "pg_dumpall", *where, f"--file={dumps / 'all.sql'}"],
            timeout_s=HANGS_S,
        )
        yield loader, dumps, sums


@pytest.mark.needs(*NEEDS_POSTGRES)
@pytest.mark.parametrize("name", [*FORMS, "all.sql"])
def test_postgres_dumps_are_loaded_whole_or_not_at_all(
    name: str, postgres: tuple[Loader, Path, Any]
) -> None:
    """pg_dumpall contains the role and the database of dbbench itself. A cut at any place is
    refused.
    """
    loader, dumps, sums = postgres
    loader.load(dumps / name)
    assert query(loader.server, SUMS) == sums
    assert not [
        cut for path, cut in cuts(dumps / name, loader.folder / "cut") if not loader.refusals(path)
    ]


@pytest.mark.needs(*NEEDS_POSTGRES)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_psql_stops_at_the_first_error(share: float, postgres: tuple[Loader, Path, Any]) -> None:
    """The message has the line and the statement."""
    loader, dumps, _sums = postgres
    path, line = with_line(
        dumps / "plain.sql",
        share,
        "SELECT 1 / 0;",
        r"CREATE |ALTER TABLE ONLY |SELECT pg_catalog",
    )
    with pytest.raises(
        DatasetBuildFailed, match=rf"line {line}: SELECT 1 / 0;\n.*division by zero"
    ):
        loader.load(path)


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_pg_restore_stops_at_the_first_error(postgres: tuple[Loader, Path, Any]) -> None:
    """An index on a function that finds its table only by the search_path cannot be restored."""
    loader, dumps, _sums = postgres
    loader.load(dumps / "custom")
    execute(
        loader.server,
        "CREATE FUNCTION public.f(int) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS"
        " $$BEGIN RETURN (SELECT count(*) FROM large); END$$",
        "CREATE INDEX ON shop.customers (public.f(id))",
    )
    where = [f"--host={loader.server.socket_dir}", f"--username={loader.server.user}"]
    dump = [
        loader.server.bin / "pg_dump",
        *where,
        "--format=custom",
        f"--file={dumps / 'bad'}",
        "dbbench",
    ]
    process.run(dump, timeout_s=HANGS_S)
    with pytest.raises(DatasetBuildFailed, match=r'relation "large" does not exist'):
        loader.load(dumps / "bad")


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_settings_of_other_versions_are_left_out(postgres: tuple[Loader, Path, Any]) -> None:
    """A later pg_dump sets transaction_timeout, an earlier one default_with_oids; a tablespace is
    not here.
    """
    loader, dumps, sums = postgres
    path, _line = with_line(
        dumps / "plain.sql",
        0,
        "SET transaction_timeouts = 0;\nSET default_with_oids = false;\n"
        "SET default_tablespace = fast;",
        "SET statement_timeout",
    )
    assert loader.load(path) == [SourceChangeKind.SKIPPED]
    assert query(loader.server, SUMS) == sums


@pytest.mark.needs(*NEEDS_POSTGRES)
@pytest.mark.parametrize(
    "line",
    [
        r"\! touch {}",
        r"SELECT 1 \! touch {}",
        r"\copy (SELECT 1) TO PROGRAM 'touch {}'",
        r"\connect 'host=elsewhere'",
        r"SELECT 1 \g | touch {}",
        r"\o | touch {}",
    ],
)
def test_commands_for_psql_are_refused(line: str, postgres: tuple[Loader, Path, Any]) -> None:
    """At the beginning of a line and within one."""
    loader, dumps, _sums = postgres
    path, _ = with_line(
        dumps / "plain.sql",
        0.5,
        line.format(mark := loader.folder / "ran"),
        "CREATE ",
    )
    with pytest.raises(SourceRefused, match="a command for psql"):
        loader.load(path)
    assert not mark.exists()


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_what_psql_takes_for_a_command_is_refused_by_psql(
    postgres: tuple[Loader, Path, Any],
) -> None:
    """After set_config() psql reads strings in another way than the lines before it show. psql is
    not root, and since 2025 it refuses commands too.
    """
    loader, dumps, _sums = postgres
    mark = loader.folder / "ran"
    line = rf"""SELECT set_config('standard_conforming_strings', 'off', false); SELECT '\'' \! touch {mark}
-- ';"""
    path, _ = with_line(dumps / "plain.sql", 0.5, line, "CREATE ")
    with pytest.raises(DbbenchError):
        loader.load(path)
    assert not mark.exists()


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_rows_that_a_trigger_removes_are_noticed(postgres: tuple[Loader, Path, Any]) -> None:
    """The number of rows of each COPY block is compared with that of the table."""
    loader, dumps, _sums = postgres
    rule = (
        "CREATE FUNCTION public.lost() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; "
        "END';\n"
        "CREATE TRIGGER lost BEFORE INSERT ON shop.customers FOR EACH ROW WHEN (NEW.id = 7)"
        " EXECUTE FUNCTION public.lost();"
    )
    path, _ = with_line(dumps / "plain.sql", 0, rule, r"COPY shop\.customers")
    with pytest.raises(DatasetBuildFailed, match=r"shop\.customers has 899 rows, in the dump 900"):
        loader.load(path)


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_a_locale_that_is_missing_is_named(postgres: tuple[Loader, Path, Any]) -> None:
    """Before anything is built, with its package."""
    _loader, dumps, _sums = postgres
    text = (dumps / "all.sql").read_text(encoding="utf-8")
    path = dumps / "locale.sql"
    path.write_text(text.replace("LOCALE = 'C.UTF-8'", "LOCALE = 'xx_XX.UTF-8'"), encoding="utf-8")
    with pytest.raises(SourceUnusable, match=r"needs the locale xx_XX\.UTF-8") as refused:
        postgres_sources.check_locales(sources.look(path))
    assert refused.value.remedy and "locales" in refused.value.remedy
    postgres_sources.check_locales(sources.look(dumps / "all.sql"))


@pytest.mark.needs(*NEEDS_POSTGRES)
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_truncated_table_of_contents_is_named(
    share: float, postgres: tuple[Loader, Path, Any]
) -> None:
    """By `plan`, also where it would name no rows; root can read it, the server's account cannot."""
    loader, dumps, _sums = postgres
    shutil.rmtree(copy := loader.folder / "copy", ignore_errors=True)
    shutil.copytree(dumps / "directory", copy)
    assert sources.examine(sources.look(copy), None) == ()
    contents = copy / "toc.dat"
    os.truncate(contents, int(contents.stat().st_size * share))
    sources.examine.cache_clear()
    with pytest.raises(SourceUnusable, match=r"toc\.dat is damaged or truncated"):
        sources.examine(sources.look(copy), None)


@pytest.mark.needs(*NEEDS_POSTGRES)
def test_links_in_a_directory_of_pg_dump_are_refused(postgres: tuple[Loader, Path, Any]) -> None:
    """The same for a file of rows; and a whole file of rows that was replaced by another one is
    noticed.
    """
    loader, dumps, _sums = postgres
    shutil.rmtree(copy := loader.folder / "copy", ignore_errors=True)
    shutil.copytree(dumps / "directory", copy)
    rows_of = max(copy.glob("[0-9]*.dat.gz"), key=lambda path: path.stat().st_size)
    content = gzip.decompress(rows_of.read_bytes()).splitlines(keepends=True)
    rows_of.write_bytes(gzip.compress(b"".join(content[5:])))
    loader.load(copy)  # shorter, but whole as far as anything in it tells
    with_link(copy, rows_of.name, Path("/etc/shadow"))
    with pytest.raises(SourceRefused, match=rows_of.name):
        loader.load(copy)
