"""`dbbench nightly` from the first night to a regression and its acceptance."""

import dataclasses
import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench import cli, results
from dbbench.commands.nightly import command as nightly_commands
from dbbench.commands.options import Options
from dbbench.errors import Terminated
from dbbench.nightly import history
from dbbench.plan.request import PlanRequest
from dbbench.results import LoadedRun
from tests.support.nights import FIRST, KEY, night
from tests.support.plans import plan


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


@pytest.mark.parametrize(("name", "inconclusive"), [("nightly", {"4"}), ("nightly-check", set())])
def test_stopping_a_unit_does_not_leave_it_failed(name: str, inconclusive: set[str]) -> None:
    """A stopped command ends with 143, or by the signal while Python starts. An inconclusive night
    ends with 4. A failure means none of these.
    """
    folder = Path(__file__).parents[2] / "docs/systemd"
    text = (folder / f"dbbench-{name}@.service").read_text()
    (statuses,) = re.findall("^SuccessExitStatus=(.*)$", text, re.M)
    stopped = {str(Terminated("stopped").exit_code), "SIGTERM"}
    assert set(statuses.split()) == stopped | inconclusive


def test_control_groups_of_servers_are_below_the_nightly_unit() -> None:
    """A MemoryMax= of the unit also holds for them."""
    text = (Path(__file__).parents[2] / "docs/systemd/dbbench-nightly@.service").read_text()
    assert re.findall("^Delegate=(.*)$", text, re.M) == ["yes"]
