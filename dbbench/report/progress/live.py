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
from dbbench.report.text import wrap
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
        self.console = Console(
            file=stream,
            no_color=not color,
            highlight=False,
        )
        self._live = Live(
            self,
            console=self.console,
            auto_refresh=False,
        )

    def __enter__(self) -> Screen:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        self._state.take(event)
        text, style = above(event, self._state)
        for line in text.splitlines():
            for part in wrap(line, self.console.width):  # rich would divide "1 912"
                self.console.print(Text(on_terminal(part), style))

    def tick(self) -> None:
        self._live.refresh()

    def __rich_console__(
        self,
        console: Console,
        options: ConsoleOptions,
    ) -> RenderResult:
        for line in draw(self._state, time.monotonic(), options.max_width):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def above(event: Event, state: State) -> tuple[str, str]:
    """Return the line that an event leaves permanently, "" if none, and its style."""
    data = event.data
    if event.kind == "warning":
        return state.news, "yellow"
    if event.kind == "trial_end" and data.get("status") == "failed":
        return f"✗ {trial_name(data)}: {result(data)}", "red"
    return str(data.get("text")) if event.kind == "note" else "", ""


def draw(state: State, now: float, width: int) -> list[str]:
    """Return the lines of a state, with as many ended phases as there is space for."""
    lines = []
    if state.run:  # the power-loss lab has no run
        head = f"run {state.run.get('name', '')}  {opening(state.run)}"
        left = eta(state.left_s(now))
        if left:  # at the right margin, and never cut off
            space = width - len(left)
            head = _crop(f"{head}   ", space).ljust(space) + left
        lines.append(head)
    if state.preparing:
        share = ""
        if state.fraction is not None:
            share = f" {_bar(state.fraction)} {100 * state.fraction:.0f} %"
        lines.append(f"  prepare: {state.preparing}{share}")
    if state.trial:
        position = str(state.trial.get("position")).rjust(len(str(state.total)))
        lead = f"[{position}/{state.total}] {trial_name(state.trial)}   "
        # Ended phases leave the line first if it is too long.
        words = _phases(state, now)
        while len(words) > 1 and len(lead + "  ".join(words)) > width:
            words.pop(0)
        phases = "  ".join(words)
        lines.append(_crop(lead, width - len(phases)) + phases)
        if any(tps is not None for tps in state.tps):  # a scan has none
            line = f"        {number(state.second.get('tps'))} tx/s {spark(state.tps)}"
            p95_ms = state.second.get("p95_ms")
            lines.append(line if p95_ms is None else f"{line}   p95 {number(p95_ms)} ms")
    # Below, what the ended trials gave so far.
    for line in [*_done(state), *_suspects(state)]:
        lines += wrap(line, width)
    return [on_terminal(line) for line in lines]


def _suspects(state: State) -> list[str]:
    setups_of: dict[str, list[str]] = {}
    for (ident, setup), trials in state.warned.items():
        setups_of.setdefault(ident, []).append(f"{setup} {trials}")
    words = [f"{ident}: {join_words(setups)}" for ident, setups in setups_of.items()]
    return [f"  suspect  {'; '.join(words)}"] if words else []


def _phases(state: State, now: float) -> list[str]:
    words = []
    for name, seconds in state.phases.items():
        word = _WORDS.get(name, name)
        if seconds is not None:
            if name in _SHOWN:
                words.append(f"{word} ✓ {time_text(seconds)}")
            continue
        # The current phase shows how far it is, as well as that is known.
        spent = state.phase_s(now)
        if state.copied.get("phase") == name:
            share = state.copied["bytes"] / max(1, state.copied["of"])
            words.append(f"{word} {_bar(share)} {copy_text(state.copied)}")
        elif state.expected_s:
            share = min(1.0, spent / state.expected_s)
            clock = f"{time_text(spent)}/{time_text(state.expected_s)}"
            words.append(f"{word} {_bar(share)} {clock}")
        else:
            words.append(f"{word} {time_text(spent)}")
    return words


def _crop(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return text[: max(0, width - 4)] + "…   "


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
