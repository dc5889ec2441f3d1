"""Progress of a fleet: a line for each trial, and once in a while one about all hosts; or JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

from dbbench.model.events import Emit, Event
from dbbench.report.progress import Lines, shown
from dbbench.report.progress.state import result, trial_name
from dbbench.units import count, epoch, time_text

HOST_HEADER: Final = ("host", "trial", "last event", "")


def renderer(
    kind: str,
    stream: TextIO,
    *,
    color: bool = True,
) -> contextlib.AbstractContextManager[Emit]:
    """Yield a function that shows a fleet's events on `stream`; kinds as for `progress.renderer`."""
    return shown(kind, stream, lambda: contextlib.nullcontext(_PlainLines(stream)))


def host_cells(row: Mapping[str, Any], now: float) -> tuple[str, ...]:
    """Return the cells of a host's row, for `fleet status`."""
    since = row["since"]
    note = row["note"]
    return (
        str(row["host"]),
        str(row["trial"] or "–"),
        "–" if since is None else f"{time_text(max(0.0, now - epoch(since)))} ago",
        str(note) if row["connected"] else "not connected",
    )


def trial_line(event: Event) -> str:
    """Return the permanent line of an event; "" if it has none."""
    data = event.data
    match event.kind:
        case "fleet_begin":
            done = f", {data['done']} already collected" if data["done"] else ""
            return (
                f"fleet {data['name']}: {data['mode']}, {count(len(data['hosts']), 'host')}, "
                f"{data['trials']} trials{done}"
            )
        case "trial_end":
            return f"{data['host']}: {trial_name(data)}: {result(data)}"
        case "note":
            host = f"{data['host']}: " if "host" in data else ""
            return f"{host}{data['text']}"
        case "fleet_end":
            lacking = f"; incomplete: {', '.join(data['lacking'])}" if data["lacking"] else ""
            return f"fleet {data['name']}: {data['trials']} trials{lacking}"
    return ""


class _PlainLines(Lines):
    def take(self, event: Event) -> None:
        self.put(
            standing(event.data, time.time())
            if event.kind == "hosts" and self.due()
            else trial_line(event)
        )


def standing(data: Mapping[str, Any], now: float) -> str:
    """Return "12/40 trials; db1: xfs.postgres.w-b2-a1 (1:02); db2: not connected"."""
    words = [f"{data['done']}/{data['trials']} trials"]
    for row in data["hosts"]:
        host, trial, since, note = host_cells(row, now)
        words.append(f"{host}: {note or f'{trial}, {since}'}")
    return "; ".join(words)
