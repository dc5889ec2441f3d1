"""Section 1: the answer in a sentence, three cards, and the caveats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND, without_guard
from dbbench.model import Status
from dbbench.report.page.findings import Finding
from dbbench.report.page.groups import ArmLabel, Group, loaded_runs
from dbbench.report.page.notices import Notice, notices
from dbbench.report.sentences import Parts, same_within, sentence, verdict_words
from dbbench.units import change, count, interval, join_words

SIGNS: Final = {  # verdicts must be readable without colour
    "faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "inconclusive": "?", "device-limited": "⊤",
    "baseline": "",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A large number on a card. `sure` is False if the interval does not support the card's title."""

    label: str
    value: str
    unit: str
    arm: ArmLabel | None
    text: str
    sure: bool


@dataclass(frozen=True)
class Card:
    """One of the cards: figures, then lines, then links to the warnings."""

    title: str
    figures: tuple[Figure, ...]
    lines: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()  # text, anchor


@dataclass(frozen=True)
class Verdict:
    """The first section of the page."""

    sentences: tuple[tuple[Group, Parts], ...]
    notices: tuple[Notice, ...]
    cards: tuple[Card, ...]
    regressions: tuple[Parts, ...] = ()  # of the nights of these runs, before everything else


def verdict(groups: Sequence[Group], warnings: Sequence[Finding], regressions: tuple[Parts, ...] = ()) -> Verdict:
    """Return the first section of the page."""
    sentences = tuple((group, sentence(group.rows, group.metric)) for group in groups)
    speed = all(group.metric.words == "speed" for group in groups)
    best, worst = ("Fastest", "Slowest") if speed else ("Best", "Worst")
    if all(len(_rank(group)) < 2 for group in groups):
        best = "Measured"
    cards = [
        Card(best, tuple(f for g in groups if (f := _best(g)))),
        Card(worst, tuple(f for g in groups if (f := _worst(g)))),
    ]
    shown = (*(card for card in cards if card.figures), _quality(groups, warnings))
    return Verdict(sentences, tuple(notices(groups)), shown, regressions)


def _rank(group: Group) -> list[Row]:
    """Return the measured rows with the durability class of the baseline, best first."""
    sign = -1 if group.metric.better == "higher" else 1
    measured = [(row.value, row) for row in without_guard(group.rows)
                if row.value is not None and not group.apart(row)]  # fmt: skip
    return [row for _, row in sorted(measured, key=lambda pair: sign * pair[0])]


def _best(group: Group) -> Figure | None:
    ranked = _rank(group)
    if not ranked:
        return None
    best, others = ranked[0], [row for row in ranked[1:] if row.ratio is not None]
    if best.verdict == "baseline":
        unsettled = [row.fs_setup for row in others if row.verdict not in (*BEHIND, "same")]
        return _figure(group, best, _lead(others, unsettled), not unsettled and bool(others))
    if best.verdict in AHEAD or best.ratio is None:
        return _figure(group, best, _against(group, best), best.ratio is not None)
    text = f"By its mean only: {verdict_words(best)} compared with {group.baseline}."
    return _figure(group, best, text, best.verdict == "same")


def _lead(others: list[Row], unsettled: list[str]) -> str:
    same = [row.fs_setup for row in others if row.verdict == "same"]
    if unsettled:
        return f"Not clearly ahead of {join_words(unsettled)}."
    if same:
        return f"{join_words(same)} {'is' if len(same) == 1 else 'are'} the {same_within(others[0].margin)}."
    return f"Next: {others[0].fs_setup}, {change(others[0].ratio)}." if others else "No other setup was measured."


def _worst(group: Group) -> Figure | None:
    ranked = _rank(group)
    if len(ranked) < 2:
        return None
    worst = ranked[-1]
    if worst.verdict == "baseline":
        unsettled = [row.fs_setup for row in ranked[:-1] if row.verdict not in AHEAD]
        text = f"Not clearly behind {join_words(unsettled)}." if unsettled else "Behind all others."
        return _figure(group, worst, text, not unsettled)
    return _figure(group, worst, _against(group, worst), worst.verdict in BEHIND)


def _against(group: Group, row: Row) -> str:
    if row.ratio is None:
        return f"No block in which {group.baseline} also has a usable trial."
    bounds = "no interval" if row.lo is None else f"CI {interval(row.lo, row.hi)}"
    return f"{change(row.ratio)} compared with {group.baseline}, {bounds}."


def _figure(group: Group, row: Row, text: str, sure: bool) -> Figure:
    unit = group.metric.unit if group.metric.unit != "bytes" else ""
    return Figure(group.title, group.metric.text(row.value), unit, group.arm(row), text, sure)


def _quality(groups: Sequence[Group], warnings: Sequence[Finding]) -> Card:
    trials = [trial for group in groups for trial in group.trials]
    used = sum(len(group.counted_ids) for group in groups)
    missing = sum(len(group.missing()) for group in groups)
    damaged = sum(len(loaded.damaged) for loaded in loaded_runs(groups))
    failed = sum(trial.status is Status.FAILED for trial in trials)
    suspect = sum(trial.status is Status.SUSPECT for trial in trials)
    repeated = sum(trial.attempt > 1 for trial in trials)
    facts = [(failed, "failed"), (suspect, "suspect"), (repeated, "of a repeated block"), (missing, "not run"),
             (damaged, "damaged")]  # fmt: skip
    odd = [f"{n} {what}" for n, what in facts if n]
    blocks = sorted({(group.loaded.run.name, group.loaded.run.blocks) for group in groups})
    lines = (
        f"{'; '.join(odd)}." if odd else "No failed, suspect or missing trials.",
        f"{join_words([count(n, 'block') for _, n in blocks])}, in random order.",
    )
    links = tuple((f"{finding.ident} {finding.title}", f"#{finding.ident}") for finding in warnings)
    of = f"{used} of {len(trials) + missing + damaged}"
    figure = Figure("", of, "trials used", None, "", not (failed or missing or damaged))
    return Card("Data quality", (figure,), lines, links)
