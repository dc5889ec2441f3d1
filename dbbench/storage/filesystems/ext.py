"""ext2, ext3 and ext4: made by mke2fs, with the kernel's ext4 driver (ext2 has its own in some
kernels).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import KernelLacks
from dbbench.model import Durability, FsSetup, Scalar, Scalars, Words
from dbbench.storage.filesystems.common import (
    PAGE_BYTES,
    TOOL_S,
    block_bytes,
    match,
    mount_of,
    option_value,
)
from dbbench.storage.filesystems.family import Character, Check, FreeExtent, Mounted, Stored
from dbbench.storage.filesystems.formatted import Formatted, examine
from dbbench.units import bytes_of

# Lazy initialisation would write inode tables in the background during the measured window, and a
# discard would release the extents of a fully written image.
_EXTENDED: Final = ("lazy_itable_init=0", "lazy_journal_init=0", "nodiscard")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# exit statuses of e2fsck for errors, corrected or not; with -n it corrects nothing
_DAMAGED: Final = (1, 2, 4)
_NEED_JOURNAL: Final = ("data", "commit", "journal_checksum", "journal_async_commit")
# since Linux 6.19, with huge pages
LARGE_BLOCKS: Final = "sys/fs/ext4/features/blocksize_gt_pagesize"


def _fsck(stored: Stored) -> str:
    printed = examine(stored, "e2fsck", "-f", "-n", ok=(0, *_DAMAGED))
    last_line = printed.strip().splitlines()[-1]
    return last_line.split(": ", 1)[-1]


class Ext(Formatted):
    """What the three have in common. Pages can tear, with data=journal too."""

    tuner = "tune2fs"
    tries_mkfs = True
    described = Character("none", False, "no", False, "grow", True)
    checks = (Check("e2fsck -fn", _fsck),)

    def programs(self, setup: FsSetup) -> Words:
        programs = (f"mkfs.{self.name}", "dumpe2fs")
        if setup.mkfs.tune:
            return (*programs, self.tuner)
        return programs

    def mkfs_argv(self, setup: FsSetup, targets: Words) -> list[str]:
        """Return mke2fs without -F: it asks about old signatures only on a terminal. Blocks above
        the page size require one -F, which still refuses a mounted device. All -E are merged,
        because only the last one counts.
        """
        rest = list[str]()
        extended = list[str]()
        words = iter(setup.mkfs.options)
        for word in words:
            if word == "-E":
                extended += next(words, "").split(",")
            else:
                rest.append(word)
        argv = [f"mkfs.{self.name}", "-q"]
        if block_bytes(setup) > PAGE_BYTES:
            argv.append("-F")
        return [*argv, *rest, "-E", ",".join((*_EXTENDED, *extended)), *targets]

    def geometry(self, target: Path) -> Scalars:
        return parse_dumpe2fs(process.run(["dumpe2fs", target], timeout_s=300).stdout)

    def lacks(self, setup: FsSetup, root: Path = Path("/")) -> str | None:
        size = block_bytes(setup)
        supported = self.name == "ext4" and (root / LARGE_BLOCKS).exists()
        if size <= PAGE_BYTES or supported:
            return None
        here = f"this is {self.name} of {os.uname().release}"
        return (
            f"blocks of {size} bytes, above the page size of {PAGE_BYTES}, need ext4 of Linux "
            f"6.19 or later; {here}"
        )

    def live(self, device_name: str, proc: Path = Path("/proc")) -> Scalars:
        """Return has_journal and data_mode, which the kernel reports only with a journal, also if
        it is the superblock's default. Raises KernelLacks if it reports neither.
        """
        source = proc / f"fs/ext4/{device_name}/options"
        try:
            options = source.read_text().split()
        except OSError as error:
            mounts = (proc / "self/mountinfo").read_text()
            by_ext2 = f" - ext2 /dev/{device_name} " in mounts
            if by_ext2 and not source.parent.exists():
                return {"has_journal": False}  # the ext2 driver of the kernel has no journal
            raise KernelLacks(
                f"{source} cannot be read ({error.strerror}), so dbbench cannot determine whether "
                f"{device_name} has a journal",
                effect="Nothing was measured.",
            ) from error
        modes = [option.removeprefix("data=") for option in options if option.startswith("data=")]
        if not modes:
            return {"has_journal": False}
        return {"has_journal": True, "data_mode": modes[-1]}

    def flags(self, effective: Words, live: Scalars) -> tuple[Durability, ...]:
        """Return the flags; data=writeback has none: databases use fsync for what they promise."""
        flags = []
        # the kernel shows "nobarrier" for both
        if "nobarrier" in effective or "barrier=0" in effective:
            flags.append(Durability.NO_BARRIER)
        if not live["has_journal"]:
            flags.append(Durability.NO_JOURNAL)
        return tuple(flags)

    def unit_bytes(self, setup: FsSetup, live: Mapping[str, Scalar]) -> int:
        """Return the size of a block or, with bigalloc, of a cluster; data=journal has no direct
        I/O.
        """
        if live.get("data_mode") == "journal":
            return 0
        features = option_value(setup.mkfs.options, "-O") or ""
        cluster = option_value(setup.mkfs.options, "-C") or ""
        if "bigalloc" in features.split(","):
            with contextlib.suppress(ValueError):
                return bytes_of(cluster.upper())
        return block_bytes(setup)

    def promises(self, setup: FsSetup) -> tuple[Durability, ...]:
        return self.flags(setup.mount, {"has_journal": self._has_journal(setup)})

    def conflict(self, setup: FsSetup) -> str | None:
        if self._has_journal(setup):
            return None
        for option in setup.mount:
            if option.partition("=")[0] in _NEED_JOURNAL:
                return f'mount option "{option}" needs a journal, which the setup does not have'
        return None

    def _has_journal(self, setup: FsSetup) -> bool:
        words = setup.mkfs.options
        journal = self.name != "ext2" or not {"-j", "-J"}.isdisjoint(words)
        for flag, features in pairwise(words):
            if flag == "-O":
                # the last of several features counts
                for feature in features.split(","):
                    if feature in ("has_journal", "^has_journal", "none"):
                        journal = feature == "has_journal"
        return journal

    def free_extents(self, fs: Mounted) -> Iterable[FreeExtent]:
        argv = ["e2freefrag", mount_of(fs.path).source]
        return parse_e2freefrag(process.run(argv, timeout_s=TOOL_S).stdout)


class Ext3(Ext):
    """ext3, with a journal."""

    period_s = 5.0  # ext4(5): commit=5
    resizing = ("resize2fs", "{device}")


class Ext4(Ext3):
    """ext4, with extents and metadata checksums."""

    reads_with = ("dumpe2fs", "e2freefrag")
    defragmented = (0, 1)  # e4defrag returns 1 if it cannot improve a file
    described = Character("metadata", False, "no", False, "grow", True)

    def defragmenting(self, datadir: Path, files: Sequence[Path]) -> list[list[str]]:
        return [["e4defrag", *map(str, files)]]


FAMILIES: Final = (Ext("ext2"), Ext3("ext3"), Ext4("ext4"))


@process.understood("dumpe2fs")
def parse_dumpe2fs(text: str) -> Scalars:
    """Parse the superblock and the groups' flags in dumpe2fs's output."""
    superblock = text.partition("\nGroup 0:")[0]
    head = dict(re.findall(r"^([A-Z][^:\n]*):[ \t]+(.*)$", superblock, re.MULTILINE))
    groups = re.findall(r"^Group \d+:.*$", text, re.MULTILINE)
    if not groups:
        raise ValueError("no line of a group")
    features = head["Filesystem features"].split()
    uninitialised = 0  # lazy initialisation needs checksums of groups
    if "metadata_csum" in features or "uninit_bg" in features:
        uninitialised = sum("ITABLE_ZEROED" not in line for line in groups)
    geometry: Scalars = {
        "uuid": head["Filesystem UUID"],
        "block_size": int(head["Block size"]),
        "blocks": int(head["Block count"]),
        "inode_size": int(head["Inode size"]),
        "default_mount_options": head["Default mount options"].replace("(none)", ""),
        "has_journal": "has_journal" in features,
        "features": " ".join(features),
        "groups": len(groups),
        "uninitialised_groups": uninitialised,
    }
    if "Cluster size" in head:
        geometry["cluster_size"] = int(head["Cluster size"])
    # The size of an external journal is not in this output.
    if geometry["has_journal"] and "Journal device" not in head:
        # A small journal is written as "4096k".
        size = head.get("Total journal size") or head["Journal size"]
        geometry["journal_bytes"] = bytes_of(size.upper())
    return geometry


@process.understood("e2freefrag")
def parse_e2freefrag(text: str) -> list[FreeExtent]:
    """Parse e2freefrag: "   8K...   16K-  :   2   5   0.00%" means two extents, five blocks."""
    block = match(r"^Blocksize: (\d+) bytes", text)
    table = match(r"^Extent Size Range.*\n([\s\S]*)", text)
    extents = []
    for line in table[1].splitlines():
        row = match(r"^ *(\d+)([KMGT]?)\.\.\. *\d+[KMGT]?- +: +(\d+) +(\d+) ", line)
        least, unit, count, blocks = row.groups()
        extents.append((int(least) * _UNITS[unit], int(count), int(blocks) * int(block[1])))
    return extents
