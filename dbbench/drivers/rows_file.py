"""A file of rows in the default format of COPY and LOAD DATA: tab-separated, one line per row, nothing to escape.

The words have the frequencies of a natural language, so that they compress like text.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Sent:
    """The file: rows of (id, k, body), ids from 1."""

    path: Path
    rows: int
    bytes: int


def written(path: Path, size_bytes: int, seed: int) -> Sent:
    """Write whole rows of at least `size_bytes`. The same seed and size give the same bytes. At least 30 MB/s."""
    words, rows, size = pool(seed), 0, 0
    with path.open("w", encoding="ascii") as file:
        while size < size_bytes:
            rows += 1
            # 7919 is a prime: neighbours have different texts; the hash makes each row different from all others
            mark = hashlib.sha256(b"%d" % rows).hexdigest()[:32]
            size += file.write(f"{rows}\t{rows * 48271 % 10000}\t{words[rows * 7919 % POOL_ROWS]} {mark}\n")
    return Sent(path, rows, size)


POOL_ROWS: Final = 1024  # different texts; 200 kB, more than any filesystem's compression window


def pool(seed: int) -> list[str]:
    """Return POOL_ROWS different texts of at most 170 characters (Zipf)."""
    rng = random.Random(seed)
    letters, weights = "etaoinshrdlucmfwypvbgk", [1 / (rank + 2) for rank in range(22)]
    words = ["".join(rng.choices(letters, weights, k=rng.randint(2, 9))) for _ in range(2000)]
    frequencies = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(rng.choices(words, frequencies, k=40))[:170] for _ in range(POOL_ROWS)]
