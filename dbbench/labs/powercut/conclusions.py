"""What the cuts of a setup show. No harm in n cuts is reported as "0 of n cuts (< 3/n at 95 %)",
never as "safe": the rule of three (Hanley and Lippman-Hand, JAMA 1983). How much a harmed cut
lost depends on the disk's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from dbbench.compare.interval import upper_bound
from dbbench.model import UNTRIED, Conclusion, CutFacts, Durability, HarmCount
from dbbench.units import percent, size_text

INVALID_SHARE: Final = 0.1  # with a larger share of invalid cuts, the rest is not a sample
# The kinds of harm, the one first that names a cut with several.
KINDS: Final = ("torn", "unrecovered", "damaged", "lost", "schema", "fsck")
_ALL: Final = frozenset(KINDS)
# What each flag permits: commits that were not waited for may be lost, and nothing else.
ALLOWED: Final[dict[Durability, frozenset[str]]] = {
    Durability.UNKNOWN: _ALL,
    Durability.NO_BARRIER: _ALL,
    Durability.NO_JOURNAL: _ALL,
    Durability.ASYNC_COMMIT: frozenset({"lost", "schema"}),
    Durability.TORN_PAGES: _ALL - {"fsck"},
    Durability.REPORTED_UNSAFE: _ALL - {"fsck"},
    # unless the disk writes units of WHOLE bytes, aligned
    Durability.TORN_PREVENTED: _ALL - {"fsck"},
}
WHOLE: Final = 16384  # largest page of the engines


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
        return f"{_harmed(cuts)} cuts harmed ({_by_schema(cuts)}; {_by_unit(cuts)})"
    return f"0 of {valid} cuts (< {percent(upper_bound(valid), 1)} at 95 %)"


def _harmed(cuts: Iterable[CutFacts]) -> str:
    valid = [cut for cut in cuts if not cut.invalid]
    return f"{sum(bool(cut.harms) for cut in valid)} of {len(valid)}"


def _by_schema(cuts: Sequence[CutFacts]) -> str:
    return "; ".join(
        f"{name}: {_harmed(part)}"
        for name, part in (
            ("rows", [cut for cut in cuts if not cut.changes]),
            ("schema changes", [cut for cut in cuts if cut.changes]),
        )
        if part
    )


def _by_unit(cuts: Sequence[CutFacts]) -> str:
    """Return how many cuts were harmed for each power-fail unit of the disk, of those in which
    units are shifted, and with 4096 bytes in place of 512.
    """
    parts = []
    for unit in sorted({cut.unit_bytes for cut in cuts}):
        name = f"unit {size_text(unit)}" if unit else "kill"
        parts.append(f"{name}: {_harmed(cut for cut in cuts if cut.unit_bytes == unit)}")
    if shifted := [cut for cut in cuts if cut.shift_bytes]:
        parts.append(f"shifted by {size_text(shifted[0].shift_bytes)}: {_harmed(shifted)}")
    if again := [cut for cut in cuts if cut.harms and cut.harms_at_4096 is not None]:
        parts.append(
            f"the same {len(again)} with 4 KiB: {sum(bool(cut.harms_at_4096) for cut in again)}"
        )
    return "; ".join(parts)


def cut_counts(cuts: Sequence[CutFacts], about: Conclusion, why: str) -> Iterator[HarmCount]:
    """Yield how many valid cuts without and with schema changes, and kills, had which kind of harm,
    or none. `why`: the statement, which is the reason if there is no conclusion.
    """
    columns = {
        "cut during DML": [cut for cut in cuts if cut.unit_bytes and not cut.changes],
        "cut after DDL": [cut for cut in cuts if cut.unit_bytes and cut.changes],
        "kill": [cut for cut in cuts if not cut.unit_bytes],
    }
    none = about in (Conclusion.BLIND, Conclusion.NONE)
    for column, of_column in columns.items():
        valid = [cut for cut in of_column if not cut.invalid]
        by_word = Counter(min(cut.harms, key=KINDS.index, default="unharmed") for cut in valid)
        if not valid or none:
            yield HarmCount(column, UNTRIED, 0, 0, why if none else "no valid cut")
            continue
        for word, count in by_word.most_common():
            evidence = next(
                (_first_line(cut.harms[word]) for cut in valid if word in cut.harms), ""
            )
            parts = "" if column == "kill" else _by_unit(valid)
            yield HarmCount(
                column, word, count, len(valid), "; ".join(filter(None, (parts, evidence)))
            )


def _first_line(evidence: str) -> str:
    """Return the first line, and the next one if that announces it: "mysql 9.7.4 ended with status
    2:".
    """
    first, *rest = evidence.strip().splitlines()
    return f"{first} {rest[0].strip()}" if rest and first.endswith(":") else first


def add_up(outcomes: Sequence[HarmCount]) -> list[HarmCount]:
    """Return how often each word of a column occurs among single outcomes, with the evidence of the
    first.
    """
    attempts = Counter(each.column for each in outcomes)
    counts = Counter((each.column, each.word) for each in outcomes)
    first = {(each.column, each.word): each for each in reversed(outcomes)}
    return [replace(first[key], count=count, of=attempts[key[0]]) for key, count in counts.items()]


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(
    cuts: Iterable[CutFacts], flags: Iterable[Durability], schema_safe: bool = True
) -> str:
    """Describe the first harm that the flags do not allow, or "". `schema_safe`: schema changes
    must survive.
    """
    for cut in cuts:
        whole = (
            {Durability.TORN_PREVENTED}
            if cut.unit_bytes >= WHOLE and not cut.shift_bytes
            else set()
        )
        allowed = frozenset[str]().union(*(ALLOWED[flag] for flag in flags if flag not in whole))
        if cut.changes and not schema_safe:
            continue
        beyond = {kind: evidence for kind, evidence in cut.harms.items() if kind not in allowed}
        if beyond and not cut.invalid:
            kind = min(beyond, key=KINDS.index)
            return (
                f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: "
                f"{_first_line(beyond[kind])}"
            )
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control lost in fewer than `needed` of `tries`; one that was ended early by its
    losses is not blind.
    """
    return harmed < needed or valid < harmed or tries < needed
