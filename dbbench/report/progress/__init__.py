"""Events of a run as lines for a person or a program: live on a terminal, plain elsewhere, JSON, or none."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import Event as Ended
from threading import Lock
from typing import Final, Protocol, TextIO

from dbbench.errors import Interrupted, Terminated
from dbbench.machine import threads
from dbbench.model.events import Emit, Event, ignore
from dbbench.report.progress.state import Lines, RunLines
from dbbench.report.text import columns, wrapped
from dbbench.units import on_terminal

EVERY_S: Final = 30.0  # without a terminal, a line is printed at least so often
_TICK_S: Final = 0.25  # dbbench may use 2 % of a core while it measures


class Display(Protocol):
    """Shows events. `tick` is called several times a second, from a thread, but never at the same time as `take`."""

    def take(self, event: Event) -> None: ...

    def tick(self) -> None: ...


@contextlib.contextmanager
def renderer(kind: str, stream: TextIO, *, color: bool = True, lines: Callable[[], Lines] = RunLines) -> Iterator[Emit]:
    """Yield a function that shows events on `stream`. With `auto` the state is redrawn on a terminal, else plain. If
    showing fails, a line says so, nothing is shown from then on, and the block is not disturbed."""
    if kind == "none":
        yield ignore
        return
    lock, stack, displays = Lock(), contextlib.ExitStack(), list[Display]()  # none after a failure

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
            text = f"progress is no longer shown ({type(error).__name__}: {error}); the run continues"
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
        displays.append(stack.enter_context(_display(kind, stream, color, lines())))
    try:
        with threads.beside("progress", tick):
            yield take
    finally:
        with ending_at_errors():
            stack.close()


def _display(kind: str, stream: TextIO, color: bool, lines: Lines) -> AbstractContextManager[Display]:
    if kind == "auto" and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        from dbbench.report.progress.live import screen  # importing rich takes 80 ms

        return screen(stream, color, lines)
    return contextlib.nullcontext(Json(stream) if kind == "json" else Plain(stream, lines))


class Json:
    """Each event as one JSON object."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def take(self, event: Event) -> None:
        print(event.line(), file=self._stream, flush=True)

    def tick(self) -> None:
        """Print nothing."""


class Plain:
    """A line for each event that has one; after a while without one, the state. On a terminal they are wrapped."""

    def __init__(self, stream: TextIO, lines: Lines) -> None:
        self._stream, self._lines, self._printed = stream, lines, time.monotonic()

    def take(self, event: Event) -> None:
        self._put(self._lines.line(event))

    def tick(self) -> None:
        if time.monotonic() - self._printed >= EVERY_S:
            self._printed = time.monotonic()
            self._put(self._lines.standing())

    def _put(self, line: str) -> None:
        if line:
            self._printed, width = time.monotonic(), columns(self._stream)
            for part in wrapped(line, width) if width else [line]:
                print(on_terminal(part), file=self._stream, flush=True)
