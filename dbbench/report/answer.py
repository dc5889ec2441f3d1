"""The answer in words: the first lines on the terminal, and the first screen of the page.

It is made of the tables that are shown below it, so words and numbers cannot differ. A sentence
is about a setup in all its tests, not about one table, and says no more than the intervals
support.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.compare.remarks import PRICES, RemarkKind, has
from dbbench.compare.verdict import AHEAD, BEHIND, without_guard
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.model import Status, Verdict
from dbbench.report.pairs import (
    ANY,
    MOST_SIZES,
    NO_RESULT,
    TOO_FEW,
    Pair,
    ends_text,
    in_tests,
    is_disturbed,
    names_text,
    near,
    pairs_of,
    size_text,
    sized_by,
    values_sum,
    where_of,
    with_places,
)
from dbbench.report.recommendation import recommend
from dbbench.report.sentences import DURABILITY, SUSPECT, class_of, why_without
from dbbench.report.verdicts import VerdictTable
from dbbench.results import LoadedRun
from dbbench.units import GROUP, count, duration_text, group_by, join_words

# kinds of caveats
SHORT = "short"
UNFINISHED = "unfinished"
FAILED = "failed"
SKIPPED = "skipped"
WARM = "warm"


class Answer(NamedTuple):
    """`recommendation` says what to do, "" if no setup can be chosen. `sentences` are the answer, the
    most certain first. `caveats` are (kind, sentence): what a reader must know about it. The
    kinds are SHORT, UNFINISHED, FAILED, SKIPPED, WARM, and DURABILITY and SUSPECT of `sentences`.
    """

    recommendation: str
    sentences: tuple[str, ...]
    caveats: tuple[tuple[str, str], ...]


def answer(tables: Sequence[VerdictTable], runs: Sequence[LoadedRun] = ()) -> Answer:
    """Return the answer of the first table of each test; with the runs that they were made of, also
    the caveats about the runs.
    """
    # With --metric all a test has several tables.
    first: dict[tuple[str, ...], VerdictTable] = {}
    for table in tables:
        if table.rows:
            first.setdefault((*table.group, table.rows[0].fs_setup), table)
    judged = with_places(list(first.values()))
    pairs: list[Pair] = []
    for table in judged:
        if table.rows[0].value is not None:
            pairs += pairs_of(table)
    sentences = [*_differences(pairs), *_others(pairs), *_without_pairs(judged)]
    caveats = [*_short(runs), *_incomplete(runs), *_warm(judged)]
    caveats += [*_durability(judged), *_suspect(judged)]
    smoke = any(kind == SHORT for kind, _ in caveats)
    return Answer(
        recommend(pairs, judged, smoke),
        tuple(sentences) or ("Nothing was measured.",),
        tuple(caveats),
    )


def _differences(pairs: Sequence[Pair]) -> Iterator[str]:
    names = list(dict.fromkeys(pair.row.fs_setup for pair in pairs))
    bases = {pair.base.fs_setup for pair in pairs}
    if len(names) > 1 and len(bases) == 1 and all(pair.outcome in BEHIND for pair in pairs):
        word = "fastest" if all(pair.table.metric.words == "speed" for pair in pairs) else "best"
        yield f"**{bases.pop()}** is the {word} setup{where_of(pairs)}."

    # Setups with the same outcomes share a sentence if there are more than two.
    certain = [pair for pair in pairs if pair.outcome in (*AHEAD, *BEHIND)]
    certain.sort(key=lambda pair: names.index(pair.row.fs_setup))
    for setups in _alike(certain):
        if len(setups) > 2:
            yield _difference(setups)
        else:
            for name, of_setup in setups.items():
                yield _difference({name: of_setup})


def _difference(setups: dict[str, list[Pair]]) -> str:
    pairs = list(itertools.chain(*setups.values()))
    are = "is" if len(setups) == 1 else "are"
    *first, last = _clauses(pairs)
    clauses = f"{', '.join(first)}, and {last}" if first else last
    return f"{names_text(list(setups))} {are} {clauses}."


def _alike(pairs: Iterable[Pair]) -> list[dict[str, list[Pair]]]:
    """Return the pairs by setup; setups that have the same outcomes in the same tests are together."""
    alike: dict[object, dict[str, list[Pair]]] = {}
    for name, of_setup in group_by(pairs, lambda pair: pair.row.fs_setup).items():
        outcomes = tuple((pair.base.fs_setup, pair.table.place, pair.outcome) for pair in of_setup)
        alike.setdefault(outcomes, {})[name] = of_setup
    return list(alike.values())


def _clauses(pairs: Sequence[Pair]) -> list[str]:
    base = pairs[0].base.fs_setup
    clauses: list[str] = []
    for alike in group_by(pairs, lambda pair: pair.outcome).values():
        of_ratio = near(alike)
        if of_ratio:
            than = "" if clauses else f" as {base}"
            clauses.append(f"about {of_ratio}{than}{where_of(alike)}")
            continue
        for of_metric in group_by(alike, sized_by).values():
            for of_size in _by_size(of_metric):
                than = "" if clauses else f" than {base}"
                clauses.append(_size(of_size, than))
    return clauses


def _by_size(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of one setup by their size, if a sentence can list the sizes; else all
    together.
    """
    sizes = group_by(pairs, size_text)
    alone = len({pair.row.fs_setup for pair in pairs}) == 1
    if alone and len(sizes) <= MOST_SIZES:
        return list(sizes.values())
    return [list(pairs)]


def _size(pairs: Sequence[Pair], than: str) -> str:
    """Return "12 % slower than ext4 in a"; of several sizes the least and the most, each with its
    place, because "12 to 30 %" would look like an interval.
    """
    word = pairs[0].outcome
    where = where_of(pairs)
    if len(set(map(size_text, pairs))) > 1:
        return f"{word}{than}{where} ({ends_text(pairs)})"
    size = size_text(pairs[0])
    if sized_by(pairs[0]) is None:
        return f"{size} {word}{than}{where}"
    return f"{word}{than} ({size}){where}"


def _others(pairs: Sequence[Pair]) -> Iterator[str]:
    for outcome in ("same", "inconclusive", Verdict.LIMITED, TOO_FEW, NO_RESULT):
        for setups in _alike(pair for pair in pairs if pair.outcome == outcome):
            together = list(itertools.chain(*setups.values()))
            yield _outcome(
                outcome,
                together,
                list(setups),
                where_of(together, "all" if outcome in ("same", Verdict.LIMITED) else ANY),
            )


def _outcome(
    outcome: str,
    pairs: Sequence[Pair],
    names: list[str],
    where: str,
) -> str:
    base = pairs[0].base.fs_setup
    alone = len(names) == 1
    setups = names_text(names)
    are = "is" if alone else "are"
    # What is known of these pairs, from a result to none.
    if outcome == "same":
        margin = f"{100 * pairs[0].row.margin:.3g}{GROUP}%"
        return f"{setups} {are} the same as {base} within {margin}{where}."
    if outcome == TOO_FEW:
        done = f"{max(pair.row.n for pair in pairs)} of at least {LEAST_BLOCKS} blocks are done"
        return f"{setups} cannot be compared with {base} yet{where}: {done}."
    if outcome == NO_RESULT:
        failed = values_sum((pair.row for pair in pairs), RemarkKind.FAILED, "failed")
        why = f": {count(failed, 'trial')} failed" if failed else ""
        have = "has" if alone else "have"
        return f"{setups} {have} no result to compare with {base}{where}{why}."
    # The baseline is no better known than the others.
    both = names_text([base, *names])
    if outcome == Verdict.LIMITED:
        return f"{both} reached the limit of the device{where}, so they cannot be compared there."
    if alone:
        return f"{both} cannot be told apart yet{where}{_price(pairs)}."
    return f"{setups} cannot be told apart from {base} yet{where}{_price(pairs)}."


def _price(pairs: Sequence[Pair]) -> str:
    """Return ": 8 to 90 more blocks would be needed"; "" if a pair has no price: in a smoke test."""
    blocks = []
    too_many = False
    for pair in pairs:
        prices = [note for note in pair.row.notes if note.kind in PRICES]
        if not prices:
            return ""
        for note in prices:
            if note.kind is RemarkKind.TOO_MANY_BLOCKS:
                too_many = True
            else:
                blocks.append(int(note.values["blocks"]))
    blocks.sort()
    ends = [str(number) for number in dict.fromkeys((*blocks[:1], *blocks[-1:]))]
    if too_many:
        ends = [*ends[:1], "more than 90"]
    noun = "block" if ends == ["1"] else "blocks"
    return f": {' to '.join(ends)} more {noun} would be needed"


def _without_pairs(tables: Sequence[VerdictTable]) -> Iterator[str]:
    missing = [table for table in tables if table.rows[0].value is None]
    reasons = group_by(missing, lambda t: (t.rows[0].fs_setup, why_without(t.rows[0])))
    for (base, why), of_base in reasons.items():
        where = in_tests(of_base, ANY)
        yield f"**Nothing can be compared**{where}: of the baseline {base}, {why}."

    # A baseline without anything to compare it with.
    alone = [table for table in tables if table.rows[0].value is not None and not pairs_of(table)]
    for name, of_name in group_by(alone, lambda table: table.rows[0].fs_setup).items():
        if any(len(without_guard(table.rows)) > 1 for table in of_name):
            yield f"No other setup has the durability class of **{name}**."
            continue
        values = []
        for table in of_name:
            where = f" in {table.place}" if len(tables) > 1 else ""
            values.append(table.metric.with_unit(table.rows[0].value) + where)
        yield f"**{name}** reached {join_words(values)}; no other setup was measured."


def _short(runs: Sequence[LoadedRun]) -> Iterator[tuple[str, str]]:
    windows = [cell.window for run in runs for cell in run.run.cells]
    lengths = {window.measure_s for window in windows if window.kind == "fixed"}
    short = sorted(seconds for seconds in lengths if seconds < SHORT_WINDOW_S)
    if not short:
        return
    trials = [trial for run in runs for trial in run.trials]
    burst = any(warning.id == "W002" for trial in trials for warning in trial.warnings)
    windows_of = f"its windows of {join_words(list(map(duration_text, short)))} are too short"
    why = "to contain a checkpoint" if burst else "for a decision"
    yield SHORT, f"**This was a smoke test**: {windows_of} {why}. Make a real plan:  dbbench init"


def _incomplete(runs: Sequence[LoadedRun]) -> Iterator[tuple[str, str]]:
    for run in runs:
        name = "The run" if len(runs) == 1 else run.run.name
        total = len(run.run.order)
        if run.remaining:
            done = total - len(run.remaining)
            text = f"{done} of {total} trials are done. The same dbbench run command resumes it."
            yield UNFINISHED, f"**{name} is not finished**: {text}"
        failed = sum(trial.status is Status.FAILED for trial in run.trials)
        if failed:
            yield FAILED, f"**{failed} of {count(len(run.trials), 'trial')} failed**."
        for setup, why in run.run.skipped.items():
            yield SKIPPED, f"**{setup} was not run**: {why}."


def _warm(tables: Sequence[VerdictTable]) -> Iterator[tuple[str, str]]:
    warm = [table for table in tables if any(has(row.notes, RemarkKind.WARM) for row in table.rows)]
    if warm:
        where = join_words(list(dict.fromkeys(table.place for table in warm)))
        text = "only the first of several scans was cold, so the mean is mostly that of memory"
        yield WARM, f"**The tables of {where} fit into memory**: {text} (W158)."


def _durability(tables: Sequence[VerdictTable]) -> Iterator[tuple[str, str]]:
    texts: dict[str, None] = {}
    for table in tables:
        base = table.rows[0]
        for row in without_guard(table.rows)[1:]:
            if row.mixed_durability:
                text = (
                    f"**{row.fs_setup}** is not ranked: its durability class is {class_of(row)}, "
                    f"that of {base.fs_setup} is {class_of(base)}. After a power loss they do not "
                    "preserve the same data."
                )
                texts[text] = None
    for text in texts:
        yield DURABILITY, text


def _suspect(tables: Sequence[VerdictTable]) -> Iterator[tuple[str, str]]:
    suspect = 0
    trials = 0
    for table in tables:
        if is_disturbed(table):
            suspect += values_sum(table.rows, RemarkKind.SUSPECT, "suspect")
            trials += sum(row.trials for row in table.rows)
    if suspect:
        verb = "is" if trials == 1 else "are"
        counts = f"**{suspect}** of {count(trials, 'trial')} {verb} suspect"
        yield SUSPECT, f"{counts}: read these results with care."
