"""Progress on a terminal: a few lines, redrawn in place; warnings scroll away above them."""

from __future__ import annotations

import contextlib
import time
from typing import Final, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from dbbench.model.events import Event
from dbbench.report.progress.state import (
    State,
    copy_text,
    eta,
    mean_and_spread,
    opening,
    result,
    spark,
    trial_name,
)
from dbbench.report.text import wrapped
from dbbench.units import join_words, number, on_terminal, time_text

_BAR: Final = 14
# the other phases usually end at once
_SHOWN: Final = ("restore", "settle", "warmup", "measure", "drain", "check")
_WORDS: Final = {"warmup": "warm-up", "drop_cache": "drop cache"}


class Screen(contextlib.AbstractContextManager["Screen"]):
    """The state of a run, drawn again at each `tick`: rich's own thread would end with the first
    error.
    """

    def __init__(self, stream: TextIO, color: bool) -> None:
        self._state = State()
        self.console = Console(file=stream, no_color=not color, highlight=False)
        self._live = Live(self, console=self.console, auto_refresh=False)

    def __enter__(self) -> Screen:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        self._state.take(event)
        text, style = above(event, self._state)
        for line in text.splitlines():
            for part in wrapped(line, self.console.width):  # rich would divide "1 912"
                self.console.print(Text(on_terminal(part), style))

    def tick(self) -> None:
        self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in drawn(self._state, time.monotonic(), options.max_width):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def above(event: Event, state: State) -> tuple[str, str]:
    """Return the line that an event leaves permanently, "" if none, and its style."""
    data = event.data
    if event.kind == "warning":
        return state.news, "yellow"
    if event.kind == "trial_end" and data.get("status") == "failed":
        return f"✗ {trial_name(data)}: {result(data)}", "red"
    return str(data.get("text")) if event.kind == "note" else "", ""


def drawn(state: State, now: float, width: int) -> list[str]:
    """Return the lines of a state, with as many ended phases as there is space for."""
    left = eta(state.left_s(now))  # at the right margin, and never cut off
    head = f"run {state.run.get('name', '')}  {opening(state.run)}"
    head = _crop(f"{head}   ", width - len(left)).ljust(width - len(left)) + left if left else head
    lines = [head] if state.run else []  # the power-loss lab has no run
    if state.preparing:
        share = (
            f" {_bar(state.fraction)} {100 * state.fraction:.0f} %"
            if state.fraction is not None
            else ""
        )
        lines.append(f"  prepare: {state.preparing}{share}")
    if state.trial:
        digits = len(str(state.total))
        lead = (
            f"[{state.trial.get('position'):>{digits}}/{state.total}] {trial_name(state.trial)}   "
        )
        words = _phases(state, now)
        while len(words) > 1 and len(lead + "  ".join(words)) > width:
            words.pop(0)
        lines.append(_crop(lead, width - len("  ".join(words))) + "  ".join(words))
        if any(tps is not None for tps in state.tps):  # a scan has none
            p95 = (
                f"   p95 {number(state.second.get('p95_ms'))} ms"
                if state.second.get("p95_ms") is not None
                else ""
            )
            lines.append(f"        {number(state.second.get('tps'))} tx/s {spark(state.tps)}{p95}")
    counts: dict[str, list[str]] = {}
    for (ident, setup), n in state.warned.items():
        counts.setdefault(ident, []).append(f"{setup} {n}")
    warned = (
        [f"  suspect  {'; '.join(f'{ident}: {join_words(of)}' for ident, of in counts.items())}"]
        if counts
        else []
    )
    lines += [part for line in _done(state) + warned for part in wrapped(line, width)]
    return [on_terminal(line) for line in lines]


def _phases(state: State, now: float) -> list[str]:
    words = []
    for name, seconds in state.phases.items():
        word = _WORDS.get(name, name)
        if seconds is None:
            spent = state.phase_s(now)
            if state.copied.get("phase") == name:
                words.append(
                    f"{word} {_bar(state.copied['bytes'] / max(1, state.copied['of']))} "
                    f"{copy_text(state.copied)}"
                )
            elif state.expected_s:
                share = min(1.0, spent / state.expected_s)
                words.append(
                    f"{word} {_bar(share)} {time_text(spent)}/{time_text(state.expected_s)}"
                )
            else:
                words.append(f"{word} {time_text(spent)}")
        elif name in _SHOWN:
            words.append(f"{word} ✓ {time_text(seconds)}")
    return words


def _crop(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 4)] + "…   "


def _bar(share: float | None) -> str:
    full = round(_BAR * min(1.0, max(0.0, share or 0.0)))
    return "━" * full + ("╸" if full < _BAR else "") + "─" * (_BAR - full - 1)


def _done(state: State) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for (engine, workload, arm), values in state.values.items():
        groups.setdefault((engine, workload), []).append(f"{arm} {mean_and_spread(values)}")
    return [
        f"  done  {engine} {workload}: {'  '.join(arms)}"
        for (engine, workload), arms in groups.items()
    ]
