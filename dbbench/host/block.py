"""What the block layer does with the disks under test: read when a device is attached and again at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dbbench.host.sysfs import chosen, text

# Documentation/ABI/stable/sysfs-block of the kernel. Those that are properties of the disk and those that anybody may
# set: each has moved a comparison, read_ahead_kb and scheduler first. Loop numbers are reused and keep what was set.
_QUEUE: Final = (
    "scheduler", "read_ahead_kb", "nr_requests", "wbt_lat_usec", "rotational", "logical_block_size",
    "physical_block_size", "minimum_io_size", "optimal_io_size", "max_sectors_kb", "write_cache", "fua",
    "discard_granularity", "discard_max_bytes", "nomerges", "rq_affinity", "add_random", "io_poll", "iostats",
    "stable_writes",
)  # fmt: skip


def block_layer(disks: Sequence[str], root: Path = Path("/")) -> dict[str, str | None]:
    """Flat: "disk: scheduler", of several "disk 2: scheduler"; whole disks by kernel name. None: no such attribute."""
    found: dict[str, str | None] = {}
    for number, disk in enumerate(disks, 1):
        queue = root / "sys/class/block" / disk / "queue"
        name = "disk" if number == 1 else f"disk {number}"
        for attribute in _QUEUE:
            found[f"{name}: {attribute}"] = (chosen if attribute == "scheduler" else text)(queue / attribute)
    return found
