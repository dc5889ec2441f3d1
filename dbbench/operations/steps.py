"""What operations are made of: a timed step, and the filesystem unmounted for a while."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from dbbench import filesystems
from dbbench.errors import OperationFailed
from dbbench.filesystems import mounting
from dbbench.model import OperationFacts
from dbbench.operations.port import Filled


def ended(name: str, began: float, text: str | None = None, bytes: int | None = None) -> OperationFacts:
    """A step that was begun at `began` of the monotonic clock and ends now."""
    return OperationFacts(name, round(time.monotonic() - began, 6), bytes, text or "")


def timed(name: str, work: Callable[[], str | None]) -> OperationFacts:
    """Do it: how long that took, and what it said."""
    began = time.monotonic()
    text = work()
    return ended(name, began, text)


def impossible(name: str, why: str) -> OperationFacts:
    """An operation that this filesystem does not have, or that cannot be done on it here."""
    return OperationFacts(name, None, text=why)


def cold(filled: Filled) -> str:
    """Empty the cache of the data files; what can be said of it afterwards."""
    filesystems.sync(filled.fs.path)
    if filled.cold is None:
        return "caches as they were"
    facts = filled.cold()
    return "from a cold cache" if facts.proved else f"the cache was not proved cold: {facts.reason}"


@contextlib.contextmanager
def unmounted(filled: Filled) -> Iterator[None]:
    """The filesystem is not mounted while the block lasts, and is again afterwards, with the same options."""
    if filled.fs.pool is not None:
        raise OperationFailed("a pool is not unmounted for an operation")
    filesystems.sync(filled.fs.path)
    mounting.unmount(filled.fs.path, filled.volume)
    try:
        yield
    finally:
        mounting.mount(filled.setup, filled.volume, filled.fs.path)


def remounted(filled: Filled, *options: str) -> None:
    """Mounted again with these options more: another subvolume in the place of the filesystem."""
    mounting.unmount(filled.fs.path, filled.volume)
    mounting.mount(filled.setup, filled.volume, filled.fs.path, *options)
