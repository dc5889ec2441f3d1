"""What the page says and draws of runs that are incomplete, uneven or unusual."""

import dataclasses
import json
import re
from pathlib import Path

from synthetic import TPCB, Shape

from dbbench.report.page.html import build, render
from tests.support.pages import Seen, loaded, model, notices, said
from tests.unit.test_page_parts import unpacked


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    """Trials that were not driven are counted in the notice, in the line below the picture and in
    the table. A run that was interrupted at once has a page that says so. A reader who looks for
    an arm that was not run finds why it is missing.
    """
    page = model(tmp_path / "some", Shape(work=TPCB, missing=4))
    assert "5 of 9 trials are done. The same dbbench run command resumes it" in notices(page)
    assert page.verdict.quality.startswith("5 trials count; 4 have not run. ")
    assert sum(row.missing for row in page.comparisons[0].table.rows) == 4
    text = Seen(render([loaded(tmp_path / "none", Shape(work=TPCB, missing=9))])).text
    for words in ("0 of 9 trials are done", "Nothing was measured", "no trial left a series"):
        assert words in text
    whole = loaded(tmp_path / "run", Shape(work=TPCB))
    run = dataclasses.replace(
        whole.run, skipped={"ext4-prealloc": "with postgres it is the same as ext4"}
    )
    skipped = notices(build([dataclasses.replace(whole, run=run)]))
    assert "ext4-prealloc was not run: with postgres it is the same as ext4." in skipped


def test_failed_baseline_leaves_nothing_to_compare(tmp_path: Path) -> None:
    """Other setups have figures without ratios; the failure is listed with its ID, phase and
    trials.
    """
    failed = tuple(f"ext4.postgres.pgbench-tpcb-b{block}-a1" for block in (1, 2, 3))
    page = model(tmp_path, Shape(work=TPCB, failed=failed))
    assert said(page).startswith("Nothing can be compared: of the baseline ext4, 3 trials failed.")
    assert page.comparisons[0].dots is None
    first = page.findings[0]
    assert (first.ident, first.grave, len(first.places)) == ("E402", True, 3)
    assert "in phase measure" in first.places[0].where
    excluded = tuple(f"block {block}.1: E402 in phase measure" for block in (1, 2, 3))
    assert [row.excluded for row in page.comparisons[0].table.rows if row.arm.name == "ext4"] == [
        excluded
    ]


def test_one_trial_of_five_seconds(tmp_path: Path) -> None:
    """There is a figure, nothing to compare, and what was not recorded is named."""
    shape = Shape(arms=("ext4",), work=TPCB, blocks=1, warmup_s=1, measure_s=4, samplers=False)
    page = model(tmp_path, shape)
    assert said(page).startswith("ext4 reached ")
    captions = {chart.ident: chart.caption for chart in page.comparisons[0].timelines.charts}
    assert captions["cpu"] == "Not drawn: no trial has data from sar."
    assert captions["await"] == "Not drawn: no trial has data from iostat."
    assert page.verdict.plots == ()


def test_another_durability_class_is_not_ranked(tmp_path: Path) -> None:
    """The faster arm that promises less is neither fastest nor in the sentence; a notice names both
    classes. With scatter as large as the difference the answer says that it is open.
    """
    page = model(tmp_path, Shape(arms=("ext4", "ext4-nobarrier", "btrfs"), work=TPCB, measure_s=60))
    assert "ext4-nobarrier" not in said(page)
    assert said(page) == "btrfs is about half as fast as ext4."
    assert (
        "ext4-nobarrier is not ranked: its durability class is no-barrier, that of ext4 is full"
        in notices(page)
    )
    table = page.comparisons[0].table
    assert [(row.arm.name, row.arm.apart) for row in table.rows][-1] == ("ext4-nobarrier", True)
    wide = page.comparisons[0].dots[0] if page.comparisons[0].dots else None
    assert wide is not None and [row.arm.apart for row in wide.rows] == [False, True]
    page = model(tmp_path / "open", Shape(arms=("ext4", "xfs"), work=TPCB, noise=0.1))
    assert said(page).startswith("ext4 and xfs cannot be told apart yet")
    assert "fastest" not in said(page)


def test_answer_about_twelve_setups_stays_short(tmp_path: Path) -> None:
    """It names the first of many and counts the others; the picture and the table have all."""
    arms = ("ext4", *(f"fs-{n}" for n in range(11)))
    page = model(tmp_path, Shape(arms=arms, work=TPCB, measure_s=60))
    assert len(said(page)) < 400 and " others " in said(page)
    assert {len(plot.rows) for plots in page.verdict.plots for plot in plots} == {11}
    assert len(page.comparisons[0].table.rows) == 12


def test_gaps_of_a_sampler_stay_gaps(tmp_path: Path) -> None:
    """Seconds without data are missing in the packed series, and zeros are not."""
    page = model(tmp_path, Shape(arms=("ext4",), work=TPCB, blocks=1, gaps=(8, 12)))
    data = page.comparisons[0].timelines.data
    _, length, *content = data["series"]["user"]
    (row,) = unpacked((content[0], content[1], content[2]), length)
    assert [i for i, v in enumerate(row) if v is None] == [8, 9, 10, 11]
    _, length, *content = data["series"]["tps"]
    assert None not in unpacked((content[0], content[1], content[2]), length)[0]


def test_figures_refer_to_columns_that_exist(tmp_path: Path) -> None:
    """Every trace names an arm and packed columns of its group; in each plot every arm has a line
    that no button hides. An arm with two used trials has a line for each, an excluded trial is
    only among "Each trial". The dark look leaves no colour of the light one.
    """
    page = model(
        tmp_path,
        Shape(work=TPCB, blocks=2, suspect=("xfs.postgres.pgbench-tpcb-b2-a1",), gaps=(8, 12)),
    )
    drawing = page.drawing
    group = page.drawing["groups"][0]
    text = json.dumps(
        [drawing["template"], drawing["picture"], [each["charts"] for each in drawing["groups"]]]
    )
    colors = set(re.findall(r"#[0-9a-f]{6}|rgba\([^)]*\)", text)) - {"rgba(0,0,0,0)"}
    assert len(colors) > 10 and colors <= set(drawing["dark"])
    for chart in group["charts"]:
        always: dict[str, set[int]] = {}
        for trace in chart["data"]:
            meta = trace["meta"]
            columns = {meta["key"]} if "key" in meta else set(meta.get("keys", ()))
            assert columns <= set(group["series"]) and (
                columns or meta["of"] in ("stalls", "checkpoints")
            )
            assert all(group["trials"][row]["arm"] == meta["arm"] for row in meta.get("rows", ()))
            if meta["of"] in ("median", "rows", "sum") and "trials" not in meta:
                always.setdefault(trace["yaxis"], set()).add(meta["arm"])
        every = {arm for arms in always.values() for arm in arms}
        assert every == {0, 1, 2}
        assert chart["id"] == "cpu" or all(arms == every for arms in always.values())
    lines = [
        t for t in group["charts"][0]["data"] if t["meta"]["arm"] == 1 and t["meta"]["of"] == "rows"
    ]
    assert [(t["name"], "trials" in t["meta"]) for t in lines] == [
        ("xfs block 1", False),
        ("xfs block 2, excluded", True),
        ("xfs block 2", False),
    ]


def test_excluded_trials_are_hollow_and_have_a_reason(tmp_path: Path) -> None:
    """A suspect block is repeated: its points stay, hollow, with the reason in their title."""
    page = model(
        tmp_path, Shape(work=TPCB, suspect=("xfs.postgres.pgbench-tpcb-b2-a1",), measure_s=60)
    )
    plots = page.comparisons[0].dots
    assert plots is not None
    row = next(row for row in plots[0].rows if row.arm.name == "xfs")
    assert [dot.hollow for dot in row.dots] == [False, True, False, False]
    assert "excluded: suspect (W012)" in row.dots[1].label
    assert [r.used for r in page.comparisons[0].table.rows] == [3, 3, 3]


def test_several_runs_stand_beside_each_other(tmp_path: Path) -> None:
    """Runs are not compared with each other; each group names its run."""
    shapes = [Shape(work=TPCB, name="one"), Shape(work=TPCB, name="two", arms=("ext4", "zfs-8k"))]
    page = build([loaded(tmp_path, shape) for shape in shapes])
    assert [comparison.group.title.rpartition(" · ")[2] for comparison in page.comparisons] == [
        "one",
        "two",
    ]
    assert [mark.name for mark in page.marks] == ["ext4", "xfs", "btrfs", "zfs-8k"]
