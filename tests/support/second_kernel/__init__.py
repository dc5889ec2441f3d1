"""A second kernel as an ordinary process: test what the running kernel lacks, at a small scale.
User-mode Linux with native OpenZFS, md, device-mapper, f2fs and nilfs2 runs this program on this
machine's root filesystem. It is several times slower than the machine: it shows that a plan
works, never how fast. Builds are cached, each in a directory with its key as the name:
`KEY/root` is a small root (see `boot`). Deleting it only costs the minutes of another build.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dbbench import packages, process
from dbbench.datasets.golden import alone
from dbbench.errors import DiskTooSmall, LabUnavailable, NotRoot, RehearsalFailed
from dbbench.units import size_text
from tests.support.second_kernel.boot import LEFT_OUT, BootOrder, run_child

__all__ = ["CommandEnd", "left_out", "run_inside", "unavailable"]

MEMORY_BYTES: Final = 2 * 2**30  # memory of the second kernel, allocated on demand
LIMIT_S: Final = 3600.0
# Prefixes of environment variables that the command inside may see.
_PASSED: Final = ("DBBENCH_", "XDG_", "PYTHON", "PGDATA", "COVERAGE")
# increase this when the content or the build changes, so that older builds are not used
RECIPE: Final = 2
PROGRAMS: Final = ("debootstrap", "chroot", "mkfs.ext4")
_BUILD_BYTES: Final = 6 * 2**30  # the largest build needed 4.1 GiB


@dataclass(frozen=True)
class CommandEnd:
    """The result of a command that ran inside."""

    status: int
    kernel: str
    boot_s: float
    command_s: float
    faults: tuple[str, ...]  # lines in the log of the second kernel that report its own faults


def run_inside(
    argv: Sequence[str | Path],
    *,
    shared: Sequence[Path] = (),
    disks: Sequence[int] = (),
    cwd: Path = Path("/"),
    timeout_s: float = LIMIT_S,
    memory_bytes: int = MEMORY_BYTES,
    stdout: Path | int = 1,
    stderr: Path | int = 2,
    tell: Callable[[str], None] = lambda what: None,
) -> CommandEnd:
    """Run a command as root in the second kernel, on this machine's root filesystem; a missing
    build is made first (`tell` reports progress). Writes are discarded, except in `shared`.
    `disks`: bytes of empty disks /dev/ubdb, ... Raises NotRoot, LabUnavailable, RehearsalFailed
    (also if that kernel died), DiskTooSmall, DeadlinePassed.
    """
    root = small_root(tell)
    seen = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    base = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PAGER": "cat",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    order = BootOrder(
        root=str(root),
        argv=tuple(str(word) for word in argv),
        env={**base, **seen},
        cwd=str(cwd),
        shared=tuple(str(path.resolve()) for path in shared),
        disks=tuple(disks),
        memory_bytes=memory_bytes,
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    answer = run_child("boot", asdict(order), tell, timeout_s, stdout, stderr)
    if "status" not in answer:
        last = "\n  ".join(answer.get("console", [])[-12:]) or "it printed nothing"
        raise RehearsalFailed(
            f"the second kernel ended (status {answer.get('ended')}) before the command did: "
            f"{last}",
            effect="It left nothing behind.",
        )
    return CommandEnd(
        answer["status"],
        answer["kernel"],
        answer["boot_s"],
        answer["command_s"],
        tuple(answer["faults"]),
    )


def folder() -> Path:
    """Return dbbench/rehearsal in the XDG cache. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (
        (Path(base) if base.startswith("/") else Path.home() / ".cache") / "dbbench" / "rehearsal"
    )


def found() -> Path | None:
    """Return the newest small root of this recipe, or None."""
    if not os.access(folder(), os.X_OK):  # missing, or in the HOME of another account
        return None
    roots = [path for path in folder().glob(f"*-r{RECIPE}/root") if path.is_dir()]
    return max(roots, key=lambda path: path.stat().st_mtime, default=None)


def left_out() -> list[str]:
    """Return what the newest build lacks, each part with the reason: "ZFS: ..."."""
    root = found()
    return (root.parent / LEFT_OUT).read_text().splitlines() if root else []


def unavailable(architecture: str = platform.machine()) -> str | None:
    """Return why a second kernel is not possible here, with what to install; None if it exists or
    can be built.
    """
    if sys.platform != "linux" or architecture != "x86_64":
        return f"it requires Linux on x86-64; this is {sys.platform} on {architecture}"
    if os.geteuid() != 0:
        return "root is required, because it is built and run in private namespaces"
    if found() is not None:
        return None
    if missing := [name for name in PROGRAMS if process.find(name) is None]:
        return f"{', '.join(missing)} not installed: {packages.remedy(missing)}"
    if mirror() is None:
        return "it is built from Debian's packages, but apt has no Debian mirror on this machine"
    return None


def small_root(tell: Callable[[str], None]) -> Path:
    """Return the small root, and build it if necessary (`tell` reports progress); one process
    builds, others wait. Raises NotRoot, LabUnavailable, DiskTooSmall, RehearsalFailed.
    """
    if reason := unavailable():
        kind = NotRoot if os.geteuid() != 0 else LabUnavailable
        raise kind(f"the second kernel is not available: {reason}", effect="Nothing was changed.")
    if root := found():
        return root
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    with alone(place / ".lock", tell):
        return found() or _build(place, tell)


def _build(place: Path, tell: Callable[[str], None]) -> Path:
    if shutil.disk_usage(place).free < _BUILD_BYTES:
        raise DiskTooSmall(
            f"building the second kernel requires {size_text(_BUILD_BYTES)} of free space at "
            f"{place}",
            remedy="Free some disk space, or set XDG_CACHE_HOME to a folder on a larger disk.",
        )
    making = place / ".making"
    shutil.rmtree(making, ignore_errors=True)  # left by a build that was killed
    making.mkdir()
    try:
        built = run_child("build", {"making": str(making), "mirror": mirror()}, tell)
        kept = place / f"{built['key']}-r{RECIPE}"
        shutil.rmtree(kept, ignore_errors=True)
        making.rename(kept)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return kept / "root"


def mirror() -> str | None:
    """Return the mirror of this machine's Debian packages, or None."""
    if process.find("apt-get") is None:
        return None
    argv = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
    ]
    listed = process.run(argv, ok=(0, 100), note=False).stdout.split()
    return next((address for address in listed if "security" not in address), None)
