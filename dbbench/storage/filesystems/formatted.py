"""Families that are made by mkfs and mounted by mount(8): made, mounted, read back from the kernel,
unmounted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from dbbench import errors, process
from dbbench.machine.host.proc import number, text
from dbbench.machine.kernel_log import Watch
from dbbench.machine.pagecache import Emptying, evict
from dbbench.model import Commands, Durability, FsSetup, Scalar, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold, sysfs, used
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from dbbench.storage.filesystems.family import (
    Family,
    Made,
    Mounted,
    MountPoint,
    Stored,
    attributes_of,
)
from dbbench.storage.layers.volume import wipe

# Without lazy initialisation, mke2fs writes 1/64 of the device (256-byte inodes, one per 16 KiB). A
# slow disk writes 50 MB/s.
MKFS_S: Final = 120
_SECONDS_PER_BYTE: Final = 1 / 64 / 50e6
_RELEASE_S: Final = 15.0  # xfs and btrfs still use the device for a while after umount has returned


class Formatted(Family):
    """A family of the kernel's own filesystems. A new one defines its commands, `geometry`, and
    what differs.
    """

    by_mkfs: ClassVar[bool] = True
    needs: ClassVar[Words]  # the programs for making, mounting and reading back
    # It never discards, and overwrites an old signature only because the guard has permitted it.
    mkfs: ClassVar[Words]
    # whether mkfs is tried on a sparse file, to learn which options it knows
    tries_mkfs: bool = False
    # options to mount a copy of the whole volume while the original is mounted
    mount_of_copy: Words = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def programs(self, setup: FsSetup) -> Words:
        return self.needs

    def mkfs_argv(self, setup: FsSetup, targets: Words) -> list[str]:
        """Return the mkfs command for one or several devices."""
        return [*self.mkfs, *setup.mkfs.options, *targets]

    def geometry(self, target: Path) -> Scalars:
        """Read the geometry from the device with the family's own tool; it includes `uuid`."""
        raise NotImplementedError

    def mount_options(self, setup: FsSetup) -> Words:
        """Return the setup's options, with `nodiscard` unless they set discard: some kernels do so
        by default.
        """
        names = {option.split("=")[0] for option in setup.mount}
        if names.isdisjoint(("discard", "nodiscard")):
            return (*setup.mount, "nodiscard")
        return setup.mount

    def mount_words(self, others: Words) -> Words:
        """Return mount options that name the other devices, so that no scan is needed."""
        return ()

    def live(self, device_name: str) -> Scalars:
        return {}

    def flags(self, effective: Words, live: Scalars) -> tuple[Durability, ...]:
        """Return what an fsync does not guarantee. Barriers are on unless the kernel reports
        `nobarrier`.
        """
        if "nobarrier" in effective:
            return (Durability.NO_BARRIER,)
        return ()

    def promises(self, setup: FsSetup) -> tuple[Durability, ...]:
        return self.flags(setup.mount, {})

    def attributes(self, path: Path) -> Words:
        return ()

    def members(self, path: Path) -> frozenset[str] | None:
        """Return the kernel names of the mounted filesystem's devices; None for a family with a
        single device.
        """
        return None

    def forget(self, devices: tuple[Device, ...]) -> None:
        """Make the kernel forget the unmounted devices, whose names will be reused."""

    def volume_commands(self, setup: FsSetup, at: Path) -> list[list[str]]:
        return []

    def add_volumes(self, setup: FsSetup, path: Path) -> Words:
        return ()

    def making(self, setup: FsSetup, targets: Words) -> list[list[str]]:
        commands = [self.mkfs_argv(setup, targets)]
        if setup.mkfs.tune:
            commands.append([self.tuner, *setup.mkfs.tune, targets[0]])
        return commands

    def mounting(
        self,
        options: Iterable[str],
        target: str,
        at: object,
    ) -> list[str]:
        return ["mount", "-t", self.name, "-o", ",".join(options), target, str(at)]

    def commands(
        self,
        setup: FsSetup,
        targets: Words,
        at: str,
    ) -> Commands:
        options = (*self.mount_options(setup), *self.mount_words(targets[1:]))
        commands = self.making(setup, targets)
        commands.append(self.mounting(options, targets[0], at))
        commands += self.volume_commands(setup, Path(at))
        if setup.attributes:
            commands.append(["mkdir", f"{at}/data"])
            commands.append(["chattr", *setup.attributes, f"{at}/data"])
        return list(map(tuple, commands))

    def create(
        self,
        setup: FsSetup,
        device: Device,
        journal: Journal | None,
    ) -> Made:
        """Run mkfs on the checked file descriptions, so that a changed name has no effect. Raises
        MakeFailed. `Made.argv` contains the devices' paths, as a person would type them.
        """
        deadline_s = MKFS_S + device.facts.size_bytes * _SECONDS_PER_BYTE
        paths = {member.argument: str(member.path) for member in device.each}
        fds = device.fds
        commands = []
        try:
            # Otherwise an old signature that mkfs does not overwrite would remain next to the new
            # one.
            for fd in fds:
                wipe(fd)
            with hold.lend():
                for argv in self.making(setup, tuple(paths)):
                    done = process.run(
                        argv,
                        timeout_s=deadline_s,
                        pass_fds=fds,
                    )
                    commands.append(tuple(paths.get(word, word) for word in done.argv))
                geometry = self.geometry(device.path)
        except (errors.CommandFailed, errors.DeadlinePassed) as failure:
            raise common.mkfs_error(setup, device, failure) from failure
        uuid = str(geometry.pop("uuid"))
        return Made(tuple(commands), uuid, geometry)

    @contextlib.contextmanager
    def open(
        self,
        setup: FsSetup,
        device: Device,
        to: MountPoint,
    ) -> Iterator[Mounted]:
        path = to.path
        path.mkdir(parents=True, exist_ok=True)
        options = self.mount(setup, device, path)
        with hold.afterwards(lambda: self.unmount(path, device)):
            yield self._read_back(setup, device, path, options)

    @contextlib.contextmanager
    def mounted_again(
        self,
        setup: FsSetup,
        device: Device,
        at: Path,
        journal: Journal,
    ) -> Iterator[None]:
        self.mount(setup, device, at)
        try:
            yield
        finally:
            self.unmount(at, device)

    def read_at(self, path: Path) -> Mounted:
        return self._facts(path, (), self.attributes(path))

    def unmount(self, at: Path, device: Device) -> None:
        """Unmount and wait until each device is held again. Raises UnmountFailed with the holders,
        DeviceChanged.
        """
        common.until_let_go(
            ["umount", at],
            at,
            at,
            effect=f"{device.path} is still mounted at {at}.",
        )
        for member in device.each:
            _wait_until_free(member)
        self.forget(device.members)
        _must_be_ours(device)

    def mount(self, setup: FsSetup, device: Device, at: Path, *more: str) -> Words:
        """Run mount(8) on the checked descriptions; return the setup's options. Raises MountFailed,
        DeviceChanged.
        """
        # The program gets descriptors, which cannot come to mean another device.
        options = self.mount_options(setup)
        others = self.mount_words(tuple(member.argument for member in device.each[1:]))
        argv = self.mounting(
            (*options, *others, *more),
            device.argument,
            at,
        )
        with Watch(device.path.name) as kernel:
            # The reason of a failed mount is in the kernel's log, not in what mount(8) prints.
            try:
                with hold.handed_over(*device.fds):
                    process.run(argv, timeout_s=120, pass_fds=device.fds)
            except (errors.CommandFailed, errors.DeadlinePassed) as failure:
                _must_be_ours(device)
                lines = "\n  ".join(kernel.lines_about() or kernel.lines_about(faults=False) or ())
                raise errors.MountFailed(
                    f"{setup.name or self.name} with {','.join(options)}: {lines or failure}",
                    effect=f"{device.path} was formatted and is not mounted.",
                    remedy="Read the kernel log with dmesg, and remove the option that it names.",
                ) from failure
        try:
            _must_be_ours(device)
        except errors.DeviceChanged:
            process.run(["umount", at], timeout_s=common.UMOUNT_S)
            raise
        return options

    @contextlib.contextmanager
    def _away(self, setup: FsSetup, device: Device, at: Path, *options: str) -> Iterator[None]:
        self.unmount(at, device)
        try:
            yield
        finally:
            self.mount(setup, device, at, *options)

    @contextlib.contextmanager
    def unmount_for(self, stored: Stored, *options: str) -> Iterator[None]:
        """Unmount the filesystem within the block for programs that use its device, and mount it
        again afterwards; additional options may mount another subvolume.
        """
        stored.sync()
        with (
            self._away(
                stored.setup,
                stored.volume,
                stored.fs.path,
                *options,
            ),
            hold.lend(),
        ):
            yield

    def unit_bytes(self, setup: FsSetup, live: Mapping[str, Scalar]) -> int:
        """Return the size and alignment of the parts of a file that direct I/O overwrites in place;
        0: not known.
        """
        return 0

    def emptying(
        self,
        setup: FsSetup,
        device: Device,
        fs: Mounted,
    ) -> Emptying:
        """Return unmounting and mounting, which drops files, inodes and metadata, and drops the
        buffers of the device, which is still open here. Raises MountFailed, UnmountFailed.
        """

        def empty() -> None:
            with self._away(setup, device, fs.path):
                for member in device.each:
                    hold.drop_buffers(member.fd)
                    if member.facts.direct_io is False:
                        evict([Path(member.facts.image)])

        return Emptying("unmount and mount", empty)

    def _read_back(
        self,
        setup: FsSetup,
        device: Device,
        at: Path,
        options: Words,
    ) -> Mounted:
        # The mount must be that of our device, with all its members and no others.
        mount = common.mount_of(at)
        problem = ""
        names = {member.path.stat().st_rdev: member.path.name for member in device.each}
        if mount.point != at.resolve() or Path(mount.source).stat().st_rdev not in names:
            problem = f"belongs to {mount.source} mounted at {mount.point}, not to {device.path}"
        else:
            members = self.members(at)
            if members is not None and members != {*names.values()}:
                problem = f"is on {', '.join(sorted(members))}, not on {', '.join(names.values())}"
        if problem:
            raise errors.MountFailed(f"{at} {problem}", effect="Nothing was measured.")

        # The kernel may add an option, or keep one that the setup switches off.
        properties = self.add_volumes(setup, at)
        fs = self._facts(at, options, attributes_of(setup), properties)
        for option in fs.options_effective:
            if option.split("=")[0] == "discard" and "nodiscard" in options:
                raise errors.MountFailed(
                    f"the kernel uses {option} on {device.path} although nodiscard was requested"
                )
        return replace(fs, unit_bytes=self.unit_bytes(setup, fs.tunables))

    def _facts(
        self,
        path: Path,
        asked: Words,
        attributes: Words,
        properties: Words = (),
    ) -> Mounted:
        # What is in force, as the kernel prints it.
        mount = common.mount_of(path)
        effective = (*mount.options, *properties)
        major, minor = map(int, mount.device.split(":"))
        live = self.live(sysfs.name_of(os.makedev(major, minor)) or "")
        # btrfs: "crc32c (crc32c-intel)", as the kernel chose
        checksum = text(self.bdi(path).parent / "checksum")
        if checksum:
            live = {**live, "checksum_implementation": checksum}
        return Mounted(
            path=path,
            family=self.name,
            options_asked=asked,
            options_effective=effective,
            read_ahead_kb=number(self.bdi(path) / "read_ahead_kb"),
            flags=self.flags(effective, live),
            tears=self.tears(effective, attributes),
            tunables=live,
            properties=properties,
        )


def damage_error(
    tool: str,
    stored: Stored,
    text: str,
) -> errors.DbbenchError:
    """Return the error for damage found by a check; `text` follows the device's path."""
    return errors.FilesystemDamaged(f"{tool} found errors on {stored.volume.path}{text}")


def examine(stored: Stored, *argv: str, ok: Sequence[int] = (0, 1)) -> str:
    """Run a check on the unmounted device; return its output. Raises FilesystemDamaged for statuses
    of `ok` above 0.
    """
    done = process.run(
        [*argv, stored.volume.argument],
        timeout_s=common.FSCK_S,
        ok=ok,
        pass_fds=(stored.volume.fd,),
    )
    if done.returncode:
        raise damage_error(
            argv[0],
            stored,
            last_lines(done.stderr + done.stdout),
        )
    return done.stdout


def last_lines(printed: str) -> str:
    """Return the last lines of a tool's output as the end of a message."""
    return ":\n  " + "\n  ".join(printed.splitlines()[-8:])


def _must_be_ours(device: Device) -> None:
    """Raise DeviceChanged if the device's content is not the filesystem that was handed over to the
    kernel.
    """
    change = hold.foreign_write(*device.fds)
    if change:
        raise errors.DeviceChanged(
            f"{device.path} now has {change}, written by another process",
            effect="The trial is incomplete. The data of the other process was not touched.",
            remedy=f"Find that process, starting with lsblk -f {device.path}, and use the device "
            "for one purpose only.",
        )


def _wait_until_free(device: Device) -> None:
    """Wait until the filesystem is gone: after a successful umount, another namespace may still
    have a copy.
    """
    if process.wait_while(lambda: not hold.regain(device.fd), _RELEASE_S, 0.01):
        holders = used.users(device.path.name, {device.fd})
        raise errors.UnmountFailed(
            f"{device.path} is unmounted but still in use after {_RELEASE_S:.0f} s: "
            f"{'; '.join(holders) or 'no process in /proc uses it'}",
            effect="The next mkfs on it would fail.",
        )
