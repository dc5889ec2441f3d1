"""smallfiles: many small files created, read cold in another order, deleted; how many a second of each.

Creating and deleting end when the filesystem is synced: what is only promised is not counted as done. Parameters:
files, file_bytes, zeros. W117 where what was read could not be made cold.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

from dbbench.clock import Clock
from dbbench.drivers import filework_output
from dbbench.drivers.own import working
from dbbench.drivers.port import Load, Outcome
from dbbench.drivers.tool import ToolLoad
from dbbench.engines.port import Server
from dbbench.filesystems.families import POOLED
from dbbench.model import Cell, TrialWarning
from dbbench.series import FIRST, Series


def programs() -> tuple[str, ...]:
    """What `doctor` must find: nothing, the program is our own."""
    return ()


@contextlib.contextmanager
def driving(server: Server, cell: Cell, seed: int, clock: Clock, raw: Path, scratch: Path) -> Iterator[Load]:
    """Create, read, delete. See the port."""
    del scratch
    asked = {name: cell.parameters[name] for name in ("files", "file_bytes", "zeros")} | {"seed": seed}
    own_cache = f"{cell.setup.mkfs.family} keeps files in a cache of its own" * (cell.setup.mkfs.family in POOLED)
    with working("smallfiles", server, asked, clock, raw, lambda load: outcome(load, own_cache)) as load:
        yield load


def outcome(load: ToolLoad, own_cache: str = "") -> Outcome:
    """Files a second of each step."""
    found, lived = filework_output.steps(load.text()), load.lived_s or 0.0
    why = found["read"].why or own_cache
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=lived,
        transactions=found["create"].files,
        errors=0,
        series=Series(math.ceil(lived), {name: [] for name in FIRST}),
        histogram=None,
        figures={
            "duration_s": sum(step.seconds for step in found.values()),
            "creates_per_s": found["create"].per_s,
            "reads_per_s": found["read"].per_s,
            "deletes_per_s": found["delete"].per_s,
        },
        warnings=(TrialWarning("W117", why),) if why else (),
    )
