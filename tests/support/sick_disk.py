"""A block device whose requests fail on command."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dbbench.labs.faults import PROGRAM, Orders, parse
from dbbench.labs.powercut.disk import serve_disks

SIZE = 384 * 2**20  # bytes; mkfs.xfs refuses less than 300 MiB


@dataclass(frozen=True)
class Sick:
    """A block device on such a disk."""

    path: Path
    orders: Orders

    def order(self, faults: str = "") -> None:
        """Have these faults from now on; without one the disk works again."""
        self.orders.give(*parse(faults))


@contextlib.contextmanager
def sick_disk(folder: Path) -> Iterator[Sick]:
    """Yield a blank loop device on such a disk, which works at first."""
    image = folder / "sick.img"
    image.touch(0o600)
    os.truncate(image, SIZE)
    orders = folder / "orders"
    with serve_disks(folder, [image], orders, folder / "sick.log", PROGRAM) as (file,):
        attach = ["losetup", "--find", "--show", "--direct-io=on", file]
        name = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        disk = Sick(Path(name), Orders(orders))
        try:
            yield disk
        finally:
            disk.order()
            subprocess.run(["losetup", "--detach", name], check=True)
            until = time.monotonic() + 10
            while Path("/sys/block", disk.path.name, "loop").exists() and time.monotonic() < until:
                time.sleep(0.02)
