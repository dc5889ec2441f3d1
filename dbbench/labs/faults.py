"""Faults of simulated disks as values, whose text reproduces them: "fail write 3", "fail read of
4096-8191", "lose write 1 with ROW", "fail any for 5 s", several of them joined by "; ".
`main([MOUNTPOINT, ORDERS, IMAGE, ...])`, in a separate Python process, serves disks as
`powercut.disk` does, whose faults are the text in the file ORDERS.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.labs.powercut.disk import Disks, serve

PROGRAM: Final = ("-c", f"import sys; from {__name__} import main; main(sys.argv[1:])")
HOLD_S: Final = 30.0  # longest wait, below the kernel's hung_task_timeout_secs (120)
_POLL_S: Final = 0.02
_ZEROS: Final = 2**20
_JOINT: Final = "; "
_TEXT: Final = re.compile(
    r"(?P<action>fail|lose|hold) (?P<request>read|write|flush|any)"
    r"(?: (?P<first>[1-9]\d*)(?P<on>-)?)?(?: with (?P<content>\S+))?"
    r"(?: of (?P<begin>\d+)-(?P<end>\d+))?(?: for (?P<seconds>[\d.]+) s)?"
)


@dataclass(frozen=True)
class DiskFault:
    """What a disk does with requests of one kind. `fail`: it returns EIO; `lose`: it reports
    success and does nothing; `hold`: it does not answer.
    """

    action: str
    request: str  # read, write, flush or any
    # number of the matching request that is concerned, counted since the order; None: all
    first: int | None = None
    onwards: bool = False  # also all matching requests after it
    content: str = ""  # only writes that contain this text
    place: tuple[int, int] | None = None  # only requests that touch a byte from ... to ...
    seconds: float | None = None  # only so long after the order

    def __str__(self) -> str:
        parts = [self.action, self.request]
        if self.first is not None:
            parts.append(f"{self.first}{'-' if self.onwards else ''}")
        if self.content:
            parts.append(f"with {self.content}")
        if self.place is not None:
            begin, end = self.place
            parts.append(f"of {begin}-{end}")
        if self.seconds is not None:
            parts.append(f"for {self.seconds:g} s")
        return " ".join(parts)

    def matches(self, request: str, offset: int, data: bytes) -> bool:
        """Whether it is about this request, apart from its number and time; `data`: what is
        written, or as many bytes as are read.
        """
        if self.request not in (request, "any"):
            return False
        if self.content and (request != "write" or self.content.encode() not in data):
            return False
        if self.place is None:
            return True
        begin, end = self.place
        return request != "flush" and offset <= end and begin < offset + len(data)

    def strikes(self, number: int, elapsed_s: float) -> bool:
        """Whether it concerns the matching request of this number."""
        if self.seconds is not None and elapsed_s >= self.seconds:
            return False
        if self.first is None or number == self.first:
            return True
        return self.onwards and number > self.first


def parse(text: str) -> tuple[DiskFault, ...]:
    """Return the faults of a text; none for "". Raises ValueError."""
    faults = []
    for part in filter(None, text.strip().split(_JOINT)):
        match = _TEXT.fullmatch(part)
        if match is None:
            raise ValueError(f'"{part}" is not a fault, such as "fail flush 3"')
        place = (int(match["begin"]), int(match["end"])) if match["begin"] else None
        faults.append(
            DiskFault(
                match["action"],
                match["request"],
                int(match["first"]) if match["first"] else None,
                bool(match["on"]),
                match["content"] or "",
                place,
                float(match["seconds"]) if match["seconds"] else None,
            )
        )
    return tuple(faults)


def describe(faults: Sequence[DiskFault]) -> str:
    """Return the text of these faults, of which `parse` makes the same ones."""
    return _JOINT.join(map(str, faults))


@dataclass(frozen=True)
class Orders:
    """The file that tells a disk its faults, and beside it what they have met."""

    path: Path

    @property
    def _met(self) -> Path:
        return self.path.with_suffix(".met")

    def give(self, *faults: DiskFault) -> None:
        """Follow these from now on, and count requests anew; without a fault the disk works."""
        new = self.path.with_suffix(".new")
        new.write_text(describe(faults))
        self._met.write_text("")
        new.rename(self.path)

    def met(self) -> list[str]:
        """Return the requests that the faults have met since the order."""
        return self._met.read_text().splitlines()


class FaultyDisks(Disks):
    """Disks that log nothing, and look for new orders before each request."""

    def __init__(self, images: Sequence[Path], orders: Path) -> None:
        self._fds = tuple(os.open(image, os.O_RDWR | os.O_CLOEXEC) for image in images)
        self._orders = orders
        self._version: tuple[int, int] | None = None
        self._faults: tuple[DiskFault, ...] = ()
        self._seen: list[int] = []
        self._since = 0.0

    def _works(self, request: str, offset: int = 0, data: bytes = b"") -> bool:
        """Whether the request is to be carried out; raise OSError if it is to fail."""
        self._read_orders()
        for number, fault in enumerate(self._faults):
            if not fault.matches(request, offset, data):
                continue
            self._seen[number] += 1
            if not fault.strikes(self._seen[number], time.monotonic() - self._since):
                continue
            with self._orders.with_suffix(".met").open("a") as met:
                met.write(f"{fault}: {request} of {len(data)} bytes at {offset}\n")
            if fault.action == "hold":
                self._hold(fault)
                return True
            if fault.action == "lose":
                return False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return True

    def _hold(self, fault: DiskFault) -> None:
        """Wait until there are other orders, or the fault's time is over."""
        until = time.monotonic() + HOLD_S
        if fault.seconds is not None:
            until = min(until, self._since + fault.seconds)
        version = self._version
        while version == self._version and time.monotonic() < until:
            time.sleep(_POLL_S)
            self._read_orders()

    def _read_orders(self) -> None:
        try:
            status = self._orders.stat()
        except FileNotFoundError:
            return
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._version:
            self._version = version
            self._faults = parse(self._orders.read_text())
            self._seen = [0] * len(self._faults)
            self._since = time.monotonic()

    def read(self, path: str, size: int, offset: int, fh: Any) -> bytes:
        content = super().read(path, size, offset, fh)
        if self._works("read", offset, content):
            return content
        return bytes(size)

    def write(self, path: str, data: bytes, offset: int, _fh: Any) -> int:
        if self._works("write", offset, data):
            return os.pwrite(self._fds[int(path[1:])], data, offset)
        return len(data)

    def fsync(self, _path: str, _datasync: int, _fh: Any) -> int:
        self._works("flush")
        return 0

    def fallocate(
        self,
        path: str,
        _mode: int,
        offset: int,
        size: int,
        fh: Any,
    ) -> int:
        """Write zeros for every mode, because the kernel would log a refusal."""
        for begin in range(offset, offset + size, _ZEROS):
            self.write(path, bytes(min(_ZEROS, offset + size - begin)), begin, fh)
        return 0

    def destroy(self, _path: str) -> None:
        for fd in self._fds:
            os.close(fd)


def main(argv: list[str]) -> None:
    """Serve until unmounted."""
    mount_point, orders, *images = argv
    serve(FaultyDisks([Path(image) for image in images], Path(orders)), mount_point)
