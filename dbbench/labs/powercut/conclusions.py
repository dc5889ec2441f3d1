"""What the cuts of a setup show. No harm in n cuts is reported as "0 of n cuts (< 3/n at 95 %)", never as "safe": the
rule of three (Hanley and Lippman-Hand, JAMA 1983). How much a harmed cut lost depends on the disk's cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dbbench.model import Conclusion, CutFacts, Durability
from dbbench.units import percent, size_text

INVALID_SHARE: Final = 0.1  # with a larger share of invalid cuts, the rest is not a sample
_ALL: Final = frozenset({"lost", "schema", "torn", "damaged", "unrecovered", "fsck"})
# What each flag permits: commits that were not waited for may be lost, and nothing else.
ALLOWED: Final[dict[Durability, frozenset[str]]] = {
    Durability.UNKNOWN: _ALL,
    Durability.NO_BARRIER: _ALL,
    Durability.NO_JOURNAL: _ALL,
    Durability.ASYNC_COMMIT: frozenset({"lost", "schema"}),
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
        return f"{_harmed(cuts)} cuts harmed ({_by_part(cuts)})"
    return f"0 of {valid} cuts (< {percent(upper_bound(valid), 1)} at 95 %)"


def _harmed(cuts: Iterable[CutFacts]) -> str:
    valid = [cut for cut in cuts if not cut.invalid]
    return f"{sum(bool(cut.harms) for cut in valid)} of {len(valid)}"


def _by_part(cuts: Sequence[CutFacts]) -> str:
    """Return how many cuts were harmed without and with schema changes, for each power-fail unit of the disk, and with
    4096 bytes in place of 512."""
    parts = [f"{name}: {_harmed(part)}" for name, part in (
        ("rows", [cut for cut in cuts if not cut.changes]), ("schema changes", [cut for cut in cuts if cut.changes]),
    ) if part]  # fmt: skip
    for unit in sorted({cut.unit_bytes for cut in cuts}):
        name = f"unit {size_text(unit)}" if unit else "kill"
        parts.append(f"{name}: {_harmed(cut for cut in cuts if cut.unit_bytes == unit)}")
    if again := [cut for cut in cuts if cut.harms and cut.harms_at_4096 is not None]:
        parts.append(f"the same {len(again)} with 4 KiB: {sum(bool(cut.harms_at_4096) for cut in again)}")
    return "; ".join(parts)


def upper_bound(valid: int) -> float:
    """Return the upper 95 % bound for the share of harmed cuts if n cuts show no harm: 3/n, at most 1."""
    return min(1.0, 3 / valid)


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(cuts: Iterable[CutFacts], flags: Iterable[Durability], schema_safe: bool = True) -> str:
    """Describe the first harm that the flags do not allow, or "". `schema_safe`: schema changes must survive."""
    allowed = frozenset[str]().union(*(ALLOWED[flag] for flag in flags))
    for cut in cuts:
        if cut.changes and not schema_safe:
            continue
        beyond = {kind: evidence for kind, evidence in cut.harms.items() if kind not in allowed}
        if beyond and not cut.invalid:
            kind, evidence = next(iter(beyond.items()))
            return f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: {evidence.strip().splitlines()[0]}"
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control lost in fewer than `needed` of `tries`; one that was ended early by its losses is not blind."""
    return harmed < needed or valid < harmed or tries < needed
