"""The archived log of a primary: the files in `archive/` of a golden copy, and how a trial gets them.

The files are on the disk of the golden copies, a second filesystem next to the one under test. A trial sees them as
`archive/` of its scratch directory; files that the standby may read are linked into `inbox/` next to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from dbbench.model import plain
from dbbench.results.fileio import write_json

ARCHIVE: Final = "archive"
INBOX: Final = "inbox"
DESCRIPTION: Final = "archive.json"


@dataclass(frozen=True)
class LogFile:
    """One file of the archive: a WAL segment or a binary log."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True)
class Archive:
    """The content of archive.json: files in the order in which they are applied, and the expected result."""

    engine: str
    logs: tuple[LogFile, ...]
    end: int  # PostgreSQL: the LSN up to which is replayed, as a number; InnoDB: 0, all of every file
    checksums: dict[str, str]  # of every table of the primary at that point


def load(folder: Path) -> Archive:
    """Read archive.json in `folder`. Raises OSError or ValueError."""
    adapter: TypeAdapter[Archive] = TypeAdapter(Archive)
    return adapter.validate_json((folder / DESCRIPTION).read_bytes())


def save(folder: Path, archive: Archive) -> None:
    """Write archive.json."""
    write_json(folder / DESCRIPTION, plain(archive))


def lsn(position: str) -> int:
    """Convert PostgreSQL's "16/B374D848" to a byte position."""
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)
