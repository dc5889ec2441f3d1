"""The kept build of the second kernel: where it lies, under which key, and how it comes to be there.

`KEY/root` is a small root (`smallroot`). Deleting the folder costs the minutes of another build, nothing else.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.datasets.cache import alone
from dbbench.errors import NotRoot, RehearsalUnavailable

RECIPE: Final = 1  # counts up when what is kept, or how it is built, changes: an older build is then not used
PROGRAMS: Final = ("debootstrap", "chroot", "mkfs.ext4")
_BUILD_BYTES: Final = 6 * 2**30  # the most that a build took was 4.1 GiB


def folder() -> Path:
    """dbbench/rehearsal in the XDG cache. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "dbbench" / "rehearsal"


def found() -> Path | None:
    """The newest kept small root of this recipe; None where there is none."""
    roots = [path for path in folder().glob(f"*-r{RECIPE}/root") if path.is_dir()]
    return max(roots, key=lambda path: path.stat().st_mtime, default=None)


def unavailable() -> str | None:
    """Why no second kernel can be had here, with what to install; None where there is one, or one can be built."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"it exists for Linux on x86-64 only, this is {sys.platform} on {platform.machine()}"
    if os.geteuid() != 0:
        return "it is built and started in private namespaces, which only root may make"
    if found() is not None:
        return None
    if missing := [name for name in PROGRAMS if process.find(name) is None]:
        return f"{', '.join(missing)} not installed: apt install {' '.join(missing)}"
    if mirror() is None:
        return "it is built from Debian's packages, and apt knows no Debian mirror here"
    return None


def small_root(tell: Callable[[str], None]) -> Path:
    """The small root, built now where none is kept (`tell` says how far it is); one process builds, others wait.

    Raises NotRoot, RehearsalUnavailable, DiskTooSmall, RehearsalBuildFailed.
    """
    if reason := unavailable():
        kind = NotRoot if os.geteuid() != 0 else RehearsalUnavailable
        raise kind(f"there is no second kernel here: {reason}", effect="Nothing was changed.", remedy="dbbench doctor")
    if root := found():
        return root
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    with alone(place / ".lock", tell):
        return found() or _built(place, tell)


def _built(place: Path, tell: Callable[[str], None]) -> Path:
    from dbbench.rehearsal.starting import built

    _enough(place)
    making = place / ".making"
    shutil.rmtree(making, ignore_errors=True)  # of a build that was killed
    making.mkdir()
    try:
        key = built(making, str(mirror()), tell)
        kept = place / f"{key}-r{RECIPE}"
        shutil.rmtree(kept, ignore_errors=True)
        making.rename(kept)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return kept / "root"


def _enough(place: Path) -> None:
    from dbbench.errors import DiskTooSmall
    from dbbench.units import size_text

    disk = os.statvfs(place)
    if disk.f_bavail * disk.f_frsize < _BUILD_BYTES:
        raise DiskTooSmall(
            f"building the second kernel takes {size_text(_BUILD_BYTES)} for some minutes at {place}",
            effect="Nothing was changed.",
            remedy="Free some disk space, or set XDG_CACHE_HOME to a folder on a larger disk.",
        )


def mirror() -> str | None:
    """Where this machine has its own Debian packages from; None where it has none."""
    if process.find("apt-get") is None:
        return None
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    listed = process.run(argv, ok=(0, 100), note=False).stdout.split()
    return next((address for address in listed if "security" not in address), None)
