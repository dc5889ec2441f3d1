"""Verdicts: numbers in, numbers out. Pairs by block, intervals on logarithms, words only from the
interval.

`rows` compares the arms of a run's trials for one metric. `compare` (two arms) and `compare_all`
(a whole run) are the same method as pure functions of a plain document. All are public and
deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, estimate
from dbbench.compare.pairing import Group, chosen, groups, pairs_of, values_of
from dbbench.compare.remarks import Remark, RemarkKind, remark, texts
from dbbench.compare.stopping import examine, stop_reasons
from dbbench.compare.verdict import Comparison, Row, means, rows, word
from dbbench.metrics.table import METRICS
from dbbench.model import Json, Status, Trial, plain
from dbbench.model.plan import MARGIN

__all__ = [
    "Comparison",
    "Group",
    "Row",
    "changepoints",
    "chosen",
    "compare",
    "compare_all",
    "examine",
    "groups",
    "means",
    "rows",
    "stop_reasons",
    "trials_of",
]


def compare(document: Mapping[str, Any]) -> Json:
    """Compare the throughput of `document["candidate"]` with that of `document["baseline"]`.

    `trials` is a list of {fs_setup, block, attempt, position, status, warmup_s, tps}; other keys
    are ignored. `tps` has one value per second from the start, including the warm-up: 0 means no
    progress and counts; None, NaN or a negative number means no data and is left out.
    `document["margin"]` (0.05) is the share within which arms are the same.

    Returns {ratio, lo, hi, verdict, n, wins, notes}: candidate ÷ baseline with its 95 %
    interval, the word (slower, faster, same, inconclusive), the number of pairs that count, and
    how many of them the candidate won. Pairs are formed by block. Failed trials and their blocks
    are left out, and suspect trials if the block has a good repeat. With fewer than three pairs
    `lo` and `hi` are None, and the verdict is `inconclusive` with the note `too few blocks`.
    Raises KeyError, TypeError or ValueError for a malformed document.
    """
    # A document that cannot be compared is an error of its author.
    baseline = document["baseline"]
    candidate = document["candidate"]
    margin = document.get("margin", MARGIN)
    if baseline == candidate:
        raise ValueError(f"baseline and candidate are both {baseline!r}")
    arms = (baseline, candidate)
    trials = trials_of([entry for entry in document["trials"] if entry["fs_setup"] in arms])
    # Only pairs in which both made progress have a ratio.
    pairs = pairs_of(trials, baseline, candidate)
    values = [pair for pair in values_of(trials, baseline, candidate, "tps") if all(pair)]
    result: Json = {
        "ratio": None,
        "lo": None,
        "hi": None,
        "verdict": "inconclusive",
        "n": len(values),
        "wins": sum(after > before for before, after in values),
        "notes": list(texts(_notes(trials, pairs, len(values)))),
    }
    # A ratio needs one pair, a verdict at least three.
    if values:
        guess = estimate(values)
        result["ratio"] = guess.ratio
        result["lo"], result["hi"] = guess.interval()
        if guess.n >= LEAST_BLOCKS:
            result["verdict"] = word(*guess.bounds(LEVEL), METRICS["tps"], margin).value
    return result


def compare_all(document: Mapping[str, Any]) -> list[Json]:
    """Compare every arm of a run with `document["baseline"]`, for each engine and workload.
    `trials` is the list of `compare`, each entry with `engine` and `workload` too ("" where it
    has none). Returns a row {fs_setup, engine, workload, ratio, lo, hi, level, df, df_shared,
    verdict} for each arm but the baseline, as a run's own tables have them: Holm's levels within
    an engine and workload, and the variance shared between them. `document["settled"]` lists
    each [engine, workload] of which a pair ended because its interval was narrow
    (`--until-precision`): 96 % instead of 95 %. `df` are the interval's degrees of freedom, and
    `df_shared` those that come from other pairs; below three pairs these, `lo`, `hi` and `level`
    are None. KeyError, TypeError or ValueError on a malformed document.
    """
    baseline = document["baseline"]
    margin = document.get("margin", MARGIN)
    # Pairs that ended early have a wider interval than the others.
    settled = {(engine, workload, "") for engine, workload in document.get("settled", ())}
    keys = (
        "fs_setup",
        "engine",
        "workload",
        "ratio",
        "lo",
        "hi",
        "level",
        "df",
        "df_shared",
        "verdict",
    )
    # The same table as that of a run, so that both give the same verdicts.
    table = rows(
        trials_of(document["trials"]),
        baseline,
        margin=margin,
        settled=settled,
    )
    documents = []
    for row in table:
        if row.fs_setup != baseline:
            documents.append({key: plain(getattr(row, key)) for key in keys})
    return documents


def changepoints(series: Sequence[float | None]) -> list[int]:
    """Return the indices of the first night of each new level, ascending. `series` has one positive
    number per night, usually a ratio to the reference of the same night; None, or anything else
    that is not a positive finite number, is a night without a result. A change needs at least
    three nights on each side and a shift of 3 %. Called after every night, it reports earlier
    changes again, at the same place once they are ten nights old.
    """
    from dbbench.compare.nightly_levels import find  # importing numpy takes 0.1 s

    return find(series)


def _notes(
    trials: Sequence[Trial],
    pairs: Sequence[tuple[Trial, Trial]],
    usable: int,
) -> Iterator[Remark]:
    blocks = len({trial.block for trial in trials})
    if len(pairs) < blocks:
        yield remark(
            RemarkKind.BLOCKS_LEFT_OUT,
            left_out=blocks - len(pairs),
            blocks=blocks,
        )
    if usable < len(pairs):
        yield remark(RemarkKind.PAIRS_LEFT_OUT, left_out=len(pairs) - usable)
    statuses = [trial.status for pair in pairs for trial in pair]
    if suspect := statuses.count(Status.SUSPECT):
        yield remark(RemarkKind.SUSPECT, suspect=suspect)
    if usable < LEAST_BLOCKS:
        yield remark(RemarkKind.TOO_FEW_BLOCKS)


def trials_of(entries: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Return the entries of a document as trials, for `rows` and the stopping rule `examine`."""
    return [_trial(entry) for entry in entries]


def _trial(entry: Mapping[str, Any]) -> Trial:
    status = Status(entry.get("status") or "ok")
    block = int(entry["block"])
    attempt = int(entry.get("attempt") or 1)
    engine = entry.get("engine") or ""
    workload = entry.get("workload") or ""
    # The warm-up does not count, nor do seconds without data.
    seconds = [] if status is Status.FAILED else entry["tps"] or []
    window = seconds[math.ceil(entry.get("warmup_s") or 0) :]
    values = [float(value) for value in window if value is not None and 0 <= value < math.inf]
    return Trial(
        id=f"{entry['fs_setup']}-{engine}-{workload}-b{block}-a{attempt}",
        run="",
        host="",
        fs_setup=entry["fs_setup"],
        engine=engine,
        workload=workload,
        block=block,
        attempt=attempt,
        position=int(entry.get("position") or 0),
        status=status,
        summary={"tps": math.fsum(values) / len(values) if values else None},
    )
