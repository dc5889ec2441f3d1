"""Operations `snapshot` and `clone`: taken, a second server started on it, queried, rolled back to, dropped.

`snapshot` is the filesystem's own, of one moment, while a server runs: the second server recovers from a crash.
`clone` copies the files of a stopped server: by reflink where there are some, and plainly, as the reference.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dbbench import filesystems
from dbbench.model import OperationFacts
from dbbench.operations import witness
from dbbench.operations.abilities import SNAPSHOTS, of
from dbbench.operations.copies import PLAIN, REFLINK
from dbbench.operations.port import Filled, Snapshots
from dbbench.operations.steps import ended, impossible, timed

LOCKS: Final = ("postmaster.pid", "postmaster.opts")  # of the server that ran when it was taken: its pid is alive


def snapshot(filled: Filled) -> Iterator[OperationFacts]:
    """By the filesystem, or the layer below it."""
    how = of(SNAPSHOTS, filled.setup)
    if how is None:
        yield impossible("snapshot", f"neither {filled.fs.family} nor a layer below it has snapshots")
    else:
        yield from _taken("snapshot", how, filled)


def clone(filled: Filled) -> Iterator[OperationFacts]:
    """By reflink, then plainly."""
    yield from _taken("clone by reflink", REFLINK, filled)
    yield from _taken("clone by copy", PLAIN, filled)


def _taken(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    if why := log_elsewhere(filled) or how.lacks(filled):
        yield impossible(name, why)
        return
    try:
        yield from (_while_it_runs if how.ATOMIC else _while_it_is_stopped)(name, how, filled)
        yield timed(f"{name}: roll back", lambda: how.rollback(filled))
        with filled.serving(filled.datadir) as server:
            witness.proved(server, f"{name}, rolled back")
        yield timed(f"{name}: drop", lambda: how.drop(filled))
    except BaseException:
        how.drop(filled)
        raise


def _while_it_runs(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    with filled.serving(filled.datadir) as server:
        witness.written(server)
        yield timed(f"{name}: create", lambda: how.snapshot(filled))
        witness.written_later(server)
        yield from _second_server(name, how, filled)


def _while_it_is_stopped(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    """Nothing else is written meanwhile, so the copy takes what is then less free."""
    with filled.serving(filled.datadir) as server:
        witness.written(server)
    free, began = _free_bytes(filled), time.monotonic()
    how.snapshot(filled)
    created, left = ended(f"{name}: create", began), _free_bytes(filled)
    yield replace(created, bytes=None if free is None or left is None else free - left)
    with filled.serving(filled.datadir) as server:
        witness.written_later(server)
        yield from _second_server(name, how, filled)


def _second_server(name: str, how: Snapshots, filled: Filled) -> Iterator[OperationFacts]:
    """Beside the first one: the clone mounted, a server started on it (recovery included) and queried."""
    with contextlib.ExitStack() as copy:
        began = time.monotonic()
        datadir = copy.enter_context(how.clone(filled))
        if how.ATOMIC:  # a copy of files lies there already
            yield ended(f"{name}: mount", began)
        for lock in LOCKS:
            (datadir / lock).unlink(missing_ok=True)
        began = time.monotonic()
        server = copy.enter_context(filled.second(datadir))
        yield ended(f"{name}: start a server", began)
        began = time.monotonic()
        found = witness.proved(server, name)
        yield ended(f"{name}: query", began, found, how.taken_bytes(filled))


def log_elsewhere(filled: Filled) -> str | None:
    """A second server would write into the first one's log."""
    if filled.fs.wal is not None or "wal" in filled.setup.volumes:
        return "the write-ahead log lies elsewhere: a copy of one moment would need both"
    return None


def _free_bytes(filled: Filled) -> int | None:
    """None where others write to the same filesystem: an existing directory."""
    if not os.path.ismount(filled.fs.path):
        return None
    filesystems.sync(filled.fs.path)
    place = os.statvfs(filled.fs.path)
    return place.f_bfree * place.f_frsize
