"""Behaviour of MariaDB and MySQL that other engines do not have."""

import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mysql.connector
import pytest

from dbbench.engines import mariadb
from dbbench.engines import mysql as mysql_engine
from dbbench.engines.port import Place
from dbbench.engines.sql import cursor_of
from dbbench.errors import DataCorrupt, EngineDied, EngineStartFailed, ProgramMissing
from dbbench.model import ClientSpec
from dbbench.remote import Network
from dbbench.remote.network import CA, CERT, KEY, ROLE, certify
from tests.conftest import engine_bin
from tests.support.servers import query
from tests.system.engines.conftest import ROWS, Case, seen

PAGE = 16384
SCAN = "SELECT sum(length(v)) FROM t IGNORE INDEX (v)"


@pytest.mark.needs("engine:mariadb")
def test_mariadb_is_never_taken_for_mysql(tmp_path: Path) -> None:
    """Its mysqld is a MariaDB under either name; what answers --version decides."""
    folder = engine_bin("mariadb")
    assert folder is not None
    for spelling in ("mariadbd", "mysqld"):
        (tmp_path / spelling).symlink_to(folder / "mariadbd")
        assert (
            mariadb.ENGINE.installed_version(tmp_path / spelling)
            == mariadb.ENGINE.installed_version()
        )
        assert mysql_engine.ENGINE.installed_version(tmp_path / spelling) is None
    assert mysql_engine.ENGINE.installed_version(tmp_path) is None
    with pytest.raises(ProgramMissing, match="no mysql server in"):
        mysql_engine.ENGINE.create(
            tmp_path / "data", Place(tmp_path / "s", tmp_path / "logs", tmp_path)
        )


@pytest.mark.needs("engine:mysql")
def test_mysql_is_never_taken_for_mariadb() -> None:
    """The folder of a MySQL holds no MariaDB."""
    assert mariadb.ENGINE.installed_version(engine_bin("mysql")) is None
    assert mysql_engine.ENGINE.installed_version(engine_bin("mysql")) is not None


@pytest.mark.needs("engine:mariadb")
def test_making_a_data_directory_leaves_the_system_alone(case_of: Callable[[str], Case]) -> None:
    """mariadb-install-db changes the owner of files below /usr/lib if root runs it; dbbench does
    not.
    """
    case = case_of("mariadb")
    folders = "/usr/lib/mysql", "/var/lib/mysql", "/etc/mysql", "/run/mysqld"
    before = seen(folders)
    case.engine.create(case.datadir.with_name("fresh"), case.place)
    case.check()
    assert seen(folders) == before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_a_start_after_a_stop_is_cold(case_of: Callable[[str], Case], name: str) -> None:
    """The buffer pool is as large as before and holds nothing of the dataset."""
    case = case_of(name)
    with case.serving(innodb_buffer_pool_size=384 * 2**20) as server:
        query(server, SCAN)
    with case.serving(innodb_buffer_pool_size=384 * 2**20) as server:
        assert server.effective_settings()["innodb_buffer_pool_size"] == str(384 * 2**20)
        before = server.counters()
        query(server, SCAN)
        read = server.counters()["innodb_pages_read"] - before["innodb_pages_read"]
    assert read * 16384 > ROWS * 100  # the rows alone are that long
    assert list(case.datadir.glob("ib_buffer_pool*")) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_pages_of_the_system_tablespace_are_read(case_of: Callable[[str], Case], name: str) -> None:
    """Before and after the doublewrite buffer, whose pages are copies: a torn one there harms
    nothing.
    """
    case = case_of(name)
    with case.serving(innodb_file_per_table=False) as server:
        query(
            server,
            "CREATE TABLE s (id int PRIMARY KEY, v varchar(200))",
            "INSERT INTO s SELECT * FROM t",
        )
        server.settle()
    content = (case.datadir / "ibdata1").read_bytes()
    leaves = [
        at // 16384
        for at in range(0, len(content), 16384)
        if content[at + 24 : at + 26] == b"\x45\xbf"
    ]
    assert leaves[-1] >= 192
    # 5: state of the transactions
    for page, harmful in ((5, True), (100, False), (leaves[-1], True)):
        changed = bytearray(content)
        changed[16384 * page + 8000] ^= 0xFF
        (case.datadir / "ibdata1").write_bytes(changed)
        with pytest.raises(DataCorrupt, match="ibdata1") if harmful else contextlib.nullcontext():
            case.engine.check_pages(case.datadir, case.settings(), case.place)


@pytest.mark.needs("engine:mysql")
def test_mysql_does_not_use_each_intact_copy_of_a_torn_page(case_of: Callable[[str], Case]) -> None:
    """`Profile.restores_pages`: it reads the page with the state of the transactions before it
    restores pages, and does not start. With the doublewrite file's copy of this page written
    back, it starts, and no row is missing.
    """
    case = case_of("mysql")
    tablespace = case.datadir / "ibdata1"
    place = slice(5 * PAGE, 6 * PAGE)

    def copied() -> bool:
        copies = b"".join(path.read_bytes() for path in sorted(case.datadir.glob("#ib_*.dblwr")))
        page = tablespace.read_bytes()[place]
        return page in (copies[at : at + PAGE] for at in range(0, len(copies), PAGE))

    rows = 0
    until = time.monotonic() + 120
    while not copied():  # another page's copy may have replaced it until the server was dead
        assert time.monotonic() < until, "the doublewrite files never had a copy of the page"
        with pytest.raises(EngineDied), case.serving(**case.engine.PROFILE.lab) as server:
            with cursor_of(server) as cursor:
                while rows % 1000 or not copied():
                    rows += 1
                    cursor.execute(f"INSERT INTO t VALUES ({ROWS + rows}, 'new')")
                    cursor.execute("COMMIT")
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
    whole = tablespace.read_bytes()
    tablespace.write_bytes(whole[: place.stop - PAGE // 2] + bytes(PAGE // 2) + whole[place.stop :])
    with pytest.raises(EngineStartFailed, match="page number=5"), case.serving():
        pass
    tablespace.write_bytes(whole)
    with case.serving() as server:
        assert query(server, "SELECT count(*) FROM t") == [(ROWS + rows,)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_the_redo_log_follows_the_window(case_of: Callable[[str], Case], name: str) -> None:
    """A copy with a small redo log gets the window's at its next start, and the big one can go
    again.
    """
    case = case_of(name)
    window = case.engine.window_settings(10, 20)
    for asked in (window, {}):
        with case.serving(**asked) as server:
            effective = server.effective_settings()
        assert {key: effective[key] for key in asked} == {
            key: str(value) for key, value in asked.items()
        }
    assert "CHECK TABLE" in case.check()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_flushing_leaves_settings_as_they_were(case_of: Callable[[str], Case], name: str) -> None:
    """Settings that a checkpoint changes temporarily are restored."""
    with case_of(name).serving() as server:
        before = server.effective_settings()
        server.checkpoint()
        after = server.effective_settings()
    assert {
        key: (before[key], after[key])
        for key in before
        if before[key] != after[key] and "innodb" in key
    } == {}


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(f"engine:{name}"))
        for name in ("mariadb", "mysql")
    ],
)
def test_a_server_that_listens_lets_the_client_in_alone(
    name: str,
    case_of: Callable[[str], Case],
    short_folder: Callable[[], Path],
) -> None:
    """Our account needs TLS, its certificate and its password. An account of the user's own data,
    which may come from anywhere, is locked.
    """
    case = case_of(name)
    folder = short_folder()
    with case.serving() as server:
        query(server, "CREATE USER 'o''neill'@'%' IDENTIFIED BY 'own-word-of-0neill'")
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        spec = ClientSpec("db2", "127.0.0.1", "/no", probe.getsockname()[1])
    pair, files = certify(folder, spec)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    network = Network(
        "127.0.0.1", spec.port, "127.0.0.1", "secret-word", pair.cert.with_name("ca.pem"), *pair
    )
    good: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": spec.port,
        "user": ROLE,
        "password": "secret-word",
        "use_pure": True,
        "ssl_ca": str(folder / CA),
        "ssl_cert": str(folder / CERT),
        "ssl_key": str(folder / KEY),
        "ssl_verify_cert": True,
        "charset": "utf8mb4",
        "collation": "utf8mb4_general_ci",
    }
    with case.engine.serving(
        case.datadir,
        case.settings(),
        dataclasses.replace(case.place, network=network),
    ):
        with contextlib.closing(mysql.connector.connect(**good, database="dbbench")) as session:
            cursor = session.cursor()
            cursor.execute("SELECT count(*) FROM t")
            assert cursor.fetchall() == [(ROWS,)]
        for wrong in (
            {"user": "o'neill", "password": "own-word-of-0neill"},
            {"password": "another-word"},
            {"ssl_cert": "", "ssl_key": ""},
            {"ssl_disabled": True},
        ):
            with pytest.raises(mysql.connector.Error):
                mysql.connector.connect(**{**good, **wrong})
    with case.serving() as server:
        locked = query(server, "SHOW CREATE USER 'o''neill'@'%'")
        assert "ACCOUNT LOCK" in str(locked)
