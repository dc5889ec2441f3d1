"""What the device did in the window of a trial, compared with what the bare device can do."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dbbench.engines import profile_of
from dbbench.metrics.series import Column, Series
from dbbench.metrics.summary import measured_seconds
from dbbench.model import (
    CeilingFacts,
    Cell,
    DeviceFacts,
    DeviceRate,
    FilesystemFacts,
    LimitFacts,
    TrialWarning,
    Window,
)
from dbbench.storage.layers import delay

# smallest number of probes in a block: with two, neither can be called the outlier
CANARIES: Final = 3
CANARY_OFF: Final = 0.10
# A flush takes a drive a second or two; the kernel reports a request only after its driver's
# timeout (SCSI: 30 s).
SILENT_S: Final = 5
# A device at a configured limit reaches it in every second: writes capped at 300 per second stayed
# between 260 and 312, and their median within 3 % of the cap; those of a loop file without a cap
# scattered by 80 % of their median. The median is used, because a second in which another process
# had the CPU says nothing about the device.
# interquartile range ÷ median; on a busy machine iostat's own interval varies by 10 %
FLAT: Final = 0.10
LEAST_SECONDS: Final = 3
# part of a second in which a request is pending; above, the device counts as always busy
BUSY_PCT: Final = 90.0
MISSED: Final = 0.10  # measured rate ÷ limit - 1
# size of an access, by the end of the name of fio's row
_ROW_BYTES: Final = {"8k": 8192, "1m": 2**20}
SLOW: Final = 0.5  # share of the rate before the run
_RATES: Final = (("util_pct",), ("r_per_s", "w_per_s"), ("r_kb_per_s", "w_kb_per_s"))
_KB: Final = 1.024e-3  # converts iostat's kB to 10^6 bytes


def canary(
    probe: Mapping[str, float], others: Sequence[Mapping[str, float]]
) -> Iterator[TrialWarning]:
    """Yield W040 if the write probe differs from the median of its block, for which three are
    needed.
    """
    name = "write_mb_per_s"
    rate = probe.get(name)
    rates = [trial[name] for trial in (probe, *others) if trial.get(name) is not None]
    if rate is None or len(rates) < CANARIES:
        return
    # The other trials of the block show what the device usually does.
    median = statistics.median(rates)
    if abs(rate - median) > CANARY_OFF * median:
        text = f"the write probe reached {rate:.0f} MB/s"
        yield TrialWarning("W040", f"{text}; the median of its block is {median:.0f} MB/s")


def silent(window: Window, series: Series) -> Iterator[TrialWarning]:
    """Yield W106 for each disk that completed no request for SILENT_S seconds in a row while one
    was pending. A filesystem that delays its requests leaves the disk idle, and a slow disk
    completes some.
    """
    for disk, prefix in (("the device", ""), ("the log's device", "log_")):
        # Without the columns of the device nothing can be said.
        names = [
            f"{prefix}{name}" for name in ("util_pct", "r_per_s", "w_per_s", "f_per_s", "d_per_s")
        ]
        if not all(name in series for name in names[:3]):
            continue
        columns = [measured_seconds(window, series[name]) for name in names if name in series]
        # The longest sequence of seconds in which the disk was busy and completed nothing.
        longest = 0
        length = 0
        end = 0
        for second, (busy, *completed) in enumerate(zip(*columns, strict=True)):
            idle = completed[0] is None or any(completed) or busy is None or busy < BUSY_PCT
            length = 0 if idle else length + 1
            if length > longest:
                longest = length
                end = second + 1
        # The warning is at the second in which the silence began.
        if longest >= SILENT_S:
            text = f"{disk} completed no request for {longest} s while one was pending"
            yield TrialWarning("W106", text, second=round(window.warmup_s) + end - longest)


def exceeds_limit(
    limit: LimitFacts | None,
    ceiling: CeilingFacts,
    device: DeviceFacts | None,
    warmup_s: float,
) -> Iterator[TrialWarning]:
    """Yield W157 if fio did not measure the limit on the bare device, or the devices exceeded it in
    the window, and W159 if that may have begun within a burst.
    """
    if limit is None:
        return
    iops = limit.asked.iops or math.inf
    burst_s = limit.asked.burst_s or 0
    inside = warmup_s < burst_s
    if inside:
        text = f"a burst of {burst_s} s, and a warm-up of {warmup_s:g} s"
        yield TrialWarning("W159", text)
    mb_per_s = limit.asked.mb_per_s or math.inf
    texts = []
    # fio on the bare device must get what the limit grants.
    for row in limit.rows:
        expected = min(iops, mb_per_s * 1e6 / _ROW_BYTES[row.name[-2:]])
        if abs(row.iops / expected - 1) > MISSED:
            measured = f"{row.name} of fio completed {row.iops:.4g} IOPS"
            texts.append(f"{measured} instead of {expected:.4g}")
    # The limit applies to each device, so several together may do more.
    number = max(1, len(device.members)) if device is not None else 1
    for rate in ceiling.rates:
        granted = limit.asked.burst_iops if inside else None
        most = number * ((granted or iops) if rate.unit == "IOPS" else mb_per_s)
        if rate.side in ("reads", "writes") and rate.median > (1 + MISSED) * most:
            measured = f"{rate.side} in the window: {rate.median:.4g} {rate.unit}"
            texts.append(f"{measured} instead of at most {most:.4g}")
    if texts:
        yield TrialWarning("W157", "; ".join(texts))


def other_delay(volume: FilesystemFacts) -> Iterator[TrialWarning]:
    """Yield W157 if single I/Os, before the trial, took longer by another time than the limit's."""
    cache = volume.queue.get("write_cache")
    for layer in volume.layers:
        if layer["kind"] == "delay" and (texts := list(delay.deviations(layer, cache))):
            # It measured another disk than the plan's.
            yield TrialWarning("W157", "; ".join(texts), suspect=True)


def with_rates(
    ceiling: CeilingFacts,
    series: Series,
    cell: Cell,
    tps: float | None,
) -> CeilingFacts:
    """Return the ceiling with the device's rates. `tps`: transactions that flush. `results.at_ceiling`
    judges them.
    """
    rates = [*_rates(series, cell)]
    profile = profile_of(cell.engine.name)
    if tps and profile.has_server:
        row = f"write_{profile.page_bytes // 1024}k_fdatasync"
        rates.append(DeviceRate(row, "IOPS", round(tps, 1), constant=False))
    return dataclasses.replace(ceiling, rates=tuple(rates) if ceiling.rows else ())


def slower(
    ceiling: CeilingFacts,
    series: Series,
    cell: Cell,
) -> Iterator[TrialWarning]:
    """Yield W106 if a busy device was below half of its slowest rate before the run, in requests
    and bytes.
    """
    if cell.limit or not ceiling.rows:
        return
    if any(name not in series for names in _RATES for name in names):
        return  # a load shorter than iostat's first interval has only the first column
    # The slowest of what fio measured before the run.
    iops = min(row.iops for row in ceiling.rows)
    mb_per_s = min(row.mb_per_s for row in ceiling.rows)
    slow = dict[int, float]()  # requests, by second
    seconds = zip(*(_sum(series, cell, names) for names in _RATES), strict=True)
    # A busy second with few requests and few bytes.
    for second, (busy, requests, kb) in enumerate(seconds):
        if busy is None or requests is None or kb is None or busy < BUSY_PCT:
            continue
        if 0 < requests < SLOW * iops and kb * _KB < SLOW * mb_per_s:
            slow[second] = requests
    if len(slow) >= LEAST_SECONDS:
        median = statistics.median(slow.values())
        text = f"always busy, but only {median:.4g} IOPS in {len(slow)} seconds"
        text += f"; the slowest rate before the run: {iops:.4g} IOPS"
        yield TrialWarning("W106", text, round(cell.window.warmup_s) + min(slow))


def _sum(series: Series, cell: Cell, names: Sequence[str]) -> Column:
    columns = [measured_seconds(cell.window, series[name]) for name in names if name in series]
    return [sum(row) if None not in row else None for row in zip(*columns, strict=True)]


def _rates(series: Series, cell: Cell) -> Iterator[DeviceRate]:
    units: tuple[tuple[str, float, tuple[str, str]], ...] = (
        ("IOPS", 1.0, ("r_per_s", "w_per_s")),
        ("MB/s", _KB, ("r_kb_per_s", "w_kb_per_s")),
    )
    for unit, factor, (read, write) in units:
        for side, names in (
            ("reads", (read,)),
            ("writes", (write,)),
            ("reads and writes", (read, write)),
        ):
            if any(name not in series for name in names):
                continue
            # The median of the seconds in which anything was transferred.
            values = [value * factor for value in _sum(series, cell, names) if value is not None]
            median = statistics.median(values) if values else 0.0
            if not median:
                continue
            # A constant rate suggests a limit.
            constant = False
            if len(values) >= LEAST_SECONDS:
                low, _, high = statistics.quantiles(values, n=4, method="inclusive")
                constant = high - low <= FLAT * median
            yield DeviceRate(side, unit, round(median, 1), constant)
