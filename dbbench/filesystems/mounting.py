"""Mount, read back what the kernel took, unmount; and the same reading of a directory that is already there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices.port import Device
from dbbench.errors import ClaimWrong, CommandFailed, DeadlinePassed, DirectoryRefused, MountFailed, UnmountFailed
from dbbench.filesystems import common, holders, mountinfo
from dbbench.filesystems.families import FAMILIES, POOLED, SEVERAL
from dbbench.filesystems.files import NOCOW_FL, data_attributes, inode_flags
from dbbench.filesystems.port import Mounted
from dbbench.host.sysfs import text
from dbbench.journal import Journal
from dbbench.kmsg import Watch
from dbbench.model import Durability, FsSetup, durability_class

_RELEASE_S: Final = 15.0  # xfs and btrfs finish work on the device after umount has returned
_UMOUNT_S: Final = 300.0  # writing back what is dirty; an umount after fsync=off took 21 s


@contextlib.contextmanager
def mounted(
    setup: FsSetup,
    device: Device,
    at: Path,
    journal: Journal | None = None,
    arc_bytes: int | None = None,
    *,
    stays: bool = False,
) -> Iterator[Mounted]:
    """The filesystem on `device`, mounted at `at` while the block lasts; afterwards the device is free again.

    `at` is made where it is missing. `arc_bytes`: the most that a pool's own cache may hold. `stays`: a pool is not
    taken off its device at the end, as other filesystems never are. Raises MountFailed (with the kernel's own words
    where they can be read) and UnmountFailed (with who holds it); an error of the block itself is never hidden by the
    latter.
    """
    if pooled := POOLED.get(setup.mkfs.family):
        with pooled.opened(setup, device, at, journal, arc_bytes, stays=stays) as fs:
            yield fs
        return
    at.mkdir(parents=True, exist_ok=True)
    asked = mount(setup, device, at)
    try:
        yield _read_back(setup, device, at, asked)
    except BaseException as first:
        try:
            unmount(at, device)
        except UnmountFailed as second:
            first.add_note(f"and then: {second}")
        raise
    unmount(at, device)


@contextlib.contextmanager
def existing(path: Path) -> Iterator[Mounted]:
    """An existing directory on an existing filesystem, read in the same way; nothing is mounted, no root needed.

    DirectoryRefused where it lies on a family of which we do not know what survives a power cut.
    """
    mount = mountinfo.of(path)
    if pooled := POOLED.get(mount.fstype):
        yield pooled.existing(path)
        return
    if mount.fstype not in FAMILIES:
        raise DirectoryRefused(
            f"{path} lies on {mount.fstype}: what of it survives a power cut is not known here",
            effect="Nothing was changed.",
            remedy=f"Name a directory on one of {', '.join(FAMILIES)} (findmnt lists them).",
        )
    nocow = mount.fstype == "btrfs" and inode_flags(path) & NOCOW_FL  # ext uses the bit for something else
    yield _facts(mount.fstype, path, (), ("+C",) if nocow else ())


def check_claim(setup: FsSetup, fs: Mounted) -> None:
    """ClaimWrong where the setup claims other durability flags than the kernel reports; what lies in the driver is
    nothing that a setup could claim."""
    if {*setup.claims, *driver_flags(setup)} == set(fs.flags):
        return
    raise ClaimWrong(
        f"fs setup {setup.name!r} claims {durability_class(setup.claims)!r}, the kernel's options make it "
        f"{durability_class(fs.flags)!r} ({','.join(fs.options_effective)})",
        effect="Nothing was measured.",
        remedy=f"Correct `claims` or the options in {setup.name}.toml.",
    )


def driver_flags(setup: FsSetup) -> tuple[Durability, ...]:
    """What may be gone because of the driver that serves the setup's family here, whatever its options."""
    pooled = POOLED.get(setup.mkfs.family)
    return pooled.driver_flags(setup) if pooled else ()


def unmount(at: Path, device: Device) -> None:
    """Unmount and wait until each device can be opened exclusively; UnmountFailed says who holds it."""
    common.until_let_go(
        lambda: process.run(["umount", at], timeout_s=_UMOUNT_S),
        at,
        lambda by: UnmountFailed(
            f"{at} is busy after {common.BUSY_S:.0f} s, held by {by}",
            effect=f"{device.path} is still mounted at {at}.",
            remedy=f"End what holds it, then  umount {at}",
        ),
    )
    for member in device.each:
        _wait_until_free(member)
    for several in SEVERAL.values():
        several.forget(device.members)


def mount(setup: FsSetup, device: Device, at: Path, *more: str) -> tuple[str, ...]:
    """mount(8) on the checked descriptions, with `more` options; those that the setup asks for. MountFailed."""
    asked = FAMILIES[setup.mkfs.family].mount_options(setup)
    several = SEVERAL.get(setup.mkfs.family)
    others = several.mount_words(tuple(member.argument for member in device.each[1:])) if several else ()
    argv = ["mount", "-t", setup.mkfs.family, "-o", ",".join((*asked, *others, *more)), device.argument, str(at)]
    with Watch(device.path.name) as kernel:
        try:
            process.run(argv, timeout_s=120, pass_fds=[member.fd for member in device.each])
        except (CommandFailed, DeadlinePassed) as failure:
            said = "\n  ".join(kernel.all_lines_about() or ())
            raise MountFailed(
                f"{setup.name or setup.mkfs.family} with {','.join(asked)}: {said or failure}",
                effect=f"{device.path} was formatted and is not mounted.",
                remedy="Read the kernel's lines (dmesg); leave out the option that it names.",
            ) from failure
    return asked


def _wait_until_free(device: Device) -> None:
    """umount returning 0 does not mean that the filesystem is gone: another namespace may hold a copy."""
    until = time.monotonic() + _RELEASE_S
    while not _free(device.path):
        if time.monotonic() > until:
            found = holders.of_mounts(device.path, f"{device.major}:{device.minor}")
            raise UnmountFailed(
                f"{device.path} is unmounted here but still in use after {_RELEASE_S:.0f} s: "
                f"{'; '.join(found) or 'nobody in /proc names it'}",
                effect="The next mkfs on it would be refused.",
            )
        time.sleep(0.01)


def _free(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return False
    return True


def _read_back(setup: FsSetup, device: Device, at: Path, asked: tuple[str, ...]) -> Mounted:
    mount, several = mountinfo.of(at), SEVERAL.get(setup.mkfs.family)
    ours = {member.path.stat().st_rdev for member in device.each}
    if mount.point != at.resolve() or Path(mount.source).stat().st_rdev not in ours:
        raise MountFailed(
            f"{at} is {mount.source} mounted at {mount.point}, not {device.path}", effect="Nothing was measured."
        )
    if several and (members := several.members(at)) != {member.path.name for member in device.each}:
        raise MountFailed(
            f"{at} lies on {', '.join(sorted(members))}, not on {', '.join(m.path.name for m in device.each)}",
            effect="Nothing was measured.",
        )
    properties = several.add_volumes(setup, at) if several else ()
    found = _facts(setup.mkfs.family, at, asked, data_attributes(setup), properties)
    discards = [o for o in found.options_effective if o.split("=")[0] == "discard"]
    if discards and "nodiscard" in asked:
        raise MountFailed(f"the kernel took {discards[0]} on {device.path} though nodiscard was asked")
    return found


def _facts(
    name: str, path: Path, asked: tuple[str, ...], attributes: tuple[str, ...], properties: tuple[str, ...] = ()
) -> Mounted:
    family = FAMILIES[name]
    mount = mountinfo.of(path)
    effective = (*mount.options, *properties)
    live = family.live(_kernel_name(mount.device))
    if checksum := text(family.bdi(path).parent / "checksum"):  # btrfs: "crc32c (crc32c-intel)", by the kernel's choice
        live = {**live, "checksum_implementation": checksum}
    return Mounted(
        path=path,
        family=name,
        options_asked=asked,
        options_effective=effective,
        read_ahead_kb=common.read_ahead_kb(family.bdi(path)),
        flags=family.flags(effective, live),
        tears=family.tears(effective, attributes),
        tunables=live,
    )


def _kernel_name(number: str) -> str:
    """ "loop7" of "7:7"; "" for the anonymous numbers of btrfs."""
    link = Path(f"/sys/dev/block/{number}")
    return link.resolve().name if link.exists() else ""
