"""Datasets of kind `archive`: a primary's data directory as of a base copy, and the log that it wrote after it.

Made once: the dataset is loaded, the stopped data directory is copied, and the copy is driven (pgbench or sysbench)
until about `log_bytes` of WAL or binary logs are there. Kept are the base copy as `data/`, the logs as `archive/`,
and the checksum of every table of the primary at the end of the last one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dbbench import namespaces, process
from dbbench.datasets.generated import STUCK_RATE, STUCK_S
from dbbench.datasets.manifest import Golden, condemn, crc_of
from dbbench.drivers.archive import ARCHIVE, INBOX, Archive, Log, load, lsn, save
from dbbench.engines import checksums
from dbbench.engines.port import Engine, Place, Server
from dbbench.errors import DatasetBuildFailed, RestoreUnequal
from dbbench.model import Dataset, Scalar, Settings
from dbbench.process import User

# Of the primary alone, over the build's settings. A standby wants at least as many connections as its primary had.
# Commits wait for no disk; full pages are in the log, as a primary has them that may crash.
PRIMARY: Final[dict[str, dict[str, Scalar]]] = {
    "postgres": {
        "wal_level": "replica", "full_page_writes": "on", "max_connections": 20, "max_wal_senders": 0,
        "max_worker_processes": 2, "max_parallel_workers": 0, "max_wal_size": "1GB", "wal_keep_size": "1TB",
    },
    "mariadb": {"log_bin": True, "sync_binlog": 0, "binlog_format": "ROW", "max_binlog_size": 16 * 2**20},
    "mysql": {"log_bin": True, "sync_binlog": 0, "max_binlog_size": 16 * 2**20},
}  # fmt: skip
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
    folder: Path, engine: Engine, settings: Settings, dataset: Dataset, place: Place, tell: Callable[[str], None]
) -> None:
    """Make `archive/` in `folder` from the stopped `data/` there, which stays a base copy. DatasetBuildFailed."""
    data, primary, archive = folder / "data", folder / "primary", folder / ARCHIVE
    archive.mkdir(0o755)
    if "wal_level" in settings:  # PostgreSQL keeps it in the control file: a standby refuses one of `minimal`
        with engine.serving(data, settings, place):
            pass
    process.run(["cp", "-a", data, primary], timeout_s=6 * 3600.0)
    try:
        with engine.serving(primary, settings, place) as server:
            tell("driving a primary for its log")
            found = _RECORDERS[server.engine](server, dataset, primary, archive)
        save(archive, found)
    finally:
        shutil.rmtree(primary, ignore_errors=True)


def handed(golden: Golden, datadir: Path, engine: Engine, scratch: Path) -> None:
    """Make the archive readable for the trial, and PostgreSQL's restored data directory a standby whose inbox is
    empty. RestoreUnequal where a file of the archive is not as it was made."""
    source = golden.path / ARCHIVE
    _verified(golden, source)
    seen, inbox, owner = scratch / ARCHIVE, scratch / INBOX, engine.account()
    if namespaces.host_proc() != Path("/proc"):  # mounts of our own: the cache may lie where the account cannot go
        seen.mkdir(0o755)
        namespaces.mount(source, seen, flags=namespaces.MS_BIND)
    else:
        seen.symlink_to(source)
    inbox.mkdir(0o755)
    if (datadir / "PG_VERSION").exists():
        with (datadir / "postgresql.auto.conf").open("a") as config:
            config.write(_STANDBY.format(inbox=inbox))
        (datadir / "standby.signal").touch(0o600)
        _owned(datadir / "standby.signal", owner)


def _owned(path: Path, owner: User) -> None:
    if os.geteuid() == 0:
        os.chown(path, owner.uid, owner.gid)


def _verified(golden: Golden, source: Path) -> None:
    """Each file's size and CRC-32."""
    try:
        wrong = [log.name for log in load(source).logs if crc_of(source / log.name) != (log.size, log.crc32)]
    except (OSError, ValueError) as error:
        wrong = [str(error)]
    if wrong:
        condemn(golden)
        raise RestoreUnequal(
            f"the archive of the golden copy {golden.path} is damaged: {', '.join(wrong[:5])}",
            effect="It is not used again.",
            remedy="Type the same command again; the dataset is then built again. Check the disk that holds the cache.",
        )


# --- primaries -------------------------------------------------------------------------------------


def _postgres(server: Server, dataset: Dataset, primary: Path, archive: Path) -> Archive:
    """pgbench, until the log has grown so far; the last segment is closed by a switch after a checkpoint."""
    own = dataset.parameters
    with _asking(server) as ask:
        began = lsn(ask("SELECT pg_current_wal_lsn()"))
        first = ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        argv = [server.bin / "pgbench", "--no-vacuum", "--builtin=tpcb-like", f"--client={SESSIONS}", "--jobs=2",
                "--protocol=prepared", "--time=2147483", f"--random-seed={own['seed']}",
                f"--host={server.socket_dir}", f"--username={server.user}", server.database]  # fmt: skip
        _drive(argv, lambda: lsn(ask("SELECT pg_current_wal_lsn()")) - began, int(own["log_bytes"]))
        _calm(lambda: int(ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'")))
        ask("CHECKPOINT")
        last = ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        end = lsn(ask("SELECT pg_switch_wal()"))
        sums = checksums.of_tables(server)
    names = sorted(path.name for path in (primary / "pg_wal").iterdir() if _SEGMENT.fullmatch(path.name))
    wanted = [name for name in names if first <= name <= last]
    return Archive("postgres", _taken(primary / "pg_wal", archive, wanted), end, sums)


def _innodb(server: Server, dataset: Dataset, primary: Path, archive: Path) -> Archive:
    """sysbench oltp_write_only, until the binary logs are so large."""
    own = dataset.parameters
    argv = ["sysbench", "oltp_write_only", "--db-driver=mysql", f"--mysql-socket={server.socket}",
            f"--mysql-user={server.user}", f"--mysql-db={server.database}", f"--tables={own['tables']}",
            f"--table-size={own['table_size']}", f"--rand-seed={own['seed']}", f"--threads={SESSIONS}",
            "--time=0", "--events=0", "run"]  # fmt: skip

    def files() -> list[Path]:
        return sorted(primary.glob("binlog.[0-9]*"))

    with _asking(server) as ask:
        ask("FLUSH BINARY LOGS")  # in the first one the server made its own account, which the standby has
        before = len(files()) - 1
        _drive(argv, lambda: sum(path.stat().st_size for path in files()[before:]), int(own["log_bytes"]))
        _calm(lambda: int(ask("SELECT COUNT(*) - 1 FROM information_schema.processlist WHERE user = 'dbbench'")))
        ask("FLUSH BINARY LOGS")
        wanted = [path.name for path in files()[before:-1]]  # the last one is new and empty
        sums = checksums.of_tables(server)
    return Archive(server.engine, _taken(primary, archive, wanted), 0, sums)


_RECORDERS: Final[dict[str, Callable[[Server, Dataset, Path, Path], Archive]]] = {
    "postgres": _postgres, "mariadb": _innodb, "mysql": _innodb,
}  # fmt: skip


def _drive(argv: list[Any], grown: Callable[[], int], wanted: int) -> None:
    """Run the load until `grown` says so many bytes."""
    until = time.monotonic() + STUCK_S + wanted / STUCK_RATE
    with process.running(argv) as load:
        while (so_far := grown()) < wanted:
            if load.poll() is not None or time.monotonic() > until:
                raise DatasetBuildFailed(
                    f"the primary's log has {so_far} of {wanted} bytes, and {argv[0]} "
                    + ("works no longer" if load.poll() is not None else "is too slow")
                )
            time.sleep(_POLL_S)


def _calm(left: Callable[[], int]) -> None:
    """Wait until the load's sessions are gone; what they had not committed is rolled back by then."""
    until = time.monotonic() + STUCK_S
    while left() > 0:
        if time.monotonic() > until:
            raise DatasetBuildFailed("sessions of the load do not end")
        time.sleep(_POLL_S)


def _taken(source: Path, archive: Path, names: list[str]) -> tuple[Log, ...]:
    """The files, copied into the archive for every account to read."""
    if not names:
        raise DatasetBuildFailed("the primary left no log")
    logs = []
    for name in names:
        shutil.copyfile(source / name, archive / name)
        (archive / name).chmod(0o644)
        logs.append(Log(name, *crc_of(archive / name)))
    return tuple(logs)


@contextlib.contextmanager
def _asking(server: Server) -> Iterator[Callable[[str], str]]:
    """One session: the first value that a statement gives, as text."""
    with contextlib.closing(server.connect()) as connection, contextlib.closing(connection.cursor()) as cursor:

        def ask(statement: str) -> str:
            cursor.execute(statement)
            return str(cursor.fetchone()[0]) if cursor.description else ""

        yield ask
