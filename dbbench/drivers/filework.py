"""The program of copy and smallfiles: `python filework.py WORK FOLDER JSON`. It prints JSON objects
with `t`, the seconds. It is a separate process so that the trial's control group counts its
memory and CPU time.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# Nothing that takes time or memory to import: the trial's control group counts both.
from dbbench.machine.libc import syncfs

PIECE: Final = 2**20  # bytes per write of `copy`, as with cp or dd in large blocks
# bytes before the content repeats; more than any filesystem's compression window
POOL: Final = 64 * PIECE
# the same share of each page of this size is zero, so that all blocks compress equally
PAGE: Final = 4096
PRINT_S: Final = 0.25  # seconds between two lines with the bytes so far
FOLDER_FILES: Final = 1000  # files per directory
POLL_S: Final = 0.01  # between two looks for the trial's answer


class Printer:
    """Prints lines with the time since it was made."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began

    def say(self, **facts: Any) -> None:
        print(json.dumps({"t": round(self.now_s, 6), **facts}), flush=True)


def content(size: int, zeros: float, seed: int) -> bytes:
    """Return `size` bytes, rounded up to whole pages; the share `zeros` of every page is zero."""
    draw = random.Random(seed)
    noise = round(PAGE * (1 - zeros))
    rest = bytes(PAGE - noise)
    pages = max(1, size // PAGE)
    return b"".join(draw.randbytes(noise) + rest for _ in range(pages))


def at_once(clients: int, work: Callable[[int], None]) -> None:
    """Call `work(number)` for every client at the same time, each in a process of its own.
    SystemExit if one fails.
    """
    if clients == 1:
        work(0)
        return
    fork = multiprocessing.get_context("fork")  # forked processes share the content in memory
    writers = [fork.Process(target=_guard, args=(work, number)) for number in range(clients)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    if any(writer.exitcode for writer in writers):
        sys.exit(1)


def _guard(work: Callable[[int], None], number: int) -> None:
    try:
        work(number)
    except OSError as error:
        sys.exit(_failure(error))


def share(of: int, clients: int, number: int) -> tuple[int, int]:
    """Return begin and end of one client's part of `of` items; the parts differ by one item at
    most.
    """
    return of * number // clients, of * (number + 1) // clients


def copy(folder: Path, task: dict[str, Any]) -> None:
    """Write one large file from memory, then fsync. Prints `bytes` so far; the last two lines:
    `written`, `synced`.
    """
    size = int(task["file_size"])
    clients = int(task["clients"])
    # The content is in memory, so that reading it is not measured.
    zeros = float(task["zeros"])
    seed = int(task["seed"])
    pool = memoryview(content(min(POOL, size), zeros, seed))
    printer = Printer()

    # Each client writes its share to a file of its own.
    def write(client: int) -> None:
        begin, end = share(size, clients, client)
        fd = os.open(
            folder / f"copy-{client}",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL,
            0o600,
        )
        done = begin
        next_s = PRINT_S
        while done < end:
            offset = done % len(pool)
            piece = min(PIECE, end - done)
            done += os.write(fd, pool[offset : offset + piece])
            if printer.now_s >= next_s:
                printer.say(client=client, bytes=done - begin)
                next_s = printer.now_s + PRINT_S
        printer.say(
            client=client,
            bytes=done - begin,
            written=True,
        )
        os.fsync(fd)
        os.close(fd)
        printer.say(
            client=client,
            bytes=done - begin,
            synced=True,
        )

    at_once(clients, write)


def smallfiles(folder: Path, task: dict[str, Any]) -> None:
    """Create many small files, read them cold in another order, delete them. Prints a line per
    step: `step`, `files`, `seconds`; reads also have `why` if they were not cold. Creating and
    deleting end when the filesystem is synced.
    """
    seed = int(task["seed"])
    size = int(task["file_bytes"])
    clients = int(task["clients"])
    data = memoryview(content(max(size, PAGE) * 16, float(task["zeros"]), seed))
    # The directories exist before the first step, so that only files are timed.
    paths: list[Path] = []
    for number in range(int(task["files"])):
        parent = folder / f"d{number // FOLDER_FILES}"
        if number % FOLDER_FILES == 0:
            parent.mkdir()
        paths.append(parent / f"f{number}")
    printer = Printer()

    # A step is the same work on each file, shared by the clients.
    def step(name: str, work: Callable[[Path], object], **facts: Any) -> None:
        began = time.monotonic()

        def work_on_share(client: int) -> None:
            begin, end = share(len(paths), clients, client)
            for path in paths[begin:end]:
                work(path)

        at_once(clients, work_on_share)
        if name != "read":
            syncfs(folder)
        seconds = time.monotonic() - began
        printer.say(
            step=name,
            files=len(paths),
            seconds=seconds,
            **facts,
        )

    # A file begins at a place of the sample that its name decides, so that files differ.
    def create(path: Path) -> None:
        number = zlib.crc32(path.name.encode(), seed & 0xFFFFFFFF)
        offset = number % (len(data) - size + 1)
        with path.open("xb", buffering=0) as file:
            file.write(data[offset : offset + size])

    step("create", create)
    printer.say(closed=True)

    # The trial empties the caches, and writes why they are not empty, or "".
    answer = Path(task["answer"])
    while not answer.exists():
        time.sleep(POLL_S)
    paths = random.Random(seed).sample(paths, len(paths))
    step(
        "read",
        Path.read_bytes,
        why=answer.read_text(encoding="utf-8"),
    )
    step("delete", Path.unlink)


WORK: Final[dict[str, Callable[[Path, dict[str, Any]], None]]] = {
    "copy": copy,
    "smallfiles": smallfiles,
}


def main(argv: list[str]) -> int:
    """Do the work; return 1 after printing an error to stderr."""
    work, folder, task = argv
    try:
        WORK[work](Path(folder), json.loads(task))
    except OSError as error:
        return _failure(error, folder)
    return 0


def _failure(error: OSError, folder: str = "") -> int:
    print(f"error: {error.filename or folder}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
