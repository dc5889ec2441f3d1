"""What a run knows of its trials so far: the first state of the host, which blocks were conditioned."""

from __future__ import annotations

from typing import Any

from dbbench import (
    condition,
    host,
)
from dbbench.devices.port import Device
from dbbench.journal import Journal
from dbbench.model import (
    Cell,
    ConditionFacts,
    Run,
    TrialSpec,
)

_STATE = "state"  # in the journal: host and block layer at the begin of the run's first trial


def conditioned(run: Run, cell: Cell, device: Device, journal: Journal) -> ConditionFacts | None:
    """Discard before each trial; precondition once a block, before the first trial of it that is driven."""
    how = run.plan.device.condition
    if how == "discard":
        return condition.discarded(device)
    if how == "none":
        return None
    blocks = {(spec.block, spec.attempt) for spec in run.order if _driven(spec, journal)}
    now = next(spec for spec in run.order if spec.cell == cell.id and not _driven(spec, journal))
    return None if (now.block, now.attempt) in blocks else condition.preconditioned(device, run.plan.seed)


def _driven(spec: TrialSpec, journal: Journal) -> bool:
    return (journal.path.parent / "trials" / spec.id).is_dir()


def host_state(device: Device, journal: Journal) -> dict[str, Any]:
    """Host and block layer now; the first of a run is kept, as what the later ones are held against."""
    found = {**host.state(), **host.block_layer(device.all_leaves)}
    if not any(entry.get("event") == _STATE for entry in journal.entries()):
        journal.note(_STATE, state=found)
    return found


def first_state(journal: Journal) -> dict[str, Any]:
    """Host and block layer at the begin of the run's first trial; {} before it."""
    return next((entry["state"] for entry in journal.entries() if entry.get("event") == _STATE), {})
