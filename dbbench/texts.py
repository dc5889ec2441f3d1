"""Text-like content for rows: words with the frequencies of a language, so that it compresses as such text does."""

from __future__ import annotations

import random
from typing import Final

POOL_ROWS: Final = 1024  # different texts; 200 kB, more than any filesystem's compression window


def pool(seed: int) -> list[str]:
    """POOL_ROWS different texts of at most 170 characters (Zipf)."""
    rng = random.Random(seed)
    letters, weights = "etaoinshrdlucmfwypvbgk", [1 / (rank + 2) for rank in range(22)]
    words = ["".join(rng.choices(letters, weights, k=rng.randint(2, 9))) for _ in range(2000)]
    frequencies = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(rng.choices(words, frequencies, k=40))[:170] for _ in range(POOL_ROWS)]
