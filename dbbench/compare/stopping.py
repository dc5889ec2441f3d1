"""When a pair is decided, so that its arm is not measured again and its time goes to the open
questions.

A group-sequential rule: the intervals are examined only after the numbers of pairs in LOOKS, at
a level that is strict at first, as O'Brien and Fleming spend the error (Lan and DeMets,
Biometrika 70, 1983, for about twelve pairs). So little is spent that the verdict itself keeps
its ordinary level. `benchmarks/calibration.py` measures the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, Estimate, holm_levels
from dbbench.compare.pairing import Group
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.compare.verdict import pair_groups, word
from dbbench.model import Run, Trial
from dbbench.model.plan import MARGIN

# pairs -> error probability of a family of candidates
LOOKS: Final = {3: 0.0001, 5: 0.001, 8: 0.004, 12: 0.01}
# For "same", whose error is smaller: such an interval may exclude the true ratio, but never call
# equal arms different.
SAME_ALPHA: Final = 0.02


class Examined(NamedTuple):
    """A pair of a run in progress; `verdict` is "" unless it is decided."""

    guess: Estimate
    verdict: str

    def half_width(self, more: int = 0) -> float:
        """Return half the interval at LEVEL as a share, with so many further blocks."""
        return math.expm1(self.guess.log_ratio(self.guess.n + more).half_width(LEVEL))


def examine(
    trials: Sequence[Trial], baseline: str, metric: str | Mapping[str, str], margin: float = MARGIN
) -> dict[tuple[Group, str], Examined]:
    """Return each (group, arm) with enough pairs for an interval. Pass all trials of a run, as to
    `rows`.
    """
    examined = {}
    for key, about in pair_groups(trials, baseline, metric).items():
        enough = {arm: guess for arm, guess in about.estimates.items() if guess.n >= LEAST_BLOCKS}
        p_values = [guess.p_value() for guess in enough.values()]
        for place, (arm, guess) in enumerate(enough.items()):
            strict, usual = (
                word(*guess.bounds(holm_levels(p_values, alpha)[place]), about.metric, margin)
                for alpha in (LOOKS.get(guess.n, 0.0), SAME_ALPHA)
            )
            decided = guess.n in LOOKS and (usual == "same" or strict != "inconclusive")
            examined[key, arm] = Examined(
                guess, ("same" if usual == "same" else strict) if decided else ""
            )
    return examined


def reasons_stopped(run: Run) -> dict[tuple[Group, str], Remark]:
    """Return why a (group, arm) of the run is not measured again."""
    kinds = {
        "decided": RemarkKind.DECIDED,
        "settled": RemarkKind.SETTLED,
        "given-up": RemarkKind.GIVEN_UP,
    }
    return {
        (cell.group, cell.arm): remark(kind, pairs=question.pairs or 0)
        for cell in run.cells
        if (question := run.questions.get(cell.id)) and (kind := kinds.get(question.kind))
    }
