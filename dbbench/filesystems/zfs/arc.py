"""The size of the kernel's ARC: its own budget beside the memory of a cgroup, which does not count it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.errors import ZfsUnavailable
from dbbench.filesystems.zfs import driver
from dbbench.journal import Journal

JOURNALLED: Final = "zfs_arc"
LEAST_BYTES: Final = 64 * 2**20  # OpenZFS takes no smaller zfs_arc_max
_SETTLED: Final = 1.01  # the ARC says its new limit at once, rounded


@contextlib.contextmanager
def limited(arc_bytes: int | None, journal: Journal | None) -> Iterator[None]:
    """zfs_arc_max (and zfs_arc_min below it) while the block lasts; None: as it is. It is the whole kernel's: other
    pools have to live with it too. ZfsUnavailable where the kernel does not take it."""
    if arc_bytes is None:
        yield
        return
    wanted = max(arc_bytes, LEAST_BYTES)
    before = {path: path.read_text().strip() for path in _parameters()}
    for path, value in before.items():
        if journal is not None:
            journal.note("take", what=JOURNALLED, path=f"{path}={value}")
    try:
        least, most = before
        least.write_text(str(min(LEAST_BYTES // 2, wanted // 2)))
        most.write_text(str(wanted))
        if driver.arcstats().get("c_max", 0) > wanted * _SETTLED:
            raise ZfsUnavailable(
                f"the kernel keeps an ARC of {driver.arcstats().get('c_max')} bytes, {wanted} were asked"
            )
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)
            if journal is not None:
                journal.note("give_back", what=JOURNALLED, path=f"{path}={value}")


def give_back(journal: Journal) -> list[str]:
    """The ARC's limits as they were before a run that was killed."""
    gone = []
    for taken in journal.outstanding(JOURNALLED):
        path, _, value = taken.partition("=")
        if Path(path) in _parameters() and Path(path).exists():
            Path(path).write_text(value)
            gone.append(f"{Path(path).name} {value}")
        journal.note("give_back", what=JOURNALLED, path=taken)
    return gone


def _parameters() -> tuple[Path, ...]:
    return tuple(driver.MODULE / "parameters" / name for name in ("zfs_arc_min", "zfs_arc_max"))
