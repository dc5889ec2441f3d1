"""Progress on a terminal: the state of the run or fleet, redrawn in place; the other lines scroll away above it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from dbbench.model.events import Event
from dbbench.report.progress.state import Lines
from dbbench.report.text import wrapped
from dbbench.units import on_terminal


class Screen:
    """The display that `screen` yields."""

    def __init__(self, console: Console, lines: Lines) -> None:
        self._console, self._lines = console, lines
        self.live = Live(self, console=console, auto_refresh=False, transient=True)

    def take(self, event: Event) -> None:
        style = "yellow" if event.kind == "warning" else "red" if event.data.get("status") == "failed" else ""
        for line in self._lines.line(event).splitlines():
            for part in wrapped(line, self._console.width):  # rich would divide "1 912"
                self._console.print(Text(on_terminal(part), style))

    def tick(self) -> None:
        self.live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in wrapped(self._lines.standing(), options.max_width):
            yield Text(on_terminal(part), no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def screen(stream: TextIO, color: bool, lines: Lines) -> Iterator[Screen]:
    """Yield the display, drawn again at each `tick`: rich's own thread would end with the first error."""
    display = Screen(Console(file=stream, no_color=not color, highlight=False), lines)
    with display.live:
        yield display
