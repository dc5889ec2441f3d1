"""Where the time goes: means over blocks, and the sentences that the intervals support."""

import csv
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from dbbench.compare import Row, time_layers
from dbbench.compare.time_layers import Mean
from dbbench.model import (
    CeilingFacts,
    DeviceLimit,
    DeviceRate,
    LimitFacts,
    SlowSecond,
    TimeFacts,
    TimeLayer,
    TimeWait,
    Trial,
    TrialWarning,
    Verdict,
)
from dbbench.report.page.charts.time_bars import time_section
from dbbench.report.time_layers import (
    CSV,
    cause,
    csv_rows,
    document,
    kernel_sentence,
    sentences,
    slow_seconds,
)
from dbbench.report.verdict_table import csv_text
from tests.support.trials import trial

FLUSH = TimeWait("log", "fdatasync", "log", "btrfs_sync_log", "", 0.5)
ROWS = [
    Row("ext4", "postgres", "w", verdict=Verdict.BASELINE),
    Row("btrfs", "postgres", "w", verdict=Verdict.SLOWER),
]

LIMITED = LimitFacts(DeviceLimit(iops=200))
DELAYED = LimitFacts(DeviceLimit(flush_ms=5))
WRITTEN = CeilingFacts(rates=(DeviceRate("writes", "IOPS", 197.1, True),))


def timed(arm: str, block: int, **ms: float) -> Trial:
    """A trial whose sessions spend these ms per transaction in each layer."""
    every = dict.fromkeys(map(str, TimeLayer), 0.0) | ms
    total = sum(ms.values())
    shares = {layer: value / total for layer, value in every.items()}
    facts = TimeFacts(samples=100, shares=shares, ms_per_tx=every, waits=(FLUSH,))
    return trial(arm, block, 100.0, time=facts)


def run(blocks: int = 3, log: float = 3.0, **more: float) -> list[Trial]:
    """Blocks of ext4 with 1 ms of CPU and 1.1 ms of log, and of btrfs with more log."""
    trials = []
    for block in range(1, blocks + 1):
        noise = 0.01 * block
        trials.append(timed("ext4", block, cpu=1.0 - noise, log=1.1 + noise))
        trials.append(timed("btrfs", block, cpu=1.0, log=log + noise, **more))
    return trials


def test_the_mean_of_three_blocks_has_a_t_interval() -> None:
    """Standard deviation 1, t(0.975, 2) = 4.3027, divided by the root of 3."""
    value, lo, hi = time_layers.mean([1.0, 2.0, 3.0])
    assert (value, lo, hi) == pytest.approx((2.0, 2 - 2.4841, 2 + 2.4841), abs=1e-3)


def test_two_blocks_have_no_interval() -> None:
    """As for the ratios."""
    assert time_layers.mean([1.0, 3.0]) == Mean(2.0, None, None)


def test_a_difference_is_made_of_layers() -> None:
    """Only the log takes longer, and the function in which it sleeps is named."""
    line = sentences(run(), ROWS)[-1]
    assert line.startswith("btrfs compared with ext4: a transaction takes 1.92\u202fms longer (")
    assert (
        "1.90\u202fms of it waiting for the log to be written and flushed (in btrfs_sync_log)"
        in line
    )


def test_the_latency_of_an_open_loop_has_the_wait_for_a_free_session() -> None:
    """It begins with the schedule, while the session is still busy with another transaction."""
    trials = []
    for timed_trial in run(log=1.1, client=3.0):
        trials.append(dataclasses.replace(timed_trial, parameters={"rate": 100}))
    assert "3\u202fms of it waiting for a free session" in sentences(trials, ROWS)[-1]


def test_the_cpu_of_the_load_s_threads_is_beside_the_wait_for_it() -> None:
    """What the load generator does while sessions wait for it."""
    client = {"cpu": 1.0, "queue": 0.25}
    trials = []
    for block in (1, 2, 3):
        of_block = timed("ext4", block, cpu=1.0, client=3.0)
        facts = dataclasses.replace(of_block.time or TimeFacts(), client=client)
        trials.append(dataclasses.replace(of_block, time=facts))
    line = sentences(trials, ROWS[:1])[0]
    assert "waiting for the client (on average, 1 of its threads had a CPU and 0.250 waited" in line


def test_a_setup_has_a_sentence_and_its_limit() -> None:
    """The largest layer first, with its interval."""
    line = sentences(run(), ROWS)[1]
    assert line.startswith("btrfs: a session spends 75")
    assert line.endswith("25\u202f% (25 to 25) on a CPU. Its limit: log flush.")


def test_two_blocks_explain_nothing() -> None:
    """A sentence needs an interval."""
    for line in sentences(run(2), ROWS):
        assert "the time is not explained" in line


def test_layers_of_the_same_size_explain_nothing() -> None:
    """No layer is certainly the largest if their intervals overlap."""
    trials = []
    for block, more in enumerate((0.0, 0.3, -0.2), 1):
        trials.append(timed("ext4", block, cpu=1.0, log=1.0 + more))
    assert "no layer is certainly the largest" in sentences(trials, ROWS[:1])[0]


def test_a_difference_without_a_verdict_has_no_sentence() -> None:
    """Setups that cannot be told apart are not explained."""
    rows = [ROWS[0], Row("btrfs", "postgres", "w", verdict=Verdict.INCONCLUSIVE)]
    assert not [line for line in sentences(run(), rows) if "compared with" in line]


def test_a_difference_in_what_is_not_known_is_not_explained() -> None:
    """The samples do not say what took longer."""
    assert sentences(run(log=1.1, unknown=3.0), ROWS)[-1].endswith("the time is not explained.")


@pytest.mark.parametrize(
    ("ms", "word"),
    [
        ({"log": 3.0}, "log flush"),
        ({"read": 2.0, "filesystem": 1.0}, "device"),
        ({"cpu": 1.0, "queue": 2.0}, "CPU"),
        ({"lock": 2.0, "cpu": 1.0}, "locks"),
        ({"client": 2.0, "cpu": 1.0}, "client"),
        ({"cpu": 1.0, "log": 1.0, "read": 1.0}, ""),
    ],
)
def test_a_word_names_the_limit(ms: Any, word: str) -> None:
    """Layers of one kind with more than half of the time."""
    assert time_layers.limit([timed("ext4", 1, **ms)]) == word


@pytest.mark.parametrize(
    ("waits", "word"),
    [
        ((), "CPU"),
        ((TimeWait("throttled", function="balance_dirty_pages", share=0.5),), "throttling"),
    ],
)
def test_a_used_up_quota_of_cpu_time_is_the_cpu(waits: Any, word: str) -> None:
    """Threads that the kernel holds back for another reason sleep in one of its functions."""
    quota = timed("ext4", 1, throttled=2.0, log=1.0)
    assert quota.time is not None
    quota = dataclasses.replace(quota, time=dataclasses.replace(quota.time, waits=waits))
    assert time_layers.limit([quota]) == word


@pytest.mark.parametrize(
    ("ms", "fields", "word"),
    [
        ({"client": 2.0, "cpu": 1.0}, {"parameters": {"rate": 100}}, "rate"),
        ({"log": 3.0}, {"limit": DELAYED}, "limit"),
        ({"log": 1.0, "lock": 2.0}, {"limit": DELAYED}, "locks"),
        ({"log": 1.0, "lock": 1.0, "read": 1.0}, {"limit": LIMITED, "ceiling": WRITTEN}, "limit"),
        ({"cpu": 3.0}, {"limit": LIMITED, "ceiling": WRITTEN}, "CPU"),
        ({"log": 3.0}, {"limit": LIMITED, "ceiling": CeilingFacts()}, "log flush"),
        ({"cpu": 3.0}, {"warnings": (TrialWarning("W016", ""),)}, "client"),
        (
            {"client": 3.0},
            {"warnings": (TrialWarning("W016", ""),), "parameters": {"rate": 100}},
            "client",
        ),
    ],
)
def test_what_the_plan_or_the_client_limits_has_its_word(ms: Any, fields: Any, word: str) -> None:
    """An open loop waits for its rate, a full device for the plan's limit, a client for a CPU."""
    limited = dataclasses.replace(timed("ext4", 1, **ms), **fields)
    assert time_layers.limit([limited]) == word


def test_a_trial_without_samples_does_not_change_the_word() -> None:
    """Three trials wait for the plan's delay, of which one was not observed."""
    trials = [timed("ext4", block, log=3.0) for block in (1, 2, 3)]
    delayed = [dataclasses.replace(each, limit=DELAYED) for each in trials]
    delayed[1] = dataclasses.replace(delayed[1], time=TimeFacts("why"))
    assert time_layers.limit(delayed) == "limit"


def test_slow_seconds_and_kernel_threads_are_in_words() -> None:
    """The slowest second of all blocks is first."""
    slow = [SlowSecond(7, 9.0, "log", 0.8, "jbd2_log_wait_commit", ("checkpoint",))]
    trials = []
    for block, tps in enumerate((9.0, 5.0), 1):
        seconds = (dataclasses.replace(slow[0], tps=tps),)
        facts = TimeFacts(shares={"log": 1.0}, slow=seconds, kernel={"loop": 0.02 * block})
        trials.append(trial("ext4", block, 100.0, time=facts))
    first, second = slow_seconds(trials, ["ext4", "xfs"])
    assert first[:2] == ("ext4", "block 2, second 7: 5 tx/s")
    assert second[:2] == ("ext4", "block 1, second 7: 9 tx/s")
    assert cause(slow[0]).endswith("and flushed (in jbd2_log_wait_commit); checkpoint")
    sentence = kernel_sentence("ext4", trials).replace("\u202f", " ")
    assert sentence == "ext4: kernel threads used 3.0 % (loop) of a CPU."


def test_trials_without_samples_have_no_layers() -> None:
    """Results of earlier versions, and servers that could not be observed."""
    unseen = [trial("ext4", 1, 100.0), trial("ext4", 2, 100.0, time=TimeFacts("why"))]
    assert sentences(unseen, ROWS) == []
    (setup,) = document(unseen, ["ext4"])
    assert (setup["layers"], setup["notes"]) == ([], ["why"])


def test_layers_for_a_spreadsheet() -> None:
    """A row for each setup and layer, with the numbers of the JSON."""
    setups = document(run(), ["ext4", "btrfs"])
    rows = list(csv.DictReader(csv_text(CSV, csv_rows(setups)).splitlines()))
    assert len(rows) == 2 * len(TimeLayer)
    (log,) = (row for row in rows if (row["fs_setup"], row["layer"]) == ("btrfs", "log"))
    assert (log["workload"], log["functions"]) == ("w", "btrfs_sync_log")
    assert float(log["ms_per_tx"]) == pytest.approx(3.02)
    assert float(log["ms_lo"]) < 3.02 < float(log["ms_hi"])


def test_bars_are_aligned_and_divided() -> None:
    """The longest bar has the whole width; the others are in proportion."""
    trials = run()
    group: Any = SimpleNamespace(
        trials=trials,
        arms=["ext4", "btrfs"],
        rows=ROWS,
        marks={"ext4": None, "btrfs": None},
        used_of=lambda arm: [trial for trial in trials if trial.fs_setup == arm],
    )
    section = time_section(group)
    widths = [sum(segment.share for segment in bar.segments) for bar in section.bars]
    assert widths == pytest.approx([100 * 2.1 / 4.02, 100.0], abs=0.1)
    assert [name for name, _ in section.columns] == ["cpu", "log"]
