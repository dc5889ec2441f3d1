"""Signatures on a disk that is not in use: written by their tools, or by hand if the kernel does
not support them.
"""

import os
import struct
import uuid
import zlib
from collections.abc import Callable

import pytest

from dbbench import process
from tests.support.planted import SIZE, Disk, mkfs

# mkfs.xfs makes filesystems below 300 MiB only for its own tests, which set these variables.
XFS_SMALL = {"TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"}
LAST = SIZE // 512 - 1  # the last sector
# partition type of a Linux filesystem in a GPT
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le


def put(disk: Disk, offset: int, data: bytes) -> None:
    """Write at that offset and call fsync; the partition table is not read again."""
    with disk.path.open("r+b", buffering=0) as device:
        device.seek(offset)
        device.write(data)
        os.fsync(device.fileno())


def gpt(disk: Disk, primary: bool = True) -> None:
    """Write a partition table with one partition (UEFI 5.3.2): both copies, or only the backup in
    the last sectors.
    """
    entry = struct.pack("<16s16sQQQ", LINUX, os.urandom(16), 2048, 67583, 0) + "data".encode(
        "utf-16-le"
    ).ljust(72, b"\0")
    entries = entry.ljust(128 * 128, b"\0")
    guid = os.urandom(16)

    def header(mine: int, other: int, table: int) -> bytes:
        tail = struct.pack(
            "<QQQQ16sQIII",
            mine,
            other,
            34,
            LAST - 33,
            guid,
            table,
            128,
            128,
            zlib.crc32(entries),
        )
        blank = struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, 0, 0) + tail
        return (
            struct.pack("<8sIIII", b"EFI PART", 0x10000, 92, zlib.crc32(blank), 0) + tail
        ).ljust(512, b"\0")

    if primary:
        protective = (
            bytes(446)
            + struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, LAST)
            + bytes(48)
            + b"\x55\xaa"
        )
        put(disk, 0, protective + header(1, LAST, 2) + entries)
    put(disk, (LAST - 32) * 512, entries + header(LAST, 1, LAST - 32))


def iso9660(disk: Disk) -> None:
    """Write an empty volume (ECMA-119 8.3, 8.4, 9.1): 32 blocks of 2048 bytes, with the root
    directory in block 20.
    """

    def both(format: str, number: int) -> bytes:
        return struct.pack(f"<{format}", number) + struct.pack(f">{format}", number)

    root = (
        struct.pack("BB", 34, 0)
        + both("I", 20)
        + both("I", 2048)
        + bytes(7)
        + b"\2\0\0"
        + both("H", 1)
        + b"\1\0"
    )
    fields = {
        0: b"\1CD001\1\0",
        8: b" " * 64,
        80: both("I", 32),
        120: both("H", 1),
        124: both("H", 1),
        128: both("H", 2048),
        132: both("I", 10),
        140: struct.pack("<I", 18),
        148: struct.pack(">I", 19),
        156: root,
        190: b" " * 623,
        813: b"2026010100000000\0" * 2,
        847: b"0000000000000000\0" * 2,
        881: b"\1",
    }
    primary = bytearray(2048)
    for offset, data in fields.items():
        primary[offset : offset + len(data)] = data
    put(disk, 32768, bytes(primary) + b"\xffCD001\1".ljust(2048, b"\0"))
    put(disk, 20 * 2048, (root + root[:-1] + b"\1").ljust(2048, b"\0"))


def md(disk: Disk, at: int = 4096) -> None:
    """Write the superblock of a member of an array, version 1 (Documentation/admin-guide/md,
    linux/raid/md_p.h).
    """
    block = bytearray(4096)
    struct.pack_into(
        "<4I16s32sQIIQII",
        block,
        0,
        0xA92B4EFC,
        1,
        0,
        0,
        os.urandom(16),
        b"host:data",
        0,
        1,
        0,
        SIZE // 512 - 64,
        0,
        2,
    )
    struct.pack_into(
        "<QQQQII16s",
        block,
        128,
        64,
        SIZE // 512 - 64,
        at // 512,
        0,
        0,
        0,
        os.urandom(16),
    )
    struct.pack_into("<I", block, 220, 2)  # the field max_dev
    words = struct.unpack_from(f"<{(256 + 2 * 2) // 4}I", block)
    total = sum(words)
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF)
    put(disk, at, bytes(block))


def ext4_with_md(disk: Disk) -> None:
    """Make an ext4 in a former member of an array whose superblock is at the end (version 1.0)."""
    mkfs(disk)
    md(disk, ((SIZE // 512 - 16) & ~7) * 512)


def zpool(disk: Disk) -> None:
    """Write all four labels of a pool, of 256 KiB each. Newer versions of wipefs look for the name
    (an nvlist in XDR, from 16 KiB on); older ones count the uberblocks (a magic number at each
    KiB of the second half).
    """

    def pair(name: bytes, kind: int, value: bytes) -> bytes:
        padded = (struct.pack(">I", len(name)) + name).ljust(4 + -(-len(name) // 4) * 4, b"\0")
        body = padded + struct.pack(">II", kind, 1) + value
        return struct.pack(">II", 8 + len(body), 8 + len(body)) + body

    def number(value: int) -> bytes:
        return struct.pack(">Q", value)

    pairs = [
        pair(b"version", 8, number(5000)),
        pair(b"name", 9, struct.pack(">I", 4) + b"tank"),
        pair(b"state", 8, number(1)),
        pair(b"txg", 8, number(100)),
        pair(b"pool_guid", 8, number(0x1122334455667788)),
        pair(b"guid", 8, number(0x2233445566778899)),
    ]
    names = bytes((1, 1, 0, 0)) + struct.pack(">II", 0, 1) + b"".join(pairs) + bytes(8)
    uberblock = struct.pack("<QQQQQ", 0x00BAB10C, 5000, 100, 1, 1).ljust(1024, b"\0")
    for label in (0, 256 * 1024, SIZE - 512 * 1024, SIZE - 256 * 1024):
        put(disk, label + 16 * 1024, names)
        put(disk, label + 128 * 1024, uberblock * 8)


def lvm(disk: Disk) -> None:
    """Make a physical volume that does not belong to a group."""
    config = f'devices {{ filter=["a|^{disk.path}$|", "r|.*|"] use_devicesfile=0 }}'
    process.run(["pvcreate", "--quiet", "--yes", "--config", config, disk.path])


def unmounted_btrfs_member(disk: Disk) -> None:
    """Make the second device of a btrfs that is not mounted and whose first device is missing."""
    from tests.support.planted import detach, new_disk

    other = new_disk(disk.folder / "first")
    process.run(
        ["mkfs.btrfs", "-q", "-f", "--mixed", "-d", "single", "-m", "single", other.path, disk.path]
    )
    process.run(["btrfs", "device", "scan", "--forget", disk.path])
    detach(other.path)


def luks(disk: Disk) -> None:
    """Write the header of an encrypted volume; the rest of such a volume has no signature."""
    kdf = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--luks2-keyslots-size", "256k"]
    argv = ["cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", *kdf, disk.path]
    process.run(argv, stdin="secret")


# name -> (function that writes it, names that the refusal must contain, programs that it needs)
SIGNATURES: dict[str, tuple[Callable[[Disk], object], tuple[str, ...], tuple[str, ...]]] = {
    "ext4": (mkfs, ("ext4",), ()),
    "xfs": (
        lambda disk: process.run(["mkfs.xfs", "-q", "--unsupported", disk.path], env=XFS_SMALL),
        ("xfs",),
        ("mkfs.xfs",),
    ),
    "btrfs": (
        lambda disk: process.run(["mkfs.btrfs", "-q", "--mixed", disk.path]),
        ("btrfs",),
        ("mkfs.btrfs",),
    ),
    "btrfs-member": (unmounted_btrfs_member, ("btrfs",), ("mkfs.btrfs",)),
    "swap-off": (lambda disk: process.run(["mkswap", "-q", disk.path]), ("swap",), ("mkswap",)),
    "gpt": (gpt, ("gpt", "PMBR"), ()),
    "gpt-backup": (lambda disk: gpt(disk, primary=False), ("gpt",), ()),
    "md": (md, ("linux_raid_member",), ()),
    "ext4-with-md": (ext4_with_md, ("linux_raid_member", "ext4"), ()),
    "zpool": (zpool, ("zfs_member",), ()),
    "lvm": (lvm, ("LVM2_member",), ("pvcreate",)),
    "luks": (luks, ("crypto_LUKS",), ("cryptsetup",)),
    "iso9660": (iso9660, ("iso9660",), ()),
    "dos": (
        lambda disk: put(
            disk,
            446,
            struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0x83, 0, 0, 0, 2048, 65536)
            + bytes(48)
            + b"\x55\xaa",
        ),
        ("dos",),
        (),
    ),
}


def headless(disk: Disk, *argv: str, env: dict[str, str] | None = None) -> None:
    """Make a filesystem whose beginning is overwritten. Only copies of its superblock are left,
    which wipefs does not report.
    """
    if process.find(argv[0]) is None:
        pytest.skip(f"needs the program {argv[0]}")
    process.run([*argv, disk.path], env=env)
    put(disk, 0, bytes(2**20))


# Data that no tool recognises.
NAMELESS: dict[str, Callable[[Disk], None]] = {
    "raw": lambda disk: put(disk, 20 * 2**20, os.urandom(2**20)),
    "one byte": lambda disk: put(disk, 12_345_678, b"x"),
    "headless ext4": lambda disk: headless(disk, "mkfs.ext4", "-q"),
    "headless xfs": lambda disk: headless(disk, "mkfs.xfs", "-q", "--unsupported", env=XFS_SMALL),
    "headless btrfs": lambda disk: headless(disk, "mkfs.btrfs", "-q", "--mixed"),
}
