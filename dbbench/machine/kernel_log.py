"""The kernel log of one device between two moments, read from the end of /dev/kmsg; lost lines are
detected. Lines are assigned by device name, and loop numbers are reused: a watch must be between
attach and detach.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

KMSG: Final = Path("/dev/kmsg")
_RECORD_BYTES: Final = 8192  # the kernel's limit for a record (CONSOLE_EXT_LOG_MAX)
_ERROR: Final = 3  # KERN_ERR; smaller numbers are more severe
# Filesystems report some faults with a less severe level than KERN_ERR; these are recognised by
# their text.
_FAULT: Final = re.compile(
    r"I/O error|\berror\b|shut ?down|corrupt|abort|read-?only|beyond end of device", re.IGNORECASE
)

# The block layer reports each refused operation like this. A filesystem sends these three only to
# save time, and writes zeros itself where the driver has none: that of loop devices on an image in
# tmpfs.
_OPTIONAL: Final = re.compile(
    r"^operation not supported error, .*:\((?:DISCARD|SECURE_ERASE|WRITE_ZEROES)\)"
)

# Problems of the whole machine. A kill within a control group ("Memory cgroup out of memory") is
# not one of them.
_MACHINE: Final = re.compile(
    r"^Out of memory: |\b(?:soft|hard) lockup\b|self-detected stall|^mce: |Hardware Error|clock throttled"
    r"|^INFO: task .* blocked for more than",
    re.IGNORECASE,
)

# a line break within a message is written as \x0a
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class KernelMessage:
    """One record of the kernel log."""

    sequence: int
    priority: int  # 0 emergency ... 3 error ... 6 info
    text: str


class Watch:
    """The kernel log within a block. Without permission every answer is None: not known."""

    def __init__(self, disk: str = "", path: Path = KMSG) -> None:
        """`disk`: the kernel name that queries use by default."""
        self._disk = disk
        self._path = path
        self._fd: int | None = None
        self._lines: list[KernelMessage] = []
        self._overrun = False

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._close()
        self._known = self._fd is not None
        return self

    def __exit__(self, *_error: object) -> None:
        self._read()
        self._close()

    def lines_about(self, disk: str = "", faults: bool = True) -> tuple[str, ...] | None:
        """Return the lines since the start that name the disk ("loop7") or a partition of it:
        faults, or all.
        """
        self._read()
        if not self._known:
            return None
        named = (line for line in self._lines if names(line.text, disk or self._disk))
        return tuple(line.text for line in named if not faults or is_fault(line))

    def lines_about_machine(self) -> tuple[str, ...] | None:
        self._read()
        if self._known:
            return tuple(line.text for line in self._lines if _MACHINE.search(line.text))
        return None

    def lost(self) -> bool | None:
        """Whether lines were lost since the start: the log overflowed or its sequence has a gap."""
        self._read()
        if self._known:
            return self._overrun or has_gap(self._lines)
        return None

    def _read(self) -> None:
        while self._fd is not None:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                # unread records were overwritten; the next read is the oldest one
                if error.errno == errno.EPIPE:
                    self._overrun = True
                    continue
                raise
            if not record:
                return
            try:
                self._lines.append(parse(record.decode(errors="replace")))
            except ValueError:  # the kernel does not write such records: the message is damaged
                self._overrun = True

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def parse(record: str) -> KernelMessage:
    """Parse a record of /dev/kmsg: "prio,sequence,microseconds,flags;text" and dictionary lines.
    Raises ValueError.
    """
    head, body = record.split(";", 1)
    priority, sequence = head.split(",")[:2]
    message = _ESCAPED.sub(lambda hit: chr(int(hit[1], 16)), body.split("\n")[0])
    # the higher bits are the facility
    return KernelMessage(int(sequence), int(priority) & 7, message)


def has_gap(lines: list[KernelMessage]) -> bool:
    """Whether sequence numbers are missing between the lines."""
    return any(after.sequence != before.sequence + 1 for before, after in itertools.pairwise(lines))


def names(text: str, disk: str) -> bool:
    """Whether the text names the disk or one of its partitions: loop1 is not loop10, sda1 belongs
    to sda.
    """
    partition = r"(?:p\d+)?" if disk[-1:].isdigit() else r"\d*"
    return re.search(rf"(?<!\w){re.escape(disk)}{partition}(?!\w)", text) is not None


def is_fault(line: KernelMessage) -> bool:
    """Whether the line is an error by its level or by its text, and not only an optional operation
    that was refused.
    """
    if _OPTIONAL.search(line.text):
        return False
    return line.priority <= _ERROR or _FAULT.search(line.text) is not None
