"""The last step of giving a device back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from dbbench.errors import DbbenchError


@contextlib.contextmanager
def afterwards(wait: Callable[[], None]) -> Iterator[None]:
    """Call `wait` when the block ends. After an error its own becomes a note on it: the first one is the cause."""
    try:
        yield
    except BaseException as error:
        try:
            wait()
        except DbbenchError as second:
            error.add_note(f"{second.id}: {second}")
        raise
    wait()
