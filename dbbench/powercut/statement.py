"""What may be said of so many cuts: arithmetic alone.

None harmed of n is "0 of n cuts (< 3/n at 95 %)", the rule of three (Hanley and Lippman-Hand, JAMA 1983), and never
"safe". How much a harmed cut lost belongs to the disk's cache, not to the filesystem.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dbbench.model import CutFacts, Durability

INVALID_SHARE: Final = 0.1  # more than that, and what is left is no sample

_ALL: Final = frozenset({"lost", "torn", "damaged", "unrecovered", "fsck"})
# What a flag lets happen. A commit that was not waited for may be gone; nothing else may.
ALLOWED: Final[dict[Durability, frozenset[str]]] = {
    Durability.NO_BARRIER: _ALL,
    Durability.NO_JOURNAL: _ALL,
    Durability.ASYNC_COMMIT: frozenset({"lost"}),
    Durability.TORN_PAGES: _ALL - {"fsck"},
}


def statement(cuts: Sequence[CutFacts], blind: bool) -> str:
    """What is said of a setup."""
    invalid = sum(bool(cut.invalid) for cut in cuts)
    valid = len(cuts) - invalid
    if blind:
        return "lab blind: no statement"
    if too_many(cuts):
        return f"no statement: {invalid} of {len(cuts)} cuts are invalid"
    if not valid:
        return "no statement: no valid cut"
    harmed = sum(bool(cut.harms) for cut in cuts if not cut.invalid)
    if harmed:
        return f"{harmed} of {valid} cuts harmed"
    return f"0 of {valid} cuts (< {upper_bound(valid):.1%} at 95 %)"


def upper_bound(valid: int) -> float:
    """The share of harmed cuts that n unharmed ones leave possible at 95 %: 3/n, at most all."""
    return min(1.0, 3 / valid)


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(cuts: Iterable[CutFacts], flags: Iterable[Durability]) -> str:
    """The first harm that the flags of the class do not allow, in words; "" where there is none."""
    allowed = frozenset[str]().union(*(ALLOWED[flag] for flag in flags))
    for cut in cuts:
        beyond = {kind: said for kind, said in cut.harms.items() if kind not in allowed}
        if beyond and not cut.invalid:
            kind, said = next(iter(beyond.items()))
            return f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: {said.strip().splitlines()[0]}"
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control did not lose often enough: fewer than `needed` of `tries` were harmed. One that was ended as
    soon as it had lost that often is none."""
    return harmed < needed or valid < harmed or tries < needed
