"""Who else could change a file that root is about to run or to believe."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# Where a directory of programs has them: `bin` of a plan may name the directory above.
_PROGRAM_FOLDERS: Final = ("", "bin", "sbin", "libexec", "usr/bin", "usr/sbin", "usr/libexec")


def other_writer(paths: Iterable[Path]) -> str | None:
    """Name the account, or the group, that could change one of `paths` or replace it through a
    directory above, as in "/opt/pg/bin can be changed by the account build".

    None: only root, this process's account and, under sudo, the account that called sudo.
    """
    return _other_writer(_places(paths))


def owner_of_run(folder: Path) -> str | None:
    """Name who else could change a run's folder or a file in it that decides what root does. The
    directories above do not count: a run may be in the home of another account.
    """
    files = [folder / name for name in ("run.json", "journal.jsonl", "scripts")]
    scripts = (folder / "scripts").glob("*")
    return _other_writer(path for path in (folder, *files, *scripts) if os.path.lexists(path))


def _other_writer(places: Iterable[Path]) -> str | None:
    if os.geteuid() != 0:
        return None
    users = {0, *_sudo_id("SUDO_UID")}
    groups = {0, *_sudo_id("SUDO_GID")}
    for place in places:
        status = place.lstat()
        if status.st_uid not in users:
            return f"{place} can be changed by the account {_user(status.st_uid)}"
        # Only files and directories are used by their mode: a device is refused elsewhere.
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            continue
        # In a sticky directory only owners replace files.
        if status.st_mode & stat.S_ISVTX:
            continue
        if status.st_mode & stat.S_IWOTH:
            return f"{place} can be changed by every account"
        if status.st_mode & stat.S_IWGRP and status.st_gid not in groups:
            return f"{place} can be changed by the group {_group(status.st_gid)}"
    return None


def programs_in(folder: Path) -> Iterator[Path]:
    """Yield the directory of a server's programs and each file in it."""
    yield folder
    for name in _PROGRAM_FOLDERS:
        if (folder / name).is_dir():
            yield from (folder / name).iterdir()


def _places(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each existing path and the directories above it, as it is written and after its links."""
    checked = set[Path]()
    for path in paths:
        written = path.absolute()
        real = path.resolve()
        for place in (written, *written.parents, real, *real.parents):
            if place not in checked and os.path.lexists(place):
                checked.add(place)
                yield place


def _sudo_id(name: str) -> tuple[int, ...]:
    value = os.environ.get(name, "")
    if value.isdecimal():
        return (int(value),)
    return ()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
