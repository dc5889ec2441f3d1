"""A program of our own that works on files, beside the trial: `python -m dbbench.drivers.filework WORK FOLDER JSON`.

It stands apart so that its memory is counted by the trial's control group, and its CPU time is its own. Each line that
it prints is a JSON object with `t`, seconds since its work began; the rest stands with each kind of work.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dbbench.pagecache import drop, resident_bytes, syncfs

PIECE: Final = 2**20  # bytes a write of `copy`; what cp and dd of today take
POOL: Final = 64 * PIECE  # bytes of different content: more than any filesystem's window of compression
PAGE: Final = 4096  # bytes of which a share is zero: so much of every block can be compressed away
TOLD_S: Final = 0.25  # between two lines of the rate
FOLDER_FILES: Final = 1000  # files in one folder
SAMPLED: Final = 1000  # files of which residency is asked after the drop


class Told:
    """What is printed, with its time."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def begin(self) -> None:
        """The work begins now."""
        self.began = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began

    def say(self, **facts: Any) -> None:
        print(json.dumps({"t": round(self.now_s, 6), **facts}), flush=True)


def content(size: int, zeros: float, seed: int) -> bytes:
    """`size` bytes, rounded to whole pages, of which the share `zeros` of every page is zero."""
    draw, noise = random.Random(seed), round(PAGE * (1 - zeros))
    return b"".join(draw.randbytes(noise) + bytes(PAGE - noise) for _ in range(max(1, size // PAGE)))


def copy(folder: Path, asked: dict[str, Any], told: Told) -> None:
    """One large file written out of memory, then fsync. Lines: `bytes` so far, the last two with `written` and
    `synced`."""
    size = int(asked["file_size"])
    pool = memoryview(content(min(POOL, size), float(asked["zeros"]), int(asked["seed"])))
    fd = os.open(folder / "copy", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    done, next_s = 0, TOLD_S
    told.begin()
    while done < size:
        at = done % len(pool)
        done += os.write(fd, pool[at : at + min(PIECE, size - done)])
        if told.now_s >= next_s:
            told.say(bytes=done)
            next_s = told.now_s + TOLD_S
    told.say(bytes=done, written=True)
    os.fsync(fd)
    os.close(fd)
    told.say(bytes=done, synced=True)


def smallfiles(folder: Path, asked: dict[str, Any], told: Told) -> None:
    """Many small files created, read cold in another order, deleted. A line each: `step`, `files`, `seconds`; reads
    with `cold` and, where they were not, `why`. Creating and deleting end when the filesystem is synced."""
    draw, size = random.Random(int(asked["seed"])), int(asked["file_bytes"])
    data = memoryview(content(max(size, PAGE) * 16, float(asked["zeros"]), int(asked["seed"])))
    paths = [folder / f"d{number // FOLDER_FILES}" / f"f{number}" for number in range(int(asked["files"]))]
    for parent in dict.fromkeys(path.parent for path in paths):
        parent.mkdir()
    told.begin()

    def step(name: str, work: Callable[[Path], None], among: list[Path], **facts: Any) -> None:
        began = time.monotonic()
        for path in among:
            work(path)
        if name != "read":
            syncfs(folder)
        told.say(step=name, files=len(among), seconds=time.monotonic() - began, **facts)

    def create(path: Path) -> None:
        at = draw.randrange(len(data) - size + 1)
        with path.open("xb", buffering=0) as file:
            file.write(data[at : at + size])

    step("create", create, paths)
    why = _emptied(folder, paths)
    shuffled = draw.sample(paths, len(paths))
    step("read", _read, shuffled, cold=not why, **({"why": why} if why else {}))
    step("delete", Path.unlink, shuffled)


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        file.read()


def _emptied(folder: Path, paths: list[Path]) -> str:
    """Empty the page cache, inodes and names included; why it is not empty, or ""."""
    try:
        counted = drop(folder)
    except OSError as error:
        return f"the caches could not be dropped: {error.strerror}"
    if counted is False:
        return "the kernel did not count the drop"
    left = resident_bytes(paths[:: max(1, len(paths) // SAMPLED)])
    return f"{left} bytes are still in the page cache" if left else ""


WORK: Final[dict[str, Callable[[Path, dict[str, Any], Told], None]]] = {"copy": copy, "smallfiles": smallfiles}


def main(argv: list[str]) -> int:
    """Do the work; 1 with what went wrong on stderr."""
    work, folder, asked = argv
    try:
        WORK[work](Path(folder), json.loads(asked), Told())
    except OSError as error:
        print(f"error: {error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
