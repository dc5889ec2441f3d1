"""What the cuts of a setup show.

No harm in n cuts is reported as "0 of n cuts (< 3/n at 95 %)", the rule of three (Hanley and Lippman-Hand, JAMA 1983),
and never as "safe". How much a harmed cut lost depends on the disk's cache, not on the filesystem.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dbbench.model import Conclusion, CutFacts, Durability
from dbbench.units import percent

INVALID_SHARE: Final = 0.1  # with a larger share of invalid cuts, the rest is not a sample
_ALL: Final = frozenset({"lost", "torn", "damaged", "unrecovered", "fsck"})
# What each flag permits: commits that were not waited for may be lost, and nothing else.
ALLOWED: Final[dict[Durability, frozenset[str]]] = {
    Durability.NO_BARRIER: _ALL,
    Durability.NO_JOURNAL: _ALL,
    Durability.ASYNC_COMMIT: frozenset({"lost"}),
    Durability.TORN_PAGES: _ALL - {"fsck"},
    Durability.REPORTED_UNSAFE: _ALL - {"fsck"},
}


def conclusion(cuts: Sequence[CutFacts], blind: bool, failed: bool = False) -> Conclusion:
    """Return the conclusion from the cuts of a setup; `failed`: its recordings failed."""
    valid = [cut for cut in cuts if not cut.invalid]
    if blind and not failed:
        return Conclusion.BLIND
    if failed or too_many(cuts) or not valid:
        return Conclusion.NONE
    return Conclusion.HARMED if any(cut.harms for cut in valid) else Conclusion.UNHARMED


def statement(about: Conclusion, cuts: Sequence[CutFacts], failed: str = "") -> str:
    """Describe the conclusion; `failed`: why there are no more recordings."""
    invalid = sum(bool(cut.invalid) for cut in cuts)
    valid = len(cuts) - invalid
    if about is Conclusion.BLIND:
        return "lab blind: no statement"
    if about is Conclusion.NONE:
        many = f"{invalid} of {len(cuts)} cuts are invalid" if too_many(cuts) else "no valid cut"
        return f"no statement: {failed or many}"
    if about is Conclusion.HARMED:
        return f"{sum(bool(cut.harms) for cut in cuts if not cut.invalid)} of {valid} cuts harmed"
    return f"0 of {valid} cuts (< {percent(upper_bound(valid), 1)} at 95 %)"


def upper_bound(valid: int) -> float:
    """Return the upper 95 % bound for the share of harmed cuts if n cuts show no harm: 3/n, at most 1."""
    return min(1.0, 3 / valid)


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(cuts: Iterable[CutFacts], flags: Iterable[Durability]) -> str:
    """Describe the first harm that the flags of the class do not allow; "" if there is none."""
    allowed = frozenset[str]().union(*(ALLOWED[flag] for flag in flags))
    for cut in cuts:
        beyond = {kind: evidence for kind, evidence in cut.harms.items() if kind not in allowed}
        if beyond and not cut.invalid:
            kind, evidence = next(iter(beyond.items()))
            return f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: {evidence.strip().splitlines()[0]}"
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control did not lose often enough: fewer than `needed` of `tries` were harmed.

    A control that was ended as soon as it had lost that often is not blind.
    """
    return harmed < needed or valid < harmed or tries < needed
