"""May this block device be formatted? All detectors together, and what yields to a permit.

A device that anybody uses never yields. A signature (a filesystem, a partition table, a member of an array) yields
to the identity that a person typed, or to our own journal's record of having made exactly that filesystem. So does
data without one (a database's raw device, a plain encrypted volume), or to the journal's record that this run has had
the device before.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench import process
from dbbench.devices import blank, naming, sysfs, used
from dbbench.devices.port import Permit
from dbbench.errors import DbbenchError, DeviceInUse, DeviceNotEmpty, DeviceUnusable
from dbbench.namespaces import host_proc

FSTAB: Final = Path("/etc/fstab")
_LOOKED_AT: Final = 2**20  # bytes; superblocks of today's filesystems and arrays stand in the first or last of these
_UNSEEN_SHOWN: Final = 3  # processes that might be it, where none is seen to be
UNTOUCHED: Final = "Nothing was changed."


@dataclass(frozen=True)
class Reason:
    """Why a device is not free. A signature has its UUID and label, or "". "data" is what has none.

    "unseen" is a process that we may not look into (in a container often its first one): it might hold the device
    open. Mounts, swap and md would have refused O_EXCL, so this yields to the typed identity, and to nothing else.
    """

    kind: Literal["in use", "unseen", "signature", "data"]
    text: str
    uuid: str = ""
    label: str = ""


def reasons(path: Path, *, fstab: Path = FSTAB) -> list[Reason]:
    """All reasons why the device must not be touched; [] where it is free. Raises DeviceUnusable."""
    exclusive = opened(path, os.O_RDONLY | os.O_EXCL)
    fd = opened(path, os.O_RDONLY) if exclusive is None else exclusive
    if fd is None:
        raise DeviceUnusable(f"{path}: the kernel says it is busy even for reading", effect=UNTOUCHED)
    try:
        busy = [] if exclusive is not None else [held_exclusively()]
        return busy + found_on(fd, mine={fd}, fstab=fstab)
    finally:
        os.close(fd)


def held_exclusively() -> Reason:
    """What a refused O_EXCL says."""
    return Reason("in use", "it is held exclusively (O_EXCL), as mounts, swap, md, dm and some programs do")


def opened(path: Path, flags: int) -> int | None:
    """A descriptor of a block device; None where it is busy (EBUSY). Raises DeviceUnusable."""
    try:
        if not path.is_block_device():  # before open(2), which would wait on a FIFO
            problem = "not a block device" if path.exists() else "it is not there"
        else:
            return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return None
        problem = error.strerror or str(error)
    raise DeviceUnusable(f"{path}: {problem}", effect=UNTOUCHED, remedy="dbbench doctor")


def found_on(fd: int, *, mine: Set[int], fstab: Path = FSTAB) -> list[Reason]:
    """What all detectors but O_EXCL find about an open block device; `mine` are our own descriptors of it."""
    name = kernel_name(fd)
    signatures = signatures_of(fd) or data_without(fd)
    try:
        device, proc = used.target(name), host_proc()
        texts = [
            *used.by_mounts(device, proc),
            *used.by_swaps(device, proc),
            *used.by_layers(device),
            *used.by_loops(device),
            *used.by_open_files(device, proc, mine),
            *used.by_fstab(device, fstab, _tags(fd, name, signatures)),
        ]
    except (OSError, DbbenchError, ValueError, LookupError) as error:
        texts = [f"who uses it cannot be found out: {error}"]
    return [Reason("unseen" if isinstance(text, used.Unseen) else "in use", text) for text in texts] + signatures


def locked_by(fd: int) -> str:
    """Who holds the flock(2) that could not be had on that file or device node, a line each, for an error's text."""
    try:
        found = used.by_locks(os.fstat(fd), host_proc())
    except (OSError, ValueError) as error:
        found = [f"who that is cannot be found out: {error}"]
    shown = [text for text in found if not isinstance(text, used.Unseen)] or found[:_UNSEEN_SHOWN]
    return "".join(f"\n  {text}" for text in shown or ["no process that holds it is to be seen"])


def signatures_of(fd: int) -> list[Reason]:
    """What wipefs finds, backups too. A wipefs that fails, and a disk that cannot be read, count as use: nobody
    knows what is there. (wipefs itself passes over what it cannot read.)"""
    try:
        _must_be_readable(fd)
        done = process.run(
            ["wipefs", "--no-act", "--json", f"/proc/self/fd/{fd}"], pass_fds=(fd,), note=False, timeout_s=60
        )
        return parsed(done.stdout)
    except (OSError, DbbenchError, ValueError, LookupError, TypeError) as error:
        return [Reason("in use", f"its signatures cannot be read: {error}")]


def data_without(fd: int) -> list[Reason]:
    """Data on a device that has no signature."""
    try:
        at = blank.data_at(fd)
    except OSError as error:
        return [Reason("in use", f"it cannot be read: {error}")]
    return [] if at is None else [Reason("data", f"data without a signature at byte {at}")]


def _must_be_readable(fd: int) -> None:
    """Read where signatures stand, from the disk itself: its begin, its middle, its end. OSError."""
    size = os.lseek(fd, 0, os.SEEK_END)
    for offset in (0, size // 2 & ~(_LOOKED_AT - 1), max(0, size - _LOOKED_AT)):
        os.posix_fadvise(fd, offset, _LOOKED_AT, os.POSIX_FADV_DONTNEED)
        if len(os.pread(fd, _LOOKED_AT, offset)) < min(_LOOKED_AT, size - offset):
            raise OSError(errno.EIO, f"it ends before byte {size}")


def parsed(answer: str) -> list[Reason]:
    """The signatures of wipefs's JSON. ValueError or KeyError where it is something else."""
    found = []
    for entry in json.loads(answer)["signatures"]:
        uuid, label = entry["uuid"] or "", entry["label"] or ""
        words = [entry["type"], f"{label!r}" if label else "", f"(uuid {uuid})" if uuid else ""]
        text = " ".join(word for word in words if word) + f" at byte {int(entry['offset'], 16)}"
        found.append(Reason("signature", text, uuid, label))
    return found


def refuse(path: Path, name: str, found: Sequence[Reason], permit: Permit) -> None:
    """Raise DeviceInUse or DeviceNotEmpty, unless the device is free or its signatures yield to the permit."""
    word = naming.identity_of(name)
    shown = f"{path} ({sysfs.size_bytes(name)} bytes, identity {word})"
    lines = "".join(f"\n  {reason.text}" for reason in found)
    if any(reason.kind == "in use" for reason in found):
        raise DeviceInUse(
            f"{shown} is in use:{lines}",
            effect=UNTOUCHED,
            remedy="Free it (umount, swapoff, losetup -d, the line in fstab), or name another device.",
        )
    if permit.wipe(word) or all(_is_ours(reason, word, permit) for reason in found):
        return
    raise DeviceNotEmpty(
        f"{shown} is not known to be empty and free:{lines}",
        effect=UNTOUCHED,
        remedy=f"If it may be erased:  dbbench run PLAN --wipe {word}",
    )


def _is_ours(reason: Reason, identity: str, permit: Permit) -> bool:
    if reason.kind == "data":
        return permit.had_by_us(identity)
    return reason.kind == "signature" and permit.made_by_us(identity, reason.uuid)


def kernel_name(fd: int) -> str:
    """The kernel name of an open block device. Raises DeviceUnusable where it is something else."""
    name = sysfs.name_of(os.fstat(fd).st_rdev) if _is_block(fd) else None
    if name is None:
        raise DeviceUnusable(f"{Path(f'/proc/self/fd/{fd}').readlink()} is not a block device", effect=UNTOUCHED)
    return name


def _is_block(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").is_block_device()


def _tags(fd: int, name: str, signatures: Sequence[Reason]) -> set[str]:
    """By which tags fstab may name it: those of its content, and of its entry in a partition table."""
    argv = ["blkid", "--probe", "--output", "export", f"/proc/self/fd/{fd}"]
    answer = process.run(argv, ok=(0, 2, 8), pass_fds=(fd,), note=False)  # 2: nothing found; 8: more than one
    tags = {f"UUID={reason.uuid}" for reason in signatures if reason.uuid}
    tags |= {f"LABEL={reason.label}" for reason in signatures if reason.label}
    for line in answer.stdout.splitlines():
        key, _, value = line.partition("=")
        tag = {"PART_ENTRY_UUID": "PARTUUID", "PART_ENTRY_NAME": "PARTLABEL"}.get(key, key)
        tags.add(f"{tag}={value}")
    return tags
