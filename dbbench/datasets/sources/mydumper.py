"""The files of a dump of mydumper: in which order they are loaded, into which databases, and whether
one is missing.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dbbench.datasets.sources import safe_files
from dbbench.datasets.sources.mysql_script import (
    BACKTICKS,
    ROWS_BEGIN,
    changes_server,
    is_of_server,
    refusal,
    unquote,
    without_definer,
)
from dbbench.datasets.sources.scripts import (
    Tables,
    change_of,
    incomplete,
    left_out,
    refuse_empty,
    shown,
)
from dbbench.datasets.sources.source import AGAIN, unusable
from dbbench.engines.innodb import SYSTEM_SCHEMAS
from dbbench.model import SourceChange, SourceChangeKind

# Kinds of files of mydumper in the order in which they are loaded; "" are the rows.
CREATE, SEQUENCE, TABLE, ROWS, VIEW = range(5)
STEPS: Final = (
    "-schema-create",
    "-schema-sequence",
    "-schema",
    "",
    "-schema-view",
    "-schema-triggers",
    "-schema-post",
)
_ROWS: Final = (*ROWS_BEGIN, b"(", b",")
_COUNTS: Final = re.compile(r"^\[`(.+)`\.`(.+)`\]\n(?:(?!\[).*\n)*?rows ?= ?(\d+)", re.MULTILINE)
_DATABASE: Final = re.compile(rb"CREATE DATABASE .*?" + BACKTICKS)
_CREATED: Final = re.compile(
    rb"^CREATE (?:TABLE|SEQUENCE)(?: IF NOT EXISTS)? " + BACKTICKS, re.MULTILINE
)
_SAVED: Final = re.compile(rb"SET .*@PREV_COLLATION_CONNECTION\b")
# in no statement: a line of mydumper that ends with ";" ends a statement
DELIMITER: Final = "//dbbench//"
_MOST_LISTED: Final = 6  # tables in a message


@dataclass(frozen=True)
class MydumperFiles:
    """The files of a directory: the step of each, its database unless that is a system schema, and
    the file that makes each database. `skipped`: statements that `lines` has left out.
    """

    folder: Path
    step_of: dict[Path, int]
    database_of: dict[Path, str]
    maker_of: dict[str, Path]
    skipped: dict[str, None] = field(default_factory=dict)

    def has_routines(self, path: Path) -> bool:
        """Whether a file has views, triggers or routines."""
        return self.step_of[path] >= VIEW

    def lines(self, path: Path) -> Iterator[bytes]:
        """Yield the lines of a file. Raises SourceRefused, and SourceUnusable if it ends too early."""
        for line in _lines(self.folder, path, self.has_routines(path)):
            has_rows = line.startswith(_ROWS)
            if has_rows and changes_server(line):
                raise refusal(path.name)
            if has_rows or not is_of_server(line):
                yield line
            else:
                self.skipped[shown(line)] = None
                yield b"\n"

    def tables(self) -> Tables:
        """Return the tables and sequences, with the numbers of rows that newer versions of mydumper
        write down. Raises SourceUnusable if rows or a file of them are missing. An older version writes no
        file for an empty table or a part of a table without rows, so its files do not say which is
        the case.
        """
        tables: Tables = {}
        counts = _COUNTS.findall((self.folder / "metadata").read_text(errors="replace"))
        numbers = {(database, table): int(number) for database, table, number in counts}
        steps = self.step_of
        views = {path.name.partition("-schema-view.")[0] for path in steps if steps[path] == VIEW}
        parts = self._parts()
        refuse_empty(self.folder, TABLE in steps.values(), bool(parts))
        for path, database in self.database_of.items():
            name = path.name.partition("-schema.")[0]
            if steps[path] not in (SEQUENCE, TABLE):
                continue
            table = (database, _name_in(self.folder, path, _CREATED))
            number = numbers.get(table)
            tables[table] = number
            if steps[path] != TABLE or name in views:
                continue
            files = parts.get(name, {})
            if number and files and not self._have_rows(files):
                raise incomplete(f"{min(files).name} has no rows, by the metadata {number}")
            missing = ""
            if not files and number != 0:
                missing = f"{name}.sql"
            gaps = set(range(max(files.values(), default=0))) - set(files.values())
            if gaps and number is None:
                missing = f"{name}.{min(gaps):05}.sql"
            if missing:
                empty = shlex.quote(str(self.folder / missing))
                raise unusable(
                    f"{self.folder} has no {missing}, and its metadata do not say that it has no rows",
                    f"{AGAIN} If there were no rows:  touch {empty}",
                )
        return tables

    def _have_rows(self, paths: Iterable[Path]) -> bool:
        """Return whether one of the files inserts a row."""
        return any(line.startswith(ROWS_BEGIN) for path in paths for line in self.lines(path))

    def _parts(self) -> dict[str, dict[Path, int]]:
        """Return the files of rows with their numbers, by table; 0 for a file without a number."""
        parts: dict[str, dict[Path, int]] = defaultdict(dict)
        for path, step in self.step_of.items():
            if step == ROWS:
                name = re.sub(r"\.sql(\.\w+)?$", "", path.name)
                table, _, part = name.rpartition(".")
                if part.isdigit() and table.partition(".")[2]:
                    parts[re.sub(r"\.\d{5,}$", "", table)][path] = int(part)
                else:
                    parts[name][path] = 0
        return parts

    def changes(self, tables: Tables) -> tuple[SourceChange, ...]:
        """Return the tables of which nothing tells whether the last of several files is there, or why
        their files have no rows; and what was left out.
        """
        counted = {".".join(table) for table, number in tables.items() if number is not None}
        texts = []
        for name, files in self._parts().items():
            if name in counted:
                continue
            if not self._have_rows(files):
                texts.append(f"{name} (no rows)")
            elif len(files) > 1:
                texts.append(f"{name} ({len(files)} files)")
        uncounted = change_of(SourceChangeKind.NOT_COUNTED, tables=", ".join(texts[:_MOST_LISTED]))
        return (*left_out(self.skipped), *uncounted)


def files_of(folder: Path) -> MydumperFiles:
    """Return the files of a directory. Raises SourceUnusable."""
    step_of: dict[Path, int] = {}
    by_prefix: dict[str, str] = {}  # databases by the beginning of the names of their files
    maker_of: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        step = _step(path.name)
        if step is None:
            continue
        step_of[path] = step
        if step == CREATE:
            database = _name_in(folder, path, _DATABASE)
            maker_of[database] = path
            by_prefix[path.name.partition(f"{STEPS[CREATE]}.")[0]] = database
    database_of = {}
    for path in step_of:
        database = path.name.partition(".")[0].partition("-schema-")[0]
        for prefix in sorted(by_prefix, key=len):  # the longest that fits counts
            if path.name.startswith((f"{prefix}.", f"{prefix}-schema")):
                database = by_prefix[prefix]
        if database not in SYSTEM_SCHEMAS:
            database_of[path] = database
    return MydumperFiles(folder, step_of, database_of, maker_of)


def _step(name: str) -> int | None:
    """Return the position in STEPS of a file; None for files without statements."""
    stem = re.sub(r"\.(gz|zst|bz2|xz|lz4)$", "", name)
    if not stem.endswith(".sql"):
        return None
    for step, word in enumerate(STEPS):
        if word and stem.endswith(f"{word}.sql"):
            return step
    return ROWS


def _name_in(folder: Path, path: Path, create: re.Pattern[bytes]) -> str:
    """Return the name of the first database or table that the statements of a file create."""
    match = create.search(b"".join(_lines(folder, path)))
    if match is None:
        what = "DATABASE" if create is _DATABASE else "TABLE"
        raise incomplete(f"{path.name} contains no CREATE {what}")
    return unquote(match[1])


def _lines(
    folder: Path,
    path: Path,
    routines: bool = False,
) -> Iterator[bytes]:
    """Yield the lines of a file. Raises SourceRefused, and SourceUnusable if it ends too early.
    `routines`: views, triggers and routines. Lines end with ";" also within a statement, with a
    space after it. Each CREATE stands between statements that save and restore the character
    set.
    """
    # until the first CREATE
    last = b""
    end = f"{DELIMITER}\n".encode()
    open_ = routines
    with (
        safe_files.open_plain(path, folder) as file,
        safe_files.decompress(file, path.name) as content,
    ):
        for line in content:
            last = line if line.strip() else last
            if routines and _SAVED.match(line):
                open_ = b"=@@" in line
            if routines:
                line = without_definer(line)
            yield line.removesuffix(b";\n") + end if routines and line.endswith(b";\n") else line
    # A file without a line is one that the user made for a table without rows.
    if open_ or (last and not last.endswith(b";\n")):
        raise incomplete(f"{path.name} ends too early")
