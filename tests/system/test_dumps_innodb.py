"""Dumps of MariaDB and MySQL of every kind: loaded whole, refused if they are cut or contain commands."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.errors import DatasetBuildFailed, DbbenchError, SourceRefused, SourceUnusable
from dbbench.model import SourceChangeKind
from tests.support.dumps import Loader, cuts, loading, with_line, with_link
from tests.support.servers import query
from tests.system.conftest import HANGS_S

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


@pytest.mark.needs(*NEEDS_MARIADB)
def test_a_trigger_that_changes_settings_of_the_server_is_refused(
    innodb: tuple[Loader, Path, Any],
) -> None:
    """Nothing in the line says when it runs."""
    loader, dumps, _sums = innodb
    trigger = "CREATE TRIGGER a BEFORE INSERT ON film FOR EACH ROW SET GLOBAL max_error_count = 77;"
    path, _line = with_line(dumps / "film.sql", 0, trigger, r".*`film` DISABLE KEYS")
    with pytest.raises(SourceUnusable, match=r"change settings of the server.*: max_error_count"):
        loader.load(path)


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
