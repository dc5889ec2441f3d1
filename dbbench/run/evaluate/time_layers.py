"""Where the time of a transaction went: the samples of the server's threads in the window."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.model import Cell, SlowSecond, TimeFacts, TimeLayer, TimeWait
from dbbench.run.meter import Readings
from dbbench.samplers import Sampling
from dbbench.samplers.thread_waits import Second, ThreadWaits
from dbbench.samplers.time_layers import RUNNING, Wait

_SHOWN: Final = 20  # waits that the result keeps
# Below this share of the window, seconds that were not sampled may have been the slow ones.
_LEAST_SAMPLED: Final = 0.8
_MOST_MISSED: Final = 0.05  # of the client's mean latency, by the sum of the layers
_LEAST_KERNEL: Final = 0.005  # of a CPU, for a kernel thread that is named
_SLOWEST: Final = 5  # seconds whose cause is kept
_MUCH_WRITTEN: Final = 2.0  # times the median of the window
# What a slow second may come from: event, column, more than this of it.
_EVENTS: Final = (
    ("checkpoint", "checkpoints_begun_per_s", 0.5),
    ("checkpoint", "checkpoints_ended_per_s", 0.5),
    ("steal", "cpu_steal_pct", 5.0),
)
_UNLIKE_LATENCY: Final = "the sessions in the samples do not add up to the latency of the client"
_TOO_FEW: Final = "too few seconds of the window were sampled"


def facts(
    sampler: Sampling | None,
    outcome: Outcome,
    cell: Cell,
    readings: Readings,
) -> TimeFacts | None:
    """Return what the sessions did in the window, or None without a server. The outcome's series
    have the columns of all samplers.
    """
    if not isinstance(sampler, ThreadWaits):
        return None
    warm_s = cell.window.warmup_s if cell.window.kind == "fixed" else 0.0
    begin_utc = outcome.begin_utc + warm_s
    end_utc = begin_utc + outcome.window_s
    # The load ends with the window, so the last second must have ended before.
    seconds = [each for each in sampler.seconds if begin_utc + 0.5 < each.utc <= end_utc]
    note = sampler.note
    if len(seconds) + 1 < _LEAST_SAMPLED * int(outcome.window_s):
        note = note or _TOO_FEW
    if note or not seconds:
        return TimeFacts(note or _TOO_FEW)

    # The mean number of sessions in each layer.
    sessions = dict.fromkeys(map(str, TimeLayer), 0.0)
    for second in seconds:
        for layer, mean in second.sessions().items():
            sessions[layer] += mean / len(seconds)
    waits = _mean_waits(seconds)
    # A session waits in the same call for a lock and for the thread that flushes the log. The
    # server counts which of PostgreSQL's locks are the log's, and the time of InnoDB's row locks.
    moved = _log_locks(waits, outcome.series)
    row_lock_ms = readings.engine.grown.get("innodb_row_lock_ms")
    if row_lock_ms is not None:
        missing = row_lock_ms / 1000 / outcome.window_s - sessions[TimeLayer.LOCK]
        moved = -max(0.0, min(_waiting(waits, TimeLayer.LOG), missing))
    sessions[TimeLayer.LOG] += moved
    sessions[TimeLayer.LOCK] -= moved
    present = sum(sessions.values())
    if present <= 0:
        return TimeFacts("the load had no session in the samples")

    observed = TimeFacts(
        samples=sum(second.samples for second in seconds),
        sessions=present,
        shares={layer: mean / present for layer, mean in sessions.items()},
        waits=tuple(_longest(waits, present)),
        slow=tuple(_slowest(seconds, outcome.series, outcome.begin_utc)),
        kernel={
            name: cpu_s / readings.host.seconds
            for name, cpu_s in readings.host.kernel_s.items()
            if cpu_s >= _LEAST_KERNEL * readings.host.seconds
        },
        client=dict(readings.processes.client_threads),
        sampler_cpu_s=sampler.cpu_s,
    )
    return _per_transaction(observed, sessions, outcome, cell)


def _per_transaction(
    observed: TimeFacts,
    sessions: dict[str, float],
    outcome: Outcome,
    cell: Cell,
) -> TimeFacts:
    """Add the ms per transaction. What the client does between two of them is not in its latency,
    and with a rate all that remains of the latency is the client's: it begins with the schedule.
    Layers that do not add up to the latency are not reported.
    """
    latency_ms = outcome.histogram.mean_ms if outcome.histogram is not None else None
    if not outcome.transactions or not latency_ms:
        return observed
    ms_per_tx = {}
    for layer, mean in sessions.items():
        ms_per_tx[layer] = 1000 * mean * outcome.window_s / outcome.transactions
    client_ms = ms_per_tx.pop(TimeLayer.CLIENT)
    rest_ms = max(0.0, latency_ms - sum(ms_per_tx.values()))
    is_paced = bool(cell.parameters.get("rate") or cell.parameters.get("think_times"))
    ms_per_tx[TimeLayer.CLIENT] = rest_ms if is_paced else min(client_ms, rest_ms)
    if abs(sum(ms_per_tx.values()) / latency_ms - 1) > _MOST_MISSED:
        # for example, a session could not be told from other threads
        return TimeFacts(_UNLIKE_LATENCY)
    return replace(observed, ms_per_tx=ms_per_tx, latency_ms=latency_ms)


def _slowest(
    seconds: Sequence[Second],
    series: Series,
    begin_utc: float,
) -> Iterator[SlowSecond]:
    """Yield the seconds with the lowest throughput, the slowest first."""
    rates = {}
    for sampled in seconds:
        # On a busy machine two samples may belong to one second.
        number = math.floor(sampled.utc - 0.5 - begin_utc)
        tps = _value(series, "tps", number)
        if tps is not None:
            rates[number] = (tps, number, sampled)
    writes = [_value(series, "w_kb_per_s", number) or 0.0 for number in rates]
    much_kb = _MUCH_WRITTEN * statistics.median(writes) if writes else 0.0
    for tps, number, sampled in sorted(rates.values(), key=lambda rate: rate[:2])[:_SLOWEST]:
        sessions = sampled.sessions()
        layer = max(sessions, key=lambda name: sessions[name])
        waits = [wait for wait, _ in sampled.waits.most_common() if wait.layer == layer]
        events = []
        for name, column, least in (*_EVENTS, ("write-back", "w_kb_per_s", much_kb)):
            value = _value(series, column, number)
            if value is not None and value > least and name not in events:
                events.append(name)
        yield SlowSecond(
            number,
            tps,
            layer,
            sessions[layer] / (sum(sessions.values()) or 1.0),
            next((wait.function for wait in waits if wait.function), ""),
            tuple(events),
        )


def _value(series: Series, column: str, second: int) -> float | None:
    values = series.columns.get(column, [])
    return values[second] if 0 <= second < len(values) else None


def _mean_waits(seconds: Sequence[Second]) -> dict[Wait, float]:
    """Return the mean number of sessions in each wait."""
    waits = dict[Wait, float]()
    for second in seconds:
        for wait, mean in second.means().items():
            waits[wait] = waits.get(wait, 0.0) + mean / len(seconds)
    return waits


def _log_locks(waits: dict[Wait, float], series: Series) -> float:
    """Return how many sessions wait in a lock for PostgreSQL's log: who flushes it runs if the disk
    answers at once, or waits for a CPU.
    """
    internal = math.fsum(filter(None, series.columns.get("lwlock_waits_active", ())))
    of_log = math.fsum(filter(None, series.columns.get("wal_lock_waits_active", ())))
    if not internal:
        return 0.0
    return _waiting(waits, TimeLayer.LOCK) * of_log / internal


def _waiting(waits: dict[Wait, float], layer: TimeLayer) -> float:
    total = 0.0
    for wait, count in waits.items():
        if wait.layer == layer and "futex" in (wait.call, wait.through):
            total += count
    return total


def _longest(waits: dict[Wait, float], present: float) -> Iterator[TimeWait]:
    for wait, mean in sorted(waits.items(), key=lambda item: -item[1])[:_SHOWN]:
        if wait.layer != RUNNING:
            yield TimeWait(*wait, share=mean / present)
