"""The page's nights: gaps stay gaps, levels are between change points, accepted levels are
marked.
"""

import dataclasses
import datetime
import random
import re
from pathlib import Path

import pytest
import synthetic
from synthetic import Shape

from dbbench import results
from dbbench.compare import changepoints
from dbbench.nightly import analysis, history
from dbbench.nightly.night import ITSELF, Change, Night, Ratio
from dbbench.report.page.charts.kit import Chart
from dbbench.report.page.charts.nights import Course, NightPoint, night_charts
from dbbench.report.page.html import build, render
from dbbench.report.page.theme import Mark
from dbbench.report.sentences import plain_text
from dbbench.report.verdicts import verdicts

FIRST = datetime.date(2026, 3, 1)
MARKS = {"xfs": Mark(1, "xfs")}


def date(n: int) -> str:
    """The night of that number."""
    return (FIRST + datetime.timedelta(n)).isoformat()


def course(ratios: list[float | None], against: str = "ext4") -> Course:
    """A course with intervals of ±2 %; None is a night without a figure."""
    points = [
        NightPoint(date(n), r, r * 0.98, r * 1.02) if r else NightPoint(date(n), None)
        for n, r in enumerate(ratios)
    ]
    return Course("postgres pgbench-tpcb", "xfs", against, tuple(points))


def stepped(
    before: float,
    after: float,
    at: int,
    n: int,
) -> list[float | None]:
    """One step, with scatter of 0.4 %."""
    draw = random.Random(5)
    return [(before if i < at else after) * draw.gauss(1, 0.004) for i in range(n)]


def plot(one: Course) -> Chart:
    """Its drawing."""
    (night,) = night_charts([one], MARKS)
    return night.chart


def test_a_step_is_drawn_at_the_change_point_and_named_with_what_was_new_that_night() -> None:
    """The line has two levels; the sentence names the change, its first night and the versions that
    changed.
    """
    values = stepped(0.95, 0.80, 20, 40)
    one = course(values)
    moved = dataclasses.replace(
        one.points[20],
        changed={"kernel": "kernel 6.1 → 6.2"},
        state="regression",
    )
    drawn = plot(dataclasses.replace(one, points=(*one.points[:20], moved, *one.points[21:])))
    assert changepoints(values) == [20]
    assert drawn.lines[0].path.count("M") == 2
    (step,) = drawn.steps
    assert step.state == "regression"
    assert re.fullmatch(r"−15\.\d\u202f% since 2026-03-21 \(kernel 6.1 → 6.2\)", step.text)
    assert "1 change of level" in drawn.caption


def test_missing_nights_are_gaps() -> None:
    """No point, no interval, and the caption counts them; a night that does not count is hollow. A
    series without a figure is not drawn. The reference itself is in its own unit, and no change
    of anything.
    """
    one = course([0.95, None, None, 0.96, 0.95])
    bad = dataclasses.replace(one.points[3], good=False)
    drawn = plot(dataclasses.replace(one, points=(*one.points[:3], bad, one.points[4])))
    assert [dot.hollow for dot in drawn.lines[0].points] == [False, True, False]
    assert drawn.lines[0].bars.count("M") == 2
    assert "2 nights (3 without a usable result)" in drawn.caption
    assert night_charts([course([None, None])], MARKS) == ()
    drawn = plot(course([1200.0, 1210.0, 1190.0], against=""))
    assert "1\u202f200" in drawn.caption and all("%" not in text for _, text in drawn.up)


@pytest.mark.parametrize("n", [1, 2, 400])
def test_one_night_or_four_hundred(n: int) -> None:
    """All points lie in the frame, the newest at the right."""
    drawn = plot(course(stepped(0.9, 0.9, 0, n)))
    assert len(drawn.lines[0].points) == n
    frame = drawn.frame
    assert all(
        frame.left < dot.x < frame.right and frame.top <= dot.y <= frame.bottom
        for dot in drawn.lines[0].points
    )


def test_the_report_of_a_night_has_all_nights_of_its_plan(tmp_path: Path) -> None:
    """From the file of nights to the page: points, gaps for missing nights, acceptances, and the
    download.
    """
    folder = synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), blocks=3))
    loaded = results.load_run(folder)
    key = "postgres pgbench-tpcb"
    for n in (0, 1, 4):
        ratios = {
            f"{key}: xfs": Ratio(0.9, 0.89, 0.91, 5),
            f"{key}: ext4{ITSELF}": Ratio(1000.0, 990, 1010, 5),
        }
        run = folder.name if n == 4 else f"r{n}"
        history.append(
            tmp_path,
            "p",
            Night(date(n), run, f"{date(n)}T01:00:00.000Z", ratios=ratios),
        )
    courses = analysis.courses_of(tmp_path, [folder.name])
    assert [(one.arm, one.against, len(one.points)) for one in courses] == [
        ("xfs", "ext4", 5),
        ("ext4", "", 5),
    ]
    assert [point.ratio for point in courses[0].points] == [0.9, 0.9, None, None, 0.9]
    page = render([loaded], nights=courses)
    assert 'id="nights"' in page
    assert "3 nights (2 without a usable result)" in page
    assert '"nights":[' in page
    assert analysis.courses_of(tmp_path, ["another"]) == ()
    assert 'id="nights"' not in render([loaded])


def regressed_night(folder: Path) -> tuple[Course, ...]:
    """The courses of three nights: a regression on the second, which is still there on the third,
    that of the run.
    """
    key = "postgres pgbench-tpcb: xfs"
    changes = (Change("kernel", "6.1", "6.2"), Change("host", "db1", "db2"))
    for n, (ratio, state) in enumerate(((0.9, "ok"), (0.7, "regression"), (0.72, "regression"))):
        since = {key: date(1)} if n else {}
        night = Night(
            date(n),
            folder.name if n == 2 else f"r{n}",
            f"{date(n)}T01:00:00.000Z",
            ratios={key: Ratio(ratio, None, None, 2)},
            states={key: state},
            levels={key: 0.9},
            since=since,
            changes=changes if n == 1 else (),
        )
        history.append(folder.parent, "p", night)
    return analysis.courses_of(folder.parent, [folder.name])


def test_a_regression_is_the_first_thing_on_the_page_of_its_night(tmp_path: Path) -> None:
    """With night, size and what changed on the night on which it began, without hosts if they are
    redacted; the page of a night without one has nothing of it.
    """
    folder = synthetic.write(tmp_path, Shape(arms=("ext4", "xfs", "ext4-guard"), blocks=3))
    loaded = results.load_run(folder)
    courses = regressed_night(folder)
    page = render([loaded], nights=courses)
    (text,) = re.findall(r'<li class="regression">(.*?)</li>', page, re.DOTALL)
    for part in (
        f"Regression on the night of {date(2)}",
        "xfs",
        "−20.0",
        f"since the night of {date(1)}",
        "kernel 6.1 → 6.2",
        "host db1 → db2",
    ):
        assert part in text, part
    assert page.index('class="regression"') < page.index('class="sentence')
    hidden = render([loaded], redact=["hosts"], nights=courses)
    assert "kernel 6.1 → 6.2" in hidden and "db2" not in hidden
    quiet = [dataclasses.replace(one, points=one.points[:1]) for one in courses]
    assert 'class="regression"' not in render([loaded], nights=quiet) + render([loaded])


def test_the_guard_is_not_a_setup_of_the_verdict(tmp_path: Path) -> None:
    """Neither in the answer nor in its picture nor in the table of trade-offs; its figures are
    among the results.
    """
    loaded = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs", "ext4-guard"), blocks=5))
    model = build([loaded])
    said = [plain_text(parts) for _, words in model.verdict.answers for parts in words.sentences]
    drawn = {row.arm.name for plots in model.verdict.plots for plot in plots for row in plot.rows}
    assert said and not [text for text in said if "guard" in text]
    assert drawn == {"xfs"} and "2 setups" in model.subtitle
    assert {choice.arm.name for choice in model.choose.rows} == {"ext4", "xfs"}
    assert "ext4-guard" in {row.arm.name for view in model.comparisons for row in view.table.rows}
    for table in verdicts([loaded]).tables:
        assert "ext4-guard" in {row.fs_setup for row in table.rows}
