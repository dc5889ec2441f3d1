"""Where the time of a transaction goes, in words: a sentence for each setup, and for each difference
from the baseline that has a verdict. A sentence is made only where the intervals support it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dbbench.compare import Row, chosen, time_layers
from dbbench.compare.interval import LEAST_BLOCKS
from dbbench.compare.time_layers import Mean
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.model import TIME_LAYERS, Json, SlowSecond, TimeLayer, Trial, plain
from dbbench.units import GROUP, group_by, join_words, number, percent

_LEAST_SHARE: Final = 0.10  # a smaller share of the time has no place in a sentence
_LEAST_PART: Final = 0.15  # of a difference, for a layer that is named
_LEAST_EXPLAINED: Final = 0.5  # of a difference; below, it is not explained
_MOST_UNKNOWN: Final = 0.25
_SLOWEST: Final = 5
_SLEEPS: Final = (
    TimeLayer.LOG,
    TimeLayer.WRITE,
    TimeLayer.READ,
    TimeLayer.FILESYSTEM,
    TimeLayer.THROTTLED,
)
CSV: Final = (
    "fs_setup",
    "engine",
    "workload",
    "variant",
    "layer",
    "share",
    "share_lo",
    "share_hi",
    "ms_per_tx",
    "ms_lo",
    "ms_hi",
    "functions",
)
NOT_EXPLAINED: Final = "the time is not explained"


def sentences(trials: Sequence[Trial], rows: Sequence[Row]) -> list[str]:
    """Return the sentences about one engine and workload. `rows`: the baseline first."""
    counted = _by_setup(trials)
    lines = []
    for row in rows:
        of_setup = counted.get(row.fs_setup, [])
        if time_layers.observations(of_setup):
            lines.append(setup_sentence(row.fs_setup, of_setup))
            lines += filter(None, [kernel_sentence(row.fs_setup, of_setup)])
    for row in rows[1:]:
        lines += difference_sentences(trials, rows[0], row)
    return lines


def setup_sentence(name: str, trials: Sequence[Trial]) -> str:
    """Return what a setup's sessions spend their time on, and what limits it."""
    shares = time_layers.means(trials, "shares")
    (first, largest), (_, second) = list(shares.items())[:2]
    if largest.lo is None:
        return f"{name}: {NOT_EXPLAINED}; an interval needs at least {LEAST_BLOCKS} blocks."
    is_first = second.hi is not None and largest.lo > second.hi
    if not is_first or shares[TimeLayer.UNKNOWN].value > _MOST_UNKNOWN:
        return f"{name}: {NOT_EXPLAINED}; no layer is certainly the largest."
    parts = [f"{_percent(largest)} of its time {_spent(first, trials)}"]
    for layer, share in list(shares.items())[1:3]:
        if share.value >= _LEAST_SHARE:
            parts.append(f"{_percent(share)} {_spent(layer, trials)}")
    word = time_layers.limit(trials)
    limited = f" Its limit: {word}." if word else ""
    return f"{name}: a session spends {join_words(parts)}.{limited}"


def difference_sentences(
    trials: Sequence[Trial],
    base: Row,
    row: Row,
) -> Iterator[str]:
    """Yield what a difference consists of, if it has a verdict and the samples of both setups."""
    if row.verdict not in (*AHEAD, *BEHIND):
        return
    measured = time_layers.differences(trials, base.fs_setup, row.fs_setup)
    if measured is None:
        return
    total, by_layer = measured
    of_setup = _by_setup(trials)[row.fs_setup]
    # The layers that make the difference, the largest first.
    head = f"{row.fs_setup} compared with {base.fs_setup}"
    parts = []
    explained = 0.0
    for layer, change in sorted(by_layer.items(), key=lambda item: -abs(item[1].value)):
        share = change.value / total.value if total.value else 0.0
        if change.differs and share >= _LEAST_PART and layer != TimeLayer.UNKNOWN:
            explained += share
            spent = _spent(layer, of_setup)
            # Latency begins with the schedule, so it has the wait for a session that is busy.
            if layer == TimeLayer.CLIENT and of_setup[0].parameters.get("rate"):
                spent = "waiting for a free session or the client"
            parts.append(f"{_ms(abs(change.value))} of it {spent}")
    if not total.differs or explained < _LEAST_EXPLAINED:
        yield f"{head}: {NOT_EXPLAINED}."
        return
    word = "longer" if total.value > 0 else "less"
    ends = sorted((abs(total.lo or 0.0), abs(total.hi or 0.0)))
    size = f"{_ms(abs(total.value))} {word} ({number(ends[0])} to {number(ends[1])})"
    yield f"{head}: a transaction takes {size}; {join_words(parts)}."


def kernel_sentence(name: str, trials: Sequence[Trial]) -> str:
    """Return the CPUs that kernel threads used beside a setup's sessions; "" if none did."""
    used = []
    for thread, cpus in time_layers.means(trials, "kernel").items():
        used.append(f"{percent(cpus.value, 1)} ({thread})")
    return f"{name}: kernel threads used {join_words(used)} of a CPU." if used else ""


def slow_seconds(trials: Sequence[Trial], names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield setup, place and cause of the five slowest seconds of each of these setups."""
    counted = _by_setup(trials)
    for name in names:
        slow = _slow(counted.get(name, []))
        for trial, second in sorted(slow, key=lambda pair: pair[1].tps)[:_SLOWEST]:
            where = f"block {trial.block}, second {second.second}: {number(second.tps)} tx/s"
            yield name, where, cause(second)


def cause(slow: SlowSecond) -> str:
    """Return what the sessions did in a slow second, and what else happened."""
    function = f" (in {slow.function})" if slow.function else ""
    spent = f"{percent(slow.share)} {TIME_LAYERS[TimeLayer(slow.layer)]}{function}"
    return "; ".join((spent, *slow.events))


def document(trials: Sequence[Trial], names: Sequence[str]) -> list[Json]:
    """Return the layers of these setups in the trials of one engine and workload, for programs."""
    counted = _by_setup(trials)
    setups = []
    for name in names:
        of_setup = counted.get(name, [])
        if not of_setup:
            continue
        # A layer has its share, its time and the functions behind it.
        ms = time_layers.means(of_setup, "ms_per_tx")
        layers = []
        for layer, share in time_layers.means(of_setup, "shares").items():
            row: Json = {"layer": layer, "share": share.value}
            row |= {"share_lo": share.lo, "share_hi": share.hi}
            mean = ms.get(layer)
            row["ms_per_tx"] = None if mean is None else mean.value
            row |= {"ms_lo": mean.lo if mean else None, "ms_hi": mean.hi if mean else None}
            row["functions"] = time_layers.functions(of_setup, layer)
            layers.append(row)
        kernel = time_layers.means(of_setup, "kernel")
        client = time_layers.means(of_setup, "client")
        # Why trials of the setup were not observed.
        notes = {trial.time.note for trial in of_setup if trial.time is not None}
        setups.append(
            {
                "fs_setup": name,
                "engine": of_setup[0].engine,
                "workload": of_setup[0].workload,
                "variant": of_setup[0].variant,
                "trials": len(time_layers.observations(of_setup)),
                "limit": time_layers.limit(of_setup) or None,
                "client_threads": {name: mean.value for name, mean in client.items()},
                "kernel_cpus": {name: cpus.value for name, cpus in kernel.items()},
                "slow_seconds": [
                    {"trial": trial.id, **plain(second)} for trial, second in _slow(of_setup)
                ],
                "notes": sorted(filter(None, notes)),
                "layers": layers,
            }
        )
    return setups


def csv_rows(setups: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the values of the columns CSV for each setup of `document` and each of its layers."""
    for setup in setups:
        for layer in setup["layers"]:
            row = setup | layer
            yield [row[key] for key in CSV]


def _by_setup(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Return the trials that count."""
    return group_by(chosen(trials), lambda trial: trial.fs_setup)


def _slow(trials: Sequence[Trial]) -> list[tuple[Trial, SlowSecond]]:
    return [(trial, second) for trial in trials if trial.time for second in trial.time.slow]


def _spent(layer: str, trials: Sequence[Trial]) -> str:
    text = TIME_LAYERS[TimeLayer(layer)]
    names = time_layers.functions(trials, layer) if layer in _SLEEPS else []
    client = time_layers.means(trials, "client")
    if names:
        text += f" (in {join_words(names)})"
    if layer == TimeLayer.CLIENT and client:
        cpu = number(client[TimeLayer.CPU].value)
        queue = number(client[TimeLayer.QUEUE].value)
        text += f" (on average, {cpu} of its threads had a CPU and {queue} waited for one)"
    return text


def _percent(share: Mean) -> str:
    text = f"{100 * share.value:.0f}{GROUP}%"
    if share.lo is None or share.hi is None:
        return text
    return f"{text} ({max(0.0, 100 * share.lo):.0f} to {min(100.0, 100 * share.hi):.0f})"


def _ms(value: float) -> str:
    return f"{number(value)}{GROUP}ms"
