"""What all attempts to harm copies of a target's disks share: rounds, and the look-up of the rows
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dbbench.errors import DbbenchError
from dbbench.labs.harm.rows import RowWriter
from dbbench.labs.powercut.base_images import BaseImages, Images, Lab
from dbbench.labs.powercut.conclusions import add_up, worst
from dbbench.labs.powercut.recovery import recover
from dbbench.model import TIME_USED_UP, HarmCount, HarmOutcome
from dbbench.run.record import stopping


def repeat(
    column: str,
    attempt: Callable[[Lab, BaseImages, str], list[HarmCount]],
    lab: Lab,
    base: BaseImages,
    rounds: int,
) -> list[HarmCount]:
    """Make an attempt so many times, each with another seed; return the counts of each outcome."""
    outcomes = list[HarmCount]()
    for number in range(rounds):
        if lab.over:
            break
        lab.tell(f"{base.target.key}: {column} {number + 1}")
        seed = f"{lab.seed}-{base.target.key}-{column}-{number}"
        outcomes += try_once(column, partial(attempt, lab, base, seed))
    return add_up(outcomes) or no_attempt(column, TIME_USED_UP)


def try_once(column: str, attempt: Callable[[], list[HarmCount]]) -> list[HarmCount]:
    """Return the outcomes of the attempt. If the lab cannot make it, that is none: the reason is
    kept.
    """
    try:
        return attempt()
    except (DbbenchError, OSError, ValueError) as error:
        if stopping(error):
            raise
        return no_attempt(column, str(error))


def no_attempt(column: str, why: str) -> list[HarmCount]:
    """Return that no attempt was made, with the reason."""
    return [HarmCount(column, HarmOutcome.UNTRIED, 0, 0, why)]


def look_up(
    lab: Lab,
    base: BaseImages,
    images: Images,
    writer: RowWriter,
) -> tuple[HarmOutcome, str]:
    """Recover these disks, and return the worst harm, or `unharmed`, with its evidence. Raises
    DbbenchError if the lab could not do so.
    """
    recovery = recover(lab, base, images, {}, also=writer.harms)
    if recovery.invalid:
        raise DbbenchError(recovery.invalid)
    word = worst(recovery.harms)
    return word, recovery.harms.get(word, f"{writer.count} acknowledged commits are present")
