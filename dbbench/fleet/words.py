"""What coordinator and hosts say to each other. Plain data: it is pickled by the engine that carries it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Deal:
    """Make the run's folder on the host if it is not there; these are its blocks from now on."""

    run: str
    spec: bytes  # run.json with this host's order
    plan: str
    scripts: dict[str, str]
    wipe: tuple[str, ...]
    version: str  # of dbbench: both sides must be the same


@dataclass(frozen=True)
class See:
    """See that the host's blocks are driven; answer with the first result that is not in `taken`.

    Answered without one after `patience_s`, so that nobody waits for a coordinator that is gone.
    """

    run: str
    blocks: tuple[int, ...]
    taken: tuple[str, ...]
    patience_s: float
    start: bool = True  # a supervisor, where none drives what is left


@dataclass(frozen=True)
class Piece:
    """Bytes of a file of a finished trial."""

    run: str
    trial: str
    file: str
    offset: int


@dataclass(frozen=True)
class Halt:
    """Stop the run's supervisor cleanly."""

    run: str


@dataclass(frozen=True)
class Leave:
    """End the worker; nothing more is asked. The supervisor is not touched."""


Question = Deal | See | Piece | Halt | Leave


@dataclass(frozen=True)
class Dealt:
    """What the host is."""

    facts: dict[str, Any]


@dataclass(frozen=True)
class State:
    """Where the supervisor stands: the content of state.json."""

    trial: str = ""  # "" between trials
    phase: str = ""
    since: float = 0.0  # UTC, of the phase
    note: str = ""  # what is prepared, what is waited for
    mean_s: float | None = None  # of the trials of this sitting
    left: int = 0  # trials
    ended: bool = False
    error: dict[str, Any] | None = None  # what stopped it: class, evidence, where, effect, remedy


@dataclass(frozen=True)
class Seen:
    """What the host has. `dealt` is false where it does not know the run, or other blocks of it."""

    dealt: bool
    state: State = field(default_factory=State)
    trial: str = ""  # a finished one
    files: tuple[tuple[str, int], ...] = ()  # all of its files with their bytes
    content: dict[str, bytes] = field(default_factory=dict)  # of those that are small
    repeats: tuple[dict[str, Any], ...] = ()  # trials that the host has added: blocks that are repeated


@dataclass(frozen=True)
class Refused:
    """An error of the host, whole."""

    error: dict[str, Any]


Answer = Dealt | Seen | bytes | Refused | None
