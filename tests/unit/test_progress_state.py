"""Events as lines, and what progress knows from them: the trials, and when the run will end."""

import json
import time
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.compare import means
from dbbench.model.events import Event, parse
from dbbench.report.progress.state import State, eta, mean_and_spread, opening, spark
from dbbench.report.verdicts import verdicts
from tests.support.progress_events import BEGIN, begun, ended, state_at, state_of, trial


def test_an_event_is_one_line_and_comes_back() -> None:
    """What a trial's process prints is what the runner reads; never NaN or infinity, at whatever
    depth.
    """
    event = Event("note", {"text": "zwei\nZeilen é", "value": 1.5})
    assert "\n" not in event.line()
    assert parse(event.line()) == event
    line = Event(
        "second", {"tps": float("nan"), "more": [float("inf"), {"x": float("-inf")}]}
    ).line()
    assert json.loads(line)["data"] == {"tps": None, "more": [None, {"x": None}]}


@pytest.mark.parametrize(
    "line", ["", "hello", "3", "{}", '{"kind": "note"}', '{"kind": "note", "data": 3}']
)
def test_other_lines_are_no_events(line: str) -> None:
    """What another program prints on the same stream is passed over."""
    assert parse(line) is None


def test_the_eta_follows_what_trials_took() -> None:
    """There is none before a trial has ended. Two trials of 60 s and 80 s leave two of 70 s; what
    the third has had is taken off.
    """
    assert state_at([BEGIN, begun(1, "ext4")]).left_s(100) is None
    first = ((0, BEGIN), (0, begun(1, "ext4")), (60, ended(1, "ext4", 5.0)))
    state = state_of(
        *first, (60, begun(2, "xfs")), (140, ended(2, "xfs", 5.0)), (140, begun(3, "ext4"))
    )
    assert state.left_s(150) == pytest.approx(2 * 70 - 10)


def test_the_end_is_computed_again_when_trials_are_added() -> None:
    """The number of trials counts from the moment they are added, between two trials too, and is
    never forgotten.
    """
    state = state_of((0, BEGIN), (0, begun(1, "ext4")), (60, ended(1, "ext4", 5.0)))
    assert state.left_s(60) == pytest.approx(3 * 60)
    for position in (2, 3, 4):
        state.take(begun(position, "xfs"), 60)
        state.take(ended(position, "xfs", 5.0), 120)
    assert state.left_s(240) is None
    state.take(Event("note", {"text": "2 more trials", "total": 6}), 240)
    assert (state.total, state.left_s(240)) == (6, pytest.approx(2 * 60))
    assert opening(state.run) == "2 setups x 2 blocks, 6 trials, seed 42"
    assert (
        opening({"arms": ["ext4"], "blocks": 1, "trials": 1, "seed": 1})
        == "1 setup x 1 block, 1 trial, seed 1"
    )
    state.take(Event("trial_begin", {**trial(5, "xfs", block=3), "total": 6}), 240)
    state.take(ended(5, "xfs", 5.0), 300)
    assert (state.total, state.left_s(300)) == (6, pytest.approx(60))
    assert opening(state.run) == "2 setups x 3 blocks, 6 trials, seed 42"


def test_with_a_budget_the_end_is_that_of_the_budget() -> None:
    """From the start, between trials, and while no trial is planned; only the first blocks and the
    current trial may take longer.
    """
    begin = Event("run_begin", {**BEGIN.data, "trials": 2, "first": 2, "budget_s": 300.0})
    state = State()
    state.take(begin, 0)
    assert state.left_s(10) == pytest.approx(290)
    state.take(Event("trial_begin", {**trial(1, "ext4"), "total": 2}), 10)
    state.take(ended(1, "ext4", 5.0), 210)
    assert state.left_s(210) == pytest.approx(200)  # the second one runs in any case
    state.take(Event("trial_begin", {**trial(2, "xfs"), "total": 2}), 210)
    state.take(ended(2, "xfs", 5.0), 230)
    assert state.left_s(230) == pytest.approx(70)
    state.take(Event("note", {"text": "1 more trial", "total": 3}), 231)
    state.take(Event("trial_begin", {**trial(3, "xfs"), "total": 3}), 231)
    assert state.left_s(295) == pytest.approx(110 - 64)
    state.take(ended(3, "xfs", 5.0), 310)
    state.take(Event("run_end", {"name": "r", "seconds": 310}), 310)
    assert state.left_s(310) is None


def test_trials_of_before_and_failed_ones() -> None:
    """A resumed run begins where it was stopped. A trial that failed is in no mean. An event of an
    unknown kind, of a newer version, changes nothing.
    """
    state = state_at([Event("run_begin", {**BEGIN.data, "done": 3})])
    assert (state.finished, state.total) == (3, 4)
    state = state_at(
        [
            BEGIN,
            ended(1, "ext4", 5.0, block=1, id="b1"),
            ended(2, "ext4", 7.0, "failed", block=2, id="b2"),
            ended(3, "ext4", 9.0, "suspect", block=3, id="b3"),
        ]
    )
    assert state.values == {("postgres", "tpcb", "ext4"): [5.0, 9.0]}
    assert state_at([BEGIN, Event("moonrise", {"x": 1})]).run == BEGIN.data


def test_the_mean_has_the_trials_of_the_table(tmp_path: Path) -> None:
    """An attempt that a repeated block replaces is in neither, also not after a resumption."""
    ident = "ext4.postgres.pgbench-tpcb-b2-a1"
    loaded = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs"), work=TPCB, suspect=[ident]))
    ends = []
    for each in loaded.trials:
        ends.append(
            {
                "id": each.id,
                "arm": each.fs_setup,
                "engine": each.engine,
                "workload": each.workload,
                "block": each.block,
                "attempt": each.attempt,
                "position": each.position,
                "status": each.status.value,
                "value": each.summary["tps"],
            }
        )
    begin = Event("run_begin", {**BEGIN.data, "results": ends[:3]})
    state = state_at([begin, *(Event("trial_end", end) for end in ends[3:])])
    (table,) = verdicts([loaded]).tables
    shown = {setup: means({"": of_setup})[""] for (_, _, setup), of_setup in state.values.items()}
    assert len(loaded.trials) == 8
    assert shown == {row.fs_setup: row.value for row in table.rows}


def test_bars_and_means() -> None:
    """A second without progress is the lowest bar, a second without data is empty. Mean and
    standard error in per cent: of 98 and 102, 2 ÷ 100.
    """
    assert spark([8.0, 0.0, None, 4.0]) == "█▁ ▅"
    assert spark([0.0, None]) == "▁ "
    assert mean_and_spread([98.0, 102.0]) == "100 ±2.0 % (2)"
    assert mean_and_spread([98.0]) == "98 (1)"


def test_the_end_is_a_duration_and_a_time_of_day() -> None:
    """Of a run that takes more than a day, the day too; without a measurement there is no end."""
    noon = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
    assert eta(7 * 60 + 11, noon) == "about 7 min left, until 12:07"
    assert eta(200 * 60, noon) == "about 3 h 20 min left, until 15:20"
    assert eta(50, noon) == "less than 2 min left, until 12:00"
    assert eta(30 * 3600, noon) == "about 30 h left, until Sun 18:00"
    assert eta(None) == ""
