"""What lies at a path: a dump, a backup or a data directory of which server. Nothing there is changed."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import Final

from dbbench.datasets.sources import archive, folders
from dbbench.datasets.sources.source import UNTOUCHED, Source, measured
from dbbench.errors import SourceIncomplete, SourceMissing

HEAD: Final = 64 * 2**10  # bytes: dumps tell who wrote them in their first lines
_POSTGRES: Final = re.compile(rb"^-- PostgreSQL database (cluster )?dump", re.MULTILINE)
_POSTGRES_FROM: Final = re.compile(rb"^-- Dumped from database version (\d+(?:\.\d+)*)", re.MULTILINE)
_MYSQL: Final = re.compile(rb"^-- (MySQL|MariaDB) dump ", re.MULTILINE)
_MYSQL_FROM: Final = re.compile(rb"^-- Server version\s+(\d+\.\d+\.\d+)(\S*)", re.MULTILINE)
_PACKED: Final = {
    b"\x1f\x8b": "gzip: gunzip -k",
    b"\x28\xb5\x2f\xfd": "zstd: unzstd -k",
    b"BZh": "bzip2: bunzip2 -k",
    b"\xfd7zXZ": "xz: unxz -k",
    b"XBSTCK": "xbstream: mbstream -x",
}
KINDS: Final = ("a dump of pg_dump (plain, custom, directory, tar), mysqldump or mydumper, a backup of pg_basebackup "
                "(plain, tar), mariabackup or xtrabackup, or the data directory of a stopped server")  # fmt: skip


def look(path: Path) -> Source:
    """What lies at `path`. SourceMissing (nothing that is known), SourceInUse, SourceIncomplete."""
    path = path.absolute()
    if not path.exists():
        raise SourceMissing(f"{path} is not there", effect=UNTOUCHED, remedy="Correct `source` in [[workload]].")
    found = folders.looked(path) if path.is_dir() else _file(path)
    if found is None:
        raise SourceMissing(f"{path} is none of these: {KINDS}", effect=UNTOUCHED)
    return found


def _file(path: Path) -> Source | None:
    with path.open("rb") as file:
        head = file.read(HEAD)
    for magic, how in _PACKED.items():
        if head.startswith(magic):
            raise SourceIncomplete(
                f"{path} is packed by {how.partition(':')[0]}",
                effect=UNTOUCHED,
                remedy=f"Unpack it first: {how.partition(': ')[2]} {path.name}",
            )
    if head.startswith(archive.MAGIC):
        return _archive(path, head, "custom")
    if (toc := _member(path, "toc.dat")) is not None:
        return _archive(path, toc, "tar")
    return _postgres(path, head) or _mysql(path, head)


def _archive(path: Path, head: bytes, form: str) -> Source:
    told = archive.header(head)
    if told is None:
        raise SourceIncomplete(f"{path} begins as an archive of pg_dump and is cut off", effect=UNTOUCHED)
    return Source(path, f"pg_dump {form}", "postgres", told.server_version, *measured(path))


def _member(path: Path, name: str) -> bytes | None:
    """The first bytes of a member of a tar file; None where it is none, or has no such member first."""
    try:
        with tarfile.open(path, "r:") as tar:
            first = tar.next()
            file = tar.extractfile(first) if first is not None and first.name == name else None
            return file.read(HEAD) if file is not None else None
    except (tarfile.TarError, OSError):
        return None


def _postgres(path: Path, head: bytes) -> Source | None:
    if not _POSTGRES.search(head):
        return None
    version = _POSTGRES_FROM.search(head)
    return Source(path, "pg_dump plain", "postgres", version[1].decode() if version else "", *measured(path))


def _mysql(path: Path, head: bytes) -> Source | None:
    """By the server that it was taken from: MariaDB's tool dumps MySQL too."""
    if not (tool := _MYSQL.search(head)):
        return None
    told = _MYSQL_FROM.search(head)
    is_mariadb = b"MariaDB" in (told[2] if told else tool[1])
    version = told[1].decode() if told else ""
    return Source(path, "mysqldump", "mariadb" if is_mariadb else "mysql", version, *measured(path))
