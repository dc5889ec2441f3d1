"""The page's nights: gaps stay gaps, levels are between change points, accepted levels are marked."""

from __future__ import annotations

import dataclasses
import datetime
import random
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import synthetic
from synthetic import Shape

from dbbench import results
from dbbench.compare import changepoints
from dbbench.nightly import analysis, history
from dbbench.nightly.history import ITSELF, Night, Ratio
from dbbench.report.page import render
from dbbench.report.page.nights import ChangedFact, Course, NightPlot, NightPoint, night_plots, redacted
from dbbench.report.page.theme import Mark

FIRST = datetime.date(2026, 3, 1)
MARKS = {"xfs": Mark(1, "xfs")}


def date(n: int) -> str:
    """The night of that number."""
    return (FIRST + datetime.timedelta(n)).isoformat()


def course(ratios: list[float | None], against: str = "ext4") -> Course:
    """A course with intervals of ±2 %; None is a night without a figure."""
    points = [NightPoint(date(n), r, r * 0.98, r * 1.02) if r else NightPoint(date(n), None)
              for n, r in enumerate(ratios)]  # fmt: skip
    return Course("postgres pgbench-tpcb", "xfs", against, tuple(points))


def stepped(before: float, after: float, at: int, n: int) -> list[float | None]:
    """One step, with scatter of 0.4 %."""
    draw = random.Random(5)
    return [(before if i < at else after) * draw.gauss(1, 0.004) for i in range(n)]


def plot(one: Course) -> NightPlot:
    """Its drawing."""
    (found,) = night_plots([one], MARKS)
    return found


def test_a_step_is_drawn_where_the_change_point_is_and_told_with_what_was_new_that_night() -> None:
    """The line has two levels; the sentence names the change, its first night and the versions that changed."""
    values = stepped(0.95, 0.80, 20, 40)
    one = course(values)
    moved = dataclasses.replace(
        one.points[20], changed=(ChangedFact("kernel", "kernel 6.1 → 6.2"),), state="regression"
    )
    drawn = plot(dataclasses.replace(one, points=(*one.points[:20], moved, *one.points[21:])))
    assert changepoints(values) == [20]
    assert drawn.levels.count("M") == 2
    (step,) = drawn.steps
    assert step.state == "regression"
    assert re.fullmatch(r"−15\.\d\u202f% since 2026-03-21 \(kernel 6.1 → 6.2\)", step.text)
    assert "1 change of level" in drawn.caption


def test_missing_nights_are_gaps() -> None:
    """No point, no interval, and the caption counts them; a night that does not count is hollow."""
    one = course([0.95, None, None, 0.96, 0.95])
    bad = dataclasses.replace(one.points[3], good=False)
    drawn = plot(dataclasses.replace(one, points=(*one.points[:3], bad, one.points[4])))
    assert [dot.hollow for dot in drawn.dots] == [False, True, False]
    assert drawn.bars.count("M") == 2
    assert "2 nights (3 without a usable result)" in drawn.caption


@pytest.mark.parametrize("n", [1, 2, 400])
def test_one_night_or_four_hundred(n: int) -> None:
    """All points lie in the frame, the newest at the right."""
    drawn = plot(course(stepped(0.9, 0.9, 0, n)))
    assert len(drawn.dots) == n
    frame = drawn.frame
    assert all(frame.left < dot.x < frame.right and frame.top <= dot.y <= frame.bottom for dot in drawn.dots)


def test_the_reference_itself_is_in_its_own_unit() -> None:
    """A figure of transactions a second is no change of anything."""
    drawn = plot(course([1200.0, 1210.0, 1190.0], against=""))
    assert "1\u202f200" in drawn.caption
    assert all("%" not in text for _, text in drawn.ticks)


def test_a_series_without_a_figure_is_not_drawn() -> None:
    """An empty frame would say nothing."""
    assert night_plots([course([None, None])], MARKS) == ()


def test_hosts_are_taken_out() -> None:
    """A change of the host is a fact with its name in it."""
    host, kernel = ChangedFact("host", "host db1 → db2"), ChangedFact("kernel", "kernel 6.1 → 6.2")
    point = NightPoint(date(0), 1.0, changed=(host, kernel))
    (one,) = redacted([Course("t", "xfs", "ext4", (point,))], ["hosts"])
    assert one.points[0].changed == (kernel,)


def test_the_report_of_a_night_has_all_nights_of_its_plan(tmp_path: Path) -> None:
    """From the file of nights to the page: points, gaps for missing nights, acceptances, and the download."""
    folder = synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), blocks=3))
    loaded = results.load_run(folder)
    key = "postgres pgbench-tpcb"
    for n in (0, 1, 4):
        ratios = {f"{key}: xfs": Ratio(0.9, 0.89, 0.91, 5), f"{key}: ext4{ITSELF}": Ratio(1000.0, 990, 1010, 5)}
        run = folder.name if n == 4 else f"r{n}"
        history.append(tmp_path, "p", Night(date(n), run, f"{date(n)}T01:00:00.000Z", ratios=ratios))
    courses = analysis.courses_of(tmp_path, [folder.name])
    assert [(one.arm, one.against, len(one.points)) for one in courses] == [("xfs", "ext4", 5), ("ext4", "", 5)]
    assert [point.ratio for point in courses[0].points] == [0.9, 0.9, None, None, 0.9]
    page = render([loaded], nights=courses)
    assert 'id="nights"' in page
    assert "3 nights (2 without a usable result)" in page
    assert '"nights":[' in page
    assert analysis.courses_of(tmp_path, ["another"]) == ()
    assert 'id="nights"' not in render([loaded])
