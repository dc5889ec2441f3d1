"""Tuning sentences that are judged by a run of the study `claims`."""

from dataclasses import replace
from pathlib import Path

import synthetic

from dbbench import plan
from dbbench.model import Durability, StudyOf, Trial
from dbbench.plan import studies
from dbbench.report.claims import ClaimWord, JudgedClaim, judged_claims
from dbbench.report.page.html import build, html
from dbbench.results import LoadedRun
from tests.support.plans import SHIPPED

WORKLOAD = "sysbench-oltp-update-non-index"
SPEEDS = (
    ("ext4", 1.0),
    ("ext4-relatime", 1.0),
    ("ext4-nobarrier", 1.5),
    ("ext4-commit-60", 1.4),
    ("ext4-discard", 1.3),
)


def claims_run(folder: Path, engine: str = "postgres") -> LoadedRun:
    """Return a run of the study whose arms have the speeds above. Without barriers, a power loss
    may destroy anything; ZFS could not run.
    """
    shape = synthetic.Shape(
        arms=[arm for arm, _ in SPEEDS],
        work=((engine, WORKLOAD),),
        blocks=6,
        speeds=SPEEDS,
        noise=0.005,
    )
    loaded = synthetic.loaded(folder, shape)
    plan = replace(loaded.run.plan, study=StudyOf("claims", "tiny"))
    loaded = replace(loaded, run=replace(loaded.run, plan=plan, skipped={"zfs-8k": "no module"}))
    return synthetic.with_trials(loaded, _flags)


def _flags(trial: Trial) -> dict[str, object]:
    assert trial.filesystem is not None
    flags = (Durability.NO_BARRIER,) if trial.fs_setup == "ext4-nobarrier" else ()
    name = flags[0].value if flags else "full"
    facts = replace(trial.filesystem, durability_flags=flags, durability_class=name)
    return {"filesystem": facts}


def by_arm(loaded: LoadedRun) -> dict[tuple[str, str], JudgedClaim]:
    """Return the claims by their two arms."""
    return {(each.claim.arm, each.claim.than): each for each in judged_claims(loaded)}


def test_each_claim_is_judged_by_its_two_arms(tmp_path: Path) -> None:
    """What is faster is true, what is slower is wrong, and what loses data is unsafe."""
    judged = by_arm(claims_run(tmp_path))
    findings = {arms: each.finding for arms, each in judged.items()}
    assert findings["ext4", "ext4-relatime"] is ClaimWord.SAME
    assert findings["ext4-commit-60", "ext4"] is ClaimWord.TRUE
    assert findings["ext4", "ext4-discard"] is ClaimWord.WRONG
    assert findings["ext4-nobarrier", "ext4"] is ClaimWord.UNSAFE
    assert judged["ext4-nobarrier", "ext4"].durability == "no-barrier (instead of full)"
    assert judged["ext4", "ext4-relatime"].word == "same within 5 %"


def test_what_was_not_tried_has_its_reason(tmp_path: Path) -> None:
    """A module that is missing, another server, arms that the run did not have."""
    judged = by_arm(claims_run(tmp_path, "mariadb"))
    assert judged["zfs-8k", "zfs"].why == "zfs-8k: no module"
    assert judged["ext4-commit-delay", "ext4"].why == "it is about postgres"
    assert judged["xfs-logbsize", "xfs"].finding is ClaimWord.UNTRIED


def test_page_shows_the_claims(tmp_path: Path) -> None:
    """With the address of each and what it costs."""
    page = html_of(claims_run(tmp_path))
    assert "Switch off barriers" in page
    assert "a power loss may destroy anything" in page
    assert "https://docs.kernel.org/admin-guide/ext4.html" in page


def html_of(loaded: LoadedRun) -> str:
    """Return the page of the run."""
    return html(build([loaded]))


def test_arms_of_the_claims_are_in_the_plan(tmp_path: Path) -> None:
    """At least 25 sentences with a source, whose arms can be run at every scale."""
    study = studies.study("claims")
    assert len(study.claim) >= 25
    for scale in studies.SCALES:
        (tmp_path / "plan.toml").write_text(studies.plan_text(study, scale, {"postgres": [""]}))
        arms = {arm.label for arm in plan.load(tmp_path / "plan.toml", SHIPPED).fs_setups}
        for claim in study.claim:
            assert {claim.arm, claim.than} <= arms
            assert claim.source.startswith("https://")
