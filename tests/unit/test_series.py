"""Series: one clock, gaps distinguished from zeros; histograms: percentiles within half a
percent.
"""

import gzip
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench.metrics.histogram import Histogram, bucket_of, merge
from dbbench.metrics.series import Series, on_the_second, read_csv_gz, write_csv_gz
from dbbench.units import bytes_of, seconds_of, size_text, time_text


def test_point_belongs_to_the_second_that_holds_its_intervals_middle() -> None:
    """A sample that ends at 11.02 covers 10.02..11.02: second 0 of a series that begins at 10. No
    data is None, and not-a-number is no data; a sampler that ended early leaves gaps, not zeros.
    """
    assert on_the_second([(10.9, 0.0), (12.9, math.nan)], 10.0, 3) == [0.0, None, None]
    assert Series(3, {"a": [1.0]})["a"] == [1.0, None, None]
    assert on_the_second([(11.02, 1.0), (11.98, 2.0)], 10.0, 3) == [1.0, 2.0, None]
    assert on_the_second([(12.2, 7.0), (99.0, 1.0), (3.0, 1.0)], 10.0, 2) == [None, 7.0]


def test_csv_keeps_gaps_zeros_and_the_contract_columns(tmp_path: Path) -> None:
    """`second,phase,tps,...` first, then the samplers' columns; an empty cell is a gap."""
    series = Series(2, {"cpu_user_pct": [5.0, None], "errors": [0, 0], "tps": [0.0, None]})
    write_csv_gz(tmp_path / "s.csv.gz", series, ["warmup", "measure"])
    found, phases = read_csv_gz(tmp_path / "s.csv.gz")
    assert list(found) == ["tps", "errors", "cpu_user_pct"]
    assert (found["tps"], phases) == ([0.0, None], ["warmup", "measure"])


@pytest.mark.parametrize(
    ("head", "row", "times"),
    [
        (b"", b"0,m\n", 10**7),
        (b"".join(b",c%d" % n for n in range(60)), b"0,m" + b",123.456" * 60 + b"\n", 10**5),
        (b"", b"x", 10**8),
    ],
)
def test_a_series_without_end_is_refused_at_once(
    head: bytes,
    row: bytes,
    times: int,
    tmp_path: Path,
) -> None:
    """Rows of nothing, rows of figures, one line: kilobytes that unpack to up to 100 MB. It takes a
    tenth of that on a machine that is not busy.
    """
    with gzip.open(tmp_path / "s.csv.gz", "wb", 1) as packed:
        packed.write(b"second,phase" + head + b"\n")
        for _ in range(100):
            packed.write(row * (times // 100))
    began = time.process_time()
    with pytest.raises(ValueError, match=r"more than|longer than"):
        read_csv_gz(tmp_path / "s.csv.gz")
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(("columns", "seconds"), [(99, 21_600), (1, 86_400)])
def test_hours_of_a_real_trials_columns_and_a_day_can_be_read(
    columns: int,
    seconds: int,
    tmp_path: Path,
) -> None:
    """What is refused is longer than that."""
    series = Series(seconds, {f"c{n}": [1.5] * seconds for n in range(columns)})
    write_csv_gz(tmp_path / "s.csv.gz", series, ["measure"] * seconds)
    assert read_csv_gz(tmp_path / "s.csv.gz")[0].seconds == seconds


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1e999", "x"])
def test_a_figure_that_is_not_a_number_is_damage(cell: str, tmp_path: Path) -> None:
    """It would spread through every mean."""
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(f"second,phase,a,b\n0,m,1,{cell}\n".encode()))
    with pytest.raises(ValueError):
        read_csv_gz(tmp_path / "s.csv.gz")


@pytest.mark.parametrize("percent", [1, 50, 90, 95, 99, 99.9])
def test_percentile_is_within_half_a_percent_of_the_exact_one(percent: float) -> None:
    """Nearest rank over 20 000 log-normal latencies."""
    rng = random.Random(7)
    values = sorted(rng.lognormvariate(8, 1.2) for _ in range(20_000))
    histogram = Histogram()
    for value in values:
        histogram.add(bucket_of(value))
    exact = values[math.ceil(len(values) * percent / 100) - 1] / 1000
    assert histogram.percentile_ms(percent) == pytest.approx(exact, rel=0.0051)


def test_merged_histogram_is_that_of_all_events() -> None:
    """Merging adds counts; an empty one has no percentile."""
    one = Histogram({1: 2})
    two = Histogram({1: 3, 9: 5})
    assert Histogram({1: 5, 9: 5}) == merge([one, None, two])
    assert Histogram().percentile_ms(95) is None


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        *(
            (bytes_of, *pair)
            for pair in [("4GiB", 4 << 30), ("500MB", 500_000_000), ("8k", 8192), (17, 17)]
        ),
        *(
            (seconds_of, *pair)
            for pair in [("90s", 90), ("5min", 300), ("2h", 7200), ("250ms", 0.25), (3, 3)]
        ),
    ],
)
def test_sizes_and_times(
    read: Callable[[object], float],
    written: object,
    expected: float,
) -> None:
    """They take units, or are bytes and seconds."""
    assert expected == read(written)


@pytest.mark.parametrize(
    "written", ["", "4 apples", "-3s", True, None, [], float("nan"), float("inf"), -1]
)
def test_what_is_not_a_time_says_what_was_expected(written: object) -> None:
    """A wrong value names the form that was expected."""
    with pytest.raises(ValueError, match="expected a time"):
        seconds_of(written)


def test_texts() -> None:
    """As people read them."""
    assert (size_text(3 << 29), time_text(72), time_text(11525)) == ("1.5 GiB", "1:12", "3:12:05")
