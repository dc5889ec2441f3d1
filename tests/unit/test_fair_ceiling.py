"""The limit of the device: which results it explains, and what exceeds it."""

import dataclasses

import pytest

from dbbench.compare.conditions import limit_sentence
from dbbench.metrics.series import Series
from dbbench.model import (
    CeilingFacts,
    CeilingRow,
    DeviceFacts,
    DeviceLimit,
    Durability,
    FilesystemFacts,
    IoFacts,
    LimitFacts,
    Phase,
    PhaseTime,
    Trial,
)
from dbbench.report.sentences import no_limit, plain_text
from dbbench.results import Exceeded
from dbbench.results.at_ceiling import judge
from dbbench.run.evaluate import device_rates
from tests.support.trials import trial
from tests.unit.test_fair import cell

CEILING = CeilingFacts(
    (
        CeilingRow("write_8k_fdatasync", 150, 1.2, 6.6),
        CeilingRow("write_8k", 300, 2.4, 100),
        CeilingRow("read_8k", 40_000, 320, 0.7),
        CeilingRow("write_1m", 230, 240, 130),
        CeilingRow("read_1m", 900, 900, 35),
    )
)


def rated(name: str = "ext4-1", tps: float = 120.0, **columns: list[float | None]) -> Trial:
    """A trial of five seconds with these columns, as it is stored."""
    facts = device_rates.with_rates(CEILING, Series(5, columns), cell(), tps)
    return trial(name[:-2], int(name[-1]), tps, ceiling=facts)


def limit_of(*trials: Trial, ceiling: CeilingFacts | None = None) -> list[str]:
    """What limited each of the trials of a run, "" for none."""
    return [
        "; ".join(w.text for w in one.warnings if w.id == "W042")
        for one in judge(trials, ceiling)[0]
    ]


@pytest.mark.parametrize(
    ("columns", "limit"),
    [
        # low, scattered
        ({"w_per_s": [200, 200, 200, 200, 200]}, ""),
        ({"w_per_s": [100, 500, 300, 150, 450]}, ""),
        # above, too few
        ({"w_per_s": [330, 330, 330, 330, 330]}, ""),
        ({"w_per_s": [300, None, None, None, 300]}, ""),
        (
            {"w_per_s": [285, 311.9, 260, 309, 300]},
            "writes constant at 300 IOPS; the bare device delivers 300",
        ),
        # of 1024 bytes; fio's MB have 10^6
        (
            {"w_kb_per_s": [240e6 / 1024] * 5, "r_kb_per_s": [0.0] * 5},
            "writes constant at 240 MB/s; the bare device delivers 240",
        ),
    ],
)
def test_columns_flat_at_the_ceiling_are_called_so(
    columns: dict[str, list[float | None]], limit: str
) -> None:
    """As recorded under a limit of 300 writes per second on a busy machine. Other series do not
    show a limit.
    """
    found = rated(**({"r_per_s": [204, 139, 96, 91, 109]} | columns))
    assert limit_of(found) == [limit]
    assert judge([found], None)[0][0].summary["ceiling_pct"] == 80


def test_without_a_ceiling_nothing_is_reported() -> None:
    """No fio, no share and no limit. Cloud disks count reads and writes alike: neither is at the
    ceiling, their sum is.
    """
    series = Series(5, {"r_per_s": [600, 400, 700, 500, 550], "w_per_s": [400, 600, 300, 500, 450]})
    absent = CeilingFacts(note="fio is not installed")
    assert device_rates.with_rates(absent, series, cell(), 100.0) == absent
    assert judge([trial(ceiling=absent)], None) == ((trial(ceiling=absent),), ())
    both = CeilingFacts((CeilingRow("write_8k", 1000, 8, 1), CeilingRow("read_8k", 1010, 8, 1)))
    facts = device_rates.with_rates(both, series, cell(), None)
    assert limit_of(trial(ceiling=facts)) == [
        "reads and writes constant at 1000 IOPS; the bare device delivers 1010"
    ]


def reading(name: str, mb: float) -> Trial:
    """A trial that reads so many MB/s in each second."""
    return rated(name, r_kb_per_s=[mb * 1e6 / 1024] * 5, w_kb_per_s=[0.0] * 5)


def test_what_any_trial_exceeds_is_not_a_limit_for_the_others() -> None:
    """btrfs stays at what fio measured, but ext4 reads twice as much from the same device. What
    writes reach is another matter.
    """
    writing = rated("xfs-1", r_kb_per_s=[0.0] * 5, w_kb_per_s=[240e6 / 1024] * 5)
    trials = [reading("btrfs-1", 900), reading("ext4-1", 960), writing]
    assert limit_of(*trials) == [
        "reads constant at 900 MB/s; the bare device delivers 900",
        "reads constant at 960 MB/s; the bare device delivers 900",
        "writes constant at 240 MB/s; the bare device delivers 240",
    ]
    trials.append(reading("ext4-2", 1830))
    assert limit_of(*trials) == [
        "",
        "",
        "writes constant at 240 MB/s; the bare device delivers 240",
        "",
    ]
    exceeded = judge(trials, None)[1]
    assert exceeded == (Exceeded("reads", "MB/s", 900, None, "ext4", 1830),)
    assert plain_text(no_limit(exceeded[0])) == (
        "fio measured 900 MB/s, but ext4 read 1 830 MB/s: this is no limit of the device"
    )


def test_a_second_measurement_after_the_run_counts_if_it_is_higher() -> None:
    """The first may have been disturbed. Of another host, whose first one differs, it says
    nothing.
    """
    trials = [reading("ext4-1", 1800), reading("btrfs-1", 900)]
    higher = dataclasses.replace(
        CEILING, again=(*CEILING.rows[:-1], CeilingRow("read_1m", 1800, 1850, 20))
    )
    assert limit_of(*trials, ceiling=higher) == [
        "reads constant at 1800 MB/s; the bare device delivers 1850",
        "",
    ]
    assert judge(trials, higher)[1] == ()
    lower = dataclasses.replace(
        CEILING, again=(*CEILING.rows[:-1], CeilingRow("read_1m", 1200, 1200, 30))
    )
    (exceeded,) = judge(trials, lower)[1]
    assert "fio measured 900 MB/s before the run and 1 200 after it" in plain_text(
        no_limit(exceeded)
    )
    other = dataclasses.replace(higher, rows=CEILING.rows[1:])
    assert limit_of(*trials, ceiling=other) == ["", ""]


def test_commits_that_share_flushes_have_no_share_of_the_ceiling() -> None:
    """Above 108 % of single flushed writes it is no ceiling, for no trial of the run."""
    trials, exceeded = judge([rated(tps=120.0), rated("xfs-1", tps=162.0)], None)
    assert [one.summary["ceiling_pct"] for one in trials] == [80, 108]
    assert exceeded == ()
    trials, exceeded = judge([rated(tps=120.0), rated("xfs-1", tps=163.0)], None)
    assert [one.summary["ceiling_pct"] for one in trials] == [None, None]
    assert plain_text(no_limit(exceeded[0])) == (
        "fio measured 150 flushed single writes of 8 KiB per second, and xfs committed 163 "
        "transactions per second: several share a flush, so the share of the ceiling is not shown"
    )


def test_flushes_are_named_as_they_were_counted() -> None:
    """Per second of the window, of the trial with the highest rate."""
    fast = dataclasses.replace(
        rated("xfs-1", tps=200.0),
        io=IoFacts(flushes=900),
        phases=(PhaseTime(Phase.MEASURE, "", "", 10.0),),
    )
    (exceeded,) = judge([rated(tps=120.0), fast], None)[1]
    assert "xfs committed 200 transactions per second with 90 flushes: " in no_limit(exceeded)


@pytest.mark.parametrize("flag", [Durability.ASYNC_COMMIT, Durability.NO_BARRIER])
def test_commits_that_wait_for_no_flush_are_not_compared_with_flushed_writes(
    flag: Durability,
) -> None:
    """They have no share of the ceiling, and take none from the other setups."""
    facts = FilesystemFacts("ext4", durability_flags=(flag,))
    fast = dataclasses.replace(rated("xfs-1", tps=9000.0), filesystem=facts)
    trials, exceeded = judge([rated(tps=120.0), fast], None)
    assert exceeded == ()
    assert [one.summary["ceiling_pct"] for one in trials] == [80, None]


@pytest.mark.parametrize(
    ("busy", "requests", "kb", "expected"),
    [
        (100.0, 40.0, 400.0, True),  # the slowest measurement was 150 IOPS and 1.2 MB/s
        (100.0, 100.0, 400.0, False),
        (100.0, 40.0, 20_000.0, False),  # few and large
        (50.0, 40.0, 400.0, False),  # it waited for the load
        (None, 40.0, 400.0, False),
    ],
)
def test_a_device_that_fell_below_what_it_gave_before_the_run_is_reported(
    busy: float | None,
    requests: float,
    kb: float,
    expected: bool,
) -> None:
    """Busy second after second, and less than half of its slowest measurement in requests and in
    bytes. A load shorter than iostat's first interval has an empty lead column and no other.
    """
    columns: dict[str, list[float | None]] = {
        "util_pct": [100.0, 100.0, busy, busy, busy],
        "r_per_s": [0.0] * 5,
        "r_kb_per_s": [0.0] * 5,
        "w_per_s": [900.0, 900.0, requests, requests, requests],
        "w_kb_per_s": [9000.0, 9000.0, kb, kb, kb],
    }
    found = list(device_rates.slower(CEILING, Series(5, columns), cell()))
    assert [(warning.id, warning.suspect) for warning in found] == (
        [("W106", True)] if expected else []
    )
    assert list(device_rates.slower(CEILING, Series(1, {"util_pct": [None]}), cell())) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (DeviceLimit(iops=300), ""),
        (DeviceLimit(mb_per_s=2.4576), ""),  # 300 writes of 8 KiB
        (DeviceLimit(iops=200), "write_8k of fio completed 300 IOPS instead of 200"),
        (DeviceLimit(iops=400), "write_8k of fio completed 300 IOPS instead of 400"),
    ],
)
def test_a_limit_that_fio_did_not_measure_is_reported(asked: DeviceLimit, expected: str) -> None:
    """Above it and below it: the kernel does not enforce it, or the disk is slower."""
    limit = LimitFacts(asked, "cgroup v1", (CeilingRow("write_8k", 300, 2.4576, 100),))
    warnings = list(device_rates.exceeds_limit(limit, CEILING, None, 9.0))
    assert [(warning.id, warning.text) for warning in warnings] == (
        [("W157", expected)] if expected else []
    )


def test_a_window_above_the_limit_is_reported() -> None:
    """What kernel threads write may not be limited. Two devices may do twice as much."""
    ceiling = rated(w_per_s=[500.0] * 5, r_per_s=[0.0] * 5).ceiling
    one = DeviceFacts("loop", "/dev/loop1", "loop1", 2**30)
    two = dataclasses.replace(one, members=(one, one))
    assert ceiling is not None
    limit = LimitFacts(DeviceLimit(iops=300))
    (warning,) = device_rates.exceeds_limit(limit, ceiling, one, 9.0)
    assert warning.text == "writes in the window: 500 IOPS instead of at most 300"
    assert list(device_rates.exceeds_limit(limit, ceiling, two, 9.0)) == []
    assert list(device_rates.exceeds_limit(None, ceiling, one, 9.0)) == []
    # In a burst, its rate is granted.
    limit = LimitFacts(DeviceLimit(iops=300, burst_iops=600, burst_s=10))
    (warning,) = device_rates.exceeds_limit(limit, ceiling, one, 9.0)
    assert (warning.id, warning.text) == ("W159", "a burst of 10 s, and a warm-up of 9 s")
    (warning,) = device_rates.exceeds_limit(limit, ceiling, one, 10.0)
    assert warning.id == "W157"


@pytest.mark.parametrize(
    ("asked", "measured", "cache", "expected"),
    [
        (5, 5.9, "back", ""),
        (5, 4.1, "back", ""),
        (0, 3.0, "back", ""),  # the kernel passes it on
        (1, 4.02, "back", "took 4.02 ms longer: this kernel delays in steps of 4 ms"),
        (20, 0.01, "through", "no volatile write cache, so the kernel sends it no flushes"),
        (20, 30.0, "back", "but a single flush took 30 ms longer"),
        (20, -9.0, "back", "a single flush took -9 ms longer"),  # others use the disk
    ],
)
def test_a_delay_that_single_ios_do_not_have_is_reported(
    asked: int,
    measured: float,
    cache: str,
    expected: str,
) -> None:
    """More than 20 % off, with what explains it."""
    layer = {"kind": "delay", "tick_ms": 4.0, "flush_ms": asked, "flush_measured_ms": measured}
    volume = FilesystemFacts("ext4", queue={"write_cache": f"write {cache}"}, layers=(layer,))
    warnings = list(device_rates.other_delay(volume))
    texts = [warning.text for warning in warnings]
    assert len(texts) == bool(expected) and all(warning.suspect for warning in warnings)
    assert "".join(texts).endswith(expected)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (
            LimitFacts(DeviceLimit(flush_ms=5)),
            "the device is a model: flush +5 ms; measured: 9.80 ms more per flush. ",
        ),
        (
            LimitFacts(DeviceLimit(iops=200), "cgroup v1"),
            "the device is a model: 200 IOPS, reads and writes each, by cgroup v1, not measured. ",
        ),
        (None, ""),
    ],
)
def test_a_model_is_shown_with_what_was_measured(limit: LimitFacts | None, expected: str) -> None:
    """A delay that the kernel makes longer stands next to the one that was asked for."""
    layer = {"kind": "delay", "flush_measured_ms": 9.8}
    volume = FilesystemFacts("ext4", layers=(layer,) if limit and limit.asked.delays else ())
    of = trial("ext4", 1, 100.0, limit=limit, filesystem=volume)
    sentence = plain_text(limit_sentence(of) or "")
    assert sentence.startswith(expected) and bool(sentence) == bool(expected)
