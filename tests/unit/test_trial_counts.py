"""How many trials count, in the same words everywhere."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.model import Status
from dbbench.report.exports import export
from dbbench.report.page.groups import groups
from dbbench.report.page.headline import verdict
from dbbench.report.trial_counts import TrialCounts, trial_counts
from dbbench.report.verdict_table import put_tables
from dbbench.report.verdicts import verdicts

DISTURBED = "ext4.postgres.pgbench-tpcb-b2-a1"
FAILED = "xfs.postgres.pgbench-tpcb-b1-a1"
NONE = TrialCounts(1, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (NONE, "1 trial counts"),
        (replace(NONE, used=9, disturbed=2), "9 trials count, 2 of them disturbed (suspect)"),
        (
            replace(NONE, used=3, failed=1, not_run=2),
            "3 trials count; 1 is left out: 1 failed; 2 have not run",
        ),
        (
            replace(NONE, used=3, replaced_disturbed=1, replaced=2, damaged=1),
            "3 trials count; 4 are left out: 1 disturbed, 2 of a repeated block and 1 damaged",
        ),
    ],
)
def test_words(counts: TrialCounts, text: str) -> None:
    """Nothing is counted twice, and what is none is not mentioned."""
    assert counts.text == text


def test_each_output_has_the_same_counts(tmp_path: Path) -> None:
    """A block was repeated, a trial failed, and one that counts is disturbed."""
    shape = Shape(work=TPCB, suspect=[DISTURBED], failed=[FAILED])
    loaded = synthetic.loaded(tmp_path, shape)
    other = "xfs.postgres.pgbench-tpcb-b3-a1"
    run = synthetic.with_trials(
        loaded, lambda trial: {"status": Status.SUSPECT} if trial.id == other else {}
    )
    text = trial_counts([run]).text
    page = verdict(groups([run]), ())
    judged = verdicts([run])
    assert re.fullmatch(r"8 trials count, 1 of .*; 4 are left out: .* 1 failed", text)
    assert page.quality.startswith(f"{text}. ")
    assert f"- {text}." in export("markdown", judged)
    assert f'name="trials" value="{text}"' in export("junit", judged)
    assert '"used": 8' in export("json", judged)


def test_a_metric_that_hides_tests_does_not_seem_to_hide_their_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scan has no p95 latency, so its table is not there; its trials count all the same."""
    run = synthetic.loaded(tmp_path, Shape())
    put_tables(verdicts([run], metric="p95_ms"))
    assert capsys.readouterr().out.endswith("\nIn all 3 tests, 27 trials count.\n")
    put_tables(verdicts([run]))
    assert capsys.readouterr().out.endswith("\n27 trials count.\n")
