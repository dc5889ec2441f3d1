"""What a night can say that was disturbed, changed, or whose guard, clock or history is odd."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli
from dbbench.model import Setting, Status, TrialWarning
from dbbench.nightly import analysis, history, judging, tonight
from dbbench.nightly.night import Night, Ratio, night_of
from dbbench.nightly.tonight import NightOutcome
from dbbench.results import LoadedRun

KEY = "postgres pgbench-tpcb: xfs"
ITSELF = "postgres pgbench-tpcb: ext4 itself"
TITLE = "postgres pgbench-tpcb"
STEAL = TrialWarning("W012", "31 % CPU", 3, True)
WIDE = Ratio(1.05, 0.7, 1.6, 3)


def run_of(arms: tuple[str, ...] = ("ext4", "xfs", "ext4-guard")) -> LoadedRun:
    """Return a quiet run of three blocks."""
    shape = Shape(
        arms=arms,
        work=TPCB,
        measure_s=2,
        warmup_s=0,
        samplers=False,
        speeds=(("ext4-guard", 1.0),),
    )
    loaded: LoadedRun = synthetic.in_memory(shape)
    return loaded


def disturbed(loaded: LoadedRun, blocks: int) -> LoadedRun:
    """The run with suspect trials in so many blocks."""

    def fields(trial: Any) -> dict[str, Any]:
        if trial.block > blocks:
            return {}
        return {"status": Status.SUSPECT, "warnings": (STEAL,)}

    changed: LoadedRun = synthetic.with_trials(loaded, fields)
    return changed


def night(number: int, ratio: float, lo: float, hi: float, **more: Any) -> Night:
    """Return a night whose one series has that ratio and interval."""
    date = f"2026-01-{number:02}"
    ratios = {KEY: Ratio(ratio, lo, hi, 7)}
    return Night(date, f"r{number}", f"{date}T01:30:00.000Z", ratios=ratios, **more)


def test_more_than_half_of_a_pairs_trials_suspect_is_not_a_level() -> None:
    """Two of three blocks are too many, one is not. The warning that caused it is named."""
    spoilt = night_of(disturbed(run_of(), 2))
    assert spoilt.level_of(KEY) is None
    assert spoilt.ratios[ITSELF].disturbed
    (found, _) = judging.judge([], spoilt, None, 60)
    assert found.state == "inconclusive"
    assert found.notes[0] == "this night is no level: suspect trials 2 of 3 (W012)"
    assert analysis.overall(spoilt, [found], []) == "inconclusive"
    quiet = night_of(disturbed(run_of(), 1))
    assert quiet.level_of(KEY) is not None
    (found, _) = judging.judge([spoilt], quiet, None, 60)
    assert found.state == "learning"
    assert analysis.overall(quiet, [found], []) == "learning"


def test_a_second_run_that_excludes_nothing_leaves_the_night_open() -> None:
    """Against a level of 2.79, an interval of 0.85 to 2.90 neither confirms nor acquits."""
    tonight_ = night(2, 1.28, 1.2, 1.36)
    (found,) = judging.judge([night(1, 2.79, 2.7, 2.9)], tonight_, None, 60)
    assert found.state == "suspect"
    again = judging.confirm(found, Ratio(1.57, 0.85, 2.90, 7))
    assert again.state == "suspect"
    assert "excludes neither the level nor a change of −7.0\u202f%" in again.notes[-1]
    assert analysis.overall(tonight_, [again], []) == "inconclusive"
    # As it was then: every trial of the second run was disturbed, however narrow its interval is.
    suspect = Ratio(2.8, 2.75, 2.85, 7, trials=14, suspect=14, warnings=("W012",))
    assert judging.confirm(found, suspect).state == "suspect"


def test_a_disturbed_night_is_decided_by_its_second_run_alone() -> None:
    """Whatever side it was on itself."""
    past = [night(number, 0.9, 0.88, 0.92) for number in range(1, 4)]
    spoilt = dataclasses.replace(night(4, 0.95, 0.6, 1.5))
    ratio = dataclasses.replace(spoilt.ratios[KEY], trials=14, suspect=9)
    spoilt = dataclasses.replace(spoilt, ratios={KEY: ratio})
    (found,) = judging.judge(past, spoilt, None, 60)
    assert found.state == "suspect"
    assert judging.confirm(found, Ratio(0.7, 0.68, 0.72, 7)).state == "regression"
    assert judging.confirm(found, Ratio(1.2, 1.18, 1.22, 7)).state == "improvement"
    assert judging.confirm(found, Ratio(0.9, 0.89, 0.91, 7)).state == "ok"
    assert judging.confirm(found, Ratio(0.9, 0.7, 1.1, 7)).state == "suspect"


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (None, "no guard was measured"),
        (Ratio(1.0, None, None, 2), "the guard has no interval from 2 blocks"),
        (
            WIDE,
            "the guard's interval (−30.0..+60.0\u202f%) is wider than the alarm limit (±10.0 %)",
        ),
        (Ratio(1.0, 0.98, 1.02, 7, trials=4, suspect=3), "the guard has suspect trials 3 of 4"),
    ],
)
def test_a_guard_that_is_not_evidence_is_named(guard: Ratio | None, text: str) -> None:
    """Each reason is in the sentence."""
    guards = {} if guard is None else {TITLE: guard}
    last = night(1, 0.9, 0.88, 0.92, guards=guards)
    findings = judging.judge([], last, None, 60)
    caution = judging.guard_cautions(last, findings)[TITLE]
    assert caution.startswith(text)
    assert caution.endswith("it does not show that the host was quiet")


def test_a_narrow_guard_is_not_named() -> None:
    """Its interval is within the alarm limit."""
    last = night(1, 0.9, 0.88, 0.92, guards={TITLE: Ratio(1.01, 0.97, 1.05, 7)})
    findings = judging.judge([], last, None, 60)
    assert judging.guard_cautions(last, findings) == {}


def test_a_changed_plan_setup_or_setting_is_a_change() -> None:
    """An added key, another value, and a setup that is gone; the same run again is none."""
    loaded = run_of()
    before = night_of(loaded)
    assert night_of(loaded, before).changes == ()
    cells = []
    for cell in loaded.run.cells:
        if cell.arm == "xfs":
            setup = dataclasses.replace(cell.setup, mount=("noatime", "sync"))
            cell = dataclasses.replace(cell, setup=setup)
        cells.append(dataclasses.replace(cell, parameters={"clients": 8, "scale": 20}))
    plan = dataclasses.replace(loaded.run.plan, blocks=9)
    run = dataclasses.replace(loaded.run, cells=tuple(cells), plan=plan)

    def fields(trial: Any) -> dict[str, Any]:
        value = "off" if trial.fs_setup == "xfs" else "on"
        return {"settings": {**trial.settings, "synchronous_commit": Setting(value, "fs_setup")}}

    after = night_of(synthetic.with_trials(dataclasses.replace(loaded, run=run), fields), before)
    assert [change.text for change in after.changes] == [
        "plan blocks 3 → 9",
        "postgres pgbench-tpcb parameters.clients 4 → 8",
        "setup xfs mount not set → noatime sync",
        "postgres synchronous_commit not set → off (xfs), on (ext4)",
    ]
    smaller = night_of(run_of(("ext4", "ext4-guard")), before)
    assert "setup xfs mkfs.family xfs → not set" in [change.text for change in smaller.changes]


def test_a_failed_night_hides_no_changed_setting() -> None:
    """Without a trial that ended, the settings of the night before are kept."""
    loaded = run_of()
    before = night_of(loaded)
    nothing = dataclasses.replace(loaded, trials=())
    failed = night_of(nothing, before)
    assert failed.settings == before.settings
    assert failed.reasons == ("9 trials did not run",)
    assert judging.judge([before], failed, None, 60) == []


def test_another_reference_starts_another_level() -> None:
    """A ratio to xfs is not compared with one to ext4, although the series has the same name."""
    own = {"e w: ext4 itself": Ratio(5000.0, 4900.0, 5100.0, 7)}
    btrfs = {"e w: btrfs": Ratio(0.5, 0.49, 0.51, 7)}
    before = dataclasses.replace(night(1, 1.0, 0.9, 1.1), ratios=own | btrfs)
    own = {"e w: xfs itself": Ratio(4000.0, 3900.0, 4100.0, 7)}
    btrfs = {"e w: btrfs": Ratio(0.7, 0.69, 0.71, 7)}
    after = dataclasses.replace(night(2, 1.0, 0.9, 1.1), ratios=own | btrfs)
    assert {found.state for found in judging.judge([before], after, None, 60)} == {"learning"}


def test_a_night_without_an_answer_neither_ends_a_regression_nor_is_a_level() -> None:
    """The regression goes on over them, and a later level leaves them out."""
    states = ["regression", "inconclusive", "suspect", "regression"]
    nights = []
    for number, state in enumerate(states, 1):
        nights.append(night(number, 0.7, 0.69, 0.71, states={KEY: state}, levels={KEY: 0.9}))
    (only,) = analysis.regressions({"p": nights})
    assert (only.since, only.until) == ("2026-01-01", None)
    assert only.change == pytest.approx(0.778, abs=0.001)
    quiet = [night(number, 0.9, 0.88, 0.92) for number in range(10, 13)]
    (found,) = judging.judge([*nights[1:3], *quiet], night(20, 0.9, 0.88, 0.92), None, 60)
    assert (found.state, found.level) == ("ok", pytest.approx(0.9))


def test_a_clock_that_went_back_is_reported() -> None:
    """The night is not accepted."""
    loaded = run_of()
    before = dataclasses.replace(night_of(loaded), created="2036-01-01T01:30:00.000Z", run="ahead")
    after = night_of(loaded, before)
    assert not after.good
    assert after.reasons[0].startswith("the clock went back: ahead began at 2036-01-01")


def test_a_long_gap_is_one_line() -> None:
    """A clock that was wrong makes thousands of missing dates."""
    dates = ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]
    assert history.spans(dates) == ["from 2026-01-02 to 2026-01-04 (3 dates)", "on 2026-01-09"]
    assert history.spans([]) == []


def test_a_night_in_the_future_is_not_a_recent_night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise missing nights would never be noticed."""
    history.append(tmp_path, "p", dataclasses.replace(night(1, 1.0, 0.9, 1.1), run="p"))
    ahead = dataclasses.replace(night(2, 1.0, 0.9, 1.1), created="2136-01-01T01:30:00.000Z")
    history.append(tmp_path, "p", ahead)
    assert cli.run(["nightly", "status", "p", "--results", str(tmp_path)]) == 4
    assert "which is in the future" in capsys.readouterr().err


def test_every_format_says_what_is_not_evidence(tmp_path: Path) -> None:
    """The night, a disturbed series, and a guard that is too wide."""
    shape = Shape(
        arms=("ext4", "xfs", "ext4-guard"),
        work=TPCB,
        name="n1",
        speeds=(("ext4-guard", 1.0),),
        series=False,
    )
    folder = synthetic.write(tmp_path, shape)
    spoilt = dataclasses.replace(night_of(disturbed(run_of(), 3)), run=folder.name)
    findings = judging.judge([], spoilt, None, 60)
    outcome = NightOutcome(
        "p",
        analysis.overall(spoilt, findings, []),
        spoilt,
        findings,
        [],
        [],
        False,
        {TITLE: "the guard is too wide"},
    )
    files: dict[str, str | None] = {
        form: str(tmp_path / form) for form in ("junit", "markdown", "openmetrics")
    }
    tonight.export(outcome, tmp_path, files)
    junit = (tmp_path / "junit").read_text()
    assert '<skipped message="inconclusive: ' in junit
    assert "this night is no level: suspect trials 6 of 6 (W012)" in junit
    assert "the guard is too wide" in junit
    markdown = (tmp_path / "markdown").read_text()
    assert "> [!WARNING]\n> inconclusive" in markdown
    assert "this night is no level" in markdown and "the guard is too wide" in markdown
    metrics = (tmp_path / "openmetrics").read_text()
    assert 'dbbench_undecided{engine="postgres",workload="pgbench-tpcb",fs_setup="xfs"' in metrics
    document = outcome.document
    assert document["findings"][1]["state"] == "inconclusive"
    assert document["night"]["ratios"][KEY]["suspect"] == 6
    assert document["guard_cautions"] == {TITLE: "the guard is too wide"}
