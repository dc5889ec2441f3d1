"""Datasets: built once as a golden copy, restored byte for byte on every filesystem."""

from __future__ import annotations

from dbbench.datasets import archive, generated, golden, sources
from dbbench.datasets.copying import Restored, restore_copy
from dbbench.datasets.manifest import Golden, split

__all__ = [
    "Golden",
    "Restored",
    "archive",
    "generated",
    "golden",
    "restore_copy",
    "sources",
    "split",
]
