"""Events of a run as lines for a person or a program: live on a terminal, plain elsewhere, JSON, or none."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import Event as Ended
from threading import Lock
from typing import Any, Final, TextIO

from dbbench.machine import threads
from dbbench.report.progress.event import Emit, Event, State, copied, eta, ignore, opening, result, trial_name
from dbbench.units import number, on_terminal, time_text

__all__ = ["Emit", "Event", "ignore", "renderer"]

KINDS = ("auto", "plain", "json", "none")


Show = Callable[[], AbstractContextManager[Emit]]  # shows events within the block


def renderer(kind: str, stream: TextIO, *, color: bool = True) -> AbstractContextManager[Emit]:
    """Yield a function that shows events on `stream`. With `auto` they are redrawn on a terminal, else plain."""

    def drawn() -> AbstractContextManager[Emit]:
        from dbbench.report.progress.live import live  # importing rich takes 80 ms

        return live(stream, color=color)

    return shown(kind, stream, drawn, lambda: plain(stream))


def shown(kind: str, stream: TextIO, drawn: Show, plain: Show) -> AbstractContextManager[Emit]:
    """Yield a function that shows events on `stream`; the two ways for people are the caller's."""
    if kind == "none":
        return contextlib.nullcontext(ignore)
    if kind == "json":
        return contextlib.nullcontext(lambda event: print(event.line(), file=stream, flush=True))
    terminal = kind == "auto" and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    return drawn() if terminal else plain()


EVERY_S: Final = 30.0


@contextlib.contextmanager
def plain(stream: TextIO, every_s: float = EVERY_S) -> Iterator[Emit]:
    """Yield a function that prints events to `stream`; a thread adds a line after `every_s` without one."""
    lines = _PlainLines(stream, every_s)

    def tick(ended: Ended) -> None:
        while not ended.wait(min(1.0, every_s / 4)):
            lines.remind()

    with threads.beside("progress", tick):
        yield lines.take


class _PlainLines:
    def __init__(self, stream: TextIO, every_s: float) -> None:
        self._stream, self._every_s = stream, every_s
        self._state, self._lock = State(), Lock()
        self._printed = time.monotonic()

    def take(self, event: Event) -> None:
        with self._lock:
            preparing, began = self._state.preparing, self._state.began
            self._state.take(event)
            line = self._line(event, preparing, time.monotonic() - began)
            if line:
                self._print(line)

    def remind(self) -> None:
        """Print the state of the run if nothing was printed for a while."""
        with self._lock:
            if time.monotonic() - self._printed >= self._every_s:
                line = self._standing()
                self._printed = time.monotonic()
                if line:
                    self._print(line)

    def _line(self, event: Event, was_preparing: str, trial_s: float) -> str:
        data, state = event.data, self._state
        match event.kind:
            case "run_begin":
                return f"run {data.get('name')}: {opening(data)}"
            case "prepare" if state.preparing != was_preparing:
                return f"prepare: {state.preparing}"
            case "trial_end":
                left = eta(state.left_s(time.monotonic())) if state.finished < state.total else ""
                return f"{self._count(data)} {trial_name(data)}: {result(data)}  {time_text(trial_s)}  {left}".rstrip()
            case "warning" if state.is_new(data):
                return f"! {data.get('id')} {data.get('trial')}: {data.get('text')}"
            case "note":
                return str(data.get("text"))
            case "run_end":
                counts = [f"{data.get(word)} {word}" for word in ("ok", "suspect", "failed") if data.get(word)]
                result_of_all = ", ".join(counts) or "no trials left to run"
                return f"run {data.get('name')}: {result_of_all} in {time_text(data.get('seconds') or 0)}"
        return ""

    def _standing(self) -> str:
        state, now = self._state, time.monotonic()
        if state.preparing:
            share = f" {100 * state.fraction:.0f} %" if state.fraction is not None else ""
            return f"prepare: {state.preparing}{share}"
        if not state.trial:
            return ""
        of = f"/{time_text(state.expected_s)}" if state.expected_s else ""
        words = [f"{self._count(state.trial)} {trial_name(state.trial)}: "
                 f"{state.phase or 'between phases'} {time_text(state.phase_s(now))}{of}"]  # fmt: skip
        if state.copied.get("phase") == state.phase:
            words.append(copied(state.copied))
        if state.second.get("tps") is not None and state.phase == state.second.get("phase"):
            words.append(f"{number(state.second['tps'])} tx/s")
            words.append(f"p95 {number(state.second.get('p95_ms'))} ms")
        return "  ".join([*words, eta(state.left_s(now))]).rstrip()

    def _count(self, data: dict[str, Any]) -> str:
        width = len(str(self._state.total))
        return f"[{data.get('position', self._state.finished):>{width}}/{data.get('total') or self._state.total}]"

    def _print(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader has ended: the run continues
            print(on_terminal(line), file=self._stream, flush=True)
        self._printed = time.monotonic()
