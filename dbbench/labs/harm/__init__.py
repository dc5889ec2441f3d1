"""Harm other than by a power loss: changed bytes, a full disk, failed requests. Each attempt works on
copies of a target's disks, which the power-loss lab has made, and counts how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from dbbench.labs.faults import parse
from dbbench.labs.harm.attempts import no_attempt, repeat, try_once
from dbbench.labs.harm.disk_faults import GIVEN, fail_disks
from dbbench.labs.harm.flips import flip_bytes
from dbbench.labs.harm.full_disk import fill_disk
from dbbench.labs.harm.kills import INITIALIZATION, RECOVERY, kill_initializing, kill_twice
from dbbench.labs.harm.online_copies import copy_running
from dbbench.labs.powercut.base_images import BaseImages, Lab, files_of
from dbbench.model import TIME_USED_UP, HarmCount

Attempt = Callable[[Lab, BaseImages, int], list[HarmCount]]
# What is attempted -> the function that tries it so many rounds.
ATTEMPTS: Final[Mapping[str, Attempt]] = {
    "flip": flip_bytes,
    "full disk": fill_disk,
    "failed requests": fail_disks,
    "copies": copy_running,
    "kill during recovery": partial(repeat, RECOVERY, kill_twice),
    "kill during initialization": partial(repeat, INITIALIZATION, kill_initializing),
}


def attempts_of(fault: str) -> Mapping[str, Attempt]:
    """Return what is attempted: everything, or only this fault of the disks."""
    if fault:
        return {GIVEN: partial(fail_disks, given=parse(fault))}
    return ATTEMPTS


def count_harms(
    lab: Lab,
    base: BaseImages,
    rounds: int,
    attempts: Mapping[str, Attempt] = ATTEMPTS,
) -> Iterator[HarmCount]:
    """Try everything on copies of the base; what cannot be tried is counted as untried, with the
    reason.
    """
    for name, attempt in attempts.items():
        lab.tell(f"{base.target.key}: {name}")
        if lab.over:
            yield from no_attempt(name, TIME_USED_UP)
            continue
        yield from try_once(name, partial(attempt, lab, base, rounds))
        # What it has made is in memory.
        for image in {*lab.scratch.glob("*.img")}.difference(files_of(base.images)):
            image.unlink()


__all__ = ["ATTEMPTS", "Attempt", "HarmCount", "attempts_of", "count_harms"]
