"""The power-loss lab: do acknowledged commits survive a power loss, and does the server start
again? A server works on a disk of the lab, which logs every write and flush (`disk`). From the
log, any number of disks are made as a power loss would have left them (`disk_images`). Each is
recovered and checked (`recovery`) against what a witness outside the server knows (`witness`).
Controls that must lose data prove that a loss is detected (`targets`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dbbench import packages
from dbbench.errors import DeadlinePassed, LabUnavailable, NotRoot, TrialStuck
from dbbench.labs.powercut.disk import library

if TYPE_CHECKING:
    from dbbench.model.events import Emit
    from dbbench.run.children import Overdue

# "always": the disks acknowledge flushes without carrying them out; "truncate": for 100 ms after a
# TRUNCATE. Set only to test the lab itself.
Lies = Literal["", "always", "truncate"]
__all__ = ["Order", "check", "examine", "requirements", "unavailable"]
# Images and logs are in memory: five images of 200 MB, a log of the same size, and a server.
MEMORY_BYTES: Final = 2 * 2**30


@dataclass(frozen=True)
class Order:
    """What the lab is to do. `controls`: only these, by name."""

    seed: int
    cuts: int | None = None  # cuts per target
    minutes: float | None = None  # minutes for all targets together
    controls: Sequence[str] | None = None
    lies: Lies = ""
    rounds: int = 0  # of harm other than by cuts, per target
    fault: str = ""  # instead of cuts and other harm: faults of the disks, see `labs.faults`
    unit: int | None = None  # the only power-fail unit, aligned to itself; None: several


class Requirement(NamedTuple):
    """Something that the lab needs. `command`: what provides it; or `program`, which a package must
    contain.
    """

    name: str
    evidence: str | None  # None: it is missing
    command: str = ""
    program: str = ""

    @property
    def remedy(self) -> str:
        """Return the command; that of a package is found by apt, which takes longer than all other
        checks.
        """
        return self.command or packages.remedy([self.program])


def requirements() -> Iterator[Requirement]:
    """Yield what the lab needs from this machine; those that are missing have no evidence."""
    fuse = os.access("/dev/fuse", os.R_OK | os.W_OK)
    yield Requirement(
        "/dev/fuse",
        "accessible" if fuse else None,
        "modprobe fuse, as root",
    )
    path = library()
    yield Requirement(
        "libfuse 3",
        str(path) if path else None,
        program=packages.FUSE,
    )
    module = importlib.util.find_spec("mfusepy") is not None
    yield Requirement(
        "mfusepy",
        "installed" if module else None,
        packages.extra("lab"),
    )
    needed = f"{MEMORY_BYTES // 2**20} MiB"
    enough = available_bytes() >= MEMORY_BYTES
    yield Requirement(
        f"{needed} of available memory",
        "yes" if enough else None,
        f"free {needed} for the disks",
    )


def available_bytes() -> float:
    """Return the memory that is available; infinity if the kernel does not report it."""
    meminfo = re.search(
        r"^MemAvailable: *(\d+) kB",
        Path("/proc/meminfo").read_text(),
        re.MULTILINE,
    )
    return int(meminfo[1]) * 1024 if meminfo else math.inf


def unavailable() -> str | None:
    """Return why the lab cannot run on this machine, with what to install, or None."""
    need = next((need for need in requirements() if need.evidence is None), None)
    return None if need is None else f"{need.name} is missing: {need.remedy}"


def check() -> None:
    """Raise NotRoot or LabUnavailable if the lab cannot run."""
    if os.geteuid() != 0:
        raise NotRoot(
            "the power-loss lab requires root, because it mounts filesystems",
            remedy="Run the command with sudo.",
        )
    if why := unavailable():
        raise LabUnavailable(why, effect="Nothing was changed.")


def examine(
    folder: Path,
    sha256: str,
    order: Order,
    emit: Emit,
    overdue: Overdue | None = None,
) -> None:
    """Carry out the order for the cells of the run in `folder`, which takes the results; `sha256`
    identifies the user's plan. Raises LabUnavailable, DeadlinePassed, Interrupted, Terminated;
    results so far are kept.
    """
    # Not above: each recording starts a process of the disks, which imports this package.
    from dbbench import process
    from dbbench.engines.serving import tail
    from dbbench.run.children import Launcher, stoppable
    from dbbench.run.queue import LOG

    try:
        # A process of its own, which a trial's guards protect and a deadline ends.
        with stoppable() as stop, Launcher(__name__, folder / LOG, emit, stop) as launcher:
            request = {
                "folder": str(folder),
                "sha256": sha256,
                "order": dataclasses.asdict(order),
            }
            status = launcher.run(request, overdue)
    except TrialStuck as stuck:
        raise DeadlinePassed(
            stuck.evidence, effect="The lab was killed. Its results so far are kept."
        ) from None
    if status != 0:
        raise LabUnavailable(
            f"the lab's process ended with {process.ending(status)}:\n{tail(folder / LOG)}",
            remedy=f"See {folder / LOG}.",
        )
