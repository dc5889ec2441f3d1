"""Families that are made by mkfs and mounted by mount(8): made, mounted, read back from the kernel, unmounted.

A vintage is the features that mkfs had by default when a kernel with long-term support was released. For xfs these are
the values of xfsprogs' lts_*.conf (not the files: those of xfsprogs 6.1.0 have a line that its own mkfs.xfs refuses),
for ext4 the features in mke2fs.conf of e2fsprogs at that time (1.44 for Linux 4.19, 1.47 for 6.6), and for btrfs the
defaults of btrfs-progs (no-holes and free-space-tree since 5.15). They are given as options, so that another release of
mkfs, or a distribution with its own configuration, makes the same filesystem.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from dbbench import errors, process
from dbbench.machine.host.proc import text
from dbbench.machine.kernel_log import Watch
from dbbench.machine.pagecache import Emptying, evict, syncfs
from dbbench.model import Durability, FsSetup, Mkfs, Scalar
from dbbench.results.journal import Journal
from dbbench.storage import layers
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems import common
from dbbench.storage.filesystems.port import Family, Made, Mounted, MountPoint, Stored, attributes_of

# Without lazy initialisation, mke2fs writes 1/64 of the device (256-byte inodes, one per 16 KiB). A slow disk writes
# 50 MB/s.
MKFS_S: Final = 120
_SECONDS_PER_BYTE: Final = 1 / 64 / 50e6
_RELEASE_S: Final = 15.0  # xfs and btrfs still use the device for a while after umount has returned
_UMOUNT_S: Final = 300.0  # umount writes back all dirty data; after fsync=off it took 21 s


class Formatted(Family):
    """A family of the kernel's own filesystems. A new one defines its commands, `geometry`, and what differs."""

    by_mkfs: ClassVar[bool] = True
    tuner: str = ""  # the program that gets the words of `Mkfs.tune`
    tries_mkfs: bool = False  # whether mkfs is tried on a sparse file, to learn which options it knows
    mount_of_copy: tuple[str, ...] = ()  # options to mount a copy of the whole volume while the original is mounted

    def __init__(self, name: str) -> None:
        self.name = name

    # --- Its programs, options and facts ----------------------------------------------------------

    def mkfs_argv(self, setup: FsSetup, targets: tuple[str, ...]) -> list[str]:
        """Return the mkfs command for one or several devices; it never discards, and overwrites an old signature only
        because the guard has permitted it."""
        raise NotImplementedError

    def geometry(self, target: Path) -> dict[str, Scalar]:
        """Read the geometry from the device with the family's own tool; it includes `uuid`."""
        raise NotImplementedError

    def mount_options(self, setup: FsSetup) -> tuple[str, ...]:
        """Return the setup's options, with `nodiscard` unless they contain an option about discard."""
        return common.without_discard(setup.mount)

    def mount_words(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return mount options that name the other devices, so that no scan is needed."""
        return ()

    def live(self, device_name: str) -> dict[str, Scalar]:
        """Return what the kernel reports about the mounted filesystem and affects durability. Needs no root."""
        return {}

    def flags(self, effective: tuple[str, ...], live: dict[str, Scalar]) -> tuple[Durability, ...]:
        """Return what an fsync does not guarantee. Barriers are on unless the kernel reports `nobarrier`."""
        return (Durability.NO_BARRIER,) if "nobarrier" in effective else ()

    def attributes(self, path: Path) -> tuple[str, ...]:
        """Return the attributes of an existing directory that `tears` uses."""
        return ()

    def members(self, path: Path) -> frozenset[str] | None:
        """Return the kernel names of the mounted filesystem's devices; None for a family with a single device."""
        return None

    def forget(self, devices: tuple[Device, ...]) -> None:
        """Make the kernel forget the unmounted devices, whose names will be reused."""

    def volume_commands(self, setup: FsSetup, at: Path) -> list[list[str]]:
        """Return the commands that make the setup's volumes below the mount point."""
        return []

    def add_volumes(self, setup: FsSetup, path: Path) -> tuple[str, ...]:
        """Make the setup's volumes in `path`; return the effective properties of the data volume."""
        return ()

    # --- Making it ---------------------------------------------------------------------------------

    def making(self, setup: FsSetup, targets: tuple[str, ...]) -> list[list[str]]:
        """Return mkfs, and the family's tuning program if the setup has arguments for it."""
        tuning = [[self.tuner, *setup.mkfs.tune, targets[0]]] if setup.mkfs.tune else []
        return [self.mkfs_argv(setup, targets), *tuning]

    def commands(self, setup: FsSetup, targets: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
        """Return mkfs, mount, volumes and attributes."""
        options = (*self.mount_options(setup), *self.mount_words(targets[1:]))
        mount = ["mount", "-t", self.name, "-o", ",".join(options), targets[0], at]
        inside = self.volume_commands(setup, Path(at))
        if setup.attributes:
            inside += [["mkdir", f"{at}/data"], ["chattr", *setup.attributes, f"{at}/data"]]
        return [tuple(argv) for argv in (*self.making(setup, targets), mount, *inside)]

    def create(self, setup: FsSetup, device: Device, journal: Journal | None) -> Made:
        """Run mkfs on the checked file descriptions, so that a changed name has no effect. Raises MakeFailed.

        `Made.argv` contains the devices' paths, as a person would type them.
        """
        deadline_s = MKFS_S + device.facts.size_bytes * _SECONDS_PER_BYTE
        paths = {member.argument: str(member.path) for member in device.each}
        try:
            fds = [member.fd for member in device.each]
            for fd in fds:
                # Otherwise an old signature that mkfs does not overwrite would remain next to the new one.
                layers.wiped(fd)
            with hold.lent():
                done = [process.run(argv, timeout_s=deadline_s, pass_fds=fds)
                        for argv in self.making(setup, tuple(paths))]  # fmt: skip
                geometry = self.geometry(device.path)
        except (errors.CommandFailed, errors.DeadlinePassed) as failure:
            raise common.mkfs_failed(setup, device, failure) from failure
        uuid = str(geometry.pop("uuid"))
        return Made(tuple(tuple(paths.get(word, word) for word in run.argv) for run in done), uuid, geometry)

    # --- Mounting it -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self, setup: FsSetup, device: Device, to: MountPoint) -> Iterator[Mounted]:
        """Mount with mount(8), read back, and unmount until the device is held again."""
        at = to.path
        at.mkdir(parents=True, exist_ok=True)
        asked = self.mount(setup, device, at)
        try:
            yield self._read_back(setup, device, at, asked)
        except BaseException as first:
            try:
                self.unmount(at, device)
            except errors.UnmountFailed as second:
                first.add_note(f"and then: {second}")
            raise
        self.unmount(at, device)

    @contextlib.contextmanager
    def mounted_again(self, setup: FsSetup, device: Device, at: Path, journal: Journal) -> Iterator[None]:
        """Mount with mount(8) alone."""
        self.mount(setup, device, at)
        try:
            yield
        finally:
            self.unmount(at, device)

    def existing(self, path: Path) -> Mounted:
        """Read a directory in the same way; nothing is mounted."""
        return self._facts(path, (), self.attributes(path))

    def unmount(self, at: Path, device: Device) -> None:
        """Unmount and wait until each device is held again. Raises UnmountFailed with the holders, DeviceChanged."""
        common.until_let_go(
            lambda: process.run(["umount", at], timeout_s=_UMOUNT_S),
            at,
            lambda by: errors.UnmountFailed(
                f"{at} is still busy after {common.BUSY_S:.0f} s: it is in use by {by}",
                effect=f"{device.path} is still mounted at {at}.",
                remedy=f"End that process, then run: umount {at}",
            ),
        )
        for member in device.each:
            _wait_until_free(member)
        self.forget(device.members)
        _must_be_ours(device)

    def mount(self, setup: FsSetup, device: Device, at: Path, *more: str) -> tuple[str, ...]:
        """Run mount(8) on the checked descriptions, with `more` options; return those of the setup.

        Raises MountFailed, DeviceChanged.
        """
        asked = self.mount_options(setup)
        others = self.mount_words(tuple(member.argument for member in device.each[1:]))
        argv = ["mount", "-t", self.name, "-o", ",".join((*asked, *others, *more)), device.argument, str(at)]
        fds = [member.fd for member in device.each]
        with Watch(device.path.name) as kernel:
            try:
                with hold.handed_over(*fds):
                    process.run(argv, timeout_s=120, pass_fds=fds)
            except (errors.CommandFailed, errors.DeadlinePassed) as failure:
                _must_be_ours(device)
                lines = "\n  ".join(kernel.all_lines_about() or ())
                raise errors.MountFailed(
                    f"{setup.name or self.name} with {','.join(asked)}: {lines or failure}",
                    effect=f"{device.path} was formatted and is not mounted.",
                    remedy="Read the kernel log with dmesg, and remove the option that it names.",
                ) from failure
        try:
            _must_be_ours(device)
        except errors.DeviceChanged:
            process.run(["umount", at], timeout_s=_UMOUNT_S)
            raise
        return asked

    @contextlib.contextmanager
    def unmounted(self, stored: Stored) -> Iterator[None]:
        """Unmount the filesystem within the block, and mount it again afterwards with the same options."""
        syncfs(stored.fs.path)
        self.unmount(stored.fs.path, stored.volume)
        try:
            with hold.lent():
                yield
        finally:
            self.mount(stored.setup, stored.volume, stored.fs.path)

    def remount(self, stored: Stored, *options: str) -> None:
        """Mount again with additional options: another subvolume instead of the filesystem."""
        self.unmount(stored.fs.path, stored.volume)
        self.mount(stored.setup, stored.volume, stored.fs.path, *options)

    def emptying(self, setup: FsSetup, device: Device, fs: Mounted) -> Emptying:
        """Return unmounting and mounting, which drops files, inodes and metadata.

        The device is still open here, so its buffers remain until they are dropped. Raises MountFailed,
        UnmountFailed.
        """

        def empty() -> None:
            self.unmount(fs.path, device)
            for member in device.each:
                hold.drop_buffers(member.fd)
            evict([Path(disk.facts.image) for disk in device.each if disk.facts.direct_io is False])
            self.mount(setup, device, fs.path)

        return Emptying("unmount and mount", empty)

    def _read_back(self, setup: FsSetup, device: Device, at: Path, asked: tuple[str, ...]) -> Mounted:
        mount = common.mount_of(at)
        ours = {member.path.stat().st_rdev for member in device.each}
        if mount.point != at.resolve() or Path(mount.source).stat().st_rdev not in ours:
            raise errors.MountFailed(
                f"{at} belongs to {mount.source} mounted at {mount.point}, not to {device.path}",
                effect="Nothing was measured.",
            )
        members = self.members(at)
        if members is not None and members != {member.path.name for member in device.each}:
            raise errors.MountFailed(
                f"{at} is on {', '.join(sorted(members))}, not on {', '.join(m.path.name for m in device.each)}",
                effect="Nothing was measured.",
            )
        fs = self._facts(at, asked, attributes_of(setup), self.add_volumes(setup, at))
        discards = [option for option in fs.options_effective if option.split("=")[0] == "discard"]
        if discards and "nodiscard" in asked:
            raise errors.MountFailed(f"the kernel uses {discards[0]} on {device.path} although nodiscard was requested")
        return fs

    def _facts(
        self, path: Path, asked: tuple[str, ...], attributes: tuple[str, ...], properties: tuple[str, ...] = ()
    ) -> Mounted:
        mount = common.mount_of(path)
        effective = (*mount.options, *properties)
        live = self.live(_kernel_name(mount.device))
        if checksum := text(self.bdi(path).parent / "checksum"):  # btrfs: "crc32c (crc32c-intel)", as the kernel chose
            live = {**live, "checksum_implementation": checksum}
        return Mounted(
            path=path,
            family=self.name,
            options_asked=asked,
            options_effective=effective,
            read_ahead_kb=common.read_ahead_kb(self.bdi(path)),
            flags=self.flags(effective, live),
            tears=self.tears(effective, attributes),
            tunables=live,
            properties=properties,
        )


def damaged(tool: str, stored: Stored, text: str) -> errors.DbbenchError:
    """Return the error for damage found by a check; `text` follows the device's path."""
    return errors.FilesystemDamaged(
        f"{tool} found errors on {stored.volume.path}{text}", effect="The trial is marked failed."
    )


def _must_be_ours(device: Device) -> None:
    """Raise DeviceChanged if the device's content is not the filesystem that was handed over to the kernel."""
    if change := hold.changed(*(member.fd for member in device.each)):
        raise errors.DeviceChanged(
            f"{device.path} now has {change}, written by another process",
            effect="The trial is incomplete. The data of the other process was not touched.",
            remedy=(
                f"Find that process, starting with lsblk -f {device.path}, and use the device for one purpose only."
            ),
        )


def _wait_until_free(device: Device) -> None:
    """Wait until the filesystem is gone: after a successful umount, another namespace may still have a copy."""
    if process.wait_while(lambda: not hold.regained(device.fd), _RELEASE_S, 0.01):
        holders = common.holders_of_mounts(device.path, f"{device.major}:{device.minor}")
        raise errors.UnmountFailed(
            (
                f"{device.path} is unmounted but still in use after {_RELEASE_S:.0f} s: "
                f"{'; '.join(holders) or 'no process in /proc uses it'}"
            ),
            effect="The next mkfs on it would fail.",
        )


def _kernel_name(number: str) -> str:
    """Return "loop7" for "7:7"; "" for the anonymous numbers of btrfs."""
    link = Path(f"/sys/dev/block/{number}")
    return link.resolve().name if os.path.lexists(link) else ""


def _xfs(features: str) -> tuple[str, ...]:
    """Return mkfs.xfs options for words like "bigtime=0", grouped by the option that each feature belongs to."""
    sections: dict[str, list[str]] = {}
    for word in features.split():
        sections.setdefault(_SECTIONS.get(word.partition("=")[0], "-m"), []).append(word)
    return tuple(word for section, words in sections.items() for word in (section, ",".join(words)))


# Option of mkfs.xfs for these features; all others use -m.
_SECTIONS: Final = {"sparse": "-i", "nrext64": "-i", "exchange": "-i", "parent": "-n"}
_XFS_4_19: Final = "bigtime=0 crc=1 finobt=1 inobtcount=0 reflink=0 rmapbt=0 sparse=1 nrext64=0"
_XFS_5_4: Final = _XFS_4_19.replace("reflink=0", "reflink=1")
_XFS_5_15: Final = _XFS_5_4.replace("bigtime=0", "bigtime=1").replace("inobtcount=0", "inobtcount=1")
_XFS_6_6: Final = _XFS_5_15.replace("rmapbt=0", "rmapbt=1").replace("nrext64=0", "nrext64=1")
_EXT4_1_44: Final = (
    "has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,"
    "dir_nlink,extra_isize,metadata_csum"
)
_EXT4: Final = ("-O", f"none,{_EXT4_1_44}")
_BTRFS_OLD: Final = ("-O", "^no-holes", "-R", "^free-space-tree")
_BTRFS_5_15: Final = ("-O", "no-holes", "-R", "free-space-tree")
VINTAGES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "xfs": {
        "lts_4.19": _xfs(_XFS_4_19),
        **dict.fromkeys(("lts_5.4", "lts_5.10"), _xfs(_XFS_5_4)),
        **dict.fromkeys(("lts_5.15", "lts_6.1"), _xfs(_XFS_5_15)),
        "lts_6.6": _xfs(_XFS_6_6),
        "lts_6.12": _xfs(f"{_XFS_6_6} metadir=0 autofsck=0 exchange=0 parent=0"),
    },
    "ext4": {
        **dict.fromkeys(("lts_4.19", "lts_5.4", "lts_5.10", "lts_5.15", "lts_6.1"), _EXT4),
        "lts_6.6": ("-O", f"none,{_EXT4_1_44},metadata_csum_seed,orphan_file"),
    },
    "btrfs": {
        **dict.fromkeys(("lts_4.19", "lts_5.4", "lts_5.10"), _BTRFS_OLD),
        **dict.fromkeys(("lts_5.15", "lts_6.1", "lts_6.6"), _BTRFS_5_15),
    },
}


def vintage_options(mkfs: Mkfs) -> tuple[str, ...]:
    """Return the options of the vintage, then the setup's own; a vintage that is not known has none."""
    return (*VINTAGES.get(mkfs.family, {}).get(mkfs.vintage, ()), *mkfs.options)


def vintage_lacks(mkfs: Mkfs) -> str | None:
    """Return why the vintage cannot be made, whatever the installed mkfs, or None."""
    if not mkfs.vintage:
        return None
    vintages = VINTAGES.get(mkfs.family, {})
    if mkfs.vintage not in vintages:
        those = f" (known: {', '.join(vintages)})" if vintages else ""
        return f"{mkfs.family} has no vintage {mkfs.vintage!r}{those}"
    both = [option for option in mkfs.options if option in vintages[mkfs.vintage][::2]]
    if both:
        return f"the vintage {mkfs.vintage} sets {both[0]} of mkfs.{mkfs.family}; remove it from the options"
    return None
