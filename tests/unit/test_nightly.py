"""Nights: what is kept, what is called a regression, who is notified, and what is removed."""

import dataclasses
import datetime
import math
import random
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import results
from dbbench.errors import ResultDamaged, RunLocked
from dbbench.model import Arm, DeviceSpec
from dbbench.nightly import analysis, history, judging
from dbbench.nightly.judging import NightFinding
from dbbench.nightly.night import Accepted, Change, Night, Ratio, add_guard, document_of, night_of
from tests.support.nights import KEY, night, nights


def judged(
    before: list[Night],
    tonight: Night,
    accepted: Accepted | None = None,
) -> NightFinding:
    """The one finding."""
    (found,) = judging.judge(before, tonight, accepted, 60)
    return found


def test_a_night_far_off_is_suspect_at_once_and_confirmed_by_the_second_run() -> None:
    """The second run decides between regression and chance; without its interval it stays suspect.
    A night within the scatter of those before is ok. More is worse of a duration; better is an
    improvement.
    """
    assert judged(nights(20), night(20, 0.905)).state == "ok"
    found = judged(nights(20), night(20, 0.72))
    assert (found.state, found.worse, found.since) == ("suspect", True, "2026-01-21")
    assert judging.confirm(found, Ratio(0.73, 0.71, 0.75, 7)).state == "regression"
    assert judging.confirm(found, Ratio(0.9, 0.88, 0.92, 7)).state == "ok"
    assert judging.confirm(found, None).state == "suspect"
    assert judging.confirm(found, Ratio(0.7, None, None, 2)).state == "suspect"
    before = [night(n, 0.9 + n / 5000, better="lower") for n in range(20)]
    found = judged(before, night(20, 1.2, better="lower"))
    assert judging.confirm(found, Ratio(1.2, 1.18, 1.22, 7, "lower")).state == "regression"
    found = judged(before, night(20, 0.7, better="lower"))
    assert judging.confirm(found, Ratio(0.7, 0.68, 0.72, 7, "lower")).state == "improvement"


def test_a_small_step_is_found_by_its_nights_together() -> None:
    """−6 % at 2 % scatter is within four deviations of a night; the change point has its date, ±1
    night.
    """
    before = nights(40, 0.9, 0.018)
    stepped = [dataclasses.replace(night(40 + n, 0.846)) for n in range(6)]
    found = judged([*before, *stepped[:-1]], stepped[-1])
    assert found.state == "suspect"
    assert found.since in ("2026-02-09", "2026-02-10", "2026-02-11")


def test_a_regression_stays_one_until_it_is_back_or_accepted() -> None:
    """Its nights do not become the level, however many; no second run is needed; back is ok. Nights
    before an accepted run do not count; its own ratio does until there are nights enough.
    """
    before = [*nights(20), *(night(20 + n, 0.72, state="regression") for n in range(30))]
    found = judged(before, night(50, 0.72))
    assert (found.state, found.since) == ("regression", "2026-01-21")
    assert judged(before, night(50, 0.9)).state == "ok"
    before = [*nights(20), night(20, 0.72, state="regression")]
    accepted = Accepted("r20", before[-1].created, "why", "", before[-1].ratios)
    assert judged(before, night(21, 0.72), accepted).state == "ok"
    assert judged(before, night(21, 0.9), accepted).state == "suspect"


def test_few_nights_judge_by_their_own_intervals() -> None:
    """The first night learns; a second must leave the first by more than both intervals, and so
    must its second run.
    """
    assert judged([], night(0, 0.9)).state == "learning"
    assert judged(nights(1), night(1, 0.88)).state == "ok"
    found = judged(nights(1), night(1, 0.8))
    assert found.state == "suspect"
    assert judging.confirm(found, Ratio(0.8, 0.78, 0.82, 7)).state == "regression"
    assert judging.confirm(found, Ratio(0.89, 0.88, 0.9, 7)).state == "ok"
    assert judging.confirm(found, Ratio(0.87, 0.85, 0.89, 7)).state == "suspect"
    few = dataclasses.replace(night(1, 0.5), ratios={KEY: Ratio(0.5, None, None, 2)})
    assert judged(nights(3), few).state == "learning"


@pytest.mark.parametrize("count", [5, 8])
def test_few_nights_that_scatter_by_chance_do_not_raise_alarms(count: int) -> None:
    """Their scatter is underestimated by chance: the limit allows for it. About 1 in 1000 exceeds."""
    draw = random.Random(count)
    exceeds = 0
    for _ in range(80):
        before = [night(n, math.exp(draw.gauss(0, 0.03))) for n in range(count)]
        found = judged(before, night(count, math.exp(draw.gauss(0, 0.03))))
        assert found.limit is not None
        exceeds += abs(math.log(found.change or 1)) > found.limit
    assert exceeds <= 1


def test_an_odd_night_does_not_hide_the_next_regressions() -> None:
    """One of thirty nights was half as fast; the limit follows from the others."""
    before = [*nights(29), night(29, 0.45)]
    assert judged(before, night(30, 0.8)).state == "suspect"


def test_a_night_that_may_hide_a_regression_is_not_ok() -> None:
    """Fourteen per cent are within the limit of nights of three noisy blocks: a second run decides."""
    before = nights(8, 0.9, 0.035)
    wide = dataclasses.replace(night(8, 0.774), ratios={KEY: Ratio(0.774, 0.67, 0.89, 3)})
    found = judged(before, wide)
    assert (found.state, found.doubtful) == ("suspect", True)
    assert judging.confirm(found, Ratio(0.9, 0.86, 0.94, 7)).state == "ok"
    open_ = judging.confirm(found, Ratio(0.8, 0.76, 0.84, 7))
    assert open_.state == "suspect"
    assert "differs from the level by less than the alarm limit" in open_.notes[-1]
    assert judging.confirm(found, Ratio(0.6, 0.58, 0.62, 7)).state == "regression"


def test_overall_names_the_gravest() -> None:
    """A regression comes first, then a failure, then a night without an answer. A missing night has
    no answer, and neither has a night whose guard moved.
    """
    ok = NightFinding(KEY, "ok", 1.0)
    bad = NightFinding(KEY, "regression", 1.0)
    failed = dataclasses.replace(night(1, 1.0), failed=1, good=False)
    assert analysis.overall(failed, [bad], []) == "regression"
    assert analysis.overall(failed, [ok], []) == "failed"
    assert analysis.overall(night(1, 1.0), [ok], ["2026-01-01"]) == "inconclusive"
    assert analysis.overall(night(1, 1.0), [ok], []) == "ok"
    found = judged(nights(20), moved := night(20, 0.5, good=False))
    assert (found.state, analysis.overall(moved, [found], [])) == ("suspect", "inconclusive")


def test_changes_alone_are_reported(tmp_path: Path) -> None:
    """ok, ok, regression, regression, ok: two changes."""
    (tmp_path / "nightly").mkdir()
    states = ["ok", "ok", "regression", "regression", "ok"]
    told = [
        analysis.differs(tmp_path, "p", word, [NightFinding(KEY, word, 1.0)]) for word in states
    ]
    assert told == [False, False, True, False, True]


def test_nights_are_kept_line_by_line(tmp_path: Path) -> None:
    """Written, read back, replaced where the same run is judged again; a damaged line is named.
    Dates between two nights are missing.
    """
    for one in nights(3):
        history.append(tmp_path, "p", one)
    again = dataclasses.replace(nights(3)[2], confirmations={KEY: Ratio(1.0, None, None, 1)})
    history.append(tmp_path, "p", again)
    assert history.all_nights(tmp_path, "p") == [*nights(3)[:2], again]
    (tmp_path / "nightly/p.jsonl").write_text("{}\nnot json\n")
    with pytest.raises(ResultDamaged, match=r"p\.jsonl:1: night: Field required$"):
        history.all_nights(tmp_path, "p")
    known = [night(0, 1.0), night(3, 1.0)]
    assert history.missing_dates(known) == ["2026-01-02", "2026-01-03"]
    again = dataclasses.replace(known[1], run="again")
    assert judging.series_of(KEY, [*known, again])[0][-2:] == ["2026-01-04", "2026-01-04"]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    """The second says who holds it; another plan is free."""
    one = history.one_at_a_time
    with (
        one(tmp_path, "p"),
        one(tmp_path, "q"),
        pytest.raises(RunLocked, match="process"),
        one(tmp_path, "p"),
    ):
        pass


def test_the_guard_is_the_reference_again(tmp_path: Path) -> None:
    """Added once; not where each arm has a directory of its own. If it differs, the night is bad;
    ratios are of the other arms, and the reference has its own figure.
    """
    usual = results.load_spec(synthetic.write(tmp_path, Shape())).plan
    once = add_guard(usual)
    assert once.fs_setups[-1] == Arm("ext4", "ext4-guard")
    assert add_guard(once) == once
    own = dataclasses.replace(usual, device=DeviceSpec("dir", paths={"ext4": "/a"}))
    assert add_guard(own) == own
    slow = Shape(arms=("ext4", "xfs", "ext4-guard"), work=TPCB, blocks=5, noise=0.004)
    found = night_of(synthetic.loaded(tmp_path / "slow", slow))
    assert not found.good and "guard" in found.reasons[0]  # the fixture's unknown arms run at 0.9
    assert set(found.ratios) == {KEY, "postgres pgbench-tpcb: ext4 itself"}
    assert found.facts["kernel"] == "6.12.9"


def test_what_is_past_its_time_goes_and_the_run_stays_whole(tmp_path: Path) -> None:
    """Raw output after 30 days, seconds after a year, figures never; sums hold for what is left."""
    folder = synthetic.write(tmp_path, Shape(work=TPCB, blocks=1))
    for trial in (folder / "trials").iterdir():
        (trial / "raw" / "x.log").write_text("said")
    known = [Night("2026-01-01", folder.name, "")]
    assert history.prune(tmp_path, known, datetime.date(2026, 1, 20)) == []
    assert len(history.prune(tmp_path, known, datetime.date(2026, 3, 1))) == 1
    loaded = results.load_run(folder)
    assert loaded.series(loaded.trials[0]) is not None
    assert not list(folder.glob("trials/*/raw"))
    assert len(history.prune(tmp_path, known, datetime.date(2027, 3, 1))) == 1
    loaded = results.load_run(folder)
    assert loaded.series(loaded.trials[0]) is None
    assert loaded.trials[0].summary["tps"] is not None
    assert history.prune(tmp_path, known, datetime.date(2028, 3, 1)) == []


def test_acceptances_are_kept_with_their_reasons(tmp_path: Path) -> None:
    """The newest counts; none is overwritten."""
    folder = synthetic.write(tmp_path, Shape(work=TPCB))
    loaded = results.load_run(folder)
    history.accept(tmp_path, loaded, "first")
    history.accept(tmp_path, loaded, "second")
    assert [entry.reason for entry in history.acceptances(tmp_path)["demo"]] == ["first", "second"]
    newest = history.acceptance(tmp_path, "demo")
    assert newest is not None and newest.reason == "second" and KEY in newest.ratios


def test_regressions_are_listed_from_the_night_on_which_they_began(tmp_path: Path) -> None:
    """A regression has an end when a later night is good. Nights without an answer neither end nor
    begin one.
    """
    states = ["ok", "regression", "regression", "ok", "regression"]
    for number, state in enumerate(states):
        history.append(tmp_path, "p", night(number, 0.8, state=state))
    history.append(tmp_path, "p", dataclasses.replace(night(5, 0.8), states={}))
    still, ended = analysis.regressions(history.every_plan(tmp_path, []))
    assert (ended.since, ended.until, ended.run) == ("2026-01-02", "2026-01-04", "r1")
    assert (still.since, still.until, still.series) == ("2026-01-05", None, KEY)
    assert history.every_plan(tmp_path / "none", []) == {}
    assert (
        analysis.regressions(
            {"p": [dataclasses.replace(night(0, 0.8, state="regression"), ratios={})]}
        )
        == []
    )


def test_a_nights_line_also_has_its_changes_in_words(tmp_path: Path) -> None:
    """Names and values may have spaces. A change on the night of a step is shown with the step."""
    tonight = dataclasses.replace(night(20, 0.7), changes=(Change("kernel", "6.1", "6.2"),))
    assert "the same night: kernel 6.1 → 6.2" in judged(nights(20), tonight).notes
    changes = (Change("host", "db1", "db 2"), Change("postgres server", "15.1 (Debian 12)", "15.2"))
    facts = {"host": "db 2", "postgres": "x", "postgres server": "15.2"}
    before = dataclasses.replace(night(1, 0.9), facts=facts, changes=changes)
    document = document_of(before)
    assert document["breaks"] == ["host db1 → db 2", "postgres server 15.1 (Debian 12) → 15.2"]
    history.append(tmp_path, "p", before)
    assert history.all_nights(tmp_path, "p") == [before]
