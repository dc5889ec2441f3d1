"""Recognise a dump, a backup or a data directory, and the server that it comes from, without
changing it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import re
import shlex
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Final

from dbbench.datasets.sources.source import AGAIN, Source, damaged, measure, unusable
from dbbench.errors import DbbenchError, SourceRefused

KINDS: Final = (
    "a dump of pg_dump (plain, custom, directory, tar), mysqldump or mydumper, a backup of "
    "pg_basebackup (plain, tar), mariabackup or xtrabackup, or the data directory of a stopped "
    "server"
)
_SHOWN: Final = 60  # bytes of a file in a message
HEAD: Final = 64 * 2**10  # bytes; a dump names the program that wrote it in its first lines
# First bytes -> the packer, and the command that unpacks a file, whatever its name ends with.
_PACKED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip -c < {name} > {unpacked}"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd -c < {name} > {unpacked}"),
    b"BZh": ("bzip2", "bunzip2 -c < {name} > {unpacked}"),
    b"\xfd7zXZ": ("xz", "unxz -c < {name} > {unpacked}"),
    b"\x5d\0\0": ("lzma", "unlzma -c < {name} > {unpacked}"),
    b"LZIP": ("lzip", "lzip -dc < {name} > {unpacked}"),
    b"\x89LZO": ("lzop", "lzop -dc < {name} > {unpacked}"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc < {name} > {unpacked}"),
    b"\x1f\x9d": ("compress", "uncompress -c < {name} > {unpacked}"),
    b"PK\x03\x04": ("zip", "unzip {name}"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x {name}"),
    b"Rar!": ("RAR", "unrar x {name}"),
    b"XBSTCK": ("xbstream", "mbstream -x < {name}"),
}
_SUFFIXES: Final = (".gz", ".zst", ".bz2", ".xz", ".lzma", ".lz", ".lzo", ".lz4", ".Z")
# Endings of the files of xtrabackup --compress, --encrypt and --stream.
_PACKED_BACKUP: Final = (".qp", ".zst", ".lz4", ".xbcrypt", ".xbstream")
_TAR: Final = slice(257, 262)  # where a tar file has "ustar"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_SQL: Final = re.compile(rb"^(?:CREATE|INSERT INTO|COPY|USE|SET|/\*!\d+) ", re.MULTILINE)
_POSTGRES: Final = re.compile(rb"^-- PostgreSQL database (cluster )?dump", re.MULTILINE)
_POSTGRES_FROM: Final = re.compile(
    rb"^-- Dumped from database version (\d+(?:\.\d+)*)", re.MULTILINE
)
_POSTGRES_ENDS: Final = re.compile(
    rb"^-- PostgreSQL database (?:cluster )?dump complete\s*(?:^--\s*)?(?:^\\unrestrict \w+\s*)?\Z",
    re.MULTILINE,
)
_MYSQL: Final = re.compile(rb"^(?:\xef\xbb\xbf)?-- (MySQL|MariaDB) dump ", re.MULTILINE)
_MYSQL_FROM: Final = re.compile(rb"^-- Server version\s+(\d+\.\d+\.\d+)(\S*)", re.MULTILINE)
_MYSQL_ENDS: Final = re.compile(rb"^-- Dump completed.*\s*\Z", re.MULTILINE)
_END: Final = 4096  # bytes at the end of a script, in which its closing line is
# Archives of pg_dump.
MAGIC: Final = b"PGDMP"
FORMATS: Final = (1, 3, 5)  # custom, tar, directory
_DATE: Final = 7  # integers in the header for its date: seconds to year, daylight saving
# archive version since which a byte, not an integer, describes the compression
_BY_ALGORITHM: Final = (1, 15)
# archive version -> major version of PostgreSQL that introduced it
_READERS: Final = {(1, 15): 16, (1, 16): 17}
# Offset of the cluster's state in pg_control (pg_control.h), after the system identifier (8 bytes)
# and the versions of pg_control and of the catalogue (4 bytes each).
_STATE_AT: Final = 16
_STOPPED: Final = (1, 2)  # shut down; shut down in recovery (a standby)
CHECKPOINTS: Final = ("xtrabackup_checkpoints", "mariadb_backup_checkpoints")
INFOS: Final = ("xtrabackup_info", "mariadb_backup_info")
# offset in page 0: 38 bytes of page header, then 16 bytes of tablespace header (fsp0fsp.h)
_FLAGS_AT: Final = 54
# flag of MariaDB since 10.5, with which the lowest four bits are the page size
_FULL_CRC32: Final = 0x10
_FLOCK: Final = "hhqqi"  # struct flock
# What only MySQL writes into a schema, and not MariaDB: its collations, comments for version 8,
# integers without width.
_OF_MYSQL: Final = re.compile(
    rb"utf8mb4_0900|/\*!8\d{4} |^  `.*` (?:tiny|small|medium|big)?int(?! ?\()\b", re.MULTILINE
)
_FINISHED: Final = re.compile(r"^(?:# )?Finished dump at: \S+ \d\d:\d\d:\d\d$", re.MULTILINE)


def look(path: Path) -> Source:
    """Return the source at `path`. Raises SourceUnusable (also for an unknown format),
    SourceRefused.
    """
    path = path.absolute()
    if not path.exists():
        raise unusable(
            f"{path} does not exist",
            "Correct `source` in [[workload]]: a path without ~, and no URL.",
        )
    source = _directory(path) if path.is_dir() else _file(path)
    if source is None:
        raise unusable(
            f"the format of {path} is unknown{_beginning(path)}; supported are {KINDS}",
            "Make a dump with pg_dump or mysqldump, or correct `source` in [[workload]].",
        )
    return source


def _beginning(path: Path) -> str:
    """Return the first characters of a file for a message; those that cannot be printed are dots."""
    if path.is_dir():
        return ""
    with path.open("rb") as file:
        printed = re.sub(rb"[^ -~]", b".", file.read(_SHOWN)).decode()
    if printed:
        return f': it begins with "{printed}"'
    return ": it is empty"


def _directory(path: Path) -> Source | None:
    if (path / "PG_VERSION").is_file():
        return _cluster(path)
    if (path / "toc.dat").is_file():
        return _dump_directory(path)
    tar = next(path.glob("base.tar*"), None)
    if tar:
        return _tars(path, tar)
    if any((path / name).is_file() for name in CHECKPOINTS):
        return _backup(path)
    if (path / "ibdata1").is_file():
        return _innodb(path)
    has_metadata = any((path / name).is_file() for name in ("metadata", "metadata.partial"))
    if has_metadata and any(path.glob("*-schema*.sql*")):
        return _mydumper(path)
    return None


def find_packer(path: Path, head: bytes) -> tuple[str, str] | None:
    """Return the name of a packer and the command that unpacks the file, which begins with `head`;
    None if it is not packed.
    """
    for magic, (packer, command) in _PACKED.items():
        if head.startswith(magic):
            ending = path.suffix in _SUFFIXES
            unpacked = path.with_suffix("") if ending else path.with_name(f"unpacked-{path.name}")
            names = {"name": shlex.quote(str(path)), "unpacked": shlex.quote(str(unpacked))}
            return packer, command.format(**names)
    return None


def _file(path: Path) -> Source | None:
    with path.open("rb") as file:
        head = file.read(HEAD)
    name = shlex.quote(path.name)
    if unpacking := find_packer(path, head):
        packer, command = unpacking
        raise unusable(f"{path} is compressed with {packer}", f"Decompress it first:  {command}")
    if head.startswith(MAGIC):
        return _archive(path, path, head, "custom")
    toc = _toc_in_tar(path)
    if toc is not None:
        return _archive(path, path, toc, "tar")
    if head[_TAR] == b"ustar":
        raise unusable(f"{path} is a tar archive", f"Unpack it first: tar -xf {name}")
    if head.startswith(_WIDE):
        raise unusable(
            f"{path} is encoded as UTF-16",
            f"Convert it: iconv -f UTF-16 -t UTF-8 {name} > utf8.sql "
            "(--result-file or --file prevents it in PowerShell).",
        )
    if _POSTGRES.search(head):
        _check_end(path, _POSTGRES_ENDS)
        server = _POSTGRES_FROM.search(head)
        version = server[1].decode() if server else ""
        return Source(path, "pg_dump plain", "postgres", version, *measure(path))
    tool = _MYSQL.search(head)
    if tool:
        _check_end(path, _MYSQL_ENDS)
        server = _MYSQL_FROM.search(head)
        version = server[1].decode() if server else ""
        maker = server[2] if server else tool[1]  # MariaDB's tool also dumps MySQL
        engine = "mariadb" if b"MariaDB" in maker else "mysql"
        return Source(path, "mysqldump", engine, version, *measure(path))
    if _SQL.search(head):
        raise unusable(
            f"{path} is an SQL script without the comments of pg_dump or mysqldump, which name "
            "its server and mark its end",
            "Make the dump again, without --compact or --skip-comments.",
        )
    return None


def _check_end(path: Path, closing: re.Pattern[bytes]) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        if not closing.search(file.read()):
            raise unusable(
                f"the dump is incomplete: the closing comment at the end of {path} is missing",
                AGAIN,
            )


def _toc_in_tar(path: Path) -> bytes | None:
    """Return the first bytes of the table of contents that a dump in a tar file begins with; None
    for another file. Raises SourceUnusable for a truncated one, which pg_restore may read
    forever.
    """
    toc = None
    end = path.stat().st_size
    with contextlib.suppress(tarfile.TarError, OSError), tarfile.open(path, "r:") as tar:
        first = tar.next()
        if (
            first is None
            or not first.isreg()
            or first.name != "toc.dat"
            or (file := tar.extractfile(first)) is None
        ):
            return None
        toc = file.read(HEAD)
        end = max(member.offset_data + member.size for member in tar)
    blocks = -(-end // tarfile.BLOCKSIZE) + 2  # two empty blocks end an archive
    if toc is not None and path.stat().st_size < blocks * tarfile.BLOCKSIZE:
        raise unusable(f"the dump is incomplete: {path} is a truncated tar file", AGAIN)
    return toc


def _archive(path: Path, file: Path, head: bytes, form: str) -> Source:
    """Return an archive of pg_dump; `head` is the beginning of its table of contents, in `file`."""
    header = header_of(head)
    if header is None:
        raise unusable(f"{file} is a truncated archive of pg_dump, or none")
    version, reader = header
    return Source(
        path,
        f"pg_dump {form}",
        "postgres",
        version,
        *measure(path),
        reader=reader,
    )


def _dump_directory(path: Path) -> Source:
    blob = next(path.glob("blob_*.dat"), None)
    if blob:
        raise unusable(
            f"{blob.name} in {path} is a large object without compression, so nothing tells "
            "whether it is complete",
            "Make the dump with compression, as pg_dump does by default, or with --format=custom.",
        )
    with (path / "toc.dat").open("rb") as file:
        return _archive(path, path / "toc.dat", file.read(HEAD), "directory")


def header_of(head: bytes) -> tuple[str, int] | None:
    """Return the server's version ("15.18") and `Source.reader` of an archive from its first bytes;
    None if they are not an archive's, or not complete. An integer is a byte for its sign and
    `width` others.
    """
    if not head.startswith(MAGIC) or len(head) < 11 or head[10] not in FORMATS:
        return None
    version = (head[5], head[6])
    width = head[8]
    compression = 1 if version >= _BY_ALGORITHM else 1 + width
    offset = 11 + compression + _DATE * (1 + width)
    texts = []  # names of the database, of the server's version and of pg_dump's
    for _ in range(3):
        length = 0
        begin = offset + 1 + width
        if head[offset : offset + 1] == b"\0":
            length = int.from_bytes(head[offset + 1 : begin], "little")
        offset = begin + length
        texts.append(head[begin:offset].decode(errors="replace"))
    if offset > len(head):
        return None
    digits = re.match(r"\d+(\.\d+)*", texts[1])
    writer = re.match(r"[0-9]{1,4}", texts[2])  # "19beta1", for example
    later = int(writer[0]) if writer and version > max(_READERS) else 0
    return digits[0] if digits else "", _READERS.get(version, later)


def _in_use(why: str, remedy: str) -> DbbenchError:
    return SourceRefused(why, remedy=f"Take a backup with {remedy}")


def _cluster(path: Path) -> Source:
    if (path / "postmaster.pid").exists():
        raise _in_use(
            f"{path} contains postmaster.pid: its server is running or was killed",
            "pg_basebackup, or stop the server first.",
        )
    label = (path / "backup_label").is_file()
    try:
        control = (path / "global/pg_control").read_bytes()
        version = (path / "PG_VERSION").read_text().strip()
    except OSError as error:
        raise unusable(f"{error.filename} cannot be read: {error.strerror}") from None
    state = int.from_bytes(control[_STATE_AT : _STATE_AT + 4], "little")
    if not label and state not in _STOPPED:
        raise _in_use(
            f"{path} is neither a backup (it has no backup_label) nor the data directory of a "
            "stopped server",
            "pg_basebackup, or stop the server cleanly first.",
        )
    if not any(re.fullmatch("[0-9A-F]{24}", file.name) for file in (path / "pg_wal").glob("*")):
        raise unusable(
            f"{path}/pg_wal contains no write-ahead log: the backup was taken without it",
            "Take the backup with pg_basebackup -X stream, or copy the log to that directory.",
        )
    size = measure(path, *(target for _, target in tablespaces(path)))
    return Source(
        path, "pg_basebackup plain" if label else "data directory", "postgres", version, *size
    )


def tablespaces(cluster: Path) -> list[tuple[str, Path]]:
    """Return (OID, directory) of a cluster's tablespaces; for a dangling link, a directory with the
    name of its target in or next to the cluster. Raises SourceUnusable.
    """
    folders = []
    links = sorted((cluster / "pg_tblspc").glob("[0-9]*"))
    named = {link.name: Path(link.readlink() if link.is_symlink() else link) for link in links}
    map_file = cluster / "tablespace_map"
    if map_file.is_file():
        for line in map_file.read_text().splitlines():
            oid, _, target = line.partition(" ")
            if oid.isdecimal():
                named[oid] = Path(target)
    for oid, former in named.items():
        candidates = (
            cluster / "pg_tblspc" / oid,
            former,
            cluster.parent / former.name,
            cluster.parent / oid,
        )
        present = [folder for folder in candidates if any(folder.glob("PG_*"))]
        if not present:
            raise unusable(
                f"tablespace {oid} of {cluster}, formerly at {former}, is missing",
                f"Put its directory next to the backup, as {cluster.parent / former.name}.",
            )
        folders.append((oid, present[0]))
    return folders


def _tars(path: Path, base: Path) -> Source:
    version = ""
    # of others the server checks the version itself
    if base.name.removeprefix("base.tar") in ("", ".gz"):
        try:
            with tarfile.open(base, "r:*") as tar:
                for member in tar:
                    if member.isreg() and member.name.removeprefix("./") == "PG_VERSION":
                        file = tar.extractfile(member)
                        version = file.read(20).decode().strip() if file else ""
                        break
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
            raise damaged(base, error) from None
    return Source(path, "pg_basebackup tar", "postgres", version, *measure(path))


def _backup(path: Path) -> Source:
    if _pairs(path, CHECKPOINTS).get("backup_type", "").startswith("incremental"):
        raise unusable(
            f"{path} is an incremental backup",
            "Apply it to its full backup, and name the full backup.",
        )
    is_packed = (file for file in path.rglob("*") if file.suffix in _PACKED_BACKUP)
    if file := next(is_packed, None):
        raise unusable(
            f"{file} is compressed or encrypted",
            "Unpack the backup with the program that made it:  xtrabackup --decompress "
            f"--target-dir={shlex.quote(str(path))}",
        )
    info = _pairs(path, INFOS)
    is_mariadb = "MariaDB" in info.get("server_version", "") or "maria" in info.get("tool_name", "")
    engine, form = ("mariadb", "mariabackup") if is_mariadb else ("mysql", "xtrabackup")
    version = _three_numbers(info.get("server_version", ""))
    return Source(
        path,
        form,
        engine,
        version,
        *measure(path),
        _page_size(path / "ibdata1"),
    )


def has_applied_log(backup: Path) -> bool:
    """Whether its log was applied: `log-applied` by mariabackup, `full-prepared` by xtrabackup."""
    return _pairs(backup, CHECKPOINTS).get("backup_type") in ("log-applied", "full-prepared")


def _innodb(path: Path) -> Source:
    if _has_lock(path / "ibdata1"):
        raise _in_use(
            f"{path}/ibdata1 is locked: its server is running",
            "mariabackup or xtrabackup, or stop the server first.",
        )
    systems = sorted(file.name for file in path.glob("ibdata*"))
    if len(systems) > 1:
        raise unusable(
            f"the system tablespace of {path} has several files: {', '.join(systems)}",
            "Use a dump instead: such a tablespace requires its own innodb_data_file_path.",
        )
    engine = "mariadb"
    version = ""
    # MySQL's data dictionary since 8.0; MariaDB does not have one
    if (path / "mysql.ibd").is_file():
        engine = "mysql"
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            history = json.loads((path / "mysql_upgrade_history").read_text())["upgrade_history"]
            version = str(history[-1]["version"]).partition("-")[0]
    else:
        for name in ("mysql_upgrade_info", "mariadb_upgrade_info"):  # the last one counts
            if (path / name).is_file():
                version = _three_numbers((path / name).read_text(errors="replace"))
    return Source(
        path, "data directory", engine, version, *measure(path), _page_size(path / "ibdata1")
    )


def _mydumper(path: Path) -> Source:
    partial = (path / "metadata.partial").exists()
    if partial or not _FINISHED.search((path / "metadata").read_text(errors="replace")):
        raise unusable(
            f"{path} is incomplete: mydumper did not finish it, according to its metadata", AGAIN
        )
    schemas = sorted(path.glob("*-schema*.sql*"))[:20]
    is_mysql = any(_OF_MYSQL.search(_schema(file)) for file in schemas)
    return Source(
        path,
        "mydumper",
        "mysql" if is_mysql else "mariadb",
        "",
        *measure(path),
    )


def _schema(file: Path) -> bytes:
    """Return the beginning of a file of mydumper; b"" of one that this cannot decompress."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return opened.read(HEAD)
    except (EOFError, OSError):
        return b""


def _three_numbers(text: str) -> str:
    version = re.match(r"\d+\.\d+\.\d+", text)
    return version[0] if version else ""


def _page_size(tablespace: Path) -> int | None:
    try:
        with tablespace.open("rb") as file:
            flags = int.from_bytes(file.read(_FLAGS_AT + 4)[_FLAGS_AT:])
    except OSError:
        return None
    shift = flags & 0xF if flags & _FULL_CRC32 else flags >> 6 & 0xF
    return 512 << shift if shift else 16384


def _has_lock(file: Path) -> bool:
    """Whether a process has a lock on the file. This queries the lock and does not acquire it."""
    with file.open("rb") as opened:
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind: int = struct.unpack_from("h", fcntl.fcntl(opened, fcntl.F_GETLK, lock))[0]
    return kind != fcntl.F_UNLCK


def _pairs(backup: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the lines "name = value" of those of the files that exist."""
    files = [backup / name for name in names if (backup / name).is_file()]
    text = "\n".join(file.read_text(errors="replace") for file in files)
    return dict(re.findall(r"^([^=\n]*?)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
