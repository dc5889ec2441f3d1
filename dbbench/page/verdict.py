"""The answer in a sentence, three cards, and what makes the figures unfair or small: said before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.model import Status
from dbbench.page.fair import differences
from dbbench.page.findings import Finding
from dbbench.page.groups import Group
from dbbench.page.hosts import disagreements
from dbbench.page.numbers import change, count, interval, listed, of_metric, seconds, with_unit
from dbbench.page.theme import Mark
from dbbench.summary import SHORT_WINDOW_S

Part = tuple[str, bool]  # text, bold
Parts = tuple[Part, ...]
MOST_TOLD: Final = 5  # arms in one sentence; the table has all
SIGNS: Final = {  # never by colour alone
    "faster": "▲", "better": "▲", "slower": "▼", "worse": "▼", "same": "=", "inconclusive": "?", "device-limited": "⊤",
    "baseline": "",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A large number on a card. `sure` is False where the interval does not carry the card's title."""

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
    """Something that a reader must know before the figures."""

    kind: Literal[
        "short", "durability", "unfinished", "failed", "burst", "drain", "unsteady", "unequal", "limited", "hosts"
    ]
    parts: Parts


@dataclass(frozen=True)
class Verdict:
    """All of section 1."""

    sentences: tuple[tuple[Group, Parts], ...]
    notices: tuple[Notice, ...]
    cards: tuple[Card, ...]


def verdict(groups: Sequence[Group], found: Sequence[Finding]) -> Verdict:
    """The head of the page. `found` is what section 4 lists."""
    sentences = tuple((group, sentence(group)) for group in groups)
    speed = all(group.metric.words == "speed" for group in groups)
    best, worst = ("Fastest", "Slowest") if speed else ("Best", "Worst")
    if all(len(_ranked(group)) < 2 for group in groups):
        best = "Measured"
    cards = [
        Card(best, tuple(f for g in groups if (f := _best(g)))),
        Card(worst, tuple(f for g in groups if (f := _worst(g)))),
    ]
    return Verdict(
        sentences, tuple(notices(groups)), (*(card for card in cards if card.figures), _quality(groups, found))
    )


def sentence(group: Group) -> Parts:
    """One group's answer. A word is only what the interval carries; arms of another class are left to a notice."""
    base, ranked = group.rows[0], [row for row in group.rows[1:] if not group.apart(row)]
    if base.value is None:
        return _without_baseline(group)
    if len(group.rows) == 1:
        text = f" reached {with_unit(base.value, group.metric)}; there is nothing to compare it with."
        return ((base.fs_setup, True), (text, False))
    measured = [row for row in ranked if row.ratio is not None]
    if not measured:
        return ((f"Nothing can be compared with {base.fs_setup} yet.", False),)
    speed = group.metric.words == "speed"
    if all(row.verdict in BEHIND for row in measured):
        parts: list[Part] = [(f"{base.fs_setup} is the {'fastest' if speed else 'best'}", True)]
    elif any(row.verdict in AHEAD for row in measured):
        parts = []
    else:
        sure = all(row.verdict in (*BEHIND, "same") for row in measured)
        said = "No setup is" if sure else "No setup is shown to be"
        parts = [(f"{said} {'faster' if speed else 'better'} than ", False), (base.fs_setup, True)]
    told = measured if len(measured) <= MOST_TOLD else [*measured[: MOST_TOLD - 1], measured[-1]]
    for row in told:
        parts += [("; ", False)] if parts else []
        parts += [(row.fs_setup, True), (_said(row, group), False)]
    if len(told) < len(measured):
        parts.append((f"; {len(measured) - len(told)} more are between them", False))
    rest = [row.fs_setup for row in ranked if row.ratio is None]
    if rest:
        parts.append((f"; {listed(rest)}: nothing to compare", False))
    return (*parts, (".", False))


def _said(row: Row, group: Group) -> str:
    than = f" than {group.baseline}" if row.verdict in AHEAD else ""
    what = "" if group.metric.better == "higher" else f"{group.metric.label} "
    if row.lo is None:
        return f" {what}{change(row.ratio)}, without an interval ({count(row.n, 'block')} of the 3 that it takes)"
    word = {
        "same": "is the same within 5\u202f%",
        "inconclusive": "is inconclusive",
        "device-limited": "is held at the device's ceiling, which tells nothing of the filesystems",
    }.get(row.verdict, f"is {row.verdict}")
    return f" {word}{than} ({what}{change(row.ratio)}, CI {interval(row.lo, row.hi)})"


def _without_baseline(group: Group) -> Parts:
    failed = sum(trial.status is Status.FAILED for trial in group.trials_of(group.baseline))
    why = f"{count(failed, 'trial')} failed" if failed else "no trial was finished"
    parts: list[Part] = [("Nothing can be compared", True), (f": of the baseline {group.baseline} {why}", False)]
    others = [f"{r.fs_setup} {with_unit(r.value, group.metric)}" for r in group.rows[1:] if r.value is not None]
    return (*parts, (f". Measured, for itself: {'; '.join(others)}." if others else ".", False))


def _ranked(group: Group) -> list[Row]:
    """Rows with a value of the baseline's class, best first."""
    sign = -1 if group.metric.better == "higher" else 1
    known = [(row.value, row) for row in group.rows if row.value is not None and not group.apart(row)]
    return [row for _, row in sorted(known, key=lambda pair: sign * pair[0])]


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
        return _figure(
            group, best, f"{change(best.ratio)} against {group.baseline}, CI {interval(best.lo, best.hi)}.", True
        )
    if best.ratio is None:
        return _figure(group, best, f"No block in which {group.baseline} is good too.", False)
    return _figure(group, best, f"By its mean only: {best.verdict} against {group.baseline}.", best.verdict == "same")


def _lead(others: list[Row], same: list[str], unsettled: list[str]) -> str:
    if unsettled:
        return f"Not shown to be ahead of {listed(unsettled)}."
    if same:
        return f"{listed(same)} the same within 5\u202f%."
    return f"Next: {others[0].fs_setup}, {change(others[0].ratio)}." if others else "Nothing to compare it with."


def _worst(group: Group) -> Figure | None:
    ranked = _ranked(group)
    if len(ranked) < 2:
        return None
    worst = ranked[-1]
    if worst.verdict == "baseline":
        unsettled = [row.fs_setup for row in ranked[:-1] if row.verdict not in AHEAD]
        text = f"Not shown to be behind {listed(unsettled)}." if unsettled else "Behind all others."
        return _figure(group, worst, text, not unsettled)
    if worst.ratio is None:
        return _figure(group, worst, f"No block in which {group.baseline} is good too.", False)
    if worst.lo is None:
        return _figure(group, worst, f"{change(worst.ratio)}, without an interval.", False)
    text = f"{change(worst.ratio)} against {group.baseline}, CI {interval(worst.lo, worst.hi)}."
    return _figure(group, worst, text, worst.verdict in BEHIND)


def _figure(group: Group, row: Row, text: str, sure: bool) -> Figure:
    unit = group.metric.unit if group.metric.unit != "bytes" else ""
    return Figure(group.title, of_metric(row.value, group.metric), unit, group.marks[row.fs_setup],
                  row.durability_class, group.apart(row), text, sure)  # fmt: skip


def _quality(groups: Sequence[Group], found: Sequence[Finding]) -> Card:
    trials = [trial for group in groups for trial in group.trials]
    used = sum(len(group.used) for group in groups)
    missing = sum(len(group.missing()) for group in groups)
    failed = sum(trial.status is Status.FAILED for trial in trials)
    suspect = sum(trial.status is Status.SUSPECT for trial in trials)
    repeated = sum(trial.attempt > 1 for trial in trials)
    facts = [(failed, "failed"), (suspect, "suspect"), (repeated, "of a repeated block"), (missing, "not driven")]
    odd = [f"{n} {what}" for n, what in facts if n]
    blocks = sorted({(group.loaded.run.name, group.loaded.run.plan.blocks) for group in groups})
    lines = [
        f"{'; '.join(odd)}." if odd else "None failed, none suspect, none missing.",
        f"{listed([count(n, 'block') for _, n in blocks])}, in random order.",
    ]
    links = tuple((f"{one.ident} {one.title}", f"#{one.ident}") for one in found)
    figure = Figure(
        "", f"{used} of {len(trials) + missing}", "trials used", None, "", False, "", not failed and not missing
    )
    return Card("Data quality", (figure,), tuple(lines), links)


def notices(groups: Sequence[Group]) -> list[Notice]:
    """What makes the figures unfair, small or incomplete, the gravest first."""
    found = [
        *_unfinished(groups),
        *_durability(groups),
        *_unequal(groups),
        *_unlike(groups),
        *_limited(groups),
        *_short(groups),
    ]
    for kind, warning, text in (
        (
            "burst",
            "W002",
            "no checkpoint ended in the window: what the filesystem does with the data files is not in it",
        ),
        ("drain", "W003", "the drain took above 10\u202f% of the window: read the sustained figures"),
        ("unsteady", "W005", "throughput had a trend: its mean depends on when one looks"),
    ):
        hit = [g.title for g in groups if any(w.id == warning for t in g.trials if t.id in g.used for w in t.warnings)]
        if hit:
            name = {"burst": "Burst", "drain": "Borrowed throughput", "unsteady": "No steady state"}[kind]
            found.append(Notice(kind, ((name, True), (f" ({warning}): {text}. {listed(hit)}.", False))))  # type: ignore[arg-type]
    return found


def _unfinished(groups: Sequence[Group]) -> list[Notice]:
    found = []
    for loaded in {group.loaded.path: group.loaded for group in groups}.values():
        todo, total = len(loaded.unfinished), len(loaded.run.order)
        if todo:
            text = f": {total - todo} of {total} trials are done, {todo} are missing. The same command resumes it."
            found.append(Notice("unfinished", ((f"{loaded.run.name} is not finished", True), (text, False))))
    return found


def _durability(groups: Sequence[Group]) -> list[Notice]:
    found = []
    for group in groups:
        for row in group.rows[1:]:
            if group.apart(row):
                size = f" ({change(row.ratio)})" if row.ratio is not None else ""
                text = (
                    f"{size} has the durability class {row.durability_class}, {group.baseline} has "
                    f"{group.rows[0].durability_class}: they do not promise the same after a "
                    f"power cut, so it is not ranked. {group.title}."
                )
                found.append(Notice("durability", (("Mixed durability: ", False), (row.fs_setup, True), (text, False))))
    return found


def _unequal(groups: Sequence[Group]) -> list[Notice]:
    found = []
    for group in groups:
        for arm, lines in differences(group):
            text = f" and {group.baseline}: {'; '.join(lines)}. That is in the ratio too. {group.title}."
            found.append(Notice("unequal", (("Unequal conditions: ", False), (arm, True), (text, False))))
    return found


def _unlike(groups: Sequence[Group]) -> list[Notice]:
    return [
        Notice("hosts", (("The hosts disagree about ", False), (arm, True), (text, False)))
        for arm, text in disagreements(groups)
    ]


def _limited(groups: Sequence[Group]) -> list[Notice]:
    hit = [g.title for g in groups if any(w.id == "W042" for t in g.trials if t.id in g.used for w in t.warnings)]
    if not hit:
        return []
    text = " (W042): it stood flat at the ceiling that fio found on it, which tells nothing of filesystems. "
    return [Notice("limited", (("The device was the limit", True), (f"{text}{listed(hit)}.", False)))]


def _short(groups: Sequence[Group]) -> list[Notice]:
    windows = {
        (group.cells[0].window.warmup_s, group.cells[0].window.measure_s)
        for group in groups
        if group.cells[0].window.kind == "fixed" and group.cells[0].window.measure_s < SHORT_WINDOW_S
    }
    if not windows:
        return []
    said = listed([f"{seconds(w)} of warm-up and {seconds(m)} measured" for w, m in sorted(windows)])
    text = f" (W001): {said} see neither whole checkpoint cycles nor the filesystems' own periods."
    return [Notice("short", (("Windows this short are for seeing, not for buying", True), (text, False)))]
