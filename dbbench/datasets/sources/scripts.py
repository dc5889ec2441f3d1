"""SQL dumps on their way to the client that runs them. Statements that cannot or must not run here
become empty lines, so that line numbers in the client's messages are those of the dump.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.sources.safe_files import LOAD_S
from dbbench.datasets.sources.source import AGAIN, unusable
from dbbench.errors import DatasetBuildFailed, DbbenchError
from dbbench.model import SourceChange, SourceChangeKind

# (database, table) -> rows that the dump contains; None: it does not tell
Tables = dict[tuple[str, str], int | None]
_SHOWN: Final = 120  # characters of a statement in a message
_PRINTED: Final = 2**20  # bytes of a client's output that are read
LINES: Final = 6  # of a program's output in a message
_NAMED: Final = 6  # differences that a message lists


def lines_of(script: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without the byte order mark that programs of Windows put at the beginning."""
    whole = iter(script)
    yield from (line.removeprefix(codecs.BOM_UTF8) for line in itertools.islice(whole, 1))
    yield from whole


def incomplete(why: str) -> DbbenchError:
    """Return the error for a dump that does not contain everything that it should."""
    return unusable(f"the dump is incomplete: {why}", AGAIN)


def shown(statement: bytes) -> str:
    """Return the beginning of a statement for a message, without control characters."""
    text = " ".join(statement[: 4 * _SHOWN].decode(errors="replace").split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def feed(
    argv: list[str],
    pieces: Iterable[bytes],
    account: process.User,
    env: dict[str, str],
) -> tuple[int, str]:
    """Run a client with these pieces as its input, as the server's account; return its status and
    what it printed.
    """
    with tempfile.TemporaryFile() as printed:
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
        return status, printed.read(_PRINTED).decode(errors="replace")


def last_lines(text: str) -> str:
    """Return the end of what a program printed, indented."""
    return "\n".join(f"  {line}" for line in text.splitlines()[-LINES:])


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
    statements = "; ".join(line.rstrip(";") for line in skipped)
    return (
        (SourceChange(SourceChangeKind.SKIPPED, {"statements": statements}),) if statements else ()
    )
