"""Complete runs in which something fails: server, recorder, clients, disk, a phase without end."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import plan
from tests.support.setups import mounted

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")


def test_server_killed_in_the_window_fails_the_trial(dbbench: Any, nothing_left: None) -> None:
    """After kill -9 of the postmaster the trial has failed and the run continues; exit status 1."""
    dbbench.plan(plan(blocks=2, measure="5s"))
    status, _ = dbbench.run_and("plan.toml", dbbench.in_window, dbbench.kill("postgres"))
    first, second = (dbbench.trials()[name] for name in sorted(dbbench.trials()))
    assert (status, first["status"], first["error"]["id"]) == (1, "failed", "E402")
    assert second["status"] != "failed"


def test_recorder_killed_in_the_window_makes_the_trial_suspect(
    dbbench: Any, nothing_left: None
) -> None:
    """kill -9 of sadc: what is missing is a gap and a warning, never silence."""
    dbbench.plan(plan(measure="5s"))
    dbbench.run_and("plan.toml", dbbench.in_window, dbbench.kill("sadc"))
    (trial,) = dbbench.trials().values()
    assert trial["status"] == "suspect"
    assert any(w["id"] == "W013" and "sa" in w["text"] for w in trial["warnings"])
    assert dbbench.series(trial)[-1]["cpu_user_pct"] == ""


def test_aborting_clients_fail_the_trial(dbbench: Any, nothing_left: None) -> None:
    """A script that divides by zero now and then aborts its clients: E601, not a slow good trial."""
    (dbbench.folder / "mine/workloads").mkdir(parents=True)
    workload = (
        'title = "aborts"\ndriver = "pgbench"\nengines = ["postgres"]\nscript = "abort.sql"\n'
        'dataset = { kind = "pgbench", scale = 1 }\n'
    )
    (dbbench.folder / "mine/workloads/aborts.toml").write_text(workload)
    (dbbench.folder / "mine/workloads/abort.sql").write_text(
        "\\set n random(0, 200)\nSELECT 1 / :n;\n"
    )
    trial = dbbench.trial(plan(workload={"name": "aborts"}), "--path", "mine", status=1)
    assert (trial["status"], trial["error"]["id"]) == ("failed", "E601")


def test_disk_full_while_restoring_fails_that_phase(dbbench: Any, loop_device: Any) -> None:
    """Another program fills the directory's filesystem after the start: E305 in restore, the
    directory as it was.
    """
    with mounted(loop_device) as at:
        (at / "target").mkdir()
        dbbench.plan(plan(device=directory(at / "target")))

        def fill(_pid: int) -> None:
            left = os.statvfs(at)
            with (at / "theirs").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - 16 * 2**20)

        status, _printed = dbbench.run_and(
            "plan.toml",
            lambda event: event["kind"] == "trial_begin",
            fill,
        )
        assert status == 1
        assert not list((at / "target").iterdir())
    (trial,) = dbbench.trials().values()
    assert (trial["error"]["id"], trial["error"]["phase"]) == ("E305", "restore")


def test_phase_that_hangs_ends_by_its_deadline(dbbench: Any, nothing_left: None) -> None:
    """A deadline of the plan ends a restore that takes longer, with its own error."""
    trial = dbbench.trial(plan(deadlines={"restore": "1ms"}), status=1)
    assert (trial["error"]["id"], trial["error"]["phase"]) == ("E901", "restore")


def directory(target: Path) -> dict[str, Any]:
    """A plan's device: an existing directory."""
    return {"kind": "dir", "paths": {"ext4": str(target)}}
