"""Made-up trials: a test gives the fields that it is about."""

import dataclasses
from typing import Any

from dbbench.model import FilesystemFacts, Run, Status, Trial


def trial(
    arm: str = "ext4", block: int = 1, tps: float | None = None, attempt: int = 1, **fields: Any
) -> Trial:
    """Return a good trial of workload `w` with these fields; `tps` is in its summary unless that is
    given too.
    """
    position = 1000 * (attempt - 1) + block
    summary = {} if tps is None else {"tps": tps}
    base = Trial(
        f"{arm}-b{block}-a{attempt}",
        "r",
        "h",
        arm,
        "postgres",
        "w",
        block,
        attempt,
        position,
        Status.OK,
        summary=summary,
        filesystem=FilesystemFacts("ext4"),
    )
    return dataclasses.replace(base, **fields)


def trial_of(run: Run, index: int = 0, **fields: Any) -> Trial:
    """Return a good trial for an entry of the run's order, with these fields."""
    spec = run.order[index]
    base = trial(
        block=spec.block,
        attempt=spec.attempt,
        id=spec.id,
        run=run.name,
        position=spec.position,
    )
    return dataclasses.replace(base, **fields)
