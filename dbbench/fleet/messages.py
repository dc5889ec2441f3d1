"""Messages between coordinator and hosts. Plain data, because the transport pickles it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Deal:
    """Make the run's directory on the host if it does not exist; these are its blocks from now on."""

    run: str
    spec: bytes  # run.json with this host's order
    plan: str
    scripts: dict[str, str]
    wipe: tuple[str, ...]
    version: str  # of dbbench: both sides must be the same


@dataclass(frozen=True)
class See:
    """Ensure that the host's blocks are run; answer with the first result that is not in `taken`.

    After `patience_s` the answer comes without one, so that nothing waits for a coordinator that has ended.
    """

    run: str
    blocks: tuple[int, ...]
    taken: tuple[str, ...]
    patience_s: float
    start: bool = True  # a supervisor, where none drives what is left


@dataclass(frozen=True)
class Chunk:
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
    """End the worker; nothing more is asked. The supervisor continues."""


Question = Deal | See | Chunk | Halt | Leave


@dataclass(frozen=True)
class Dealt:
    """The host's facts."""

    facts: dict[str, Any]


@dataclass(frozen=True)
class HostState:
    """The state of the supervisor: the content of state.json."""

    trial: str = ""  # "" between trials
    phase: str = ""
    since: float = 0.0  # UTC, of the phase
    note: str = ""  # what is prepared, what is waited for
    waits_for: str = ""  # the run's folder that has the disk which is waited for
    mean_s: float | None = None  # of the trials of this sitting
    left: int = 0  # trials
    used_s: float = 0.0  # of the budget, in all sittings
    ended: bool = False
    error: dict[str, Any] | None = None  # what stopped it: class, evidence, where, effect, remedy


@dataclass(frozen=True)
class HostSeen:
    """The results of the host. `dealt` is false if it does not know the run, or has other blocks of it."""

    dealt: bool
    state: HostState = field(default_factory=HostState)
    trial: str = ""  # a finished one
    files: tuple[tuple[str, int], ...] = ()  # all of its files with their bytes
    content: dict[str, bytes] = field(default_factory=dict)  # of those that are small
    repeats: tuple[dict[str, Any], ...] = ()  # trials that the host has added: blocks that are repeated


@dataclass(frozen=True)
class Refused:
    """An error of the host, complete."""

    error: dict[str, Any]


Answer = Dealt | HostSeen | bytes | Refused | None
