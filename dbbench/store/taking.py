"""Taking a trial over from another folder or machine: copied, held against its SHA256SUMS, written once.

What comes from elsewhere is not trusted: names that lead out of the folder, links and devices are refused.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dbbench.catalog import NAME
from dbbench.errors import ImportRefused, ResultDamaged
from dbbench.store.files import sync, writing
from dbbench.store.trials import SUMS, damage

UNCHANGED = "Nothing of it was taken over."
_CHUNK = 2**20


class Incoming:
    """A trial's folder while its files arrive; `finish` makes it a result."""

    def __init__(self, run_folder: Path, trial_id: str) -> None:
        """ImportRefused where the id is no name of a trial."""
        checked_name(trial_id)
        self.final = run_folder / "trials" / trial_id
        self.folder = run_folder / "trials" / f".partial-{trial_id}"
        with writing(self.folder):
            try:
                self.folder.mkdir(parents=True)
            except FileExistsError:  # of a transfer that was cut off
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir()

    def write(self, name: str, content: bytes) -> None:
        """Append to the file of that name below the trial's folder. ImportRefused where the name leads out."""
        path = self.folder / inner(name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(content)

    def finish(self) -> bool:
        """Verify what arrived, make it durable, rename it; False where the same result stands already.

        ResultDamaged where it is not what its sums say; ImportRefused where another result stands there.
        """
        must_be_whole(self.folder)
        if standing(self.folder, self.final):
            shutil.rmtree(self.folder)
            return False
        with writing(self.final):
            for path in (*self.folder.rglob("*"), self.folder):
                sync(path)
            self.folder.rename(self.final)
            sync(self.final.parent)
        return True


def checked_name(name: str) -> str:
    """The name of a run or trial. ImportRefused where it is none: it could lead out of the folder."""
    if not NAME.fullmatch(name):
        raise ImportRefused(f"{name!r} is no name of a run or trial", effect=UNCHANGED)
    return name


def inner(name: str) -> PurePosixPath:
    """A file's path below its folder. ImportRefused where it leads out of it."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or "\n" in name:
        raise ImportRefused(f"{name!r} leads out of the trial's folder", effect=UNCHANGED)
    return path


def files_of(folder: Path) -> Iterator[tuple[str, int]]:
    """(name, size in bytes) of all files below `folder`. ImportRefused at a link, a device, a FIFO."""
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    pending.append(Path(entry.path))
                elif stat.S_ISREG(found.st_mode):
                    yield Path(entry.path).relative_to(folder).as_posix(), found.st_size
                else:
                    raise ImportRefused(f"{entry.path} is a link or no file", effect=UNCHANGED)


def read(path: Path, offset: int = 0, most: int = _CHUNK) -> bytes:
    """Bytes of a file, never through a link. ImportRefused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ImportRefused(f"{path}: {error.strerror}", effect=UNCHANGED) from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ImportRefused(f"{path} is no file", effect=UNCHANGED)
        file.seek(offset)
        return file.read(most)


def must_be_whole(folder: Path) -> None:
    """ResultDamaged unless the files of `folder` are exactly those of its SHA256SUMS; ImportRefused at a link."""
    there = {name for name, _ in files_of(folder)}
    if SUMS in there:
        listed = {line.partition("  ")[2] for line in read(folder / SUMS, most=2**28).decode("utf-8").splitlines()}
        extra = there - {SUMS} - {str(inner(name)) for name in listed}
        faults = damage(folder) + [f"{name} is not in {SUMS}" for name in sorted(extra)]
    else:
        faults = [f"{SUMS} is missing"]
    if faults:
        raise ResultDamaged(f"{folder.name.removeprefix('.partial-')}: {'; '.join(faults)}", effect=UNCHANGED)


def standing(ours: Path, final: Path) -> bool:
    """Whether the same result stands at `final` already. ImportRefused where another one does."""
    if not final.exists():
        return False
    if (final / SUMS).read_bytes() != (ours / SUMS).read_bytes():
        raise ImportRefused(
            f"{final} is another result under the same id",
            effect=UNCHANGED,
            remedy="Two hosts that drove the same trials are two runs: name them differently (dbbench run --name).",
        )
    return True


def take(source: Path, run_folder: Path) -> bool:
    """Copy the finished trial at `source` into a run; False where the same stands already.

    ImportRefused, ResultDamaged: nothing of it was taken over.
    """
    incoming = Incoming(run_folder, source.name)
    try:
        for name, size in files_of(source):
            incoming.write(name, b"")
            for offset in range(0, size, _CHUNK):
                incoming.write(name, read(source / inner(name), offset))
        return incoming.finish()
    finally:
        shutil.rmtree(incoming.folder, ignore_errors=True)
