"""Operation `grow`: another device is added, and what is there is spread over all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

from dbbench.model import OperationFacts
from dbbench.operations.abilities import GROWING, of
from dbbench.operations.port import Filled
from dbbench.operations.steps import ended, impossible, timed
from dbbench.units import size_text


def grow(filled: Filled) -> Iterator[OperationFacts]:
    """Two steps; afterwards the text says by how much the filesystem has become larger."""
    able, spare = of(GROWING, filled.setup), filled.volume.spare
    if able is None:
        yield impossible("grow", f"{filled.fs.family} takes no other device, and no layer below it does")
        return
    if spare is None:
        yield impossible("grow", "the plan has no device more than the fs setup takes")
        return
    before = _total_bytes(filled)
    yield timed("grow: add device", lambda: able.add(filled, spare))
    began = time.monotonic()
    said = able.rebalance(filled)
    done = ended("grow: rebalance", began)
    yield replace(done, text=f"{said}; {size_text(_total_bytes(filled) - before)} larger")


def _total_bytes(filled: Filled) -> int:
    found = os.statvfs(filled.fs.path)
    return found.f_blocks * found.f_frsize
