"""Hold block devices exclusively (O_EXCL) from the first check to the last byte that is written to
them.

While a device is held, no process can mount it, swap to it, put it under md or dm, or run mkfs
on it; programs that open it without O_EXCL (fio) still work. Programs that need it exclusively
are lent the hold (`lend`), and mount(2) takes it over (`handed_over`): released when the call is
made, acquired again after the unmount (`regain`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from dbbench import process
from dbbench.errors import CommandFailed, DbbenchError, DeviceInUse
from dbbench.storage.devices import guard
from dbbench.storage.devices.lend import lending, possible

# bytes erased at each end: they contain partition tables, labels and superblocks of all families
_ENDS: Final = 2**20
_PIECE: Final = 2**16
_BLKFLSBUF: Final = 0x1261  # linux/fs.h
_BACK_S: Final = 2.0  # seconds to wait for the device, because udev may read it at that moment
_held: dict[int, Hold] = {}  # key: device number


class Hold:
    """An exclusive hold on a device. `fd` is None while it is released."""

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd
        self.number = os.fstat(fd).st_rdev
        # the signatures when the device was last handed to a program
        self.content: list[guard.Reason] = []

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


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
    """Keep this exclusive descriptor as the hold on its device within the block; it is closed at
    the end.
    """
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
    if held is None or held.fd is None:
        return plain
    return held.fd


def release(*plain: int) -> None:
    """Let the kernel take these devices over (md, dm, ZFS), after everything mountable was erased
    from them.
    """
    for fd in plain:
        if (held := _of(fd)) is not None:
            held.release()


def regain(plain: int) -> bool:
    """Hold the device again after the kernel has released it; return False if something else still
    holds it.
    """
    held = _of(plain)
    if held is None:
        # a device that is not held must be free
        if (fd := exclusively(plain, os.O_RDONLY)) is not None:
            os.close(fd)
        return fd is not None
    held.fd = exclusively(plain) if held.fd is None else held.fd
    return held.fd is not None


@contextlib.contextmanager
def lend() -> Iterator[None]:
    """Let programs of the block open held devices exclusively; where that is not possible, they are
    released.
    """
    if not any(hold.fd is not None for hold in _held.values()):
        yield
    elif possible():
        with lending(_open, lambda: None):
            yield
    else:
        with _release():
            yield


@contextlib.contextmanager
def handed_over(*plain: int) -> Iterator[None]:
    """Let a program of the block mount these devices: released when it calls mount(2), held again
    if the block fails. `changed` compares with what is on them then.
    """
    for fd in plain:
        if (held := _of(fd)) is not None:
            held.content = guard.signatures_of(fd)
    with contextlib.ExitStack() as stack:
        if possible() and any(_of(fd) is not None for fd in plain):
            stack.enter_context(lending(_open, lambda: release(*plain)))
        else:
            release(*plain)
        try:
            yield
        except BaseException:
            for fd in plain:
                regain(fd)
            raise
    release(*plain)


def must_be_alone(plain: int) -> None:
    """Raise DeviceInUse if another process writes to a held device. See `guard.must_be_alone`."""
    if _of(plain) is not None:
        guard.must_be_alone(plain)


def foreign_write(*plain: int) -> str | None:
    """Describe what another process wrote to a device since it was handed over, or return None."""
    for fd in plain:
        held = _of(fd)
        now = guard.signatures_of(fd) if held is not None else []
        if held is not None and now != held.content:
            return ", ".join(reason.text for reason in now) or "no recognised signature"
    return None


def erase(plain: int) -> None:
    """Erase every signature of a filesystem, an array's member or a partition table, with copies:
    nothing can be mounted. The bytes are written back if a loop device was put over it. Raises
    OSError, CommandFailed, DeviceInUse.
    """
    must_be_alone(plain)
    size = os.lseek(plain, 0, os.SEEK_END)
    # Both ends, and the places where filesystems keep copies of their superblocks.
    places = [
        (0, _ENDS),
        (max(0, size - _ENDS), _ENDS),
        *((place, _PIECE) for place in guard.COPIES if place < size),
    ]
    before = [(place, os.pread(plain, length, place)) for place, length in places]
    _write(plain, [(place, bytes(len(content))) for place, content in before])
    # If another process has opened it in between, it gets back what was there.
    try:
        must_be_alone(plain)
    except DeviceInUse:
        _write(plain, before)
        raise
    process.run(
        ["wipefs", "--all", "--force", "--quiet", f"/proc/self/fd/{plain}"],
        pass_fds=(plain,),
        note=False,
    )


def drop_buffers(fd: int) -> None:
    """Write back and drop what the page cache holds of the device itself. Raises OSError."""
    fcntl.ioctl(fd, _BLKFLSBUF)


def _write(plain: int, pieces: list[tuple[int, bytes]]) -> None:
    for place, content in pieces:
        os.pwrite(plain, content, place)
    os.fsync(plain)


def _of(plain: int) -> Hold | None:
    return _held.get(os.fstat(plain).st_rdev)


def _open(number: int, flags: int) -> int | None:
    """Return a descriptor of the hold itself, with the status flags that a program requests; None
    without a hold.
    """
    hold = _held.get(number)
    if hold is None or hold.fd is None:
        return None
    os.lseek(hold.fd, 0, os.SEEK_SET)
    fcntl.fcntl(hold.fd, fcntl.F_SETFL, flags & (os.O_DIRECT | os.O_NONBLOCK))
    return os.dup(hold.fd)


@contextlib.contextmanager
def _release() -> Iterator[None]:
    plain = []
    for hold in _held.values():
        if hold.fd:
            plain.append(os.open(f"/proc/self/fd/{hold.fd}", os.O_RDONLY | os.O_CLOEXEC))
    release(*plain)
    try:
        yield
    finally:
        process.wait_while(lambda: not all([regain(fd) for fd in plain]), _BACK_S, 0.01)
        for fd in plain:
            os.close(fd)


def retry(step: Callable[[], object], limit_s: float) -> Exception | None:
    """Repeat a step while a program fails or a device is busy; return the last error after
    `process.allowed_s(limit_s)`, or None.
    """
    began = time.monotonic()
    pause_s = 0.02
    while True:
        try:
            step()
            return None
        except CommandFailed as error:
            failure: Exception = error
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENXIO):
                raise
            failure = error
        if process.overdue(began, limit_s):
            return failure
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.5)


@contextlib.contextmanager
def afterwards(wait: Callable[[], None]) -> Iterator[None]:
    """Call `wait` when the block ends. After an error in the block, an error of `wait` becomes a
    note on it.
    """
    try:
        yield
    except BaseException as error:
        try:
            wait()
        except DbbenchError as second:
            error.add_note(f"{second.id}: {second}")
        raise
    wait()
