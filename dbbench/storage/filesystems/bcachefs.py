"""bcachefs: copy-on-write with checksums.

This module follows the manual (bcachefs(8), bcachefs(5)) and the tools; it has not been tested on a mounted filesystem.
Linux contained bcachefs from 6.7 to 6.17; since then DKMS builds its module. Data is written to new blocks, but a page
can tear: the blocks of one page may lie in different extents, and with `nocow` they are overwritten in place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.machine.host import proc
from dbbench.model import Durability, FsSetup, Scalar
from dbbench.storage.filesystems.common import FSCK_S
from dbbench.storage.filesystems.formatted import Formatted, damaged
from dbbench.storage.filesystems.port import COPIED, Character, Check, Stored

_NO_FLUSH: Final = "journal_flush_disabled"
_BLOCK: Final = Path("/sys/class/block")
_BDI: Final = Path("/sys/class/bdi")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


class Bcachefs(Formatted):
    """bcachefs; its pages can tear (see above). It has snapshots, but no operation here uses them."""

    described = Character("data and metadata", False, "yes", False, "grow", COPIED)

    def programs(self, setup: FsSetup) -> tuple[str, ...]:
        """Return the programs for making, reading back and mounting."""
        return ("bcachefs", "mount.bcachefs")

    def mkfs_argv(self, setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
        """Return mkfs with --force, which overwrites a signature that the guard has permitted.

        mkfs discards nothing by itself; the mount option takes precedence over the superblock for the mounted
        filesystem.
        """
        return ["bcachefs", "format", "--quiet", "--force", *setup.mkfs.options, *targets]

    def geometry(self, target: Path) -> dict[str, Scalar]:
        """Return sizes of blocks, btree nodes and buckets, checksums, compression and version (`bcachefs
        show-super`)."""
        return parse_super(process.run(["bcachefs", "show-super", target]).stdout)

    def live(self, device_name: str) -> dict[str, Scalar]:
        """Return journal_flush_disabled of that device's filesystem, which the superblock may set too."""
        link = _BLOCK / device_name / "bcachefs"
        value = proc.text(link.resolve().parent / "options" / _NO_FLUSH) if device_name else None
        return {} if value is None else {_NO_FLUSH: value != "0"}

    def flags(self, effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
        """Return the durability flags: an fsync flushes the journal unless that is disabled, which loses the last
        second."""
        return (Durability.ASYNC_COMMIT,) if _NO_FLUSH in effective or live.get(_NO_FLUSH) else ()

    def bdi(self, path: Path) -> Path:
        """Return the directory of its bdi, or one that does not exist.

        Its device number is that of the disk, which has another bdi, and nothing links to its own; it is known only if
        it is the only mounted bcachefs.
        """
        folders = list(_BDI.glob("bcachefs-*"))
        return folders[0] if len(folders) == 1 else _BDI / "bcachefs"

    def checks(self) -> tuple[Check, ...]:
        """Return bcachefs fsck -n -f: a full check without corrections. Tested on files only."""
        return (Check("bcachefs fsck -n", _fsck),)


FAMILY: Final = Bcachefs("bcachefs")


@process.understood("bcachefs show-super")
def parse_super(text: str) -> dict[str, Scalar]:
    """Parse `bcachefs show-super`: "name:  value" per line, with options and the first device indented."""
    fields = dict(reversed(re.findall(r"^\s*([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)))
    return {
        "uuid": fields["External UUID"],
        "block_size": _bytes(fields["block_size"]),
        "btree_node_bytes": _bytes(fields["btree_node_size"]),
        "bucket_bytes": _bytes(fields["Bucket size"]),
        "buckets": int(fields["Buckets"]),
        "metadata_checksum": _chosen(fields["metadata_checksum"]),
        "data_checksum": _chosen(fields["data_checksum"]),
        "compression": fields["compression"],
        "discard": fields["Discard"] != "0",
        "nocow": fields["nocow"] != "0",
        "version": fields["Version"],
    }


def _fsck(stored: Stored) -> str:
    argv = ["bcachefs", "fsck", "-n", "-f", stored.volume.argument]
    done = process.run(argv, timeout_s=FSCK_S, ok=range(256), pass_fds=(stored.volume.fd,))
    if done.returncode:  # status 8 means that it cannot read the trees
        lines = "; ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-4:])
        raise damaged("bcachefs fsck", stored, f" (status {done.returncode}): {lines}")
    return "no errors"


def _bytes(size: str) -> int:
    """Parse "4.00 KiB", "4.00k" of later versions, or "512"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGTP]?)(?:i?B)?", size)
    if match is None:
        raise ValueError(f"{size!r} is not a size")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _chosen(words: str) -> str:
    """Return "crc32c" for "none [crc32c] crc64 xxhash"; a single word is the value."""
    match = re.search(r"\[([^\]]+)\]", words)
    return match[1] if match else words
