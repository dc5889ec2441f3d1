"""The mount that a path lies on, by the kernel's mount ID: never by device number or name.

The number alone would do for ext and xfs; btrfs shows another one in mountinfo than stat(2) gives, and a path may
have several mounts on top of each other.
"""

from __future__ import annotations

import os
from pathlib import Path

from dbbench.mounts import Mount, mounts_of


def of(path: Path) -> Mount:
    """The mount that `path` lies on. OSError where the path is not there."""
    fd = os.open(path, os.O_PATH)
    try:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text()
    finally:
        os.close(fd)
    wanted = next(int(line.split()[1]) for line in info.splitlines() if line.startswith("mnt_id:"))
    for mount in mounts_of(Path("/proc/self")):
        if mount.id == wanted:
            return mount
    raise FileNotFoundError(f"{path} lies on mount {wanted}, which /proc/self/mountinfo does not list")
