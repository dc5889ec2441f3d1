"""A source: what was found at a path, as a dataset that a cell can name, and which engine takes it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import SourceForeign, SourceMissing
from dbbench.model import Dataset, Scalar

UNTOUCHED: Final = "Nothing was changed."

# Form -> (whether it is files as the server has them, how many times its own size a data directory has: a dump has no
# indexes, and a custom one is compressed; sizes of the tables of pgbench and sysbench, rather too many).
FORMS: Final[dict[str, tuple[bool, float]]] = {
    "pg_dump plain": (False, 2.0),
    "pg_dump custom": (False, 6.0),
    "pg_dump directory": (False, 6.0),
    "pg_dump tar": (False, 2.0),
    "pg_basebackup plain": (True, 1.0),
    "pg_basebackup tar": (True, 1.0),
    "mysqldump": (False, 2.0),
    "mydumper": (False, 2.0),
    "mariabackup": (True, 1.0),
    "xtrabackup": (True, 1.0),
    "data directory": (True, 1.0),
}


@dataclass(frozen=True)
class Source:
    """What lies at `path`. `identity`: another one as soon as a file of it has another name, size or time."""

    path: Path
    form: str  # of FORMS
    engine: str
    version: str  # of the server that it is of, as far as it tells: "15.18", "15", ""
    bytes: int
    identity: str
    page_size: int | None = None  # of physical forms, where a file tells it

    @property
    def physical(self) -> bool:
        """Whether it is files as a server has them, and no statements."""
        return FORMS[self.form][0]


def dataset_of(source: Source, tablespace: str = "", database: str = "") -> Dataset:
    """The source as a cell's dataset. Its path and its estimated size do not make it another one."""
    own: dict[str, Scalar] = {
        "path": str(source.path),
        "form": source.form,
        "version": source.version,
        "identity": source.identity,
        "bytes": int(source.bytes * FORMS[source.form][1]),
    }
    chosen = {"tablespace": tablespace, "database": database}
    return Dataset("source", {**own, **{name: value for name, value in chosen.items() if value}})


def fits(source: Source, engine: str, version: str, page_size: int) -> None:
    """SourceForeign where that version of the engine cannot take it.

    Files of a server need the same release (PostgreSQL 15, MariaDB 10.11); a dump any that is not older.
    """
    if engine != source.engine and (source.form, engine) != ("mydumper", "mysql"):  # it does not tell its server
        raise _foreign(source, f"of {source.engine}, and the cell's engine is {engine}", f'Name its own: source = '
                               f'{{ {source.engine} = "{source.path}" }} in [[workload]], or engines = '
                               f'["{source.engine}"].')  # fmt: skip
    if source.page_size is not None and source.page_size != page_size:
        raise _foreign(source, f"made with pages of {source.page_size} bytes; {engine} {version} here has pages of "
                               f"{page_size}", "Name a server that was built with its page size as `bin`, or take a "
                               "dump.")  # fmt: skip
    theirs, ours = release(engine, source.version), release(engine, version)
    if not theirs:
        return
    if source.physical and theirs != ours:
        raise _foreign(source, f"of {engine} {_dotted(theirs)}; the server here is {version}",
                       "Name the programs of that version as `bin` in [[engine]], or take a dump.")  # fmt: skip
    if theirs > ours:
        raise _foreign(source, f"of {engine} {source.version}, later than the server here, {version}",
                       "Name the programs of that version or of a later one as `bin` in [[engine]].")  # fmt: skip


def places(dataset: Dataset) -> list[Path]:
    """The folders that must be seen where a copy of the dataset is built: the source's own, and tablespaces beside."""
    if dataset.kind != "source":
        return []
    path = Path(str(dataset.parameters["path"]))
    links = path.glob("pg_tblspc/*") if path.is_dir() else ()
    return [path.parent, *(link.resolve().parent for link in links if link.is_symlink() and link.exists())]


def release(engine: str, version: str) -> tuple[int, ...]:
    """What decides whether files fit: PostgreSQL's first number, the first two of the others; () where not known."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    return numbers[:1] if engine == "postgres" else numbers[:2]


def measured(path: Path, *more: Path) -> tuple[int, str]:
    """Bytes of all files below `path` and `more`, and a digest of their names, sizes and times.

    Times stand in for contents, which may be terabytes; where the files lie does not matter. SourceMissing where one
    cannot be read.
    """
    total, digest = 0, hashlib.sha256()
    for number, root in enumerate((path, *more)):
        for name, file in _files(root):
            found = file.stat()
            total += found.st_size
            digest.update(f"{number}/{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
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
        raise SourceMissing(f"{root} cannot be read: {error.strerror}", effect=UNTOUCHED) from None


def _foreign(source: Source, why: str, remedy: str) -> SourceForeign:
    return SourceForeign(f"{source.path} ({source.form}) is {why}", effect=UNTOUCHED, remedy=remedy)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
