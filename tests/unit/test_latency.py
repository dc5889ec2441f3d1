"""The latency distribution: percentiles of merged histograms on the page and in `dbbench show`."""

import re
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import Shape

from dbbench.compare import means
from dbbench.metrics.histogram import Histogram, bucket_of, merge, percentile_ms
from dbbench.report.page.html import build, render
from dbbench.results import LoadedRun


@pytest.fixture
def run(tmp_path: Path) -> LoadedRun:
    """Two setups under one load, and a scan without latencies."""
    work = (("postgres", "pgbench-tpcb"), ("postgres", "scan"))
    return synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs"), work=work))


def test_a_percentile_needs_ten_slower_ones() -> None:
    """Of 1000 latencies p99 is known and p99.9 is not; merging adds them up."""
    one = Histogram({bucket_of(1000.0): 980, bucket_of(9000.0): 20})
    assert [percentile_ms(one, percent) for percent in (50.0, 99.0)] == pytest.approx(
        [1.0, 9.0], rel=0.01
    )
    assert percentile_ms(one, 99.9) is None
    assert percentile_ms(merge([one] * 10 + [None]), 99.9) == pytest.approx(9.0, rel=0.01)
    assert percentile_ms(merge([]), 50.0) is None


def test_the_page_has_all_arms_in_one_chart(run: LoadedRun) -> None:
    """Percentiles are the means of the trials that count; a scan has no distribution."""
    (latency,) = build([run]).latencies
    assert [row.arm.name for row in latency.rows] == ["ext4", "xfs"]
    of_xfs = [t for t in run.trials if (t.fs_setup, t.workload) == ("xfs", "pgbench-tpcb")]
    each = [histogram for trial in of_xfs if (histogram := run.histogram(trial))]
    row = latency.rows[1]
    assert row.transactions == merge(each).total
    assert (
        row.percentiles["p99"]
        == means({"xfs": [histogram.percentile_ms(99.0) for histogram in each]})["xfs"]
    )
    assert row.percentiles["p99.99"] is None
    assert [line.mark.name for line in latency.chart.lines if line.mark] == ["ext4", "xfs"]
    for line in latency.chart.lines:
        points = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line.path)]
        assert len(points) > 50 and points == sorted(
            points, key=lambda point: (point[0], -point[1])
        )
    page = render([run])
    assert page.index('id="timelines"') < page.index('id="latency"') < page.index('id="conditions"')


def test_show_prints_the_percentiles_of_a_trial(run: LoadedRun, printed: Any) -> None:
    """A heading and a row of figures, dashes where too few latencies lie above."""
    trial = next(trial for trial in run.trials if trial.workload == "pgbench-tpcb")
    lines = printed("show", run.path.name, trial.id, "--results", str(run.path.parent)).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  latency of "))
    heading = lines[at + 1].split()
    figures = lines[at + 2].split()
    assert heading == ["p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max"]
    assert len(figures) == 8 and figures[5:7] == ["–", "–"] and float(figures[0]) > 0
