"""Claims of a study: tuning sentences, each judged by two arms of the study's run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from dbbench.compare import Row, rows
from dbbench.compare.interval import LEVEL
from dbbench.compare.verdict import with_interval
from dbbench.metrics.table import METRICS
from dbbench.model import Durability, Trial, Verdict
from dbbench.plan import studies
from dbbench.plan.studies import TuningClaim
from dbbench.report.text import put_paragraph, put_table
from dbbench.results import LoadedRun
from dbbench.units import MISSING, interval


class ClaimWord(StrEnum):
    """What a run says about a claim."""

    TRUE = "true here"
    WRONG = "wrong here"
    SAME = "same"  # within the margin
    UNSAFE = "unsafe"  # whatever it gains, a power loss can destroy more
    UNDECIDED = "undecided"
    UNTRIED = "not tried"


_BY_VERDICT: Final = {
    Verdict.FASTER: ClaimWord.TRUE,
    Verdict.BETTER: ClaimWord.TRUE,
    Verdict.SLOWER: ClaimWord.WRONG,
    Verdict.WORSE: ClaimWord.WRONG,
    Verdict.SAME: ClaimWord.SAME,
}


# Flags that mean a loss, worst first.
_LOSSES: Final = [flag for flag in Durability if flag is not Durability.TORN_PREVENTED]


class JudgedClaim(NamedTuple):
    """A claim with the comparison of its arms. `row` None: `why` says why it was not tried.
    `durability`: the class of the arm, and of the other one if that differs.
    """

    claim: TuningClaim
    finding: ClaimWord
    row: Row | None
    durability: str
    why: str = ""

    @property
    def word(self) -> str:
        """Return the finding, with the margin if both arms are the same."""
        if self.finding is ClaimWord.SAME and self.row is not None:
            return f"same within {100 * self.row.margin:.3g} %"
        return self.finding.value

    @property
    def bounds(self) -> str:
        """Return the interval of the change."""
        if self.row is None:
            return MISSING
        return interval(self.row.lo, self.row.hi)


def judged_claims(loaded: LoadedRun) -> list[JudgedClaim]:
    """Return the claims of the study of which this is a run; none if it is of no study."""
    planned = loaded.run.plan.study
    if planned is None or planned.name not in studies.names():
        return []
    claims = studies.study(planned.name).claim
    trials = list(loaded.trials)
    tables = {
        than: rows(trials, than, margin=loaded.run.plan.margin)
        for than in {claim.than for claim in claims}
    }
    return [_judge(claim, loaded, tables[claim.than]) for claim in claims]


def _judge(claim: TuningClaim, loaded: LoadedRun, table: Sequence[Row]) -> JudgedClaim:
    """Judge a claim by the run's `table`, whose baseline is the claim's other arm."""
    run = loaded.run
    # A claim that this run cannot judge says why.
    engines = {cell.engine.name for cell in run.cells}
    if claim.engines and not engines.intersection(claim.engines):
        why = f"it is about {', '.join(claim.engines)}"
        return JudgedClaim(claim, ClaimWord.UNTRIED, None, MISSING, why)
    for arm in (claim.arm, claim.than):
        if arm in run.skipped:
            why = f"{arm}: {run.skipped[arm]}"
            return JudgedClaim(claim, ClaimWord.UNTRIED, None, MISSING, why)

    # All trials of the run share their variance, but each claim is a question of its own: its
    # interval is not widened because other claims are tried, too.
    row = next((row for row in table if row.fs_setup == claim.arm), None)
    if row is None or row.log_ratio is None or row.log_ratio.df is None:
        why = "fewer than three blocks have both arms"
        return JudgedClaim(claim, ClaimWord.UNTRIED, None, MISSING, why)
    limited = row.verdict is Verdict.LIMITED
    row = with_interval(row, row.log_ratio, LEVEL, METRICS["tps"])
    finding = ClaimWord.UNDECIDED if limited else _BY_VERDICT.get(row.verdict, ClaimWord.UNDECIDED)
    if _worst(loaded.trials, claim.arm) < _worst(loaded.trials, claim.than):
        finding = ClaimWord.UNSAFE
    durability = row.durability_class
    if row.mixed_durability:
        durability += f" (instead of {table[0].durability_class})"
    return JudgedClaim(claim, finding, row, durability)


def _worst(trials: Sequence[Trial], arm: str) -> int:
    """Return the place of the arm's worst durability flag; a larger one is safer."""
    worst = len(_LOSSES)
    for trial in trials:
        if trial.fs_setup == arm and trial.filesystem is not None:
            for flag in trial.filesystem.durability_flags:
                if flag in _LOSSES:
                    worst = min(worst, _LOSSES.index(flag))
    return worst


def put_claims(judged: Sequence[JudgedClaim]) -> None:
    """Print what the run says about each claim, and what was not tried."""
    table = [
        (each.claim.says, each.word, each.bounds, each.durability)
        for each in judged
        if each.row is not None
    ]
    put_table(("claim", "finding", "change, 95 %", "durability"), table)
    for each in judged:
        if each.row is None:
            put_paragraph(f"not tried: {each.claim.says} ({each.why})")
