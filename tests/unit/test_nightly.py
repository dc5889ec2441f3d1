"""Nights: what is kept, what is called a regression, who is notified, and what is removed."""

import dataclasses
import datetime
import json
import math
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.commands.nightly import command as nightly_commands
from dbbench.commands.options import Options
from dbbench.errors import ResultDamaged, RunLocked, Terminated
from dbbench.model import Arm, DeviceSpec
from dbbench.nightly import analysis, history, judging
from dbbench.nightly.judging import NightFinding
from dbbench.nightly.night import (
    Accepted,
    Change,
    Night,
    Ratio,
    add_guard,
    document_of,
    local_date,
    night_of,
)
from dbbench.plan.request import PlanRequest
from dbbench.results import LoadedRun
from tests.support.plans import plan

KEY = "postgres pgbench-tpcb: xfs"
FIRST = datetime.date(2026, 1, 1)


def night(
    number: int,
    ratio: float,
    *,
    state: str = "ok",
    good: bool = True,
    better: str = "higher",
) -> Night:
    """The night of that number, with an interval of ±2 %."""
    date = (FIRST + datetime.timedelta(number)).isoformat()
    ratios = {KEY: Ratio(ratio, ratio * 0.98, ratio * 1.02, 7, better)}
    return Night(
        date,
        f"r{number}",
        f"{date}T01:30:00.000Z",
        good,
        (),
        0,
        ratios,
        states={KEY: state},
    )


def nights(count: int, level: float = 0.9, sd: float = 0.01) -> list[Night]:
    """So many quiet nights."""
    draw = random.Random(5)
    return [night(n, level * math.exp(draw.gauss(0, sd))) for n in range(count)]


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
    with pytest.raises(ResultDamaged, match=r"p\.jsonl:1"):
        history.all_nights(tmp_path, "p")
    known = [night(0, 1.0), night(3, 1.0)]
    assert history.missing_dates(known) == ["2026-01-02", "2026-01-03"]
    again = dataclasses.replace(known[1], run="again")
    assert judging.series_of(KEY, [*known, again])[0][-2:] == ["2026-01-04", "2026-01-04"]


@pytest.fixture
def zone(environ: dict[str, str]) -> Callable[[str], ZoneInfo]:
    """A function that sets the local time zone for the test."""

    def setting(name: str) -> ZoneInfo:
        environ["TZ"] = name
        time.tzset()
        return ZoneInfo(name)

    return setting


@pytest.mark.parametrize("clock", ["00:15", "01:30", "02:30", "23:45"])
@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Asia/Kolkata",
        "UTC",
    ],
)
def test_no_night_is_missing_when_the_clock_changes(
    zone: Callable[[str], ZoneInfo],
    name: str,
    clock: str,
) -> None:
    """A year of nights by the local clock, with both changes of it (none in India): each has its
    own date. A night that is left out, one after the other, is the only missing one.
    """
    local = zone(name)
    first = datetime.date(2026, 3, 1)
    at = datetime.time.fromisoformat(clock)
    known = []
    for number in range(280):
        day = first + datetime.timedelta(number)
        # a time that is left out: the next
        began = datetime.datetime.combine(day, at, local).astimezone(datetime.UTC)
        known.append(
            Night(local_date(began.isoformat()).isoformat(), f"r{number}", began.isoformat())
        )
    assert len({one.night for one in known}) == len(known)
    assert history.missing_dates(known) == []
    for left_out in range(1, 279, 3):
        shorter = [*known[:left_out], *known[left_out + 1 :]]
        assert history.missing_dates(shorter) == [known[left_out].night]
        dates, _ = judging.series_of(KEY, shorter[left_out - 1 : left_out + 1])
        assert dates == [one.night for one in known[left_out - 1 : left_out + 2]]


def test_the_night_of_a_run_in_another_time_zone(
    zone: Callable[[str], ZoneInfo], tmp_path: Path
) -> None:
    """01:30 in summer is the day before in UTC; west of Greenwich, the evening is the day after. A
    container in UTC that is started at 01:30 in Central Europe, at the end of summer time, has
    no missing night; nor has a delayed start.
    """
    zone("UTC")
    starts = [
        "2026-10-23T23:30:04Z",
        "2026-10-24T23:30:04Z",
        "2026-10-26T00:30:04Z",
        "2026-10-27T00:30:04Z",
    ]
    nights = [Night(local_date(start).isoformat(), start, start) for start in starts]
    assert [one.night for one in nights] == ["2026-10-23", "2026-10-24", "2026-10-26", "2026-10-27"]
    assert history.missing_dates(nights) == []
    late = [
        Night("2026-11-01", "a", "2026-11-01T23:50:00Z"),
        Night("2026-11-03", "b", "2026-11-03T00:10:00Z"),
    ]
    assert history.missing_dates(late) == []
    loaded = synthetic.loaded(tmp_path, Shape())
    for name, created, expected in (
        ("Europe/Berlin", "2026-10-24T23:30:04.000Z", "2026-10-25"),
        ("Europe/Berlin", "2026-10-26T00:30:04.000Z", "2026-10-26"),
        ("America/New_York", "2026-10-26T02:30:04.000Z", "2026-10-25"),
    ):
        zone(name)
        run = dataclasses.replace(loaded, run=dataclasses.replace(loaded.run, created=created))
        assert night_of(run).night == expected


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


class Machine:
    """Takes the place of the runner: a night is a made-up run of the asked arms and blocks."""

    def __init__(self) -> None:
        self.day = 0
        self.speeds = {"ext4-guard": 1.0}
        self.driven: list[tuple[str, list[str], int]] = []

    def __call__(self, wanted: PlanRequest, root: Path, name: str, *_: object) -> LoadedRun:
        self.day += name.endswith("-night")
        arms = list(dict.fromkeys(cell.arm for cell in wanted.expanded.cells))
        self.driven.append((name, arms, wanted.plan.blocks))
        shape = Shape(
            name=f"{name}-{self.day}",
            arms=arms,
            work=TPCB,
            blocks=wanted.plan.blocks,
            noise=0.01,
            speeds=tuple(self.speeds.items()),
        )
        folder = synthetic.write(root, shape)
        date = FIRST + datetime.timedelta(self.day)
        spec = dataclasses.replace(
            results.load_spec(folder),
            created=f"{date}T01:30:00.000Z",
            plan=wanted.plan,
        )
        results.save_spec(folder, spec)
        return results.load_run(folder)


@pytest.mark.starts_processes
def test_a_regression_from_its_night_to_its_acceptance(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Suspect, a second run of that arm alone, exit 3, reported once; still there the next night
    without a second run; accepted, and the night after is ok.
    """
    Path("p.toml").write_text(plan(["ext4", "xfs", "btrfs"], name="p", blocks=5))
    monkeypatch.setattr("dbbench.nightly.tonight.run_to_end", machine := Machine())
    notify = f"sh -c 'echo $DBBENCH_STATE >> {here}/told'"
    command = ["nightly", "run", "p.toml", "--notify", notify, "--junit", "junit.xml", "--json"]

    def told() -> list[str]:
        return Path("told").read_text().split()

    assert [cli.run(command) for _ in range(3)] == [0, 0, 0]
    machine.speeds["xfs"] = 0.75
    capsys.readouterr()
    assert cli.run(command) == 3
    found = {f["key"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert (found[KEY]["state"], found[KEY]["since"]) == ("regression", "2026-01-05")
    assert machine.driven[-1] == ("p-confirm", ["ext4", "xfs", "ext4-guard"], 7)
    assert "<failure" in Path("junit.xml").read_text()
    assert cli.run(command) == 3
    assert len(machine.driven) == 6 and told() == ["regression"]
    assert cli.run(["nightly", "accept", "p-night-5", "--reason", "checksums are on now"]) == 0
    assert cli.run(command) == 0
    assert told() == ["regression", "ok"]


@pytest.mark.starts_processes
def test_cron_has_nothing_to_mail_when_all_is_well(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With -q a quiet night prints nothing, a regression does, and JSON is always printed."""
    Path("p.toml").write_text(plan(["ext4", "xfs"], name="p", blocks=5))
    monkeypatch.setattr("dbbench.nightly.tonight.run_to_end", machine := Machine())
    command = ["-q", "nightly", "run", "p.toml"]
    assert [cli.run(command) for _ in range(2)] == [0, 0]
    assert capsys.readouterr() == ("", "")
    machine.speeds["xfs"] = 0.75
    assert cli.run(command) == 3
    assert "confirmed by the second run" in capsys.readouterr().out
    assert cli.run([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["state"] == "regression"


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


def test_status_has_the_newest_nights_and_the_regressions(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    printed: Any,
) -> None:
    """A table or a document. For one plan an old night, or none, is an error; for all plans it is
    not.
    """
    status = ["nightly", "status", "--results", str(tmp_path)]
    assert "no nights" in printed(*status)
    (tmp_path / "p.toml").write_text(plan(name="p"))
    assert cli.run([*status, str(tmp_path / "p.toml")]) == 4
    history.append(tmp_path, "p", night(1, 0.8, state="regression"))
    history.append(tmp_path, "q", night(2, 0.8))
    assert "2026-01-02  p" in printed(*status)
    document = json.loads(printed(*status, "--json"))
    assert [(row["plan"], row["run"]) for row in document["nights"]] == [("p", "r1"), ("q", "r2")]
    assert [(one["plan"], one["since"]) for one in document["regressions"]] == [("p", "2026-01-02")]
    for one in ("p", str(tmp_path / "p.toml")):
        assert cli.run([*status, one]) == 4
        out, err = capsys.readouterr()
        assert (
            "E806" in err and "hours old (r1)" in err and "2026-01-02  p" in out and "r2" not in out
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


@pytest.mark.parametrize(
    "unit",
    sorted((Path(__file__).parents[2] / "docs/systemd").glob("*.service")),
    ids=lambda p: p.name,
)
def test_units_start_what_make_install_links(unit: Path) -> None:
    """The program is the link of `make install`, and its arguments are those of a command."""
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    program, group, name, *words = line.split()
    makefile = (unit.parents[2] / "Makefile").read_text()
    (prefix,) = re.findall(r"^PREFIX  \?= (.*)$", makefile, re.M)
    assert program == f"{prefix}/bin/dbbench" and "LINK    := $(PREFIX)/bin/dbbench" in makefile
    assert group == "nightly"
    nightly_commands.commands[name].make_context(name, words, obj=Options())


def test_stopping_the_nightly_unit_does_not_leave_it_failed() -> None:
    """A stopped night ends with 143 and an inconclusive one with 4; a failure means neither."""
    folder = Path(__file__).parents[2] / "docs/systemd"
    text = (folder / "dbbench-nightly@.service").read_text()
    (statuses,) = re.findall("^SuccessExitStatus=(.*)$", text, re.M)
    assert {int(word) for word in statuses.split()} == {4, Terminated("stopped").exit_code}
    assert re.findall("^Delegate=(.*)$", text, re.M) == ["yes"]
