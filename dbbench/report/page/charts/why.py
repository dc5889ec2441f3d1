"""What changed together with the difference of a pair; none of it is shown to be a cause.

A measurement is ranked by the share of the time or of the bytes that it concerns, times its
change, and left out below 1 % of them: a ratio of two quantities near zero explains nothing.
What did not change rules out explanations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace as View
from typing import Final

from dbbench.compare import Row
from dbbench.compare.verdict import AHEAD, BEHIND
from dbbench.metrics.table import METRICS
from dbbench.report.page.charts.telemetry import Telemetry
from dbbench.report.page.charts.timelines import mean_of_panel
from dbbench.report.page.groups import Group
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


def whys(group: Group, seconds: Telemetry) -> tuple[View, ...]:
    """Return a panel for each arm that has a pair with the baseline. It is open if it has a
    difference to explain; `missing` was not measured, and `negligible` concerns less than 1 % of
    the time or of the bytes.
    """
    reasons = []
    shares = {arm: _shares(group, seconds, arm) for arm in group.arms}
    for row in group.rows[1:]:
        if row.ratio is None:
            continue
        every = list(_factors(group, seconds, row.fs_setup))
        known = [f for f in every if f.baseline is not None and f.candidate is not None]
        for f in known:
            of_both = (of.get(f.part) for of in (shares[group.baseline], shares[row.fs_setup]))
            f.share = max((share for share in of_both if share is not None), default=None)
        shown = [
            f
            for f in known
            if (f.share is None or f.share >= LEAST_SHARE)
            and max(f.baseline, f.candidate) >= NOTHING
        ]
        reach = min(REACH, max([LEAST_REACH, *(abs(f.far) for f in shown if f.ratio is not None)]))
        for f in shown:
            inside = max(-reach, min(reach, f.far))
            f.x = round(WIDTH / 2 + inside / reach * (WIDTH / 2 - 8), 1)
            f.arrow = "" if abs(f.far) <= reach * 1.0001 else "right" if f.far > 0 else "left"
        shown.sort(key=_rank)
        reasons.append(
            View(
                arm=group.arm(row),
                sentence=_sentence(row, group, shown),
                factors=shown,
                missing=[f.label for f in every if f not in known],
                negligible=[f.label for f in known if f not in shown],
                open=row.verdict in (*AHEAD, *BEHIND),
                one=WIDTH / 2,  # x of a ratio of 1
                width=WIDTH,
            )
        )
    return tuple(reasons)


def _rank(factor: View) -> tuple[bool, float]:
    share = LEAST_SHARE if factor.share is None else factor.share
    return not factor.has_changed_much, -min(REACH, abs(factor.far)) * share


def _factors(group: Group, seconds: Telemetry, arm: str) -> Iterator[View]:
    trials = [*group.used_of(group.baseline), *group.used_of(arm)]
    for name, part in FIGURES:
        if rows := {row.fs_setup: row for row in group.rows_of(name)}:
            values = (group.value(group.baseline, name), group.value(arm, name))
            positive = all((trial.summary.get(name) or 0.0) > 0 for trial in trials)
            ratio = rows[arm].ratio if arm in rows and positive else _ratio(*values)
            yield _factor((METRICS[name].label, METRICS[name].unit, part), *values, ratio)
    for key, label, unit, part in PANELS:
        values = (mean_of_panel(key, group.baseline, seconds), mean_of_panel(key, arm, seconds))
        yield _factor((label, unit, part), *values, _ratio(*values))


def _factor(
    about: tuple[str, str, str],
    baseline: float | None,
    candidate: float | None,
    ratio: float | None,
) -> View:
    """Return a measurement of both arms, perhaps a cause. `about`: its label, its unit and what it
    concerns. `ratio` is None if one of the values is zero or not known.
    """
    label, unit, part = about
    if ratio is None:
        words = "from zero" if candidate else "to zero"
        far = math.copysign(math.inf, (candidate or 0) - (baseline or 0))
    else:
        words = f"{'×' if ratio >= 1 else '÷'}{GROUP}{number(max(ratio, 1 / ratio))}"
        far = math.log(ratio)
    both = f"{number(baseline)} → {number(candidate)}{f'{GROUP}{unit}' if unit else ''}"
    return View(
        label=label,
        part=part,
        baseline=baseline,
        candidate=candidate,
        ratio=ratio,
        words=words,
        far=far,
        both=both,
        has_changed_much=abs(far) >= MOVED,
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
    percent = {
        "cpu": group.value(arm, "cpu_pct"),
        **{key: mean_of_panel(key, arm, seconds) for key in ("system", "iowait")},
    }
    shares = {part: pct / 100 for part, pct in percent.items() if pct is not None}
    if (queue := mean_of_panel("queue", arm, seconds)) is not None:
        shares["in flight"] = min(1.0, queue)
    for unit in ("tx", "gib"):
        read = group.value(arm, f"read_kb_per_{unit}")
        written = group.value(arm, f"write_kb_per_{unit}")
        if read is not None and written is not None and read + written > 0:
            shares |= {"read": read / (read + written), "written": written / (read + written)}
    waits = {
        part: seconds.product(arm, f"{side}_await_ms", f"{side}_per_s") / 1000
        for part, side in WAITS
    }
    if in_flight := math.fsum(waits.values()):
        waits = {part: wait / in_flight * min(1.0, in_flight) for part, wait in waits.items()}
        shares |= {**waits, "requests": waits["read wait"] + waits["write wait"]}
    return shares


def _sentence(row: Row, group: Group, factors: Sequence[View]) -> str:
    head = (
        f"{row.fs_setup}: {group.metric.label} {change(row.ratio)} compared with {group.baseline}"
    )
    if not factors:
        return f"{head}. Nothing else was measured for this pair."
    far = [f for f in factors if f.has_changed_much]
    still = [f.label for f in factors if not f.has_changed_much]
    moved = (
        f"Also changed: {join_words([f'{f.label} ({f.words})' for f in far[:4]])}."
        if far
        else "Nothing else changed."
    )
    rest = f" Within 10{GROUP}%: {join_words(still)}." if still else ""
    return f"{head}. {moved}{rest}"
