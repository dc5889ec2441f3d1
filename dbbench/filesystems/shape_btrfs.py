"""btrfs: where its data is free. No tool of its own prints that; its trees are asked by the kernel's own search.

`btrfs inspect-internal dump-tree` would print the same as text, hundreds of bytes for each extent, and not what its
free-space bitmaps hold.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.filesystems.port import Mounted
from dbbench.filesystems.shape_parse import FreeExtent, parse_usage

_TREE_SEARCH_V2: Final = 0xC0709411  # BTRFS_IOC_TREE_SEARCH_V2 (linux/btrfs.h)
_KEY: Final = struct.Struct("=7Q4I4Q")  # struct btrfs_ioctl_search_key
_HEADER: Final = struct.Struct("=3Q2I")  # struct btrfs_ioctl_search_header: transid, objectid, offset, type, length
_BUFFER: Final = 2**18
_MOST: Final = 2**64 - 1
_EXTENT_TREE, _CHUNK_TREE, _CHUNK_OBJECT = 2, 3, 256
_EXTENT_ITEM, _METADATA_ITEM, _CHUNK_ITEM = 168, 169, 228
_CHUNK: Final = struct.Struct("<4Q")  # struct btrfs_chunk: length, owner, stripe length, type
_DATA: Final = 1  # BTRFS_BLOCK_GROUP_DATA


@dataclass(frozen=True)
class _Item:
    objectid: int
    type: int
    offset: int
    data: bytes


def taken_bytes(fs: Mounted) -> tuple[int, int] | None:
    """Used by metadata and system chunks, and by data chunks; every copy counted."""
    used = parse_usage(_usage(fs.path))
    return (used.get("metadata", 0) + used.get("system", 0), used.get("data", 0)) if used else None


def free(fs: Mounted) -> Iterator[FreeExtent]:
    """The gaps between extents in the chunks of data, and what no chunk has been made of yet as one."""
    fd = os.open(fs.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for start, length in _data_chunks(fd):
            for size in _gaps(fd, start, length):
                yield size, 1, size
    finally:
        os.close(fd)
    unallocated = parse_usage(_usage(fs.path)).get("unallocated", 0)
    if unallocated:
        yield unallocated, 1, unallocated


def _usage(path: Path) -> str:
    return process.run(["btrfs", "filesystem", "usage", "--raw", path], timeout_s=120).stdout


def _data_chunks(fd: int) -> list[tuple[int, int]]:
    """(start, length) of each chunk of data, as logical addresses."""
    found = []
    for item in _search(fd, _CHUNK_TREE, (_CHUNK_OBJECT, _CHUNK_OBJECT), (0, _MOST), (_CHUNK_ITEM, _CHUNK_ITEM)):
        length, _, _, kind = _CHUNK.unpack_from(item.data)
        if kind & _DATA:
            found.append((item.offset, length))
    return found


def _gaps(fd: int, start: int, length: int) -> Iterator[int]:
    at = start
    for item in _search(fd, _EXTENT_TREE, (start, start + length - 1), (0, _MOST), (_EXTENT_ITEM, _METADATA_ITEM)):
        if item.objectid > at:
            yield item.objectid - at
        size = item.offset if item.type == _EXTENT_ITEM else 0  # mixed chunks: a node's size is in no key
        at = max(at, item.objectid + size)
    if start + length > at:
        yield start + length - at


def _search(
    fd: int, tree: int, objects: tuple[int, int], offsets: tuple[int, int], types: tuple[int, int]
) -> Iterator[_Item]:
    """Items of a tree by BTRFS_IOC_TREE_SEARCH_V2, in the order of their keys. OSError without root."""
    low = (objects[0], types[0], offsets[0])
    while low[0] <= objects[1]:
        key = _KEY.pack(tree, low[0], objects[1], low[2], offsets[1], 0, _MOST, low[1], types[1], 2**32 - 1, *(0,) * 5)
        buffer = bytearray(key + struct.pack("=Q", _BUFFER) + bytes(_BUFFER))
        fcntl.ioctl(fd, _TREE_SEARCH_V2, buffer)
        count, at, item = _KEY.unpack_from(buffer)[9], _KEY.size + 8, None
        for _ in range(count):
            _, objectid, offset, type_, size = _HEADER.unpack_from(buffer, at)
            at += _HEADER.size
            item = _Item(objectid, type_, offset, bytes(buffer[at : at + size]))
            at += size
            if types[0] <= type_ <= types[1]:  # the range is one of whole keys: others lie within it
                yield item
        if item is None:
            return
        low = _after(item)


def _after(item: _Item) -> tuple[int, int, int]:
    """The next key after that of an item, as (objectid, type, offset)."""
    if item.offset < _MOST:
        return item.objectid, item.type, item.offset + 1
    return (item.objectid, item.type + 1, 0) if item.type < 255 else (item.objectid + 1, 0, 0)
