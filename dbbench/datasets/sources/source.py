"""A source of data as a dataset that a cell can name, and the engines that can load it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.engines import profile_of
from dbbench.errors import DbbenchError, SourceUnusable
from dbbench.model import Dataset, Scalars

AGAIN: Final = (
    "Make the dump or backup again, and check the exit status of the program that makes it."
)
# Form -> (whether it consists of a server's files, size of the data directory ÷ size of the
# source), rounded up. A dump contains no indexes, and a custom one is compressed. Measured on
# tables of sysbench, and of orders with three indexes: 1.3 and 1.9 (plain, tar), 2.7 and 4.6
# (custom, directory), 1.5 and 2.2 (mysqldump, mydumper). Columns that repeat compress better:
# pgbench's tables are 56 times as large as a custom dump of them.
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
    # version of the server that wrote it, as precisely as the source contains it: "15.18", "15", ""
    version: str
    bytes: int
    identity: str
    page_size: int | None = None  # page size of a physical form, if one of its files contains it
    reader: int = 0  # major version of PostgreSQL from which on pg_restore can read the archive

    @property
    def physical(self) -> bool:
        """Whether it consists of a server's files and not of statements."""
        return FORMS[self.form][0]

    def dataset(
        self,
        tablespace: str = "",
        database: str = "",
        settle: bool = True,
        checksums: bool | None = None,
    ) -> Dataset:
        """Return it as a cell's dataset, whose identity excludes path and estimated size. `settle`,
        `checksums`: for physical copies, see `model.WorkloadSpec`.
        """
        parameters: Scalars = {
            "path": str(self.path),
            "form": self.form,
            "version": self.version,
            "identity": self.identity,
            "bytes": int(self.bytes * FORMS[self.form][1]),
        }
        chosen = {"tablespace": tablespace, "database": database}
        parameters |= {name: value for name, value in chosen.items() if value}
        if self.physical:
            parameters["settle"] = settle
        if checksums is not None:
            parameters["checksums"] = checksums
        return Dataset("source", parameters)


def unusable(why: str, remedy: str | None = None) -> DbbenchError:
    """Return the error for a source that cannot be loaded."""
    return SourceUnusable(why, effect="Nothing was changed.", remedy=remedy)


def damaged(path: object, why: object) -> DbbenchError:
    """Return the error for a file that does not end where it should, or cannot be read."""
    return unusable(f"{path} is damaged or truncated: {why}", AGAIN)


def fits(source: Source, engine: str, version: str, page_size: int) -> None:
    """Raise SourceUnusable if that version of the engine cannot load the source: files need the
    same release (PostgreSQL 15, MariaDB 10.11), a dump the same or a later one.
    """
    made_by = release(engine, source.version)
    ours = release(engine, version)
    for wrong, why, remedy in (
        # mydumper names no server
        (
            engine != source.engine and (source.form, engine) != ("mydumper", "mysql"),
            f"made by {source.engine}, but the engine is {engine}",
            f"Give each engine its source in [[workload]]: source = {{ {source.engine} = "
            f'"{source.path}" }}, or use engines = ["{source.engine}"].',
        ),
        (
            source.page_size not in (None, page_size),
            f"made with a page size of {source.page_size} bytes, but {engine} {version} uses "
            f"{page_size}",
            "Name a server that was built with that page size as `bin`, or use a dump.",
        ),
        (
            source.reader > ours[0],
            f"an archive for pg_restore {source.reader} or later, but the server is version "
            f"{version}",
            "Make a plain dump (pg_dump --format=plain), or name newer programs as `bin`.",
        ),
        (
            made_by and source.physical and made_by != ours,
            f"made by {engine} {'.'.join(map(str, made_by))}, but the server is version {version}",
            "Name the programs of that version as `bin` in [[engine]], or use a dump.",
        ),
        (
            made_by > ours,
            f"made by {engine} {source.version}, which is newer than the server ({version})",
            "Name the programs of that version or a newer one as `bin` in [[engine]].",
        ),
    ):
        if wrong:
            raise unusable(f"{source.path} ({source.form}) is {why}", remedy)


def places(dataset: Dataset) -> list[Path]:
    """Return the directories that building a copy must be able to read: the source and tablespaces
    outside of it.
    """
    if dataset.kind != "source":
        return []
    path = Path(str(dataset.parameters["path"]))
    links = path.glob("pg_tblspc/*") if path.is_dir() else ()
    return [
        path.parent,
        *(link.resolve().parent for link in links if link.is_symlink() and link.exists()),
    ]


def release(engine: str, version: str) -> tuple[int, ...]:
    """Return what decides whether files fit: PostgreSQL's major version, others' first two numbers;
    () if unknown.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    return numbers[: profile_of(engine).release_numbers]


def measure(path: Path, *more: Path) -> tuple[int, str]:
    """Return the size of all files in `path` and `more`, and a digest of their names, sizes and
    times. Times represent contents, which may be terabytes; the location does not matter. Raises
    SourceUnusable if a file cannot be read.
    """
    total = 0
    digest = hashlib.sha256()
    for number, root in enumerate((path, *more)):
        try:
            files = [root] if root.is_file() else sorted(root.rglob("*"))
            for file in files:
                if not file.is_file() or (file != root and file.is_symlink()):
                    continue
                name = file.relative_to(root).as_posix() if file != root else ""
                status = file.stat()
                total += status.st_size
                line = f"{number}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
                digest.update(line.encode())
        except OSError as error:
            raise unusable(f"{root} cannot be read: {error.strerror}") from None
    return total, digest.hexdigest()[:16]
