"""The durability class: what filesystem and server promise together, and whether device flushes bear it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dbbench.model import Durability, durability_class

# The only flags that explain commits without a device flush; a torn page or a missing journal does not.
_NO_FLUSH_NEEDED: Final = frozenset({Durability.NO_BARRIER, Durability.ASYNC_COMMIT})
_LARGEST_PAGE: Final = 16384  # of the engines here, where one does not tell: what a smaller record would tear


def combined(fs_flags: Iterable[Durability], engine_flags: Iterable[Durability]) -> tuple[Durability, ...]:
    """The flags of both, worst first, each once."""
    found = {*fs_flags, *engine_flags}
    return tuple(flag for flag in Durability if flag in found)


def page_bytes(effective: Mapping[str, str]) -> int:
    """The page size of the server that reports these settings: PostgreSQL's or InnoDB's."""
    return int(effective.get("block_size") or effective.get("innodb_page_size") or _LARGEST_PAGE)


def flushes_verdict(
    flushes: int | None, reason: str, commits: int | None, flags: tuple[Durability, ...]
) -> tuple[str, bool]:
    """What the device's flushes over the window say of the class, in words, and whether they disprove it.

    `flushes` None: `reason` says why nothing counts them. Group commit makes less than one flush a commit, a
    filesystem's log more; none at all under a class that promises commits is a fault.
    """
    if flushes is None:
        return f"not measurable ({reason or 'nothing counts flushes here'})", False
    if not commits:
        return "not measurable (no commits in the window)", False
    promised = not _NO_FLUSH_NEEDED.intersection(flags)
    if flushes == 0:
        text = f"0 device flushes for {commits} commits, class {durability_class(flags)}"
        return text, promised
    return f"{flushes / commits:.3g} device flushes per commit", False
