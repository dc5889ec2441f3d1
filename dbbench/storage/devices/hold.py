"""Hold block devices exclusively (O_EXCL) from the first check to the last byte that is written to them.

While a device is held, no process can mount it, swap to it, put it under md or dm, or run mkfs on it. fio and other
programs that open it without O_EXCL still work. Programs that need it exclusively are lent the hold (`lent`), and
mount(2) takes it over (`handed_over`): it is released when the call is made and acquired again after the unmount
(`regained`). A process that writes to the device through a plain open cannot be stopped by this.

Let a program open a device exclusively while this process keeps its own exclusive hold on it.

mkfs and similar programs open with O_EXCL, which the kernel refuses while the device is held. The program is started
with a seccomp filter (linux/seccomp.h, user notification): the kernel asks this process about each open(2) with O_EXCL,
and for a held device the program gets a plain descriptor. The kernel also asks about mount(2), so that the hold is
released exactly when the kernel takes it over. All other calls are unaffected. The filtered program was started to
write to the device; the filter does not protect against it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
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
from dbbench.errors import DbbenchError, DeviceInUse
from dbbench.machine import libc, threads
from dbbench.storage.devices import guard

_ENDS: Final = 2**20  # bytes erased at each end: they contain partition tables, labels and superblocks of all families
_PIECE: Final = 2**16
_BLKFLSBUF: Final = 0x1261  # linux/fs.h
_held: dict[int, Hold] = {}  # key: device number
T = TypeVar("T")
# Takes device number and flags; returns a descriptor, or None if the device is not held.
Opened = Callable[[int, int], int | None]

_SET_MODE_FILTER, _NEW_LISTENER, _CONTINUE = 1, 8, 1
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _ADD_FD = 0xC0502100, 0xC0182101, 0x40182103
_NOTICE: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_ANSWER: Final = struct.Struct("=QqiI")  # struct seccomp_notif_resp
_FSCONFIG_CREATE: Final = (6, 8)  # the mount calls since Linux 5.2: FSCONFIG_CMD_CREATE and CREATE_EXCL


class Hold:
    """An exclusive hold on a device. `fd` is None while it is released."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self.number = os.fstat(fd).st_rdev
        self.content: list[guard.Reason] = []  # the signatures when the device was last handed to a program

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def acquire(self, plain: int) -> bool:
        """Acquire it again through a plain descriptor; return False if another process holds it."""
        if self.fd is None:
            self.fd = exclusively(plain)
        return self.fd is not None

    def share(self, flags: int) -> int:
        """Return a descriptor of the hold itself, with the status flags that a program requests."""
        assert self.fd is not None
        os.lseek(self.fd, 0, os.SEEK_SET)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags & (os.O_DIRECT | os.O_NONBLOCK))
        return os.dup(self.fd)


def exclusively(plain: int, mode: int = os.O_RDWR) -> int | None:
    """Return an exclusive descriptor of an open device, or None if another process holds it."""
    try:
        return os.open(f"/proc/self/fd/{plain}", mode | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return None


@contextlib.contextmanager
def holding(exclusive: int) -> Iterator[None]:
    """Keep this exclusive descriptor as the hold on its device within the block; it is closed at the end."""
    hold = Hold(exclusive)
    _held[hold.number] = hold
    try:
        yield
    finally:
        _held.pop(hold.number, None)
        hold.release()


def fd_of(plain: int) -> int:
    """Return the exclusive descriptor of a device, or the plain one if it is not held."""
    held = _of(plain)
    return plain if held is None or held.fd is None else held.fd


def release(*plain: int) -> None:
    """Let the kernel take these devices over (md, dm, ZFS). Everything mountable was erased from them before."""
    for fd in plain:
        if (held := _of(fd)) is not None:
            held.release()


def regained(plain: int) -> bool:
    """Hold the device again after the kernel has released it; return False if something else still holds it."""
    held = _of(plain)
    if held is not None:
        return held.acquire(plain)
    fd = exclusively(plain, os.O_RDONLY)  # a device that is not held must be free
    if fd is not None:
        os.close(fd)
    return fd is not None


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Let programs of the block open the held devices exclusively.

    The devices stay held; on a machine that does not support this, they are released meanwhile.
    """
    if not any(hold.fd is not None for hold in _held.values()):
        yield
    elif _can_lend():
        with lending(_opened, lambda: None):
            yield
    else:
        with _released():
            yield


@contextlib.contextmanager
def handed_over(*plain: int) -> Iterator[None]:
    """Let a program of the block mount these devices.

    They are released when it calls mount(2), and held again if the block fails. `changed` compares with what is on them
    then.
    """
    for fd in plain:
        if (held := _of(fd)) is not None:
            held.content = guard.signatures_of(fd)
    with contextlib.ExitStack() as stack:
        if _can_lend() and any(_of(fd) is not None for fd in plain):
            stack.enter_context(lending(_opened, lambda: release(*plain)))
        else:
            release(*plain)
        try:
            yield
        except BaseException:
            for fd in plain:
                regained(fd)
            raise
    release(*plain)


def must_be_alone(plain: int) -> None:
    """Raise DeviceInUse if another process writes to a held device. See `guard.must_be_alone`."""
    if _of(plain) is not None:
        guard.must_be_alone(plain)


def changed(*plain: int) -> str | None:
    """Describe what another process wrote to a device since it was handed over, or return None."""
    for fd in plain:
        held = _of(fd)
        now = guard.signatures_of(fd) if held is not None else []
        if held is not None and now != held.content:
            return ", ".join(reason.text for reason in now) or "no recognised signature"
    return None


def erase(plain: int) -> None:
    """Erase every signature of a filesystem, a member of an array or a partition table, including copies.

    Nothing on the device can be mounted any more, not even through a loop device over it. If a loop device was put over
    it meanwhile, the erased bytes are written back. Raises OSError, CommandFailed, DeviceInUse.
    """
    must_be_alone(plain)
    size = os.lseek(plain, 0, os.SEEK_END)
    places = [(0, _ENDS), (max(0, size - _ENDS), _ENDS), *((place, _PIECE) for place in guard.COPIES if place < size)]
    before = [(place, os.pread(plain, length, place)) for place, length in places]
    _write(plain, [(place, bytes(len(content))) for place, content in before])
    try:
        must_be_alone(plain)
    except DeviceInUse:
        _write(plain, before)
        raise
    process.run(["wipefs", "--all", "--force", "--quiet", f"/proc/self/fd/{plain}"], pass_fds=(plain,), note=False)


def drop_buffers(fd: int) -> None:
    """Write back and drop what the page cache holds of the device itself. Raises OSError."""
    fcntl.ioctl(fd, _BLKFLSBUF)


def _write(plain: int, pieces: list[tuple[int, bytes]]) -> None:
    for place, content in pieces:
        os.pwrite(plain, content, place)
    os.fsync(plain)


def _of(plain: int) -> Hold | None:
    return _held.get(os.fstat(plain).st_rdev)


def _opened(number: int, flags: int) -> int | None:
    hold = _held.get(number)
    return None if hold is None or hold.fd is None else hold.share(flags)


@functools.cache
def _can_lend() -> bool:
    return possible()


@contextlib.contextmanager
def _released() -> Iterator[None]:
    plain = [os.open(f"/proc/self/fd/{hold.fd}", os.O_RDONLY | os.O_CLOEXEC) for hold in _held.values() if hold.fd]
    release(*plain)
    try:
        yield
    finally:
        process.wait_while(lambda: not all([regained(fd) for fd in plain]), _BACK_S, 0.01)
        for fd in plain:
            os.close(fd)


_BACK_S: Final = 2.0  # seconds to wait for the device, because udev may read it at that moment


@contextlib.contextmanager
def afterwards(wait: Callable[[], None]) -> Iterator[None]:
    """Call `wait` when the block ends. After an error in the block, an error of `wait` becomes a note on it."""
    try:
        yield
    except BaseException as error:
        try:
            wait()
        except DbbenchError as second:
            error.add_note(f"{second.id}: {second}")
        raise
    wait()


class _Calls(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


# For each architecture: AUDIT_ARCH, the number of seccomp, and the calls to intercept. Some have no open(2).
_MACHINES: Final[dict[str, dict[str, int]]] = {
    "x86_64": {"arch": 0xC000003E, "seccomp": 317, "openat": 257, "open": 2, "mount": 165, "fsconfig": 431},
    "aarch64": {"arch": 0xC00000B7, "seccomp": 277, "openat": 56, "mount": 40, "fsconfig": 431},
}
_LOOK_MS: Final = 20  # longest delay in ms until the end of a block is noticed while one of its programs still runs


def possible() -> bool:
    """Whether this machine supports it: a known architecture, and a kernel with such listeners."""
    try:
        os.close(_in_thread(_listener))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def lending(opened: Opened, mounts: Callable[[], None]) -> Iterator[None]:
    """Programs started in the block ask `opened` when they open a block device exclusively.

    `mounts` is called just before they mount something. Raises OSError if this machine does not support it.
    """
    with contextlib.ExitStack() as stack:

        def start(spawn: Callable[[], T]) -> T:
            listener, child = _in_thread(lambda: (_listener(), spawn()))
            stack.callback(os.close, listener)
            stack.enter_context(threads.beside("lending", partial(_answer_all, listener, opened, mounts)))
            return child

        with process.spawning(start):
            yield


def _in_thread(work: Callable[[], T]) -> T:
    """Run it in a thread that ends with it: a filter stays on its thread and on what the thread started."""
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
    return libc.call("syscall", calls["seccomp"], _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(fprog))


def _program(calls: dict[str, int]) -> bytes:
    """Return the filter (classic BPF): ask about opens with O_EXCL and without O_CREAT, and about mounts."""
    load, equal, both, give = 0x20, 0x15, 0x54, 0x06
    arguments = 16  # offsets in struct seccomp_data: nr at 0, arch at 4, args from 16
    lines: list[tuple[int, int, int, int]] = [(load, 0, 0, 4), (equal, 1, 0, calls["arch"]), (give, 0, 0, _ALLOW)]
    for name, argument in (("openat", 2), ("open", 1)):
        if name in calls:
            lines += [
                (load, 0, 0, 0), (equal, 0, 5, calls[name]),
                (load, 0, 0, arguments + 8 * argument), (both, 0, 0, os.O_EXCL | os.O_CREAT),
                (equal, 0, 1, os.O_EXCL), (give, 0, 0, _ASK), (give, 0, 0, _ALLOW),
            ]  # fmt: skip
    lines += [(load, 0, 0, 0), (equal, 0, 1, calls["mount"]), (give, 0, 0, _ASK), (equal, 0, 4, calls["fsconfig"]),
              (load, 0, 0, arguments + 8), (equal, 1, 0, _FSCONFIG_CREATE[0]), (equal, 0, 1, _FSCONFIG_CREATE[1]),
              (give, 0, 0, _ASK), (give, 0, 0, _ALLOW)]  # fmt: skip
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _answer_all(listener: int, opened: Opened, mounts: Callable[[], None], ended: threading.Event) -> None:
    """Answer the kernel until the event is set, or no filtered program is left."""
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
    number, pid, _, call, _, _, *arguments = _NOTICE.unpack(fcntl.ioctl(listener, _RECEIVE, bytes(_NOTICE.size)))
    calls, fd, given = _MACHINES[platform.machine()], None, None
    try:
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
        answer = _ANSWER.pack(number, 0, 0, _CONTINUE) if given is None else _ANSWER.pack(number, given, 0, 0)
        fcntl.ioctl(listener, _SEND, answer)


def _opened_for(pid: int, address: int, flags: int, opened: Opened) -> int | None:
    """Return a descriptor for the block device that the program names at an address of its memory, or None."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            path = memory.read(4096).split(b"\0")[0].decode(errors="surrogateescape")
        if path.startswith("/proc/self/"):
            path = f"/proc/{pid}/{path.removeprefix('/proc/self/')}"
        number = Path(path).stat().st_rdev
        return opened(number, flags & ~(os.O_EXCL | os.O_CREAT)) if number else None
    except OSError:
        return None
