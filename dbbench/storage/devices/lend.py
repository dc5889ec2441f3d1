"""Let a program open a device exclusively while this process keeps its own exclusive hold on it.

mkfs and similar programs open with O_EXCL, which the kernel refuses while the device is held.
Without this module the hold would have to be released before they start, and another process
could mount or open the device before they do; no program accepts a descriptor that is exclusive
already. The program starts with a seccomp filter (linux/seccomp.h, user notification): the kernel asks
this process about each open(2) with O_EXCL, and for a held device the program gets a plain
descriptor; and about mount(2), to release the hold exactly when the kernel takes it over. The
filter does not protect against the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import platform
import select
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from dbbench import process
from dbbench.machine import libc, threads

T = TypeVar("T")
# Takes device number and flags; returns a descriptor, or None if the device is not held.
Opened = Callable[[int, int], int | None]

_SET_MODE_FILTER = 1
_NEW_LISTENER = 8
_CONTINUE = 1
_ALLOW = 0x7FFF0000
_ASK = 0x7FC00000
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ADD_FD = 0x40182103
_NOTICE: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_ANSWER: Final = struct.Struct("=QqiI")  # struct seccomp_notif_resp
# the mount calls since Linux 5.2: FSCONFIG_CMD_CREATE and CREATE_EXCL
_FSCONFIG_CREATE: Final = (6, 8)
# For each architecture: AUDIT_ARCH, the number of seccomp, and the calls to intercept. Some have no
# open(2).
_MACHINES: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "arch": 0xC000003E,
        "seccomp": 317,
        "openat": 257,
        "open": 2,
        "mount": 165,
        "fsconfig": 431,
    },
    "aarch64": {"arch": 0xC00000B7, "seccomp": 277, "openat": 56, "mount": 40, "fsconfig": 431},
}
# longest delay in ms until the end of a block is noticed while one of its programs still runs
_LOOK_MS: Final = 20


class _Calls(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@functools.cache
def possible() -> bool:
    """Whether this machine supports it: a known architecture, and a kernel with such listeners."""
    try:
        os.close(_in_thread(_listener))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def lending(opened: Opened, mounts: Callable[[], None]) -> Iterator[None]:
    """Programs of the block ask `opened` when they open a device exclusively, and `mounts` is
    called before they mount something. Raises OSError if this machine does not support it.
    """
    with contextlib.ExitStack() as stack:

        def start(spawn: Callable[[], T]) -> T:
            listener, child = _in_thread(lambda: (_listener(), spawn()))
            stack.callback(os.close, listener)
            stack.enter_context(
                threads.beside("lending", partial(_answer_all, listener, opened, mounts))
            )
            return child

        with process.spawning(start):
            yield


def _in_thread(work: Callable[[], T]) -> T:
    """Run it in a thread that ends with it: a filter stays on its thread and on what the thread
    started.
    """
    results: list[T] = []
    thread = threads.Helper("lending", lambda: results.append(work()))
    thread.start()
    thread.join()
    if error := thread.error():
        raise error
    return results[0]


def _listener() -> int:
    """Filter this thread; return the descriptor on which the kernel asks."""
    calls = _MACHINES.get(platform.machine())
    if calls is None:
        raise OSError(f"unknown machine {platform.machine()}")
    code = _program(calls)
    fprog = _Calls(len(code) // 8, code)
    return libc.call(
        "syscall",
        calls["seccomp"],
        _SET_MODE_FILTER,
        _NEW_LISTENER,
        ctypes.byref(fprog),
    )


def _program(calls: dict[str, int]) -> bytes:
    """Return the filter (classic BPF): ask about opens with O_EXCL and without O_CREAT, and about
    mounts.
    """
    load = 0x20
    equal = 0x15
    both = 0x54
    give = 0x06
    arguments = 16  # offsets in struct seccomp_data: nr at 0, arch at 4, args from 16
    # A system call of another architecture is allowed: it has other numbers.
    lines: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, calls["arch"]),
        (give, 0, 0, _ALLOW),
    ]
    # Opens: only O_EXCL without O_CREAT, which is how a device is opened alone.
    for name, argument in (("openat", 2), ("open", 1)):
        if name in calls:
            lines += [
                (load, 0, 0, 0),
                (equal, 0, 5, calls[name]),
                (load, 0, 0, arguments + 8 * argument),
                (both, 0, 0, os.O_EXCL | os.O_CREAT),
                (equal, 0, 1, os.O_EXCL),
                (give, 0, 0, _ASK),
                (give, 0, 0, _ALLOW),
            ]
    lines += [
        (load, 0, 0, 0),
        (equal, 0, 1, calls["mount"]),
        (give, 0, 0, _ASK),
        (equal, 0, 4, calls["fsconfig"]),
        (load, 0, 0, arguments + 8),
        (equal, 1, 0, _FSCONFIG_CREATE[0]),
        (equal, 0, 1, _FSCONFIG_CREATE[1]),
        (give, 0, 0, _ASK),
        (give, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _answer_all(
    listener: int,
    opened: Opened,
    mounts: Callable[[], None],
    ended: threading.Event,
) -> None:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not ended.is_set():
        happened = poll.poll(_LOOK_MS)
        if happened and not happened[0][1] & select.POLLIN:
            return
        if happened:
            with contextlib.suppress(OSError):  # the program was killed before it got the answer
                _answer(listener, opened, mounts)


def _answer(listener: int, opened: Opened, mounts: Callable[[], None]) -> None:
    number, pid, _, call, _, _, *arguments = _NOTICE.unpack(
        fcntl.ioctl(listener, _RECEIVE, bytes(_NOTICE.size))
    )
    calls = _MACHINES[platform.machine()]
    fd = None
    given = None
    try:
        # A mount is allowed after `mounts` was called; an open is answered with our descriptor.
        if call in (calls["mount"], calls["fsconfig"]):
            mounts()
        else:
            path, flags = arguments[1:3] if call == calls["openat"] else arguments[0:2]
            fd = _opened_for(pid, path, flags, opened)
        if fd is not None:  # struct seccomp_notif_addfd: id, flags, srcfd, newfd, newfd_flags
            request = bytearray(struct.pack("=QIIII", number, 0, fd, 0, flags & os.O_CLOEXEC))
            given = fcntl.ioctl(listener, _ADD_FD, request)
    finally:
        if fd is not None:
            os.close(fd)
        # Without an answer the program would wait forever, so it gets one after an error, too.
        answer = (
            _ANSWER.pack(number, 0, 0, _CONTINUE)
            if given is None
            else _ANSWER.pack(number, given, 0, 0)
        )
        fcntl.ioctl(listener, _SEND, answer)


def _opened_for(
    pid: int,
    address: int,
    flags: int,
    opened: Opened,
) -> int | None:
    """Return a descriptor for the block device that the program names at an address of its memory,
    or None.
    """
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            path = memory.read(4096).split(b"\0")[0].decode(errors="surrogateescape")
        if path.startswith("/proc/self/"):
            path = f"/proc/{pid}/{path.removeprefix('/proc/self/')}"
        number = Path(path).stat().st_rdev
        if number:
            return opened(number, flags & ~(os.O_EXCL | os.O_CREAT))
        return None
    except OSError:
        return None
