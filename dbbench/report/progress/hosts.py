"""Progress of a fleet: a line for each trial, and once in a while one about all hosts; or JSON."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TextIO

from dbbench.model.events import Emit, Event
from dbbench.report.progress import Lines, shown
from dbbench.report.progress.state import eta, result, trial_name
from dbbench.units import epoch, time_text

HOST_HEADER: Final = ("host", "trial", "phase", "for", "done", "ETA", "last answer", "")


def renderer(
    kind: str, stream: TextIO, *, color: bool = True
) -> contextlib.AbstractContextManager[Emit]:
    """Yield a function that shows a fleet's events on `stream`; kinds as for `progress.renderer`."""
    return shown(kind, stream, lambda: contextlib.nullcontext(_PlainLines(stream)))


def host_cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    """Return the cells of a host's row, for `fleet status`."""
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


def trial_line(event: Event) -> str:
    """Return the permanent line of an event; "" if it has none."""
    data = event.data
    match event.kind:
        case "fleet_begin":
            done = f", {data['done']} already collected" if data["done"] else ""
            return (
                f"fleet {data['name']}: {data['mode']}, {len(data['hosts'])} hosts, "
                f"{data['trials']} trials{done}"
            )
        case "trial_end":
            return f"{data['host']}: {trial_name(data)}: {result(data)}"
        case "note":
            return str(data["text"])
        case "fleet_end":
            lacking = f"; incomplete: {', '.join(data['lacking'])}" if data["lacking"] else ""
            return f"fleet {data['name']}: {data['trials']} trials collected{lacking}"
    return ""


class _PlainLines(Lines):
    def take(self, event: Event) -> None:
        self.put(
            standing(event.data["hosts"])
            if event.kind == "hosts" and self.due()
            else trial_line(event)
        )


def standing(rows: Sequence[dict[str, Any]]) -> str:
    """Return "12/40 trials collected; 3 measure, 1 restore; about 12 min left, until 22:00"."""
    done = sum(row["done"] for row in rows)
    trials = sum(row["trials"] for row in rows)
    phases = Counter(str(row["phase"]) for row in rows)
    words = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    estimates = [row["eta_s"] for row in rows if row["eta_s"] is not None]
    left = f"; {eta(max(estimates))}" if estimates and max(estimates) else ""
    return f"{done}/{trials} trials collected; {words}{left}"
