"""A filesystem of FUSE that stops to answer: `python -m tests.support.silent_fuse FOLDER`."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbbench import process
from dbbench.labs.powercut.disk import library
from dbbench.machine import namespaces
from dbbench.machine.mounts import mounts_of

SIZE = 2**20
CONNECTIONS = Path("/sys/fs/fuse/connections")
ROOT = Path(__file__).parents[2]


class Silent:
    """The file `/file`; while FOLDER/silent exists, nothing is answered."""

    use_ns = True

    def __init__(self, folder: Path) -> None:
        self._silent = folder / "silent"

    def getattr(self, path: str, _fh: Any = None) -> dict[str, int]:
        while self._silent.exists():
            time.sleep(0.1)
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path != "/file":
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": SIZE}

    def readdir(self, _path: str, _fh: Any) -> list[str]:
        return [".", "..", "file"]

    def read(self, _path: str, size: int, _offset: int, _fh: Any) -> bytes:
        while self._silent.exists():
            time.sleep(0.1)
        return bytes(size)


@contextlib.contextmanager
def silent_mount(folder: Path) -> Iterator[Path]:
    """Yield the mount point of a filesystem that answers until `folder/silent` exists."""
    at = folder / "fuse"
    at.mkdir()
    env = {
        **os.environ,
        "FUSE_LIBRARY_PATH": str(library()),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    with subprocess.Popen([sys.executable, "-m", __name__, folder], env=env) as server:
        try:
            assert not process.wait_while(lambda: not device_of(at), 60.0)
            yield at
        finally:
            (folder / "silent").unlink(missing_ok=True)
            abort(at)
            namespaces.unmount(at, lazy=True)
            server.terminate()


def device_of(at: Path) -> str:
    """Return the device number of the mount; "" before it exists."""
    table = mounts_of(Path("/proc/self"))
    return next((entry.device for entry in table if entry.point == at), "")


def abort(at: Path) -> None:
    """Let the kernel end the connection: everything that waits for it fails."""
    if not CONNECTIONS.is_dir():
        return
    minor = device_of(at).partition(":")[2]
    if all(entry.point != CONNECTIONS for entry in mounts_of(Path("/proc/self"))):
        namespaces.mount("none", CONNECTIONS, "fusectl")
    with contextlib.suppress(OSError):
        (CONNECTIONS / minor / "abort").write_text("1")


if __name__ == "__main__":
    import mfusepy

    folder = Path(sys.argv[1])
    mfusepy.FUSE(Silent(folder), str(folder / "fuse"), foreground=True)
