"""sysbench: the counts of dbbench's wrapper, and recorded output of sysbench 1.0.20."""

from collections import Counter
from pathlib import Path

import pytest

from dbbench.drivers import sysbench, sysbench_events
from dbbench.drivers.tool import read_counts
from dbbench.errors import DriverFailed
from dbbench.metrics.counts import Counts

FIXTURES = Path(__file__).parents[1] / "fixtures" / "drivers"
ERRORS = FIXTURES / "sysbench_errors"
RATE = FIXTURES / "sysbench_rate"


def printed(folder: Path) -> str:
    """What sysbench printed in that run."""
    return (folder / "sysbench.out").read_text()


def test_all_threads_counts_add_up_to_sysbenchs_summary(tmp_path: Path) -> None:
    """Transactions and ignored errors of all threads, in their order, and counts of the printed
    histogram. Its bars meet the bucket numbers of intervals. An output without a report has no
    totals: None, not zero.
    """
    for folder in (ERRORS, RATE):
        counts = sysbench_events.parse(sysbench_events.event_files(folder), 2)
        told = read_counts(sysbench.COUNTS, printed(folder))
        assert (told["transactions"], told["errors"]) == (
            counts.all_transactions,
            counts.all_errors,
        )
    for thread in range(11):
        (tmp_path / f"events.{thread}").touch()
    assert [f"events.{n}" for n in range(11)] == [
        path.name for path in sysbench_events.event_files(tmp_path)
    ]
    histogram = sysbench.histogram(printed(RATE))
    assert told["transactions"] == histogram.total()
    buckets = {int(line.split()[1]) for line in (RATE / "queue").read_text().splitlines()}
    assert {sysbench_events.printed_ms(b) for b in buckets} <= set(histogram)
    denied = (FIXTURES / "sysbench_denied.out").read_text()
    assert set(read_counts(sysbench.COUNTS, denied).values()) == {None}
    assert not sysbench.histogram(denied)


def test_seconds_outside_the_load_are_only_in_the_total() -> None:
    """What ended after the last second is no part of the series, and not lost."""
    files = sysbench_events.event_files(ERRORS)
    short = sysbench_events.parse(files, 1)
    long = sysbench_events.parse(files, 9)
    assert long.all_transactions == short.all_transactions
    assert long.transactions[0] == short.transactions.sum()
    assert long.transactions[1:].sum() == short.outside > 0


@pytest.mark.parametrize("text", ["0 700\n", "0 700 many\n", "0 700 1\n0 7"])
def test_a_cut_or_foreign_file_is_an_error(tmp_path: Path, text: str) -> None:
    """It is not passed over."""
    (tmp_path / "events.0").write_text(text)
    with pytest.raises(DriverFailed, match="not a file of the event counter"):
        sysbench_events.parse([tmp_path / "events.0"], 2)


def test_under_a_rate_latencies_are_sysbenchs_own() -> None:
    """They have the wait in the queue; each event is in one second, what came after the last report
    too. If intervals exceed the whole run, this sysbench records its histogram in another way
    than dbbench reads it.
    """
    counts = sysbench_events.parse(sysbench_events.event_files(RATE), 4)
    whole_run = sysbench.histogram(printed(RATE))
    written = (RATE / "queue").read_text()
    without_last = "".join(
        line for line in written.splitlines(keepends=True) if float(line.split()[0]) < 2.5
    )
    sysbench_events.put_queued_latencies(counts, without_last, whole_run, lived_s=3.06)
    by_second = counts.latencies.sum(axis=1).tolist()
    expected = Counter[int]()
    for line in written.splitlines():
        expected[int(float(line.split()[0]) - 0.5)] += int(line.split()[2])
    assert [expected[0], expected[1], whole_run.total() - expected[0] - expected[1], 0] == by_second
    with pytest.raises(DriverFailed, match="its histogram of the whole run"):
        sysbench_events.put_queued_latencies(Counts(2), "1.0 500 7\n", Counter({"0.001": 7}), 2.0)


def test_a_percentile_under_a_rate_is_the_one_sysbench_prints() -> None:
    """Within the width of the buckets of sysbench (1.8 %) and dbbench (1 %)."""
    counts = sysbench_events.parse(sysbench_events.event_files(RATE), 3)
    whole_run = sysbench.histogram(printed(RATE))
    sysbench_events.put_queued_latencies(
        counts,
        (RATE / "queue").read_text(),
        whole_run,
        lived_s=3.06,
    )
    lines = [live for line in printed(RATE).splitlines() if (live := sysbench.live(line))]
    assert [live.second for live in lines] == [1, 2, 3]
    ours = counts.series(3.0)["p95_ms"]
    assert [live.p95_ms for live in lines] == pytest.approx(ours, rel=0.03)
    # damaged
    assert sysbench.live("[ 1s ] thds: 2 tps: 9.00.00 qps: 180.00 lat (ms,95%): 3.1") is None


def test_the_same_sysbench_on_a_newer_luajit() -> None:
    """Debian 13 and Ubuntu 26.04 have sysbench 1.0.20 too, built with another LuaJIT: its report is
    read in full.
    """
    printed = (FIXTURES / "sysbench_debian13.out").read_text()
    assert read_counts(sysbench.COUNTS, printed) == {
        "transactions": 119,
        "errors": 0,
        "queries": 2380,
        "reconnects": 0,
    }
    lives = [live for line in printed.splitlines() if (live := sysbench.live(line))]
    assert [(live.second, live.tps, live.p95_ms) for live in lives][::3] == [
        (1, 38.70, 77.19),
        (4, 20.89, 97.55),
    ]
