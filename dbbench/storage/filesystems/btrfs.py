"""btrfs: copy-on-write, checksums, compression; a mount option or an attribute can disable each of
them. No tool prints the free space of its data (`dump-tree` omits bitmaps): the trees are read
with the kernel's search ioctl.

The file is long because all that dbbench does with a family is in one place.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dbbench import process
from dbbench.model import FsSetup, Scalars, Volume, Words
from dbbench.results.fileio import open_fd
from dbbench.storage.devices import hold, image, note
from dbbench.storage.devices.port import Device
from dbbench.storage.filesystems.common import FSCK_S, inode_flags, match, mount_of, option_value
from dbbench.storage.filesystems.family import (
    Character,
    Check,
    FreeExtent,
    Mounted,
    Stored,
    attributes_of,
    options_of,
)
from dbbench.storage.filesystems.formatted import Formatted, damage_error, last_lines

_FEATURES: Final = "sys/fs/btrfs/features"
# BTRFS_IOC_FS_INFO: 1024 bytes, with the fsid at offset 16 (linux/btrfs.h)
_FS_INFO: Final = 0x8400941F
_ROOT_INODE: Final = 256  # inode number of the root of every subvolume (linux/btrfs_tree.h)
_BALANCE_S: Final = 6 * 3600.0
_TREE_SEARCH_V2: Final = 0xC0709411  # BTRFS_IOC_TREE_SEARCH_V2 (linux/btrfs.h)
_KEY: Final = struct.Struct("=7Q4I4Q")  # struct btrfs_ioctl_search_key
# struct btrfs_ioctl_search_header: transid, objectid, offset, type, length
_HEADER: Final = struct.Struct("=3Q2I")
_BUFFER: Final = 2**18
_MOST: Final = 2**64 - 1
_EXTENT_TREE = 2
_CHUNK_TREE = 3
_CHUNK_OBJECT = 256
_EXTENT_ITEM = 168
_METADATA_ITEM = 169
_CHUNK_ITEM = 228
_CHUNK: Final = struct.Struct("<4Q")  # struct btrfs_chunk: length, owner, stripe length, type
_DATA: Final = 1  # BTRFS_BLOCK_GROUP_DATA
_COPIES: Final = ("raid1", "raid10", "dup", "mirror")  # profiles with a second copy
_SCRUBBED: Final = ("data_bytes_scrubbed", "tree_bytes_scrubbed")


def _scrub(stored: Stored) -> str:
    """Run a scrub. Status 3 means uncorrected errors; with corrected ones it is 0, so they are
    counted too.
    """
    argv = ["btrfs", "scrub", "start", "-B", "-R", str(stored.fs.path)]
    done = process.run(argv, timeout_s=FSCK_S, ok=(0, 3))
    counts = re.findall(r"^\s*(\w+): (\d+)", done.stdout, re.MULTILINE)
    errors = [f"{key} {n}" for key, n in counts if key.endswith("_errors") and int(n)]
    if done.returncode or errors:
        raise damage_error("scrub", stored, f": {', '.join(errors) or done.stderr.strip()}")
    scrubbed = [int(n) for key, n in counts if key in _SCRUBBED]
    return f"{sum(scrubbed)} bytes, no errors"


def _check(stored: Stored) -> str:
    """Run btrfs check by name, because it opens the other devices of the filesystem by name too."""
    argv = ["btrfs", "check", "--readonly", str(stored.volume.path)]
    done = process.run(argv, timeout_s=FSCK_S, ok=(0, 1))
    if done.returncode:
        raise damage_error(
            "btrfs check",
            stored,
            last_lines(done.stderr),
        )
    return "no errors"


class Btrfs(Formatted):
    """btrfs on one or several devices."""

    period_s = 30.0  # btrfs(5): commit=30
    needs = ("mkfs.btrfs", "btrfs")
    mkfs = ("mkfs.btrfs", "-q", "-f", "-K")
    tries_mkfs = True
    resizing = ("btrfs", "filesystem", "resize", "max", "{at}")
    reads_with = ("btrfs",)
    described = Character(
        "data and metadata",
        False,
        "yes",
        True,
        "grow and shrink",
        False,
    )
    # Scrub reads everything while mounted; check reads the trees while unmounted.
    checks = (Check("scrub", _scrub, mounted=True), Check("btrfs check", _check))

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.snapshots = _Subvolumes(self)
        self.growing = _Devices()

    def programs(self, setup: FsSetup) -> Words:
        volumes = setup.volumes.values()
        if setup.attributes or any(volume.attributes for volume in volumes):
            return (*self.needs, "chattr")
        return self.needs

    def geometry(self, target: Path) -> Scalars:
        inspect = ["btrfs", "inspect-internal"]
        superblock = process.run([*inspect, "dump-super", target]).stdout
        chunks = process.run([*inspect, "dump-tree", "-t", "chunk", target]).stdout
        return {**parse_super(superblock), **parse_chunks(chunks)}

    def mount_words(self, others: Words) -> Words:
        """Return device=: the kernel gets the members from it, without udev or `btrfs device scan`."""
        return tuple(f"device={other}" for other in others)

    def members(self, path: Path) -> frozenset[str]:
        return frozenset(link.name for link in (_folder(path) / "devices").iterdir())

    def forget(self, devices: tuple[Device, ...]) -> None:
        """Make the kernel forget several devices after the unmount; a single one it forgets by
        itself.
        """
        if len(devices) > 1:
            names = [device.argument for device in devices]
            fds = [device.fd for device in devices]
            process.run(
                ["btrfs", "device", "scan", "--forget", *names],
                ok=(0, 1),
                pass_fds=fds,
            )

    def volume_commands(self, setup: FsSetup, at: Path) -> list[list[str]]:
        commands = []
        for name, volume in setup.volumes.items():
            path = str(at / name)
            commands.append(["btrfs", "subvolume", "create", path])
            for option in volume.options:
                commands.append(["btrfs", "property", "set", path, *option.split("=", 1)])
            if volume.attributes:
                commands.append(["chattr", *volume.attributes, path])
        return commands

    def add_volumes(self, setup: FsSetup, path: Path) -> Words:
        for argv in self.volume_commands(setup, path):
            process.run(argv)
        properties = []
        for option in setup.volumes.get("data", Volume()).options:
            name = option.split("=")[0]
            done = process.run(["btrfs", "property", "get", path / "data", name])
            properties.append(done.stdout.strip())
        return tuple(properties)

    def lacks(self, setup: FsSetup, root: Path = Path("/")) -> str | None:
        options = setup.mkfs.options
        features = root / _FEATURES
        checksum = option_value(options, "--csum") or option_value(options, "--checksum")
        sector = option_value(options, "-s")
        return _unknown(features / "supported_checksums", checksum, "checksum") or _unknown(
            features / "supported_sectorsizes",
            sector,
            "sector size",
        )

    def conflict(self, setup: FsSetup) -> str | None:
        """Return that data that is overwritten in place, or has no checksums, cannot be compressed,
        or None.
        """
        algorithm = self.compresses(options_of(setup))
        if not algorithm:
            return None
        for option in (*options_of(setup), *attributes_of(setup)):
            if option in ("nodatacow", "nodatasum", "+C"):
                return f'"{option}" and compression with {algorithm} exclude each other'
        return None

    def tears(self, effective: Words, attributes: Words) -> bool:
        return "nodatacow" in effective or "+C" in attributes

    def bdi(self, path: Path) -> Path:
        """Return the bdi linked under its UUID, because its device number is anonymous."""
        return _folder(path) / "bdi"

    def compresses(self, options: Words) -> str | None:
        for option in reversed(options):
            compress = re.fullmatch(r"compress(?:ion|-force)?(?:=(\w+)(?::-?\d+)?)?", option)
            if compress:
                algorithm = compress[1] or "zlib"  # the kernel's default
                if algorithm in ("no", "none"):
                    return None
                return algorithm
        return None

    def compression_ratio(self, path: Path) -> float | None:
        return parse_compsize(process.run(["compsize", "-b", path], timeout_s=300).stdout)

    def attributes(self, path: Path) -> Words:
        """Return +C; ext uses that bit for something else."""
        if inode_flags(path) & image.NOCOW_FL:
            return ("+C",)
        return ()

    def character(self, setup: FsSetup) -> Character:
        """Return its features: nodatacow and +C disable checksums; a second copy of data enables
        repair.
        """
        in_place = "nodatacow" in setup.mount or "+C" in setup.attributes
        if in_place or "nodatasum" in setup.mount:
            return replace(
                self.described,
                checksums="metadata",
                in_place=in_place,
            )
        words = setup.mkfs.options
        data = option_value(words, "-d") or option_value(words, "--data")
        return replace(self.described, repairs=data in _COPIES)

    def taken_bytes(self, fs: Mounted) -> tuple[int, int] | None:
        used = parse_usage(_usage(fs.path))
        metadata = used.get("metadata", 0) + used.get("system", 0)
        return metadata, used["data"]

    def free_extents(self, fs: Mounted) -> Iterator[FreeExtent]:
        with open_fd(fs.path) as fd:
            for size in _free_ranges(fd):
                yield size, 1, size
        unallocated = parse_usage(_usage(fs.path))["unallocated"]
        if unallocated:
            yield unallocated, 1, unallocated

    def defragmenting(self, datadir: Path, files: Sequence[Path]) -> list[list[str]]:
        """Return the command with -f, which includes dirty data; compression remains that of the
        mount.
        """
        return [["btrfs", "filesystem", "defragment", "-r", "-f", str(datadir)]]


@process.understood("btrfs inspect-internal")
def parse_super(text: str) -> Scalars:
    """Parse the output of dump-super."""
    lines = dict(re.findall(r"^(\w+)\t+(.*)$", text, re.MULTILINE))
    # The list is never empty, because mkfs.btrfs always sets some features.
    features = match(r"^incompat_flags[^(]*\(([^)]*)\)", text)[1]
    return {
        "uuid": lines["fsid"],
        "nodesize": int(lines["nodesize"]),
        "sector_size": int(lines["sectorsize"]),
        "bytes": int(lines["total_bytes"]),
        "devices": int(lines["num_devices"]),
        "checksum": lines["csum_type"].split("(")[-1].rstrip(")"),
        "features": " ".join(features.replace("|", " ").split()),
    }


@process.understood("btrfs inspect-internal")
def parse_chunks(text: str) -> Scalars:
    """Return data_profile, metadata_profile, system_profile from dump-tree's output ("single",
    "DUP", "RAID1").
    """
    profiles: Scalars = {}
    for kinds, profile in re.findall(r"\btype ([A-Z|]+)\|(\w+)", text):
        for kind in kinds.split("|"):
            profiles[f"{kind.lower()}_profile"] = profile
    return {name: profiles[name] for name in ("data_profile", "metadata_profile", "system_profile")}


@process.understood("compsize")
def parse_compsize(text: str) -> float | None:
    """Return uncompressed ÷ disk usage from the TOTAL line of `compsize -b`, or None for no data."""
    total = match(r"^TOTAL +\S+ +(\d+) +(\d+)", text)
    on_disk = int(total[1])
    uncompressed = int(total[2])
    return uncompressed / on_disk if on_disk else None


@process.understood("btrfs filesystem usage")
def parse_usage(text: str) -> dict[str, int]:
    """Return used bytes by kind (both copies of DUP) and "unallocated" from `btrfs filesystem usage
    --raw`.
    """
    # The tool counts data once; the disk has each copy.
    copies = {
        "DUP": 2,
        "RAID1": 2,
        "RAID10": 2,
        "RAID1C3": 3,
        "RAID1C4": 4,
    }
    used_bytes = {"unallocated": int(match(r"^\s*Device unallocated:\s+(\d+)", text)[1])}
    rows = re.findall(
        r"^([\w+]+),(\w+): Size:\d+, Used:(\d+)",
        text,
        re.MULTILINE,
    )
    for kind, profile, used in rows:
        key = kind.lower().partition("+")[0]  # a small filesystem has "Data+Metadata"
        stored_bytes = int(used) * copies.get(profile.upper(), 1)
        used_bytes[key] = used_bytes.get(key, 0) + stored_bytes
    if "data" not in used_bytes:
        raise ValueError("no line of its data")
    return used_bytes


def _folder(path: Path) -> Path:
    with open_fd(path) as fd:
        info = fcntl.ioctl(fd, _FS_INFO, bytes(1024))
    return Path(f"/sys/fs/btrfs/{uuid.UUID(bytes=info[16:32])}")


def _unknown(feature: Path, wanted: str | None, what: str) -> str | None:
    """Return why the kernel does not support it. None if it does, or if it does not report it
    (module not loaded).
    """
    try:
        there = feature.read_text().split()
    except OSError:
        return None
    # /proc/crypto calls xxhash "xxhash64", and blake2 "blake2b".
    if wanted is None or any(name.startswith(wanted) for name in there):
        return None
    return f"this kernel's btrfs has no {what} {wanted} (it has {', '.join(there)})"


class _Subvolumes:
    name = "btrfs"
    atomic = True
    SNAPSHOT: Final = ".dbbench-snapshot"  # read-only
    CLONE: Final = ".dbbench-clone"
    BACK: Final = ".dbbench-back"  # a writable copy of the snapshot, which replaces the filesystem

    def __init__(self, family: Formatted) -> None:
        self._family = family

    def lacks(self, stored: Stored) -> str | None:
        """Return why not: in an existing directory, dbbench cannot access the subvolume."""
        source = _source(stored)
        if _is_subvolume(source):
            return None
        return f"{source} is not the root of a subvolume"

    def snapshot(self, stored: Stored) -> None:
        _snapshot(
            "-r",
            _source(stored),
            stored.fs.path / (self.SNAPSHOT + stored.tag),
        )

    @contextlib.contextmanager
    def clone(self, stored: Stored) -> Iterator[Path]:
        root = stored.fs.path
        copy = root / (self.CLONE + stored.tag)
        _snapshot(root / (self.SNAPSHOT + stored.tag), copy)
        yield copy / stored.datadir.relative_to(_source(stored))  # `drop` deletes it

    def taken_bytes(self, stored: Stored) -> int | None:
        stored.sync()
        argv = ["btrfs", "filesystem", "du", "-s", "--raw", *self._existing(stored)]
        return parse_du(process.run(argv, timeout_s=600).stdout)

    def _existing(self, stored: Stored) -> list[str]:
        root = stored.fs.path
        paths = [root / (self.CLONE + stored.tag), root / (self.SNAPSHOT + stored.tag)]
        return [str(path) for path in paths if path.exists()]

    def rollback(self, stored: Stored) -> None:
        """Replace the data directory by the snapshot if it is a subvolume, otherwise mount it in
        its place.
        """
        snapshot = stored.fs.path / self.SNAPSHOT
        back = stored.fs.path / self.BACK
        if _source(stored) == stored.datadir:
            stored.datadir.rename(back)
            _snapshot(snapshot, stored.datadir)
            return
        _snapshot(snapshot, back)
        with self._family.unmount_for(stored, f"subvol={self.BACK}"):
            pass

    def drop(self, stored: Stored) -> None:
        root = stored.fs.path
        if f"subvol=/{self.BACK}" in mount_of(root).options:
            with self._family.unmount_for(stored):
                pass
        # Subvolumes are deleted in the background; it is waited for.
        subvolumes = self._existing(stored)
        back = root / self.BACK
        if back.exists():
            subvolumes.append(str(back))
        if subvolumes:
            argv = [
                "btrfs",
                "subvolume",
                "delete",
                "--commit-after",
                *subvolumes,
            ]
            process.run(argv, timeout_s=600)
            process.run(["btrfs", "subvolume", "sync", root], timeout_s=3600)


class _Devices:
    def add(self, stored: Stored, spare: Device) -> str:
        root = str(stored.fs.path)
        note(
            stored.journal,
            "made",
            [spare],
            uuid=_folder(stored.fs.path).name,
        )
        # The filesystem takes the device exclusively, so dbbench lets go of it.
        hold.release(spare.fd)
        # -K: no discard; -f: overwrite a signature that the guard has permitted
        argv = ["btrfs", "device", "add", "-K", "-f", spare.argument, root]
        process.run(argv, pass_fds=(spare.fd,))
        printed = process.run(["btrfs", "filesystem", "show", root]).stdout
        devices = re.findall(
            r"^\s*devid\s.*path ",
            printed,
            re.MULTILINE,
        )
        return f"{len(devices)} devices"

    def rebalance(self, stored: Stored) -> str:
        argv = [
            "btrfs",
            "balance",
            "start",
            "--full-balance",
            str(stored.fs.path),
        ]
        return process.run(argv, timeout_s=_BALANCE_S).stdout.strip() or "done"


@process.understood("btrfs filesystem du")
def parse_du(text: str) -> int | None:
    """Return the sum of exclusive bytes from `btrfs filesystem du -s --raw`: total, exclusive,
    shared, name.
    """
    rows = re.findall(
        r"^\s*\d+\s+(\d+)\s+(?:\d+|-)\s+\S",
        text,
        re.MULTILINE,
    )
    if rows:
        return sum(int(exclusive) for exclusive in rows)
    return None


def _snapshot(*words: str | Path) -> None:
    process.run(["btrfs", "subvolume", "snapshot", *words])


def _source(stored: Stored) -> Path:
    if _is_subvolume(stored.datadir):
        return stored.datadir
    return stored.fs.path


def _is_subvolume(path: Path) -> bool:
    return path.stat().st_ino == _ROOT_INODE


def _usage(path: Path) -> str:
    return process.run(["btrfs", "filesystem", "usage", "--raw", path], timeout_s=120).stdout


def _free_ranges(fd: int) -> Iterator[int]:
    """Yield the size of each gap between the extents of the data chunks, by their logical
    addresses.
    """
    chunks = _search(
        fd,
        _CHUNK_TREE,
        (_CHUNK_OBJECT, _CHUNK_OBJECT),
        (_CHUNK_ITEM, _CHUNK_ITEM),
    )
    for chunk in chunks:
        length, _, _, kind = _CHUNK.unpack_from(chunk.data)
        if not kind & _DATA:
            continue
        # A gap is what lies between the end of one extent and the next.
        end = chunk.offset
        chunk_end = chunk.offset + length
        objects = (chunk.offset, chunk_end - 1)
        for item in _search(fd, _EXTENT_TREE, objects, (_EXTENT_ITEM, _METADATA_ITEM)):
            if item.objectid > end:
                yield item.objectid - end
            # Mixed chunks: no key contains the size of a node.
            size = item.offset if item.type == _EXTENT_ITEM else 0
            end = max(end, item.objectid + size)
        if chunk_end > end:
            yield chunk_end - end


class _Item(NamedTuple):
    """An item of a tree: its key and its content."""

    objectid: int
    type: int
    offset: int
    data: bytes


def _search(
    fd: int,
    tree: int,
    objects: tuple[int, int],
    types: tuple[int, int],
) -> Iterator[_Item]:
    """Yield a tree's items with BTRFS_IOC_TREE_SEARCH_V2, in the order of their keys. Raises
    OSError without root.
    """
    objectid, last_object = objects
    kind, last_type = types
    offset = 0
    while True:
        # Each call continues after the last key that the one before returned.
        key = _KEY.pack(
            tree,
            objectid,
            last_object,
            offset,
            _MOST,
            0,  # every transaction
            _MOST,
            kind,
            last_type,
            2**32 - 1,
            *(0,) * 5,  # unused
        )
        # The kernel fills the buffer behind the key with as many items as fit.
        buffer = bytearray(key + struct.pack("=Q", _BUFFER) + bytes(_BUFFER))
        fcntl.ioctl(fd, _TREE_SEARCH_V2, buffer)
        count = _KEY.unpack_from(buffer)[9]
        end = _KEY.size + 8
        for _ in range(count):
            _, objectid, offset, kind, size = _HEADER.unpack_from(buffer, end)
            begin = end + _HEADER.size
            end = begin + size
            # the range compares whole keys, so it contains items of other types
            if types[0] <= kind <= last_type:
                yield _Item(objectid, kind, offset, bytes(buffer[begin:end]))
        if not count:
            return
        offset += 1


FAMILY: Final = Btrfs("btrfs")
