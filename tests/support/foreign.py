"""Another process that tries to use a disk: `python foreign.py ACTION PATH FOLDER DELAY`.

It tries until it succeeds or its stdin is closed. It then keeps the disk in use until its stdin
is closed, and verifies its data: the last line that it prints is "never", "intact" or "changed".
"""

import hashlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATTERN = hashlib.sha256(b"foreign").digest() * 2048  # 64 KiB
AT = 100 * 2**20  # offset of PATTERN if it is written directly to the device
MARK = "foreign"


def ran(*argv: object) -> bool:
    """Whether a program exited with 0."""
    return (
        subprocess.run([str(word) for word in argv], capture_output=True, check=False).returncode
        == 0
    )


def mounts(device: Path, point: Path) -> Callable[[], bool] | None:
    """Mount the existing filesystem; this succeeds only if it has the file of another process."""
    if not ran("mount", device, point):
        return None
    # dbbench made this filesystem: it has no data of another process
    if not (point / MARK).exists():
        ran("umount", point)
        return None
    return lambda: _still_there(device, point)


def makes(device: Path, point: Path) -> Callable[[], bool] | None:
    """Make a filesystem, mount it, write a file."""
    if not (ran("mkfs.ext4", "-q", "-F", device) and ran("mount", device, point)):
        return None
    with (point / MARK).open("wb") as file:
        file.write(PATTERN)
        os.fsync(file.fileno())
    return lambda: _still_there(device, point)


def _still_there(device: Path, point: Path) -> bool:
    """Whether the file is intact after an unmount, which empties the cache."""
    if not (ran("umount", point) and ran("mount", "-o", "ro", device, point)):
        return False
    good = (point / MARK).read_bytes() == PATTERN
    return ran("umount", point) and ran("e2fsck", "-fn", device) and good


def swaps(device: Path, _point: Path) -> Callable[[], bool] | None:
    """Use the device as swap."""
    if not (ran("mkswap", device) and ran("swapon", device)):
        return None
    with device.open("rb") as file:
        before = file.read(4096)

    def intact() -> bool:
        ran("swapoff", device)
        with device.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 4096, os.POSIX_FADV_DONTNEED)
            return file.read(4096) == before

    return intact


def loops(device: Path, point: Path) -> Callable[[], bool] | None:
    """Mount the device through a loop device on top of it."""
    done = subprocess.run(
        ["losetup", "--find", "--show", device],
        capture_output=True,
        text=True,
        check=False,
    )
    loop = Path(done.stdout.strip())
    if done.returncode:
        return None
    check = mounts(loop, point)
    if check is None:
        ran("losetup", "-d", loop)
        return None

    def intact() -> bool:
        good = check()
        ran("losetup", "-d", loop)
        return good

    return intact


def writes(device: Path, _point: Path) -> Callable[[], bool] | None:
    """Write to the device, as dd does, and keep it open."""
    fd = os.open(device, os.O_RDWR)
    os.pwrite(fd, PATTERN, AT)
    os.fsync(fd)

    def intact() -> bool:
        os.posix_fadvise(fd, AT, len(PATTERN), os.POSIX_FADV_DONTNEED)
        return os.pread(fd, len(PATTERN), AT) == PATTERN

    return intact


ACTIONS = {"mount": mounts, "mkfs": makes, "swapon": swaps, "losetup": loops, "dd": writes}


def main(action: str, device: str, folder: str, delay_s: str) -> None:
    """Run the action as the docstring of the module describes."""
    (point := Path(folder)).mkdir(exist_ok=True)
    print("ready", flush=True)
    sys.stdin.readline()
    ended = bool(select.select([sys.stdin], [], [], float(delay_s))[0])
    check = None
    while not ended and check is None:
        check = ACTIONS[action](Path(device), point)
        ended = bool(select.select([sys.stdin], [], [], 0.001)[0])
    if check is None:
        print("never", flush=True)
        return
    print(f"succeeded {time.monotonic()}", flush=True)
    sys.stdin.read()
    print("intact" if check() else "changed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
