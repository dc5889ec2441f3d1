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
from dbbench.model import EngineName, FsSetup, Scalar, Words
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


def merge(options: Iterable[str], added: Iterable[str]) -> Words:
    """Return a setup's mount options with those added; one of the same group takes the place of the
    setup's.
    """
    by_group = {group(option): option for option in (*options, *added)}
    return tuple(by_group.values())


def change(
    setup: FsSetup,
    name: str,
    mount: Iterable[str],
    mkfs: Iterable[str],
    tuning: Mapping[EngineName, Mapping[str, Scalar]],
) -> FsSetup:
    """Return the setup with these options and server settings."""
    tunings = dict(setup.tuning)
    for engine, values in tuning.items():
        tunings[engine] = {**tunings.get(engine, {}), **values}
    return replace(
        setup,
        name=name,
        mount=merge(setup.mount, mount),
        mkfs=replace(setup.mkfs, options=_merge_words(setup.mkfs.options, mkfs)),
        tuning=tunings,
    )


def flaws(
    setup: FsSetup,
    mount: Words,
    mkfs: Words,
) -> Iterator[str]:
    """Yield why these options cannot be added to a setup; `setup` has them already."""
    yield from _mount_flaws(setup, mount)
    yield from _mkfs_flaws(mkfs)
    conflict = family_by_name(setup.mkfs.family).conflict(setup) if mount or mkfs else None
    if conflict:
        yield conflict


def _mount_flaws(setup: FsSetup, mount: Words) -> Iterator[str]:
    """Yield options that dbbench decides itself, contradictions, and options without an effect."""
    for option in mount:
        # Options of one group exclude each other.
        name = group(option)
        others = [other for other in mount if other != option and group(other) == name]
        if not option or re.search(r"[\s,]", option):
            yield f'"{option}" is not one mount option'
        elif name in _DECIDED or option[:2].lower() == "x-":
            yield (
                f'mount option "{option}" is not possible: dbbench decides where and how a '
                "filesystem is mounted"
            )
        elif others:
            yield f'mount option "{option}" contradicts "{others[0]}"'
        # The volume's own option wins over that of the mount.
        for part, volume in setup.volumes.items():
            if name in map(group, volume.options):
                yield (
                    f'mount option "{option}" has no effect: the volume "{part}" of the setup '
                    "sets it itself"
                )
                break


def _mkfs_flaws(mkfs: Words) -> Iterator[str]:
    """Yield words that are, or could be, the name of another device."""
    previous = ""
    for word in mkfs:
        names = {item.partition("=")[0] for item in word.split(",")}
        refused = "/" in word or bool(names & _DECIDED)
        if not word.startswith("-"):
            disk = any(Path(folder, word).is_block_device() for folder in ("", "/dev"))
            refused = refused or disk or not previous.startswith("-")
        if refused:
            yield (
                f'mkfs option "{word}" is not possible: dbbench decides on which device a '
                "filesystem is made"
            )
        previous = word


def unknown(family: str, mount: Iterable[str]) -> str | None:
    """Return the kernel's message about the first mount option it refuses; None without one, or if
    not asked.
    """
    # fsopen and fsconfig parse the options without a device; not every kernel has them.
    with (
        contextlib.suppress(OSError),
        os.fdopen(
            libc.call("syscall", _FSOPEN, family.encode(), 1),
            "rb",
            0,
        ) as file,
    ):
        fd = file.fileno()
        # The first option that is refused ends the question; later ones are not looked at.
        for option in mount:
            if option in _OF_MOUNT:
                continue
            name, equals, value = option.partition("=")
            kind, text = (_SET_STRING, value.encode()) if equals else (_SET_FLAG, None)
            try:
                libc.call(
                    "syscall",
                    _FSCONFIG,
                    fd,
                    kind,
                    name.encode(),
                    text,
                    0,
                )
            except OSError as error:
                reason = "; ".join(_messages(fd)) or error.strerror
                return f'the kernel refuses mount option "{option}": {reason}'
    return None


def _messages(fd: int) -> list[str]:
    """Return what the kernel wrote about a mount: "e ext4: Unknown parameter 'foo'" per read."""
    lines = []
    with contextlib.suppress(OSError):
        while line := os.read(fd, 4096):
            lines.append(line.decode(errors="replace").strip()[2:])
    return lines


def _merge_words(options: Iterable[str], added: Iterable[str]) -> Words:
    """Return mkfs's options with those added; a value or a feature of the same name takes the place
    of the setup's.
    """
    # By flag: the items of a list by their names; any other value under "".
    merged: dict[str, dict[str, str]] = {}
    for flag, value in (*_pairs(options), *_pairs(added)):
        items: dict[str, str] = {}
        is_list = "=" in value or (flag in _LISTS and value != "")
        if is_list:
            for item in value.split(","):
                items[item.lstrip("^").partition("=")[0]] = item
        elif value:
            items[""] = value
        if is_list and "none" not in items.values():
            items = {**merged.get(flag, {}), **items}
        merged[flag] = items

    # Back to words, each list with its own flag or behind one.
    words: list[str] = []
    for flag, items in merged.items():
        if flag in _REPEATED:
            for item in items.values():
                words += [flag, item]
        else:
            words += [flag, ",".join(items.values())] if items else [flag]
    return tuple(words)


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield ("-b", "4096") for "-b", "4096" and for "-b4096"; the value is "" for an option
    without one.
    """
    flag = ""
    for word in words:
        for part in filter(None, _ATTACHED.split(word)):
            is_flag = part.startswith("-")
            if flag:
                yield flag, "" if is_flag else part
            flag = part if is_flag else ""
    if flag:
        yield flag, ""
