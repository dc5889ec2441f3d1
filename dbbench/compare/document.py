"""The method as a pure function of a plain document, for other people's data and for calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dbbench.compare.interval import LEAST_BLOCKS, estimate
from dbbench.compare.pairs import paired
from dbbench.compare.verdict import word
from dbbench.metrics import METRICS
from dbbench.model import Status, Trial

LEVEL = 0.95  # one pair


def compare(document: Mapping[str, Any]) -> dict[str, Any]:
    """The throughput of `document["candidate"]` against `document["baseline"]`.

    `trials` is a list of {fs_setup, block, attempt, position, status, warmup_s, tps}; `tps` holds one value a
    second from the start, warm-up included (0: no progress, stays in; None, NaN or a negative number: no data,
    left out). Other keys, `p95_ms` among them, may be there. Returns {ratio, lo, hi, verdict, n, wins, notes}:
    candidate ÷ baseline with its 95 % interval, the word (slower, faster, same, inconclusive), the pairs that count
    and those of them that the candidate won. Pairs are by block whatever the order of the list; failed trials and
    their blocks are out, suspect ones where the block has a good repeat. Below three pairs `lo` and `hi` are None,
    the verdict is `inconclusive` with the note `too few blocks`. KeyError, TypeError or ValueError on a malformed
    document.
    """
    baseline, candidate = document["baseline"], document["candidate"]
    if baseline == candidate:
        raise ValueError(f"baseline and candidate are both {baseline!r}")
    trials = [_trial(entry) for entry in document["trials"] if entry["fs_setup"] in (baseline, candidate)]
    pairs = paired(trials, baseline, candidate)
    values = [(b, c) for one, other in pairs if (b := one.summary["tps"]) and (c := other.summary["tps"])]
    result: dict[str, Any] = {"ratio": None, "lo": None, "hi": None, "verdict": "inconclusive", "n": len(values)}
    result |= {"wins": sum(c > b for b, c in values), "notes": _notes(trials, pairs, values)}
    if values:
        guess = estimate(values)
        result["ratio"] = guess.ratio
        if guess.n >= LEAST_BLOCKS:
            half = guess.half_width(LEVEL)
            low, high = guess.mean - half, guess.mean + half
            result |= {"lo": math.exp(low), "hi": math.exp(high), "verdict": word(low, high, METRICS["tps"])}
    return result


def _notes(
    trials: Sequence[Trial], pairs: Sequence[tuple[Trial, Trial]], values: Sequence[tuple[float, float]]
) -> list[str]:
    """What a reader should know of the pairs: how many are missing, and why."""
    notes = []
    blocks = {trial.block for trial in trials}
    if len(pairs) < len(blocks):
        notes.append(f"{len(blocks) - len(pairs)} of {len(blocks)} blocks without a good pair left out")
    if len(values) < len(pairs):
        notes.append(f"{len(pairs) - len(values)} pairs without throughput left out")
    if suspect := sum(trial.status is Status.SUSPECT for pair in pairs for trial in pair):
        notes.append(f"{suspect} suspect")
    if len(values) < LEAST_BLOCKS:
        notes.append("too few blocks")
    return notes


def _trial(entry: Mapping[str, Any]) -> Trial:
    status = Status(entry.get("status") or "ok")
    block, attempt = int(entry["block"]), int(entry.get("attempt") or 1)
    seconds = [] if status is Status.FAILED else entry["tps"] or []
    return Trial(
        id=f"{entry['fs_setup']}-b{block}-a{attempt}",
        run="",
        host="",
        fs_setup=entry["fs_setup"],
        engine="",
        workload="",
        block=block,
        attempt=attempt,
        position=int(entry.get("position") or 0),
        status=status,
        summary={"tps": _throughput(seconds, entry.get("warmup_s") or 0)},
    )


def _throughput(per_second: Sequence[float | None], warmup_s: float) -> float | None:
    window = [float(v) for v in per_second[math.ceil(warmup_s) :] if v is not None and 0 <= v < math.inf]
    return math.fsum(window) / len(window) if window else None
