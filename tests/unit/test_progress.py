"""What progress shows: lines, warnings, and the drawing on a terminal."""

import contextlib
import io
import re
import time
from collections.abc import Callable
from typing import TextIO

import pytest

from dbbench.errors import Interrupted, Terminated
from dbbench.model.events import Event, ignore, parse
from dbbench.report.progress import Display, PlainLines, live, renderer, shown
from dbbench.report.progress.live import above, draw
from dbbench.report.progress.state import State
from tests.support.progress_events import BEGIN, begun, ended, state_at, trial
from tests.support.terminal import WideStream

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


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


def test_plain_lines_report_progress_when_nothing_ends() -> None:
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
def test_a_signal_is_not_a_fault_of_the_drawing(stop: BaseException) -> None:
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
    """At 80 columns no setup of six is cut off."""
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
