"""Give all trials of a comparison the same history of writes."""

from __future__ import annotations

from dbbench.model import ConditionFacts
from dbbench.results import RunFolder, list_results
from dbbench.storage.devices.port import Device
from dbbench.storage.devices.precondition import discard, fill


def precondition(folder: RunFolder, cell_id: str, device: Device) -> ConditionFacts | None:
    """Discard before each trial; precondition once per block, before its first trial."""
    plan, done = folder.run.plan, list_results(folder.path)
    if plan.device.condition == "discard":
        return discard(device)
    blocks = {(spec.block, spec.attempt) for spec in folder.run.order if spec.id in done}
    now = next(spec for spec in folder.pending if spec.cell == cell_id)
    return None if (now.block, now.attempt) in blocks else fill(device, plan.seed)
