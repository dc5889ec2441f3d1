"""Events of a run as lines for a person or a program: live on a terminal, plain elsewhere, JSON, or
none.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import Event as Ended
from threading import Lock
from typing import Any, Final, Protocol, TextIO

from dbbench.errors import Interrupted, Terminated
from dbbench.machine import threads
from dbbench.model.events import Emit, Event, ignore
from dbbench.report.progress.state import State, copy_text, eta, opening, result, trial_name
from dbbench.report.text import columns, wrap
from dbbench.units import number, on_terminal, time_text

EVERY_S: Final = 30.0  # without a terminal, a line is printed at least so often
_TICK_S: Final = 0.25  # dbbench may use 2 % of a core while it measures


class Display(Protocol):
    """Shows events. `tick` is called several times a second, from a thread, but never at the same
    time as `take`.
    """

    def take(self, event: Event) -> None: ...

    def tick(self) -> None: ...


def renderer(
    kind: str,
    stream: TextIO,
    *,
    color: bool = True,
) -> AbstractContextManager[Emit]:
    """Yield a function that shows events on `stream`. With `auto` they are redrawn on a terminal,
    else plain.
    """
    if kind == "auto" and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        from dbbench.report.progress.live import Screen  # importing rich takes 80 ms

        return shown(kind, stream, lambda: Screen(stream, color))
    return shown(kind, stream, lambda: contextlib.nullcontext(PlainLines(stream)))


@contextlib.contextmanager
def shown(
    kind: str,
    stream: TextIO,
    display: Callable[[], AbstractContextManager[Display]],
) -> Iterator[Emit]:
    """Yield a function that shows events on `stream`, as JSON, not at all, or on the display. If
    showing fails, a line says so, nothing is shown from then on, and the block is not disturbed.
    """
    if kind == "none":
        yield ignore
        return
    # none after a failure
    lock = Lock()
    stack = contextlib.ExitStack()
    displays = list[Display]()

    @contextlib.contextmanager
    def ending_at_errors() -> Iterator[None]:
        try:
            yield
        except (Interrupted, Terminated):  # a signal arrived in the meantime
            raise
        except Exception as error:
            displays.clear()
            with contextlib.suppress(Exception):
                stack.close()
            text = (
                f"progress is no longer shown ({type(error).__name__}: {error}); the run continues"
            )
            with contextlib.suppress(OSError, ValueError):
                print(on_terminal(text), file=stream, flush=True)

    def take(event: Event) -> None:
        with lock, ending_at_errors():
            for display in displays:
                display.take(event)

    def tick(ended: Ended) -> None:
        while not ended.wait(_TICK_S):
            with lock, ending_at_errors():
                for display in displays:
                    display.tick()

    with ending_at_errors():
        displays.append(JsonLines(stream) if kind == "json" else stack.enter_context(display()))
    try:
        with threads.beside("progress", tick):
            yield take
    finally:
        with ending_at_errors():
            stack.close()


class Lines:
    """A display with one line per event that has one; `tick` may print another one after `every_s`
    without a line. On a terminal they are wrapped.
    """

    def __init__(self, stream: TextIO, every_s: float = EVERY_S) -> None:
        self._stream = stream
        self._every_s = every_s
        self._printed = time.monotonic()

    def put(self, line: str) -> None:
        if not line:
            return
        self._printed = time.monotonic()
        width = columns(self._stream) or sys.maxsize
        for part in wrap(line, width):
            print(on_terminal(part), file=self._stream, flush=True)

    def due(self) -> bool:
        return time.monotonic() - self._printed >= self._every_s

    def tick(self) -> None:
        """Print nothing by itself."""


class JsonLines(Lines):
    """Each event as one JSON object."""

    def take(self, event: Event) -> None:
        print(event.line(), file=self._stream, flush=True)


class PlainLines(Lines):
    """A line for each event that people want to read; after a while without one, a line with the
    state of the run.
    """

    def __init__(self, stream: TextIO, every_s: float = EVERY_S) -> None:
        super().__init__(stream, every_s)
        self._state = State()

    def take(self, event: Event) -> None:
        preparing = self._state.preparing
        began = self._state.began
        causes = ", ".join(self._state.causes.values())
        self._state.take(event)
        self.put(self._line(event, preparing, time.monotonic() - began, causes))

    def tick(self) -> None:
        if self.due():
            self._printed = time.monotonic()
            self.put(self._standing())

    def _line(
        self,
        event: Event,
        was_preparing: str,
        trial_s: float,
        causes: str,
    ) -> str:
        data = event.data
        state = self._state
        match event.kind:
            case "run_begin":
                return f"run {data.get('name')}: {opening(data)}"
            case "prepare" if state.preparing != was_preparing:
                return f"prepare: {state.preparing}"
            case "trial_end":
                left = eta(state.left_s(time.monotonic()))
                value = f"{result(data)} {causes}".rstrip()
                name = f"{self._count(data)} {trial_name(data)}"
                return f"{name}: {value}  {time_text(trial_s)}  {left}".rstrip()
            case "warning":
                return state.news
            case "note":
                return str(data.get("text"))
            case "run_end":
                counts = [
                    f"{data[word]} {word}" for word in ("ok", "suspect", "failed") if data.get(word)
                ]
                trials = ", ".join(counts) or "no trials left to run"
                took = time_text(data.get("seconds") or 0)
                return f"run {data.get('name')}: {trials} in {took}"
        return ""

    def _standing(self) -> str:
        state = self._state
        now = time.monotonic()
        # What is prepared, or which trial and phase run.
        if state.preparing:
            share = f" {100 * state.fraction:.0f} %" if state.fraction is not None else ""
            return f"prepare: {state.preparing}{share}"
        if not state.trial:
            return ""
        of = f"/{time_text(state.expected_s)}" if state.expected_s else ""
        words = [
            f"{self._count(state.trial)} {trial_name(state.trial)}: "
            f"{state.place} {time_text(state.phase_s(now))}{of if state.phase else ''}"
        ]
        # Rates are shown only while the phase lasts that they belong to.
        if state.copied.get("phase") == state.phase:
            words.append(copy_text(state.copied))
        if state.second.get("tps") is not None and state.phase == state.second.get("phase"):
            words.append(f"{number(state.second['tps'])} tx/s")
            if state.second.get("p95_ms") is not None:  # fio reports latencies at its end
                words.append(f"p95 {number(state.second['p95_ms'])} ms")
        return "  ".join([*words, eta(state.left_s(now))]).rstrip()

    def _count(self, data: dict[str, Any]) -> str:
        position = str(data.get("position", self._state.finished))
        total = data.get("total") or self._state.total
        return f"[{position.rjust(len(str(self._state.total)))}/{total}]"
