"""What changed together with the difference of a pair: the same means as elsewhere on the page.

None of it is shown to be a cause. A measurement is ranked by the share of the time or of the bytes that it concerns,
times its change, and left out below 1 % of them: a ratio of two quantities near zero explains nothing. What did not
change is listed too, because it rules out explanations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.metrics.table import METRICS
from dbbench.report.page.groups import Group
from dbbench.report.page.telemetry import Telemetry
from dbbench.report.page.theme import Mark
from dbbench.report.page.timeline import mean_of_panel
from dbbench.units import GROUP, change, listed, number

MOVED: Final = math.log(1.10)  # a smaller change is drawn pale and listed as unchanged
NOTHING: Final = 1e-6  # in the unit of the value; smaller values count as zero and have no ratio
LEAST_SHARE: Final = 0.01  # of the time or of the bytes; below, a measurement is left out
WIDTH: Final = 260  # width of the drawing of a line, px
REACH: Final = math.log(16)  # a line ends at ×16 or ÷16 with an arrow
LEAST_REACH: Final = math.log(2)  # shortest half of the axis, so that small differences do not look large
# (metric, what it concerns: a key of `_shares`)
FIGURES: Final = (
    *((f"{name}_per_{unit}", part) for unit in ("tx", "gib") for name, part in (
        ("cpu_ms", "cpu"), ("flushes", "flush"), ("write_kb", "written"), ("read_kb", "read"),
        ("io_operations", "requests"), ("context_switches", ""))),
    ("write_amplification", "written"), ("fdatasync_ms", "flush"),
)  # fmt: skip
# (panel of the timelines, label, unit, what it concerns)
PANELS: Final = (
    ("f_await", "wait for a flush", "ms", "flush"),
    ("w_await", "wait for a write", "ms", "write wait"),
    ("r_await", "wait for a read", "ms", "read wait"),
    ("queue", "requests in flight", "", "in flight"),
    ("iowait", "CPU waiting for the disk", "%", "iowait"),
    ("system", "CPU in the kernel", "%", "system"),
)
WAITS: Final = (("read wait", "r"), ("write wait", "w"), ("flush", "f"))  # columns X_await_ms and X_per_s


@dataclass(frozen=True)
class Factor:
    """One possible cause: the figures of both arms and their ratio. x positions are in pixels."""

    label: str
    unit: str
    baseline: float
    candidate: float
    ratio: float | None  # None: one of the values is zero
    x: float
    moved: bool
    share: float | None  # of the time or of the bytes, the larger of both arms; None: not known
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
    negligible: tuple[str, ...]  # labels of what concerns less than 1 % of the time or of the bytes

    @property
    def told(self) -> bool:
        """Return whether the panel has a difference to explain; other panels are folded on the page."""
        return self.row.verdict in (*AHEAD, *BEHIND)


@dataclass(frozen=True)
class _Measured:
    """A measurement of a pair. `ratio` is None if one of the values is zero."""

    label: str
    unit: str
    part: str
    baseline: float | None
    candidate: float | None
    ratio: float | None


def whys(group: Group, seconds: Telemetry) -> tuple[Why, ...]:
    """Return a panel for each arm that has a pair with the baseline."""
    reasons = []
    shares = {arm: _shares(group, seconds, arm) for arm in group.arms}
    for row in group.rows[1:]:
        if row.ratio is None:
            continue
        every = list(_measured(group, seconds, row.fs_setup))
        known = [m for m in every if m.baseline is not None and m.candidate is not None]
        concerns = {m.label: _largest(m.part, shares[group.baseline], shares[row.fs_setup]) for m in known}
        shown = [m for m in known if ((share := concerns[m.label]) is None or share >= LEAST_SHARE)
                 and max(m.baseline or 0.0, m.candidate or 0.0) >= NOTHING]  # fmt: skip
        reach = min(REACH, max([LEAST_REACH, *(abs(math.log(m.ratio)) for m in shown if m.ratio is not None)]))
        factors = sorted((_factor(m, concerns[m.label], reach) for m in shown), key=_rank)
        missing = tuple(m.label for m in every if m not in known)
        negligible = tuple(m.label for m in known if m not in shown)
        sentence = _sentence(row, group, factors)
        reasons.append(Why(group.marks[row.fs_setup], row, group.apart(row), sentence, tuple(factors), WIDTH / 2, WIDTH,
                           missing, negligible))  # fmt: skip
    return tuple(reasons)


def _measured(group: Group, seconds: Telemetry, arm: str) -> Iterator[_Measured]:
    """Yield everything that is compared for an arm and the baseline."""
    trials = [*group.used_of(group.baseline), *group.used_of(arm)]
    for name, part in FIGURES:
        rows = {row.fs_setup: row for row in group.rows_of(name)}
        if rows:
            base, row = (rows.get(group.baseline), rows.get(arm))
            values = (base.value if base else None, row.value if row else None)
            positive = all((trial.summary.get(name) or 0.0) > 0 for trial in trials)
            ratio = row.ratio if row is not None and positive else _ratio(*values)
            yield _Measured(METRICS[name].label, METRICS[name].unit, part, *values, ratio)
    for key, label, unit, part in PANELS:
        values = (mean_of_panel(key, group.baseline, seconds), mean_of_panel(key, arm, seconds))
        yield _Measured(label, unit, part, *values, _ratio(*values))


def _ratio(baseline: float | None, candidate: float | None) -> float | None:
    if baseline is None or candidate is None or min(baseline, candidate) < NOTHING:
        return None
    return candidate / baseline


def _shares(group: Group, seconds: Telemetry, arm: str) -> dict[str, float]:
    """Return what parts of the time and of the bytes of an arm's trials are used for; without those that are not known.

    CPU time is a share of that of all cores. The waits for reads, writes and flushes share the time in which the device
    had a request.
    """

    def value(metric: str) -> float | None:
        return next((row.value for row in group.rows_of(metric) if row.fs_setup == arm), None)

    percent = {"cpu": value("cpu_pct"), **{key: mean_of_panel(key, arm, seconds) for key in ("system", "iowait")}}
    shares = {part: pct / 100 for part, pct in percent.items() if pct is not None}
    if (queue := mean_of_panel("queue", arm, seconds)) is not None:
        shares["in flight"] = min(1.0, queue)
    for unit in ("tx", "gib"):
        read, written = value(f"read_kb_per_{unit}"), value(f"write_kb_per_{unit}")
        if read is not None and written is not None and read + written > 0:
            shares |= {"read": read / (read + written), "written": written / (read + written)}
    waits = {part: seconds.product(arm, f"{side}_await_ms", f"{side}_per_s") / 1000 for part, side in WAITS}
    if in_flight := math.fsum(waits.values()):
        waits = {part: wait / in_flight * min(1.0, in_flight) for part, wait in waits.items()}
        shares |= {**waits, "requests": waits["read wait"] + waits["write wait"]}
    return shares


def _largest(part: str, *of_arms: Mapping[str, float]) -> float | None:
    return max((shares[part] for shares in of_arms if part in shares), default=None)


def _factor(measured: _Measured, share: float | None, reach: float) -> Factor:
    baseline, candidate, ratio = measured.baseline or 0.0, measured.candidate or 0.0, measured.ratio
    far = math.log(ratio) if ratio is not None else math.copysign(math.inf, candidate - baseline)
    arrow = "" if abs(far) <= reach * 1.0001 else "right" if far > 0 else "left"
    inside = max(-reach, min(reach, far))
    x = WIDTH / 2 + inside / reach * (WIDTH / 2 - 8)
    return Factor(
        measured.label, measured.unit, baseline, candidate, ratio, round(x, 1), abs(far) >= MOVED, share, arrow
    )


def _rank(factor: Factor) -> tuple[bool, float]:
    """Return the key by which what explains most is first: the share of the time or of the bytes times the change."""
    far = REACH if factor.ratio is None else min(REACH, abs(math.log(factor.ratio)))
    return not factor.moved, -far * (LEAST_SHARE if factor.share is None else factor.share)


def _sentence(row: Row, group: Group, factors: Sequence[Factor]) -> str:
    """Return the sentence about what changed, what explains most first, and what did not."""
    head = f"{row.fs_setup}: {group.metric.label} {change(row.ratio)} compared with {group.baseline}"
    if not factors:
        return f"{head}. Nothing else was measured for this pair."
    far, still = [f for f in factors if f.moved], [f.label for f in factors if not f.moved]
    moved = f"Also changed: {listed([f'{f.label} ({f.words})' for f in far[:4]])}." if far else "Nothing else changed."
    rest = f" Within 10{GROUP}%: {listed(still)}." if still else ""
    return f"{head}. {moved}{rest}"
