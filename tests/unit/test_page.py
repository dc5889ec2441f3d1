"""The page as a function of results: identical bytes, the figures of compare, and missing data is
named.
"""

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli
from dbbench.compare import rows
from dbbench.errors import UnknownName
from dbbench.report.answer import SHORT
from dbbench.report.page.groups import groups
from dbbench.report.page.headline import disagreements
from dbbench.report.page.headline import notices as notices_of
from dbbench.report.page.html import build, render
from dbbench.report.sentences import plain_text
from dbbench.results import LoadedRun
from tests.unit.test_page_parts import unpacked

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}"


class Seen(HTMLParser):
    """Elements with their attributes, scripts with their content, and all text outside of them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def loaded(tmp_path: Path, shape: Shape) -> LoadedRun:
    """A run of that shape, written and read back."""
    return synthetic.loaded(tmp_path, shape)


def model(tmp_path: Path, shape: Shape) -> SimpleNamespace:
    """Its page."""
    return build([loaded(tmp_path, shape)])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """Three filesystems under two engines and a scan, three blocks, short windows."""
    return loaded(tmp_path_factory.mktemp("demo"), Shape())


@pytest.fixture(scope="module")
def page(demo: LoadedRun) -> Seen:
    """The demo's page, taken apart."""
    return Seen(render([demo]))


def data_of(page: Seen) -> dict[str, Any]:
    """The results that it carries for a download."""
    ids = [attributes.get("id") for tag, attributes in page.elements if tag == "script"]
    found: dict[str, Any] = json.loads(page.scripts[ids.index("results-data")])
    return found


def notices(page: SimpleNamespace) -> str:
    """All notices as text."""
    shown = (*page.verdict.caveats, *page.verdict.notices)
    return " ".join(text.replace("**", "") for _, text in shown)


def said(page: SimpleNamespace) -> str:
    """The answer as text."""
    return " ".join(
        plain_text(parts) for _, words in page.verdict.answers for parts in words.sentences
    )


def test_same_results_give_the_same_bytes(demo: LoadedRun) -> None:
    """No clock, no chance, no order of a set; from the folder or from what was loaded."""
    assert render([demo]) == render([demo.path])


def test_every_figure_of_tables_and_downloads_is_that_of_compare(
    demo: LoadedRun, page: Seen
) -> None:
    """Each cell carries the raw value; all of them together are all values of compare for those
    metrics. The JSON in the page has every row, and every trial with whether it counts.
    """
    cells = [a for tag, a in page.elements if tag == "td" and "data-metric" in a]
    shown = sorted(
        float(a["data-value"] or "nan")
        for a in cells
        if a["data-value"] and a["data-metric"] != "ratio"
    )
    metrics = {str(a["data-metric"]) for a in cells} - {"ratio"}
    wanted = sorted(
        r.value for m in metrics for r in rows(demo.trials, "ext4", m) if r.value is not None
    )
    by_group = {(r.engine, r.workload) for r in rows(demo.trials, "ext4", "disk_bytes")}
    assert len(by_group) == 3
    assert wanted == shown
    ratios = [
        float(a["data-value"] or "nan")
        for a in cells
        if a["data-metric"] == "ratio" and a["data-value"]
    ]
    assert len(ratios) == 9
    data = data_of(page)
    table = next(
        t for t in data["compare"] if t["metric"] == "tps" and t["rows"][0]["engine"] == "mariadb"
    )
    own = {cell.workload.name: cell.workload.primary for cell in demo.run.cells}
    compared = [r for r in rows(demo.trials, "ext4", own) if r.engine == "mariadb"]
    downloaded = [(row["fs_setup"], row["ratio"], row["lo"]) for row in table["rows"]]
    assert downloaded == [(row.fs_setup, row.ratio, row.lo) for row in compared]
    assert len(data["trials"]) == 27 and all(trial["used"] for trial in data["trials"])


def test_page_is_self_contained(page: Seen) -> None:
    """The policy's hashes are those of the page's three scripts; connections are refused. No
    element loads anything; a link leads to a place in the page, or to the file of a trial in the
    run's folder.
    """
    policy = next(str(a["content"]) for _, a in page.elements if a.get("http-equiv"))
    kinds = [a.get("type") for tag, a in page.elements if tag == "script"]
    code = [text for text, kind in zip(page.scripts, kinds, strict=True) if kind is None]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    assert len(hashes) == 3
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "connect-src 'none'" in policy and "unsafe-eval" not in policy
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed"), tag
        assert "src" not in attributes
        assert re.fullmatch(
            r"#.*|trials/[\w.+:=%-]+/trial\.json", str(attributes.get("href") or "#")
        )


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Markup in names, paths, messages and the plan adds no element, and is read back as it was."""
    shape = Shape(arms=("ext4", "xfs"), failed=("ext4.postgres.pgbench-tpcb-b1-a1",))
    plain, hostile = (
        Seen(render([loaded(tmp_path / name, dataclasses.replace(shape, hostile=text))]))
        for name, text in (("a", "x"), ("b", HOSTILE))
    )
    assert [tag for tag, _ in plain.elements] == [tag for tag, _ in hostile.elements]
    assert not any("onerror" in attributes for _, attributes in hostile.elements)
    assert HOSTILE in hostile.text and "49" not in hostile.text.partition("db7")[2][:200]
    assert any(HOSTILE in (trial["host"] or "") for trial in data_of(hostile)["trials"])


def test_short_windows_say_so_first(
    demo: LoadedRun,
    page: Seen,
    tmp_path: Path,
) -> None:
    """Below a minute the page says that it is not for buying; at a minute it does not."""
    assert build([demo]).verdict.caveats[0][0] == SHORT
    answer = "cannot be told apart" if "cannot be told apart" in page.text else "than ext4"
    assert page.text.index("This was a smoke test") < page.text.index(answer)
    long = model(
        tmp_path, Shape(arms=("ext4", "xfs"), work=TPCB, blocks=1, warmup_s=60, measure_s=60)
    )
    assert "smoke test" not in notices(long)


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


def test_lower_is_better_is_reported_and_drawn(demo: LoadedRun) -> None:
    """A scan's change is one of its duration: it has a picture of its own, with "slower" on the
    right.
    """
    page = build([demo])
    assert "btrfs is about half as fast as ext4 in all three tests." in said(page)
    assert [plots[0].sides for plots in page.verdict.plots] == [
        ("← slower", "faster →"),
        ("← faster", "slower →"),
    ]
    assert [[group.workload for _, group in plots[0].titles] for plots in page.verdict.plots][
        1
    ] == ["scan"]


def test_gaps_of_a_sampler_stay_gaps(tmp_path: Path) -> None:
    """Seconds without data are missing in the packed series, and zeros are not."""
    page = model(tmp_path, Shape(arms=("ext4",), work=TPCB, blocks=1, gaps=(8, 12)))
    data = page.comparisons[0].timelines.data
    _, length, *content = data["series"]["user"]
    (row,) = unpacked((content[0], content[1], content[2]), length)
    assert [i for i, v in enumerate(row) if v is None] == [8, 9, 10, 11]
    _, length, *content = data["series"]["tps"]
    assert None not in unpacked((content[0], content[1], content[2]), length)[0]


def test_stalls_are_those_of_the_trials(demo: LoadedRun) -> None:
    """The strip's ticks are as many as the summary's stalled seconds, trial by trial, and lie in
    the window.
    """
    page = build([demo])
    for comparison in page.comparisons[:2]:
        data = comparison.timelines.data
        trials = {(t.fs_setup, t.block): t for t in comparison.group.trials}
        seen = 0
        for trial in data["trials"]:
            real = trials[comparison.group.arms[trial["arm"]], trial["block"]]
            assert len(trial["stalls"]) == real.summary["stall_s"]
            assert all(second >= data["warmup"] for second in trial["stalls"])
            seen += len(trial["stalls"])
        assert seen > 0


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


def test_points_lie_between_the_edges_and_the_interval_around_the_centre(demo: LoadedRun) -> None:
    """Geometry: every point within the frame, the centre within its interval, both drawings with
    the same rows.
    """
    for comparison in build([demo]).comparisons:
        assert comparison.dots is not None
        for plot in comparison.dots:
            for row in plot.rows:
                assert all(plot.frame.left <= dot.x <= plot.frame.right for dot in row.dots)
                assert row.interval is not None and row.centre is not None
                assert row.interval[0] <= row.centre <= row.interval[1]
            assert [row.arm.name for row in plot.rows] == [
                row.arm.name for row in comparison.dots[0].rows
            ]


def test_environment_puts_differences_first(demo: LoadedRun) -> None:
    """Mount options and read-ahead differ and stand by arm; the scheduler and the host are the same
    and folded. A run of two hosts has a column for each; redacted they stay two, without their
    names.
    """
    found = build([demo]).environment
    differs = {fact.name: fact.cells for fact in found.differs}
    assert differs["read-ahead"] == ("2560 kB", "2560 kB", "4096 kB")
    assert differs["mkfs"][0] == "/usr/sbin/mkfs.ext4 -q DEVICE"
    assert "queue: scheduler" in {fact.name for fact in found.same}
    assert "kernel" in {fact.name for fact in found.host}
    first = found.engines[0].rows[0]
    assert (first[0], first[2]) == ("checkpoint_timeout", "workload")
    hosts = {
        name: {"hostname": name, "kernel": kernel, "cpu_threads": 8, "versions": {"python": "3.11"}}
        for name, kernel in (("db1", "6.1"), ("db2", "6.12"))
    }
    run = dataclasses.replace(demo, run=dataclasses.replace(demo.run, hosts=hosts))
    found = build([run]).environment
    assert (found.hosts, found.several_hosts) == (["db1", "db2"], True)
    assert [(fact.name, fact.cells) for fact in found.host_differs] == [("kernel", ("6.1", "6.12"))]
    assert "cpu_threads" in {fact.name for fact in found.host}
    text = render([run])
    assert text.index("Differences between the hosts") < text.index(
        "Differences between the setups"
    )
    assert len(set(build([run], ("hosts",)).environment.hosts)) == 2
    assert "db2" not in render([run], redact=("hosts",)).partition("<header>")[2]


def test_hosts_that_disagree_are_a_notice(demo: LoadedRun) -> None:
    """Half of the blocks on a host where xfs is twice as fast next to ext4: reported before the
    figures.
    """
    group = groups([demo])[0]
    more = [dataclasses.replace(t, id=f"{t.id}x", block=t.block + 3) for t in group.trials]
    trials = [
        t
        if t.block < 4
        else dataclasses.replace(
            t,
            host="db2",
            summary={
                key: value and value * (2 if t.fs_setup == "xfs" else 1)
                for key, value in t.summary.items()
            },
        )
        for t in (*group.trials, *more)
    ]
    assert list(disagreements([group])) == []
    every = notices_of([dataclasses.replace(group, trials=tuple(trials))])
    texts = [text.replace("**", "") for kind, text in every if kind == "hosts"]
    assert len(texts) == 1 and texts[0].startswith(
        "The hosts disagree about xfs compared with ext4 (throughput): "
    )
    assert "on db2" in texts[0]


def test_several_runs_stand_beside_each_other(tmp_path: Path) -> None:
    """Runs are not compared with each other; each group names its run."""
    shapes = [Shape(work=TPCB, name="one"), Shape(work=TPCB, name="two", arms=("ext4", "zfs-8k"))]
    page = build([loaded(tmp_path, shape) for shape in shapes])
    assert [comparison.group.title.rpartition(" · ")[2] for comparison in page.comparisons] == [
        "one",
        "two",
    ]
    assert [mark.name for mark in page.marks] == ["ext4", "xfs", "btrfs", "zfs-8k"]


def test_redaction_takes_hosts_paths_and_parameters_out(demo: LoadedRun, tmp_path: Path) -> None:
    """Nothing of them is anywhere in the page; what was measured is; another word is an error,
    which writes nothing.
    """
    whole = render([demo])
    text = render([demo], redact=("hosts", "paths", "params")).partition("<header>")[2]
    shown = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    for secret in ("db7", "LOOP-SERIAL-7", "/usr/sbin", str(demo.path), "256MB"):
        assert secret in whole
        assert secret not in shown, secret
    pages = build([demo], ("hosts", "paths", "params")), build([demo])
    assert len({str([words for _, words in page.verdict.answers]) for page in pages}) == 1
    with pytest.raises(UnknownName):
        render([demo], redact=("everything",))
    target = tmp_path / "r.html"
    command = ["report", str(demo.path), "-o", str(target), "--redact"]
    assert cli.run([*command, "everything"]) == 2
    assert not target.exists()
    assert cli.run([*command, "hosts,paths"]) == 0
    assert "db7" not in target.read_text()


def test_sizes_of_the_page(tmp_path: Path) -> None:
    """12 trials × 600 s × 15 series are at most 2.2 MB, and throughput keeps every second. The
    library draws the timelines only; without them the page is below 0.5 MB.
    """
    shape = Shape(arms=("ext4", "xfs", "btrfs", "zfs-8k"), work=TPCB, warmup_s=60, measure_s=540)
    run = loaded(tmp_path, shape)
    found = build([run]).comparisons[0].timelines.data
    assert len(found["series"]) == 15
    assert found["series"]["tps"][0] == 1 and found["series"]["tps"][1] == 600
    page = render([run])
    assert len(page.encode()) <= 2_200_000
    assert "Plotly, Inc" in page
    without = render([loaded(tmp_path / "without", Shape(work=TPCB, series=False))])
    assert "Plotly, Inc" not in without and len(without.encode()) < 500_000


def test_vendored_library_is_the_version_that_its_note_names() -> None:
    """The licence note and the file itself agree."""
    from dbbench.model.base import data_folder

    assets = data_folder() / "reports" / "assets"
    head = (assets / "plotly-basic.min.js").open(encoding="utf-8").read(200)
    version = re.search(r"v(\d+\.\d+\.\d+)", head)
    note = (assets / "plotly-basic.LICENSE.txt").read_text()
    assert version is not None and f"dist-min {version[1]}" in note and "MIT License" in note
