"""What a coordinator asks a host, and what the host answers: plain data, because it is pickled on
its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

# bytes per answer: limits what coordinator and scheduler keep in memory for each host
BATCH: Final = 4 * 2**20


@dataclass(frozen=True)
class Assignment:
    """The blocks of a host from now on; it makes the run's directory if there is none. The answer
    is its facts.
    """

    run: str
    spec: bytes  # run.json with the order of this host
    plan: str
    scripts: dict[str, str]
    wipe: tuple[str, ...]  # devices that may be erased
    version: str  # of dbbench, which must be the same on both sides


@dataclass(frozen=True)
class ResultRequest:
    """Run the assigned blocks, and answer with a HostReport: with the first finished trial that is
    not in `taken`, or after `patience_s` without one, so that nothing waits for a coordinator
    that has ended.
    """

    run: str
    blocks: tuple[int, ...]
    taken: tuple[str, ...]
    patience_s: float
    # folder of the coordinator, if the host must stop after its trial when that has ended
    coordinator: str = ""


@dataclass(frozen=True)
class FileRequest:
    """The next Batch of a finished trial; `offset`: bytes of all its files that have arrived."""

    run: str
    trial: str
    offset: int


@dataclass(frozen=True)
class StopRequest:
    """Stop the trials of the run cleanly. The answer is None."""

    run: str


@dataclass(frozen=True)
class Batch:
    """Names of files of a trial, and at most BATCH bytes of their content; a file may continue in
    the next one.
    """

    pieces: tuple[tuple[str, bytes], ...] = ()
    last: bool = True


@dataclass(frozen=True)
class HostState:
    """The state of a host's share: the content of state.json."""

    trial: str = ""  # "" between trials
    phase: str = ""
    since: float = 0.0  # start of the phase, UTC
    note: str = ""  # what the host prepares or waits for
    waits_for: str = ""  # folder of the run that uses the disk for which this host waits
    mean_s: float | None = None  # mean duration of the trials since the start of the share
    used_s: float = 0.0  # seconds of the budget used so far, by all starts of the share
    ended: bool = False
    error: dict[str, Any] | None = None  # what stopped it: id, evidence, where, effect, remedy


@dataclass(frozen=True)
class HostReport:
    """The state and a result of the host; not `assigned` if it does not know the run, or has other
    blocks of it.
    """

    assigned: bool
    state: HostState = field(default_factory=HostState)
    trial: str = ""  # id of a finished trial
    batch: Batch = field(default_factory=Batch)  # the first one of the trial
    repeats: tuple[dict[str, Any], ...] = ()  # trials that the host has added, to repeat blocks


@dataclass(frozen=True)
class Refusal:
    """An error of the host, with the parts that `HostState.error` has too."""

    error: dict[str, Any]


Question = Assignment | ResultRequest | FileRequest | StopRequest
Answer = dict[str, Any] | HostReport | Batch | Refusal | None
