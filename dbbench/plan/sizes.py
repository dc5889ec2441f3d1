"""`size = "cached" | "edge" | "io-bound"`: a dataset as large as the plan's memory wants it."""

from __future__ import annotations

from typing import Final

from dbbench.catalog import GROWING
from dbbench.datasets import generated, tpcc
from dbbench.model import Scalar

CACHED: Final = 0.8  # dataset ÷ memory: below, after some time nothing is read from the disk
IO_BOUND: Final = 2.0  # from here on most reads are
# Dataset ÷ memory: well inside the limits of the three words (0.8 and 2), so that a few per cent of error in what a
# row takes do not change the word.
RATIOS: Final = {"cached": 0.5, "edge": 1.25, "io-bound": 3.0}


def sized(kind: str, values: dict[str, Scalar], memory_bytes: int | None) -> dict[str, Scalar]:
    """`values` without `size`, which instead sets how much is loaded: pgbench's scale, sysbench's rows a table, TPC-C's
    warehouses.

    ValueError where the plan has no memory that it could be the size of.
    """
    own = {name: value for name, value in values.items() if name != "size"}
    word = str(values.get("size", ""))
    if not word:
        return own
    if memory_bytes is None:
        raise ValueError(f'size = "{word}" needs `memory` in the plan')
    name = GROWING[kind]
    return {**own, name: max(1, round(RATIOS[word] * memory_bytes / _unit_bytes(kind, own)))}


def _unit_bytes(kind: str, own: dict[str, Scalar]) -> int:
    """Bytes of one more of what the dataset grows by."""
    if kind == "tpcc":
        return tpcc.loaded_bytes({**tpcc.PARAMETERS, **own, "warehouses": 1})
    return generated.SCALE_BYTES if kind == "pgbench" else generated.SYSBENCH_ROW_BYTES * int(own.get("tables", 1))


def label(ratio: float | None) -> str | None:
    """The word for a dataset of `ratio` × the memory."""
    if ratio is None:
        return None
    return "cached" if ratio < CACHED else "io-bound" if ratio >= IO_BOUND else "edge"
