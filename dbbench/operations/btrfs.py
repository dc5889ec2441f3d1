"""btrfs: scrub and check, snapshots of the subvolume that the data lies in, another device and a balance."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import filesystems, process
from dbbench.devices import identity
from dbbench.devices.port import Device
from dbbench.errors import FilesystemDamaged
from dbbench.filesystems import btrfs as family
from dbbench.filesystems import mountinfo
from dbbench.operations.ext import FSCK_S
from dbbench.operations.port import Check, Filled
from dbbench.operations.steps import remounted

ATOMIC: Final = True
SNAPSHOT: Final = ".dbbench-snapshot"  # read-only
CLONE: Final = ".dbbench-clone"
BACK: Final = ".dbbench-back"  # the snapshot made writable, that takes the filesystem's place

_ROOT_INODE: Final = 256  # of every subvolume (linux/btrfs_tree.h)
_BALANCE_S: Final = 6 * 3600.0


# --- Checked ---------------------------------------------------------------------------------------


def checks(_filled: Filled) -> tuple[Check, ...]:
    """Scrub reads everything and its checksums, mounted; check walks the trees, unmounted."""
    return (Check("scrub", _scrub, mounted=True), Check("btrfs check", _check))


def _scrub(filled: Filled) -> str:
    """Status 3: errors that could not be repaired; with repaired ones it is 0, so they are counted too."""
    at = filled.fs.path
    done = process.run(["btrfs", "scrub", "start", "-B", "-R", at], timeout_s=FSCK_S, ok=(0, 3))
    errors = {key: int(n) for key, n in re.findall(r"^\s*(\w+_errors): (\d+)", done.stdout, re.MULTILINE)}
    if done.returncode or any(n for key, n in errors.items() if key != "no_csum"):
        raise FilesystemDamaged(
            f"scrub finds errors on {filled.volume.path}: "
            + (", ".join(f"{key} {n}" for key, n in errors.items() if n) or done.stderr.strip()),
            effect="The trial does not count.",
        )
    read = sum(int(n) for n in re.findall(r"^\s*(?:data|tree)_bytes_scrubbed: (\d+)", done.stdout, re.MULTILINE))
    return f"{read} bytes, no errors"


def _check(filled: Filled) -> str:
    """By name: it opens the other devices of the filesystem by theirs, too."""
    done = process.run(["btrfs", "check", "--readonly", filled.volume.path], timeout_s=FSCK_S, ok=(0, 1))
    if done.returncode:
        raise FilesystemDamaged(
            f"btrfs check finds errors on {filled.volume.path}:\n  " + "\n  ".join(done.stderr.splitlines()[-8:]),
            effect="The trial does not count.",
        )
    return "no errors"


# --- Snapshots -------------------------------------------------------------------------------------


def lacks(filled: Filled) -> str | None:
    """Only where the data lies in no subvolume that can be seen: an existing directory."""
    return None if _is_subvolume(_source(filled)) else f"{_source(filled)} is not the root of a subvolume"


def snapshot(filled: Filled) -> None:
    """Read-only, of the subvolume that the data directory is or lies in."""
    process.run(["btrfs", "subvolume", "snapshot", "-r", _source(filled), filled.fs.path / (SNAPSHOT + filled.tag)])


@contextlib.contextmanager
def clone(filled: Filled) -> Iterator[Path]:
    """A writable snapshot of the snapshot; it needs no mount of its own."""
    at = filled.fs.path / (CLONE + filled.tag)
    process.run(["btrfs", "subvolume", "snapshot", filled.fs.path / (SNAPSHOT + filled.tag), at])
    yield at / filled.datadir.relative_to(_source(filled))  # `drop` deletes it


def taken_bytes(filled: Filled) -> int | None:
    """What only snapshot and clone hold: their exclusive bytes of data and file metadata, as written so far."""
    filesystems.sync(filled.fs.path)
    both = [filled.fs.path / (name + filled.tag) for name in (SNAPSHOT, CLONE)]
    there = [path for path in both if path.exists()]
    return parse_du(process.run(["btrfs", "filesystem", "du", "-s", "--raw", *there], timeout_s=600).stdout)


@process.understood("btrfs filesystem du")
def parse_du(text: str) -> int | None:
    """Of `btrfs filesystem du -s --raw`: total, exclusive, shared, name; the exclusive ones together."""
    rows = re.findall(r"^\s*\d+\s+(\d+)\s+(?:\d+|-)\s+\S", text, re.MULTILINE)
    return sum(int(exclusive) for exclusive in rows) if rows else None


def rollback(filled: Filled) -> None:
    """A data directory that is a subvolume is exchanged for the snapshot; else the filesystem is mounted again
    with the snapshot, made writable, in its place."""
    root = filled.fs.path
    if _source(filled) == filled.datadir:
        filled.datadir.rename(root / BACK)
        process.run(["btrfs", "subvolume", "snapshot", root / SNAPSHOT, filled.datadir])
        return
    process.run(["btrfs", "subvolume", "snapshot", root / SNAPSHOT, root / BACK])
    remounted(filled, f"subvol={BACK}")


def drop(filled: Filled) -> None:
    """Mounted as it was, and all of ours deleted, until their space is free again."""
    root = filled.fs.path
    if f"subvol=/{BACK}" in mountinfo.of(root).options:
        remounted(filled)
    mine = (CLONE + filled.tag, SNAPSHOT + filled.tag, BACK)
    _delete(filled, *(root / name for name in mine if (root / name).exists()))


def _delete(filled: Filled, *subvolumes: Path) -> None:
    if subvolumes:
        process.run(["btrfs", "subvolume", "delete", "--commit-after", *subvolumes], timeout_s=600)
        process.run(["btrfs", "subvolume", "sync", filled.fs.path], timeout_s=3600)


def _source(filled: Filled) -> Path:
    return filled.datadir if _is_subvolume(filled.datadir) else filled.fs.path


def _is_subvolume(path: Path) -> bool:
    return path.stat().st_ino == _ROOT_INODE


# --- Growing ---------------------------------------------------------------------------------------


def add(filled: Filled, spare: Device) -> str:
    """-K: no discard; -f: over an old signature, which the guard has allowed."""
    if filled.journal is not None and spare.facts.kind == "block":
        uuid = family.bdi(filled.fs.path).parent.name
        filled.journal.note("made", device=identity(spare.path), uuid=uuid)
    argv = ["btrfs", "device", "add", "-K", "-f", spare.argument, str(filled.fs.path)]
    process.run(argv, pass_fds=(spare.fd,))
    return f"{len(_devices(filled.fs.path))} devices"


def rebalance(filled: Filled) -> str:
    """Every chunk is written anew, over all devices."""
    argv = ["btrfs", "balance", "start", "--full-balance", str(filled.fs.path)]
    said = process.run(argv, timeout_s=_BALANCE_S).stdout.strip()
    return said or "done"


def _devices(at: Path) -> list[str]:
    return re.findall(r"^\s*devid\s.*path (\S+)", process.run(["btrfs", "filesystem", "show", at]).stdout, re.MULTILINE)


__all__ = ["ATOMIC", "add", "checks", "clone", "drop", "lacks", "parse_du", "rebalance", "rollback", "snapshot",
           "taken_bytes"]  # fmt: skip
