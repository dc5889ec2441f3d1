"""The account of a trial's servers: a user id that nothing else on this machine uses, reserved
while the process lives. Processes of other accounts (`postgres`, `mysql`, `nobody`) could enter
the server's directories through /proc/PID/root, trace it or write to its files. The trial's
mount namespace has it in /etc/passwd for initdb and `postgres --single`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import grp
import os
import pwd
import random
import re
import struct
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import NotRoot
from dbbench.machine import namespaces
from dbbench.results.fileio import own_file

NAME: Final = "dbbench"
# Unassigned in systemd's table of user ids (UIDS-GIDS), and among the 65536 ids that a container
# usually has.
NUMBERS: Final = range(60578, 61184)
_FLOCK: Final = struct.Struct("hhqqi")  # struct flock
_RANGES: Final = (Path("/etc/subuid"), Path("/etc/subgid"))


def of_server(*names: str) -> process.User:
    """Return a private user id in a trial's own namespaces, the caller's account without root, and
    elsewhere, where no file can be mounted over /etc/passwd, the first existing account of
    `names`. Raises NotRoot.
    """
    if os.geteuid() == 0 and namespaces.mounts_are_private():
        return _own()
    return process.user(*names)


@functools.cache
def _own() -> process.User:
    number = _reserve_any([_map(kind) for kind in ("uid", "gid")], _of_processes() | _of_ranges())
    _name(Path("/etc/passwd"), f"{NAME}:x:{number}:{number}::/nonexistent:/bin/false\n")
    _name(Path("/etc/group"), f"{NAME}:x:{number}:\n")
    return process.User(NAME, number, number)


def _reserve_any(maps: Sequence[Sequence[range]], taken: Container[int]) -> int:
    """Reserve a number that is in each of `maps` and not in `taken`, and that has no name. Raises
    NotRoot.
    """
    numbers = [number for number in NUMBERS if number not in taken]
    for ranges in maps:
        numbers = [number for number in numbers if any(number in part for part in ranges)]
    random.shuffle(numbers)
    for number in numbers:
        if not _has_name(number) and _reserve(number):
            return number
    raise NotRoot(
        f"no user ID between {NUMBERS[0]} and {NUMBERS[-1]} is free",
        effect="Nothing was measured.",
        remedy="In a container, map these user IDs into it (see /proc/self/uid_map).",
    )


def _of_processes() -> set[int]:
    taken = set[int]()
    for status in namespaces.host_proc().glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # the process has ended
            text = status.read_text(errors="replace")
            for line in re.findall(r"^(?:Uid|Gid|Groups):(.*)", text, re.MULTILINE):
                taken.update(map(int, line.split()))
    return taken


def _of_ranges(tables: tuple[Path, ...] = _RANGES) -> set[int]:
    """Return those of NUMBERS that are assigned to containers of this machine's users."""
    taken = set[int]()
    for path in tables:
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace")
            for first, count in re.findall(r"^[^:\n]*:(\d+):(\d+)[ \t]*$", text, re.MULTILINE):
                assigned = range(int(first), int(first) + int(count))
                taken.update(number for number in NUMBERS if number in assigned)
    return taken


def _has_name(number: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            look_up(number)
            return True
    return False


def _map(kind: str) -> list[range]:
    """Return the numbers that exist in the user namespace of this process."""
    ranges = []
    for line in Path("/proc/self", f"{kind}_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        ranges.append(range(first, first + count))
    return ranges


def _reserve(number: int) -> bool:
    """Lock a byte of a file until this process ends (F_OFD_SETLK in fcntl(2)); return False if
    another trial has it.
    """
    fd = own_file(namespaces.private_folder() / "accounts.lock", os.O_RDWR, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
    except BlockingIOError:
        os.close(fd)
        return False
    return True


def _name(table: Path, line: str) -> None:
    """Add the line to the file, only in this mount namespace, if the file exists."""
    if not table.is_file():
        return
    whole = table.read_text(errors="surrogateescape").rstrip("\n") + "\n" + line
    folder = namespaces.private_folder()
    with tempfile.NamedTemporaryFile("w", dir=folder, errors="surrogateescape") as file:
        file.write(whole)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        namespaces.mount(file.name, table.resolve(), flags=namespaces.MS_BIND)
    # nscd answers from the machine's own /etc/passwd, so its socket is hidden
    cache = Path("/run/nscd")
    if cache.is_dir() and not os.path.ismount(cache):
        namespaces.mount("tmpfs", cache, "tmpfs")
