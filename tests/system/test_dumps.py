"""Dumps of every kind: loaded whole, refused if they are cut or contain a bad statement, and never
run by root.
"""

import contextlib
import errno
import gzip
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.datasets import sources
from dbbench.datasets.sources import postgres_copies as postgres_sources
from dbbench.engines import ENGINES
from dbbench.engines.port import Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import DatasetBuildFailed, DbbenchError, SourceRefused, SourceUnusable
from dbbench.model import SourceChangeKind
from dbbench.storage.devices import naming
from tests.support import servers
from tests.support.plans import plan
from tests.support.planted import detach, mkfs, new_disk
from tests.support.servers import query
from tests.system.conftest import HANGS_S

CUTS: Final = int(os.environ.get("DBBENCH_CUTS", "6"))  # of each dump; `make soak`: 20
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
FILM: Final = (
    "CREATE DATABASE `o'br``ien`",
    "CREATE TABLE `o'br``ien`.`or``der's` (id int PRIMARY KEY, `wh``at` varchar(90), d date "
    "DEFAULT '0000-00-00')",
    "CREATE DATABASE film",
    "CREATE TABLE film.film (id int AUTO_INCREMENT PRIMARY KEY, t text, b blob, e enum('a','b'), "
    "KEY (e))",
    "CREATE TABLE film.actor (id int PRIMARY KEY, f int, FOREIGN KEY (f) REFERENCES film.film "
    "(id))",
    "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
    "INSERT INTO film.film WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE "
    "i < 900)"
    " SELECT i, concat('it''s ', i, ';\\n-- \"\\\\'), unhex(sha2(i, 512)), 'b' FROM n",
    "INSERT INTO film.actor SELECT id, id FROM film.film",
    "INSERT INTO `o'br``ien`.`or``der's` VALUES (1, 'a', '0000-00-00'), (2, 'b', '2004-02-28')",
    "CREATE VIEW film.listed AS SELECT f.t, a.id FROM film.film f JOIN film.actor a ON a.f = f.id",
    "CREATE TRIGGER film.changed AFTER UPDATE ON film.film FOR EACH ROW BEGIN SET @a = 1; SET @b "
    "= 2; END",
    "CREATE PROCEDURE film.counted() BEGIN SELECT count(*) FROM film; SELECT 2; END",
)
# MariaDB's program writes values of generated columns, with which only MariaDB accepts a row.
GENERATED: Final = (
    "CREATE TABLE film.sums (id int PRIMARY KEY, twice int AS (2 * id) STORED)",
    "INSERT INTO film.sums (id) VALUES (1), (2)",
)
FILM_SUMS: Final = "CHECKSUM TABLE film.film, film.actor"


class Loader:
    """A server into which dumps are loaded one after the other."""

    def __init__(self, engine: str, folder: Path, server: Server) -> None:
        self.engine = engine
        self.folder = folder
        self.server = server

    def load(self, path: Path) -> list[SourceChangeKind]:
        """Load the dump into an empty server; return what was changed."""
        self.clean()
        source = sources.look(path)
        changes = sources.load(source, source.dataset(), self.server, self.folder / "data")
        return [change.kind for change in changes]

    def refusals(self, path: Path) -> bool:
        """Whether an incomplete dump is refused, as it has to be."""
        try:
            self.load(path)
        except (SourceUnusable, DatasetBuildFailed):
            return True
        return False

    def clean(self) -> None:
        """Remove what was loaded before."""
        shutil.rmtree(self.folder / "source", ignore_errors=True)
        (self.folder / "source").unlink(missing_ok=True)
        if self.engine == "postgres":
            listed = (
                "SELECT quote_ident(datname) FROM pg_database WHERE NOT datistemplate AND "
                "datname <> 'postgres'"
            )
            for (name,) in rows(self.server, listed, database="postgres"):
                execute(self.server, f"DROP DATABASE {name} WITH (FORCE)", database="postgres")
            roles = (
                "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname !~ '^pg_' AND rolname "
                "<> 'dbbench'"
            )
            for (name,) in rows(self.server, roles, database="postgres"):
                execute(self.server, f"DROP ROLE {name}", database="postgres")
            execute(self.server, "CREATE DATABASE dbbench", database="postgres")
        else:
            for (name,) in rows(self.server, "SHOW DATABASES", database=""):
                if name not in ("mysql", "sys", "information_schema", "performance_schema"):
                    quoted = name.replace("`", "``")
                    execute(self.server, f"DROP DATABASE `{quoted}`", database="")
            execute(self.server, "CREATE DATABASE dbbench", database="")


@contextlib.contextmanager
def loading(engine: str) -> Iterator[Loader]:
    """A running server in a folder that its account can enter."""
    with servers.open_folder() as folder:
        where = servers.place(engine, folder)
        ENGINES[engine].create(folder / "data", where)
        with servers.serving(engine, folder / "data", where) as server:
            yield Loader(engine, folder, server)


def cuts(path: Path, to: Path) -> Iterator[tuple[Path, str]]:
    """Copies of the dump of which a file, or the dump itself, ends at a random byte; with that file
    and byte.
    """
    random_ = random.Random(f"{path.name}")
    for _ in range(CUTS):
        shutil.rmtree(to, ignore_errors=True)
        if path.is_dir():
            shutil.copytree(path, to)
            whole = random_.choice([file for file in sorted(to.iterdir()) if file.stat().st_size])
        else:
            to.mkdir()
            whole = Path(shutil.copy(path, to))
        os.truncate(whole, size := random_.randrange(whole.stat().st_size))
        yield to if path.is_dir() else whole, f"{whole.name} at {size}"


def with_line(
    path: Path,
    share: float,
    line: str,
    beginning: str,
) -> tuple[Path, int]:
    """A copy of the script with one more line, before a line that begins so; and the number of that
    line.
    """
    lines = [f"{line}\n" for line in path.read_text(encoding="latin-1").split("\n")[:-1]]
    places = [number for number, text in enumerate(lines) if re.match(beginning, text)]
    at = places[int(share * (len(places) - 1))]
    changed = path.with_name(f"changed-{path.name}")
    changed.write_text("".join([*lines[:at], line + "\n", *lines[at:]]), encoding="latin-1")
    return changed, at + 1


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


@pytest.fixture(
    scope="module",
    params=["mariadb", pytest.param("mysql", marks=pytest.mark.needs("engine:mysql"))],
)
def innodb(request: pytest.FixtureRequest) -> Iterator[tuple[Loader, Path, Any]]:
    """A server, dumps of its two databases, and the sums of its tables."""
    with loading(request.param) as loader:
        server = loader.server
        query(server, "SET SESSION sql_mode = ''", *FILM, at="")
        if request.param == "mariadb":
            query(server, *GENERATED, at="")
        sums = [row[1] for row in query(server, FILM_SUMS, at="")]
        (dumps := loader.folder / "dumps").mkdir(0o700)
        where = [f"--socket={server.socket}", f"--user={server.user}"]
        dump = ["mariadb-dump", "--no-defaults", "--skip-ssl", *where, "--routines"]
        kinds = {
            "film.sql": ["--databases", "film", "o'br`ien"],
            "all.sql": ["--all-databases", "--flush-privileges"],
        }
        for name, options in kinds.items():
            process.run(
                [*dump, f"--result-file={dumps / name}", *options],
                env=server.env,
                timeout_s=HANGS_S,
            )
        with contextlib.suppress(DbbenchError):
            for name, options in {"mydumper": [], "packed": ["--compress"]}.items():
                process.run(
                    [
                        "mydumper",
                        *where,
                        "--database=film",
                        "--triggers",
                        *options,
                        f"--outputdir={dumps / name}",
                    ],
                    env=server.env,
                    timeout_s=HANGS_S,
                )
        yield loader, dumps, sums


NEEDS_MARIADB: Final = ("root", "engine:mariadb", "mariadb", "mariadb-dump")


@pytest.mark.needs(*NEEDS_MARIADB)
@pytest.mark.parametrize(
    "name",
    [
        "film.sql",
        "all.sql",
        *(
            pytest.param(name, marks=pytest.mark.needs("mydumper"))
            for name in ("mydumper", "packed")
        ),
    ],
)
def test_innodb_dumps_are_loaded_whole_or_not_at_all(
    name: str, innodb: tuple[Loader, Path, Any]
) -> None:
    """Names with quotes, the identifier 0, zero dates; the accounts of --all-databases stay out."""
    loader, dumps, sums = innodb
    if loader.engine == "mysql" and name == "all.sql":
        pytest.skip("mariadb-dump does not dump the system schema of MySQL")
    loader.load(dumps / name)
    assert [row[1] for row in query(loader.server, FILM_SUMS, at="")] == sums
    assert query(loader.server, "SELECT count(*) FROM film.listed", at="") == [(901,)]
    assert len(query(loader.server, "SHOW TRIGGERS FROM film", at="")) == 1
    if loader.engine == "mariadb":
        assert query(loader.server, "SELECT sum(twice) FROM film.sums", at="") == [(6,)]
    assert not [
        cut for path, cut in cuts(dumps / name, loader.folder / "cut") if not loader.refusals(path)
    ]


@pytest.mark.needs(*NEEDS_MARIADB)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_client_stops_at_the_first_error(
    share: float, innodb: tuple[Loader, Path, Any]
) -> None:
    """The message has the line and the statement."""
    loader, dumps, _sums = innodb
    path, line = with_line(
        dumps / "film.sql",
        share,
        "SELECT nothing;",
        "DROP TABLE|CREATE TABLE|INSERT |UNLOCK",
    )
    with pytest.raises(DatasetBuildFailed, match=rf"line {line}: SELECT nothing;\n +ERROR 1054"):
        loader.load(path)


@pytest.mark.needs(*NEEDS_MARIADB)
def test_a_value_that_does_not_fit_is_listed(innodb: tuple[Loader, Path, Any]) -> None:
    """It is changed as by the server's own client: old servers kept such values."""
    loader, dumps, _sums = innodb
    row = "INSERT INTO `film` VALUES (9999, 'a', '', 'c');"
    path, _line = with_line(dumps / "film.sql", 0, row, r".*`film` ENABLE KEYS")
    assert SourceChangeKind.WARNED in loader.load(path)


@pytest.mark.needs(*NEEDS_MARIADB, "mydumper")
@pytest.mark.parametrize(
    "name", ["film.actor-schema.sql", "film.actor.sql", "film.film-schema-triggers.sql"]
)
def test_a_directory_stops_at_the_first_error(name: str, innodb: tuple[Loader, Path, Any]) -> None:
    """In the first, a middle and the last file."""
    loader, dumps, _sums = innodb
    shutil.rmtree(copy := loader.folder / "copy", ignore_errors=True)
    shutil.copytree(dumps / "mydumper", copy)
    lines = (copy / name).read_text(encoding="latin-1")
    (copy / name).write_text(lines + "SELECT nothing;\n", encoding="latin-1")
    number = len(lines.splitlines()) + 1
    with pytest.raises(
        DatasetBuildFailed, match=rf"{name}, line {number}: SELECT nothing;\n +ERROR 1054"
    ):
        loader.load(copy)


@pytest.mark.needs(*NEEDS_MARIADB)
@pytest.mark.parametrize(
    "line", [r"\! touch {}", "system touch {};", "source {};", r"SELECT 1 \! touch {}"]
)
def test_commands_for_the_client_are_errors(line: str, innodb: tuple[Loader, Path, Any]) -> None:
    """The client sends them to the server."""
    loader, dumps, _sums = innodb
    path, _ = with_line(
        dumps / "film.sql",
        0.5,
        line.format(mark := loader.folder / "ran"),
        "DROP TABLE",
    )
    with pytest.raises(DatasetBuildFailed, match=r"ERROR (1064|at line \d+: Unknown command)"):
        loader.load(path)
    assert not mark.exists()


@pytest.mark.needs(*NEEDS_MARIADB)
def test_local_files_are_not_read(innodb: tuple[Loader, Path, Any]) -> None:
    """LOAD DATA LOCAL would read a file of this machine; --insert-ignore drops rows with a warning."""
    loader, dumps, _sums = innodb
    for line in (
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE `film`;",
        "INSERT IGNORE INTO `film` VALUES (1,'','','a');",
    ):
        path, _ = with_line(dumps / "film.sql", 0, line, "UNLOCK")
        changed = path.read_text(encoding="latin-1").replace(
            "LOCK TABLES `actor`", "LOCK TABLES `film` WRITE, `actor`"
        )
        path.write_text(changed, encoding="latin-1")
        with pytest.raises(DatasetBuildFailed):
            loader.load(path)


def with_link(copy: Path, name: str, target: Path) -> None:
    """Replace a file by a link."""
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(target)


@pytest.mark.needs(*NEEDS_MARIADB, "mydumper")
def test_links_in_a_directory_of_mydumper_are_refused(innodb: tuple[Loader, Path, Any]) -> None:
    """A file of another user would be read, and its first line shown in the message."""
    loader, dumps, _sums = innodb
    for name in ("film.actor.sql", "film.actor-schema.sql"):
        shutil.rmtree(copy := loader.folder / "copy", ignore_errors=True)
        shutil.copytree(dumps / "mydumper", copy)
        with_link(copy, name, Path("/etc/shadow"))
        with pytest.raises(SourceRefused, match=re.escape(name)):
            loader.load(copy)


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


REFUSED_DUMP: Final = """-- PostgreSQL database dump
-- Dumped from database version 15.1
CREATE TABLE t (id int);
INSERT INTO t VALUES (1);
SELECT 1 / 0;
--
-- PostgreSQL database dump complete
--
"""


def building(event: dict[str, Any]) -> bool:
    """Whether the golden copy is being built."""
    return event["kind"] == "prepare" and event["what"].startswith("building the dataset")


def refuse_dump(
    dbbench: Any,
    *words: str,
    meanwhile: Callable[[int], None] = lambda _pid: None,
    **keys: Any,
) -> str:
    """Run a plan whose dump has a bad statement; return stderr. `meanwhile`: what happens while it
    is loaded. The cache is the test's own, so that all that is kept is seen: nothing larger than
    1 MiB.
    """
    dump = dbbench.folder / "shop.sql"
    if not dump.exists():  # a changed dump would be another plan
        dump.write_text(REFUSED_DUMP)
    dbbench.env["DBBENCH_CACHE"] = str(dbbench.folder / "cache")
    load = {"name": "scan", "source": str(dump)}
    text = plan("ext4", "postgres", load, **keys)
    status, said = dbbench.run_and(dbbench.plan(text), building, meanwhile, *words)
    assert status == 2, said
    assert "error E501" in said and "division by zero" in said
    kept = [
        path
        for folder in ("results", "cache")
        for path in (dbbench.folder / folder).rglob("*")
        if path.is_file() and path.stat().st_size > 2**20
    ]
    assert kept == []
    return str(said)


@pytest.mark.needs(*NEEDS_POSTGRES, "fs:ext4", "mkfs.ext4", "losetup", "fio")
def test_a_refused_dump_leaves_no_image(dbbench: Any, nothing_left: None) -> None:
    """The dump is loaded before the image is written, in the first run and in a resumed one."""
    for _ in range(2):
        said = refuse_dump(dbbench)
        assert "writing the disk image" not in said and "is kept" not in said


@pytest.mark.needs(*NEEDS_POSTGRES, "fs:ext4", "mkfs.ext4", "losetup", "fio")
def test_a_refused_dump_leaves_a_disk_as_it_is(dbbench: Any, tmp_path: Path) -> None:
    """Not even fio writes to it, although --wipe allows it; while the dump is loaded, no other
    program can make a filesystem on it.
    """

    refused: list[OSError] = []

    def make_filesystem(_pid: int) -> None:
        try:
            os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))  # as mkfs does
        except OSError as error:
            refused.append(error)

    disk = new_disk(tmp_path / "disk", 512 * 2**20)
    try:
        mkfs(disk)
        before = disk.digest()
        device = {"kind": "block", "path": str(disk.path)}
        said = refuse_dump(
            dbbench,
            "--wipe",
            naming.identity_of(disk.path.name),
            meanwhile=make_filesystem,
            device=device,
        )
        assert disk.digest() == before
        assert [error.errno for error in refused] == [errno.EBUSY]
        assert "has written to" not in said
    finally:
        detach(disk.path)
