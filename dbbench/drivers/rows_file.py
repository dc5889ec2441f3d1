"""A file of rows as COPY and LOAD DATA read them by default: tab-separated, one line a row, nothing to be escaped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from dbbench import texts


@dataclass(frozen=True)
class Sent:
    """The file: rows of (id, k, body), ids from 1."""

    path: Path
    rows: int
    bytes: int


def written(path: Path, size_bytes: int, seed: int) -> Sent:
    """Write whole rows of at least `size_bytes`. The same seed and size give the same bytes. 30 MB/s or more."""
    pool, rows, size = texts.pool(seed), 0, 0
    with path.open("w", encoding="ascii") as file:
        while size < size_bytes:
            rows += 1
            # 7919 is a prime: neighbours have different texts; the hash makes each row different from all others
            mark = hashlib.sha256(b"%d" % rows).hexdigest()[:32]
            size += file.write(f"{rows}\t{rows * 48271 % 10000}\t{pool[rows * 7919 % texts.POOL_ROWS]} {mark}\n")
    return Sent(path, rows, size)
