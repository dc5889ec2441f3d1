"""The answer in words: the first lines on the terminal, and the first screen of the page.

It is made of the tables that are shown below it, so words and numbers cannot differ. A sentence
is about a setup in all its tests, not about one table, and says no more than the intervals
support.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.compare.remarks import RemarkKind
from dbbench.compare.verdict import AHEAD, BEHIND, without_guard
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.metrics.table import Metric
from dbbench.model import Status, Verdict
from dbbench.report.sentences import DURABILITY, MOST_NAMED, SUSPECT, class_of, why_without
from dbbench.report.verdicts import VerdictTable
from dbbench.results import LoadedRun
from dbbench.units import GROUP, change, count, duration_text, grouped, join_words

NO_RESULT: Final = "no result"
TOO_FEW: Final = "too few blocks"
# kinds of caveats
SHORT = "short"
UNFINISHED = "unfinished"
FAILED = "failed"
SKIPPED = "skipped"
_NAMED: Final = {
    0.5: "half as fast",
    1 / 3: "a third as fast",
    0.25: "a quarter as fast",
    2.0: "twice as fast",
}
_NEAR: Final = 1.15  # ratios within this factor of a named one have its name
_WORDS: Final = {2: "both tests", 3: "all three tests", 4: "all four tests", 5: "all five tests"}


class Answer(NamedTuple):
    """`sentences` are the answer, the most certain first. `caveats` are (kind, sentence): what a
    reader must know about it. The kinds are SHORT, UNFINISHED, FAILED, SKIPPED, and DURABILITY
    and SUSPECT of `sentences`.
    """

    sentences: tuple[str, ...]
    caveats: tuple[tuple[str, str], ...]


class Pair(NamedTuple):
    """A setup and the baseline in one table. `outcome` is the verdict, NO_RESULT or TOO_FEW."""

    table: VerdictTable
    base: Row
    row: Row

    @property
    def outcome(self) -> str:
        if self.row.ratio is None:
            return NO_RESULT
        return TOO_FEW if self.row.lo is None else self.row.verdict


def answer(tables: Sequence[VerdictTable], runs: Sequence[LoadedRun] = ()) -> Answer:
    """Return the answer of the first table of each test; with the runs that they were made of, also
    the caveats about the runs.
    """
    first: dict[tuple[str, ...], VerdictTable] = {}
    for table in tables:
        if table.rows:
            first.setdefault(
                (table.engine, table.workload, table.variant, table.rows[0].fs_setup), table
            )
    judged = list(first.values())
    pairs = [
        pair for table in judged if table.rows[0].value is not None for pair in pairs_of(table)
    ]
    sentences = [*_differences(pairs, judged), *_others(pairs, judged), *_without_pairs(judged)]
    caveats = [*_short(runs), *_incomplete(runs), *_durability(judged), *_suspect(judged)]
    return Answer(tuple(sentences) or ("Nothing was measured.",), tuple(caveats))


def pairs_of(table: VerdictTable) -> list[Pair]:
    """Return the setups that are ranked: without the guard, and without those of another durability
    class.
    """
    base, *rows = without_guard(table.rows)
    return [Pair(table, base, row) for row in rows if not row.mixed_durability]


def _differences(pairs: Sequence[Pair], tables: Sequence[VerdictTable]) -> Iterator[str]:
    certain = [pair for pair in pairs if pair.outcome in (*AHEAD, *BEHIND)]
    names = dict.fromkeys(pair.row.fs_setup for pair in pairs)
    if (
        len(names) > 1
        and all(pair.outcome in BEHIND for pair in pairs)
        and len({p.base.fs_setup for p in pairs}) == 1
    ):
        word = "fastest" if all(pair.table.metric.words == "speed" for pair in pairs) else "best"
        yield f"**{pairs[0].base.fs_setup}** is the {word} setup{_where(pairs, tables)}."
    of_names = [pair for name in names for pair in certain if pair.row.fs_setup == name]
    for of in _alike(of_names, tables):
        for together in [of] if len(of) > 2 else [{name: own} for name, own in of.items()]:
            own = [pair for pairs_of_setup in together.values() for pair in pairs_of_setup]
            are = "is" if len(together) == 1 else "are"
            yield f"{_names(list(together))} {are} {', and '.join(_clauses(own, tables))}."


def _alike(pairs: Iterable[Pair], tables: Sequence[VerdictTable]) -> list[dict[str, list[Pair]]]:
    """Return the pairs by setup; setups that have the same outcomes in the same tests are together."""
    by_setup = grouped(pairs, lambda pair: pair.row.fs_setup)
    alike = grouped(
        by_setup.items(),
        lambda setup: tuple(
            (pair.base.fs_setup, _place(pair.table, tables), pair.outcome) for pair in setup[1]
        ),
    )
    return [dict(setups) for setups in alike.values()]


def _clauses(pairs: Sequence[Pair], tables: Sequence[VerdictTable]) -> list[str]:
    base = pairs[0].base.fs_setup
    clauses = list[str]()
    for alike in grouped(pairs, lambda pair: pair.outcome).values():
        if name := _near(alike):
            clauses.append(f"about {name}{'' if clauses else f' as {base}'}{_where(alike, tables)}")
            continue
        for metric, own in grouped(alike, _sized_by).items():
            clauses.append(
                _size(own, metric, "" if clauses else f" than {base}") + _where(own, tables)
            )
    return clauses


def _sized_by(pair: Pair) -> Metric | None:
    """Return None for a throughput, whose changes may be named together with others, else the
    metric.
    """
    metric = pair.table.metric
    return None if metric.words == "speed" and metric.better == "higher" else metric


def _near(pairs: Sequence[Pair]) -> str:
    """Return "half as fast" if all pairs are near that; "" if they are not near a ratio that has a
    name.
    """
    speeds = [
        pair.row.ratio if _sized_by(pair) is None else 1 / pair.row.ratio
        for pair in pairs
        if pair.row.ratio
    ]
    if any(pair.table.metric.words != "speed" for pair in pairs) or len(speeds) < len(pairs):
        return ""
    named = (
        name
        for ratio, name in _NAMED.items()
        if all(1 / _NEAR <= speed / ratio <= _NEAR for speed in speeds)
    )
    return next(named, "")


def _size(pairs: Sequence[Pair], metric: Metric | None, than: str) -> str:
    """Return "12 to 15 % slower than" of throughputs, and "slower than ext4 (duration +50.0 %)" of
    another metric.
    """
    ratios = sorted(pair.row.ratio for pair in pairs if pair.row.ratio is not None)
    word = pairs[0].outcome
    if metric is not None:
        changes = " to ".join(dict.fromkeys(change(ratio) for ratio in (ratios[0], ratios[-1])))
        return f"{word}{than} ({metric.label} {changes})"
    percents = sorted(abs(100 * (ratio - 1)) for ratio in ratios)
    ends = dict.fromkeys(
        f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}" for percent in percents
    )
    lowest = next(iter(ends))
    highest = next(reversed(ends))
    return f"{lowest if lowest == highest else f'{lowest} to {highest}'}{GROUP}% {word}{than}"


def _others(pairs: Sequence[Pair], tables: Sequence[VerdictTable]) -> Iterator[str]:
    for outcome in ("same", "inconclusive", Verdict.LIMITED, TOO_FEW, NO_RESULT):
        for of in _alike((pair for pair in pairs if pair.outcome == outcome), tables):
            together = [pair for own in of.values() for pair in own]
            yield _outcome(outcome, together, list(of), _where(together, tables))


def _outcome(outcome: str, pairs: Sequence[Pair], names: list[str], where: str) -> str:
    base = pairs[0].base.fs_setup
    are = "is" if len(names) == 1 else "are"
    if outcome == "same":
        margin = f"{100 * pairs[0].row.margin:.3g}{GROUP}%"
        return f"{_names(names)} {are} the same as {base} within {margin}{where}."
    if outcome == TOO_FEW:
        least = f"{max(pair.row.n for pair in pairs)} of at least {LEAST_BLOCKS} blocks are done"
        return f"{_names(names)} cannot be compared with {base} yet{where}: {least}."
    if outcome == NO_RESULT:
        failed = sum(
            int(note.values["failed"])
            for pair in pairs
            for note in pair.row.notes
            if note.kind is RemarkKind.FAILED
        )
        why = f": {count(failed, 'trial')} failed" if failed else ""
        return (
            f"{_names(names)} {'has' if len(names) == 1 else 'have'} no result to compare with "
            f"{base}{where}{why}."
        )
    together = [base, *names] if len(names) == 1 else names
    apart = "" if len(names) == 1 else f" from {base}"
    if outcome == Verdict.LIMITED:
        return (
            f"{_names([base, *names])} reached the limit of the device{where}, so they cannot be "
            "compared there."
        )
    return f"{_names(together)} cannot be told apart{apart} yet{where}{_price(pairs)}."


def _price(pairs: Sequence[Pair]) -> str:
    """Return ": 8 to 90 more blocks would be needed"."""
    notes = [note for pair in pairs for note in pair.row.notes]
    blocks = sorted(
        int(note.values["blocks"])
        for note in notes
        if note.kind in (RemarkKind.MORE_BLOCKS, RemarkKind.MORE_BLOCKS_MINUTES)
    )
    ends = [str(n) for n in dict.fromkeys((*blocks[:1], *blocks[-1:]))]
    if any(note.kind is RemarkKind.TOO_MANY_BLOCKS for note in notes):
        ends = [*ends[:1], "more than 90"]
    noun = "block" if ends == ["1"] else "blocks"
    return f": {' to '.join(ends)} more {noun} would be needed" if ends else ""


def _without_pairs(tables: Sequence[VerdictTable]) -> Iterator[str]:
    missing = [table for table in tables if table.rows[0].value is None]
    for (base, why), of in grouped(
        missing, lambda t: (t.rows[0].fs_setup, why_without(t.rows[0]))
    ).items():
        yield f"**Nothing can be compared**{_in_tests(of, tables)}: of the baseline {base}, {why}."
    measured = [
        table for table in tables if table.rows[0].value is not None and not pairs_of(table)
    ]
    for name, own in grouped(measured, lambda table: table.rows[0].fs_setup).items():
        if any(len(without_guard(table.rows)) > 1 for table in own):
            yield f"No other setup has the durability class of **{name}**."
            continue
        values = [
            table.metric.with_unit(table.rows[0].value)
            + (f" in {_place(table, tables)}" if len(tables) > 1 else "")
            for table in own
        ]
        yield f"**{name}** reached {join_words(values)}; no other setup was measured."


def _where(pairs: Iterable[Pair], tables: Sequence[VerdictTable]) -> str:
    return _in_tests([pair.table for pair in pairs], tables)


def _in_tests(some: Sequence[VerdictTable], tables: Sequence[VerdictTable]) -> str:
    """Return " in all three tests", " in postgres and mariadb", " in 4 of 9 tests", or "" if there
    is only one.
    """
    base = some[0].rows[0].fs_setup
    places = dict.fromkeys(_place(table, tables) for table in some)
    total = len({_place(table, tables) for table in tables if table.rows[0].fs_setup == base})
    if total == 1:
        return ""
    if len(places) == total or len(places) > 2:
        few = f"{len(places)} of {total} tests"
        return f" in {_WORDS.get(total, f'all {total} tests') if len(places) == total else few}"
    return (
        f" {'with' if all(table.variant in places for table in some) else 'in'} "
        f"{join_words(list(places))}"
    )


def _place(table: VerdictTable, tables: Sequence[VerdictTable]) -> str:
    """Return what distinguishes the table from the others: engine, workload and variant as far as
    they differ.
    """
    engines = {each.engine for each in tables}
    workloads = {each.workload for each in tables}
    words = [table.engine] if len(engines) > 1 else []
    words += [table.workload] if len(workloads) > 1 or not (words or table.variant) else []
    return " ".join([*words, table.variant]).strip()


def _names(names: list[str]) -> str:
    shown = (
        names
        if len(names) <= MOST_NAMED
        else [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others"]
    )
    return join_words([f"**{name}**" for name in shown])


def _short(runs: Sequence[LoadedRun]) -> Iterator[tuple[str, str]]:
    windows = {
        cell.window.measure_s
        for run in runs
        for cell in run.run.cells
        if cell.window.kind == "fixed"
    }
    if short := sorted(seconds for seconds in windows if seconds < SHORT_WINDOW_S):
        lengths = join_words([duration_text(seconds) for seconds in short])
        burst = any(
            warning.id == "W002"
            for run in runs
            for trial in run.trials
            for warning in trial.warnings
        )
        why = ", too short to contain a checkpoint" if burst else ""
        yield (
            SHORT,
            f"**This was a smoke test** (windows of {lengths}{why}); for a decision: dbbench init",
        )


def _incomplete(runs: Sequence[LoadedRun]) -> Iterator[tuple[str, str]]:
    for run in runs:
        name = "The run" if len(runs) == 1 else run.run.name
        total = len(run.run.order)
        if run.remaining:
            done = total - len(run.remaining)
            text = f"{done} of {total} trials are done. The same dbbench run command resumes it."
            yield UNFINISHED, f"**{name} is not finished**: {text}"
        if failed := sum(trial.status is Status.FAILED for trial in run.trials):
            yield FAILED, f"**{failed} of {count(len(run.trials), 'trial')} failed**."
        for setup, why in run.run.skipped.items():
            yield SKIPPED, f"**{setup} was not run**: {why}."


def _durability(tables: Sequence[VerdictTable]) -> Iterator[tuple[str, str]]:
    unlike = [
        (row, table.rows[0])
        for table in tables
        for row in without_guard(table.rows)[1:]
        if row.mixed_durability
    ]
    texts = dict.fromkeys(
        (row.fs_setup, class_of(row), base.fs_setup, class_of(base)) for row, base in unlike
    )
    for name, own, base, of_base in texts:
        text = (
            f"**{name}** is not ranked: its durability class is {own}, that of {base} is {of_base}."
        )
        yield DURABILITY, f"{text} After a power loss they do not preserve the same data."


def _suspect(tables: Sequence[VerdictTable]) -> Iterator[tuple[str, str]]:
    counts = []
    for table in tables:
        suspect = sum(
            int(note.values["suspect"])
            for row in table.rows
            for note in row.notes
            if note.kind is RemarkKind.SUSPECT
        )
        trials = sum(row.trials for row in table.rows)
        counts += [(suspect, trials)] if 2 * suspect > trials else []
    if counts:
        suspect, trials = (sum(column) for column in zip(*counts, strict=True))
        verb = "is" if trials == 1 else "are"
        yield (
            SUSPECT,
            f"**{suspect}** of {count(trials, 'trial')} {verb} suspect: read these results with "
            "care.",
        )
