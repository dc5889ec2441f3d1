"""Sentences for the terminal, Markdown and the page, which sets words between two asterisks in
bold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dbbench.compare import Row
from dbbench.compare.interaction import Curve, Interaction, LevelRatio
from dbbench.compare.remarks import RemarkKind
from dbbench.compare.unpaired import ByHost
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.metrics.table import METRICS
from dbbench.model import Verdict, title_of
from dbbench.results import Exceeded
from dbbench.results.at_ceiling import BOTH, FLUSHED
from dbbench.units import GROUP, change, count, interval, join_words, level_text, number

_DID: Final = {
    "reads": "read",
    "writes": "wrote",
    BOTH: "read and wrote",
}
MOST_NAMED: Final = 5  # setups in a sentence; the table lists all
SUSPECT: Final = "suspect"
DURABILITY: Final = "durability"


def plain_text(sentence: str) -> str:
    """Return the sentence as plain text."""
    return sentence.replace("**", "").replace(GROUP, " ")


def freedom(row: Row) -> str:
    """Return where the degrees of freedom of a row's interval come from; "" without an interval."""
    if row.df is None:
        return ""
    shared = row.df_shared or 0.0
    from_blocks = f"{row.df - shared:.3g} degrees of freedom from this pair's blocks"
    if shared:
        return f"{from_blocks}, {shared:.1f} from other pairs of the run"
    return from_blocks


def why_without(base: Row) -> str:
    """Return why the baseline has no value."""
    counts = {note.kind: note.values for note in base.notes}
    if RemarkKind.FAILED in counts:
        return f"{count(int(counts[RemarkKind.FAILED]['failed']), 'trial')} failed"
    if RemarkKind.RATE_MISSED in counts:
        return (
            f"{count(int(counts[RemarkKind.RATE_MISSED]['missed']), 'trial')} missed the "
            "required rate of inserts"
        )
    return "no trial finished"


def class_of(row: Row) -> str:
    """Return the durability class of a row, and the reports of losses that are known."""
    reports = [
        str(note.values["reports"]) for note in row.notes if note.kind is RemarkKind.REPORTED
    ]
    return row.durability_class + (f" ({', '.join(reports)})" if reports else "")


def crossing(curve: Curve, baseline: str) -> str:
    """Return the sentence about an arm that is ahead of the baseline at one value and behind it at
    another.
    """
    if curve.crosses is None:
        return ""
    first, second = (
        f"{row.verdict} at {curve.parameter}={level:g} ({change(row.ratio)})"
        for level, row in curve.crosses
    )
    where = ", ".join(filter(None, (f"{curve.engine} {curve.workload}", curve.rest)))
    return f"{where}: **{curve.fs_setup}** is {first} and {second}, compared with {baseline}."


def interaction(about: Interaction) -> str:
    """Whether the comparison of the filesystems depends on a factor of the plan."""
    lead, rest = {
        "order-depends": ("the order of the filesystems depends on ", _ratios(about)),
        "ratio-depends": ("the ratios of the filesystems depend on ", _ratios(about)),
        "same": (
            "the ratios of the filesystems do not depend on ",
            f": none changes by more than {100 * about.margin:.3g}{GROUP}%",
        ),
        "same-order": ("same order at every level of ", _sides(about)),
        "inconclusive": (
            "it is inconclusive whether the ratios of the filesystems depend on ",
            _changes(about),
        ),
    }[about.verdict]
    title = f"{about.engine} {title_of(about.workload, about.variant)}"
    return f"{title}: {lead}**{about.factor}**{rest}.{_flush_threshold(about)}"


def _flush_threshold(about: Interaction) -> str:
    """Return from which delay of a flush on no ratio differs; "" for other factors."""
    differ: dict[int, list[str]] = {}
    unlike: list[int] = []
    for level, delay_ms in about.flush_ms.items():
        ratios = [of for of in about.ratios if of.level == level]
        beyond = [of for of in ratios if not _within(of, about.margin)]
        # A kernel may make the same delay of two levels.
        arms = differ.setdefault(delay_ms, [])
        arms += [of.fs_setup for of in beyond if of.verdict in (*AHEAD, *BEHIND)]
        if beyond or not ratios:
            unlike.append(delay_ms)
    if not differ or not any(of.lo is not None for of in about.ratios):
        return ""
    within = f"every ratio is within {100 * about.margin:.3g}{GROUP}%"
    if not unlike:
        return f" **The filesystem matters at none of these delays per flush**: {within}."
    last = unlike[-1]
    arms = list(dict.fromkeys(differ[last]))
    verb = "differs" if len(arms) == 1 else "differ"
    same = [delay_ms for delay_ms in differ if delay_ms > last]
    if same:
        before = f"{join_words(arms)} {verb}" if arms else "this is inconclusive"
        lead = f"**From {same[0]} ms per flush on, the filesystem no longer matters**"
        return f" {lead}: {within}; at {last} ms, {before}."
    if arms:
        lead = f"**The filesystem still matters at {last} ms per flush**"
        return f" {lead}: {join_words(arms)} {verb}."
    why = "levels that are judged together need clearer differences"
    return f" Whether the filesystem still matters at {last} ms per flush is inconclusive: {why}."


def _within(of: LevelRatio, margin: float) -> bool:
    if of.lo is None or of.hi is None:
        return False
    return 1 / (1 + margin) <= of.lo and of.hi <= 1 + margin


def _ratios(about: Interaction) -> str:
    texts = []
    arms = list(
        dict.fromkeys(of.fs_setup for of in about.contrasts if of.verdict is Verdict.DEPENDS)
    )
    # Of each setup its ratio at every level, and how much that changes.
    for arm in arms[:MOST_NAMED]:
        ratios = [
            f"{change(of.ratio)} ({of.verdict}) with {about.factor}={level_text(of.level)}"
            for of in about.ratios
            if of.fs_setup == arm
        ]
        changes = [
            f"{change(of.change)} from {level_text(of.reference)} to {level_text(of.level)}, "
            f"CI {interval(of.lo, of.hi)}"
            for of in about.contrasts
            if of.fs_setup == arm and of.verdict is Verdict.DEPENDS
        ]
        texts.append(f"{arm} is {join_words(ratios)}; its ratio changes by {join_words(changes)}")
    further = (
        f"; and {count(len(arms) - MOST_NAMED, 'other setup')}" if len(arms) > MOST_NAMED else ""
    )
    return f", compared with {about.baseline}: {'; '.join(texts)}{further}"


def _sides(about: Interaction) -> str:
    words = {of.fs_setup: of.verdict for of in about.ratios}
    each = join_words([f"{arm} is {word}" for arm, word in words.items()])
    return f", compared with {about.baseline}: {each}. Whether the ratios change is inconclusive"


def _changes(about: Interaction) -> str:
    if not about.contrasts:
        return ": no setup can be compared at two of its levels"
    if any(of.verdict is Verdict.LIMITED for of in about.contrasts):
        return ": the device was the limit"
    if any(of.lo is None for of in about.contrasts):
        return ": every combination needs a result of at least 3 blocks"
    widest = max(about.contrasts, key=lambda of: abs(of.change - 1))
    return (
        f": the largest change is that of {widest.fs_setup} to {about.baseline}, "
        f"{change(widest.change)} from {level_text(widest.reference)} to "
        f"{level_text(widest.level)} (CI {interval(widest.lo, widest.hi)})"
    )


def no_limit(exceeded: Exceeded) -> str:
    """Return the condition about a measurement of the bare device that a trial exceeded."""
    before = number(exceeded.before)
    after = (
        "" if exceeded.after is None else f" before the run and {number(exceeded.after)} after it"
    )
    if not exceeded.side.endswith(FLUSHED):
        rate = f"{_DID[exceeded.side]} {number(exceeded.rate)}{GROUP}{exceeded.unit}"
        measured = f"{before}{GROUP}{exceeded.unit}{after}"
        return f"fio measured {measured}, but {exceeded.arm} {rate}: this is no limit of the device"
    size = exceeded.side.removeprefix("write_").removesuffix(f"k{FLUSHED}")
    flushes = "" if exceeded.flushes is None else f" with {number(exceeded.flushes)} flushes"
    return (
        f"fio measured {before} flushed single writes of {size} KiB per second{after}, and "
        f"{exceeded.arm} committed {number(exceeded.rate)} transactions per second{flushes}: "
        "several share a flush, so the share of the ceiling is not shown"
    )


def disagreement(arm: ByHost, baseline: str) -> str:
    """Return the ratios of an arm on hosts that do not agree about it; "" if they agree."""
    if arm.spread is None or not arm.spread.disagree:
        return ""
    ratios = join_words([f"{change(host.ratio)} on {host.host}" for host in arm.hosts])
    return (
        f"The hosts disagree about **{arm.fs_setup}** compared with {baseline} "
        f"({METRICS[arm.metric].label}): {ratios}. The pooled ratio holds for none of them."
    )


def agreement(arm: ByHost) -> str:
    """Return whether the hosts agree about an arm, with the figures of the test."""
    if arm.spread is None:
        return "more blocks per host are needed to tell whether the hosts agree"
    word = "the hosts disagree" if arm.spread.disagree else "no sign that the hosts disagree"
    figures = (
        f"Q {arm.spread.q:.3g} over {len(arm.hosts)} hosts, p {arm.spread.p:.2g}, I² "
        f"{100 * arm.spread.i2:.0f} %"
    )
    return f"{word} ({figures})"


def by_host(arm: ByHost) -> str:
    """Return an arm with its ratio on each host."""
    hosts = [
        f"{host.host} {change(host.ratio)}"
        + ("" if host.lo is None else f" ({interval(host.lo, host.hi)})")
        + f", {count(host.n, 'block')}"
        for host in arm.hosts
    ]
    return f"{arm.fs_setup} by host: {'; '.join(hosts)}; {agreement(arm)}"


def join(sentences: Iterable[str]) -> list[str]:
    """Return the sentences as plain text."""
    return [plain_text(sentence) for sentence in sentences if sentence]
