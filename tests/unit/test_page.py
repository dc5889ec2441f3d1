"""The page as a function of results: identical bytes, the figures of compare, and missing data is
named.
"""

import base64
import dataclasses
import hashlib
import re
from pathlib import Path

import pytest
from synthetic import TPCB, Shape

from dbbench import cli
from dbbench.compare import rows
from dbbench.errors import UnknownName
from dbbench.report.answer import SHORT
from dbbench.report.page.groups import groups
from dbbench.report.page.headline import disagreements
from dbbench.report.page.headline import notices as notices_of
from dbbench.report.page.html import build, render
from dbbench.results import LoadedRun
from tests.support.pages import Seen, data_of, loaded, model, notices, said

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """Three filesystems under two engines and a scan, three blocks, short windows."""
    return loaded(tmp_path_factory.mktemp("demo"), Shape())


@pytest.fixture(scope="module")
def page(demo: LoadedRun) -> Seen:
    """The demo's page, taken apart."""
    return Seen(render([demo]))


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
    (title,) = page.verdict.plots[1][0].titles
    assert title.lines == ["PostgreSQL 15.18 · scan"]


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
