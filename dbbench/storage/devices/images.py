"""The loop images of a run: written completely once and used by every trial, so that all filesystems use the same
extents."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dbbench.errors import FileTaken
from dbbench.metrics.clock import wait_while
from dbbench.model import Run
from dbbench.results.fileio import try_lock, writing
from dbbench.results.journal import Journal, tag_of
from dbbench.storage.devices.image import make_image
from dbbench.storage.devices.port import Images


def of(run: Run, folder: Path) -> Images | None:
    """Return the run's images, in `at` of the plan or in the run's own directory, or None without loop devices."""
    device = run.plan.device
    if device.kind != "loop":
        return None
    stem, folder_of_images = f".dbbench-{run.name}-{tag_of(folder)}", _place(device.at, folder)
    data = tuple(
        folder_of_images / f"{stem}{f'-{number}' if number > 1 else ''}.img" for number in range(1, device.count + 1)
    )
    wal = _place(device.wal.at or device.at, folder) / f"{stem}-wal.img" if device.wal else None
    return Images(data, wal)


def folders(run: Run, folder: Path) -> list[Path]:
    """Return the directories of the images."""
    images = of(run, folder)
    return [] if images is None else sorted({path.parent for path in images.all})


def missing_bytes(run: Run, folder: Path) -> dict[Path, int]:
    """Return what is still to be written, by directory."""
    missing: dict[Path, int] = {}
    for path, size_bytes in _sizes(run, folder).items():
        if not path.exists():
            missing[path.parent] = missing.get(path.parent, 0) + size_bytes
    return missing


def make(run: Run, folder: Path, journal: Journal, progress: Callable[[str, float], None]) -> None:
    """Make the missing images of the run. Raises DiskTooSmall, FileTaken, FilesystemFull, ResultsUnwritable."""
    for path, size_bytes in _sizes(run, folder).items():
        if os.path.lexists(path):
            if str(path) in journal.outstanding("image") and not path.is_symlink():
                continue
            raise FileTaken(f"{path} exists and was not created by this run", effect="Nothing was changed.",
                            remedy='Move it away, or use another directory with "at" in [device].')  # fmt: skip
        journal.note("take", what="image", path=str(path))
        partial = _partial(path)
        with writing(path):
            make_image(partial, size_bytes, lambda share: progress("writing the disk image in full", share))
            partial.rename(path)


def give_back(journal: Journal, patience_s: float = 0.0) -> list[Path]:
    """Remove the images that this run made; return which.

    One that is still attached after `patience_s` stays recorded; the kernel releases that of a killed trial a moment
    later.
    """
    wait_while(lambda: any(map(_is_held, map(Path, journal.outstanding("image")))), patience_s)
    gone = [path for path in map(Path, journal.outstanding("image")) if not _is_held(path)]
    for image in gone:
        for path in (image, _partial(image)):
            if path.is_file() and not path.is_symlink():
                path.unlink()
        journal.note("give_back", what="image", path=str(image))
    return gone


def _is_held(image: Path) -> bool:
    """Whether another process has it locked, as a trial does (`devices.loop`)."""
    try:
        fd = os.open(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # it is not there, or a link, which may go
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def _sizes(run: Run, folder: Path) -> dict[Path, int]:
    images, device = of(run, folder), run.plan.device
    if images is None:
        return {}
    sizes = dict.fromkeys(images.data, device.size_bytes)
    return {**sizes, images.wal: device.wal.size_bytes} if images.wal and device.wal else sizes


def _place(at: str | None, folder: Path) -> Path:
    return (Path(at) if at else folder).resolve()


def _partial(image: Path) -> Path:
    return image.with_suffix(".partial")
