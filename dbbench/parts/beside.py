"""Snapshots beside the load: a thread takes them, and what it saw is written down when the window has ended."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from dbbench.engines import SERVERLESS
from dbbench.engines.port import Server
from dbbench.model import SnapshotFacts, TrialWarning
from dbbench.operations import timed_snapshots
from dbbench.operations.port import Filled
from dbbench.record import Record


@contextlib.contextmanager
def snapshotting(trial: Record, filled: Filled, server: Server) -> Iterator[None]:
    """Take `[snapshots]` of the plan while the block runs; none of them is left afterwards. A setup that cannot is
    told (W108), as is one that fails (W109): the load's own figures stand."""
    asked = trial.run.plan.snapshots
    if asked is None:
        yield
        return
    how = timed_snapshots.way(filled, server)
    facts = SnapshotFacts(asked.every_s, asked.keep)
    if trial.cell.engine.name in SERVERLESS:
        why: str | None = "without a server there is nothing to start on a copy"
    else:
        why = timed_snapshots.lacks(how, filled)
    if why is not None:
        trial.note(snapshots=dataclasses.replace(facts, note=why))
        trial.warn(TrialWarning("W108", why))
        yield
        return
    with timed_snapshots.taking(asked.every_s, asked.keep, filled, how, trial.clock.now_utc) as taking:
        yield
    trial.note(snapshots=dataclasses.replace(facts, how=taking.how, note=taking.fault, taken=tuple(taking.taken)))
    if taking.fault:
        trial.warn(TrialWarning("W109", taking.fault))
    if taking.late:
        text = f"{taking.late} of {len(taking.taken)} took longer than {asked.every_s:g} s, and the next began late"
        trial.warn(TrialWarning("W110", text))
