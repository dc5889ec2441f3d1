"""What all kinds of layers do alike: take a name, open what was made, wait, erase their marks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices import guard, naming, sysfs
from dbbench.devices.ending import afterwards
from dbbench.devices.port import Device
from dbbench.errors import CommandFailed, DeadlinePassed, LayerFailed, LayerStuck
from dbbench.journal import Journal
from dbbench.model import DeviceFacts, Scalar

WHAT: Final = "layer"  # in the journal
_RELEASE_S: Final = 20.0  # the mount of a trial that was killed, or udev's look at a new device, may hold it
_APPEAR_S: Final = 5.0  # a node in /dev is made by the kernel at once, by udev within its queue


@contextlib.contextmanager
def taken(kind: str, end: Callable[[str], None], members: Sequence[Device], journal: Journal) -> Iterator[str]:
    """A name of our own for a layer on these members, journalled; afterwards `end` takes apart what has it."""
    name = f"dbbench-{secrets.token_hex(4)}"
    path = f"{kind}:{name}"

    def ended() -> None:
        end(name)
        for member in members:
            wiped(member.fd)
        journal.note("give_back", what=WHAT, path=path)

    journal.note("take", what=WHAT, path=path)
    with afterwards(ended):
        yield name


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """What a program says in the block is told as LayerFailed."""
    try:
        yield
    except (CommandFailed, DeadlinePassed) as failure:
        raise LayerFailed(
            f"{what}: {failure}",
            effect="What was made of it is taken apart again; nothing was measured.",
            remedy="dbbench fs show NAME  prints the commands; read the kernel's lines (dmesg).",
        ) from failure


@contextlib.contextmanager
def opened(name: str, facts: dict[str, Scalar]) -> Iterator[Device]:
    """The volume of that kernel name (md127, dm-3), locked, so that udev stays away from it. LayerFailed."""
    path = Path(f"/dev/{name}")
    until = time.monotonic() + _APPEAR_S
    while not path.is_block_device():
        if time.monotonic() > until:
            raise LayerFailed(f"{path} is not there though the kernel has {name}", effect="Nothing was measured.")
        time.sleep(0.02)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        number = os.fstat(fd).st_rdev
        described = DeviceFacts("layer", str(path), name, sysfs.size_bytes(name))
        yield Device(path, fd, os.major(number), os.minor(number), described, sysfs.leaves(name), layers=(facts,))
    finally:
        os.close(fd)


@contextlib.contextmanager
def let_go(device: Device) -> Iterator[None]:
    """Its descriptor is not open on it while the block lasts: some tools want to be alone. Then it is locked again."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, device.fd, inheritable=False)
    os.close(nothing)
    try:
        yield
    finally:
        again = os.open(device.path, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(again, device.fd, inheritable=False)
        os.close(again)
        fcntl.flock(device.fd, fcntl.LOCK_EX)
        if os.fstat(device.fd).st_rdev != os.makedev(device.major, device.minor):
            raise LayerStuck(f"{device.path} is another device now", effect="Nothing more is done on it.")


@contextlib.contextmanager
def kept_open(names: Sequence[str]) -> Iterator[list[int]]:
    """Descriptors of these devices: a loop device would let go of its image with its last user."""
    with contextlib.ExitStack() as stack:
        found = []
        for name in names:
            fd = os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            found.append(fd)
        yield found


def wiped(fd: int) -> None:
    """Erase the marks by which a device is recognised as a part of something. LayerStuck where somebody holds it."""
    until_free(fd)
    process.run(["wipefs", "--all", "--quiet", f"/proc/self/fd/{fd}"], pass_fds=(fd,), note=False)


def until_free(fd: int) -> None:
    """Wait until nobody holds the device exclusively. LayerStuck."""
    persistently(lambda: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)),
                 Path(f"/proc/self/fd/{fd}").readlink())  # fmt: skip


def persistently(step: Callable[[], object], what: object) -> None:
    """Do something until it succeeds. LayerStuck where it still fails after a time."""
    until = time.monotonic() + _RELEASE_S
    while True:
        try:
            step()
            return
        except (CommandFailed, OSError) as failure:
            if isinstance(failure, OSError) and failure.errno not in (errno.EBUSY, errno.ENXIO):
                raise
            if time.monotonic() > until:
                raise LayerStuck(
                    f"{what} is still in use after {_RELEASE_S:.0f} s: {failure}",
                    effect="It is still there, and so is what lies below it.",
                    remedy="Unmount what lies on it, then  dbbench clean",
                ) from failure
        time.sleep(0.05)


def note_made(member: Device, journal: Journal) -> None:
    """Journal the marks that a layer has put on a real disk: the next run may erase them without being asked."""
    if member.facts.kind == "block":
        for mark in guard.signatures_of(member.fd):
            if mark.uuid:
                journal.note("made", device=naming.identity_of(member.facts.name), uuid=mark.uuid, what=mark.text)
