"""smallfiles: create many small files, read them cold in another order, delete them; the rate of each step.

Creating and deleting end when the filesystem is synced, so that cached changes do not count as done. Parameters: files,
file_bytes, zeros. W117 if the files could not be made cold.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from dbbench.drivers import filework_load
from dbbench.drivers.filework_load import working
from dbbench.drivers.protocol import Load, LoadTask
from dbbench.drivers.tool import ToolLoad
from dbbench.metrics.outcome import Claim, Outcome
from dbbench.metrics.series import FIRST, Series
from dbbench.model import TrialWarning
from dbbench.storage.filesystems import family_of


def programs() -> tuple[str, ...]:
    """Return (): the program is part of dbbench."""
    return ()


@contextlib.contextmanager
def driving(task: LoadTask) -> Iterator[Load]:
    """Create, read, delete. See `protocol.Driver`."""
    asked = {name: task.cell.parameters[name] for name in ("files", "file_bytes", "zeros", "clients")} | {
        "seed": task.seed
    }
    own_cache = f"{task.cell.setup.mkfs.family} keeps files in a cache of its own" * (
        not family_of(task.cell.setup).by_mkfs
    )

    def judged(load: ToolLoad) -> Outcome:
        return outcome(load, own_cache, int(task.cell.parameters["file_bytes"]))

    with working("smallfiles", task, asked, judged) as load:
        yield load


def outcome(load: ToolLoad, own_cache: str = "", file_bytes: int = 0) -> Outcome:
    """Return the files per second of each step."""
    file_steps, lived = filework_load.steps(load.text()), load.lived_s or 0.0
    why = file_steps["read"].why or own_cache
    return Outcome(
        begin_utc=load.begin_utc,
        window_s=lived,
        transactions=file_steps["create"].files,
        errors=0,
        series=Series(math.ceil(lived), {name: [] for name in FIRST}),
        histogram=None,
        figures={
            "duration_s": sum(step.seconds for step in file_steps.values()),
            "creates_per_s": file_steps["create"].per_s,
            "reads_per_s": file_steps["read"].per_s,
            "deletes_per_s": file_steps["delete"].per_s,
        },
        warnings=(TrialWarning("W117", why),) if why else (),
        claims=(
            Claim("write_bytes", total=file_steps["create"].files * file_bytes),
            Claim("read_bytes", total=file_steps["read"].files * file_bytes),
        ),
    )
