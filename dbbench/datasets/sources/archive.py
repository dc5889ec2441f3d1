"""The header of a pg_dump archive (custom format, or toc.dat of the others), read without pg_restore.

Layout: "PGDMP", three bytes of version, sizes of an integer and of an offset, the format; then the compression (an
algorithm's byte from archive version 1.15 on, an integer before), seven integers of a date, and three strings: the
database, the server's version, pg_dump's version. An integer is a sign byte and its bytes, lowest first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"PGDMP"
FORMATS: Final = {1: "custom", 3: "tar", 5: "directory"}
_DATE: Final = 7  # integers: seconds to year, daylight saving
_BY_ALGORITHM: Final = (1, 15)


@dataclass(frozen=True)
class Header:
    """What the archive says of itself."""

    format: str
    database: str
    server_version: str  # "15.18"


def header(head: bytes) -> Header | None:
    """The header in the first bytes of an archive; None where they are none or are cut off."""
    if not head.startswith(MAGIC) or len(head) < 11 or head[10] not in FORMATS:
        return None
    version, width, at = (head[5], head[6]), head[8], 11

    def integer() -> int:
        nonlocal at
        number = int.from_bytes(head[at + 1 : at + 1 + width], "little")
        at += 1 + width
        return -number if head[at - 1 - width] else number

    def string() -> str:
        nonlocal at
        length = max(0, integer())
        at += length
        return head[at - length : at].decode(errors="replace")

    try:
        if version >= _BY_ALGORITHM:
            at += 1
        else:
            integer()
        for _ in range(_DATE):
            integer()
        database, server = string(), string()
    except IndexError:
        return None
    found = re.match(r"\d+(\.\d+)*", server)
    return Header(FORMATS[head[10]], database, found[0] if found else "")
