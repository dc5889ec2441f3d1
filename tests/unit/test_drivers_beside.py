"""An additional statement during a load: metrics from the seconds around it."""

from pathlib import Path

import pytest

from dbbench.drivers import beside
from dbbench.errors import PlanInvalid
from dbbench.metrics.counts import Counts
from dbbench.metrics.histogram import Histogram
from dbbench.metrics.outcome import Outcome
from dbbench.plan.catalog import catalog


def outcome(tps: list[int]) -> Outcome:
    """A load with so many transactions a second, each of 10 ms; those of a second below 50 took 800 ms."""
    counts = Counts(len(tps))
    for second, number in enumerate(tps):
        took_us = 800_000 if number < 50 else 10_000
        counts.transactions[second] = number
        counts.latencies[second, 100 * 9 if took_us == 10_000 else 1359] = number
        counts.longest_us[second] = took_us
    return Outcome(0.0, len(tps), sum(tps), 0, counts.series(len(tps)), Histogram(), between=counts.measure)


def test_a_stall_beside_the_statement_is_told() -> None:
    """Of the seconds from its begin to 5 s after its end, against the window before; neither the warm-up nor seconds
    after the window count. An even load has a ratio of 1 and no stall; without a second before there is no guess."""
    load = outcome([900, *[100] * 4, 5, 3, *[100] * 8])
    found = beside.effect(load, warm=1, began=5.2, ended=6.4, whole=15)
    assert found["during_tps_ratio"] == pytest.approx((5 + 3 + 5 * 100) / 7 / 100)
    assert (found["during_stall_s"], found["during_max_ms"]) == (2, 800)
    assert found["during_p999_ms"] == pytest.approx(800, rel=0.01)
    found = beside.effect(outcome([100] * 10), warm=0, began=3.0, ended=3.1, whole=6)
    assert (found["during_tps_ratio"], found["during_stall_s"], found["during_max_ms"]) == (1.0, 0.0, 10)
    found = beside.effect(outcome([100] * 4), warm=0, began=0.0, ended=0.1, whole=4)
    assert found["during_tps_ratio"] is found["during_stall_s"] is None


def test_a_statement_beside_work_that_runs_to_its_end_is_refused(tmp_path: Path) -> None:
    """There is no window in which it could be placed."""
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads/w.toml").write_text(
        'title = "t"\ndriver = "scan"\nengines = ["postgres"]\nwindow = "to-completion"\nprimary = "mb_per_s"\n'
        'during = "DROP TABLE a"\ndataset = { kind = "none" }\n'
    )
    with pytest.raises(PlanInvalid, match='"during" requires window = "fixed"'):
        catalog([tmp_path]).workload("w")
