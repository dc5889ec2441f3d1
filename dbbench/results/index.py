"""The index of a results folder: a cache of what was computed from each run, valid while the run
does not change.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError
from dbbench.results.fileio import read_bytes, sound_json, write_text

INDEX_NAME: Final = ".dbbench-index.json"
IndexRow = dict[str, Any]


def index_rows(
    results: Path,
    runs: list[Path],
    make: Callable[[Path], IndexRow],
    maker: str,
) -> list[IndexRow]:
    """Return `make(run)` for each run, from the index if neither run.json nor the directory of
    trials has changed. A trial's directory is written once, so the time of `trials/` changes
    with every trial that is added or removed. It is the kernel's (ctime), which no archive can
    set: the rows of an index that came with its runs are not used. An entry of another `maker`
    (version of dbbench) is computed again.
    """
    indexed = _read(results)
    now = dict[str, tuple[str, IndexRow]]()
    for run in runs:
        stamp = _stamp(run, maker)
        before = indexed.get(run.name)
        now[run.name] = before if before and before[0] == stamp else (stamp, make(run))
    if now != indexed:
        # in a read-only directory every run is read each time
        with contextlib.suppress(DbbenchError):
            write_text(results / INDEX_NAME, json.dumps(now))
    return [row for _, row in now.values()]


def _stamp(run: Path, maker: str) -> str:
    times = []
    for path in (run / "run.json", run / "trials"):
        try:
            times.append(str(path.lstat().st_ctime_ns))
        except OSError:
            times.append("-")
    return " ".join([maker, str(run), *times])


def _read(results: Path) -> dict[str, tuple[str, IndexRow]]:
    """Return (stamp, row) by the run's name; {} if the index cannot be read or was not written by
    this user.
    """
    try:
        if (results / INDEX_NAME).lstat().st_uid != os.geteuid():
            return {}
        content = sound_json(read_bytes(results / INDEX_NAME, results))
        return {str(name): (str(stamp), dict(row)) for name, (stamp, row) in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, DbbenchError):
        return {}
