"""Devices that the machine's configuration names, so that its next start, or an access to an
automount, would use them: fstab(5), crypttab(5), and units of systemd that mount or swap.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.machine.libc import FileStatus
from dbbench.machine.mounts import unescape
from dbbench.storage.devices.used import Target, status_of

ETC: Final = Path("/etc")
# Where a line names the device: its first or its second field.
_TABLES: Final = {"fstab": 0, "crypttab": 1}
# Units of packages, of systemd-mount, and those that systemd makes out of partition types. What it
# makes out of fstab and crypttab is in the tables themselves.
_UNITS: Final = tuple(
    map(
        Path,
        (
            "/run/systemd/transient",
            "/run/systemd/system",
            "/run/systemd/generator.late",
            "/usr/local/lib/systemd/system",
            "/usr/lib/systemd/system",
        ),
    )
)
_TAGS: Final = {
    "/dev/disk/by-uuid/": "UUID=",
    "/dev/disk/by-label/": "LABEL=",
    "/dev/disk/by-partuuid/": "PARTUUID=",
    "/dev/disk/by-partlabel/": "PARTLABEL=",
}


@dataclass(frozen=True)
class ConfiguredUse:
    """A device in the configuration. `word` is a path or a tag such as "UUID=..."."""

    word: str
    place: Path  # the file
    text: str
    file: FileStatus | None  # of the path, if it exists

    def names(self, device: Target, tags: Set[str]) -> bool:
        tag = self.word
        for folder, key in _TAGS.items():
            tag = tag.replace(folder, key)
        return tag in tags or (self.file is not None and device.is_at(self.file))


def entries(etc: Path = ETC) -> list[ConfiguredUse]:
    """Return all devices that the configuration names. Raises OSError."""
    return [
        _entry(word, place, text)
        for place, word, text in itertools.chain(_of_tables(etc), _of_units(etc))
    ]


def by_configuration(device: Target, listed: Sequence[ConfiguredUse], tags: Set[str]) -> list[str]:
    """Return where the device is named: by path, or by one of `tags` ("UUID=...", "LABEL=...")."""
    return [
        f"it is listed in {entry.place}: {entry.text}"
        for entry in listed
        if entry.names(device, tags)
    ]


def _entry(word: str, place: Path, text: str) -> ConfiguredUse:
    word = unescape(word).replace('"', "")
    file = status_of(word) if word.startswith("/") else None
    return ConfiguredUse(word, place, text, file)


def _of_tables(etc: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield file, device and line of each entry of fstab and crypttab."""
    for name, place in _TABLES.items():
        for line in _lines(etc / name):
            fields = line.split()
            if len(fields) > place and not fields[0].startswith("#"):
                yield etc / name, fields[place], " ".join(fields)


def _of_units(etc: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield file, device and line of each unit that mounts or swaps, also if it is stopped or waits
    for its automount.
    """
    for folder in (etc / "systemd/system", *_UNITS):
        for path in sorted((*folder.glob("*.mount"), *folder.glob("*.swap"))):
            for line in _lines(path):
                key, _, value = line.partition("=")
                if key.strip() == "What":
                    yield path, value.strip(), line.strip()


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; [] without one."""
    try:
        return path.read_text(errors="surrogateescape").split("\n")
    except FileNotFoundError:
        return []
