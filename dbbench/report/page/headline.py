"""Section 1: the answer in a sentence, three cards, and the caveats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dbbench.compare import Row, by_host
from dbbench.compare.verdict import AHEAD, BEHIND, LIMITED, without_guard
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.model import Status
from dbbench.report.page.environment import differences
from dbbench.report.page.findings import Finding
from dbbench.report.page.groups import Group
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import (
    DURABILITY,
    SAME,
    SUSPECT,
    Parts,
    caveats,
    disagreement,
    no_limit,
    sentence,
    verdict_words,
)
from dbbench.results import LoadedRun
from dbbench.units import GROUP, change, count, duration_text, interval, listed

SIGNS: Final = {  # verdicts must be readable without colour
    "faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "inconclusive": "?", "device-limited": "⊤",
    "baseline": "",
}  # fmt: skip


Kind = Literal["short", "durability", "suspect", "unfinished", "damaged", "burst", "drain", "unsteady", "unequal",
               "limited", "no-limit", "hosts", "skipped"]  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A large number on a card. `sure` is False if the interval does not support the card's title."""

    label: str
    value: str
    unit: str
    mark: Mark | None
    durability: str
    apart: bool
    text: str
    sure: bool = True


@dataclass(frozen=True)
class Card:
    """One of the cards: figures, then lines, then links to the warnings."""

    title: str
    figures: tuple[Figure, ...]
    lines: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()  # text, anchor


@dataclass(frozen=True)
class Notice:
    """A caveat."""

    kind: Kind
    parts: Parts


@dataclass(frozen=True)
class Verdict:
    """The first section of the page."""

    sentences: tuple[tuple[Group, Parts], ...]
    notices: tuple[Notice, ...]
    cards: tuple[Card, ...]
    regressions: tuple[Parts, ...] = ()  # of the nights of these runs, before everything else


def verdict(groups: Sequence[Group], found: Sequence[Finding], regressions: tuple[Parts, ...] = ()) -> Verdict:
    """Return the first section of the page. `found` is the list of warnings."""
    sentences = tuple((group, sentence(group.rows, group.metric)) for group in groups)
    speed = all(group.metric.words == "speed" for group in groups)
    best, worst = ("Fastest", "Slowest") if speed else ("Best", "Worst")
    if all(len(_ranked(group)) < 2 for group in groups):
        best = "Measured"
    cards = [
        Card(best, tuple(f for g in groups if (f := _best(g)))),
        Card(worst, tuple(f for g in groups if (f := _worst(g)))),
    ]
    shown = (*(card for card in cards if card.figures), _quality(groups, found))
    return Verdict(sentences, tuple(notices(groups)), shown, regressions)


def _ranked(group: Group) -> list[Row]:
    """Return the measured rows with the durability class of the baseline, best first."""
    sign = -1 if group.metric.better == "higher" else 1
    measured = [(row.value, row) for row in without_guard(group.rows)
                if row.value is not None and not group.apart(row)]  # fmt: skip
    return [row for _, row in sorted(measured, key=lambda pair: sign * pair[0])]


def _best(group: Group) -> Figure | None:
    ranked = _ranked(group)
    if not ranked:
        return None
    best, others = ranked[0], [row for row in ranked[1:] if row.ratio is not None]
    if best.verdict == "baseline":
        same = [row.fs_setup for row in others if row.verdict == "same"]
        open_ = [row.fs_setup for row in others if row.verdict not in (*BEHIND, "same")]
        text = _lead(others, same, open_)
        return _figure(group, best, text, not open_ and bool(others))
    if best.verdict in AHEAD:
        return _figure(group, best, _against(group, best), True)
    if best.ratio is None:
        return _figure(group, best, _no_pair(group), False)
    text = f"By its mean only: {verdict_words(best)} compared with {group.baseline}."
    return _figure(group, best, text, best.verdict == "same")


def _against(group: Group, row: Row) -> str:
    bounds = "no interval" if row.lo is None else f"CI {interval(row.lo, row.hi)}"
    return f"{change(row.ratio)} compared with {group.baseline}, {bounds}."


def _no_pair(group: Group) -> str:
    return f"No block in which {group.baseline} also has a usable trial."


def _lead(others: list[Row], same: list[str], unsettled: list[str]) -> str:
    if unsettled:
        return f"Not clearly ahead of {listed(unsettled)}."
    if same:
        return f"{listed(same)} {'is' if len(same) == 1 else 'are'} the {SAME}."
    return f"Next: {others[0].fs_setup}, {change(others[0].ratio)}." if others else "No other setup was measured."


def _worst(group: Group) -> Figure | None:
    ranked = _ranked(group)
    if len(ranked) < 2:
        return None
    worst = ranked[-1]
    if worst.verdict == "baseline":
        unsettled = [row.fs_setup for row in ranked[:-1] if row.verdict not in AHEAD]
        text = f"Not clearly behind {listed(unsettled)}." if unsettled else "Behind all others."
        return _figure(group, worst, text, not unsettled)
    if worst.ratio is None:
        return _figure(group, worst, _no_pair(group), False)
    return _figure(group, worst, _against(group, worst), worst.verdict in BEHIND)


def _figure(group: Group, row: Row, text: str, sure: bool) -> Figure:
    unit = group.metric.unit if group.metric.unit != "bytes" else ""
    return Figure(group.title, group.metric.text(row.value), unit, group.marks[row.fs_setup],
                  row.durability_class, group.apart(row), text, sure)  # fmt: skip


def _quality(groups: Sequence[Group], found: Sequence[Finding]) -> Card:
    trials = [trial for group in groups for trial in group.trials]
    used = sum(len(group.used) for group in groups)
    missing = sum(len(group.missing()) for group in groups)
    damaged = sum(len(loaded.damaged) for loaded in {group.loaded.path: group.loaded for group in groups}.values())
    failed = sum(trial.status is Status.FAILED for trial in trials)
    suspect = sum(trial.status is Status.SUSPECT for trial in trials)
    repeated = sum(trial.attempt > 1 for trial in trials)
    facts = [(failed, "failed"), (suspect, "suspect"), (repeated, "of a repeated block"), (missing, "not run"),
             (damaged, "damaged")]  # fmt: skip
    odd = [f"{n} {what}" for n, what in facts if n]
    blocks = sorted({(group.loaded.run.name, group.loaded.run.blocks) for group in groups})
    lines = [
        f"{'; '.join(odd)}." if odd else "No failed, suspect or missing trials.",
        f"{listed([count(n, 'block') for _, n in blocks])}, in random order.",
    ]
    links = tuple((f"{finding.ident} {finding.title}", f"#{finding.ident}") for finding in found)
    figure = Figure(
        "",
        f"{used} of {len(trials) + missing + damaged}",
        "trials used",
        None,
        "",
        False,
        "",
        not (failed or missing or damaged),
    )
    return Card("Data quality", (figure,), tuple(lines), links)


def notices(groups: Sequence[Group]) -> list[Notice]:
    """Return what makes the figures unfair, small or incomplete, the most serious first."""
    return [
        *_damaged(groups),
        *_unfinished(groups),
        *_skipped(groups),
        *_caveats(groups),
        *_unequal(groups),
        *(Notice("hosts", parts) for parts in disagreements(groups)),
        *_limited(groups),
        *_warned(groups),
        *_short(groups),
    ]


def _runs(groups: Sequence[Group]) -> list[LoadedRun]:
    return list({group.loaded.path: group.loaded for group in groups}.values())


def _unfinished(groups: Sequence[Group]) -> list[Notice]:
    sentences = []
    for loaded in _runs(groups):
        todo, total = len(loaded.unfinished), len(loaded.run.order)
        if todo:
            text = f": {total - todo} of {total} trials are done. Run the same command again to resume."
            sentences.append(Notice("unfinished", ((f"{loaded.run.name} is not finished", True), (text, False))))
    return sentences


def _skipped(groups: Sequence[Group]) -> list[Notice]:
    return [
        Notice("skipped", ((f"{arm} was not run", True), (f": {why}.", False)))
        for loaded in _runs(groups)
        for arm, why in loaded.run.skipped.items()
    ]


def _damaged(groups: Sequence[Group]) -> list[Notice]:
    sentences = []
    for loaded in _runs(groups):
        if loaded.damaged:
            trials = ", ".join(f"{name} ({error.id})" for name, error in loaded.damaged.items())
            head = f"Damaged trials of {loaded.run.name} are left out"
            sentences.append(Notice("damaged", ((head, True), (f": {trials}.", False))))
    return sentences


def _caveats(groups: Sequence[Group]) -> list[Notice]:
    """Return the caveats that the terminal prints too; with several groups, each begins with the group's title."""
    kinds: dict[str, Kind] = {DURABILITY: "durability", SUSPECT: "suspect"}
    return [
        Notice(kinds[kind], (*((f"{group.title}: ", False) for _ in groups[1:2]), *parts))
        for group in groups
        for kind, parts in caveats(group.rows)
    ]


def _unequal(groups: Sequence[Group]) -> list[Notice]:
    sentences = []
    for group in groups:
        for arm, lines in differences(group):
            text = f" and {group.baseline}: {'; '.join(lines)}. The ratio includes this. {group.title}."
            sentences.append(Notice("unequal", (("Unequal conditions: ", False), (arm, True), (text, False))))
    return sentences


def _limited(groups: Sequence[Group]) -> Iterator[Notice]:
    """Yield a notice for each group in which the device limited the baseline and a setup alike, and one for each
    run about the measurements of the bare device that a trial exceeded."""
    for group in groups:
        if arms := [row.fs_setup for row in group.rows if row.verdict == LIMITED]:
            both = listed([group.baseline, *arms])
            text = f" (W042): {both} stayed at what fio measured on the bare device, so they cannot be compared. "
            text += f"{group.title}."
            yield Notice("limited", (("The device was the limit", True), (text, False)))
    for loaded in _runs(groups):
        if loaded.exceeded:
            yield Notice("no-limit", no_limit(loaded.exceeded))


_WARNED: Final[tuple[tuple[Kind, str, str, str], ...]] = (
    ("burst", "W002", "Burst",
     "no checkpoint ended in the window, so the figures do not include most writes to the data files"),
    ("drain", "W003", "Borrowed throughput",
     f"the drain took more than 10{GROUP}% of the window; use the sustained figures"),
    ("unsteady", "W005", "No steady state", "throughput had a trend, so its mean depends on the window"),
)  # fmt: skip


def _warned(groups: Sequence[Group]) -> Iterator[Notice]:
    """Yield notices for the warnings of used trials that a reader must see next to the verdict."""
    for kind, warning, name, text in _WARNED:
        hit = [g.title for g in groups if any(w.id == warning for t in g.trials if t.id in g.used for w in t.warnings)]
        if hit:
            yield Notice(kind, ((name, True), (f" ({warning}): {text}. {listed(hit)}.", False)))


def _short(groups: Sequence[Group]) -> list[Notice]:
    windows = {
        (group.cells[0].window.warmup_s, group.cells[0].window.measure_s)
        for group in groups
        if group.cells[0].window.kind == "fixed" and group.cells[0].window.measure_s < SHORT_WINDOW_S
    }
    if not windows:
        return []
    lengths = listed([f"{duration_text(w)} of warm-up and {duration_text(m)} measured" for w, m in sorted(windows)])
    head = "These numbers are a smoke test; do not base a decision on them"
    text = f" (W001): {lengths} cover neither whole checkpoint cycles nor the periods of the filesystems."
    return [Notice("short", ((head, True), (text, False)))]


def disagreements(groups: Sequence[Group]) -> Iterator[Parts]:
    """Return a sentence for each arm whose ratio to the baseline differs between hosts."""
    same: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        same.setdefault((group.engine, group.workload, group.baseline), []).append(group)
    for (_, _, baseline), same_groups in same.items():
        trials = [trial for group in same_groups for trial in group.trials]
        metric = same_groups[0].metric
        for arm in by_host(trials, baseline, metric.name):
            if parts := disagreement(arm, metric, baseline):
                yield (*parts, (f" {same_groups[0].title}.", False))
