"""From trials to rows: for each arm its value, ratio to the baseline, interval and one word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dbbench.compare.conditions import limited, unequal
from dbbench.compare.interval import LEAST_BLOCKS, SAME, Estimate, estimate, holm_levels
from dbbench.compare.modes import said
from dbbench.compare.pairs import chosen, groups, paired
from dbbench.metrics import METRICS, Metric
from dbbench.model import Status, Trial

UNSTEADY: Final = "no steady state"
UNKNOWN: Final = "unknown"  # no trial came far enough to tell its class
LIMITED: Final = "device-limited"  # neither same nor inconclusive: the filesystems could not show a difference
WORDS: Final = {  # (words of the metric, candidate is better) -> word
    ("speed", True): "faster",
    ("speed", False): "slower",
    ("quality", True): "better",
    ("quality", False): "worse",
}
AHEAD: Final = ("faster", "better")
BEHIND: Final = ("slower", "worse")


@dataclass(frozen=True)
class Row:
    """One arm under one engine and workload. `ratio`, `lo`, `hi` are candidate ÷ baseline; the baseline's own
    row has ratio 1 and the verdict `baseline`. `level` is the confidence level that Holm gives the row."""

    fs_setup: str
    engine: str
    workload: str
    value: float | None  # geometric mean over the trials that count; the mean where a value is not positive
    ratio: float | None
    lo: float | None
    hi: float | None
    verdict: str
    n: int
    wins: int  # blocks in which the candidate was better
    level: float | None
    durability_class: str
    mixed_durability: bool
    notes: tuple[str, ...] = ()
    variant: str = ""  # "clients=8", where the plan has lists


def word(low: float, high: float, metric: Metric) -> str:
    """The verdict of an interval of log ratios: different, else same within 5 %, else inconclusive."""
    if low > 0 or high < 0:
        return WORDS[metric.words, (low > 0) == (metric.better == "higher")]
    return "same" if low >= -SAME and high <= SAME else "inconclusive"


def rows(trials: Sequence[Trial], baseline: str, metric: str = "tps") -> list[Row]:
    """Rows of every (engine, workload, variant) that has the metric in any trial; the baseline first, then by value."""
    table: list[Row] = []
    for (engine, workload, variant), group in sorted(groups(trials).items()):
        if any(trial.summary.get(metric) is not None for trial in group):
            found = _group_rows(engine, workload, group, baseline, METRICS[metric])
            table += [replace(row, variant=variant) for row in found]
    return table


def _group_rows(engine: str, workload: str, group: list[Trial], baseline: str, metric: Metric) -> list[Row]:
    arms = list(dict.fromkeys([baseline, *sorted({trial.fs_setup for trial in group})]))
    base_class = _class_of(group, baseline)
    found = {arm: _estimate(group, baseline, arm, metric) for arm in arms if arm != baseline}
    enough = {arm: guess for arm, (guess, _) in found.items() if guess is not None and guess.n >= LEAST_BLOCKS}
    levels = dict(zip(enough, holm_levels([guess.p_value() for guess in enough.values()]), strict=True))
    table = []
    for arm in arms:
        counted = [t for t in chosen(group) if t.fs_setup == arm]
        values = [v for t in counted if (v := t.summary.get(metric.name)) is not None]
        own_class = _class_of(group, arm)
        mixed = own_class != base_class and UNKNOWN not in (own_class, base_class)
        row = Row(arm, engine, workload, _mean(values), None, None, None, "inconclusive", 0, 0, None,
                  own_class, mixed, tuple(_notes(group, arm, counted, metric)))  # fmt: skip
        if arm == baseline:
            row = replace(row, ratio=1.0 if values else None, verdict="baseline", n=len(values))
        else:
            guess, wins = found[arm]
            row = replace(_judged(row, guess, levels.get(arm), metric, _block_minutes(group)), wins=wins)
            row = _conditioned(row, [t for t in chosen(group) if t.fs_setup == baseline], counted)
        table.append(row)
    sign = -1 if metric.better == "higher" else 1
    rest = sorted(table[1:], key=lambda row: (row.value is None, sign * (row.value or 0.0), row.fs_setup))
    return table[:1] + rest


def _judged(row: Row, guess: Estimate | None, level: float | None, metric: Metric, block_minutes: float | None) -> Row:
    notes = (*row.notes, "durability class differs from the baseline's") if row.mixed_durability else row.notes
    if guess is None:
        return replace(row, notes=(*notes, "no block in which both have this figure"))
    row = replace(row, ratio=guess.ratio, n=guess.n)
    if level is None:
        return replace(row, notes=(*notes, "too few blocks"))
    half = guess.half_width(level)
    low, high = guess.mean - half, guess.mean + half
    verdict = word(low, high, metric)
    if verdict == "inconclusive":
        notes = (*notes, _price(guess, level, block_minutes))
    return replace(row, lo=math.exp(low), hi=math.exp(high), verdict=verdict, level=level, notes=notes)


def _conditioned(row: Row, base: Sequence[Trial], own: Sequence[Trial]) -> Row:
    """The row with what was not equal between its trials and the baseline's. Where both stood flat at the device's
    ceiling, "same" would be said of the device, not of the filesystems."""
    row = replace(row, notes=(*row.notes, *unequal(base, own)))
    if row.verdict in ("same", "inconclusive") and limited(base) and limited(own):
        note = "device-limited: both stood flat at the ceiling of the device"
        return replace(row, verdict=LIMITED, notes=(*row.notes, note))
    return row


def _estimate(group: list[Trial], baseline: str, arm: str, metric: Metric) -> tuple[Estimate | None, int]:
    known = [
        (b, c)
        for one, other in paired(group, baseline, arm)
        if (b := one.summary.get(metric.name)) is not None and (c := other.summary.get(metric.name)) is not None
    ]
    if known and not any(b or c for b, c in known):  # no stalls in either: nothing differs
        return Estimate(len(known), 0.0, 0.0), 0
    values = [(b, c) for b, c in known if b > 0 and c > 0]
    wins = sum((c > b) == (metric.better == "higher") for b, c in values if c != b)
    return (estimate(values) if values else None), wins


def _notes(group: list[Trial], arm: str, counted: list[Trial], metric: Metric) -> list[str]:
    notes = []
    failed = sum(t.status is Status.FAILED for t in group if t.fs_setup == arm)
    suspect = sum(t.status is Status.SUSPECT for t in counted)
    if failed:
        notes.append(f"{failed} failed")
    if suspect:
        notes.append(f"{suspect} suspect")
    if metric.name in ("tps", "sustained_tps") and any(_has(t, "W002") for t in counted):
        notes.append("burst: no checkpoint in the window")
    if metric.name == "tps" and any(_has(t, "W003") for t in counted):
        notes.append("drain above 10 % of the window: read the sustained tps")
    unsteady = sum(_has(t, "W005") for t in counted)
    if metric.name in ("tps", "sustained_tps") and unsteady:
        which = "" if unsteady == len(counted) else f" in {unsteady} of {len(counted)} trials"
        notes.append(f"{UNSTEADY}{which}: the mean depends on when one looks")
    levels = said([v for t in counted if (v := t.summary.get(metric.name)) is not None])
    if levels is not None:
        notes.append(levels)
    return notes


def _has(trial: Trial, warning: str) -> bool:
    return any(found.id == warning for found in trial.warnings)


def _class_of(group: list[Trial], arm: str) -> str:
    found = {t.filesystem.durability_class for t in group if t.fs_setup == arm and t.filesystem is not None
             and t.status is not Status.FAILED}  # fmt: skip
    return " / ".join(sorted(found)) or UNKNOWN


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    if min(values) > 0:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def _block_minutes(group: list[Trial]) -> float | None:
    per_arm: dict[str, list[float]] = {}
    for trial in group:
        per_arm.setdefault(trial.fs_setup, []).append(math.fsum(phase.seconds for phase in trial.phases))
    seconds = math.fsum(math.fsum(times) / len(times) for times in per_arm.values())
    return seconds / 60 if seconds else None


def _price(guess: Estimate, level: float, block_minutes: float | None) -> str:
    more = guess.more_blocks(level)
    if more is None:
        return "more than 90 further blocks would be needed"
    blocks = f"about {more} more block{'s' if more > 1 else ''}"
    return blocks if block_minutes is None else f"{blocks}, {max(1, round(more * block_minutes))} min"


def sentence(table: Sequence[Row]) -> str:
    """One (engine, workload)'s rows as a sentence: the best first, then what can be said of the others.

    "Fastest" is said only of an arm that no other arm is the same as or undecided against.
    """
    if not table:
        return "Nothing was measured."
    base, others = table[0], table[1:]
    if base.value is None:
        return f"{base.fs_setup} (the baseline) has no good trial: nothing can be compared."
    if not others:
        return f"{base.fs_setup} alone was measured."
    mixed = " Durability classes differ: " if any(row.mixed_durability for row in others) else ""
    parts = [_phrase(row) for row in others]
    lead = f"Compared with {base.fs_setup}: "
    better = [row for row in others if row.verdict in AHEAD]
    if not better and all(row.verdict in BEHIND for row in others):
        lead = f"{base.fs_setup} {'fastest' if others[0].verdict == 'slower' else 'best'}; "
    text = lead + "; ".join(parts) + "."
    if mixed:
        classes = ", ".join(f"{row.fs_setup} {row.durability_class}" for row in table)
        text += f"{mixed}{classes}."
    return text + _care(table)


def _care(table: Sequence[Row]) -> str:
    """What is said where most of the trials that count were disturbed."""
    suspect = sum(int(note.split()[0]) for row in table for note in row.notes if note.endswith(" suspect"))
    counted = sum(row.n for row in table)
    return f" {suspect} of {counted} trials are suspect: read it with care." if 2 * suspect > counted else ""


def _phrase(row: Row) -> str:
    if row.ratio is None:
        return f"{row.fs_setup} inconclusive ({'; '.join(row.notes)})"
    change = _percent(row.ratio)
    if row.lo is None or row.hi is None:
        return f"{row.fs_setup} {row.verdict} ({change}, {'; '.join(row.notes)})"
    interval = f"{change}, CI {_percent(row.lo)}..{_percent(row.hi)}"
    said = {"same": "the same within 5 %", LIMITED: f"{LIMITED}, which tells nothing of the filesystems"}
    name = said.get(row.verdict, row.verdict)
    return f"{row.fs_setup} {name} ({interval})"


def _percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    digits = 0 if abs(change) >= 10 else 1
    return f"{change:+.{digits}f} %".replace("-", "−")
