"""The loop image of a run: written in full once and used by every trial: all filesystems lie on the same extents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dbbench.devices.image import make_image
from dbbench.journal import Journal
from dbbench.model import Run


def path_of(run: Run, folder: Path) -> Path:
    """Where the run's image lies: below `at` of the plan, or in the run's own folder."""
    at = Path(run.plan.device.at) if run.plan.device.at else folder
    return at.resolve() / f".dbbench-{run.name}.img"


def make(run: Run, folder: Path, journal: Journal, progress: Callable[[str, float], None]) -> None:
    """Make the image where the run needs one and has none yet. DiskTooSmall."""
    image = path_of(run, folder)
    if run.plan.device.kind != "loop" or (image.exists() and str(image) in journal.outstanding("image")):
        return
    journal.note("take", what="image", path=str(image))
    partial = _partial(image)
    make_image(partial, run.plan.device.size_bytes, lambda share: progress("writing the disk image in full", share))
    partial.rename(image)


def give_back(journal: Journal) -> list[Path]:
    """Remove the images that this run made; which they were."""
    gone = [Path(path) for path in journal.outstanding("image")]
    for image in gone:
        image.unlink(missing_ok=True)
        _partial(image).unlink(missing_ok=True)
        journal.note("give_back", what="image", path=str(image))
    return gone


def _partial(image: Path) -> Path:
    return image.with_suffix(".partial")
