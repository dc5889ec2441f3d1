"""Functions of the C library that Python does not offer."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_FAILED: Final = (-1, None, ctypes.c_void_p(-1).value)


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


def syncfs(path: Path) -> None:
    """Write back dirty data of the filesystem that contains `path` (syncfs(2)). Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        call("syncfs", fd, path=path)
    finally:
        os.close(fd)
