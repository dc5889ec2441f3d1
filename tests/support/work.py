"""A trial whose load claims an amount of work."""

import dataclasses
from pathlib import Path

from dbbench.metrics.outcome import Claim
from dbbench.model import Trial, Work
from tests.support.judged import IO, Judged, outcome, readings


def judged(
    folder: Path,
    claim: Claim,
    seen: Work,
    flushes: int = 3000,
) -> Trial:
    """A trial whose load claims that, beside what was counted."""
    observed = readings(dataclasses.replace(IO, flushes=flushes), seen)
    return Judged(dataclasses.replace(outcome(), claims=(claim,)), observed).trial(folder)


MIB = 2**20
