"""md below a filesystem: another device in the array."""

from __future__ import annotations

from dbbench.devices.port import Device
from dbbench.layers import md, note_made
from dbbench.operations.port import Filled
from dbbench.operations.resizing import resize


def add(filled: Filled, spare: Device) -> str:
    """It begins to be reshaped, or to be copied to, in the background."""
    md.add(filled.volume.layers[-1], spare)
    if filled.journal is not None:
        note_made(spare, filled.journal)
    return "begun"


def rebalance(filled: Filled) -> str:
    """Until nothing is moved any more; then the filesystem is grown where there is more space (RAID1 has none)."""
    found = md.until_idle(filled.volume.layers[-1])
    if int(found["size_bytes"]) <= int(filled.volume.layers[-1]["size_bytes"]):
        return f"{found['devices']} devices, one copy more"
    return f"{found['devices']} devices; {resize(filled)}"
