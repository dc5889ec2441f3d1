from __future__ import annotations

import io
import json
import re
import time
from typing import Any

import pytest

from dbbench.report.progress import Event, plain, renderer
from dbbench.report.progress.event import State, eta, ignore, mean_and_spread, parsed, spark
from dbbench.report.progress.live import above, drawn

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def trial(position: int, arm: str, block: int = 1) -> dict[str, Any]:
    """The data of a trial_begin."""
    return {"id": f"{arm}.postgres.tpcb-b{block}-a1", "position": position, "total": 4, "arm": arm, "block": block,
            "attempt": 1, "engine": "postgres", "workload": "tpcb"}  # fmt: skip


def ended(position: int, arm: str, value: float | None, status: str = "ok", **more: Any) -> Event:
    """A trial_end."""
    return Event("trial_end", {**trial(position, arm), "trial": "x", "status": status, "metric": "tps",
                               "unit": "tx/s", "value": value, **more})  # fmt: skip


BEGIN = Event("run_begin", {"name": "r", "trials": 4, "done": 0, "seed": 42, "arms": ["ext4", "xfs"], "blocks": 2})
PLAYED = [
    BEGIN,
    Event("prepare", {"what": "writing the image", "fraction": 0.5}),
    Event("prepare", {"what": "writing the image", "fraction": 1.0}),
    Event("trial_begin", trial(1, "ext4")),
    Event("phase_begin", {"trial": "x", "phase": "measure", "expected_s": 120}),
    Event("second", {"trial": "x", "phase": "measure", "second": 72, "of": 120, "tps": 1911.7, "p95_ms": 18.31}),
    Event("warning", {"trial": "x", "id": "W012", "text": "background load 14 %"}),
    Event("warning", {"trial": "y", "id": "W012", "text": "background load 14 %"}),
    ended(1, "ext4", 1911.7),
    ended(2, "xfs", None, "failed", error={"id": "E402", "phase": "measure", "text": "the server died"}),
    Event("run_end", {"name": "r", "ok": 1, "suspect": 0, "failed": 1, "seconds": 83.4}),
]


def state_at(events: list[Event], at: float = 100.0) -> State:
    """The state after `events`, all of them at one moment."""
    state = State()
    for event in events:
        state.take(event, at)
    return state


# --- events ----------------------------------------------------------------------------------------


def test_an_event_is_one_line_and_comes_back() -> None:
    """What a trial's process prints is what the runner reads."""
    event = Event("note", {"text": "zwei\nZeilen é", "value": 1.5})
    assert "\n" not in event.line()
    assert parsed(event.line()) == event


def test_numbers_that_json_has_not_are_null() -> None:
    """Never NaN or infinity, at whatever depth."""
    line = Event("second", {"tps": float("nan"), "more": [float("inf"), {"x": float("-inf")}]}).line()
    assert json.loads(line)["data"] == {"tps": None, "more": [None, {"x": None}]}


@pytest.mark.parametrize("line", ["", "hello", "3", "{}", '{"kind": "note"}', '{"kind": "note", "data": 3}'])
def test_other_lines_are_no_events(line: str) -> None:
    """What another program prints on the same stream is passed over."""
    assert parsed(line) is None


# --- state -----------------------------------------------------------------------------------------


def test_nothing_is_promised_before_a_trial_has_ended() -> None:
    """There is no ETA without a measured trial."""
    assert state_at([BEGIN, Event("trial_begin", trial(1, "ext4"))]).left_s(100) is None


def test_the_eta_follows_what_trials_took() -> None:
    """Two trials of 60 s and 80 s leave two of 70 s; what the third has had is taken off."""
    state = State()
    for at, event in (
        (0, BEGIN), (0, Event("trial_begin", trial(1, "ext4"))), (60, ended(1, "ext4", 5.0)),
        (60, Event("trial_begin", trial(2, "xfs"))), (140, ended(2, "xfs", 5.0)),
        (140, Event("trial_begin", trial(3, "ext4"))),
    ):  # fmt: skip
        state.take(event, at)
    left = state.left_s(150)
    assert left is not None
    assert left[0] == pytest.approx(2 * 70 - 10)
    assert left[1] == pytest.approx(2 * 14.142 * 2, rel=1e-3)  # 2 sd · √(2 + 2²/2)


def test_what_was_done_before_counts_as_done() -> None:
    """A resumed run begins where it was stopped."""
    state = state_at([Event("run_begin", {**BEGIN.data, "done": 3})])
    assert (state.finished, state.total) == (3, 4)


def test_failed_trials_have_no_value() -> None:
    """A trial that failed is in no mean."""
    state = state_at([BEGIN, ended(1, "ext4", 5.0), ended(2, "ext4", 7.0, "failed"), ended(3, "ext4", 9.0, "suspect")])
    assert state.values == {("postgres", "tpcb", "ext4"): [5.0, 9.0]}


def test_events_of_a_newer_program_are_passed_over() -> None:
    """An unknown kind changes nothing."""
    assert state_at([BEGIN, Event("moonrise", {"x": 1})]).run == BEGIN.data


# --- wording ---------------------------------------------------------------------------------------


def test_gaps_and_zeros_are_drawn_differently() -> None:
    """A second without progress is the lowest bar, a second without data is empty."""
    assert spark([8.0, 0.0, None, 4.0]) == "█▁ ▅"
    assert spark([0.0, None]) == "▁ "


def test_the_spread_is_the_standard_error() -> None:
    """Mean and standard error in per cent: of 98 and 102, 2 ÷ 100."""
    assert mean_and_spread([98.0, 102.0]) == "100 ±2.0 % (2)"
    assert mean_and_spread([98.0]) == "98 (1)"


def test_the_eta_is_a_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small margins are not shown; without a measurement there is no ETA at all."""
    assert re.fullmatch(r"ETA \d\d:\d\d ±6m", eta((600, 350)))
    assert re.fullmatch(r"ETA \d\d:\d\d", eta((600, 10)))
    assert eta(None) == ""


# --- renderers -------------------------------------------------------------------------------------


def test_plain_has_one_line_a_trial_and_each_warning_once() -> None:
    """Off a terminal: no escape, a line for what ended, no line for each second."""
    stream = io.StringIO()
    with plain(stream) as emit:
        for event in PLAYED:
            emit(event)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "run r: 2 setups x 2 blocks, 4 trials, seed 42"
    assert lines[1] == "prepare: writing the image"
    assert lines[2] == "! W012 x: background load 14 %"
    assert lines[3].startswith("[1/4] ext4 postgres tpcb #1: 1 912 tx/s")
    assert lines[4].startswith("[2/4] xfs postgres tpcb #1: failed in measure: E402 the server died")
    assert lines[5] == "run r: 1 ok, 1 failed in 1:23"
    assert len(lines) == 6
    assert not ESCAPE.search(stream.getvalue())


def test_plain_says_where_it_stands_when_nothing_ends() -> None:
    """A line each 30 s (here 50 ms) tells phase, time, throughput and p95."""
    stream = io.StringIO()
    with plain(stream, every_s=0.05) as emit:
        for event in PLAYED[:6]:
            emit(event)
        deadline = 200
        while "measure" not in stream.getvalue() and deadline:
            deadline -= 1
            time.sleep(0.02)
    assert "[1/4] ext4 postgres tpcb #1: measure 1:12/2:00  1 912 tx/s  p95 18.3 ms" in stream.getvalue()


def test_a_reader_that_has_gone_does_not_end_the_run() -> None:
    """Progress is not the result: a broken pipe is passed over."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with plain(Gone()) as emit:
        emit(BEGIN)


def test_json_is_one_object_a_line() -> None:
    """Every event, in order, readable by another program."""
    stream = io.StringIO()
    with renderer("json", stream) as emit:
        for event in PLAYED:
            emit(event)
    assert [parsed(line) for line in stream.getvalue().splitlines()] == PLAYED


def test_none_says_nothing() -> None:
    """--progress none and -q print no line."""
    stream = io.StringIO()
    with renderer("none", stream) as emit:
        assert emit is ignore
        emit(BEGIN)
    assert stream.getvalue() == ""


def test_auto_is_plain_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, and a terminal that can do nothing, get plain lines."""
    for stream, term in ((io.StringIO(), "xterm"), (Terminal(), "dumb")):
        monkeypatch.setenv("TERM", term)
        with renderer("auto", stream) as emit:
            emit(BEGIN)
        assert stream.getvalue() == "run r: 2 setups x 2 blocks, 4 trials, seed 42\n"


def test_a_terminal_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the lines are redrawn in place; a warning stays above them."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with renderer("auto", stream, color=False) as emit:
        for event in PLAYED[:-1]:
            emit(event)
    text = stream.getvalue()
    assert ESCAPE.search(text)
    assert "! W012 x: background load 14 %" in ESCAPE.sub("", text)
    assert "done  postgres tpcb: ext4 1 912 (1)" in ESCAPE.sub("", text)


def test_the_drawing_shows_phases_throughput_and_what_is_done() -> None:
    """Phases that ended with their times, the one that lasts with its bar."""
    state = state_at(
        [BEGIN, ended(1, "ext4", 2004.0), Event("trial_begin", trial(2, "xfs")),
         Event("phase_begin", {"phase": "restore"}), Event("phase_end", {"phase": "restore", "seconds": 41.2}),
         *PLAYED[4:6]]
    )  # fmt: skip
    lines = drawn(state, 101.0, 120)
    assert lines[1] == "[2/4] xfs postgres tpcb #1   restore ✓ 0:41  measure ━━━━━━━━╸───── 1:12/2:00"
    assert lines[2] == "        1 912 tx/s █   p95 18.3 ms"
    assert lines[3] == "  done  postgres tpcb: ext4 2 004 (1)"


def test_a_narrow_terminal_keeps_the_phase_that_lasts() -> None:
    """What ended makes room first."""
    state = state_at([BEGIN, Event("trial_begin", trial(2, "xfs")), Event("phase_begin", {"phase": "restore"}),
                      Event("phase_end", {"phase": "restore", "seconds": 41.2}), *PLAYED[4:6]])  # fmt: skip
    line = drawn(state, 101.0, 70)[1]
    assert "measure" in line and "restore" not in line


def test_only_findings_and_failures_stay_above() -> None:
    """A second or a phase leaves no line behind."""
    state = State()
    kept = [event.kind for event in PLAYED if above(event, state) is not None]
    assert kept == ["warning", "trial_end"]
