"""SQL dumps on their way to the client that runs them. Statements that cannot or must not run here
become empty lines, so that line numbers in the client's messages are those of the dump.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from dbbench import process
from dbbench.datasets.sources.safe_files import LOAD_S
from dbbench.datasets.sources.source import AGAIN, unusable
from dbbench.errors import DatasetBuildFailed, DbbenchError
from dbbench.model import SourceChange, SourceChangeKind

# (database, table) -> rows that the dump contains; None: it does not tell
Tables = dict[tuple[str, str], int | None]
# for files without a name (O_TMPFILE), which may be as long as a dump
UNNAMED: Final = "/var/tmp"
_SHOWN: Final = 120  # characters of a statement in a message
LINES: Final = 6  # of a program's output in a message
_MESSAGE: Final = re.compile(rb"(?:pg_dump(?:all)?|mysqldump|mariadb-dump)(?:\.exe)?: ")
_NAMED: Final = 6  # differences that a message lists


def lines_of(script: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without the byte order mark that programs of Windows put at the beginning."""
    whole = iter(script)
    yield from (line.removeprefix(codecs.BOM_UTF8) for line in itertools.islice(whole, 1))
    yield from whole


def incomplete(why: str) -> DbbenchError:
    """Return the error for a dump that does not contain everything that it should."""
    return unusable(f"the dump is incomplete: {why}", AGAIN)


def refuse_message(line: bytes, number: int) -> None:
    """Raise SourceUnusable for a line that a program wrote while it made the dump."""
    if _MESSAGE.match(line):
        raise unusable(
            f"line {number} of the dump is a message of the program that made it: {shown(line)}",
            "Make the dump again without 2>&1, so that the file has no messages.",
        )


def shown(statement: bytes) -> str:
    """Return the beginning of a statement for a message, without control characters."""
    text = " ".join(statement[: 4 * _SHOWN].decode(errors="replace").split())
    if len(text) <= _SHOWN:
        return text
    return text[: _SHOWN - 3] + "..."


@contextlib.contextmanager
def feed(
    argv: list[str],
    pieces: Iterable[bytes],
    account: process.User,
    env: dict[str, str],
) -> Iterator[tuple[int, IO[bytes]]]:
    """Run a client with these pieces as its input, as the server's account; yield its status and
    what it printed, which may be as long as the dump.
    """
    with tempfile.TemporaryFile(dir=UNNAMED) as printed:
        with process.running(
            argv,
            stdin=subprocess.PIPE,
            stdout=printed.fileno(),
            as_user=account,
            env=env,
        ) as client:
            assert client.popen.stdin is not None
            # it ended: its status tells why
            with contextlib.suppress(BrokenPipeError), client.popen.stdin as stream:
                stream.writelines(pieces)
            status = client.wait(LOAD_S)
        printed.seek(0)
        yield status, printed


def last_lines(text: str) -> str:
    """Return the end of what a program printed, indented."""
    return "\n".join(f"  {line}" for line in text.splitlines()[-LINES:])


def refuse_empty(path: Path, has_tables: bool, has_rows: bool) -> None:
    """Raise SourceUnusable for a dump from which nothing could be measured."""
    if has_tables and has_rows:
        return
    why = "no tables"
    options = "of a database, not only of accounts (--globals-only)"
    if has_tables:
        why = "tables, but no rows"
        options = "without --schema-only (pg_dump) or --no-data (mysqldump, mydumper)"
    elif has_rows:
        why = "rows, but does not create their tables"
        options = "without --data-only (pg_dump) or --no-create-info (mysqldump)"
    raise unusable(f"{path} contains {why}", f"Make the dump again {options}.")


def change_of(kind: SourceChangeKind, **values: str) -> tuple[SourceChange, ...]:
    """Return what was changed or left out, as `values` say; nothing if they are empty."""
    if any(values.values()):
        return (SourceChange(kind, values),)
    return ()


def left_out(statements: Iterable[str]) -> tuple[SourceChange, ...]:
    """Return these statements, which are left out of the copy, as a change."""
    text = "; ".join(line.rstrip("; ") for line in statements)
    return change_of(SourceChangeKind.SKIPPED, statements=text)


def compare(
    path: Path,
    tables: Tables,
    skipped: Iterable[str],
    rows_of: Callable[[str, str, bool], int | None],
) -> tuple[SourceChange, ...]:
    """Compare the copy with the tables and rows of the dump; return what was left out. Raises
    DatasetBuildFailed. `rows_of` returns the rows of a table (0 unless they are to be counted),
    or None if it does not exist.
    """
    wrong = []
    for (database, table), rows in tables.items():
        present = rows_of(database, table, rows is not None)
        if present is None:
            wrong.append(f"{table} is missing")
        elif rows not in (None, present):
            wrong.append(f"{table} has {present} rows, in the dump {rows}")
    if wrong:
        raise DatasetBuildFailed(
            f"{path} was loaded, but the copy differs from it: " + "; ".join(wrong[:_NAMED]),
            effect="The copy was removed.",
            remedy="Make the dump again.",
        )
    return left_out(skipped)
