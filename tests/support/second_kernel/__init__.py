"""A second kernel as an ordinary process: tests of what the running kernel lacks.

User-mode Linux with native OpenZFS, md, device-mapper and f2fs runs a command on this machine's
root filesystem. Builds are cached, each in a directory with its key as the name: `KEY/root` is a
small root (see `smallroot`). Deleting it only costs the minutes of another build.
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

from dbbench import process
from dbbench.datasets.golden import alone
from tests.server_roots import DEBIAN, mirror
from tests.support.second_kernel.boot import BootOrder, run_child
from tests.support.second_kernel.build import LEFT_OUT, KernelFailed

__all__ = ["CommandEnd", "KernelFailed", "left_out", "run_inside", "small_root", "unavailable"]

MEMORY_BYTES: Final = 2 * 2**30  # memory of the second kernel, allocated on demand
LIMIT_S: Final = 3600.0
# Prefixes of environment variables that the command inside may see.
_PASSED: Final = ("DBBENCH_", "XDG_", "PYTHON", "PGDATA", "COVERAGE")
# increase this when the content or the build changes, so that older builds are not used
RECIPE: Final = 3
PROGRAMS: Final = ("debootstrap", "chroot", "mkfs.ext4")


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
    `disks`: bytes of empty disks /dev/ubdb, ... Raises KernelFailed (also if that kernel died),
    DeadlinePassed.
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
        raise KernelFailed(
            f"the second kernel ended (status {answer.get('ended')}) before the command did: {last}"
        )
    return CommandEnd(
        answer["status"],
        answer["kernel"],
        answer["boot_s"],
        answer["command_s"],
        tuple(answer["faults"]),
    )


def folder() -> Path:
    """Return dbbench/second-kernel in the XDG cache. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "dbbench/second-kernel")


def found() -> Path | None:
    """Return the newest small root of this recipe, or None."""
    roots = [path for path in folder().glob(f"*-r{RECIPE}/root") if path.is_dir()]
    return max(roots, key=lambda path: path.stat().st_mtime, default=None)


def left_out() -> list[str]:
    """Return what the newest build lacks, each part with the reason: "ZFS: ..."."""
    root = found()
    return (root.parent / LEFT_OUT).read_text().splitlines() if root else []


def unavailable(architecture: str = platform.machine()) -> str | None:
    """Return why a second kernel is not possible here; None if it exists or can be built."""
    if sys.platform != "linux" or architecture != "x86_64":
        return f"it requires Linux on x86-64; this is {sys.platform} on {architecture}"
    if os.geteuid() != 0:
        return "root is required, because it is built and run in private namespaces"
    if found() is None:
        missing = [name for name in PROGRAMS if process.find(name) is None]
        return f"{', '.join(missing)} not installed" if missing else None
    return None


def small_root(tell: Callable[[str], None]) -> Path:
    """Return the small root, and build it if necessary (`tell` reports progress); one process
    builds, others wait. Raises KernelFailed.
    """
    if reason := unavailable():
        raise KernelFailed(f"the second kernel is not available: {reason}")
    if root := found():
        return root
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    with alone(place / ".lock", tell):
        return found() or _build(place, tell)


def _build(place: Path, tell: Callable[[str], None]) -> Path:
    making = place / ".making"
    shutil.rmtree(making, ignore_errors=True)  # left by a build that was killed
    making.mkdir()
    try:
        built = run_child("build", {"making": str(making), "mirror": mirror(DEBIAN)}, tell)
        kept = place / f"{built['key']}-r{RECIPE}"
        shutil.rmtree(kept, ignore_errors=True)
        making.rename(kept)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return kept / "root"
