"""Convert dumps and physical copies of PostgreSQL into a cluster.

A physical copy is vacuumed and frozen once, so that the first scan does not set hint bits. It loses what identified the
original server: its configuration files, replication slots and connections to other servers. The server recovers it and
creates dbbench's role without a network (`--single`). Tablespaces become directories within the data directory
(`allow_in_place_tablespaces`), so that no link leads out of it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import locale
import mmap
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from dbbench import process
from dbbench.datasets.sources import files
from dbbench.datasets.sources.scripts import LOAD_S, PostgresScript, Tables, compared, fed, shown
from dbbench.datasets.sources.source import UNTOUCHED, Source, tablespaces
from dbbench.engines import postgres
from dbbench.engines.port import Place, Server
from dbbench.engines.postgres_server import BLOCK, EXTENSIONS
from dbbench.engines.serving import own
from dbbench.engines.sql import execute, rows
from dbbench.errors import CommandFailed, DatasetBuildFailed, DbbenchError, SourceIncomplete
from dbbench.model import SourceChange, SourceChangeKind
from dbbench.packages import install, manager

# Directories that are emptied: replication slots would keep log for other servers; the server recreates the rest.
_EMPTIED: Final = ("pg_replslot", "pg_stat_tmp", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_subtrans")
_LEFT: Final = ("postmaster.opts", "backup_manifest", "tablespace_map", "log", "pg_log", "standby.signal",
                "recovery.signal", "current_logfiles", "server.key", "server.crt", "conf.d")  # fmt: skip
_CONFIGURATION: Final = ("postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf")
_SETTING: Final = re.compile(r"^\s*([a-z_.]+)\s*=?\s*(.*?)\s*(?:#.*)?$")
_SHOWN: Final = ("shared_preload_libraries", "session_preload_libraries")  # a database may not work without these
_ROLE: Final = (
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dbbench') THEN CREATE ROLE dbbench; END IF; "
    "ALTER ROLE dbbench SUPERUSER LOGIN CONNECTION LIMIT -1 VALID UNTIL 'infinity'; "
    "ALTER ROLE dbbench RESET ALL; END $$;\n"
)
_FAILED: Final = re.compile(r"^.*\b(ERROR|FATAL|PANIC):.*$", re.MULTILINE)
_LOG: Final = re.compile(r"[0-9A-F]{24}(\.partial)?|[0-9A-F]{8}\.history|[0-9A-F.]+\.backup|archive_status|summaries")

_LINES: Final = 6
_LOCALE: Final = re.compile(rb"\b(?:LOCALE|LC_COLLATE|LC_CTYPE) = '([^']*)'", re.IGNORECASE)
_NAMED_LOCALE: Final = re.compile(rb"\b[a-z]{2,3}_[A-Z]{2}(?:\.[A-Za-z0-9-]+)?(?:@[a-z]+)?")


def block_size(bin: Path | None) -> int:
    """Return the page size in bytes that the server was built with."""
    server = Path(postgres.programs(bin)[0])
    printed = process.run(
        [server, "-C", "block_size", "-D", "/", "--config-file=/dev/null"], note=False, ok=(0, 1)
    ).stdout
    return int(printed) if printed.strip().isdigit() else BLOCK


def programs(source: Source) -> tuple[str, ...]:
    """Return the programs that loading the source needs: those of the server."""
    return ()


def page_size(source: Source, bin: Path | None) -> int | None:
    """Return the page size of a cluster that is a directory of files, or None for others, which the server checks
    itself."""
    if not (source.path / "global/pg_control").is_file():
        return None
    printed = process.run([_program(bin, "pg_controldata"), source.path], note=False).stdout
    size = re.search(r"^Database block size:\s+(\d+)", printed, re.MULTILINE)
    return int(size[1]) if size else None


# --- physical --------------------------------------------------------------------------------------


def check_locales(source: Source) -> None:
    """Raise SourceIncomplete if a database or a collation needs a locale that this machine does not have."""
    path = {"pg_dump directory": "toc.dat", "data directory": "global/1262", "pg_basebackup plain": "global/1262"}
    file = source.path / path.get(source.form, "")
    if file.is_file():
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for name in _locales(content, source):
                if not _has_locale(name):
                    package = "locales-all" if manager() != "dnf" else "glibc-all-langpacks"
                    raise SourceIncomplete(f"{source.path} needs the locale {name}, which this machine does not have",
                                        effect=UNTOUCHED, remedy=install([package]))  # fmt: skip


def _locales(content: mmap.mmap, source: Source) -> Iterator[str]:
    """Yield the names of locales in a dump, or in the file of the table pg_database (1262)."""
    if source.physical:
        yield from (name.decode() for name in _NAMED_LOCALE.findall(content))
        return
    for begin in (b"CREATE COLLATION ", b"\nCREATE DATABASE "):  # pg_restore creates no database
        at = -1
        while (at := content.find(begin, at + 1)) >= 0:
            statement = content[at : content.find(b";", at)]
            names = _LOCALE.findall(statement) if b"provider = icu" not in statement else []
            yield from (name.decode(errors="replace") for name in names if len(statement) < 1000)


def _has_locale(name: str) -> bool:
    before = locale.setlocale(locale.LC_COLLATE)
    try:
        locale.setlocale(locale.LC_COLLATE, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_COLLATE, before)
    return True


def laid(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy or unpack the source and recover it. See `sources.laid`."""
    account = postgres.account()
    own(data, account)
    if source.form == "pg_basebackup tar":
        _unpack(source.path, data)
    else:
        _copy(source.path, data)
    changes = _cleaned(data)
    for path in (data, *data.rglob("*")):
        if os.geteuid() == 0:
            os.lchown(path, account.uid, account.gid)
        path.chmod(0o700 if path.is_dir() else 0o600)
    _recovered(data, place, account)
    return changes


def _is_left(path: PurePosixPath) -> bool:
    """Whether a path of a cluster is not copied."""
    emptied = len(path.parts) > 1 and path.parts[0] in _EMPTIED
    return path.parts[0] in _LEFT or emptied or path.name.startswith("pgsql_tmp") or path.name == "pg_internal.init"


def _copy(source: Path, data: Path) -> None:
    """Copy the cluster. Its log and its tablespaces may be elsewhere: a server's links to them are followed."""
    log = source / "pg_wal"

    def leave(path: PurePosixPath) -> bool:
        return _is_left(path) or path.parts[0] == "pg_wal" or (path.parts[0] == "pg_tblspc" and len(path.parts) > 1)

    files.copy_tree(source, data, leave)
    files.copy_tree(files.linked(log, source), data / "pg_wal", lambda path: not _LOG.fullmatch(path.parts[0]))
    for oid, folder in tablespaces(source):
        target = files.linked(folder, source)
        files.copy_tree(target, data / "pg_tblspc" / oid, lambda path: not path.parts[0].startswith("PG_"))
    _check_manifest(source / "backup_manifest", data)


def _check_manifest(manifest: Path, data: Path) -> None:
    """Compare the copy with the manifest, without what pg_basebackup itself changes after it has written that."""
    files.check_manifest(manifest, data, lambda path: _is_left(path) or path.parts[0] in (*_CONFIGURATION, "pg_wal"))


def _unpack(backup: Path, data: Path) -> None:
    """Unpack base.tar, a tar file per tablespace, and pg_wal.tar."""
    for tar in sorted(backup.glob("*.tar*"), key=lambda tar: (not tar.name.startswith("base."), tar.name)):
        name = tar.name.partition(".tar")[0]
        target = data if name == "base" else data / "pg_wal" if name == "pg_wal" else data / "pg_tblspc" / name
        target.mkdir(parents=True, exist_ok=True)
        files.unpack(tar, target)
    map_ = data / "tablespace_map"
    names = [line.partition(" ")[0] for line in map_.read_text().splitlines()] if map_.is_file() else []
    if absent := [oid for oid in names if not any((data / "pg_tblspc" / oid).glob("PG_*"))]:
        raise SourceIncomplete(f"{backup} lacks {absent[0]}.tar, a tablespace of the cluster")
    _check_manifest(backup / "backup_manifest", data)
    for name in _LEFT:
        shutil.rmtree(data / name, ignore_errors=True)
        with contextlib.suppress(IsADirectoryError):
            (data / name).unlink(missing_ok=True)


def _cleaned(data: Path) -> tuple[SourceChange, ...]:
    """Remove the configuration; return those settings on which a database may depend."""
    asked: dict[str, str] = {}
    for name in _CONFIGURATION[:2]:
        lines = (data / name).read_text(errors="replace").splitlines() if (data / name).is_file() else []
        asked |= {match[1]: match[2].strip("'") for line in lines if (match := _SETTING.match(line)) and match[2]}
    for name in _CONFIGURATION:
        (data / name).write_text("")  # emptied, not removed: the server expects postgresql.auto.conf
    settings = ", ".join(f"{name} = '{asked[name]}'" for name in _SHOWN if asked.get(name))
    return (SourceChange(SourceChangeKind.CONFIGURATION, {"settings": settings}),) if settings else ()


def _recovered(data: Path, place: Place, account: process.User) -> None:
    """Recover to the end of the backup and create the role `dbbench`, without accepting connections."""
    server = postgres.programs(place.bin)[0]
    argv = [server, "--single", "-D", str(data), "--config-file=/dev/null", "-c", "fsync=off",
            "-c", "allow_in_place_tablespaces=on", "-c", "lc_messages=C", "template1"]  # fmt: skip
    if not any((data / "pg_tblspc").iterdir()):  # versions before 15 may not know the setting
        del argv[-5:-3]
    try:
        done = process.run(argv, timeout_s=LOAD_S, as_user=account, stdin=_ROLE)
    except CommandFailed as error:
        raise DatasetBuildFailed(f"the server does not start on the copy: {error.evidence}") from error
    if wrong := _FAILED.findall(done.stderr) and _last(done.stderr):
        raise DatasetBuildFailed(f"the server does not start on the copy:\n{wrong}")


def settled(server: Server) -> str:
    """Vacuum, freeze and analyse the database that the drivers use."""
    execute(server, "VACUUM (FREEZE, ANALYZE)")
    return "vacuumed, frozen and analysed"


def sealed(data: Path, place: Place, checksums: bool | None) -> tuple[SourceChange, ...]:
    """Enable or disable data checksums; None: leave them as in the source."""
    printed = process.run([_program(place.bin, "pg_controldata"), data], as_user=postgres.account()).stdout
    present = not re.search(r"^Data page checksum version:\s+0$", printed, re.MULTILINE)
    if checksums is None or checksums == present:
        return () if present else (SourceChange(SourceChangeKind.NO_CHECKSUMS),)
    change = "--enable" if checksums else "--disable"
    argv: list[str | Path] = [_program(place.bin, "pg_checksums"), change, "--no-sync", f"--pgdata={data}"]
    process.run(argv, timeout_s=LOAD_S, as_user=postgres.account())
    return (SourceChange(SourceChangeKind.CHECKSUMS if checksums else SourceChangeKind.CHECKSUMS_REMOVED),)


# --- dumps, and what both end with -----------------------------------------------------------------


def loaded(source: Source, server: Server, data: Path, wanted: str, tablespace: str) -> tuple[SourceChange, ...]:
    """Load the dump. See `sources.loaded`."""
    changes: tuple[SourceChange, ...] = ()
    if not source.physical:
        tables, skipped = _psql(source, server) if source.form == "pg_dump plain" else _restore(source, server, data)
        compared(source.path, tables, functools.partial(_rows_of, server))
        if skipped:
            changes = (SourceChange(SourceChangeKind.SKIPPED, {"statements": " ".join(skipped)}),)
    oid = _tablespace(server, tablespace) if tablespace else ""
    changes += _adopted(server, data, wanted, oid)
    if not source.physical:
        execute(server, "VACUUM (FREEZE, ANALYZE)")
    return changes


def _psql(source: Source, server: Server) -> tuple[Tables, dict[str, None]]:
    """Run the script, each part in the database that it connects to, up to the first error."""
    account, key = postgres.account(), secrets.token_hex(16)
    argv = [str(server.bin / "psql"), "--no-psqlrc", "--quiet", "--output=/dev/null", *_where(server)]
    probe = process.run([*argv, f"--command=\\restrict {key}"], ok=(0, 1), as_user=account, env=_database(server))
    # Since 2025 psql can refuse commands from then on; an older one gets only lines without a command.
    first = [f"\\restrict {key}\n".encode()] if probe.returncode == 0 else []
    with source.path.open("rb") as file:
        unknown, role = functools.partial(_is_unknown, server), functools.partial(_make_role, server)
        script = PostgresScript(file, unknown, role, server.user)
        for database, lines in itertools.groupby(script, lambda _: script.database):
            before = script.line - 1 - len(first)
            status, printed = fed([*argv, "--set=ON_ERROR_STOP=1", "--file=-"], itertools.chain(first, lines), account,
                                  _database(server, database))  # fmt: skip
            if status:
                raise _failed(source, before, printed)
    return script.tables, script.skipped


def _failed(source: Source, before: int, printed: str) -> DbbenchError:
    """Return the error with the statement that failed; psql's line numbers begin after the line `before`."""
    *_, reason = printed.strip().split("psql:<stdin>:")
    number, _, text = reason.partition(": ")
    statement, at = b"", before + int(number) if number.isdecimal() else 0
    with source.path.open("rb") as file:
        script = PostgresScript(file, lambda _: False, lambda _: None)
        for _line in script:
            if script.line >= at:
                statement, at = script.statement, script.begun
                break
    return DatasetBuildFailed(
        f"{source.path}, line {at}: {shown(statement)}\n{_last(text)}",
        effect="The copy was removed; nothing was measured.",
        remedy="Correct the dump, or install what the statement needs.",
    )


def _is_unknown(server: Server, setting: str) -> bool:
    return bool(rows(server, f"SELECT current_setting('{setting}', true) IS NULL")[0][0])


def _make_role(server: Server, quoted: str) -> None:
    with contextlib.suppress(Exception):  # it exists
        execute(server, f"CREATE ROLE {quoted}")


def _rows_of(server: Server, database: str, table: str, count: bool) -> int | None:
    quoted = table.replace("'", "''")
    (kind,) = rows(server, f"SELECT (SELECT relkind FROM pg_class WHERE oid = to_regclass('{quoted}'))",
                   database=database or None)[0]  # fmt: skip
    if kind is None or not count:
        return None if kind is None else 0
    only = "" if kind == "p" else "ONLY "  # the rows of a partitioned table are in its partitions
    return int(rows(server, f"SELECT count(*) FROM {only}{table}", database=database or None)[0][0])


def _restore(source: Source, server: Server, data: Path) -> tuple[Tables, dict[str, None]]:
    """Read the archive once to see whether it is complete, then restore it.

    pg_restore reads a copy, because the server's account may not be able to read the source.
    """
    account, copy = postgres.account(), data.with_name("source")
    files.copy_tree(source.path, copy)
    for path in (copy, *copy.rglob("*")):
        if os.geteuid() == 0:
            os.lchown(path, account.uid, account.gid)
    program = server.bin / "pg_restore"
    with (
        tempfile.TemporaryFile() as messages,
        process.running(
            [program, "--file=-", copy], stdout=subprocess.PIPE, stderr=messages.fileno(), as_user=account
        ) as reader,
    ):
        assert reader.popen.stdout is not None
        script = PostgresScript(reader.popen.stdout, lambda _: False, functools.partial(_make_role, server))
        try:
            for _line in script:
                pass
        except SourceIncomplete as error:
            messages.seek(0)
            reason = messages.read().decode(errors="replace").strip() if reader.wait(LOAD_S) else error.evidence
            raise SourceIncomplete(f"{source.path} is damaged or truncated: {reason}", effect=UNTOUCHED) from error
        if reader.wait(LOAD_S):
            messages.seek(0)
            reason = _last(messages.read().decode(errors="replace"))
            raise SourceIncomplete(f"{source.path} cannot be read:\n{reason}", effect=UNTOUCHED)
    jobs = 1 if source.form == "pg_dump tar" else len(os.sched_getaffinity(0))
    argv: list[str | Path] = [program, "--no-owner", "--no-privileges", "--no-tablespaces", "--exit-on-error",
                              f"--jobs={jobs}", *_where(server), f"--dbname={server.database}", copy]  # fmt: skip
    done = process.run(argv, timeout_s=LOAD_S, as_user=account, ok=(0, 1))
    if done.returncode:  # the first error, with its statement; the last one says that a worker has ended
        lines = done.stderr[max(0, done.stderr.find("pg_restore: error:")) :].splitlines()[:_LINES]
        reason = "\n".join(f"  {line}" for line in lines)
        raise DatasetBuildFailed(f"{source.path} could not be restored:\n{reason}", effect="The copy was removed.")
    shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    return script.tables, {}


def _where(server: Server) -> list[str]:
    port = server.socket.name.rpartition(".")[2]
    return [f"--host={server.socket_dir}", f"--port={port}", f"--username={server.user}"]


def _database(server: Server, name: str = "") -> dict[str, str]:
    """Return the environment that names the database: an option would take a name with "=" for a connection string."""
    return {"PGDATABASE": name or server.database}


def tablespaces_of(server: Server) -> dict[str, str]:
    """Return the user-defined tablespaces: name -> OID."""
    return {str(name): str(oid) for oid, name in rows(
        server, "SELECT oid, spcname FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')")}  # fmt: skip


def _tablespace(server: Server, name: str) -> str:
    """Return the OID of the tablespace."""
    tablespaces = tablespaces_of(server)
    if name not in tablespaces:
        there = ", ".join(tablespaces) or "none"
        raise SourceIncomplete(f'the source has no tablespace "{name}" (tablespaces: {there})')
    return tablespaces[name]


def _adopted(server: Server, data: Path, wanted: str, tablespace: str) -> tuple[SourceChange, ...]:
    """Rename the database to `dbbench`, to which drivers connect: the one requested, otherwise the largest.

    Settings of the database would override those of the plan, so they are reset except for its search_path.
    """
    own_name = server.database
    sizes = {name: _bytes(data, oid, tablespace) for oid, name in rows(
        server, "SELECT oid, datname FROM pg_database WHERE NOT datistemplate", database="template1")}  # fmt: skip
    if wanted and wanted not in sizes:
        raise SourceIncomplete(f'the source has no database "{wanted}" (databases: {", ".join(sizes)})')
    others = {name: size for name, size in sizes.items() if name not in (own_name, "postgres")}
    filled = bool(rows(server, "SELECT 1 FROM pg_class WHERE relkind IN ('r', 'p') AND oid > 16383 LIMIT 1"))
    candidates = {own_name: sizes[own_name]} if filled else others or {"postgres": sizes["postgres"]}
    chosen = wanted or max(candidates, key=candidates.__getitem__)
    renamed: tuple[SourceChange, ...] = ()
    if chosen != own_name:
        _rename(server, chosen, own_name, filled)
        renamed = (SourceChange(SourceChangeKind.RENAMED, {"database": chosen, "name": own_name}),)
    for extension in EXTENSIONS:
        with contextlib.suppress(Exception):  # the contrib package may not be installed
            execute(server, f"CREATE EXTENSION IF NOT EXISTS {extension}")
    return (*renamed, *_reset(server))


def _rename(server: Server, chosen: str, own_name: str, filled: bool) -> None:
    gone = f'ALTER DATABASE {own_name} RENAME TO "{own_name}_of_source"' if filled else f"DROP DATABASE {own_name}"
    quoted = chosen.replace('"', '""')
    execute(server, gone, f'ALTER DATABASE "{quoted}" RENAME TO {own_name}', database="template1")
    if chosen == "postgres":  # dbbench connects to this database to find out whether a server answers
        execute(server, "CREATE DATABASE postgres", database="template1")


def _reset(server: Server) -> tuple[SourceChange, ...]:
    settings = rows(server, "SELECT unnest(setconfig) FROM pg_db_role_setting s"
                         " JOIN pg_database d ON d.oid = s.setdatabase"
                         " WHERE s.setrole = 0 AND d.datname = current_database()")  # fmt: skip
    names = [str(row[0]) for row in settings if not str(row[0]).startswith("search_path=")]
    for name in names:
        execute(server, f'ALTER DATABASE {server.database} RESET "{name.partition("=")[0]}"')
    return (SourceChange(SourceChangeKind.DATABASE_SETTINGS, {"settings": ", ".join(names)}),) if names else ()


def _bytes(data: Path, database: object, tablespace: str) -> int:
    roots = data.glob(f"pg_tblspc/{tablespace}/PG_*/{database}") if tablespace else [data / "base" / str(database)]
    return sum(file.stat().st_size for root in roots for file in root.glob("*"))


def _program(bin: Path | None, name: str) -> Path:
    return Path(postgres.programs(bin)[0]).with_name(name)


def _last(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines()[-_LINES:])
