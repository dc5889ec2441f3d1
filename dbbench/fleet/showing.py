"""Progress of all hosts on one screen; without a terminal, one line per trial, or JSON."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

from dbbench.metrics.clock import epoch
from dbbench.report.progress.event import Emit, Event, ignore
from dbbench.report.progress.wording import result, trial_name
from dbbench.units import on_terminal, time_text

EVERY_S: Final = 30.0  # between two lines of where all stand, where no terminal is
HEADER: Final = ("host", "trial", "phase", "for", "done", "ETA", "last heard", "")


@contextlib.contextmanager
def renderer(kind: str, stream: TextIO, *, color: bool = True) -> Iterator[Emit]:
    """Yield a function that shows a fleet's events on `stream`; kinds as for `progress.renderer`."""
    if kind == "none":
        yield ignore
    elif kind == "json":
        yield lambda event: print(event.line(), file=stream, flush=True)
    elif kind == "auto" and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        with _live(stream, color) as emit:
            yield emit
    else:
        yield _Plain(stream).take


def cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    """Return a host's row in words, for `fleet status` and the screen."""
    eta = row["eta_s"]
    return (
        str(row["host"]),
        str(row["trial"] or "–"),
        str(row["phase"]),
        "–" if row["phase_s"] is None else time_text(row["phase_s"]),
        f"{row['done']}/{row['trials']}",
        "–" if eta is None else time.strftime("%H:%M", time.localtime(now + eta)) if eta else "",
        f"{time_text(max(0.0, now - epoch(row['heard'])))} ago",
        str(row["note"]),
    )


def line(event: Event) -> str:
    """Return the permanent line of an event; "" if it has none."""
    data = event.data
    match event.kind:
        case "fleet_begin":
            done = f", {data['done']} of them home before" if data["done"] else ""
            return f"fleet {data['name']}: {data['mode']}, {len(data['hosts'])} hosts, {data['trials']} trials{done}"
        case "trial_end":
            return f"{data['host']}: {trial_name(data)}: {result(data)}"
        case "note":
            return str(data["text"])
        case "fleet_end":
            lacking = f"; not all of {', '.join(data['lacking'])}" if data["lacking"] else ""
            return f"fleet {data['name']}: {data['trials']} trials are home{lacking}"
    return ""


class _Plain:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed = time.monotonic()

    def take(self, event: Event) -> None:
        text = line(event)
        if event.kind == "hosts" and time.monotonic() - self._printed >= EVERY_S:
            text = standing(event.data["hosts"])
        if text:
            self._printed = time.monotonic()
            with contextlib.suppress(BrokenPipeError):  # nobody listens any more: the fleet goes on
                print(on_terminal(text), file=self._stream, flush=True)


@contextlib.contextmanager
def _live(stream: TextIO, color: bool) -> Iterator[Emit]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    def table(rows: list[dict[str, Any]]) -> Table:
        drawn = Table(box=None, pad_edge=False)
        for name in HEADER:
            drawn.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in rows:
            drawn.add_row(*cells(row, time.time()))
        return drawn

    console = Console(file=stream, no_color=not color, highlight=False)
    with Live(table([]), console=console, refresh_per_second=2, transient=False) as screen:

        def emit(event: Event) -> None:
            if event.kind == "hosts":
                screen.update(table(event.data["hosts"]))
            elif text := line(event):
                screen.console.print(on_terminal(text), markup=False)

        yield emit


def standing(rows: Sequence[dict[str, Any]]) -> str:
    """Return "12/40 trials home; 3 measure, 1 restore; about 12:30 left"."""
    done, trials = sum(row["done"] for row in rows), sum(row["trials"] for row in rows)
    phases = Counter(str(row["phase"]) for row in rows)
    words = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    estimates = [row["eta_s"] for row in rows if row["eta_s"] is not None]
    left = f"; about {time_text(max(estimates))} left" if estimates and max(estimates) else ""
    return f"{done}/{trials} trials home; {words}{left}"
