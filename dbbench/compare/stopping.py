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

from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, Estimate, confidences
from dbbench.compare.pairing import Group
from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.compare.verdict import pair_groups, word
from dbbench.model import Run, Trial, Verdict
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
    trials: Sequence[Trial],
    baseline: str,
    metric: str | Mapping[str, str],
    margin: float = MARGIN,
) -> dict[tuple[Group, str], Examined]:
    """Return each (group, arm) with enough pairs for an interval. Pass all trials of a run, as to
    `rows`.
    """
    examined = {}
    for key, about in pair_groups(trials, baseline, metric).items():
        log_ratios = {arm: guess.log_ratio() for arm, guess in about.estimates.items()}
        for arm, guess in about.estimates.items():
            if guess.n < LEAST_BLOCKS:
                continue
            verdict = Verdict.INCONCLUSIVE
            if guess.n in LOOKS:
                usual = confidences(log_ratios, SAME_ALPHA)[arm]
                verdict = word(*guess.bounds(usual), about.metric, margin)
                if verdict is not Verdict.SAME:
                    strict = confidences(log_ratios, LOOKS[guess.n])[arm]
                    verdict = word(*guess.bounds(strict), about.metric, margin)
            decided = verdict is not Verdict.INCONCLUSIVE
            examined[key, arm] = Examined(guess, verdict if decided else "")
    return examined


def stop_reasons(run: Run) -> dict[tuple[Group, str], Remark]:
    """Return why a (group, arm) of the run is not measured again."""
    kinds = {
        "decided": RemarkKind.DECIDED,
        "settled": RemarkKind.SETTLED,
        "given-up": RemarkKind.GIVEN_UP,
    }
    reasons = {}
    for cell in run.cells:
        question = run.questions.get(cell.id)
        if question is not None and question.kind in kinds:
            reason = remark(kinds[question.kind], pairs=question.pairs or 0)
            reasons[cell.group, cell.arm] = reason
    return reasons
