"""What a load generator on another host says against a trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dbbench.model import ClientFacts, TrialWarning

CLOCK_S: Final = 0.1  # a tenth of a second of the series
OTHERS: Final = 0.10  # of the processors of the client's host


def warnings(facts: ClientFacts | None) -> Iterator[TrialWarning]:
    """W103, W104, W105; none where the load generator ran here."""
    if facts is None:
        return
    drift, error = abs(facts.clock_drift_s or 0.0), facts.clock_error_s or 0.0
    if drift + error > CLOCK_S:
        text = f"{drift:.3f} s from before the load to after it, known to {error:.3f} s"
        yield TrialWarning("W103", text, suspect=True)
    if facts.tool_here and release(facts.tool) != release(facts.tool_here):
        yield TrialWarning("W104", f"{facts.hostname}: {facts.tool}; here: {facts.tool_here}")
    if facts.others_share is not None and facts.others_share >= OTHERS:
        text = f"others used {facts.others_share:.0%} of the {facts.cpus} processors of {facts.hostname}"
        yield TrialWarning("W105", text, suspect=True)


def release(version: str) -> str:
    """What of a version makes a release: "15" of pgbench 15.18, "1.0.20" of sysbench."""
    words = [word for word in version.split() if word[:1].isdigit()]
    number = words[0] if words else version
    return number if version.startswith("sysbench") else number.partition(".")[0]
