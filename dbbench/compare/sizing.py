"""The smallest level of the device's limit that keeps a rate of transactions: a bisection of the
ordered levels for each setup, repeated at the border.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dbbench.compare import time_layers
from dbbench.model import Cell, DeviceLimit, Run, Search, Status, Trial, without_levels
from dbbench.units import group_by

MISSED: Final = 0.05  # of the rate
SCATTER: Final = 3.0  # standard errors of a random schedule, of which a short window has more
MOST_FAILED: Final = 3  # failed trials of a setup, after which it is given up
# What a larger disk has more of; of a delay it has less.
_RATES: Final = ("iops", "mb_per_s", "burst_iops", "burst_s")
_DELAYS: Final = ("read_ms", "write_ms", "flush_ms")


@dataclass(frozen=True)
class VolumeLevel:
    """What a setup did at a level. `held`: in so many of the `trials`; medians of rate and p99."""

    limit: DeviceLimit
    held: int = 0
    trials: int = 0
    tps: float | None = None
    p99_ms: float | None = None
    instead: str = ""  # what limits it other than the model: a word of `time_layers.LIMITS`

    @property
    def holds(self) -> bool:
        return self.held > self.trials / 2


@dataclass(frozen=True)
class Sized:
    """The levels of a setup, smallest first, and the place of the border: `low` is the largest level
    that does not hold (-1: none), `high` the smallest above it that does (the number of levels:
    none).
    """

    engine: str
    workload: str
    arm: str
    cells: tuple[Cell, ...]
    levels: tuple[VolumeLevel, ...]
    low: int
    high: int
    failed: int

    @property
    def smallest(self) -> VolumeLevel | None:
        """Return the smallest level that holds, if the one below was measured, too."""
        settled = self.high - self.low == 1 and self.high < len(self.levels)
        if settled:
            return self.levels[self.high]
        return None

    def following(self, blocks: int) -> tuple[Cell, ...]:
        """Return the cells to measure next: the middle between the ends of the border, then both ends
        until each has so many trials.
        """
        if self.failed >= MOST_FAILED:
            return ()
        if self.high - self.low > 1:
            return (self.cells[(self.low + self.high) // 2],)
        cells = [
            self.cells[end]
            for end in (self.low, self.high)
            if 0 <= end < len(self.levels) and self.levels[end].trials < blocks
        ]
        return tuple(cells)


def find_disorder(levels: Sequence[DeviceLimit]) -> tuple[DeviceLimit, DeviceLimit, str] | None:
    """Return the first neighbours of which the second is not the larger disk, and why; or None."""
    for smaller, larger in itertools.pairwise(levels):
        for key in _RATES + _DELAYS:
            before = getattr(smaller, key)
            after = getattr(larger, key)
            if before is None or after is None:
                continue
            is_smaller = after < before if key in _RATES else after > before
            if is_smaller:
                return smaller, larger, f"{key} is {before:g}, then {after:g}"
    return None


def size_setups(run: Run, trials: Mapping[str, Trial]) -> Iterator[Sized]:
    """Yield every setup of a run with a search. `trials`: the finished ones, by id."""
    search = run.search
    if search is None:
        return
    of_cell = group_by(run.order, lambda spec: spec.cell)
    for key, cells in group_by(run.cells, _series).items():
        levels = []
        failed = 0
        for cell in cells:
            done = [trials[spec.id] for spec in of_cell.get(cell.id, []) if spec.id in trials]
            counted = [trial for trial in done if trial.status is not Status.FAILED]
            failed += len(done) - len(counted)
            levels.append(_level(cell, counted, search))
        missed = [i for i, level in enumerate(levels) if level.trials and not level.holds]
        low = max(missed, default=-1)
        held = [i for i, level in enumerate(levels) if level.trials and i > low]
        high = min(held, default=len(levels))
        yield Sized(*key, tuple(cells), tuple(levels), low, high, failed)


def further_cells(run: Run, trials: Mapping[str, Trial]) -> list[Cell]:
    """Return the cells of the next block; none when every setup is settled."""
    return [cell for each in size_setups(run, trials) for cell in each.following(run.plan.blocks)]


def _series(cell: Cell) -> tuple[str, str, str]:
    variant = without_levels(cell.variant, ("limit",))
    return cell.engine.name, "+".join(filter(None, (cell.workload.name, variant))), cell.arm


def _level(cell: Cell, trials: Sequence[Trial], search: Search) -> VolumeLevel:
    limit = cell.limit
    assert limit is not None  # the command refuses plans without levels
    if not trials:
        return VolumeLevel(limit)
    return VolumeLevel(
        limit,
        sum(_holds(trial, search) for trial in trials),
        len(trials),
        _median(trials, "tps"),
        _median(trials, "p99_ms"),
        _instead(trials, search),
    )


def _median(trials: Sequence[Trial], name: str) -> float | None:
    values = [value for trial in trials if (value := trial.summary.get(name)) is not None]
    return statistics.median(values) if values else None


def _holds(trial: Trial, search: Search) -> bool:
    tps = trial.summary.get("tps")
    p99_ms = trial.summary.get("p99_ms")
    seconds = trial.window.measure_s if trial.window is not None else math.inf
    missed = max(MISSED, SCATTER / math.sqrt(search.rate * seconds))
    if tps is None or tps < (1 - missed) * search.rate:
        return False
    return search.p99_ms is None or (p99_ms is not None and p99_ms <= search.p99_ms)


def _instead(trials: Sequence[Trial], search: Search) -> str:
    """Return what limited the trials other than the model of a disk, or ""."""
    # Trials that keep the rate are not too slow, whatever their latency is.
    without_p99 = replace(search, p99_ms=None)
    too_slow = sum(_holds(trial, without_p99) for trial in trials) <= len(trials) / 2
    word = time_layers.limit(trials)
    # Sessions were free for a rate that did not come.
    if word == "client" or (too_slow and word == "rate"):
        return "client"
    # For example, the disk below the model is slower.
    is_full = any(map(time_layers.is_full, trials))
    if word == "CPU" or (too_slow and not is_full):
        return word
    return ""
