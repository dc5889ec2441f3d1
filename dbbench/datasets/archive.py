"""Datasets of kind `archive`: a base copy of a primary's data directory (`data/`), the log that the
primary wrote after it while pgbench or sysbench ran (`archive/`), and the checksum of every
table at its end.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from dbbench import process
from dbbench.datasets.generated import STUCK_RATE, STUCK_S
from dbbench.datasets.manifest import DAMAGED, Golden, condemn, crc_of
from dbbench.drivers.apply import ARCHIVE, INBOX, Archive, LogFile, lsn
from dbbench.drivers.apply import load_archive as load
from dbbench.drivers.apply import save_archive as save
from dbbench.drivers.protocol import client_account
from dbbench.engines import checksums_of, sql_of
from dbbench.engines.port import Engine, Place, Server
from dbbench.engines.sql import cursor_of
from dbbench.errors import DatasetBuildFailed, RestoreFailed
from dbbench.machine import namespaces
from dbbench.model import Dataset, Settings

SESSIONS: Final = 4
_SEGMENT: Final = re.compile(r"[0-9A-F]{24}")
_POLL_S: Final = 0.05
_STANDBY: Final = """
# A standby of dbbench: what it replays is handed over in this folder.
restore_command = 'cp "{inbox}/%f" "%p"'
recovery_target_timeline = 'latest'
wal_retrieve_retry_interval = '100ms'
hot_standby = on
"""


def record(
    folder: Path,
    engine: Engine,
    settings: Settings,
    dataset: Dataset,
    place: Place,
) -> None:
    """Make `archive/` in `folder` from its stopped `data/`, which stays a base copy. Raises
    DatasetBuildFailed.
    """
    data = folder / "data"
    primary = folder / "primary"
    archive = folder / ARCHIVE
    archive.mkdir(0o755)
    # a start stores it in PostgreSQL's control file; a standby refuses `minimal` there
    if "wal_level" in settings:
        with engine.serving(data, settings, place):
            pass
    process.run(["cp", "-a", data, primary], timeout_s=6 * 3600.0)
    try:
        with engine.serving(primary, settings, place) as server:
            recorded = (_segments if engine.PROFILE.standby else _binary_logs)(
                server,
                dataset,
                primary,
                archive,
            )
        save(archive, recorded)
    finally:
        shutil.rmtree(primary, ignore_errors=True)


def hand_over(
    golden: Golden,
    datadir: Path,
    engine: Engine,
    scratch: Path,
) -> None:
    """Make the archive readable for the trial; PostgreSQL's restored data directory becomes a
    standby with an empty inbox. Raises RestoreFailed if a file of the archive has changed.
    """
    # A damaged archive would look like a slow or failed standby.
    source = golden.path / ARCHIVE
    damages = []
    try:
        for log in load(source).logs:
            if crc_of(source / log.name) != (log.size, log.crc32):
                damages.append(log.name)
    except (OSError, ValueError) as error:
        damages = [str(error)]
    if damages:
        condemn(golden)
        raise RestoreFailed(
            f"the archive of the golden copy {golden.path} is damaged: {', '.join(damages[:5])}",
            **DAMAGED,
        )

    # In a private mount namespace it is mounted, because the account may not reach the cache.
    archive = scratch / ARCHIVE
    if namespaces.host_proc() != Path("/proc"):
        archive.mkdir(0o755)
        namespaces.mount(source, archive, flags=namespaces.MS_BIND)
    else:
        archive.symlink_to(source)
    # A standby of PostgreSQL takes its files from an inbox, which is empty at first.
    inbox = scratch / INBOX
    inbox.mkdir(0o755)
    if not (datadir / "PG_VERSION").exists():
        return
    with (datadir / "postgresql.auto.conf").open("a") as config:
        config.write(_STANDBY.format(inbox=inbox))
    signal = datadir / "standby.signal"
    signal.touch(0o600)
    if os.geteuid() == 0:
        owner = engine.account()
        os.chown(signal, owner.uid, owner.gid)


def _segments(
    server: Server,
    dataset: Dataset,
    primary: Path,
    archive: Path,
) -> Archive:
    parameters = dataset.parameters
    with cursor_of(server) as cursor:
        ask = partial(_ask, cursor)

        def grown() -> int:
            return lsn(ask("SELECT pg_current_wal_lsn()")) - began

        def sessions() -> int:
            return int(
                ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'")
            )

        began = lsn(ask("SELECT pg_current_wal_lsn()"))
        first = ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        argv = [
            server.bin / "pgbench",
            "--no-vacuum",
            "--builtin=tpcb-like",
            f"--client={SESSIONS}",
            "--jobs=2",
            "--protocol=prepared",
            "--time=2147483",
            f"--random-seed={parameters['seed']}",
            f"--host={server.socket_dir}",
            f"--username={server.user}",
            server.database,
        ]
        _drive(server, argv, grown, int(parameters["log_bytes"]))
        _calm(sessions)
        ask("CHECKPOINT")
        last = ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        end = lsn(ask("SELECT pg_switch_wal()"))
        sums = checksums_of(server)
    log = primary / "pg_wal"
    names = [path.name for path in log.iterdir() if _SEGMENT.fullmatch(path.name)]
    names = sorted(name for name in names if first <= name <= last)
    return Archive(_take_logs(log, archive, names), end, sums)


def _binary_logs(
    server: Server,
    dataset: Dataset,
    primary: Path,
    archive: Path,
) -> Archive:
    parameters = dataset.parameters
    argv = [
        "sysbench",
        "oltp_write_only",
        *sql_of(server).login(server),
        f"--tables={parameters['tables']}",
        f"--table-size={parameters['table_size']}",
        f"--rand-seed={parameters['seed']}",
        f"--threads={SESSIONS}",
        "--time=0",
        "--events=0",
        "run",
    ]

    def files() -> list[Path]:
        # excludes .idx files, MariaDB's GTID indexes
        return sorted(primary.glob("binlog.[0-9]*[0-9]"))

    with cursor_of(server) as cursor:
        ask = partial(_ask, cursor)

        def grown() -> int:
            return sum(path.stat().st_size for path in files()[before:])

        def sessions() -> int:
            return int(
                ask(
                    "SELECT COUNT(*) - 1 FROM information_schema.processlist WHERE user = 'dbbench'"
                )
            )

        ask("FLUSH BINARY LOGS")  # begins a log without the statements of the server's start
        before = len(files()) - 1
        _drive(server, argv, grown, int(parameters["log_bytes"]))
        _calm(sessions)
        ask("FLUSH BINARY LOGS")
        names = [path.name for path in files()[before:-1]]  # without the new, empty log
        sums = checksums_of(server)
    return Archive(_take_logs(primary, archive, names), 0, sums)


def _drive(
    server: Server,
    argv: list[Any],
    grown: Callable[[], int],
    log_bytes: int,
) -> None:
    """Run the load as the account of clients until `grown` returns so many bytes. Raises
    DatasetBuildFailed.
    """
    began = time.monotonic()
    limit_s = STUCK_S + log_bytes / STUCK_RATE
    with process.running(argv, as_user=client_account(server)) as load:
        while grown() < log_bytes:
            ended = load.poll() is not None
            if ended or process.overdue(began, limit_s):
                raise DatasetBuildFailed(
                    f"the log of the primary has {grown()} of {log_bytes} bytes, "
                    f"and {argv[0]} {'has ended' if ended else 'is too slow'}"
                )
            time.sleep(_POLL_S)


def _calm(left: Callable[[], int]) -> None:
    """Wait until the load's sessions have ended: their uncommitted work is then rolled back."""
    if process.wait_while(lambda: left() > 0, STUCK_S, _POLL_S):
        raise DatasetBuildFailed("sessions of the load on the primary did not end")


def _take_logs(
    source: Path,
    archive: Path,
    names: list[str],
) -> tuple[LogFile, ...]:
    if not names:
        raise DatasetBuildFailed("the primary produced no log")
    logs = []
    for name in names:
        shutil.copyfile(source / name, archive / name)
        (archive / name).chmod(0o644)
        logs.append(LogFile(name, *crc_of(archive / name)))
    return tuple(logs)


def _ask(cursor: Any, statement: str) -> str:
    """Return the first value of a statement as text."""
    cursor.execute(statement)
    if cursor.description:
        return str(cursor.fetchone()[0])
    return ""
