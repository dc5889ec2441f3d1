"""A filesystem on a disk whose requests take longer on command."""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.labs.faults import FaultyDisks
from dbbench.labs.powercut.disk import serve, serve_disks
from dbbench.machine.namespaces import mount, unmount
from dbbench.process import run, wait_while
from tests.support.private_mounts import apart

SIZE: Final = 2**30  # bytes
PROGRAM: Final = ("-c", f"import sys; from {__name__} import main; main(sys.argv[1:])")


class SlowDisks(FaultyDisks):
    """Disks that sleep before each request as long as the file says."""

    def _works(self, request: str, offset: int = 0, data: bytes = b"") -> bool:
        time.sleep(json.loads(self._orders.read_text()).get(request, 0.0))
        return True


@dataclass(frozen=True)
class SlowDisk:
    """The mounted filesystem."""

    folder: Path
    delays: Path

    def delay(self, **seconds: float) -> None:
        """Have requests of these kinds (read, write, flush) take so much longer from now on."""
        new = self.delays.with_suffix(".new")
        new.write_text(json.dumps(seconds))
        new.rename(self.delays)


@contextlib.contextmanager
def slow_disk(folder: Path) -> Iterator[SlowDisk]:
    """Yield an empty ext4, on a disk that is as fast as the one with this folder at first."""
    image = folder / "slow.img"
    image.touch(0o600)
    os.truncate(image, SIZE)
    disk = SlowDisk(folder / "m", folder / "delays")
    disk.delay()
    disk.folder.mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(apart())  # no other process keeps the filesystem mounted
        files = serve_disks(folder, [image], disk.delays, folder / "slow.log", PROGRAM)
        (file,) = stack.enter_context(files)
        attach = ["losetup", "--find", "--show", "--direct-io=on", file]
        device = run(attach).stdout.strip()
        stack.callback(detach, device)
        run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device])
        mount(device, disk.folder, "ext4")
        stack.callback(unmount, disk.folder)
        stack.callback(disk.delay)
        yield disk


def detach(device: str) -> None:
    """Detach the loop device, and wait until it has let go of its file."""
    run(["losetup", "--detach", device])
    loop = Path("/sys/block", Path(device).name, "loop")
    assert not wait_while(loop.exists, 10)


def main(argv: Sequence[Any]) -> None:
    """Serve until unmounted."""
    mount_point, delays, *images = argv
    serve(SlowDisks([Path(image) for image in images], Path(delays)), mount_point)
