"""What the cuts of a setup show. No harm in n cuts is reported as "0 of n cuts (< 3/n at 95 %)",
never as "safe": the rule of three (Hanley and Lippman-Hand, JAMA 1983). How much a harmed cut
lost depends on the disk's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dbbench.compare.interval import independent_tries, share_interval, upper_bound
from dbbench.model import (
    CUT_COLUMNS,
    KILL_COLUMNS,
    Conclusion,
    CutFacts,
    Durability,
    HarmCount,
    HarmOutcome,
)
from dbbench.units import count, percent, percents, size_text

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
    Durability.LAB_UNSAFE: _ALL - {"fsck"},
    # unless the disk writes units of WHOLE bytes, aligned
    Durability.TORN_PREVENTED: _ALL - {"fsck"},
}
WHOLE: Final = 16384  # largest page of the engines


class Causes(NamedTuple):
    """Valid cuts by what harmed the database: a power loss, one after a kill, or a kill."""

    plain: list[CutFacts]
    after_kill: list[CutFacts]
    kills: list[CutFacts]


def by_cause(cuts: Iterable[CutFacts]) -> Causes:
    """Return the valid cuts by their cause."""
    causes = Causes([], [], [])
    for cut in cuts:
        if cut.invalid:
            continue
        if not cut.unit_bytes:
            causes.kills.append(cut)
        elif cut.after_kill:
            causes.after_kill.append(cut)
        else:
            causes.plain.append(cut)
    return causes


def conclusion(
    cuts: Sequence[CutFacts],
    blind: bool,
    failed: bool = False,
) -> Conclusion:
    """Return the conclusion from the power losses of a setup without a kill before them; `failed`:
    its recordings failed.
    """
    valid = by_cause(cuts).plain
    if blind and not failed:
        return Conclusion.BLIND
    if failed or too_many(cuts) or not valid:
        return Conclusion.NONE
    return Conclusion.HARMED if any(cut.harms for cut in valid) else Conclusion.UNHARMED


def statement(
    about: Conclusion,
    cuts: Sequence[CutFacts],
    failed: str = "",
) -> str:
    """Describe the conclusion, and how many cuts after a kill and kills were harmed; `failed`: why
    there are no more recordings.
    """
    causes = by_cause(cuts)
    plain = causes.plain
    invalid = sum(bool(cut.invalid) for cut in cuts)
    if about is Conclusion.BLIND:
        return "lab blind: no statement"
    if about is Conclusion.NONE:
        many = f"{invalid} of {len(cuts)} cuts are invalid" if too_many(cuts) else "no valid cut"
        return f"no statement: {failed or many}"
    text = f"0 of {len(plain)} cuts (< {percent(upper_bound(len(plain)), 1)} at 95 %)"
    if about is Conclusion.HARMED:
        parts = (_bounds(plain), _by_schema(plain), _by_unit(plain))
        text = f"{_count_harms(plain)} cuts harmed ({'; '.join(parts)})"
    for name, others in (("after kill", causes.after_kill), ("kills", causes.kills)):
        if others:
            text += f"; {name}: {_count_harms(others)}"
    return text


def _count_harms(cuts: Sequence[CutFacts]) -> str:
    return f"{sum(bool(cut.harms) for cut in cuts)} of {len(cuts)}"


def _bounds(cuts: Sequence[CutFacts]) -> str:
    """Return the 95 % interval of the share of harmed cuts, and from how many recordings it is."""
    hits = [bool(cut.harms) for cut in cuts]
    low, high = share_interval(sum(hits), len(cuts), _independent(cuts, hits))
    recordings = len({cut.recording for cut in cuts})
    return f"{percents(low, high)} at 95 % from {count(recordings, 'recording')}"


def _by_schema(cuts: Sequence[CutFacts]) -> str:
    parts = []
    for name, changes in (("rows", False), ("schema changes", True)):
        part = [cut for cut in cuts if cut.changes is changes]
        if part:
            parts.append(f"{name}: {_count_harms(part)}")
    return "; ".join(parts)


def _by_unit(cuts: Sequence[CutFacts]) -> str:
    """Return how many cuts were harmed for each power-fail unit of the disk, of those in which
    units are shifted, and with 4096 bytes in place of 512.
    """
    parts = []
    for unit in sorted({cut.unit_bytes for cut in cuts}):
        of_unit = [cut for cut in cuts if cut.unit_bytes == unit]
        parts.append(f"unit {size_text(unit)}: {_count_harms(of_unit)}")
    shifted = [cut for cut in cuts if cut.shift_bytes]
    if shifted:
        parts.append(f"shifted by {size_text(shifted[0].shift_bytes)}: {_count_harms(shifted)}")
    again = [cut for cut in cuts if cut.harms and cut.harms_at_4096 is not None]
    if again:
        harmed = [cut for cut in again if cut.harms_at_4096]
        parts.append(f"the same {len(again)} with 4 KiB: {len(harmed)}")
    return "; ".join(parts)


def cut_counts(
    cuts: Sequence[CutFacts],
    about: Conclusion,
    why: str,
) -> Iterator[HarmCount]:
    """Yield how many valid cuts without and with schema changes, cuts after a kill, and kills, had
    which kind of harm, or none. `why`: the statement, which is the reason if there is no conclusion.
    """
    causes = by_cause(cuts)
    rows = [cut for cut in causes.plain if not cut.changes]
    changes = [cut for cut in causes.plain if cut.changes]
    columns = (*CUT_COLUMNS, KILL_COLUMNS[0])
    none = about in (Conclusion.BLIND, Conclusion.NONE)
    for column, valid in zip(
        columns, (rows, changes, causes.after_kill, causes.kills), strict=True
    ):
        if not valid or none:
            yield HarmCount(column, HarmOutcome.UNTRIED, 0, 0, why if none else "no valid cut")
            continue
        words = [worst(cut.harms) for cut in valid]
        for word, hits in Counter(words).most_common():
            parts = [] if column in KILL_COLUMNS else [_by_unit(valid)]
            evidence = [cut.harms[word] for cut in valid if word in cut.harms]
            parts += map(first_line, evidence[:1])
            yield HarmCount(
                column,
                word,
                hits,
                len(valid),
                "; ".join(filter(None, parts)),
                _independent(valid, [one == word for one in words]),
            )


def _independent(cuts: Sequence[CutFacts], hits: Sequence[bool]) -> float:
    """Return how many independent cuts would show the share of hits as exactly."""
    tries = Counter(cut.recording for cut in cuts)
    counts = Counter(cut.recording for cut, hit in zip(cuts, hits, strict=True) if hit)
    return independent_tries([(counts[recording], size) for recording, size in tries.items()])


def first_line(evidence: str) -> str:
    """Return the first line, and the next one if that announces it: "mysql 9.7.4 ended with status
    2:".
    """
    first, *rest = evidence.strip().splitlines()
    return f"{first} {rest[0].strip()}" if rest and first.endswith(":") else first


def worst(harms: Iterable[str]) -> HarmOutcome:
    """Return the kind that names these harms; `unharmed` if there is none."""
    return HarmOutcome(min(harms, key=KINDS.index, default=HarmOutcome.UNHARMED))


def single(column: str, word: HarmOutcome, evidence: object) -> HarmCount:
    """Return the outcome of one attempt, with its evidence on one line."""
    return HarmCount(column, word, 1, 1, " ".join(str(evidence).split()))


def add_up(outcomes: Sequence[HarmCount]) -> list[HarmCount]:
    """Return how often each word of a column occurs among single outcomes, with the evidence of the
    first. Attempts that the lab could not make are none: their reason is kept, and not counted.
    """
    attempts = Counter(outcome.column for outcome in outcomes if outcome.of)
    counts = dict[tuple[str, HarmOutcome], HarmCount]()
    for outcome in outcomes:
        first = counts.setdefault((outcome.column, outcome.word), replace(outcome, count=0))
        if outcome.of:
            first = replace(first, count=first.count + 1, of=attempts[outcome.column])
        counts[outcome.column, outcome.word] = first
    return list(counts.values())


def too_many(cuts: Sequence[CutFacts]) -> bool:
    """Whether too many of them are invalid."""
    return sum(bool(cut.invalid) for cut in cuts) > INVALID_SHARE * len(cuts)


def contradiction(
    cuts: Iterable[CutFacts],
    flags: Iterable[Durability],
    schema_safe: bool = True,
) -> str:
    """Describe the first harm that the flags do not allow, or "". `schema_safe`: schema changes
    must survive.
    """
    for cut in cuts:
        if cut.invalid or (cut.changes and not schema_safe):
            continue
        whole = cut.unit_bytes >= WHOLE and not cut.shift_bytes
        allowed = set[str]()
        for flag in flags:
            if flag is not Durability.TORN_PREVENTED or not whole:
                allowed |= ALLOWED[flag]
        beyond = cut.harms.keys() - allowed
        if beyond:
            kind = worst(beyond)
            evidence = first_line(cut.harms[kind])
            return f"cut {cut.number} ({cut.aim}, seed {cut.seed}): {kind}: {evidence}"
    return ""


def is_blind(tries: int, needed: int, harmed: int, valid: int) -> bool:
    """Whether a control lost in fewer than `needed` of `tries`; one that was ended early by its
    losses is not blind.
    """
    return harmed < needed or valid < harmed or tries < needed
