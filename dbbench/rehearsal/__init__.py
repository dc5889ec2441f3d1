"""A second kernel, as an ordinary process: what the running kernel lacks is tried for real, at a small scale.

User-mode Linux with native OpenZFS, md, device-mapper, f2fs and nilfs2 runs this same program on this machine's own
root. It is several times slower than the machine: it shows that a plan works, never how fast.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import RehearsalFailed
from dbbench.progress.events import Emit, parsed
from dbbench.rehearsal.kept import small_root, unavailable
from dbbench.rehearsal.starting import Order, booted

__all__ = ["Outcome", "rehearsed", "run_inside", "unavailable"]

MEMORY_BYTES: Final = 2 * 2**30  # of the second kernel; taken as it is used
ROOM_BYTES: Final = 24 * 2**30  # for what is written inside: a sparse file that takes what is used
LIMIT_S: Final = 3600.0
_PASSED: Final = ("DBBENCH_", "XDG_", "PYTHON", "PGDATA", "COVERAGE")  # beginnings of what the command inside may see


@dataclass(frozen=True)
class Outcome:
    """A command that was run inside."""

    status: int
    kernel: str
    boot_s: float
    command_s: float
    faults: tuple[str, ...]  # lines of the second kernel's log that tell of a fault of its own


def run_inside(
    argv: Sequence[str | Path],
    *,
    shared: Sequence[Path] = (),
    disks: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path = Path("/"),
    timeout_s: float = LIMIT_S,
    memory_bytes: int = MEMORY_BYTES,
    stdout: Path | int = 1,
    stderr: Path | int = 2,
    tell: Callable[[str], None] = lambda what: None,
) -> Outcome:
    """Run a command as root in the second kernel, on this machine's own root; how it ended.

    What it writes is lost, but for the folders in `shared`. `disks` are bytes of empty disks: /dev/ubdb, /dev/ubdc
    and so on. The build is made first where none is kept (`tell` says how far it is). Raises NotRoot,
    RehearsalUnavailable, RehearsalBuildFailed, DiskTooSmall, DeadlinePassed (it is killed), RehearsalFailed (the
    second kernel died).
    """
    root = small_root(tell)
    seen = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    base = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()),
            "LANG": "C.UTF-8", "TZ": "UTC", "PAGER": "cat", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    order = Order(
        root=str(root),
        argv=tuple(str(word) for word in argv),
        env={**base, **seen, **(env or {})},
        cwd=str(cwd),
        shared=tuple(str(path.resolve()) for path in shared),
        disks=tuple(disks),
        room_bytes=ROOM_BYTES,
        memory_bytes=memory_bytes,
        scratch=str(root.parent),
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    said = booted(order, timeout_s, stdout, stderr)
    if "status" not in said:
        last = "\n  ".join(said.get("console", [])[-12:]) or "it printed nothing"
        raise RehearsalFailed(
            f"the second kernel ended (status {said.get('ended')}) before the command did: {last}",
            effect="Nothing of it is left.",
        )
    return Outcome(said["status"], said["kernel"], said["boot_s"], said["command_s"], tuple(said["faults"]))


def rehearsed(folder: Path, emit: Emit, timeout_s: float = LIMIT_S) -> Outcome:
    """Drive the run in `folder` in the second kernel, its events passed on; how that ended. As `run_inside`.

    What the trials' processes print goes to launcher.log, as in a run of the machine's own.
    """
    reading, writing = os.pipe()

    def passed_on() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if event := parsed(line):
                    emit(event)

    hearing = threading.Thread(target=passed_on)
    hearing.start()
    try:
        argv: list[str | Path] = [sys.executable, "-m", "dbbench.rehearsal.driving", folder]
        return run_inside(argv, shared=[folder], timeout_s=timeout_s, stdout=writing, stderr=folder / "rehearsal.log")
    finally:
        os.close(writing)
        hearing.join()
