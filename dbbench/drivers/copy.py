"""copy: one large file written from memory; the seconds until it was written, and until it was on the device.

The first time is what a user sees with `cp` or `pv`: much of the file may still be in the page cache. Parameters:
file_size, zeros (the share of each page that is zero and therefore compressible).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dbbench.drivers import filework_load, tool
from dbbench.drivers.filework_load import working
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.drivers.tool import ToolLoad
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Series


def programs() -> tuple[str, ...]:
    """Return (): the program is part of dbbench."""
    return ()


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Write the file. See `protocol.Driver`."""
    asked = {name: task.cell.parameters[name] for name in ("file_size", "zeros", "clients")} | {"seed": task.seed}

    def judged(load: ToolLoad) -> Outcome:
        return outcome(load, int(task.cell.parameters["clients"]), tool.could_hold(task.cell))

    with working("copy", task, asked, judged) as load:
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
        warnings=tool.cached_warnings(copied.bytes, memory),
        claims=(Claim("write_bytes", total=copied.bytes),),
    )
