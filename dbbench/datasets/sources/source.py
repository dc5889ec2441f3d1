"""A source of data as a dataset that a cell can name, and the engines that can load it. Directories are recognised: a
dump of many files, a backup, or the data directory of a stopped server."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.engines import profile_of
from dbbench.errors import DbbenchError, SourceIncomplete, SourceRefused
from dbbench.model import Dataset, Scalar

UNTOUCHED: Final = "Nothing was changed."

# Form -> (whether it consists of a server's files, size of the data directory ÷ size of the source), rounded up. A dump
# contains no indexes, and a custom one is compressed. Measured on tables of sysbench, and of orders with three indexes:
# 1.3 and 1.9 (plain, tar), 2.7 and 4.6 (custom, directory), 1.5 and 2.2 (mysqldump, mydumper). Columns that repeat
# compress better: pgbench's tables are 56 times as large as a custom dump of them.
FORMS: Final[dict[str, tuple[bool, float]]] = {
    "pg_dump plain": (False, 2.0),
    "pg_dump custom": (False, 6.0),
    "pg_dump directory": (False, 6.0),
    "pg_dump tar": (False, 2.0),
    "pg_basebackup plain": (True, 1.0),
    "pg_basebackup tar": (True, 1.0),
    "mysqldump": (False, 2.5),
    "mydumper": (False, 2.5),
    "mariabackup": (True, 1.0),
    "xtrabackup": (True, 1.0),
    "data directory": (True, 1.0),
}


@dataclass(frozen=True)
class Source:
    """The data at `path`. `identity` changes with the name, size or time of any of its files."""

    path: Path
    form: str  # one of FORMS
    engine: str
    version: str  # version of the server that wrote it, as precisely as the source contains it: "15.18", "15", ""
    bytes: int
    identity: str
    page_size: int | None = None  # page size of a physical form, if one of its files contains it
    reader: int = 0  # major version of PostgreSQL from which on pg_restore can read the archive

    @property
    def physical(self) -> bool:
        """Whether it consists of a server's files and not of statements."""
        return FORMS[self.form][0]


def dataset_of(
    source: Source, tablespace: str = "", database: str = "", settle: bool = True, checksums: bool | None = None
) -> Dataset:
    """Return the source as a cell's dataset. Its path and its estimated size are not part of its identity.

    `settle` and `checksums` are for physical copies: see `model.WorkloadSpec`.
    """
    parameters: dict[str, Scalar] = {
        "path": str(source.path),
        "form": source.form,
        "version": source.version,
        "identity": source.identity,
        "bytes": int(source.bytes * FORMS[source.form][1]),
    }
    chosen = {"tablespace": tablespace, "database": database}
    parameters |= {name: value for name, value in chosen.items() if value}
    if source.physical:
        parameters["settle"] = settle
    if checksums is not None:
        parameters["checksums"] = checksums
    return Dataset("source", parameters)


def fits(source: Source, engine: str, version: str, page_size: int) -> None:
    """Raise SourceIncomplete if that version of the engine cannot load the source.

    Files of a server require the same release (PostgreSQL 15, MariaDB 10.11); a dump requires the same or a later one.
    """
    if engine != source.engine and (source.form, engine) != ("mydumper", "mysql"):  # mydumper names no server
        raise _foreign(
            source,
            f"made by {source.engine}, but the engine is {engine}",
            f'Give each engine its source in [[workload]]: source = {{ {source.engine} = "{source.path}" }}, '
            f'or use engines = ["{source.engine}"].',
        )
    if source.page_size is not None and source.page_size != page_size:
        raise _foreign(
            source,
            f"made with a page size of {source.page_size} bytes, but {engine} {version} uses {page_size}",
            "Name a server that was built with that page size as `bin`, or use a dump.",
        )
    source_release, ours = release(engine, source.version), release(engine, version)
    if source.reader > ours[0]:
        why = f"an archive for pg_restore {source.reader} or later, but the server is version {version}"
        raise _foreign(source, why, "Make a plain dump (pg_dump --format=plain), or name newer programs as `bin`.")
    if not source_release:
        return
    if source.physical and source_release != ours:
        theirs = ".".join(map(str, source_release))
        raise _foreign(source, f"made by {engine} {theirs}, but the server is version {version}",
                       "Name the programs of that version as `bin` in [[engine]], or use a dump.")  # fmt: skip
    if source_release > ours:
        raise _foreign(source, f"made by {engine} {source.version}, which is newer than the server ({version})",
                       "Name the programs of that version or a newer one as `bin` in [[engine]].")  # fmt: skip


def places(dataset: Dataset) -> list[Path]:
    """Return the directories that building a copy must be able to read: the source and tablespaces outside of it."""
    if dataset.kind != "source":
        return []
    path = Path(str(dataset.parameters["path"]))
    links = path.glob("pg_tblspc/*") if path.is_dir() else ()
    return [path.parent, *(link.resolve().parent for link in links if link.is_symlink() and link.exists())]


def release(engine: str, version: str) -> tuple[int, ...]:
    """Return what decides whether files fit: PostgreSQL's major version, the first two numbers of others; () if
    unknown."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    return numbers[: profile_of(engine).release_numbers]


def measured(path: Path, *more: Path) -> tuple[int, str]:
    """Return the size of all files in `path` and `more`, and a digest of their names, sizes and times.

    Times represent contents, which may be terabytes; the location does not matter. Raises SourceIncomplete if a file
    cannot be read.
    """
    total, digest = 0, hashlib.sha256()
    for number, root in enumerate((path, *more)):
        for name, file in _files(root):
            status = file.stat()
            total += status.st_size
            digest.update(f"{number}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return total, digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    if root.is_file():
        yield "", root
        return
    try:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix(), path
    except OSError as error:
        raise SourceIncomplete(f"{root} cannot be read: {error.strerror}", effect=UNTOUCHED) from None


def _foreign(source: Source, why: str, remedy: str) -> DbbenchError:
    return SourceIncomplete(f"{source.path} ({source.form}) is {why}", effect=UNTOUCHED, remedy=remedy)


# Offset of the cluster's state in pg_control (pg_control.h), after the system identifier (8 bytes) and the versions of
# pg_control and of the catalogue (4 bytes each).
_STATE_AT: Final = 16
_STOPPED: Final = (1, 2)  # shut down; shut down in recovery (a standby)
CHECKPOINTS: Final = ("xtrabackup_checkpoints", "mariadb_backup_checkpoints")
INFOS: Final = ("xtrabackup_info", "mariadb_backup_info")
_FLAGS_AT: Final = 54  # offset in page 0: 38 bytes of page header, then 16 bytes of tablespace header (fsp0fsp.h)
_FULL_CRC32: Final = 0x10  # flag of MariaDB since 10.5, with which the lowest four bits are the page size
_FLOCK: Final = "hhqqi"  # struct flock
MAGIC: Final = b"PGDMP"
FORMATS: Final = {1: "custom", 3: "tar", 5: "directory"}
_DATE: Final = 7  # integers in the header for its date: seconds to year, daylight saving
_BY_ALGORITHM: Final = (1, 15)  # archive version since which a byte, not an integer, describes the compression
_READERS: Final = {(1, 15): 16, (1, 16): 17}  # archive version -> major version of PostgreSQL that introduced it
# What only MySQL writes into a schema, and not MariaDB: its collations, comments for version 8, integers without width.
_OF_MYSQL: Final = re.compile(
    rb"utf8mb4_0900|/\*!8\d{4} |^  `.*` (?:tiny|small|medium|big)?int(?! ?\()\b", re.MULTILINE
)
_FINISHED: Final = re.compile(r"^(?:# )?Finished dump at: \S+ \d\d:\d\d:\d\d$", re.MULTILINE)


def looked_at(path: Path) -> Source | None:
    """Return the source in the directory, or None if it is unknown. Raises SourceRefused, SourceIncomplete."""
    if (path / "PG_VERSION").is_file():
        return _cluster(path)
    if (path / "toc.dat").is_file():
        return _dump_directory(path)
    if tar := next(path.glob("base.tar*"), None):
        return _tars(path, tar)
    if any((path / name).is_file() for name in CHECKPOINTS):
        return _backup(path)
    if (path / "ibdata1").is_file():
        return _innodb(path)
    if any((path / name).is_file() for name in ("metadata", "metadata.partial")) and any(path.glob("*-schema*.sql*")):
        return _mydumper(path)
    return None


# --- PostgreSQL ------------------------------------------------------------------------------------


def _cluster(path: Path) -> Source:
    if (path / "postmaster.pid").exists():
        raise SourceRefused(
            f"{path} contains postmaster.pid: its server is running or was killed",
            effect=UNTOUCHED,
            remedy="Take a backup with pg_basebackup, or stop the server first.",
        )
    label = (path / "backup_label").is_file()
    try:
        control = (path / "global/pg_control").read_bytes()
        version = (path / "PG_VERSION").read_text().strip()
    except OSError as error:
        raise SourceIncomplete(f"{error.filename} cannot be read: {error.strerror}", effect=UNTOUCHED) from None
    state = int.from_bytes(control[_STATE_AT : _STATE_AT + 4], "little")
    if not label and state not in _STOPPED:
        raise SourceRefused(
            (
                f"{path} is neither a backup (it has no backup_label) nor the data directory of a server that was "
                "shut down"
            ),
            effect=UNTOUCHED,
            remedy="Take a backup with pg_basebackup, or stop the server cleanly first.",
        )
    _wal_is_there(path / "pg_wal")
    size = measured(path, *(target for _, target in tablespaces(path)))
    return Source(path, "pg_basebackup plain" if label else "data directory", "postgres", version, *size)


def tablespaces(cluster: Path) -> list[tuple[str, Path]]:
    """Return (OID, directory) of a cluster's tablespaces. Raises SourceIncomplete.

    If a link is dangling, a directory with the name of its target is searched for next to the cluster and in it.
    """
    folders, links = [], sorted((cluster / "pg_tblspc").glob("[0-9]*"))
    named = {link.name: Path(link.readlink() if link.is_symlink() else link) for link in links}
    if (table := cluster / "tablespace_map").is_file():
        lines = (line.partition(" ") for line in table.read_text().splitlines())
        named |= {oid: Path(to) for oid, _, to in lines if oid.isdecimal()}
    for oid, target in named.items():
        places = (cluster / "pg_tblspc" / oid, target, cluster.parent / target.name, cluster.parent / oid)
        here = next((place for place in places if any(place.glob("PG_*"))), None)
        if here is None:
            raise SourceIncomplete(
                f"tablespace {oid} of {cluster}, formerly at {target}, is missing",
                effect=UNTOUCHED,
                remedy=f"Put its directory next to the backup, as {cluster.parent / target.name}.",
            )
        folders.append((oid, here))
    return folders


def _wal_is_there(wal: Path) -> None:
    if not any(re.fullmatch("[0-9A-F]{24}", file.name) for file in wal.glob("*")):
        raise SourceIncomplete(
            f"{wal} contains no write-ahead log: the backup was taken without it",
            effect=UNTOUCHED,
            remedy="Take the backup with pg_basebackup -X stream, or copy the log to that directory.",
        )


def _tars(path: Path, base: Path) -> Source:
    suffix = base.name.removeprefix("base.tar")
    version = ""
    if suffix in ("", ".gz"):  # Python can read these; for others the server checks its version itself
        try:
            with tarfile.open(base, "r:*") as tar:
                files = (member for member in tar if member.isreg() and member.name.removeprefix("./") == "PG_VERSION")
                file = tar.extractfile(member) if (member := next(files, None)) else None
                version = file.read(20).decode().strip() if file else ""
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
            raise SourceIncomplete(f"{base} is damaged or truncated: {error}", effect=UNTOUCHED) from None
    return Source(path, "pg_basebackup tar", "postgres", version, *measured(path))


def _dump_directory(path: Path) -> Source:
    with (path / "toc.dat").open("rb") as file:
        dump_header = header_of(file.read(4096))
    if dump_header is None:
        raise SourceIncomplete(f"{path}/toc.dat is not a table of contents of pg_dump", effect=UNTOUCHED)
    if blob := next(path.glob("blob_*.dat"), None):
        raise SourceIncomplete(
            f"{blob.name} in {path} is a large object without compression, so nothing tells whether it is complete",
            effect=UNTOUCHED,
            remedy="Make the dump with compression, as pg_dump does by default, or with --format=custom.",
        )
    size = measured(path)
    return Source(path, "pg_dump directory", "postgres", dump_header.server_version, *size, reader=dump_header.reader)


# --- MariaDB and MySQL -----------------------------------------------------------------------------


def _backup(path: Path) -> Source:
    lines = _pairs(next(path / name for name in CHECKPOINTS if (path / name).is_file()))
    if lines.get("backup_type", "").startswith("incremental"):
        raise SourceIncomplete(
            f"{path} is an incremental backup",
            effect=UNTOUCHED,
            remedy=("Apply it to its full backup, and name the full backup."),
        )
    if packed := next(path.rglob("*.qp"), None) or next(path.rglob("*.xbstream"), None):
        raise SourceIncomplete(f"{packed} is compressed", effect=UNTOUCHED, remedy="Decompress the backup first.")
    info: dict[str, str] = {}
    for name in INFOS:
        info |= _pairs(path / name)
    is_mariadb = "MariaDB" in info.get("server_version", "") or "maria" in info.get("tool_name", "")
    version = re.match(r"\d+\.\d+\.\d+", info.get("server_version", ""))
    engine, form = ("mariadb", "mariabackup") if is_mariadb else ("mysql", "xtrabackup")
    return Source(path, form, engine, version[0] if version else "", *measured(path), _page_size(path / "ibdata1"))


def is_prepared(backup: Path) -> bool:
    """Whether its log was applied: `log-applied` by mariabackup, `full-prepared` by xtrabackup."""
    lines = [_pairs(backup / name) for name in CHECKPOINTS]
    return any(checkpoint.get("backup_type") in ("log-applied", "full-prepared") for checkpoint in lines)


def _innodb(path: Path) -> Source:
    if _locked(path / "ibdata1"):
        raise SourceRefused(
            f"{path}/ibdata1 is locked: its server is running",
            effect=UNTOUCHED,
            remedy="Take a backup with mariabackup or xtrabackup, or stop the server first.",
        )
    if len(systems := sorted(file.name for file in path.glob("ibdata*"))) > 1:
        raise SourceIncomplete(
            f"the system tablespace of {path} has several files: {', '.join(systems)}",
            effect=UNTOUCHED,
            remedy="Use a dump instead: such a tablespace requires its own innodb_data_file_path.",
        )
    is_mysql = (path / "mysql.ibd").is_file()  # MySQL's data dictionary since 8.0; MariaDB does not have one
    version = _mysql_version(path) if is_mysql else _mariadb_version(path)
    engine = "mysql" if is_mysql else "mariadb"
    return Source(path, "data directory", engine, version, *measured(path), _page_size(path / "ibdata1"))


def _mydumper(path: Path) -> Source:
    """Return the source of a mydumper dump, which does not contain the server's version."""
    metadata = path / "metadata"
    if (path / "metadata.partial").exists() or not _FINISHED.search(metadata.read_text(errors="replace")):
        raise SourceIncomplete(
            f"{path} is incomplete: mydumper did not finish it, according to its metadata",
            effect=UNTOUCHED,
            remedy="Make the dump again.",
        )
    is_mysql = any(_OF_MYSQL.search(_schema(file)) for file in sorted(path.glob("*-schema*.sql*"))[:20])
    return Source(path, "mydumper", "mysql" if is_mysql else "mariadb", "", *measured(path))


def _schema(file: Path) -> bytes:
    """Return the beginning of a file of mydumper; b"" of one that this cannot decompress."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return opened.read(2**16)
    except (EOFError, OSError):
        return b""


def _mysql_version(path: Path) -> str:
    try:
        history = json.loads((path / "mysql_upgrade_history").read_text())["upgrade_history"]
        return str(history[-1]["version"]).partition("-")[0]
    except (OSError, ValueError, KeyError, IndexError):
        return ""


def _mariadb_version(path: Path) -> str:
    for name in ("mariadb_upgrade_info", "mysql_upgrade_info"):
        if (path / name).is_file():
            version = re.match(r"\d+\.\d+\.\d+", (path / name).read_text(errors="replace"))
            return version[0] if version else ""
    return ""


def _page_size(tablespace: Path) -> int | None:
    try:
        with tablespace.open("rb") as file:
            flags = int.from_bytes(file.read(_FLAGS_AT + 4)[_FLAGS_AT:])
    except OSError:
        return None
    shift = flags & 0xF if flags & _FULL_CRC32 else flags >> 6 & 0xF
    return 512 << shift if shift else 16384


def _locked(file: Path) -> bool:
    """Whether a process has a lock on the file. This queries the lock and does not acquire it."""
    with file.open("rb") as opened:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind: int = struct.unpack_from("h", fcntl.fcntl(opened, fcntl.F_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def _pairs(file: Path) -> dict[str, str]:
    """Return `name = value` lines; {} if the file is missing."""
    if not file.is_file():
        return {}
    lines = file.read_text(errors="replace").splitlines()
    return {name.strip(): value.strip() for name, sign, value in (line.partition("=") for line in lines) if sign}


@dataclass(frozen=True)
class Header:
    """What the archive contains about itself."""

    format: str
    database: str
    server_version: str  # "15.18"
    reader: int = 0  # see `Source.reader`


def header_of(head: bytes) -> Header | None:
    """Return the header in the first bytes of an archive, or None if it is missing or truncated."""
    if not head.startswith(MAGIC) or len(head) < 11 or head[10] not in FORMATS:
        return None
    version, width, at = (head[5], head[6]), head[8], 11

    def integer() -> int:
        nonlocal at
        number = int.from_bytes(head[at + 1 : at + 1 + width], "little")
        at += 1 + width
        return -number if head[at - 1 - width] else number

    def string() -> str:
        nonlocal at
        length = max(0, integer())
        at += length
        return head[at - length : at].decode(errors="replace")

    try:
        if version >= _BY_ALGORITHM:
            at += 1
        else:
            integer()
        for _ in range(_DATE):
            integer()
        database, server, writer = string(), string(), string()
    except IndexError:
        return None
    digits = re.match(r"\d+(\.\d+)*", server)
    reader = _READERS.get(version, 0 if version < max(_READERS) else int("0" + writer.partition(".")[0]))
    return Header(FORMATS[head[10]], database, digits[0] if digits else "", reader)
