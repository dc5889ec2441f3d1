"""A primary's archived log: what lies in `archive/` of a golden copy, and how a trial hands it over.

The files lie on the disk that holds the golden copies, a second filesystem beside the one under test. A trial sees
them at `archive/` of its scratch folder; what the standby may have is linked into `inbox/` beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from dbbench.model import plain
from dbbench.store.files import write_json

ARCHIVE: Final = "archive"
INBOX: Final = "inbox"
DESCRIPTION: Final = "archive.json"


@dataclass(frozen=True)
class Log:
    """One file of the archive: a WAL segment, a binary log."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True)
class Archive:
    """The content of archive.json: files in the order in which they are applied, and what must come out of it."""

    engine: str
    logs: tuple[Log, ...]
    end: int  # PostgreSQL: the LSN up to which is replayed, as a number; InnoDB: 0, all of every file
    checksums: dict[str, str]  # of every table of the primary at that point


def load(folder: Path) -> Archive:
    """The description in `folder`. OSError, ValueError where it is not there or not whole."""
    adapter: TypeAdapter[Archive] = TypeAdapter(Archive)
    return adapter.validate_json((folder / DESCRIPTION).read_bytes())


def save(folder: Path, archive: Archive) -> None:
    """Write it down."""
    write_json(folder / DESCRIPTION, plain(archive))


def lsn(text: str) -> int:
    """PostgreSQL's "16/B374D848" as a byte position."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
