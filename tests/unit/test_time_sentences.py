"""Where the time goes: means over blocks, and the sentences that the intervals support."""

from types import SimpleNamespace
from typing import Any

import pytest

from dbbench.compare import Row, time_layers
from dbbench.compare.time_layers import Mean
from dbbench.model import TimeFacts, TimeLayer, TimeWait, Trial, Verdict
from dbbench.report.page.charts.time_bars import time_section
from dbbench.report.time_layers import document, sentences
from tests.support.trials import trial

FLUSH = TimeWait("log", "fdatasync", "log", "btrfs_sync_log", "", 0.5)
ROWS = [
    Row("ext4", "postgres", "w", verdict=Verdict.BASELINE),
    Row("btrfs", "postgres", "w", verdict=Verdict.SLOWER),
]


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
        ({"throttled": 2.0, "cpu": 1.0}, "throttling"),
        ({"cpu": 1.0, "log": 1.0, "read": 1.0}, ""),
    ],
)
def test_a_word_names_the_limit(ms: Any, word: str) -> None:
    """Layers of one kind with more than half of the time."""
    assert time_layers.limit(time_layers.shares([timed("ext4", 1, **ms)])) == word


def test_trials_without_samples_have_no_layers() -> None:
    """Results of earlier versions, and servers that could not be observed."""
    unseen = [trial("ext4", 1, 100.0), trial("ext4", 2, 100.0, time=TimeFacts("why"))]
    assert sentences(unseen, ROWS) == []
    (setup,) = document(unseen, ["ext4"])
    assert (setup["layers"], setup["notes"]) == ([], ["why"])


def test_bars_are_aligned_and_divided() -> None:
    """The longest bar has the whole width; the others are in proportion."""
    group: Any = SimpleNamespace(
        trials=run(), arms=["ext4", "btrfs"], rows=ROWS, marks={"ext4": None, "btrfs": None}
    )
    section = time_section(group)
    widths = [sum(segment.share for segment in bar.segments) for bar in section.bars]
    assert widths == pytest.approx([100 * 2.1 / 4.02, 100.0], abs=0.1)
    assert [name for name, _ in section.columns] == ["cpu", "log"]
