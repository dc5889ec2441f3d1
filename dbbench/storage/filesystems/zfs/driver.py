"""OpenZFS in the kernel: its version, parameters, and the limit of its cache (ARC), which no
control group counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench.errors import MakeFailed
from dbbench.machine.host.proc import text
from dbbench.model import Scalars
from dbbench.results.journal import Journal
from dbbench.storage.layers.volume import kernel_lacks, load_module

MODULE: Final = Path("/sys/module/zfs")
ARCSTATS: Final = Path("/proc/spl/kstat/zfs/arcstats")
ARC_JOURNALLED: Final = "zfs_arc"
ARC_LEAST_BYTES: Final = 64 * 2**20  # OpenZFS accepts no smaller zfs_arc_max
_ARC_SETTLED: Final = 1.01  # the ARC reports its new limit at once, but rounded
_PARAMETERS: Final = (
    "zfs_txg_timeout",
    "zfs_dirty_data_max",
    "zfs_arc_max",
    "zfs_nocacheflush",
    "zil_nocacheflush",
)


def version() -> str | None:
    """Return the version of the kernel module ("2.4.4-1"), or None while it is not loaded."""
    return text(MODULE / "version")


def load() -> None:
    """Load the module. Raises MakeFailed."""
    load_module("zfs")
    if version() is None:
        raise MakeFailed(
            kernel_lacks("zfs") or "the kernel module zfs cannot be loaded",
            effect="Nothing was changed.",
        )


def parameters() -> Scalars:
    """Return the kernel module's parameters that affect performance or durability; {} without the
    module.
    """
    values: Scalars = {}
    for name in _PARAMETERS:
        value = text(MODULE / "parameters" / name)
        if value is not None and value.isdigit():
            values[name] = int(value)
    return values


def arcstats() -> dict[str, int]:
    """Return the kernel's counts of the ARC, for all its pools together; {} if there are none."""
    stats = {}
    for line in (text(ARCSTATS) or "").splitlines()[2:]:
        words = line.split()
        if len(words) == 3:
            stats[words[0]] = int(words[2])
    return stats


def note_resource(
    journal: Journal | None,
    event: str,
    what: str,
    path: str,
) -> None:
    """Record that something of this machine was taken or released, if there is a journal."""
    if journal is not None:
        journal.note(event, what=what, path=path)


@contextlib.contextmanager
def limit_arc(arc_bytes: int | None, journal: Journal | None) -> Iterator[None]:
    """Set zfs_arc_max, and zfs_arc_min below it, within the block (None: unchanged), for all pools
    of the kernel. Raises MakeFailed if the kernel does not accept the limit.
    """
    if arc_bytes is None:
        yield
        return
    most_bytes = max(arc_bytes, ARC_LEAST_BYTES)
    # The limits before are in the journal, because they belong to the whole machine.
    before = {path: path.read_text().strip() for path in _arc_parameters()}
    for path, value in before.items():
        note_resource(journal, "take", ARC_JOURNALLED, f"{path}={value}")
    try:
        least, most = before
        least.write_text(str(min(ARC_LEAST_BYTES // 2, most_bytes // 2)))
        most.write_text(str(most_bytes))
        if arcstats().get("c_max", 0) > most_bytes * _ARC_SETTLED:
            raise MakeFailed(
                f"the kernel limits the ARC to {arcstats().get('c_max')} bytes instead of the "
                f"requested {most_bytes}"
            )
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)
            note_resource(journal, "give_back", ARC_JOURNALLED, f"{path}={value}")


def arc_given_back(journal: Journal) -> list[str]:
    """Restore the limits of the ARC that a killed run has changed; return which."""
    gone = []
    for taken in journal.outstanding(ARC_JOURNALLED):
        name, _, value = taken.partition("=")
        path = Path(name)
        is_value = value.isdecimal() and len(value) < 20
        if is_value and path in _arc_parameters() and path.exists():
            path.write_text(value)
            gone.append(f"{path.name} {value}")
        journal.release(ARC_JOURNALLED, taken)
    return gone


def _arc_parameters() -> tuple[Path, ...]:
    return tuple(MODULE / "parameters" / name for name in ("zfs_arc_min", "zfs_arc_max"))
