"""What ZFS's properties mean: read from text, held against what was asked, durability, torn pages, compression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dbbench import process
from dbbench.model import Durability, FsSetup, Scalar

# What a result says of each dataset; a driver has those of its version.
SHOWN: Final = ("recordsize", "compression", "checksum", "sync", "logbias", "primarycache", "secondarycache", "atime",
                "xattr", "redundant_metadata", "copies", "dedup", "direct")  # fmt: skip
SMALLEST_PAGE: Final = 8192  # of the engines here: PostgreSQL's; InnoDB's is 16384
_DEFAULT_RECORD: Final = 128 * 2**10
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20}
_ON: Final = {"compression": "lzjb"}  # what "on" was before feature flags; native pools take lz4, and say "on"


def words(setup: FsSetup) -> dict[str, str]:
    """Properties of the pool's own dataset, in the setup's `mount`: "recordsize=8K" as {"recordsize": "8K"}."""
    return pairs(setup.mount)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE words as a dictionary, the later ones winning; words without a value are left out."""
    split = (option.partition("=") for option in options)
    return {name: value for name, equals, value in split if equals}


@process.understood("zfs get")
def parse_get(text: str) -> dict[str, str]:
    """Of `zfs get -H -o property,value` and `zpool get -H`: property -> value."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


@process.understood("zdb")
def parse_label(text: str) -> dict[str, Scalar]:
    """Of `zdb -l`: name, pool_guid, version and ashift of the first label; {} where there is none.

    `ashift` is the disk's real one; the pool's property of that name says 0 for "found out by itself".
    """
    found: dict[str, Scalar] = {}
    for name, value in re.findall(r"^\s*(name|pool_guid|version|ashift): '?([^'\n]+)'?$", text, re.MULTILINE):
        found.setdefault(name, int(value) if value.isdigit() else value)
    return found


def size_bytes(text: str) -> int | None:
    """ "8K" or "8192" in bytes; None where it is no size."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", text)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


def same(asked: str, found: str) -> bool:
    """Whether two spellings of a value mean the same ("8K" and "8192")."""
    size = size_bytes(asked)
    return asked == found or (size is not None and size == size_bytes(found))


def differences(asked: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Properties that are not as asked, in words."""
    return [f"{name} is {found.get(name, 'not there')}, {value} was asked"
            for name, value in asked.items() if not same(value, found.get(name, ""))]  # fmt: skip


def shown(found: Mapping[str, str]) -> dict[str, Scalar]:
    """The properties that a result says, sizes as numbers."""
    return {name: _scalar(found[name]) for name in SHOWN if found.get(name, "-") != "-"}


def effective(found: Mapping[str, str]) -> tuple[str, ...]:
    """The same as options: "recordsize=8192", "sync=standard"."""
    return tuple(f"{name}={value}" for name, value in shown(found).items())


def record_bytes(options: Iterable[str]) -> int:
    """What is written whole or not at all: the recordsize among options, or ZFS's default."""
    return size_bytes(pairs(options).get("recordsize", "")) or _DEFAULT_RECORD


def flags(options: Iterable[str], live: Mapping[str, Scalar]) -> tuple[Durability, ...]:
    """sync=disabled answers an fsync at once and writes with the next transaction group: what comes back after a
    power cut is whole and consistent, some seconds old: `async-commit`, no more. The module's switches that leave
    out cache flushes are: zil_nocacheflush, of the log alone, so commits are lost; zfs_nocacheflush, of all, so the
    pool itself may be. logbias changes where the log is written, not when it is answered."""
    found = []
    if live.get("zfs_nocacheflush") == 1:
        found.append(Durability.NO_BARRIER)
    if pairs(options).get("sync") == "disabled" or live.get("zil_nocacheflush") == 1:
        found.append(Durability.ASYNC_COMMIT)
    return tuple(found)


def tears(options: Iterable[str]) -> bool:
    """Whether the smallest database page is larger than a record. A record is copied on write, whole or not at
    all; a page of several records is written by several transactions, and a power cut may fall between them."""
    return record_bytes(options) < SMALLEST_PAGE


def compresses(options: Iterable[str]) -> str | None:
    """The algorithm; None for off."""
    found = pairs(options).get("compression", "off")
    return None if found == "off" else _ON["compression"] if found == "on" else found


def _scalar(value: str) -> Scalar:
    return int(value) if value.isdigit() else value
