"""Choose where to cut: at any moment, or just before the flush of a commit or of a checkpoint.

Cuts at random moments find little: in most of them the cache is nearly empty. The aims alternate.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal

from dbbench.labs.powercut.disk_images import BLOCK, SECTOR, Cut
from dbbench.labs.powercut.log import Log

Aim = Literal["drop", "subset", "commit", "checkpoint"]
AIMS: Final[tuple[Aim, ...]] = ("checkpoint", "commit", "drop", "subset")
KILLED: Final = "kill"  # the server's processes, not the power: see `recording`
LARGE: Final = 64  # unflushed blocks at a flush: more than a few commits write, so a checkpoint's
HALF: Final = 0.5


def chosen(log: Log, spans: Sequence[tuple[int, int]], count: int, seed: str, aims: Sequence[Aim] = AIMS) -> list[Cut]:
    """Return `count` cuts in these (begin, end) of the log, by their positions. Raises ValueError if the spans are
    empty.

    An aim that finds no flush of its kind uses the next weaker one: checkpoint, commit, subset.
    """
    chance = random.Random(seed)
    spans = [(begin, end) for begin, end in spans if end - begin > 1]
    if not spans:
        raise ValueError("nothing was written while there was something to lose")
    flushes = [place for begin, end in spans for place in log.flushes_between(begin, end)]
    held = {place: log.unflushed_bytes(place, log.entries[place].disk) for place in flushes}
    commits = [place for place in flushes if held[place] > 0]
    large = [place for place in commits if held[place] >= LARGE * BLOCK]
    cuts = []
    for number in range(count):
        aim = aims[number % len(aims)]
        if aim == "checkpoint" and not large:
            aim = "commit"
        if aim == "commit" and not commits:
            aim = "subset"
        if aim == "checkpoint":
            place = chance.choice(large)
        elif aim == "commit":
            place = chance.choice(commits)
        else:
            place = _any(log, spans, chance)
        unit = chance.choice((SECTOR, BLOCK))
        cuts.append(Cut(aim, place, unit, 0.0 if aim == "drop" else HALF, f"{seed}-{number}"))
    return sorted(cuts, key=lambda cut: cut.position)


def _any(log: Log, spans: Sequence[tuple[int, int]], chance: random.Random) -> int:
    """Return a random moment by the clock, not by the requests, which come in bursts."""
    times = [(log.entries[begin].ns, log.entries[min(end, len(log.entries)) - 1].ns) for begin, end in spans]
    (begin, end), (first, last) = chance.choices(
        list(zip(spans, times, strict=True)), [last - first + 1 for first, last in times]
    )[0]
    return min(max(begin + 1, log.at(int(chance.uniform(first, last)))), end - 1)
