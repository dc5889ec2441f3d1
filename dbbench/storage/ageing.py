"""Age a filesystem: fill and churn it with a seeded sequence of writes before the dataset is
restored. The sequence depends only on seed, size and churn: the same files, sizes and bytes in
the same order on every filesystem. It leaves `FOLDERS` full of files in `aged/`, and fragmented
free space.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dbbench.errors import FilesystemFull
from dbbench.model import AgeFacts, Ageing
from dbbench.results.fileio import open_fd
from dbbench.storage import filesystems
from dbbench.storage.filesystems import Mounted, shape
from dbbench.units import percent, size_text

FOLDER: Final = "aged"
# ext spreads folders over block groups, so several folders use the whole device
FOLDERS: Final = 16
# File sizes are uniform on a logarithmic scale, as on real disks: most files are small, but most
# bytes are in the large ones. The largest file is small compared with the device, so that many free
# extents arise.
SMALLEST: Final = 4 * 2**10
LARGEST: Final = 16 * 2**20
LARGEST_SHARE: Final = 1 / 32  # share of the device, where that is less than the largest size above
UNIT: Final = 4 * 2**10  # file sizes are multiples of this, the smallest block of most filesystems
PIECE: Final = 256 * 2**10  # largest single write: files grow in turns, as logs and tables do
TOGETHER: Final = 4  # files that grow at the same time
# bytes between syncs; delayed allocation would otherwise join the pieces
SYNC_BYTES: Final = 4 * 2**20
BATCH: Final = 0.05  # share of the device that is removed before the same amount is written again
REWRITTEN: Final = 0.25  # share of each batch that overwrites existing files in place
# bytes of random data from which all contents are taken, so that nothing compresses
SAMPLE: Final = 8 * 2**20
# a filesystem that offers at least this share of its devices stores everything once
WHOLE: Final = 0.75


@dataclass(frozen=True)
class Step:
    """One write: `write` writes `size` bytes of the noise from `source` into the file at `offset`;
    `end` says that a file of `size` bytes is complete, so that preallocated space is released
    (xfs).
    """

    kind: Literal["write", "end", "remove", "sync"]
    name: str = ""
    offset: int = 0
    size: int = 0
    source: int = 0

    def line(self) -> bytes:
        return f"{self.kind} {self.name} {self.offset} {self.size} {self.source}\n".encode()


def sequence(
    seed: int,
    whole_bytes: int,
    churn: float,
) -> Iterator[Step]:
    """Yield the steps that leave `whole_bytes` in files, after `churn` times that amount was
    removed and rewritten.
    """
    return _Sequence(seed, whole_bytes // UNIT * UNIT).steps(churn)


class _Sequence:
    def __init__(self, seed: int, whole: int) -> None:
        self.dice = random.Random(seed)
        self.whole = whole
        self.sizes: dict[str, int] = {}
        self.names: list[str] = []
        self.made = 0
        self.unsynced = 0

    def steps(self, churn: float) -> Iterator[Step]:
        yield from self._fill(self.whole)
        left = int(churn * self.whole)
        while left >= UNIT:
            batch = min(left, max(UNIT, int(BATCH * self.whole)))
            left -= batch
            yield from self._rewrite(int(REWRITTEN * batch))
            freed = 0
            while freed < (1 - REWRITTEN) * batch and self.names:
                # The last name takes the place of the removed one, which costs the same anywhere.
                index = self.dice.randrange(len(self.names))
                name = self.names[index]
                self.names[index] = self.names[-1]
                self.names.pop()
                freed += self.sizes.pop(name)
                yield Step("remove", name)
            yield from self._fill(freed)
        yield Step("sync")

    def _fill(self, left: int) -> Iterator[Step]:
        """Yield new files with that many bytes in total, growing in parallel in pieces."""
        growing: list[tuple[str, int]] = []
        largest = max(SMALLEST, min(LARGEST, int(LARGEST_SHARE * self.whole)))
        while left or growing:
            while left and len(growing) < TOGETHER:
                # Several files grow at a time, as on a filesystem in use.
                size = min(left, self._even(SMALLEST, largest))
                left -= size
                self.made += 1
                growing.append((f"{self.made % FOLDERS:02}/{self.made:07}", size))
            name, size = growing.pop(0)
            offset = self.sizes.get(name, 0)
            # Each of them grows by one piece and waits for its next turn.
            piece = min(size - offset, self._even(UNIT, PIECE))
            end = offset + piece
            self.sizes[name] = end
            yield from self._write(name, offset, piece)
            if end < size:
                growing.append((name, size))
            else:
                self.names.append(name)
                yield Step("end", name, size=size)

    def _rewrite(self, left: int) -> Iterator[Step]:
        while left >= UNIT and self.names:
            name = self.names[self.dice.randrange(len(self.names))]
            size = self.sizes[name]
            piece = min(
                left // UNIT * UNIT,
                size,
                self._even(UNIT, PIECE),
            )
            left -= piece
            places = (size - piece) // UNIT + 1
            yield from self._write(name, self.dice.randrange(places) * UNIT, piece)

    def _write(
        self,
        name: str,
        offset: int,
        size: int,
    ) -> Iterator[Step]:
        yield Step("write", name, offset, size, self.dice.randrange(SAMPLE - size))
        self.unsynced += size
        if self.unsynced >= SYNC_BYTES:
            self.unsynced = 0
            yield Step("sync")

    def _even(self, low: int, high: int) -> int:
        """Return a multiple of UNIT, uniform on a logarithmic scale."""
        size = int(low * (high / low) ** self.dice.random())
        return max(UNIT, size // UNIT * UNIT)


def age(
    fs: Mounted,
    device_bytes: int,
    asked: Ageing,
    seed: int,
) -> AgeFacts:
    """Age the filesystem; return what was done, with its free space before and after. `fill` is a
    share of the devices, equal for each filesystem of a plan, unless one offers much less
    (mirrors). Raises FilesystemFull.
    """
    # How much to fill: a share of the devices, or of what a mirror offers.
    offered = os.statvfs(fs.path)
    total = offered.f_blocks * offered.f_frsize
    whole = device_bytes if total >= WHOLE * device_bytes else total
    before = shape.free_space(fs)
    # The same seed gives the same files on each filesystem.
    steps = sequence(seed, int(asked.fill * whole), asked.churn)
    try:
        files, files_written, written_bytes, digest = _carry_out(
            steps,
            fs.path / FOLDER,
            seed,
        )
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise FilesystemFull(
            f"the aged files of [age] ({percent(asked.fill)} of {size_text(whole)}) do not fit "
            f"on {fs.family}",
            effect="Nothing was measured.",
            remedy="Use a smaller fill in [age] or a larger device.",
        ) from error
    # Free space is read when everything is on the device.
    filesystems.sync(fs.path)
    now = os.statvfs(fs.path)
    return AgeFacts(
        seed=seed,
        fill=asked.fill,
        churn=asked.churn,
        files=files,
        files_written=files_written,
        written_bytes=written_bytes,
        digest=digest,
        filled=1 - now.f_bavail / (now.f_bavail + now.f_blocks - now.f_bfree),
        before=before,
        after=shape.free_space(fs),
    )


def _carry_out(
    steps: Iterator[Step],
    root: Path,
    seed: int,
) -> tuple[int, int, int, str]:
    """Return the numbers of files that are left and that were written, the bytes written, and the
    digest.
    """
    # All files are pieces of one random sample, which no filesystem can compress.
    noise = memoryview(random.Random(seed).randbytes(SAMPLE))
    digest = hashlib.sha256()
    present: set[str] = set()
    made = 0
    written = 0
    for number in range(FOLDERS):
        (root / f"{number:02}").mkdir(parents=True)
    # The digest shows that two filesystems were aged by the same steps.
    for step in steps:
        digest.update(step.line())
        path = root / step.name
        if step.kind == "sync":
            filesystems.sync(root)
        elif step.kind == "remove":
            path.unlink()
            present.discard(step.name)
        elif step.kind == "end":
            os.truncate(path, step.size)
        else:
            if step.name not in present:
                present.add(step.name)
                made += 1
            _put(
                path,
                step.offset,
                noise[step.source : step.source + step.size],
            )
            written += step.size
    return len(present), made, written, digest.hexdigest()


def _put(path: Path, offset: int, content: memoryview) -> None:
    with open_fd(path, os.O_WRONLY | os.O_CREAT) as fd:
        while content:
            done = os.pwrite(fd, content, offset)
            content = content[done:]
            offset += done
