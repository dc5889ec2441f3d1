"""Setups of the catalogue for system tests: find them, attach loop devices for them, and check what
is left.
"""

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from dbbench.model import Arm, FsSetup, Mkfs, Scalar
from dbbench.plan import catalog
from dbbench.storage import filesystems
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device, joint
from tests.support.leftovers import loops_of, mounts_of
from tests.support.plans import plan

ALL: Final = catalog.catalog()
# Entries of a plan that add options to a setup, by a name for tests.
ADDED: Final[dict[str, dict[str, Any]]] = {
    name: tomllib.loads(f"entry = {{ {entry} }}")["entry"]
    for name, entry, *_ in (
        row.split(" | ")
        for row in (Path(__file__).parents[1] / "fixtures/added_options.txt")
        .read_text()
        .splitlines()[1:]
    )
}
UPDATES: Final = {"name": "pgbench-simple-update", "scale": 1, "clients": 1, "rate": 200}
SIZE: Final = 512 * 2**20  # of an image: half of it for a snapshot leaves enough for mkfs.xfs


def setup_named(name: str) -> FsSetup:
    """Return a setup of the catalogue, or one with added options."""
    return (
        ALL.setup_of(TypeAdapter(Arm).validate_python(ADDED[name]))
        if name in ADDED
        else ALL.setup(name)
    )


def entry(name: str) -> Any:
    """Return the entry of a plan for a setup of that name."""
    return {**ADDED[name], "label": name} if name in ADDED else name


def setup_of(
    family: str,
    *mount: str,
    mkfs: tuple[str, ...] = (),
    attributes: tuple[str, ...] = (),
) -> FsSetup:
    """Return a setup with these options, which is not in the catalogue."""
    return FsSetup(
        title="test",
        name="test",
        mkfs=Mkfs(family, mkfs),
        mount=mount,
        attributes=attributes,
    )


def of_postgres(*setups: str, size: str = "512MiB", count: int = 1, **keys: Any) -> str:
    """Return a plan of one short trial a setup."""
    device = {"size": size, "count": count}
    return plan(
        [entry(name) for name in setups],
        workload=UPDATES,
        warmup="0s",
        measure="4s",
        device=device,
        **keys,
    )


def shipped(name: str) -> FsSetup:
    """Return a setup of the catalogue or one with added options; skip the test if it does not work
    on this machine.
    """
    setup = setup_named(name)
    if reason := filesystems.works(setup):
        pytest.skip(f"needs {reason}")
    return setup


def working(names: Iterable[str]) -> list[str]:
    """Return the setups that work here; skip the test if there are none."""
    reasons = {name: filesystems.works(setup_named(name)) for name in names}
    found = [name for name, reason in reasons.items() if reason is None]
    if not found:
        pytest.skip("needs " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return found


def two_databases(setups: list[str], count: int = 1, **mariadb: Scalar) -> str:
    """Return a plan with a short trial for each setup and engine; `mariadb`: settings of that
    engine.
    """
    engines = ["postgres", {"name": "mariadb", "settings": mariadb}]
    loads = [
        UPDATES,
        {
            "name": "sysbench-oltp-update-index",
            "engines": ["mariadb"],
            "tables": 1,
            "table_size": 1000,
            "clients": 1,
        },
    ]
    return plan(
        [entry(name) for name in setups],
        engines,
        loads,
        warmup="0s",
        measure="4s",
        device={"size": "1GiB", "count": count},
    )


@contextmanager
def attached(
    folder: Path,
    count: int,
    sector_bytes: int = 0,
) -> Iterator[Device]:
    """Yield `count` loop devices as one device; they are detached afterwards."""
    images = [folder / f"image{number}" for number in range(count)]
    for image in images:
        image.touch(0o600)
        os.truncate(image, SIZE)
    with joint([loop.attach(image, sector_bytes) for image in images]) as device:
        yield device


def left(folder: Path) -> list[str]:
    """Return the mounts and loop devices of files below the folder."""
    loops = loops_of(folder)
    return [*mounts_of(folder, loops), *loops]


def fill(folder: Path, count: int = 3) -> list[Path]:
    """Return files of 1 MiB that shrink when they are compressed."""
    files = [folder / f"table{number}" for number in range(count)]
    for file in files:
        file.write_bytes(b"".join(b"row %016d of a table " % row for row in range(2**15)))
    return files


def commit(file: Path, times: int = 20) -> None:
    """Do what a database does with its log."""
    with file.open("wb", buffering=0) as log:
        for _commit in range(times):
            log.write(bytes(8192))
            os.fdatasync(log.fileno())


def flushes(device: Device) -> int:
    """Return the number of flush requests that the loop devices have completed."""
    return sum(
        int(Path(f"/sys/block/{leaf}/stat").read_text().split()[15]) for leaf in device.leaves
    )


@contextmanager
def mounted(device: Any, *options: str) -> Iterator[Path]:
    """Yield a user's mounted ext4 on the device, which every account can access."""
    subprocess.run(["mkfs.ext4", "-q", str(device.path)], check=True)
    at = Path(tempfile.mkdtemp(dir="/var/tmp"))
    subprocess.run(["mount", *options, str(device.path), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        at.rmdir()
