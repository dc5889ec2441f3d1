"""Setups of the catalogue for the system tests: taken, put on loop devices, and what of them is still there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from dbbench import catalog, filesystems
from dbbench.devices import loop
from dbbench.devices.joint import joint
from dbbench.devices.port import Device
from dbbench.model import FsSetup

ALL: Final = catalog.catalog()
SIZE: Final = 512 * 2**20  # of an image: a snapshot of half of it leaves enough for mkfs.xfs
_TWO: Final = """
name = "catalogue"
fs_setups = {setups}
blocks = 1
warmup = "0s"
measure = "2s"
repeat_suspect = false
[device]
size = "1GiB"
count = {count}
[[engine]]
name = "postgres"
[[engine]]
name = "mariadb"
{mariadb}[[workload]]
name = "pgbench-simple-update"
scale = 1
clients = 2
threads = 1
[[workload]]
name = "sysbench-oltp-update-index"
engines = ["mariadb"]
tables = 1
table_size = 1000
clients = 2
"""


def shipped(name: str) -> FsSetup:
    """A setup of the catalogue; skipped where it cannot work on this machine."""
    setup = ALL.setup(name)
    if reason := filesystems.works(setup):
        pytest.skip(f"needs {reason}")
    return setup


def working(names: Iterable[str]) -> list[str]:
    """Those that work here; the test is skipped where none does."""
    reasons = {name: filesystems.works(ALL.setup(name)) for name in names}
    found = [name for name, reason in reasons.items() if reason is None]
    if not found:
        pytest.skip("needs " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return found


def two_databases(setups: list[str], count: int, mariadb: str = "") -> str:
    """A plan of one short trial a setup and engine; `mariadb`: settings of that engine, a line of TOML."""
    return _TWO.format(setups=setups, count=count, mariadb=mariadb)


@contextmanager
def attached(folder: Path, count: int) -> Iterator[Device]:
    """So many loop devices as one; gone afterwards."""
    images = [folder / f"image{number}" for number in range(count)]
    for image in images:
        image.touch(0o600)
        os.truncate(image, SIZE)
    with joint([loop.attached(image) for image in images], None) as device:
        yield device


def left(folder: Path) -> list[str]:
    """Mounts and loop devices of files below the folder."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    loops = [str(p) for p in Path("/sys/block").glob("loop*/loop/backing_file") if str(folder) in p.read_text()]
    return mounts + loops


def flushes(device: Device) -> int:
    """Flush requests that the loop devices have carried out."""
    return sum(int(Path(f"/sys/block/{leaf}/stat").read_text().split()[15]) for leaf in device.leaves)
