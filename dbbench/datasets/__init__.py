"""Datasets: what is loaded, built once as a golden copy, restored byte for byte on every filesystem."""

from dbbench.datasets import archive, generated, golden, sources
from dbbench.datasets.copying import Restored, restored
from dbbench.datasets.manifest import Golden, split
from dbbench.datasets.methods import METHODS

__all__ = ["METHODS", "Golden", "Restored", "archive", "generated", "golden", "restored", "sources", "split"]
