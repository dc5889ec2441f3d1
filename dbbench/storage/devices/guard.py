"""Decide whether a block device may be formatted: all detectors together, and what a permit
overrides.

A permit never overrides use by another process. A signature (a filesystem, a partition table, a
member of an array) is overridden by the identity that a person typed, or by this run's journal
if it recorded making exactly that filesystem. Data without a signature (a database's raw device,
a plain encrypted volume) is overridden by the identity, or by the journal's record of an earlier
use. The search for such data takes at most two seconds, enough for all of a small disk. On a
large one it begins where filesystems keep copies of their first blocks, then reads at ever
smaller distances: data between these places is not detected.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench import process
from dbbench.errors import DbbenchError, DeviceInUse, DeviceNotEmpty, DeviceUnusable
from dbbench.machine.mounts import mounts_of
from dbbench.machine.namespaces import host_proc
from dbbench.results.journal import Journal
from dbbench.storage.devices import configured, loop_driver, naming, sysfs, used
from dbbench.storage.devices.configured import ETC
from dbbench.storage.devices.port import Device

# Bytes that are read at the beginning, middle and end; the superblocks of filesystems and arrays
# are within them.
_LOOKED_AT: Final = 2**20
_UNSEEN_SHOWN: Final = 3  # suspected processes that are named if none is proved to use the device
_WITHIN_S: Final = 2.0
_MOMENT_S: Final = 2.0
# udev locks and reads a disk while it handles the event of a process that has closed it, dbbench's
# included. On a slow machine this took several seconds. Shorter than the limits that a deadline of
# the plan replaces, because a lock that stays is refused.
UDEV_S: Final = 50.0
_LEAST: Final = 64  # places that are read even if this takes longer than _WITHIN_S
_PIECE: Final = 2**16  # bytes that are read at each place
# Second superblocks: of ext2/3/4 with blocks of 1, 2 and 4 KiB, and of btrfs. Those of xfs are near
# each quarter.
COPIES: Final = (8 * 2**20, 32 * 2**20, 128 * 2**20, 64 * 2**20, 256 * 2**30)


Kind = Literal["in use", "unseen", "signature", "data"]
# What a device belongs to although nothing holds it: its other devices may be missing, or nobody has
# activated it.
_MEMBERS: Final = {
    "LVM2_member": "a volume group of LVM",
    "linux_raid_member": "an md array",
    "isw_raid_member": "a RAID of the firmware",
    "ddf_raid_member": "a RAID of the firmware",
    "zfs_member": "a ZFS pool",
    "crypto_LUKS": "an encrypted volume",
    "bcache": "a bcache",
}


@dataclass(frozen=True)
class Reason:
    """Why a device is not free. A signature has its UUID and label, or ""; "data" is content
    without one. "unseen", a process that may not be inspected (in a container often the first),
    is reported only with other reasons: mounts, swap and md would have prevented O_EXCL.
    """

    kind: Kind
    text: str
    uuid: str = ""
    label: str = ""


HELD: Final = Reason(
    "in use", "it is held exclusively (O_EXCL), as mounts, swap, md, dm and some programs do"
)


@dataclass(frozen=True)
class Permit:
    """The devices whose identity the user typed, and the filesystems in the run's journal. An
    identity permits erasing what was on the device when the command started, while `checking` is
    set; not what appears later.
    """

    typed: Collection[str]
    journal: Journal
    checking: bool = False

    def wipe(self, identity: str) -> bool:
        return identity in self.typed and (
            self.checking or not self.journal.has_wiped_disk(identity)
        )

    def is_ours(self, reason: Reason, identity: str) -> bool:
        """Whether this run made that content of the device, according to its journal."""
        if reason.kind == "data":
            return self.journal.had(identity)
        made = self.journal.has_filesystem(identity, reason.uuid) or self.journal.making(identity)
        return reason.kind == "signature" and made

    def note(self, disks: Iterable[Device]) -> None:
        """Record in the journal, before anything is written to them, that these disks may contain
        dbbench's data.
        """
        for disk in disks:
            if (name := disk.identity) and not self.journal.has_wiped_disk(name):
                self.journal.note("had", device=name)


def reasons(path: Path, *, etc: Path = ETC) -> list[Reason]:
    """Return all reasons why the device must not be touched; [] if it is free. Raises
    DeviceUnusable.
    """
    with opened(path) as device:
        return reasons_of([device], etc=etc)[0]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[int, bool]]:
    """Open a device for reading within the block; yield its descriptor and whether it is exclusive.
    Raises DeviceUnusable.
    """
    exclusive = open_device(path, os.O_RDONLY | os.O_EXCL)
    fd = open_device(path, os.O_RDONLY) if exclusive is None else exclusive
    if fd is None:
        raise DeviceUnusable(f"{path} is busy: the kernel refuses to open it even for reading")
    try:
        yield fd, exclusive is not None
    finally:
        os.close(fd)


def reasons_of(
    devices: Sequence[tuple[int, bool]],
    *,
    etc: Path = ETC,
    within_s: float = _WITHIN_S,
) -> list[list[Reason]]:
    """Return the reasons for each device of `opened`, with one look at all processes. `within_s`:
    for the search of data on one of them.
    """
    fds = [fd for fd, _exclusive in devices]
    busy: list[list[Reason]] = [[] if exclusive else [HELD] for _fd, exclusive in devices]
    found = found_on_each(fds, mine=set(fds), etc=etc, within_s=within_s)
    return [held + others for held, others in zip(busy, found, strict=True)]


def open_device(path: Path, flags: int) -> int | None:
    """Return a descriptor of a block device, or None if it is busy (EBUSY). Raises DeviceUnusable."""
    try:
        if not path.is_block_device():  # checked before open(2), which would block on a FIFO
            problem = "not a block device" if path.exists() else "it does not exist"
        else:
            return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return None
        number = path.stat().st_rdev
        problem = f"it cannot be opened: {error.strerror}"
        device = f"{os.major(number)}:{os.minor(number)}"
        if points := [
            entry.point for entry in mounts_of(Path("/proc/self")) if entry.device == device
        ]:
            problem = f"it is mounted at {points[0]}, and cannot be opened: {error.strerror}"
    raise DeviceUnusable(f"{path}: {problem}")


def found_on(fd: int, *, mine: Set[int], etc: Path = ETC) -> list[Reason]:
    """Return what all detectors except O_EXCL find for an open block device; `mine` are this
    process's descriptors.
    """
    return found_on_each([fd], mine=mine, etc=etc)[0]


def found_on_each(
    fds: Sequence[int],
    *,
    mine: Set[int],
    etc: Path = ETC,
    within_s: float = _WITHIN_S,
) -> list[list[Reason]]:
    """Return what `found_on` does for each of these devices, with one look at all processes."""
    names = [kernel_name(fd) for fd in fds]
    signatures = [signatures_of(fd) or data_without(fd, within_s) for fd in fds]
    try:
        uses = _uses(fds, names, signatures, mine, etc)
    except (OSError, DbbenchError, ValueError, LookupError) as error:
        uses = [[f"cannot determine what uses it: {error}"] for _name in names]
    of_devices = list[list[Reason]]()
    for texts, content in zip(uses, signatures, strict=True):
        reasons = list[Reason]()
        for text in texts:
            kind: Kind = "unseen" if isinstance(text, used.Unseen) else "in use"
            reasons.append(Reason(kind, text))
        of_devices.append(reasons + content)
    return of_devices


def _uses(
    fds: Sequence[int],
    names: Sequence[str],
    signatures: Sequence[Sequence[Reason]],
    mine: Set[int],
    etc: Path,
) -> list[list[str]]:
    """Return the evidence of uses for each device. Raises OSError, DbbenchError, ValueError,
    LookupError.
    """
    proc = host_proc()
    statuses = loop_driver.statuses(sysfs.disks())
    devices = [used.target(name, statuses) for name in names]
    mounts = used.mounts_of_each(devices, proc)
    swaps = used.swaps_of_each(devices, proc)
    loops = used.loops_of_each(devices, statuses)
    openers = _find_openers(devices, proc, mine)
    entries = configured.entries(etc)
    return [
        [
            *mounts[device.name],
            *swaps[device.name],
            *used.by_layers(device),
            *loops[device.name],
            *openers[device.name],
            *configured.by_configuration(device, entries, _tags(fd, content)),
        ]
        for device, fd, content in zip(devices, fds, signatures, strict=True)
    ]


def _find_openers(
    devices: Sequence[used.Target],
    proc: Path,
    mine: Set[int],
) -> dict[str, list[str]]:
    """Return who has each device open, after _MOMENT_S: a program that lists disks opens each of
    them for a moment. udev gets more time, because it reads every disk that a process has closed.
    """
    openers_of: dict[str, list[str]] = {}

    def openers() -> list[str]:
        openers_of.update(used.openers_of_each(devices, proc, mine))
        texts = itertools.chain.from_iterable(openers_of.values())
        return [text for text in texts if not isinstance(text, used.Unseen)]

    users = process.wait_while(openers, _MOMENT_S)
    if users and all(isinstance(text, used.ByUdev) for text in users):
        process.wait_while(openers, UDEV_S)
    return openers_of


def must_be_alone(fd: int) -> None:
    """Raise DeviceInUse if another process writes to a held device, through a plain descriptor or a
    loop device, which the exclusive hold does not prevent. A process that has already closed it
    is not detected.
    """
    statuses = loop_driver.statuses(sysfs.disks())
    device = used.target(kernel_name(fd), statuses)
    loops = used.loops_of_each([device], statuses)[device.name]
    if users := [*used.by_writers(device, host_proc()), *loops]:
        raise DeviceInUse(
            f"/dev/{device.name} is in use by another process although dbbench holds it: "
            f"{'; '.join(users)}",
            effect="The trial was stopped. Nothing more is written to the device.",
            remedy="End that process, then run the same command again.",
        )


def locked_by(fd: int) -> str:
    """Return the holders of the flock(2) on that file or device node, one per line."""
    lockers = _lockers(fd)
    shown = [text for text in lockers if not isinstance(text, used.Unseen)]
    return "".join(
        f"\n  {text}"
        for text in shown
        or lockers[:_UNSEEN_SHOWN]
        or ["the process that holds the lock is not visible"]
    )


def locked_by_udev(fd: int) -> bool:
    """Whether udev holds the flock(2), or a process that has ended meanwhile."""
    return all(isinstance(text, used.ByUdev) for text in _lockers(fd))


def _lockers(fd: int) -> list[str]:
    try:
        return used.by_locks(os.fstat(fd), host_proc())
    except (OSError, ValueError) as error:
        return [f"cannot determine which process holds the lock: {error}"]


def signatures_of(fd: int) -> list[Reason]:
    """Return what wipefs finds, with backups; a failing wipefs or an unreadable disk is a reason:
    unknown content.
    """
    argv = ["wipefs", "--no-act", "--json", f"/proc/self/fd/{fd}"]
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        # from the disk: not from memory
        for offset in (0, size // 2 & ~(_LOOKED_AT - 1), max(0, size - _LOOKED_AT)):
            os.posix_fadvise(fd, offset, _LOOKED_AT, os.POSIX_FADV_DONTNEED)
            if len(os.pread(fd, _LOOKED_AT, offset)) < min(_LOOKED_AT, size - offset):
                raise OSError(errno.EIO, f"it ends before byte {size}")
        done = process.run(argv, pass_fds=(fd,), note=False, timeout_s=60)
        return parse(done.stdout)
    except (OSError, DbbenchError) as error:
        return [Reason("in use", f"its signatures cannot be read: {error}")]


def data_without(fd: int, within_s: float = _WITHIN_S) -> list[Reason]:
    """Return the reason if a device without a signature has data."""
    try:
        offset = data_at(fd, within_s)
    except OSError as error:
        return [Reason("in use", f"it cannot be read: {error}")]
    if offset is None:
        return []
    return [Reason("data", f"data without a signature at byte {offset}")]


@process.understood("wipefs")
def parse(answer: str) -> list[Reason]:
    """Return the signatures in wipefs's JSON."""
    marks = []
    for entry in json.loads(answer)["signatures"]:
        uuid = entry.get("uuid") or ""
        label = entry.get("label") or ""
        words = [entry["type"], f"{label!r}" if label else "", f"(uuid {uuid})" if uuid else ""]
        text = " ".join(word for word in words if word) + f" at byte {int(entry['offset'], 16)}"
        if entry["type"] in _MEMBERS:
            text += f": part of {_MEMBERS[entry['type']]}, which need not be active"
        marks.append(Reason("signature", text, uuid, label))
    return marks


def refuse(
    path: Path,
    name: str,
    found: Sequence[Reason],
    permit: Permit,
    names: naming.DiskNames | None = None,
) -> None:
    """Raise DeviceInUse or DeviceNotEmpty, unless the device is free or the permit overrides its
    signatures. `names`: of all disks, if they were read before.
    """
    word = naming.identity_of(name, names)
    shown = f"{path} ({sysfs.size_bytes(name)} bytes, identity {word})"
    found = sorted(found, key=lambda reason: reason.kind != "in use")  # what decides first
    lines = "".join(f"\n  {reason.text}" for reason in found)
    if any(reason.kind == "in use" for reason in found):
        raise DeviceInUse(f"{shown} is in use:{lines}", remedy=_release(name))
    if permit.wipe(word) or all(
        reason.kind == "unseen" or permit.is_ours(reason, word) for reason in found
    ):
        return
    raise DeviceNotEmpty(
        f"{shown} may contain data:{lines}",
        remedy=f"If everything on it may be erased: dbbench run PLAN --wipe {word}",
    )


def _release(name: str) -> str:
    """Return the remedy for a device in use: the commands for the layers on it."""
    commands = used.releases(name)
    if not commands:
        return (
            "Release it (umount, swapoff, losetup -d, remove the line in fstab), or choose another "
            "device."
        )
    ours = any(map(used.is_of_dbbench, sysfs.above(name)))
    return "\n".join(
        [
            "If nothing uses it any more, unmount what is on it, then release it, or choose another "
            "device:",
            *(f"  {command}" for command in commands),
            *(["A killed run of dbbench left it:  dbbench clean"] if ours else []),
        ]
    )


def kernel_name(fd: int) -> str:
    """Return the kernel name of an open block device. Raises DeviceUnusable."""
    name = (
        sysfs.name_of(os.fstat(fd).st_rdev)
        if Path(f"/proc/self/fd/{fd}").is_block_device()
        else None
    )
    if name is None:
        raise DeviceUnusable(f"{Path(f'/proc/self/fd/{fd}').readlink()} is not a block device")
    return name


def _tags(fd: int, signatures: Sequence[Reason]) -> set[str]:
    """Return the tags with which a configuration may name it: those of its content, and of its
    entry in a partition table.
    """
    argv = ["blkid", "--probe", "--output", "export", f"/proc/self/fd/{fd}"]
    # Status 2: nothing found; 8: several signatures.
    answer = process.run(argv, ok=(0, 2, 8), pass_fds=(fd,), note=False)
    tags = {f"UUID={reason.uuid}" for reason in signatures if reason.uuid}
    tags |= {f"LABEL={reason.label}" for reason in signatures if reason.label}
    for line in answer.stdout.splitlines():
        key, _, value = line.partition("=")
        tag = {"PART_ENTRY_UUID": "PARTUUID", "PART_ENTRY_NAME": "PARTLABEL"}.get(key, key)
        tags.add(f"{tag}={value}")
    return tags


def data_at(fd: int, within_s: float = _WITHIN_S) -> int | None:
    """Return the position of the first nonzero byte that was read, or None if all of them are 0.
    Raises OSError.
    """
    until = time.monotonic() + within_s
    for number, place in enumerate(places(os.lseek(fd, 0, os.SEEK_END))):
        piece = os.pread(fd, _PIECE, place)
        if rest := piece.lstrip(b"\0"):
            return place + len(piece) - len(rest)
        # a disk of zeros need not stay in the page cache
        os.posix_fadvise(fd, place, _PIECE, os.POSIX_FADV_DONTNEED)
        if number >= _LEAST and time.monotonic() > until:
            break
    return None


def places(size: int) -> Iterator[int]:
    """Yield positions to read on a device of that size; together they cover all of it."""
    yield 0
    yield max(0, size - _PIECE)
    quarters = (size * number // 4 // _PIECE * _PIECE for number in (1, 2, 3))
    yield from (place for place in (*COPIES, *quarters) if place < size)
    step = 1 << (size - 1).bit_length() if size > 1 else 0
    while step > _PIECE:
        yield from range(step // 2, size, step)
        step //= 2
