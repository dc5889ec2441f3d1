import contextlib
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.compare import means
from dbbench.errors import Interrupted, Terminated
from dbbench.model.events import Event, ignore, parse
from dbbench.report.progress import Display, PlainLines, live, renderer, shown
from dbbench.report.progress.live import above, draw
from dbbench.report.progress.state import State, eta, mean_and_spread, opening, spark
from dbbench.report.verdicts import verdicts
from tests.support.terminal import WideStream

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def trial(position: int, arm: str, block: int = 1) -> dict[str, Any]:
    """The data of a trial_begin."""
    return {
        "id": f"{arm}.postgres.tpcb-b{block}-a1",
        "position": position,
        "total": 4,
        "arm": arm,
        "block": block,
        "attempt": 1,
        "engine": "postgres",
        "workload": "tpcb",
    }


def ended(position: int, arm: str, value: float | None, status: str = "ok", **more: Any) -> Event:
    """A trial_end."""
    return Event(
        "trial_end",
        {
            **trial(position, arm),
            "trial": "x",
            "status": status,
            "metric": "tps",
            "unit": "tx/s",
            "value": value,
            **more,
        },
    )


BEGIN = Event(
    "run_begin",
    {"name": "r", "trials": 4, "done": 0, "seed": 42, "arms": ["ext4", "xfs"], "blocks": 2},
)
PLAYED = [
    BEGIN,
    Event("prepare", {"what": "writing the image", "fraction": 0.5}),
    Event("prepare", {"what": "writing the image", "fraction": 1.0}),
    Event("trial_begin", trial(1, "ext4")),
    Event("phase_begin", {"trial": "x", "phase": "measure", "expected_s": 120}),
    Event(
        "second",
        {"trial": "x", "phase": "measure", "second": 72, "of": 120, "tps": 1911.7, "p95_ms": 18.31},
    ),
    Event("warning", {"trial": "x", "id": "W012", "text": "background load 14 %"}),
    Event("warning", {"trial": "y", "id": "W012", "text": "background load 14 %"}),
    ended(1, "ext4", 1911.7),
    ended(
        2,
        "xfs",
        None,
        "failed",
        error={"id": "E402", "phase": "measure", "text": "the server died"},
    ),
    Event("run_end", {"name": "r", "ok": 1, "suspect": 0, "failed": 1, "seconds": 83.4}),
]


def begun(position: int, arm: str) -> Event:
    """A trial_begin."""
    return Event("trial_begin", trial(position, arm))


def state_of(*events: tuple[float, Event]) -> State:
    """The state after events, each at its second."""
    state = State()
    for at, event in events:
        state.take(event, at)
    return state


def state_at(events: list[Event], at: float = 100.0) -> State:
    """The state after `events`, all of them at one moment."""
    return state_of(*((at, event) for event in events))


def printed(
    kind: str,
    events: list[Event],
    stream: io.StringIO | None = None,
    *,
    color: bool = True,
) -> str:
    """What a renderer of that kind prints of the events."""
    stream = stream or io.StringIO()
    with renderer(kind, stream, color=color) as emit:
        for event in events:
            emit(event)
    return stream.getvalue()


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


def test_plain_has_one_line_a_trial_and_each_warning_once() -> None:
    """Off a terminal: no escape, a line for what ended, no line for each second."""
    text = printed("plain", PLAYED)
    lines = text.splitlines()
    assert lines[0] == "run r: 2 setups x 2 blocks, 4 trials, seed 42"
    assert lines[1] == "prepare: writing the image"
    assert lines[2] == "! W012 ext4: background load 14 %"
    assert lines[3].startswith("[1/4] ext4 postgres tpcb #1: 1 912 tx/s")
    assert lines[4].startswith(
        "[2/4] xfs postgres tpcb #1: failed in measure: E402 the server died"
    )
    assert lines[5] == "run r: 1 ok, 1 failed in 1:23"
    assert len(lines) == 6 and not ESCAPE.search(text)


def test_a_warning_is_shown_once_for_each_setup_and_counted() -> None:
    """Only one that makes a trial suspect is shown; the line of a trial says why it is suspect."""
    warning = {"trial": "x", "id": "W012", "text": "background load", "suspect": True}
    events = [BEGIN]
    for n in (1, 2):
        events += [
            begun(n, "ext4"),
            Event("warning", warning),
            Event("warning", warning),
            Event("warning", warning | {"id": "W003", "suspect": False}),
            ended(n, "ext4", 10.0, "suspect"),
        ]
    lines = printed("plain", events).splitlines()
    assert [line for line in lines if line.startswith("!")] == ["! W012 ext4: background load"]
    assert (
        "suspect W012  " in lines[2]
        and "suspect W012 (trial 2 of ext4)  " in lines[3]
        and len(lines) == 4
    )
    assert "  suspect  W012: ext4 2" in draw(state_at(events), 100.0, 80)


def test_plain_says_where_it_stands_when_nothing_ends() -> None:
    """A line each 30 s (here 50 ms) tells phase, time, throughput and p95."""
    stream = io.StringIO()
    with shown("plain", stream, lambda: DISPLAYS["plain"](stream)) as emit:
        for event in PLAYED[:6]:
            emit(event)
        wait_for("measure", stream, 15.0)
    assert (
        "[1/4] ext4 postgres tpcb #1: measure 1:12/2:00  1 912 tx/s  p95 18.3 ms"
        in stream.getvalue()
    )


def wait_for(text: str, stream: io.StringIO, within_s: float = 60.0) -> None:
    """Wait until that was printed."""
    until = time.monotonic() + within_s
    while text not in stream.getvalue() and time.monotonic() < until:
        time.sleep(0.01)


DISPLAYS: dict[str, Callable[[TextIO], contextlib.AbstractContextManager[Display]]] = {
    "plain": lambda stream: contextlib.nullcontext(PlainLines(stream, 0.05)),
    "auto": lambda stream: live.Screen(stream, color=True),
}
GONE = [BrokenPipeError(), OSError(28, "No space left on device"), OSError(5, "Input/output error")]


@pytest.mark.parametrize(
    ("kind", "error"),
    [(kind, error) for kind in ("plain", "json") for error in GONE] + [("auto", GONE[2])],
)
def test_a_stream_that_fails_does_not_end_the_run(
    kind: str,
    error: OSError,
    environ: dict[str, str],
) -> None:
    """Progress is not the result: nothing more is written, and nothing is raised."""
    tries = []

    class Gone(Terminal):
        def write(self, _text: str) -> int:
            tries.append(1)
            raise error

    environ["TERM"] = "xterm"
    with renderer(kind, Gone()) as emit:
        emit(BEGIN)
        first = len(tries)
        for event in PLAYED:
            emit(event)
    assert len(tries) == first


@pytest.mark.parametrize("kind", ["plain", "auto"])
@pytest.mark.parametrize("event", [PLAYED[5], PLAYED[9]], ids=["of each tick", "of an event"])
def test_a_fault_of_the_drawing_is_one_line(
    kind: str,
    event: Event,
    environ: dict[str, str],
) -> None:
    """Whether it happens for an event or in the thread that draws: the run goes on without
    progress.
    """
    environ["TERM"] = "xterm"
    stream = Terminal()
    unreadable = Event(event.kind, {**event.data, "tps": "fast", "error": "none"})
    with shown(kind, stream, lambda: DISPLAYS[kind](stream)) as emit:
        for each in (BEGIN, *PLAYED[3:5], unreadable):
            emit(each)
        wait_for("no longer shown", stream)
        for each in PLAYED:
            emit(each)
    lines = [
        line
        for line in ESCAPE.sub("", stream.getvalue()).replace("\r", "").splitlines()
        if line.strip()
    ]
    assert re.fullmatch(
        r"progress is no longer shown \(\w+Error: .*\); the run continues", lines[-1]
    )
    assert stream.getvalue().count("no longer shown") == 1


@pytest.mark.parametrize(
    "stop", [Interrupted("stopped"), Terminated("stopped"), KeyboardInterrupt()]
)
def test_a_signal_is_no_fault_of_the_drawing(stop: BaseException) -> None:
    """Ctrl-C that arrives while a line is printed stops the run."""

    class Signalled(io.StringIO):
        def write(self, _text: str) -> int:
            raise stop

    with pytest.raises(type(stop)), renderer("plain", Signalled()) as emit:
        emit(BEGIN)


def test_the_kinds_of_progress(environ: dict[str, str]) -> None:
    """JSON has every event as a line, in order. --progress none and -q print nothing. A pipe, and a
    terminal that can do nothing, get plain lines.
    """
    assert [parse(line) for line in printed("json", PLAYED).splitlines()] == PLAYED
    with renderer("none", io.StringIO()) as emit:
        assert emit is ignore
    assert printed("none", [BEGIN]) == ""
    for stream, term in ((io.StringIO(), "xterm"), (Terminal(), "dumb")):
        environ["TERM"] = term
        assert printed("auto", [BEGIN], stream) == "run r: 2 setups x 2 blocks, 4 trials, seed 42\n"


def test_a_terminal_is_drawn_on(environ: dict[str, str]) -> None:
    """On a terminal the lines are redrawn in place; a warning stays above them."""
    environ["TERM"] = "xterm"
    text = printed("auto", PLAYED[:-1], Terminal(), color=False)
    assert ESCAPE.search(text)
    for line in ("! W012 ext4: background load 14 %", "done  postgres tpcb: ext4 1 912 (1)"):
        assert line in ESCAPE.sub("", text)


def test_the_drawing_shows_phases_throughput_and_what_is_done() -> None:
    """Phases that ended with their times, the one that lasts with its bar. On a narrow terminal
    what ended makes room first.
    """
    state = state_at(
        [
            BEGIN,
            ended(1, "ext4", 2004.0),
            begun(2, "xfs"),
            Event("phase_begin", {"phase": "restore"}),
            Event("phase_end", {"phase": "restore", "seconds": 41.2}),
            *PLAYED[4:6],
        ]
    )
    lines = draw(state, 101.0, 120)
    assert (
        lines[1] == "[2/4] xfs postgres tpcb #1   restore ✓ 0:41  measure ━━━━━━━━╸───── 1:12/2:00"
    )
    assert lines[2] == "        1 912 tx/s █   p95 18.3 ms"
    assert lines[3] == "  done  postgres tpcb: ext4 2 004 (1)"
    line = draw(state, 101.0, 70)[1]
    assert "measure" in line and "restore" not in line


@pytest.mark.parametrize("width", [60, *range(76, 121)])
def test_the_end_and_the_phase_are_never_cut_off(width: int) -> None:
    """Names of runs and setups give way; every line fits."""
    begin = Event("run_begin", {**BEGIN.data, "name": "a-long-name-of-a-server-2026-11-21-a"})
    state = state_at([begin, begun(1, "ext4"), ended(1, "ext4", 2004.0)])
    state.take(begun(2, "xfs-with-a-log-on-a-disk-of-its-own-and-large-inodes"), 100.0)
    state.take(Event("phase_begin", {"phase": "measure", "expected_s": 120}), 100.0)
    state.took_s = [600.0]
    head, line, *_ = draw(state, 160.0, width)
    assert re.search(r"   about 2\d min left, until \d\d:\d\d$", head) and len(head) == width
    assert line.endswith("1:00/2:00") and len(line) <= width


def test_what_is_not_measured_or_over_is_not_drawn() -> None:
    """A scan has no transactions, and no preparation lasts after the end of the run."""
    second = Event("second", {"phase": "measure", "second": 1, "of": 2, "tps": None})
    state = state_at([BEGIN, begun(1, "ext4"), Event("phase_begin", {"phase": "measure"}), second])
    assert "tx/s" not in "".join(draw(state, 101.0, 120))
    prepare = Event("prepare", {"what": "measuring the bare device again"})
    state = state_at([BEGIN, ended(1, "ext4", 2004.0), prepare, Event("run_end", {})])
    assert "prepare" not in "".join(draw(state, 101.0, 120))


def test_only_findings_and_failures_stay_above() -> None:
    """A second or a phase leaves no line behind."""
    state = State()
    kept = []
    for event in PLAYED:
        state.take(event)
        kept += [event.kind] if above(event, state)[0] else []
    assert kept == ["warning", "trial_end"]


def test_a_line_above_the_display_divides_no_number() -> None:
    """rich breaks lines at every space, also at the narrow one within "1 912" and before "%"."""
    note = "ext4 does 1\u202f912 tx/s, xfs 12\u202f044 tx/s, which is +20.4\u202f% more than before"
    for width in range(40, 70):
        stream = io.StringIO()
        screen = live.Screen(stream, color=False)
        screen.console.width = width
        screen.take(Event("note", {"text": note}))
        lines = stream.getvalue().splitlines()
        assert " ".join(lines) == note.replace("\u202f", " ") and max(map(len, lines)) <= width
        assert not any(re.search(r"\d$", line) for line in lines[:-1])


def test_setups_that_are_done_continue_on_further_lines() -> None:
    """At 80 columns none of six setups is cut off."""
    state = state_at([BEGIN, *(ended(n, f"a-long-setup-{n}", 2004.0 + n) for n in range(1, 7))])
    lines = draw(state, 101.0, 80)
    assert all(
        f"a-long-setup-{n} 2 00{4 + n}" in " ".join("\n".join(lines).split()) for n in range(1, 6)
    )
    assert max(map(len, lines)) <= 80


def test_plain_lines_fit_a_terminal() -> None:
    """With --progress plain on a terminal of 80 columns no line is wider; in a pipe it is one line
    per event.
    """
    note = Event("note", {"text": "xfs is within 3 % of ext4; " * 6})
    with WideStream(80) as stream:
        lines = printed("plain", [note], stream).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 80
    assert len(printed("plain", [note]).splitlines()) == 1
