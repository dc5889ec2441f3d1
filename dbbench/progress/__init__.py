"""Events of a run as lines for a person or a program: live on a terminal, plain elsewhere, JSON, or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TextIO

from dbbench.progress.events import Emit, Event, ignore

__all__ = ["Emit", "Event", "ignore", "renderer"]

KINDS = ("auto", "plain", "json", "none")


@contextlib.contextmanager
def renderer(kind: str, stream: TextIO, *, color: bool = True) -> Iterator[Emit]:
    """A function that shows events on `stream` while the block lasts.

    `auto`: drawn and redrawn where the stream is a terminal, else plain.
    """
    if kind == "none":
        yield ignore
    elif kind == "json":
        yield lambda event: print(event.line(), file=stream, flush=True)
    elif kind == "auto" and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        from dbbench.progress.live import live  # rich costs 80 ms: only where it draws

        with live(stream, color=color) as emit:
            yield emit
    else:
        from dbbench.progress.plain import plain

        with plain(stream) as emit:
            yield emit
