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
    second from the start, warm-up included (None: no data, left out; 0: no progress, stays in). Returns
    {ratio, lo, hi, verdict, n, wins, notes}. Pairs are by block whatever the order of the list; failed trials and
    their blocks are out; suspect ones are, when a repeat exists. Below three pairs `lo` and `hi` are None, the
    verdict is `inconclusive` with the note `too few blocks`. KeyError and ValueError on a malformed document.
    """
    trials = [_trial(entry) for entry in document["trials"]]
    pairs = paired(trials, document["baseline"], document["candidate"])
    values = [(b, c) for one, other in pairs if (b := one.summary["tps"]) and (c := other.summary["tps"])]
    notes: list[str] = []
    if len(values) < len(pairs):
        notes.append(f"{len(pairs) - len(values)} pairs without throughput left out")
    result: dict[str, Any] = {"ratio": None, "lo": None, "hi": None, "verdict": "inconclusive", "n": len(values),
                              "wins": sum(c > b for b, c in values), "notes": notes}  # fmt: skip
    if values:
        guess = estimate(values)
        result["ratio"] = guess.ratio
        if guess.n >= LEAST_BLOCKS:
            half = guess.half_width(LEVEL)
            low, high = guess.mean - half, guess.mean + half
            result |= {"lo": math.exp(low), "hi": math.exp(high), "verdict": word(low, high, METRICS["tps"])}
    if len(values) < LEAST_BLOCKS:
        notes.append("too few blocks")
    return result


def _trial(entry: Mapping[str, Any]) -> Trial:
    status = Status(entry.get("status", "ok"))
    block, attempt = int(entry["block"]), int(entry.get("attempt", 1))
    return Trial(
        id=f"{entry['fs_setup']}-b{block}-a{attempt}",
        run="",
        host="",
        fs_setup=str(entry["fs_setup"]),
        engine="",
        workload="",
        block=block,
        attempt=attempt,
        position=int(entry.get("position", 0)),
        status=status,
        summary={"tps": None if status is Status.FAILED else _throughput(entry["tps"], entry.get("warmup_s", 0))},
    )


def _throughput(per_second: Sequence[float | None], warmup_s: float) -> float | None:
    window = [value for value in per_second[math.ceil(warmup_s) :] if value is not None]
    return math.fsum(window) / len(window) if window else None
