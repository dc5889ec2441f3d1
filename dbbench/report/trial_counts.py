"""How many trials of runs count, and why the others do not: the same words on the terminal, the page
and in exports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dbbench.compare import chosen
from dbbench.model import Status
from dbbench.results import LoadedRun
from dbbench.units import count, join_words


@dataclass(frozen=True)
class TrialCounts:
    """`disturbed` of the `used` trials are suspect. The others were left out: `failed`; of a block
    that was repeated because one of its trials was disturbed, `replaced_disturbed` and
    `replaced`; `damaged`, which cannot be read. `not_run` have no result.
    """

    used: int
    disturbed: int
    failed: int
    replaced_disturbed: int
    replaced: int
    damaged: int
    not_run: int

    @property
    def text(self) -> str:
        """Return "45 trials count, 2 of them disturbed (suspect); 6 are left out: 5 disturbed, 1
        failed".
        """
        verb = "counts" if self.used == 1 else "count"
        text = f"{count(self.used, 'trial')} {verb}"
        if self.disturbed:
            text += f", {self.disturbed} of them disturbed (suspect)"
        # Trials that do not count, by the reason that a reader can act on.
        causes = {
            "disturbed": self.replaced_disturbed,
            "of a repeated block": self.replaced,
            "failed": self.failed,
            "damaged": self.damaged,
        }
        left_out = sum(causes.values())
        if left_out:
            are = "is" if left_out == 1 else "are"
            reasons = [f"{number} {cause}" for cause, number in causes.items() if number]
            text += f"; {left_out} {are} left out: {join_words(reasons)}"
        if self.not_run:
            have = "has" if self.not_run == 1 else "have"
            text += f"; {self.not_run} {have} not run"
        return text


def trial_counts(runs: Sequence[LoadedRun]) -> TrialCounts:
    """Return the counts over all engines and workloads of the runs."""
    used = Counter[Status]()
    left_out = Counter[Status]()
    for run in runs:
        ids = {trial.id for trial in chosen(run.trials)}
        for trial in run.trials:
            counts = used if trial.id in ids else left_out
            counts[trial.status] += 1
    return TrialCounts(
        used=used.total(),
        disturbed=used[Status.SUSPECT],
        failed=left_out[Status.FAILED],
        replaced_disturbed=left_out[Status.SUSPECT],
        replaced=left_out[Status.OK],
        damaged=sum(len(run.damaged) for run in runs),
        not_run=sum(len(run.remaining) for run in runs),
    )
