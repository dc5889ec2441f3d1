"""Functions of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_statx: Final = _LIBC["statx"]  # not the function of `call`, which has other arguments
_statx.argtypes = (
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_void_p,
)
_FAILED: Final = (-1, None, ctypes.c_void_p(-1).value)
_AT_FDCWD: Final = -100
_PR_SET_PDEATHSIG: Final = 1
_AT_STATX_DONT_SYNC: Final = 0x4000
_STATX_TYPE_AND_INODE: Final = 0x101
_KINDS: Final = (stat.S_IFREG, stat.S_IFBLK)
# struct statx: the mode, the inode, and the numbers of the file and of its filesystem
_STATX: Final = struct.Struct("=28xH2xQ88x4I112x")


class FileStatus(NamedTuple):
    """What tells a file from others, with the names of os.stat_result."""

    st_mode: int
    st_ino: int
    st_rdev: int
    st_dev: int


def call(name: str, *arguments: Any, path: Path | None = None) -> int:
    """Call the function; integers are passed as long. Raises OSError with the kernel's errno and
    with `path`.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = getattr(_LIBC, name)(*words)
    if result in _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *([str(path)] if path else []))
    return int(result)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def syncfs(path: Path) -> None:
    """Write back dirty data of the filesystem that contains `path` (syncfs(2)). Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        call("syncfs", fd, path=path)
    finally:
        os.close(fd)


def known_status(path: Path) -> FileStatus:
    """Return what the kernel knows of a file. Its filesystem is not asked, because one of a network
    or of FUSE may never answer. Raises OSError.
    """
    answer = ctypes.create_string_buffer(_STATX.size)
    words = (os.fsencode(path), _AT_STATX_DONT_SYNC, _STATX_TYPE_AND_INODE)
    if _statx(_AT_FDCWD, *words, ctypes.addressof(answer)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    mode, inode, *numbers = _STATX.unpack(answer)
    return FileStatus(mode, inode, os.makedev(*numbers[:2]), os.makedev(*numbers[2:]))


def files_in(path: str, without: Collection[int] = ()) -> Iterator[tuple[str, FileStatus]]:
    """Yield the regular files and block devices in a directory, with `known_status`. Files that fail
    with an errno in `without` are left out. Raises OSError.
    """
    answer = ctypes.create_string_buffer(_STATX.size)
    place = ctypes.addressof(answer)
    folder: int = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):
            # As in `known_status`, without the cost of its calls for half a million descriptors.
            if _statx(folder, name.encode(), _AT_STATX_DONT_SYNC, _STATX_TYPE_AND_INODE, place):
                number = ctypes.get_errno()
                if number in without:
                    continue
                raise OSError(number, os.strerror(number), name)
            mode, inode, of_major, of_minor, major, minor = _STATX.unpack(answer)
            if stat.S_IFMT(mode) in _KINDS:
                rdev = os.makedev(of_major, of_minor)
                yield name, FileStatus(mode, inode, rdev, os.makedev(major, minor))
    finally:
        os.close(folder)
