"""What changed together with the difference of a pair, from its own trials, block by block.

None of it is shown to be a cause. What did not change is listed too, because it rules out explanations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dbbench.compare import Row
from dbbench.compare.interval import paired
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.metrics.table import METRICS
from dbbench.model import Trial
from dbbench.report.page.groups import Group, Of, of_summary
from dbbench.report.page.telemetry import Telemetry
from dbbench.report.page.theme import Mark
from dbbench.units import GROUP, change, listed, number

MOVED: Final = math.log(1.10)  # a smaller change is drawn pale and listed as unchanged
NOTHING: Final = 1e-6  # in the unit of the value; smaller values count as zero and have no ratio
WIDTH: Final = 260  # width of the drawing of a line, px
REACH: Final = math.log(16)  # a line ends at ×16 or ÷16 with an arrow
LEAST_REACH: Final = math.log(2)  # shortest half of the axis, so that small differences do not look large
FIGURES: Final = (
    "cpu_ms_per_tx", "flushes_per_tx", "write_kb_per_tx", "read_kb_per_tx", "io_operations_per_tx",
    "context_switches_per_tx", "write_amplification", "fdatasync_ms",
)  # fmt: skip
SERIES: Final = (  # (column, label, unit); the value is the mean over the window
    ("f_await_ms", "wait for a flush", "ms"),
    ("w_await_ms", "wait for a write", "ms"),
    ("r_await_ms", "wait for a read", "ms"),
    ("aqu_sz", "requests in flight", ""),
    ("cpu_iowait_pct", "CPU waiting for the disk", "%"),
    ("cpu_system_pct", "CPU in the kernel", "%"),
)


@dataclass(frozen=True)
class Factor:
    """One possible cause: the figures of both arms and the ratio of the pair. x positions are in pixels."""

    label: str
    unit: str
    baseline: float
    candidate: float
    ratio: float | None  # None: one of the values is zero
    x: float
    moved: bool
    arrow: str  # "left" or "right" if the line ends outside the drawing, else ""

    @property
    def words(self) -> str:
        """Return the factor in words: ×2.1, ÷3, or that it became or was zero."""
        if self.ratio is None:
            return "from zero" if self.candidate else "to zero"
        times = self.ratio if self.ratio >= 1 else 1 / self.ratio
        return f"{'×' if self.ratio >= 1 else '÷'}{GROUP}{number(times)}"

    @property
    def both(self) -> str:
        unit = f"{GROUP}{self.unit}" if self.unit else ""
        return f"{number(self.baseline)} → {number(self.candidate)}{unit}"


@dataclass(frozen=True)
class Why:
    """One pair. `one` is the x of a ratio of 1."""

    mark: Mark
    row: Row
    apart: bool
    sentence: str
    factors: tuple[Factor, ...]
    one: float
    width: int
    missing: tuple[str, ...]  # labels of what was not measured

    @property
    def told(self) -> bool:
        """Return whether the panel has a difference to explain; other panels are folded on the page."""
        return self.row.verdict in (*AHEAD, *BEHIND)


def whys(group: Group, seconds: Telemetry) -> tuple[Why, ...]:
    """Return a panel for each arm that has a pair with the baseline."""
    reasons = []
    for row in group.rows[1:]:
        pairs = paired(group.trials, group.baseline, row.fs_setup)
        if row.ratio is None or not pairs:
            continue
        measured = {label: (unit, values) for label, unit, of in _sources(seconds)
                    if (values := _both(pairs, of)) is not None}  # fmt: skip
        reach = _reach([ratio for _, (_, _, ratio) in measured.values() if ratio is not None])
        factors = tuple(_factor(label, unit, values, reach) for label, (unit, values) in measured.items())
        missing = tuple(label for label, _, _ in _sources(seconds) if label not in measured)
        reasons.append(
            Why(group.marks[row.fs_setup], row, group.apart(row), _sentence(row, group, factors), factors,
                WIDTH / 2, WIDTH, missing)
        )  # fmt: skip
    return tuple(reasons)


def _sources(seconds: Telemetry) -> list[tuple[str, str, Of]]:
    """Return (label, unit, function of a trial) for all values that are compared."""
    sources: list[tuple[str, str, Of]] = []
    for name in FIGURES:
        metric = METRICS[name]
        sources.append((metric.label, metric.unit, of_summary(name)))
    return [*sources, *((label, unit, partial(_mean, seconds, column)) for column, label, unit in SERIES)]


def _mean(seconds: Telemetry, column: str, trial: Trial) -> float | None:
    if trial.id not in seconds.series:
        return None
    window = seconds.window(trial, column)
    return float(window.mean()) if window.size else None


def _both(pairs: Sequence[tuple[Trial, Trial]], of: Of) -> tuple[float, float, float | None] | None:
    """Return (baseline, candidate, ratio) over the blocks in which both trials have the value; None if there are none,
    or if both values are zero."""
    measured = [(b, c) for base, trial in pairs if (b := of(base)) is not None and (c := of(trial)) is not None]
    if not measured:
        return None
    baseline, candidate = (statistics.fmean(side) for side in zip(*measured, strict=True))
    if baseline < NOTHING and candidate < NOTHING:
        return None
    if min(value for pair in measured for value in pair) < NOTHING:
        return baseline, candidate, candidate / baseline if min(baseline, candidate) >= NOTHING else None
    return baseline, candidate, math.exp(statistics.fmean(math.log(c / b) for b, c in measured))


def _reach(ratios: Sequence[float]) -> float:
    """Return half the length of the axis, in logarithms."""
    return min(REACH, max([LEAST_REACH, *(abs(math.log(ratio)) for ratio in ratios)]))


def _factor(label: str, unit: str, values: tuple[float, float, float | None], reach: float) -> Factor:
    baseline, candidate, ratio = values
    far = math.log(ratio) if ratio is not None else math.copysign(math.inf, candidate - baseline)
    arrow = "" if abs(far) <= reach * 1.0001 else "right" if far > 0 else "left"
    inside = max(-reach, min(reach, far))
    x = WIDTH / 2 + inside / reach * (WIDTH / 2 - 8)
    return Factor(label, unit, baseline, candidate, ratio, round(x, 1), abs(far) >= MOVED, arrow)


def _sentence(row: Row, group: Group, factors: Sequence[Factor]) -> str:
    """Return the sentence about what changed, largest change first, and what did not."""
    head = f"{row.fs_setup}: {group.metric.label} {change(row.ratio)} compared with {group.baseline}"
    if not factors:
        return f"{head}. Nothing else was measured for this pair."
    far = sorted((f for f in factors if f.moved), key=_distance, reverse=True)
    still = [f.label for f in factors if not f.moved]
    moved = f"Also changed: {listed([f'{f.label} ({f.words})' for f in far[:4]])}." if far else "Nothing else changed."
    rest = f" Within 10{GROUP}%: {listed(still)}." if still else ""
    return f"{head}. {moved}{rest}"


def _distance(factor: Factor) -> float:
    return math.inf if factor.ratio is None else abs(math.log(factor.ratio))
