"""Datasets: what is loaded, built once as a golden copy, restored byte for byte on every filesystem."""

from dbbench.datasets import archive, generated, golden
from dbbench.datasets.copying import Restored, restored
from dbbench.datasets.manifest import Golden

__all__ = ["Golden", "Restored", "archive", "generated", "golden", "restored"]
