"""What changed together with the difference of a pair; none of it is shown to be a cause.

A measurement is ranked by the share of the time or of the bytes that it concerns, times its
change, and left out below 1 % of them: a ratio of two quantities near zero explains nothing.
What did not change rules out explanations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.metrics.table import METRICS
from dbbench.report.page.charts.telemetry import Telemetry
from dbbench.report.page.charts.timelines import mean_of_panel
from dbbench.report.page.groups import ArmLabel, Group
from dbbench.units import GROUP, change, join_words, number

MOVED: Final = math.log(1.10)  # a smaller change is drawn pale and listed as unchanged
NOTHING: Final = 1e-6  # in the unit of the value; smaller values count as zero and have no ratio
LEAST_SHARE: Final = 0.01  # of the time or of the bytes; below, a measurement is left out
WIDTH: Final = 260  # width of the drawing of a line, px
REACH: Final = math.log(16)  # a line ends at ×16 or ÷16 with an arrow
# shortest half of the axis, so that small differences do not look large
LEAST_REACH: Final = math.log(2)
# (metric, what it concerns: a key of `_shares`)
FIGURES: Final = (
    *(
        (f"{name}_per_{unit}", part)
        for unit in ("tx", "gib")
        for name, part in (
            ("cpu_ms", "cpu"),
            ("flushes", "flush"),
            ("write_kb", "written"),
            ("read_kb", "read"),
            ("io_operations", "requests"),
            ("context_switches", ""),
        )
    ),
    ("write_amplification", "written"),
    ("fdatasync_ms", "flush"),
)
# (panel of the timelines, label, unit, what it concerns)
PANELS: Final = (
    ("f_await", "wait for a flush", "ms", "flush"),
    ("w_await", "wait for a write", "ms", "write wait"),
    ("r_await", "wait for a read", "ms", "read wait"),
    ("queue", "requests in flight", "", "in flight"),
    ("iowait", "CPU waiting for the disk", "%", "iowait"),
    ("system", "CPU in the kernel", "%", "system"),
)
# columns X_await_ms and X_per_s
WAITS: Final = (("read wait", "r"), ("write wait", "w"), ("flush", "f"))


class About(NamedTuple):
    """A measurement. `part` is what it concerns: a key of `_shares`."""

    label: str
    unit: str
    part: str


@dataclass
class Factor:
    """A measurement of both arms, perhaps a cause. `ratio` is None if one of the values is zero or
    not known; `far` is its logarithm, then infinite. `share` of the time or of the bytes is None
    if it is not known. `x` and `arrow` are the end of its line.
    """

    about: About
    baseline: float | None
    candidate: float | None
    ratio: float | None
    share: float | None = None
    x: float = 0.0
    arrow: str = ""

    @property
    def label(self) -> str:
        return self.about.label

    @property
    def far(self) -> float:
        if self.ratio is None:
            return math.copysign(math.inf, (self.candidate or 0) - (self.baseline or 0))
        return math.log(self.ratio)

    @property
    def has_changed_much(self) -> bool:
        return abs(self.far) >= MOVED

    @property
    def is_negligible(self) -> bool:
        if self.share is not None and self.share < LEAST_SHARE:
            return True
        return max(self.baseline or 0.0, self.candidate or 0.0) < NOTHING

    @property
    def rank(self) -> tuple[bool, float]:
        share = LEAST_SHARE if self.share is None else self.share
        return not self.has_changed_much, -min(REACH, abs(self.far)) * share

    @property
    def words(self) -> str:
        if self.ratio is None:
            return "from zero" if self.candidate else "to zero"
        sign = "×" if self.ratio >= 1 else "÷"
        return f"{sign}{GROUP}{number(max(self.ratio, 1 / self.ratio))}"

    @property
    def both(self) -> str:
        unit = f"{GROUP}{self.about.unit}" if self.about.unit else ""
        return f"{number(self.baseline)} → {number(self.candidate)}{unit}"


class Why(NamedTuple):
    """The panel of an arm. It is open if it has a difference to explain; `missing` was not
    measured, and `negligible` concerns less than 1 % of the time or of the bytes. `one` is the x
    of a ratio of 1.
    """

    arm: ArmLabel
    sentence: str
    factors: list[Factor]
    missing: list[str]
    negligible: list[str]
    open: bool
    one: float = WIDTH / 2
    width: int = WIDTH


def whys(group: Group, seconds: Telemetry) -> tuple[Why, ...]:
    """Return a panel for each arm that has a pair with the baseline."""
    reasons = []
    # A factor that takes little of the time explains little of the difference.
    shares = {arm: _shares(group, seconds, arm) for arm in group.arms}
    for row in group.rows[1:]:
        if row.ratio is None:
            continue

        # What was measured in both arms, and concerns enough of the time or of the bytes.
        missing = []
        negligible = []
        shown = []
        for factor in _factors(group, seconds, row.fs_setup):
            part = factor.about.part
            of_both = (shares[arm].get(part) for arm in (group.baseline, row.fs_setup))
            factor.share = max((share for share in of_both if share is not None), default=None)
            if factor.baseline is None or factor.candidate is None:
                missing.append(factor.label)
            elif factor.is_negligible:
                negligible.append(factor.label)
            else:
                shown.append(factor)
        _place(shown)
        shown.sort(key=lambda factor: factor.rank)
        reasons.append(
            Why(
                arm=group.arm(row),
                sentence=_sentence(row, group, shown),
                factors=shown,
                missing=missing,
                negligible=negligible,
                open=row.verdict in (*AHEAD, *BEHIND),
            )
        )
    return tuple(reasons)


def _place(factors: Sequence[Factor]) -> None:
    """Set the ends of the lines. The axis is as long as the largest ratio demands."""
    lengths = [abs(factor.far) for factor in factors if factor.ratio is not None]
    reach = min(REACH, max([LEAST_REACH, *lengths]))
    for factor in factors:
        inside = max(-reach, min(reach, factor.far))
        factor.x = round(WIDTH / 2 + inside / reach * (WIDTH / 2 - 8), 1)
        if abs(factor.far) > reach * 1.0001:
            factor.arrow = "right" if factor.far > 0 else "left"


def _factors(group: Group, seconds: Telemetry, arm: str) -> Iterator[Factor]:
    trials = [*group.used_of(group.baseline), *group.used_of(arm)]
    for name, part in FIGURES:
        row = group.row(arm, name)
        if row is None and not group.rows_of(name):
            continue
        baseline = group.value(group.baseline, name)
        candidate = group.value(arm, name)
        # A geometric mean is only of values above zero.
        positive = all((trial.summary.get(name) or 0.0) > 0 for trial in trials)
        ratio = row.ratio if row and positive else _ratio(baseline, candidate)
        about = About(METRICS[name].label, METRICS[name].unit, part)
        yield Factor(about, baseline, candidate, ratio)
    for key, label, unit, part in PANELS:
        baseline = mean_of_panel(key, group.baseline, seconds)
        candidate = mean_of_panel(key, arm, seconds)
        about = About(label, unit, part)
        yield Factor(
            about,
            baseline,
            candidate,
            _ratio(baseline, candidate),
        )


def _ratio(baseline: float | None, candidate: float | None) -> float | None:
    if baseline is None or candidate is None or min(baseline, candidate) < NOTHING:
        return None
    return candidate / baseline


def _shares(group: Group, seconds: Telemetry, arm: str) -> dict[str, float]:
    """Return what shares of time and bytes an arm's trials spend on what, without those that are
    not known. CPU time is a share of that of all cores; reads, writes and flushes share the time
    in which the device had a request.
    """
    shares = {}
    # The CPU's time, as sar counts it.
    percent = {"cpu": group.value(arm, "cpu_pct")}
    for key in ("system", "iowait"):
        percent[key] = mean_of_panel(key, arm, seconds)
    for part, value in percent.items():
        if value is not None:
            shares[part] = value / 100

    queue = mean_of_panel("queue", arm, seconds)
    if queue is not None:
        shares["in flight"] = min(1.0, queue)

    # A workload has one of these units.
    for unit in ("tx", "gib"):
        read = group.value(arm, f"read_kb_per_{unit}")
        written = group.value(arm, f"write_kb_per_{unit}")
        if read is not None and written is not None and read + written > 0:
            shares |= {
                "read": read / (read + written),
                "written": written / (read + written),
            }

    # Waiting is shared in proportion to latency × rate (Little).
    waits = {}
    for part, side in WAITS:
        waits[part] = seconds.product(arm, f"{side}_await_ms", f"{side}_per_s") / 1000
    in_flight = math.fsum(waits.values())
    if in_flight:
        for part, wait in waits.items():
            shares[part] = wait / in_flight * min(1.0, in_flight)
        shares["requests"] = shares["read wait"] + shares["write wait"]
    return shares


def _sentence(row: Row, group: Group, factors: Sequence[Factor]) -> str:
    differs = f"{group.metric.label} {change(row.ratio)}"
    head = f"{row.fs_setup}: {differs} compared with {group.baseline}."
    if not factors:
        return f"{head} Nothing else was measured for this pair."
    moved = [f"{f.label} ({f.words})" for f in factors if f.has_changed_much]
    still = [f.label for f in factors if not f.has_changed_much]
    also = f"Also changed: {join_words(moved[:4])}." if moved else "Nothing else changed."
    rest = f" Within 10{GROUP}%: {join_words(still)}." if still else ""
    return f"{head} {also}{rest}"
