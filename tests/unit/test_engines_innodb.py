"""InnoDB's counters, settings and files, from recorded output of MariaDB and MySQL."""

import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import process
from dbbench.engines import innodb, mariadb, mysql, profile_of, serving
from dbbench.engines.innodb_server import InnodbServer, lacking, to_counters
from dbbench.engines.mysqld import Mysqld
from dbbench.engines.port import Place
from dbbench.engines.serving import grown_between
from dbbench.errors import EngineDied, FilesystemFull
from dbbench.model import merge_settings
from tests.support.files import write_file

RECORDED = Path(__file__).parents[1] / "fixtures" / "engines"
SERVERS = ["mariadb-10.11", "mariadb-11.8", "mysql-8.0", "mysql-8.4", "mysql-9.7"]
MIB = 2**20


def status(server: str, when: str) -> dict[str, str]:
    """Rows of SHOW GLOBAL STATUS as `tests.record_engines` recorded it around a small load."""
    return dict(json.loads((RECORDED / f"{server}.status-{when}.json").read_text()))


@pytest.fixture
def server(tmp_path: Path) -> InnodbServer:
    """One that is not running: what it computes from readings needs no process."""
    program = Mysqld(tmp_path / "mysqld", "9.7.4")
    return InnodbServer(mysql.PROFILE, Place(tmp_path, tmp_path), program, None)


@pytest.mark.parametrize("name", SERVERS)
def test_both_families_give_the_same_counters(name: str) -> None:
    """What compare and page read has one name and a unit, whoever counted it."""
    found = to_counters(status(name, "after").items())
    wanted = {
        "com_commit",
        "innodb_dirty_bytes",
        "innodb_log_written_bytes",
        "innodb_redo_written_bytes",
        "innodb_redo_checkpoint_bytes",
        "innodb_pages_written",
        "innodb_dblwr_pages_written",
        "innodb_buffer_pool_reads",
        "innodb_buffer_pool_read_requests",
    }
    assert wanted - set(found) == set()
    assert found["innodb_log_written_bytes"] == float(
        status(name, "after")["Innodb_os_log_written"]
    )


@pytest.mark.parametrize("name", SERVERS)
def test_no_counter_of_a_release_is_missed_without_a_word(name: str) -> None:
    """Each recorded release has all status variables that it should have; one that is gone or no
    number is named.
    """
    engine = name.partition("-")[0]
    rows = status(name, "after")
    assert lacking(profile_of(engine), rows.items()) == ()
    fewer = {**rows, "Innodb_pages_written": "disabled"}
    del fewer["Innodb_data_fsyncs"]
    expected = (
        "the status variable innodb_data_fsyncs",
        "the status variable innodb_pages_written",
    )
    assert lacking(profile_of(engine), fewer.items()) == expected


@pytest.mark.parametrize("name", SERVERS)
def test_written_bytes_are_redo_pages_and_doublewrite(name: str, server: InnodbServer) -> None:
    """By page counts, because innodb_data_written means different things in different versions. The
    hit ratio is 1 - reads ÷ requests; no request is no ratio. Without the pages neither is
    known: the log alone would be too little.
    """
    before = status(name, "before")
    after = status(name, "after")
    grown = {key: int(after[key]) - int(before[key]) for key in before if before[key].isdigit()}
    pages = grown["Innodb_pages_written"] + grown["Innodb_dblwr_pages_written"]
    expected = grown["Innodb_os_log_written"] + pages * 16384
    window = grown_between(to_counters(before.items()), to_counters(after.items()))
    assert server.written_bytes(window) == expected > 0
    assert (
        0.99 < (server.hit_ratio(window) or 0) <= 1
        and server.hit_ratio(dict.fromkeys(window, 0.0)) is None
    )
    del window["innodb_dblwr_pages_written"], window["innodb_buffer_pool_reads"]
    assert server.written_bytes(window) is server.hit_ratio(window) is None


@pytest.mark.parametrize("name", SERVERS)
def test_rows_are_those_of_the_load(name: str, server: InnodbServer) -> None:
    """Exactly those of the recording, also where the server's temporary tables are counted with
    them.
    """
    before, after = (to_counters(status(name, when).items()) for when in ("before", "after"))
    counted = server.work(grown_between(before, after), True)
    assert (counted.rows, counted.updated, counted.deleted) == (19_800, 200, 0)


def test_a_cycle_ends_when_all_that_was_dirty_at_its_begin_is_on_disk(server: InnodbServer) -> None:
    """Only the checkpoint's passing of the redo's former end counts, and only where redo was
    written.
    """
    readings = [(100, 50), (200, 90), (300, 100), (400, 250), (500, 300), (500, 500), (500, 500)]
    assert [server._cycle(*reading) for reading in readings] == [0, 0, 1, 1, 2, 3, 3]


def test_a_checkpoint_that_ended_is_reported_with_its_way(server: InnodbServer) -> None:
    """The note says how far the checkpoint moved; without an end it is a burst."""
    grown = {
        "checkpoints_ended": 1.0,
        "innodb_redo_checkpoint_bytes": 6e6,
        "innodb_redo_written_bytes": 4e6,
    }
    told = "the checkpoint moved by 6 MB while 4 MB of redo were written"
    assert (server.checkpoints(grown).ended, server.checkpoints(grown).note) == (1, told)
    grown["checkpoints_ended"] = 0.0
    assert server.checkpoints(grown).note.startswith("burst: no checkpoint in the window")
    assert server.checkpoints({}).ended is None


def test_only_defaults_may_be_unknown_to_a_version() -> None:
    """Only defaults have the prefix `loose_`; an unknown setting of the user prevents the start.
    log_bin is an option without a value when it is off.
    """
    defaults = {"innodb_flush_neighbors": 0, "log_bin": False}
    asked = merge_settings(("default", defaults), ("plan", {"sort_buffer_size": "1M"}))
    lines = innodb.configuration(asked, {"datadir": "/d"}).splitlines()
    wanted = {
        'loose_innodb_flush_neighbors = "0"',
        'sort_buffer_size = "1M"',
        "skip_log_bin",
        "skip_networking",
    }
    assert wanted <= {*lines}
    assert "log_bin = binlog" in innodb.configuration(
        merge_settings(("plan", {"log_bin": True})), {}
    )


@pytest.mark.parametrize(
    ("window", "expected"), [((2, 5), 512 * MIB), ((10, 20), 768 * MIB), ((60, 120), 4096 * MIB)]
)
def test_redo_is_out_of_the_windows_reach(window: tuple[float, float], expected: int) -> None:
    """24 MiB a second in whole steps, between what a short window needs and what a small disk can
    give.
    """
    assert innodb.redo_bytes(*window) == expected


@pytest.mark.parametrize("defaults", [mariadb.ENGINE.defaults, mysql.ENGINE.defaults])
def test_the_buffer_pool_follows_the_memory(
    defaults: Callable[[int | None], dict[str, object]],
) -> None:
    """60 % of the plan's memory in whole chunks; without one a fixed size, the same on every
    machine. A cold start is cold: neither family saves the pool at its stop or loads it at its
    start.
    """
    for memory, pool in ((2048 * MIB, 1152 * MIB), (None, 256 * MIB), (128 * MIB, 76 * MIB)):
        found = defaults(memory)
        assert found["innodb_buffer_pool_size"] == pool  # below its chunk MySQL takes any
        assert (
            not found["innodb_buffer_pool_dump_at_shutdown"]
            and not found["innodb_buffer_pool_load_at_startup"]
        )


@pytest.mark.parametrize(
    ("memory", "buffer"), [(None, 64), (8192 * MIB, 64), (256 * MIB, 8), (32 * MIB, 2)]
)
def test_the_logs_buffer_leaves_room_for_the_pool(memory: int | None, buffer: int) -> None:
    """MariaDB has two of them: with 64 MiB each the kernel killed it in a memory of 256 MiB."""
    assert innodb.defaults(memory)["innodb_log_buffer_size"] == buffer * MIB


def test_data_files_are_tables_of_users(tmp_path: Path) -> None:
    """Tables and the system tablespace; no redo, undo, doublewrite or dictionary."""
    wanted = ["dbbench/t1.ibd", "dbbench/t#p#p0.ibd", "other/t.MYD", "ibdata1"]
    other = [
        "mysql/user.ibd",
        "mysql.ibd",
        "sys/sys_config.ibd",
        "undo_001",
        "#ib_16384_0.dblwr",
        "#innodb_temp/temp_1.ibt",
        "#innodb_redo/#ib_redo1",
        "ib_logfile0",
        "dbbench/db.opt",
    ]
    for name in wanted + other:
        write_file(tmp_path / name)
    assert sorted(
        str(path.relative_to(tmp_path)) for path in mariadb.ENGINE.data_files(tmp_path)
    ) == sorted(wanted)


def test_another_systems_server_runs_through_its_own_loader(tmp_path: Path) -> None:
    """The configuration file stays the first option of the server, and its files are found in its
    own root.
    """
    root = tmp_path / "root"
    program = Mysqld(root / "usr/sbin/mysqld", "9.7.4", ("ld.so", "--library-path", "libs"), root)
    assert program.argv(Path("/c/my.cnf"), "--initialize-insecure") == (
        "ld.so",
        "--library-path",
        "libs",
        str(program.path),
        "--defaults-file=/c/my.cnf",
        f"--basedir={root}/usr",
        f"--lc-messages-dir={root}/usr/share/mysql",
        f"--plugin-dir={root}/usr/lib/mysql/plugin",
        "--initialize-insecure",
    )


def test_a_server_that_ended_is_reported_with_each_error_once(tmp_path: Path) -> None:
    """As MySQL says it: it reads a damaged page a hundred times, and then prints its stack."""
    reads = [
        f"2026-11-27T13:40:58.{n:06}Z 11 [ERROR] [MY-011906] [InnoDB] page corruption: 214"
        for n in range(100)
    ]
    log = write_file(
        tmp_path / "server.log",
        "\n".join(("1 [Note] ready", *reads, "2 [ERROR] Aborting", "#1 0x7f <unknown>")),
    )
    assert serving.tail(log) == f"  {reads[-1]}\n  2 [ERROR] Aborting"
    other = write_file(tmp_path / "other.log", "cannot read a [2]\ncannot read b [2]\n")
    assert serving.tail(other) == "  cannot read a [2]\n  cannot read b [2]"


def test_a_server_that_waits_for_space_is_reported(tmp_path: Path) -> None:
    """As MariaDB 10.11 said it on a full nilfs2; what it printed at an earlier start does not
    count.
    """
    log = write_file(
        tmp_path / "server.log",
        "2026-11-22  2:11:49 0 [ERROR] Aborting\n"
        "2026-11-22  2:11:49 0 [Warning] mariadbd: Disk is full writing "
        "'/run/dbbench/mnt/data/aria_log.00000001' "
        '(Errcode: 28 "No space left on device"). Waiting for someone to free space... (Expect up '
        "to 60 secs delay for server to continue after freeing disk space)\n",
    )
    account = process.user("root", "nobody")
    launch = serving.Launch("mariadb", (), tmp_path, log, account, signal.SIGTERM, signal.SIGKILL)
    with pytest.raises(FilesystemFull, match=r"filesystem of .*:\n  2026.*aria_log") as told:
        serving._has_room(launch)
    assert "Aborting" not in str(told.value)
    serving._has_room(dataclasses.replace(launch, offset=log.stat().st_size))


@pytest.mark.starts_processes
def test_a_server_that_does_not_stop_names_the_deadline_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be too slow for it; the time is that which it had."""
    monkeypatch.setattr(serving, "STOP_S", 0.1)
    account = process.user("root", "nobody")
    log = tmp_path / "server.log"
    # It is asked with a signal that it ignores.
    ignored = signal.SIGCHLD
    launch = serving.Launch("mariadb", (), tmp_path, log, account, ignored, signal.SIGKILL)
    with (
        process.in_phase("stop", None),
        pytest.raises(EngineDied, match=r"mariadb was asked to stop .* still running") as told,
        process.running(["sleep", "99"], stop_with=signal.SIGKILL) as program,
    ):
        serving._stop(launch, program)
    assert "[deadlines] of the plan, for example stop =" in (told.value.remedy or "")


@pytest.mark.parametrize(
    ("loaded", "program", "said"),
    [
        ("/usr/sbin/mysqld (enforce)\n", "/usr/sbin/mysqld", True),
        ("lsb_release (enforce)\nmysqld (enforce)\n", "/usr/sbin/mysqld", True),
        ("/usr/sbin/mysqld (complain)\n", "/usr/sbin/mysqld", False),
        ("mariadbd (unconfined)\n", "/usr/sbin/mariadbd", False),
        ("/usr/sbin/mysqld (enforce)\n", "/opt/mysql/bin/mysqld", False),
        ("", "/usr/sbin/mysqld", False),
    ],
)
def test_the_line_that_helps_with_a_profile_of_apparmor(
    loaded: str,
    program: str,
    said: bool,
    tmp_path: Path,
) -> None:
    """Ubuntu's profile of mysqld denies every data directory but that of its package."""
    profiles = tmp_path / "profiles"
    assert innodb.apparmor_remedy(Path(program), profiles) is None
    profiles.write_text(loaded)
    remedy = innodb.apparmor_remedy(Path(program), profiles)
    helps = "apparmor_parser --remove /etc/apparmor.d/usr.sbin.mysqld"
    assert remedy is None if not said else remedy is not None and remedy.endswith(helps)
