"""ZFS: scrub, snapshots of all datasets of the pool at one moment, clones of them, another device."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.devices import identity
from dbbench.devices.port import Device
from dbbench.errors import DeadlinePassed, FilesystemDamaged
from dbbench.filesystems import mountinfo
from dbbench.filesystems.zfs.pool import Pool
from dbbench.operations.ext import FSCK_S
from dbbench.operations.port import Check, Filled

ATOMIC: Final = True
SNAPSHOT: Final = "dbbench-snapshot"
CLONE: Final = "dbbench-clone"
_POLL_S: Final = 0.1


# --- Checked ---------------------------------------------------------------------------------------


def checks(_filled: Filled) -> tuple[Check, ...]:
    """A scrub reads everything and its checksums. There is no other check, and none that wants it unmounted."""
    return (Check("scrub", _scrub, mounted=True),)


def _scrub(filled: Filled) -> str:
    name = _pool(filled).name
    process.run(["zpool", "scrub", name])
    until = time.monotonic() + FSCK_S
    while "scrub in progress" in (said := _status(name)):
        if time.monotonic() > until:
            raise DeadlinePassed(f"the scrub of {name} still runs after {FSCK_S:.0f} s")
        time.sleep(_POLL_S)
    if damage := damages(said):
        raise FilesystemDamaged(
            f"the scrub of {name} finds errors on {filled.volume.path}: {damage}", effect="The trial does not count."
        )
    return f"{_pool(filled).used_and_free()[0]} bytes, no errors"


def _status(name: str) -> str:
    return process.run(["zpool", "status", "-v", name]).stdout


def damages(text: str) -> str:
    """Of `zpool status` after a scrub: what is wrong, repaired from a second copy or not; "" where nothing is."""
    found = []
    if scan := re.search(r"^ *(?:scan|scrub): (.*)", text, re.MULTILINE):
        repaired = re.search(r"repaired (\d\S*)", scan[1])
        errors = re.search(r"with (\d+) errors", scan[1])
        if errors is None or int(errors[1]) or (repaired and not re.match(r"0+[A-Z]?$", repaired[1])):
            found.append(scan[1])
    for name, *counts in re.findall(r"^\t *(\S+) +[A-Z]+ +(\S+) +(\S+) +(\S+)", text, re.MULTILINE):
        if name != "NAME" and set(counts) != {"0"}:
            found.append(f"{name}: read {counts[0]}, write {counts[1]}, checksum {counts[2]}")
    if said := re.search(r"^errors: (?!No known data errors)(.*)", text, re.MULTILINE):
        found.append(said[1])
    return "; ".join(found)


# --- Snapshots -------------------------------------------------------------------------------------


def lacks(filled: Filled) -> str | None:
    """Only where the pool is not ours: an existing directory."""
    return None if filled.fs.pool is not None else "the pool is not one that was made for this trial"


def snapshot(filled: Filled) -> None:
    """Of all datasets in one transaction group."""
    process.run(["zfs", "snapshot", "-r", f"{_pool(filled).name}@{SNAPSHOT}{filled.tag}"])


@contextlib.contextmanager
def clone(filled: Filled) -> Iterator[Path]:
    """A writable dataset on the snapshot of the one that the data directory lies in; `drop` destroys it."""
    name, held = _pool(filled).name, mountinfo.of(filled.datadir)
    at = filled.room / (CLONE + filled.tag)
    process.run(
        [
            "zfs",
            "clone",
            "-o",
            f"mountpoint={at}",
            f"{held.source}@{SNAPSHOT}{filled.tag}",
            f"{name}/{CLONE}{filled.tag}",
        ]
    )
    try:
        yield at / filled.datadir.resolve().relative_to(held.point)
    finally:
        process.run(["zfs", "unmount", f"{name}/{CLONE}{filled.tag}"])


def taken_bytes(filled: Filled) -> int | None:
    """What only this snapshot holds, and what its clone has of its own, once all is written."""
    pool = _pool(filled)
    pool.sync()
    argv = ["zfs", "get", "-Hrp", "-o", "name,property,value", "used,usedbydataset", pool.name]
    return parse_taken(process.run(argv).stdout, filled.tag)


@process.understood("zfs list")
def parse_taken(text: str, tag: str = "") -> int:
    """Of `zfs get -Hrp -o name,property,value used,usedbydataset`: used of the snapshot in each dataset,
    usedbydataset of the clone."""
    rows = (line.split("\t") for line in text.splitlines())
    wanted = (("used", f"@{SNAPSHOT}{tag}"), ("usedbydataset", f"/{CLONE}{tag}"))
    return sum(int(value) for name, key, value in rows
               if value.isdigit() and any(key == one and name.endswith(end) for one, end in wanted))  # fmt: skip


def rollback(filled: Filled) -> None:
    """Every dataset, each mounted anew by that, so nothing of the newer files stays in a cache."""
    for dataset in (name for name in _datasets(_pool(filled).name, "filesystem") if not name.endswith(f"/{CLONE}")):
        process.run(["zfs", "rollback", f"{dataset}@{SNAPSHOT}"])


def drop(filled: Filled) -> None:
    """The clone first: it hangs on the snapshot."""
    name = _pool(filled).name
    if f"{name}/{CLONE}{filled.tag}" in _datasets(name, "filesystem"):
        process.run(["zfs", "destroy", "-r", f"{name}/{CLONE}{filled.tag}"], timeout_s=FSCK_S)
    if f"{name}@{SNAPSHOT}{filled.tag}" in _datasets(name, "snapshot"):
        process.run(["zfs", "destroy", "-r", f"{name}@{SNAPSHOT}{filled.tag}"], timeout_s=FSCK_S)


def _datasets(name: str, kind: str) -> list[str]:
    return process.run(["zfs", "list", "-H", "-r", "-t", kind, "-o", "name", name]).stdout.split()


# --- Growing ---------------------------------------------------------------------------------------


def add(filled: Filled, spare: Device) -> str:
    """A mirror takes it as one more side, any other pool beside what it has."""
    pool = _pool(filled)
    if filled.journal is not None and spare.facts.kind == "block":
        guid = process.run(["zpool", "get", "-H", "-o", "value", "guid", pool.name]).stdout.strip()
        filled.journal.note("made", device=identity(spare.path), uuid=guid)
    new = str(pool.adopted(spare))
    if filled.setup.mkfs.topology == "mirror":
        process.run(["zpool", "attach", "-f", pool.name, _first_side(pool.name), new])
    else:
        process.run(["zpool", "add", "-f", pool.name, new])
    return f"{len(pool.paths)} devices"


def _first_side(name: str) -> str:
    """A device of the mirror as the pool itself calls it."""
    sides = re.findall(r"^\t +(\S+) +ONLINE", _status(name), re.MULTILINE)
    return str(next(side for side in sides if not side.startswith("mirror")))


def rebalance(filled: Filled) -> str:
    """A mirror copies what there is to its new side; else ZFS moves nothing: new writes go to all devices."""
    name = _pool(filled).name
    if filled.setup.mkfs.topology != "mirror":
        return "ZFS leaves what is there where it is: only what is written from now on is spread"
    while "resilver in progress" in _status(name):
        time.sleep(_POLL_S)
    return "resilvered"


def _pool(filled: Filled) -> Pool:
    assert isinstance(filled.fs.pool, Pool)
    return filled.fs.pool


__all__ = ["ATOMIC", "add", "checks", "clone", "damages", "drop", "lacks", "parse_taken", "rebalance", "rollback",
           "snapshot", "taken_bytes"]  # fmt: skip
