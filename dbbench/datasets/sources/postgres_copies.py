"""Convert physical copies of PostgreSQL into a cluster without the original's configuration,
replication slots and connections to others; choose the database that the drivers use.
"""

from __future__ import annotations

import contextlib
import json
import locale
import mmap
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from dbbench import process
from dbbench.datasets.sources import postgres_dumps, safe_files
from dbbench.datasets.sources.look import tablespaces
from dbbench.datasets.sources.scripts import change_of, last_lines
from dbbench.datasets.sources.source import Source, unusable
from dbbench.engines import postgres
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_server import BLOCK, EXTENSIONS
from dbbench.engines.serving import own
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, SourceUnusable
from dbbench.model import Scalar, SourceChange, SourceChangeKind
from dbbench.packages import install, manager

# Directories that are emptied: replication slots would keep log for other servers; the server
# recreates the rest.
_EMPTIED: Final = (
    "pg_replslot",
    "pg_stat_tmp",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_subtrans",
)
_LEFT: Final = (
    "postmaster.opts",
    "backup_manifest",
    "tablespace_map",
    "log",
    "pg_log",
    "standby.signal",
    "recovery.signal",
    "current_logfiles",
    "server.key",
    "server.crt",
    "conf.d",
)
_CONFIGURATION: Final = ("postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf")
_SETTING: Final = re.compile(r"^\s*([a-z_.]+)\s*=?\s*(.*?)\s*(?:#.*)?$")
# a database may not work without these
_SHOWN: Final = ("shared_preload_libraries", "session_preload_libraries")
_ROLE: Final = (
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dbbench') THEN CREATE ROLE "
    "dbbench; END IF; ALTER ROLE dbbench SUPERUSER LOGIN CONNECTION LIMIT -1 VALID UNTIL "
    "'infinity'; ALTER ROLE dbbench RESET ALL; END $$;\n"
)
_PERSISTED: Final = "SELECT name FROM pg_file_settings WHERE sourcefile ~ 'postgresql.auto.conf$'"
_FAILED: Final = re.compile(r"^.*\b(ERROR|FATAL|PANIC):.*$", re.MULTILINE)
_LOG: Final = re.compile(
    r"[0-9A-F]{24}(\.partial)?|[0-9A-F]{8}\.history|[0-9A-F.]+\.backup|archive_status|summaries"
)
_LOCALE: Final = re.compile(rb"\b(?:LOCALE|LC_COLLATE|LC_CTYPE) = '([^']*)'", re.IGNORECASE)
_NAMED_LOCALE: Final = re.compile(rb"\b[a-z]{2,3}_[A-Z]{2}(?:\.[A-Za-z0-9-]+)?(?:@[a-z]+)?")


def block_size(bin: Path | None) -> int:
    """Return the page size in bytes that the server was built with."""
    argv = [postgres.programs(bin)[0], "-C", "block_size", "-D", "/", "--config-file=/dev/null"]
    printed = process.run(argv, note=False, ok=(0, 1)).stdout
    if printed.strip().isdigit():
        return int(printed)
    return BLOCK


def page_size(source: Source, bin: Path | None) -> int | None:
    """Return the page size of a cluster that is a directory of files, or None for others, which the
    server checks.
    """
    if not (source.path / "global/pg_control").is_file():
        return None
    printed = process.run([_program(bin, "pg_controldata"), source.path], note=False).stdout
    size = re.search(r"^Database block size:\s+(\d+)", printed, re.MULTILINE)
    return int(size[1]) if size else None


def check_locales(source: Source) -> None:
    """Raise SourceUnusable if a database or a collation needs a locale that this machine does not
    have.
    """
    path = {
        "pg_dump directory": "toc.dat",
        "data directory": "global/1262",
        "pg_basebackup plain": "global/1262",
    }
    file = source.path / path.get(source.form, "")
    if file.is_file():
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            for name in _locales(content, source):
                if not _has_locale(name):
                    package = "locales-all" if manager() != "dnf" else "glibc-all-langpacks"
                    why = f"{source.path} needs the locale {name}, which this machine does not have"
                    raise unusable(why, install([package]))


def _locales(content: mmap.mmap, source: Source) -> Iterator[str]:
    """Yield the names of locales in a dump, or in the file of the table pg_database (1262)."""
    if source.physical:
        yield from (name.decode() for name in _NAMED_LOCALE.findall(content))
        return
    for begin in (b"CREATE COLLATION ", b"\nCREATE DATABASE "):  # pg_restore creates no database
        offset = content.find(begin)
        while offset >= 0:
            statement = content[offset : content.find(b";", offset)]
            if len(statement) < 1000 and b"provider = icu" not in statement:
                for name in _LOCALE.findall(statement):
                    yield name.decode(errors="replace")
            offset = content.find(begin, offset + 1)


def _has_locale(name: str) -> bool:
    before = locale.setlocale(locale.LC_COLLATE)
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_COLLATE, name)
        locale.setlocale(locale.LC_COLLATE, before)
        return True
    return False


def lay(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy or unpack the source and recover it. See `sources.lay`."""
    account = postgres.account()
    own(data, account)
    (_unpack if source.form == "pg_basebackup tar" else _copy)(source.path, data)
    changes = _clean(data)
    safe_files.hand_over(data, account)
    _recover(data, place, account)
    return changes


def _skips(path: PurePosixPath) -> bool:
    top = path.parts[0]
    if top in _LEFT or (top in _EMPTIED and len(path.parts) > 1):
        return True
    return path.name.startswith("pgsql_tmp") or path.name == "pg_internal.init"


def _copy(source: Path, data: Path) -> None:
    """Copy the cluster. Its log and its tablespaces may be elsewhere: a server's links to them are
    followed.
    """
    log = source / "pg_wal"

    def leave(path: PurePosixPath) -> bool:
        if path.parts[0] == "pg_tblspc" and len(path.parts) > 1:
            return True
        return path.parts[0] == "pg_wal" or _skips(path)

    safe_files.copy_tree(source, data, leave)
    safe_files.copy_tree(
        safe_files.resolve_link(log, source),
        data / "pg_wal",
        lambda path: not _LOG.fullmatch(path.parts[0]),
    )
    for oid, folder in tablespaces(source):
        target = safe_files.resolve_link(folder, source)
        safe_files.copy_tree(
            target,
            data / "pg_tblspc" / oid,
            lambda path: not path.parts[0].startswith("PG_"),
        )
    check_manifest(source, data)


def check_manifest(source: Path, data: Path) -> None:
    """Compare the copy with names and sizes in backup_manifest, without what pg_basebackup itself
    changes after it has written that. Raises SourceUnusable.
    """
    manifest = source / "backup_manifest"
    if not manifest.is_file():
        return
    for entry in json.loads(manifest.read_bytes())["Files"]:
        encoded = entry.get("Encoded-Path", "")
        name = PurePosixPath(entry.get("Path") or os.fsdecode(bytes.fromhex(encoded)))
        if _skips(name) or name.parts[0] in (*_CONFIGURATION, "pg_wal"):
            continue
        path = data / name
        if not path.is_file() or path.stat().st_size != entry["Size"]:
            raise SourceUnusable(
                f"{name} of the backup is missing or truncated, according to its backup_manifest"
            )


def _unpack(source: Path, data: Path) -> None:
    """Unpack base.tar, a tar file per tablespace, and pg_wal.tar."""
    tars = sorted(source.glob("*.tar*"), key=lambda tar: (not tar.name.startswith("base."), tar))
    targets = {"base": data, "pg_wal": data / "pg_wal"}
    for tar in tars:
        name = tar.name.partition(".tar")[0]
        target = targets.get(name, data / "pg_tblspc" / name)
        target.mkdir(parents=True, exist_ok=True)
        safe_files.unpack(tar, target)
    tablespace_map = data / "tablespace_map"
    lines = tablespace_map.read_text().splitlines() if tablespace_map.is_file() else []
    for line in lines:
        oid = line.partition(" ")[0]
        if not any((data / "pg_tblspc" / oid).glob("PG_*")):
            raise SourceUnusable(f"{source} lacks {oid}.tar, a tablespace of the cluster")
    check_manifest(source, data)
    for name in _LEFT:
        shutil.rmtree(data / name, ignore_errors=True)
        with contextlib.suppress(IsADirectoryError):
            (data / name).unlink(missing_ok=True)


def _clean(data: Path) -> tuple[SourceChange, ...]:
    """Remove the configuration; return those settings on which a database may depend."""
    values: dict[str, str] = {}
    for name in _CONFIGURATION:
        file = data / name
        has_settings = name.startswith("postgresql.") and file.is_file()
        text = file.read_text(errors="replace") if has_settings else ""
        for line in text.splitlines():
            setting = _SETTING.match(line)
            if setting and setting[2]:
                values[setting[1]] = setting[2].strip("'")
        # emptied, not removed: the server expects postgresql.auto.conf
        file.write_text("")
    settings = ", ".join(f"{name} = '{values[name]}'" for name in _SHOWN if values.get(name))
    return change_of(SourceChangeKind.CONFIGURATION, settings=settings)


def _recover(data: Path, place: Place, account: process.User) -> None:
    """Recover to the end of the backup and create the role `dbbench`, without accepting
    connections.
    """
    # Tablespaces become directories, so that no link leads out. Versions before 15 may not know the
    # setting.
    in_place = (
        ["-c", "allow_in_place_tablespaces=on"] if any((data / "pg_tblspc").iterdir()) else []
    )
    least_log = postgres.least_log(data) // 2**20  # MB, the unit of both settings
    argv = [
        postgres.programs(place.bin)[0],
        "--single",
        "-D",
        str(data),
        "--config-file=/dev/null",
        "-c",
        "fsync=off",
        *in_place,
        "-c",
        f"min_wal_size={least_log}",
        "-c",
        f"max_wal_size={4 * least_log}",
        "-c",
        "lc_messages=C",
        "template1",
    ]
    try:
        printed = process.run(
            argv, timeout_s=safe_files.LOAD_S, as_user=account, stdin=_ROLE
        ).stderr
    except CommandFailed as error:
        raise DatasetBuildFailed(
            f"the server does not start on the copy: {error.evidence}"
        ) from error
    if _FAILED.search(printed):
        raise DatasetBuildFailed(f"the server does not start on the copy:\n{last_lines(printed)}")


# So that the first scan does not set hint bits.
def programs(source: Source) -> tuple[str, ...]:
    """Return no program: PostgreSQL's own ones load its dumps."""
    del source
    return ()


def settle(server: Server) -> str:
    """Vacuum, freeze and analyse the database that the drivers use."""
    execute(server, "VACUUM (FREEZE, ANALYZE)")
    return "vacuumed, frozen and analysed"


def seal(
    data: Path,
    place: Place,
    checksums: Scalar | None,
) -> tuple[SourceChange, ...]:
    """Enable or disable data checksums; None: leave them as in the source."""
    printed = process.run(
        [_program(place.bin, "pg_controldata"), data], as_user=postgres.account()
    ).stdout
    present = not re.search(r"^Data page checksum version:\s+0$", printed, re.MULTILINE)
    if checksums is None or checksums == present:
        if present:
            return ()
        return (SourceChange(SourceChangeKind.NO_CHECKSUMS),)
    change = "--enable" if checksums else "--disable"
    argv: list[str | Path] = [
        _program(place.bin, "pg_checksums"),
        change,
        "--no-sync",
        f"--pgdata={data}",
    ]
    process.run(argv, timeout_s=safe_files.LOAD_S, as_user=postgres.account())
    return (
        SourceChange(
            SourceChangeKind.CHECKSUMS if checksums else SourceChangeKind.CHECKSUMS_REMOVED
        ),
    )


def examine(source: Source, bin: Path | None) -> tuple[SourceChange, ...]:
    """Read a dump without a server. See `sources.examine`."""
    if source.physical:
        return ()
    return postgres_dumps.examine(source, bin)


def load(
    source: Source,
    server: Server,
    data: Path,
    wanted: str,
    tablespace: str,
) -> tuple[SourceChange, ...]:
    """Load a dump, and rename the database that is `wanted`, otherwise the largest, to `dbbench`.
    Its settings would override those of the plan, so they are reset except for its search_path.
    See `sources.load`.
    """
    changes = () if source.physical else postgres_dumps.load(source, server, data)
    persisted = rows(server, _PERSISTED)
    if persisted:  # by ALTER SYSTEM within a line of the dump
        execute(server, "ALTER SYSTEM RESET ALL")
        settings = ", ".join(str(name) for (name,) in persisted)
        changes += change_of(SourceChangeKind.CONFIGURATION, settings=settings)
    oid = ""
    if tablespace:
        spaces = tablespaces_of(server)
        if tablespace not in spaces:
            there = ", ".join(spaces) or "none"
            raise SourceUnusable(
                f'the source has no tablespace "{tablespace}" (tablespaces: {there})'
            )
        oid = spaces[tablespace]
    chosen, filled = _choose(server, data, wanted, oid)
    if chosen != server.database:
        _rename(server, chosen, filled)
        changes += change_of(SourceChangeKind.RENAMED, database=chosen, name=server.database)
    for extension in EXTENSIONS:
        with contextlib.suppress(Exception):  # the contrib package may not be installed
            execute(server, f"CREATE EXTENSION IF NOT EXISTS {extension}")
    changes += _reset(server)
    if not source.physical:
        settle(server)
    return changes


def tablespaces_of(server: Server) -> dict[str, str]:
    """Return the user-defined tablespaces: name -> OID."""
    return {
        str(name): str(oid)
        for oid, name in rows(
            server,
            "SELECT oid, spcname FROM pg_tablespace WHERE spcname NOT IN ('pg_default', "
            "'pg_global')",
        )
    }


def _choose(
    server: Server,
    data: Path,
    wanted: str,
    tablespace: str,
) -> tuple[str, bool]:
    """Return the database for the drivers, and whether the one with its future name has tables."""

    def size_of(database: object) -> int:
        folder = f"pg_tblspc/{tablespace}/PG_*/{database}" if tablespace else f"base/{database}"
        return sum(file.stat().st_size for file in data.glob(f"{folder}/*"))

    sizes = {
        str(name): size_of(oid)
        for oid, name in rows(
            server,
            "SELECT oid, datname FROM pg_database WHERE NOT datistemplate",
            database="template1",
        )
    }
    if wanted and wanted not in sizes:
        raise SourceUnusable(
            f'the source has no database "{wanted}" (databases: {", ".join(sizes)})'
        )
    others = {
        name: size for name, size in sizes.items() if name not in (server.database, "postgres")
    }
    filled = bool(
        rows(server, "SELECT 1 FROM pg_class WHERE relkind IN ('r', 'p') AND oid > 16383 LIMIT 1")
    )
    candidates = {server.database: 0} if filled else others or {"postgres": 0}
    return wanted or max(candidates, key=candidates.__getitem__), filled


def _rename(server: Server, chosen: str, filled: bool) -> None:
    name = server.database
    gone = (
        f'ALTER DATABASE {name} RENAME TO "{name}_of_source"' if filled else f"DROP DATABASE {name}"
    )
    quoted = chosen.replace('"', '""')
    execute(server, gone, f'ALTER DATABASE "{quoted}" RENAME TO {name}', database="template1")


def _reset(server: Server) -> tuple[SourceChange, ...]:
    settings = rows(
        server,
        "SELECT unnest(setconfig) FROM pg_db_role_setting s"
        " JOIN pg_database d ON d.oid = s.setdatabase"
        " WHERE s.setrole = 0 AND d.datname = current_database()",
    )
    names = [str(row[0]) for row in settings if not str(row[0]).startswith("search_path=")]
    for name in names:
        execute(server, f'ALTER DATABASE {server.database} RESET "{name.partition("=")[0]}"')
    return change_of(SourceChangeKind.DATABASE_SETTINGS, settings=", ".join(names))


def _program(bin: Path | None, name: str) -> Path:
    return Path(postgres.programs(bin)[0]).with_name(name)
