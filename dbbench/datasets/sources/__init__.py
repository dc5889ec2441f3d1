"""The user's own data as a dataset: its format, whether an engine can load it, and its conversion into a data
directory.

The conversion copies or loads the source, chooses its database, and reports what was left out.

`look` recognises a dump, a backup or a data directory, and the server that it comes from, without changing it.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import tarfile
from pathlib import Path
from typing import Final, Protocol

from dbbench import process
from dbbench.datasets.sources import innodb, postgres
from dbbench.datasets.sources.scripts import incomplete
from dbbench.datasets.sources.source import (
    FORMS,
    MAGIC,
    UNTOUCHED,
    Source,
    dataset_of,
    fits,
    header_of,
    looked_at,
    measured,
    places,
)
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.port import Place, Server
from dbbench.errors import DbbenchError, ProgramMissing, SourceIncomplete
from dbbench.model import Dataset, EngineSpec, SourceChange, SourceChangeKind
from dbbench.packages import install, package_of
from dbbench.units import size_text

__all__ = [
    "FORMS",
    "Source",
    "dataset_of",
    "described",
    "fits",
    "kept_as_it_is",
    "laid",
    "loaded",
    "look",
    "of",
    "places",
    "programs",
    "sealed",
    "tablespaces_of",
    "text",
]
_TEXTS: Final = {
    SourceChangeKind.CONFIGURATION: "setting removed: {settings}; add it to `settings` of [[engine]] to keep it",
    SourceChangeKind.PERSISTED: "settings persisted by MySQL (mysqld-auto.cnf) are removed",
    SourceChangeKind.DATABASE_SETTINGS: "settings of the database are reset: {settings}",
    SourceChangeKind.RENAMED: "the database {database} is renamed to {name} in the copy",
    SourceChangeKind.CHOSEN: "the load uses the largest database, {database}",
    SourceChangeKind.CHECKSUMS: "data checksums were enabled in the copy",
    SourceChangeKind.CHECKSUMS_REMOVED: "data checksums were disabled in the copy",
    SourceChangeKind.NO_CHECKSUMS: "no data checksums, as in the source",
    SourceChangeKind.SETTLED: "{done} once, before the first trial",
    SourceChangeKind.NOT_SETTLED: "used as it is (settle = false): the first reads may also write",
    SourceChangeKind.SKIPPED: "left out of the dump: {statements}",
}
HEAD: Final = 64 * 2**10  # bytes; a dump names the program that wrote it in its first lines
_POSTGRES: Final = re.compile(rb"^-- PostgreSQL database (cluster )?dump", re.MULTILINE)
_POSTGRES_FROM: Final = re.compile(rb"^-- Dumped from database version (\d+(?:\.\d+)*)", re.MULTILINE)
_MYSQL: Final = re.compile(rb"^(?:\xef\xbb\xbf)?-- (MySQL|MariaDB) dump ", re.MULTILINE)
_MYSQL_FROM: Final = re.compile(rb"^-- Server version\s+(\d+\.\d+\.\d+)(\S*)", re.MULTILINE)
PACKED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd -k"),
    b"BZh": ("bzip2", "bunzip2 -k"),
    b"\xfd7zXZ": ("xz", "unxz -k"),
    b"\x5d\0\0": ("lzma", "unlzma -k"),
    b"LZIP": ("lzip", "lzip -dk"),
    b"\x89LZO": ("lzop", "lzop -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
    b"\x1f\x9d": ("compress", "uncompress -k"),
    b"PK\x03\x04": ("zip", "unzip"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
    b"Rar!": ("RAR", "unrar x"),
    b"XBSTCK": ("xbstream", "mbstream -x <"),
}
_TAR: Final = slice(257, 262)  # where a tar file has "ustar"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_SQL: Final = re.compile(rb"^(?:CREATE|INSERT INTO|COPY|USE|SET|/\*!\d+) ", re.MULTILINE)
_END: Final = 4096  # bytes at the end of a script, in which its closing line is
_POSTGRES_ENDS: Final = re.compile(
    rb"^-- PostgreSQL database (?:cluster )?dump complete\s*(?:^--\s*)?(?:^\\unrestrict \w+\s*)?\Z", re.MULTILINE
)
_MYSQL_ENDS: Final = re.compile(rb"^-- Dump completed.*\s*\Z", re.MULTILINE)
KINDS: Final = ("a dump of pg_dump (plain, custom, directory, tar), mysqldump or mydumper, a backup of pg_basebackup "
                "(plain, tar), mariabackup or xtrabackup, or the data directory of a stopped server")  # fmt: skip


class Dialect(Protocol):
    """The functions of this module for the dumps and copies of one dialect."""

    def programs(self, source: Source) -> tuple[str, ...]: ...
    def block_size(self, bin: Path | None) -> int: ...  # page size of the installed server
    def page_size(self, source: Source, bin: Path | None) -> int | None: ...
    def laid(self, source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]: ...
    def loaded(
        self, source: Source, server: Server, data: Path, wanted: str, tablespace: str
    ) -> tuple[SourceChange, ...]: ...
    def settled(self, server: Server) -> str: ...  # settles tables that were copied as files; returns what was done
    def sealed(self, data: Path, place: Place, checksums: bool | None) -> tuple[SourceChange, ...]: ...
    def tablespaces_of(self, server: Server) -> dict[str, str]: ...


_DIALECTS: Final[dict[str, Dialect]] = {"postgres": postgres, "mysql": innodb}


def of(dataset: Dataset, spec: EngineSpec) -> Source | None:
    """Return the source of a cell's dataset, inspected now; None for a generated dataset.

    Raises what `look` raises, SourceIncomplete also if it differs from the one in the plan, and ProgramMissing if a
    program for loading it is not installed.
    """
    if dataset.kind != "source":
        return None
    parameters = dataset.parameters
    source = look(Path(str(parameters["path"])))
    if source.identity != parameters["identity"]:
        raise SourceIncomplete(
            f"{source.path} has changed since the run was planned: files, sizes or times differ",
            effect="Nothing was built.",
            remedy="Start a new run of the plan with dbbench run --new.",
        )
    bin_ = Path(spec.bin) if spec.bin else None
    version = ENGINES[spec.name].installed(bin_)
    if version is None:
        raise ProgramMissing(
            f"{spec.name} is not installed", effect=UNTOUCHED, remedy=("Run dbbench doctor to see how to install it.")
        )
    page = profile_of(spec.name).page_bytes
    if profile_of(spec.name).dialect == profile_of(source.engine).dialect:
        page = _of(source).block_size(bin_)
        source = dataclasses.replace(source, page_size=_of(source).page_size(source, bin_))
    fits(source, spec.name, version, page)
    if spec.name == source.engine == "postgres":
        postgres.check_locales(source)
    if lacking := [name for name in programs(source) if process.find(name) is None]:
        packages = [package_of(name) or name for name in lacking]
        raise ProgramMissing(
            f"not installed: {', '.join(lacking)}, required for {source.form}",
            effect=UNTOUCHED,
            remedy=install(packages, "--no-install-recommends"),
        )
    return source


def programs(source: Source) -> tuple[str, ...]:
    """Return the programs that loading it needs in addition to the server's own."""
    return _of(source).programs(source)


def described(source: Source) -> str:
    """Describe the source in a few words."""
    version = f" {source.version}" if source.version else ""
    return f"{source.path}: {source.form} of {source.engine}{version}, {size_text(source.bytes)}"


def laid(source: Source, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Copy a physical source as a data directory; return what was left out."""
    return _of(source).laid(source, data, place)


def loaded(source: Source, dataset: Dataset, server: Server, data: Path) -> tuple[SourceChange, ...]:
    """Load a dump into the running server, choose the database for the drivers, and settle a physical copy; return
    further changes."""
    database = str(dataset.parameters.get("database", ""))
    tablespace = str(dataset.parameters.get("tablespace", ""))
    changes = _of(source).loaded(source, server, data, database, tablespace)
    if kept_as_it_is(dataset):
        return (*changes, SourceChange(SourceChangeKind.NOT_SETTLED))
    if not source.physical:
        return changes
    return (*changes, SourceChange(SourceChangeKind.SETTLED, {"done": _of(source).settled(server)}))


def kept_as_it_is(dataset: Dataset) -> bool:
    """Return whether the plan says `settle = false`: a physical copy is then neither vacuumed nor purged."""
    return dataset.parameters.get("settle") is False


def sealed(source: Source, dataset: Dataset, data: Path, place: Place) -> tuple[SourceChange, ...]:
    """Change the data checksums of the stopped server's files if the plan asks for it; those of a dump are enabled."""
    asked = dataset.parameters.get("checksums")
    return _of(source).sealed(data, place, None if asked is None else bool(asked)) if source.physical else ()


def text(change: SourceChange) -> str:
    """Describe what was left out or changed."""
    return _TEXTS[change.kind].format(**change.values)


def tablespaces_of(server: Server) -> dict[str, str]:
    """Return PostgreSQL's user-defined tablespaces: name -> OID; {} for other engines."""
    dialect = _DIALECTS.get(profile_of(server.engine).dialect)
    return dialect.tablespaces_of(server) if dialect is not None else {}


def _of(source: Source) -> Dialect:
    return _DIALECTS[profile_of(source.engine).dialect]


def look(path: Path) -> Source:
    """Return the source at `path`. Raises SourceIncomplete (also for an unknown format), SourceRefused."""
    path = path.absolute()
    if not path.exists():
        raise SourceIncomplete(f"{path} does not exist", effect=UNTOUCHED, remedy="Correct `source` in [[workload]].")
    source = looked_at(path) if path.is_dir() else _file(path)
    if source is None:
        raise SourceIncomplete(f"the format of {path} is unknown; supported are {KINDS}", effect=UNTOUCHED)
    return source


def _file(path: Path) -> Source | None:
    with path.open("rb") as file:
        head = file.read(HEAD)
    for magic, (packer, command) in PACKED.items():
        if head.startswith(magic):
            raise _unread(path, f"compressed with {packer}", f"Decompress it first: {command} {shlex.quote(path.name)}")
    if head.startswith(MAGIC):
        return _archive(path, head, "custom")
    if (toc := _member(path, "toc.dat")) is not None:
        _must_be_whole(path)
        return _archive(path, toc, "tar")
    if head[_TAR] == b"ustar":
        raise _unread(path, "a tar archive", f"Unpack it first: tar -xf {shlex.quote(path.name)}")
    if head.startswith(_WIDE):
        convert = f"Convert it: iconv -f UTF-16 -t UTF-8 {shlex.quote(path.name)} > utf8.sql"
        raise _unread(path, "encoded as UTF-16", f"{convert} (--result-file or --file prevents it in PowerShell).")
    if source := _postgres(path, head) or _mysql(path, head):
        return source
    if _SQL.search(head):
        what = "an SQL script without the comments of pg_dump or mysqldump, which name its server and mark its end"
        raise _unread(path, what, "Make the dump again, without --compact or --skip-comments.")
    return None


def _unread(path: Path, what: str, remedy: str) -> DbbenchError:
    return SourceIncomplete(f"{path} is {what}", effect=UNTOUCHED, remedy=remedy)


def _must_end(path: Path, closing: re.Pattern[bytes]) -> None:
    """Raise SourceIncomplete if a script does not end with the line that its writer puts there at last."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        if not closing.search(file.read()):
            raise incomplete(f"the closing comment at the end of {path} is missing")


def _archive(path: Path, head: bytes, form: str) -> Source:
    archive_header = header_of(head)
    if archive_header is None:
        raise SourceIncomplete(f"{path} is a truncated archive of pg_dump", effect=UNTOUCHED)
    version, reader = archive_header.server_version, archive_header.reader
    return Source(path, f"pg_dump {form}", "postgres", version, *measured(path), reader=reader)


def _member(path: Path, name: str) -> bytes | None:
    """Return the first bytes of a member of a tar file; None if it is not a tar file or does not begin with that
    member."""
    try:
        with tarfile.open(path, "r:") as tar:
            first = tar.next()
            file = tar.extractfile(first) if first is not None and first.isreg() and first.name == name else None
            return file.read(HEAD) if file is not None else None
    except (tarfile.TarError, OSError):
        return None


def _must_be_whole(path: Path) -> None:
    """Raise SourceIncomplete for a truncated tar file, which pg_restore may read forever."""
    try:
        with tarfile.open(path, "r:") as tar:
            end = max(member.offset_data + member.size for member in tar)
    except tarfile.TarError:
        raise incomplete(f"{path} is a truncated tar file") from None
    blocks = -(-end // tarfile.BLOCKSIZE) + 2  # two empty blocks end an archive
    if path.stat().st_size < blocks * tarfile.BLOCKSIZE:
        raise incomplete(f"{path} is a truncated tar file")


def _postgres(path: Path, head: bytes) -> Source | None:
    if not _POSTGRES.search(head):
        return None
    _must_end(path, _POSTGRES_ENDS)
    version = _POSTGRES_FROM.search(head)
    return Source(path, "pg_dump plain", "postgres", version[1].decode() if version else "", *measured(path))


def _mysql(path: Path, head: bytes) -> Source | None:
    """Return the source according to the server in the dump: MariaDB's tool also dumps MySQL."""
    if not (tool := _MYSQL.search(head)):
        return None
    _must_end(path, _MYSQL_ENDS)
    version_match = _MYSQL_FROM.search(head)
    is_mariadb = b"MariaDB" in (version_match[2] if version_match else tool[1])
    version = version_match[1].decode() if version_match else ""
    return Source(path, "mysqldump", "mariadb" if is_mariadb else "mysql", version, *measured(path))
