"""copy: one large file written from memory; the seconds until it was written, and until it was on the device.

The first time is what a user sees with `cp` or `pv`: much of the file may still be in the page cache. Parameters:
file_size, zeros (the share of each page that is zero and therefore compressible).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dbbench.drivers import cached, filework_load
from dbbench.drivers.filework_load import working
from dbbench.drivers.protocol import Load
from dbbench.drivers.tool import ToolLoad
from dbbench.engines.port import Server
from dbbench.metrics.clock import Clock
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Series
from dbbench.model import Cell


def programs() -> tuple[str, ...]:
    """Return (): the program is part of dbbench."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Write the file. See `protocol.Driver`."""
    del scratch
    asked = {name: cell.parameters[name] for name in ("file_size", "zeros", "clients")} | {"seed": seed}

    def judged(load: ToolLoad) -> Outcome:
        return outcome(load, int(cell.parameters["clients"]), cached.could_hold(cell))

    with working("copy", server, asked, clock, raw, judged) as load:
        yield load


def outcome(load: ToolLoad, clients: int = 1, memory: int = 0) -> Outcome:
    """Return both times, both rates, and the rate per second; MB are 10^6 bytes."""
    copied = filework_load.copied(load.text(), clients)
    column = copied.by_second()
    series = Series(len(column), {name: [] for name in FIRST})
    series.set("file_write_mb_per_s", column)
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=copied.synced_s,
        transactions=1,
        errors=0,
        series=series,
        histogram=None,
        figures={
            "duration_s": copied.synced_s,
            "copy_s": copied.seconds,
            "copy_mb_per_s": copied.bytes / copied.seconds / 1e6,
            "copy_synced_mb_per_s": copied.bytes / copied.synced_s / 1e6,
        },
        warnings=cached.warnings(copied.bytes, memory),
        claims=(Claim("write_bytes", total=copied.bytes),),
    )
