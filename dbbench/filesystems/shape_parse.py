"""Free space as each tool prints it: text in, free extents out; and the histogram that all of them become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from dbbench.model import FreeExtents

FreeExtent = tuple[int, int, int]  # the least size in bytes, how many, bytes of all of them

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def histogram(found: Iterable[FreeExtent]) -> tuple[FreeExtents, ...]:
    """Free extents in bins of powers of two, the smallest first."""
    bins: dict[int, tuple[int, int]] = {}
    for size, count, total in found:
        low = 1 << max(0, size.bit_length() - 1)
        extents, bytes_ = bins.get(low, (0, 0))
        bins[low] = (extents + count, bytes_ + total)
    return tuple(FreeExtents(low, *bins[low]) for low in sorted(bins))


def parse_e2freefrag(text: str) -> Iterator[FreeExtent]:
    """Of e2freefrag: "   8K...   16K-  :   2   5   0.00%": two extents, five blocks."""
    block = re.search(r"^Blocksize: (\d+) bytes", text, re.MULTILINE)
    if block is None:
        return
    rows = re.findall(r"^ *(\d+)([KMGT]?)\.\.\. *\d+[KMGT]?- +: +(\d+) +(\d+) ", text, re.MULTILINE)
    for low, unit, extents, blocks in rows:
        yield int(low) * _UNITS[unit], int(extents), int(blocks) * int(block[1])


def parse_freesp(text: str, block_size: int) -> Iterator[FreeExtent]:
    """Of xfs_spaceman's freesp: a table of from, to, extents, blocks, pct."""
    for low, extents, blocks in re.findall(r"^ *(\d+) +\d+ +(\d+) +(\d+) +[\d.]+$", text, re.MULTILINE):
        yield int(low) * block_size, int(extents), int(blocks) * block_size


def parse_usage(text: str) -> dict[str, int]:
    """Of `btrfs filesystem usage --raw`: used bytes by kind, on the devices (both copies of DUP), and what no kind
    has been given yet ("unallocated")."""
    copies = {"DUP": 2, "RAID1": 2, "RAID10": 2, "RAID1C3": 3, "RAID1C4": 4}
    found: dict[str, int] = {}
    for kind, profile, used in re.findall(r"^(\w+),(\w+): Size:\d+, Used:(\d+)", text, re.MULTILINE):
        key = kind.lower()
        found[key] = found.get(key, 0) + int(used) * copies.get(profile.upper(), 1)
    if match := re.search(r"^\s*Device unallocated:\s+(\d+)", text, re.MULTILINE):
        found["unallocated"] = int(match[1])
    return found
