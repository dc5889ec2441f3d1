"""Properties of pools and datasets: read, compared with the setup, and what they mean for
durability and torn pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dbbench import process
from dbbench.model import Durability, FsSetup, Scalar, Scalars, Words

_SINCE: Final = (  # first version with each property, from the release notes of OpenZFS
    ("compression", r"zstd.*", (2, 0)),
    ("checksum", "blake3", (2, 2)),
    ("redundant_metadata", "some|none", (2, 2)),
    ("direct", ".*", (2, 3)),
    ("autotrim", ".*", (0, 8)),
)
# Properties of each dataset that a result contains, as far as the version of OpenZFS has them.
_SHOWN: Final = (
    "recordsize",
    "compression",
    "checksum",
    "sync",
    "logbias",
    "primarycache",
    "secondarycache",
    "atime",
    "xattr",
    "redundant_metadata",
    "copies",
    "dedup",
    "direct",
)
# smallest page of the supported engines: PostgreSQL's; InnoDB's is 16384
_SMALLEST_PAGE: Final = 8192
_DEFAULT_RECORD: Final = 128 * 2**10
# Public reports of losses after a power cut, or a crash of the whole machine, that ZFS should have
# prevented.
_LOGBIAS_REPORT: Final = "openzfs/zfs#18996"  # acknowledged data was lost
_RECORD_REPORT: Final = "openzfs/zfs#17879"  # a record was torn
_REPORTED_RECORD: Final = 16 * 2**10  # the only size of records with which one was torn
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20}


def lacks(setup: FsSetup, version: str) -> str | None:
    """Return the first option of the setup that this version of OpenZFS does not support, or None."""
    release = tuple(int(word) for word in re.findall(r"\d+", version)[:2])
    options = [*setup.mount, *setup.mkfs.options]
    for volume in setup.volumes.values():
        options += volume.options
    for option in options:
        name, _, value = option.partition("=")
        for key, values, least in _SINCE:
            if name == key and re.fullmatch(values, value) and release < least:
                needed = ".".join(map(str, least))
                return f"{option} needs OpenZFS {needed} or later; this is OpenZFS {version}"
    return None


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary, later ones overriding; words without a value are
    omitted.
    """
    split = (option.partition("=") for option in options)
    return {name: value for name, equals, value in split if equals}


@process.understood("zfs get")
def parse_get(text: str) -> dict[str, str]:
    """Parse `zfs get -H -o property,value` and `zpool get -H`: property -> value."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


@process.understood("zdb")
def parse_label(text: str) -> Scalars:
    """Return name, pool_guid, version and ashift (as used, where the pool's may be 0) in `zdb -l`;
    or {}.
    """
    label: Scalars = {}
    rows = re.findall(
        r"^\s*(name|pool_guid|version|ashift): '?([^'\n]+)'?$",
        text,
        re.MULTILINE,
    )
    for name, value in rows:
        label.setdefault(name, int(value) if value.isdigit() else value)
    return label


def size_bytes(text: str) -> int | None:
    """Return "8K" or "8192" in bytes, or None if the text is not a size."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", text)
    if match:
        return int(match[1]) * _UNITS[match[2].lower()]
    return None


def differences(expected: Mapping[str, str], effective: Mapping[str, str]) -> list[str]:
    """Describe properties that differ from the setup; two spellings of a size ("8K" and "8192") are
    the same.
    """
    texts = []
    for name, value in expected.items():
        other = effective.get(name, "missing")
        size = size_bytes(value)
        same_size = size is not None and size == size_bytes(other)
        if value != other and not same_size:
            texts.append(f"{name} is {other}, expected {value}")
    return texts


def shown(values: Mapping[str, str]) -> Scalars:
    """Return the properties for a result, sizes as numbers."""
    properties: Scalars = {}
    for name in _SHOWN:
        value = values.get(name, "-")
        if value != "-":
            properties[name] = int(value) if value.isdigit() else value
    return properties


def effective(values: Mapping[str, str]) -> Words:
    """Return the properties of a result in the form of options: "recordsize=8192", "sync=standard"."""
    return tuple(f"{name}={value}" for name, value in shown(values).items())


def record_bytes(options: Iterable[str]) -> int:
    """Return the size that is copied on write together: the recordsize among the options, or ZFS's
    default.
    """
    return size_bytes(pairs(options).get("recordsize", "")) or _DEFAULT_RECORD


def flags(options: Iterable[str], live: Mapping[str, Scalar]) -> tuple[Durability, ...]:
    """Return the durability flags; `live` are the module's parameters. sync=disabled writes with
    the next transaction group: after a power loss the data is consistent but seconds old,
    `async-commit`. zil_nocacheflush omits the flushes of the log, so commits are lost;
    zfs_nocacheflush all of them, so the pool itself may be lost.
    """
    flags_of_setup = []
    if live.get("zfs_nocacheflush") == 1:
        flags_of_setup.append(Durability.NO_BARRIER)
    if pairs(options).get("sync") == "disabled" or live.get("zil_nocacheflush") == 1:
        flags_of_setup.append(Durability.ASYNC_COMMIT)
    if reports(options, unprotected=False):
        flags_of_setup.append(Durability.REPORTED_UNSAFE)
    return tuple(flags_of_setup)


def reports(options: Iterable[str], unprotected: bool) -> Words:
    """Return the public reports of a loss with these options; `unprotected`: the server does not
    repair torn pages.
    """
    issues = []
    if pairs(options).get("logbias") == "throughput":
        issues.append(_LOGBIAS_REPORT)
    if unprotected and record_bytes(options) == _REPORTED_RECORD:
        issues.append(_RECORD_REPORT)
    return tuple(issues)


def tears(options: Iterable[str]) -> bool:
    """Whether the smallest database page is larger than a record, which is what copy-on-write keeps
    whole: several records may be written by several transactions, and power may be lost between
    them.
    """
    return record_bytes(options) < _SMALLEST_PAGE
