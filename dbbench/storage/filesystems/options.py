"""Options that a plan adds to an fs setup: which of the setup's own they replace, and which are
refused.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dbbench.machine import libc
from dbbench.model import EngineName, FsSetup, Scalar
from dbbench.storage.filesystems.families import family_by_name

# Options of mount(8) that are attributes of the mount and not of the filesystem (mount_setattr(2)).
_ACCESS_TIMES: Final = (
    "noatime",
    "atime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
)
_OF_MOUNT: Final = (
    *_ACCESS_TIMES,
    "nodiratime",
    "diratime",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "exec",
    "nosymfollow",
    "symfollow",
    "defaults",
)
# Names of one property, besides a name with and without "no" in front.
_SAME: Final = {
    "compress-force": "compress",
    "compression": "compress",
    "ssd_spread": "ssd",
    "async": "sync",
    "inode32": "inode64",
    "dioread_lock": "dioread_nolock",
    "rw": "ro",
}
# What dbbench decides, and what names another device, which no check has passed.
_DECIDED: Final = frozenset(
    (
        "bind",
        "rbind",
        "remount",
        "move",
        "loop",
        "ro",
        "subvol",
        "subvolid",
        "mountpoint",
        "canmount",
        "device",
        "logdev",
        "rtdev",
        "journal_dev",
        "journal_path",
        "name",
        "file",
    )
)
_LISTS: Final = ("-O", "-R", "-E")  # options of mkfs whose value is a list of features
_REPEATED: Final = ("-o",)  # options of zpool create: one property each
_ATTACHED: Final = re.compile(r"^(-[^-])(?=.)|^(--[^=]+)=")  # "-b4096" and "--csum=xxhash"
# the numbers of these system calls on every architecture
_FSOPEN = 430
_FSCONFIG = 431
# FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING (linux/mount.h)
_SET_FLAG = 0
_SET_STRING = 1


def group(option: str) -> str:
    """Return the name of what a mount option sets: "barrier" for "nobarrier", "atime" for
    "relatime".
    """
    if option in _ACCESS_TIMES:
        return "atime"
    name = option.partition("=")[0].removeprefix("no")
    return _SAME.get(name, name)


def replaced(own: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Return the setup's own mount options with those added; one of the same group takes the place
    of the own.
    """
    return tuple(
        {
            **{group(option): option for option in own},
            **{group(option): option for option in added},
        }.values()
    )


def changed(
    setup: FsSetup,
    name: str,
    mount: Iterable[str],
    mkfs: Iterable[str],
    tuning: Mapping[EngineName, Mapping[str, Scalar]],
) -> FsSetup:
    """Return the setup with these options and server settings."""
    merged = {
        engine: {**setup.tuning.get(engine, {}), **tuning.get(engine, {})}
        for engine in {**setup.tuning, **tuning}
    }
    made = replace(setup.mkfs, options=_replaced_words(setup.mkfs.options, mkfs))
    return replace(setup, name=name, mount=replaced(setup.mount, mount), mkfs=made, tuning=merged)


def flaws(setup: FsSetup, mount: tuple[str, ...], mkfs: tuple[str, ...]) -> Iterator[str]:
    """Yield why these options cannot be added to a setup; `setup` has them already."""
    groups = [group(option) for option in mount]
    for option, name in zip(mount, groups, strict=True):
        if not option or re.search(r"[\s,]", option):
            yield f'"{option}" is not one mount option'
        elif name in _DECIDED or option[:2].lower() == "x-":
            yield (
                f'mount option "{option}" is not possible: dbbench decides where and how a '
                "filesystem is mounted"
            )
        elif others := [
            other for other, of in zip(mount, groups, strict=True) if of == name and other != option
        ]:
            yield f'mount option "{option}" contradicts "{others[0]}"'
        if part := next(
            (part for part, volume in setup.volumes.items() if name in map(group, volume.options)),
            None,
        ):
            yield (
                f'mount option "{option}" has no effect: the volume "{part}" of the setup sets '
                "it itself"
            )
    previous = ""
    for word in mkfs:
        names = {item.partition("=")[0] for item in word.split(",")}
        is_value = not word.startswith("-")
        disk = is_value and any(Path(folder, word).is_block_device() for folder in ("", "/dev"))
        if "/" in word or names & _DECIDED or disk or (is_value and not previous.startswith("-")):
            yield (
                f'mkfs option "{word}" is not possible: dbbench decides on which device a '
                "filesystem is made"
            )
        previous = word
    if (mount or mkfs) and (reason := family_by_name(setup.mkfs.family).conflict(setup)):
        yield reason


def unknown(family: str, mount: Iterable[str]) -> str | None:
    """Return the kernel's message about the first mount option it refuses; None without one, or if
    not asked.
    """
    with (
        contextlib.suppress(OSError),
        os.fdopen(libc.call("syscall", _FSOPEN, family.encode(), 1), "rb", 0) as file,
    ):
        fd = file.fileno()
        refused = ""
        try:
            for option in (option for option in mount if option not in _OF_MOUNT):
                refused = option
                name, equals, value = option.partition("=")
                kind, text = (_SET_STRING, value.encode()) if equals else (_SET_FLAG, None)
                libc.call("syscall", _FSCONFIG, fd, kind, name.encode(), text, 0)
        except OSError as error:
            lines = []
            with contextlib.suppress(OSError):
                # one line each, as "e ext4: Unknown parameter 'foo'"
                while line := os.read(fd, 4096):
                    lines.append(line.decode(errors="replace").strip()[2:])
            return (
                f'the kernel refuses mount option "{refused}": {"; ".join(lines) or error.strerror}'
            )
    return None


def _replaced_words(own: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Return mkfs's options with those added; a value or a feature of the same name takes the place
    of the own.
    """
    merged: dict[str, dict[str, str | None]] = {}
    for flag, value in (*_pairs(own), *_pairs(added)):
        as_list = value is not None and ("=" in value or flag in _LISTS)
        items = value.split(",") if value is not None and as_list else [value]
        if flag not in merged or not as_list or "none" in items:
            merged[flag] = {}
        merged[flag] |= {
            (item or "").lstrip("^").partition("=")[0] if as_list else "": item for item in items
        }
    words: list[str] = []
    for flag, values in merged.items():
        given = [item for item in values.values() if item is not None]
        for value in given if flag in _REPEATED else [",".join(given)] if given else [None]:
            words += [flag] if value is None else [flag, value]
    return tuple(words)


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield ("-b", "4096") for "-b", "4096" and for "-b4096"; the value is None for an option
    without one.
    """
    parts = [part for word in words for part in _ATTACHED.split(word) if part]
    for flag, value in zip(parts, [*parts[1:], "-"], strict=False):
        if flag.startswith("-"):
            yield flag, None if value.startswith("-") else value
