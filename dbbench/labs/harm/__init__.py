"""Harm other than by a power loss: changed bytes, a full disk, failed requests. Each attempt works on
copies of a target's disks, which the power-loss lab has made, and counts how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from dbbench.errors import DbbenchError
from dbbench.labs.faults import parse
from dbbench.labs.harm.disk_faults import GIVEN, fail_disks
from dbbench.labs.harm.flips import flip_bytes
from dbbench.labs.harm.full_disk import fill_disk
from dbbench.labs.harm.second_kill import kill_twice
from dbbench.labs.powercut.recovery import BaseImages, Lab
from dbbench.model import TIME_USED_UP, HarmCount, HarmOutcome
from dbbench.run.record import stopping

Attempt = Callable[[Lab, BaseImages, int], list[HarmCount]]
# What is attempted -> the function that tries it so many rounds.
ATTEMPTS: Final[Mapping[str, Attempt]] = {
    "flip": flip_bytes,
    "full disk": fill_disk,
    "failed requests": fail_disks,
    "kill during recovery": kill_twice,
}


def attempts_of(fault: str) -> Mapping[str, Attempt]:
    """Return what is attempted: everything, or only this fault of the disks."""
    return {GIVEN: partial(fail_disks, given=parse(fault))} if fault else ATTEMPTS


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
        try:
            counts = (
                [HarmCount(name, HarmOutcome.UNTRIED, 0, 0, TIME_USED_UP)]
                if lab.over
                else attempt(lab, base, rounds)
            )
        except (DbbenchError, OSError, ValueError) as error:
            if stopping(error):
                raise
            counts = [HarmCount(name, HarmOutcome.UNTRIED, 0, 0, str(error))]
        yield from counts


__all__ = ["ATTEMPTS", "Attempt", "HarmCount", "attempts_of", "count_harms"]
