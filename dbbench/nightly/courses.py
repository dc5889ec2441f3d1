"""The nights of a plan as the page draws them: one course a series, every missing night in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dbbench.nightly.analysis import missing_between
from dbbench.nightly.baselines import all_accepted
from dbbench.nightly.history import FOLDER, ITSELF, Night, known
from dbbench.page.nights import Course, NightPoint


def courses_of(results: Path, runs: Sequence[str]) -> tuple[Course, ...]:
    """All series of the plans that any of these runs is a night of; () where none is."""
    found: list[Course] = []
    for path in sorted((results / FOLDER).glob("*.jsonl")):
        nights = known(results, path.stem)
        if any(night.run in runs for night in nights):
            accepted = tuple((one.created[:10], one.reason) for one in all_accepted(results).get(path.stem, ()))
            found += [_course(key, nights, accepted) for key in dict.fromkeys(k for n in nights for k in n.ratios)]
    return tuple(found)


def _course(key: str, nights: Sequence[Night], accepted: tuple[tuple[str, str], ...]) -> Course:
    title, _, arm = key.rpartition(": ")
    reference = next((name for night in nights for name in night.ratios
                      if name.startswith(f"{title}: ") and name.endswith(ITSELF)), "")  # fmt: skip
    itself = arm.endswith(ITSELF)
    points: list[NightPoint] = []
    for night in nights:
        if points:
            points += [NightPoint(date, None) for date in missing_between(points[-1].night, night.night)]
        points.append(_point(night, key))
    against = "" if itself else reference.rpartition(": ")[2].removesuffix(ITSELF)
    return Course(title, arm.removesuffix(ITSELF), against, tuple(points), accepted)


def _point(night: Night, key: str) -> NightPoint:
    ratio = night.ratios.get(key)
    state = night.states.get(key, "")
    if ratio is None:
        return NightPoint(night.night, None, good=night.good, state=state, changed=night.breaks)
    return NightPoint(night.night, ratio.ratio, ratio.lo, ratio.hi, night.good, state, night.breaks)
