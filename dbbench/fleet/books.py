"""What the coordinator knows of each host of a fleet, and the trial that is arriving from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbbench.errors import ResultDamaged
from dbbench.fleet.messages import HostSeen, HostState
from dbbench.metrics.clock import iso
from dbbench.model import TrialSpec
from dbbench.results.merging import Incoming


@dataclass
class Transfer:
    """A trial whose files are arriving; `rest` are the incomplete ones, with their missing bytes."""

    trial: str
    incoming: Incoming
    rest: list[tuple[str, int]]
    offset: int = 0  # in the first of them

    def take(self, content: bytes) -> None:
        """Append bytes to the first file of `rest`. Raises ResultDamaged if it ends too early."""
        name, size = self.rest[0]
        if not content:
            raise ResultDamaged(f"{self.trial}: {name} ended at byte {self.offset} of {size}")
        self.incoming.write(name, content)
        self.offset += len(content)
        if self.offset >= size:
            self.rest.pop(0)
            self.offset = 0


@dataclass
class Book:
    """The state of one host of the fleet."""

    host: str
    run: str  # name of its run
    blocks: tuple[int, ...]
    order: tuple[TrialSpec, ...]  # its trials, repeats as soon as they are known
    taken: set[str]  # ids that are home
    heard: float  # UTC
    state: HostState = field(default_factory=HostState)
    dealt: bool = False  # whether it knows its blocks
    asked: bool = False
    retry_at: float = 0.0
    transfer: Transfer | None = None
    arriving: str | None = None  # a trial whose bytes are all here, but not safe yet
    damaged: int = 0  # transfers in a row
    done: bool = False
    gone: str = ""  # why nothing more is expected of it
    note: str = ""
    current: bool = False  # its last answer had nothing new

    @property
    def open(self) -> bool:
        """Whether something is still expected of it."""
        return not self.done and not self.gone

    @property
    def expected(self) -> set[str]:
        """Return the ids of all its trials."""
        return {spec.id for spec in self.order}

    @property
    def arrived(self) -> set[str]:
        """Return the ids of the trials that the host need not send."""
        return self.taken if self.arriving is None else {*self.taken, self.arriving}

    def begin(self, seen: HostSeen, folder: Path) -> None:
        """Store what came with the answer; the rest is requested file by file."""
        incoming = Incoming(folder, seen.trial)
        for name, content in seen.content.items():
            incoming.write(name, content)
        self.transfer = Transfer(seen.trial, incoming, [file for file in seen.files if file[0] not in seen.content])

    def lost(self, why: str, retry_at: float) -> None:
        """Note that no answer came: a transfer starts again."""
        self.transfer, self.retry_at, self.note = None, retry_at, why

    def redeal(self, blocks: tuple[int, ...], order: tuple[TrialSpec, ...]) -> None:
        """Assign other blocks from now on."""
        self.blocks, self.order = blocks, order
        self.taken &= self.expected
        self.dealt, self.done = False, not order

    def row(self, now: float) -> dict[str, Any]:
        """Return the host's row in `fleet status`."""
        left = len(self.expected - self.taken)
        mean = self.state.mean_s
        what = "gone" if self.gone else "done" if self.done else self.state.phase or "between trials"
        return {
            "host": self.host, "run": self.run, "trial": self.state.trial, "phase": what,
            "phase_s": round(now - self.state.since, 1) if self.state.since and self.open else None,
            "done": len(self.taken), "trials": len(self.order), "blocks": list(self.blocks),
            "eta_s": 0.0 if not left else None if mean is None or self.gone else round(left * mean, 1),
            "heard": iso(self.heard), "note": self.gone or self.state.note,
        }  # fmt: skip
