"""The interface of an engine, tested on real servers of each."""

import contextlib
import os
import resource
import signal
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.engines.port import ChecksData, Server
from dbbench.engines.serving import grown_between
from dbbench.engines.settings import EVERY_VERSION, numbers_of
from dbbench.errors import (
    CommandFailed,
    DataCorrupt,
    EngineDied,
    EngineStartFailed,
    SettingRefused,
)
from dbbench.model import Durability, merge_settings
from tests.support.servers import query
from tests.system.engines.conftest import ROWS, Case

MIB = 2**20
MORE = f"INSERT INTO t SELECT id + {ROWS}, v FROM t WHERE id <= {ROWS}"


def test_what_was_asked_for_runs(case: Case) -> None:
    """Defaults and the plan's settings are in force, and durable; the version is the program's."""
    own = (
        {"shared_buffers": "64MB"}
        if case.name == "postgres"
        else {"innodb_buffer_pool_size": 384 * MIB}
    )
    with case.serving(**own) as server:
        effective = server.effective_settings()
        assert server.version == case.engine.installed_version(case.place.bin)
    assert [effective[name] for name in own] == [
        "64MB" if case.name == "postgres" else str(384 * MIB)
    ]
    assert case.engine.durability(effective, True) == ()
    assert case.engine.durability(effective, False) == ()


def test_it_is_reached_through_its_socket_alone(case: Case) -> None:
    """No TCP port, a socket folder that others cannot enter, an unprivileged account."""
    with case.serving() as server:
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        seen = []
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # a session of dbbench's own that ends
                seen.append((process.net_connections("inet"), process.uids().effective))
        assert seen.count(([], case.engine.account().uid)) == len(seen) > 0
        folder = server.socket_dir.stat()
        assert (stat.S_IMODE(folder.st_mode), folder.st_uid) == (0o700, case.engine.account().uid)
        assert server.socket.is_socket()
    assert [path.name for path in case.place.logs.glob("*.c*nf")] != []


def test_it_counts_what_a_load_writes(case: Case) -> None:
    """Written bytes and hit ratio rise with the load; a checkpoint leaves nothing dirty and is
    counted.
    """
    with case.serving() as server:
        server.settle()
        before = _at_rest(server)
        query(server, MORE)
        # A session of PostgreSQL hands its counts in when it has ended.
        loaded = _when(
            server, lambda now: (server.written_bytes(grown_between(before, now)) or 0) > ROWS * 100
        )
        assert server.dirty_bytes() or any(_dirtied(server) for _ in range(5))
        assert any(_cleaned(server) for _ in range(5))
        after = _when(
            server, lambda now: bool(server.checkpoints(grown_between(loaded, now)).ended)
        )
        assert (server.written_bytes(grown_between(before, loaded)) or 0) > ROWS * 100
        assert 0.5 < (server.hit_ratio(grown_between(before, loaded)) or 0) <= 1
        ended = [
            server.checkpoints(grown_between(*span)).ended
            for span in ((before, loaded), (loaded, after))
        ]
        if case.name == "postgres":
            # InnoDB writes pages out by itself too, the more often the longer the load takes
            assert ended[0] == 0
        assert ended[1]


def _dirtied(server: Server) -> bool:
    """Change rows; return whether something is dirty. InnoDB may have written the pages of the load
    already.
    """
    query(server, "UPDATE t SET v = concat(v, 'x') WHERE id <= 100")
    return bool(server.dirty_bytes())


def _cleaned(server: Server) -> bool:
    """Write a checkpoint; return whether nothing is dirty. InnoDB's own threads may write to a page
    at any moment.
    """
    server.checkpoint()
    return server.dirty_bytes() == 0


def _at_rest(server: Server) -> dict[str, float]:
    """A reading behind the last checkpoint of what was before: MySQL writes its own down once a
    second.
    """
    now = server.counters()
    for _ in range(10 if server.engine == "mysql" else 0):
        before = now
        time.sleep(1.5)
        now = server.counters()
        if server.checkpoints(grown_between(before, now)).ended == 0:
            break
    return now


def _when(server: Server, seen: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The first reading for which `seen` holds, or the last after 60 s."""
    until = time.monotonic() + 60
    while not seen(now := server.counters()) and time.monotonic() < until:
        time.sleep(0.05)
    return now


def _foreign(server: Server) -> Any:
    """A session of another client."""
    if server.engine == "postgres":
        import psycopg2

        name = {"host": str(server.socket_dir), "application_name": "theirs"}
        return psycopg2.connect(user=server.user, dbname=server.database, **name)
    import mysql.connector

    given = {"user": server.user, "password": server.env["MYSQL_PWD"]}
    return mysql.connector.connect(
        unix_socket=str(server.socket), use_pure=True, ssl_disabled=True, **given
    )


def test_sessions_of_others_are_counted_and_dbbenchs_own_are_not(case: Case) -> None:
    """One that is there is listed; one that has ended is still counted."""
    with case.serving() as server:
        query(server, "SELECT 1")
        begin = server.sessions()
        assert (begin.present, begin.opened) == ({}, 0)
        with contextlib.closing(_foreign(server)):
            query(server, "SELECT 1")
            (who,) = server.sessions().present.values()
            assert ("theirs" if case.name == "postgres" else server.user) in who
        until = time.monotonic() + 60
        # a session is counted when it has ended
        while (end := server.sessions()).present or end.opened != 1:
            assert time.monotonic() < until, end
            time.sleep(0.05)
        assert end.configured == begin.configured


def test_a_session_of_dbbench_that_begins_is_not_that_of_others(case: Case) -> None:
    """Two threads of a trial use the server: one opens sessions while the other lists them."""
    ended = threading.Event()

    def connect(server: Server) -> None:
        while not ended.is_set():
            server.connect().close()

    with case.serving() as server, ThreadPoolExecutor() as pool:
        server.sessions()
        connecting = pool.submit(connect, server)
        try:
            listed = [server.sessions().present for _ in range(100)]
        finally:
            ended.set()
        connecting.result()
    assert not any(listed)


def test_what_is_committed_survives_a_kill(case: Case) -> None:
    """The death is an error with the log's lines; nothing of the server stays; the next start
    recovers.
    """
    with pytest.raises(EngineDied, match="SIGKILL") as caught, case.serving() as server:
        processes = [
            psutil.Process(server.pid),
            *psutil.Process(server.pid).children(recursive=True),
        ]
        query(server, MORE)
        # what is left of the server may write more after its death
        said = case.log.read_text().splitlines()[-1]
        os.kill(server.pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while server.alive():  # not psutil's wait: it would take the exit status away
            assert time.monotonic() < until
    assert said in str(caught.value)
    assert psutil.wait_procs(processes, timeout=60)[1] == []
    assert case.check()
    with case.serving() as server:
        assert query(server, "SELECT count(*) FROM t") == [(2 * ROWS,)]


def test_a_block_that_raises_takes_the_server_down(case: Case) -> None:
    """The error passes as it was, and the server is gone."""
    with pytest.raises(ZeroDivisionError), case.serving() as server:
        pid = server.pid
        raise ZeroDivisionError
    assert not psutil.pid_exists(pid)


def test_a_setting_that_no_server_knows_stops_the_start(case: Case) -> None:
    """The error has the log's own line about it."""
    with pytest.raises(EngineStartFailed, match="no_such_setting"), case.serving(no_such_setting=1):
        pass


def test_a_server_is_asked_about_settings_without_a_start(case: Case) -> None:
    """It accepts its defaults, and names a setting that it does not have; nothing is written to the
    data.
    """
    engine = case.engine
    before = sorted(case.datadir.rglob("*"))
    version = numbers_of(engine.installed_version(case.place.bin) or "")
    known = {
        name: value
        for name, value in engine.defaults(None).items()
        if version in engine.PROFILE.versions.get(name, EVERY_VERSION)
    }
    assert engine.refusal(merge_settings(("plan", known)), case.place.bin) == ""
    assert "no_such_setting" in engine.refusal(
        merge_settings(("plan", {**known, "no_such_setting": 1})), case.place.bin
    )
    assert sorted(case.datadir.rglob("*")) == before


def test_a_low_soft_limit_of_open_files_is_raised(case: Case) -> None:
    """In a container, from cron or for a plain user it is 1024, with which MariaDB and MySQL reduce
    their caches.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with case.serving() as server:
            assert server.pid is not None
            limits = Path(f"/proc/{server.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    now = next(line.split() for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(now[3]) >= min(hard, 5000)


def test_a_value_that_the_server_bends_is_refused(case: Case) -> None:
    """A server that runs with another value than was asked for is not measured."""
    if case.name == "postgres":  # ALTER SYSTEM of a restored cluster wins over every file
        (case.datadir / "postgresql.auto.conf").write_text("shared_buffers = '128kB'\n")
        asked = {"shared_buffers": "64MB"}
    else:
        asked = {"innodb_buffer_pool_size": 200_000_000}  # rounded to whole chunks
    with (
        pytest.raises(SettingRefused, match=f"{next(iter(asked))} = .*the server runs with"),
        case.serving(**asked),
    ):
        pass


def test_settings_that_cost_durability_are_flagged(case: Case) -> None:
    """The flags come from what the server says that it runs with."""
    own = (
        {"synchronous_commit": "off", "full_page_writes": False}
        if case.name == "postgres"
        else {"innodb_flush_log_at_trx_commit": 2, "innodb_doublewrite": False}
    )
    with case.serving(**own) as server:
        flags = case.engine.durability(server.effective_settings(), True)
    assert flags == (Durability.ASYNC_COMMIT, Durability.TORN_PAGES)


def test_sound_data_passes_the_check(case: Case) -> None:
    """And the check says what it looked at."""
    assert ("checksums of" if case.name == "postgres" else "CHECK TABLE of 1 table") in case.check()


@pytest.mark.parametrize("what", ["table", "index"])
def test_a_flipped_byte_is_found(case: Case, what: str) -> None:
    """One byte in the middle of a table's or an index's page is DataCorrupt, never a failed start;
    its checksum alone finds it too.
    """
    assert isinstance(case.engine, ChecksData)
    with case.serving() as server:
        path, at = _somewhere_in(case, what, server)
    assert path in case.engine.data_files(case.datadir)
    assert case.engine.check_pages(case.datadir, case.settings(), case.place).startswith(
        "checksums of"
    )
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))
    with pytest.raises(DataCorrupt, match=r"innochecksum|pg_checksums"):
        case.engine.check_pages(case.datadir, case.settings(), case.place)
    with pytest.raises(DataCorrupt):
        case.check()


@pytest.mark.parametrize("case", ["postgres"], indirect=True)
def test_a_check_without_a_connection_says_nothing_about_the_data(case: Case) -> None:
    """pg_amcheck needs two sessions. A server that admits only one refuses the second: the check has
    failed, and the data are not called corrupt.
    """
    one = {"max_connections": "1", "superuser_reserved_connections": "0"}
    settings = case.settings(**one)
    with pytest.raises(CommandFailed, match="too many clients"):
        case.engine.check(case.datadir, settings, case.place)
    assert "pg_amcheck" in case.check()


def _somewhere_in(case: Case, what: str, server: Server) -> tuple[Path, int]:
    """A file and a place in it that lies within rows."""
    if case.name == "postgres":
        relation = "t" if what == "table" else "t_v_idx"
        [(path,)] = query(server, f"SELECT pg_relation_filepath('{relation}')")
        return case.datadir / path, 8192 * 3 + 8000
    path = case.datadir / "dbbench/t.ibd"
    pages = path.read_bytes()
    kind = b"\x45\xbf"  # FIL_PAGE_INDEX, at byte 24 of a page
    ids: dict[bytes, list[int]] = {}
    for page in range(len(pages) // 16384):
        head = pages[page * 16384 : page * 16384 + 128]
        if head[24:26] == kind and head[64:66] == b"\x00\x00":  # PAGE_LEVEL 0: a leaf
            ids.setdefault(head[66:74], []).append(page)  # PAGE_INDEX_ID
    clustered, secondary = (ids[key] for key in sorted(ids))
    leaf = (clustered if what == "table" else secondary)[3]
    return path, leaf * 16384 + 4000


def test_the_first_start_makes_role_and_database(case: Case) -> None:
    """Everybody who can enter the socket's folder is let in as dbbench; no password is involved."""
    with case.serving() as server:
        assert (server.user, server.database, server.engine) == ("dbbench", "dbbench", case.name)
        name = "current_database()" if case.name == "postgres" else "database()"
        assert query(server, f"SELECT {name}, count(*) FROM t") == [("dbbench", ROWS)]
