"""An index beside the results: what was made of a run's folder before, as long as the folder is as it was.

RESULTS/.dbbench-index.sqlite may be deleted at any time; it is built again from the folders. Where it cannot be
written or read, everything is made anew each time: slower, never wrong.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

NAME: Final = ".dbbench-index.sqlite"
Row = dict[str, Any]


def rows(results: Path, runs: list[Path], make: Callable[[Path], Row], maker: str) -> list[Row]:
    """`make(run)` for each folder, from the index where neither run.json nor the trials' folder has changed.

    A trial's folder is written once, so the time of `trials/` tells of every trial that came or went. What another
    `maker` made (a version of dbbench) is made anew.
    """
    known = _known(results)
    found, new = [], []
    for run in runs:
        stamp = _stamp(run, maker)
        before = known.pop(run.name, None)
        if before is not None and before[0] == stamp:
            found.append(json.loads(before[1]))
        else:
            found.append(make(run))
            new.append((run.name, stamp, json.dumps(found[-1])))
    if new or known:
        _keep(results, new, list(known))
    return found


def _stamp(run: Path, maker: str) -> str:
    """Changes with the maker, with run.json and with the set of finished trials."""
    times = []
    for path in (run / "run.json", run / "trials"):
        try:
            times.append(str(path.stat().st_mtime_ns))
        except OSError:
            times.append("-")
    return " ".join([maker, str(run), *times])


def _known(results: Path) -> dict[str, tuple[str, str]]:
    try:
        with _opened(results) as database:
            return {name: (stamp, row) for name, stamp, row in database.execute("SELECT name, stamp, row FROM runs")}
    except (sqlite3.Error, OSError):
        return {}


def _keep(results: Path, new: list[tuple[str, str, str]], gone: list[str]) -> None:
    """Best effort: a damaged index is put away and made anew next time."""
    try:
        with _opened(results) as database, database:
            database.executemany("REPLACE INTO runs VALUES (?, ?, ?)", new)
            database.executemany("DELETE FROM runs WHERE name = ?", [(name,) for name in gone])
    except sqlite3.OperationalError:  # read-only, or another process writes: the next one will
        pass
    except sqlite3.DatabaseError:
        with contextlib.suppress(OSError):
            (results / NAME).unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(results: Path) -> Iterator[sqlite3.Connection]:
    if (results / NAME).is_symlink():  # it leads to somebody else's database, perhaps
        raise sqlite3.OperationalError("the index is a link")
    database = sqlite3.connect(results / NAME, timeout=2.0)
    try:
        database.execute("PRAGMA synchronous = OFF")  # losing it loses nothing
        database.execute("CREATE TABLE IF NOT EXISTS runs (name TEXT PRIMARY KEY, stamp TEXT, row TEXT)")
        yield database
    finally:
        database.close()
