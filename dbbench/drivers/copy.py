"""copy: one large file written out of memory; the seconds until it was written, and until it was on the device.

The first is what a user sees of `cp` and `pv`: much of the file may still be in the page cache. Parameters: file_size,
zeros (the share of each page that is zero, so that it can be compressed away).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dbbench.clock import Clock
from dbbench.drivers import filework_output
from dbbench.drivers.own import working
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.tool import ToolLoad
from dbbench.engines.port import Server
from dbbench.model import Cell
from dbbench.series import FIRST, Series


def programs() -> tuple[str, ...]:
    """What `doctor` must find: nothing, the program is our own."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Write the file. See the port."""
    del scratch
    asked = {"file_size": cell.parameters["file_size"], "zeros": cell.parameters.get("zeros", 0.5), "seed": seed}
    with working("copy", server, asked, clock, raw, outcome) as load:
        yield load


def outcome(load: ToolLoad) -> Outcome:
    """Both times, both rates, and the rate by the second; MB are 10^6 bytes."""
    found = filework_output.copied(load.text())
    column = found.by_second()
    series = Series(len(column), {name: [] for name in FIRST})
    series.set("file_write_mb_per_s", column)
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=found.synced_s,
        transactions=1,
        errors=0,
        series=series,
        histogram=None,
        figures={
            "duration_s": found.synced_s,
            "copy_s": found.seconds,
            "copy_mb_per_s": found.bytes / found.seconds / 1e6,
            "copy_synced_mb_per_s": found.bytes / found.synced_s / 1e6,
        },
    )
