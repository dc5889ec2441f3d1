"""bcachefs: copy-on-write with checksums. Written from its manual (bcachefs(8), bcachefs(5)) and its tools alone:
no kernel here has it, so it was never mounted by us.

Linux had it from 6.7 to 6.17; since then its module is built by DKMS. Data goes to new places, and yet a page can tear:
nobody promises that the blocks of one page become one extent, and with `nocow` they are overwritten in place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems import common
from dbbench.host import sysfs
from dbbench.model import Durability, FsSetup, Scalar

mount_options = common.mount_options
tears = common.always_tears  # see above
SNAPSHOTS: Final = False  # it has them; no operation here takes one

_NO_FLUSH: Final = "journal_flush_disabled"
_BLOCK: Final = Path("/sys/class/block")
_BDI: Final = Path("/sys/class/bdi")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def programs(setup: FsSetup) -> tuple[str, ...]:
    """What making, reading back and mounting takes."""
    return ("bcachefs", "mount.bcachefs")


def mkfs_argv(setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
    """--force: over an old signature, which the guard has allowed. It discards nothing by itself; whether the mounted
    filesystem does is the mount option's word, over the superblock's."""
    return ["bcachefs", "format", "--quiet", "--force", *setup.mkfs.options, *targets]


def geometry(target: Path) -> dict[str, Scalar]:
    """By `bcachefs show-super`: sizes of blocks, btree nodes and buckets, checksums, compression, on-disk version."""
    return parse_super(process.run(["bcachefs", "show-super", target]).stdout)


@process.understood("bcachefs show-super")
def parse_super(text: str) -> dict[str, Scalar]:
    """Of `bcachefs show-super`: "name:  value" a line, those of options and of the first device indented."""
    said = dict(reversed(re.findall(r"^\s*([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)))
    return {
        "uuid": said["External UUID"],
        "block_size": _bytes(said["block_size"]),
        "btree_node_bytes": _bytes(said["btree_node_size"]),
        "bucket_bytes": _bytes(said["Bucket size"]),
        "buckets": int(said["Buckets"]),
        "metadata_checksum": _chosen(said["metadata_checksum"]),
        "data_checksum": _chosen(said["data_checksum"]),
        "compression": said["compression"],
        "discard": said["Discard"] != "0",
        "nocow": said["nocow"] != "0",
        "version": said["Version"],
    }


def live(device_name: str) -> dict[str, Scalar]:
    """journal_flush_disabled, which the superblock may hold too, of the filesystem on that block device."""
    link = _BLOCK / device_name / "bcachefs"
    found = sysfs.text(link.resolve().parent / "options" / _NO_FLUSH) if device_name else None
    return {} if found is None else {_NO_FLUSH: found != "0"}


def flags(effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
    """An fsync writes the journal and flushes it, unless that was turned off: then the last second's are lost."""
    return (Durability.ASYNC_COMMIT,) if _NO_FLUSH in effective or live.get(_NO_FLUSH) else ()


def bdi(path: Path) -> Path:
    """Its device number is the disk's, whose bdi is not its own; nothing links the one that is. Known where it is the
    only mounted bcachefs, else a folder that is not there."""
    found = list(_BDI.glob("bcachefs-*"))
    return found[0] if len(found) == 1 else _BDI / "bcachefs"


def _bytes(size: str) -> int:
    """ "4.00 KiB", as later versions say it "4.00k", "512"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGTP]?)(?:i?B)?", size)
    if match is None:
        raise ValueError(f"{size!r} is no size")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _chosen(words: str) -> str:
    """ "crc32c" of "none [crc32c] crc64 xxhash"; one word alone is it."""
    match = re.search(r"\[([^\]]+)\]", words)
    return match[1] if match else words
