"""What the coordinator knows of one host, and a trial that is on its way home."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbbench.clock import iso
from dbbench.errors import ResultDamaged
from dbbench.fleet.words import Seen, State
from dbbench.model import TrialSpec
from dbbench.store.taking import Incoming


@dataclass
class Transfer:
    """A trial whose files arrive; `rest` are those that are not whole yet, with their bytes."""

    trial: str
    incoming: Incoming
    rest: list[tuple[str, int]]
    offset: int = 0  # in the first of them

    def take(self, content: bytes) -> None:
        """The next bytes of the first file of `rest`. ResultDamaged where it ends too early."""
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
    """One host of the fleet."""

    host: str
    run: str  # name of its run
    blocks: tuple[int, ...]
    order: tuple[TrialSpec, ...]  # its trials, repeats as soon as they are known
    taken: set[str]  # ids that are home
    heard: float  # UTC
    state: State = field(default_factory=State)
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
        """Ids of all its trials."""
        return {spec.id for spec in self.order}

    @property
    def arrived(self) -> set[str]:
        """Ids of the trials that the host need not send."""
        return self.taken if self.arriving is None else {*self.taken, self.arriving}

    def begin(self, seen: Seen, folder: Path) -> None:
        """Take what came with the answer; what is missing is to be asked for, file by file."""
        incoming = Incoming(folder, seen.trial)
        for name, content in seen.content.items():
            incoming.write(name, content)
        self.transfer = Transfer(seen.trial, incoming, [file for file in seen.files if file[0] not in seen.content])

    def lost(self, why: str, retry_at: float) -> None:
        """No answer came: a transfer begins anew."""
        self.transfer, self.retry_at, self.note = None, retry_at, why

    def redeal(self, blocks: tuple[int, ...], order: tuple[TrialSpec, ...]) -> None:
        """Other blocks from now on."""
        self.blocks, self.order = blocks, order
        self.taken &= self.expected
        self.dealt, self.done = False, not order

    def row(self, now: float) -> dict[str, Any]:
        """The host in `fleet status`."""
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
