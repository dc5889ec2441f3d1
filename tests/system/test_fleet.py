"""Fleets of real workers on this machine, of which processes are killed. The hosts share its disk,
so their trials take turns.
"""

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench.fleet import security
from tests.support.fleet_system import (
    Daemon,
    ending,
    free_address,
    kill,
    matching,
    measuring,
    still_running,
    trials_of,
)
from tests.support.plans import plan

pytest.importorskip("distributed")
pytestmark = pytest.mark.needs(
    "root",
    "fs:ext4",
    "mkfs.ext4",
    "fs:xfs",
    "mkfs.xfs",
    "engine:postgres",
    "sadf",
    "openssl",
)

# The windows are longer than a machine stands still: what is killed in one must still be in it.
PLAN = plan(["ext4", "xfs"], blocks=3, measure="6s", device={"size": "320MiB"})
RUN = ("fleet", "run", "plan.toml", "--spread", "--name", "r", "--progress", "plain")


def planned(dbbench: Any) -> list[str]:
    """Return the ids of the plan's trials, in order."""
    plan = json.loads(dbbench("plan", "plan.toml", "--json").stdout)
    return [trial["id"] for trial in plan["trials"]]


def must_be_whole(dbbench: Any, results: Path) -> None:
    """Check that the results are those of one machine, each block from one host, one trial at a
    time.
    """
    run = json.loads((results / "r/run.json").read_text())
    assert [spec["id"] for spec in run["order"]] == planned(dbbench)
    trials = trials_of(results / "r")
    assert sorted(trials) == sorted(planned(dbbench))
    assert {trial["status"] for trial in trials.values()} <= {"ok", "suspect"}
    for block in range(1, 4):
        of_block = [trial for trial in trials.values() if trial["block"] == block]
        assert len({trial["host"] for trial in of_block}) == 1
        of_block.sort(key=lambda trial: str(trial["phases"][0]["start"]))
        assert [t["position"] for t in of_block] == sorted(t["position"] for t in of_block)
    spans = sorted((t["phases"][0]["start"], t["phases"][-1]["end"]) for t in trials.values())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    hosts = run["hosts"]
    assert hosts.keys() == {trial["host"] for trial in trials.values()}
    assert {facts["kernel"] for facts in hosts.values()} == {os.uname().release}


@dataclass
class Killed:
    """A finished fleet of which processes were killed in the windows of trials."""

    dbbench: Any
    results: Path
    status: int
    log: str
    kept: set[str]  # ids of the trials that were collected before the coordinator was killed


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, dbbench_in: Any) -> Iterator[Killed]:
    """Of this fleet a worker was killed in a window, and later the coordinator."""
    dbbench = dbbench_in(tmp_path_factory.mktemp("fleet"))
    dbbench.plan(PLAN)
    results = dbbench.folder / "results"
    with ending(dbbench.folder):
        first = Daemon(dbbench, "first", *RUN, "--local", "2")
        (host, *_) = first.until(lambda: measuring(results))
        kill(matching("fleet worker", f"--name {host.name} ", str(results)))
        first.until(lambda: trials_of(results / "r"))
        first.until(lambda: measuring(results))
        first.kill()
        kept = set(trials_of(results / "r"))
        assert still_running(lambda: matching(str(results))) == []
        second = Daemon(dbbench, "second", *RUN, "--local", "2")
        status = second.wait()
        yield Killed(dbbench, results, status, first.printed() + second.printed(), kept)


def test_no_trial_is_lost_doubled_or_moved(killed: Killed) -> None:
    """The block of a killed worker runs on another host as a whole, and what was collected before
    the coordinator was killed is not run again.
    """
    assert killed.status == 0, killed.log
    must_be_whole(killed.dbbench, killed.results)
    assert killed.kept and f"{len(killed.kept)} already collected" in killed.log


def test_same_command_again_runs_nothing(killed: Killed) -> None:
    """A finished fleet is reported as such; a plain `run` never resumes its run."""
    again = killed.dbbench(*RUN, "--local", "2")
    assert "already finished" in again.stderr
    status = json.loads(killed.dbbench("fleet", "status", "--json").stdout)
    assert (status["finished"], status["collected"]) == (True, 6)
    assert "E004" in killed.dbbench("run", "plan.toml", "--name", "r", status=2).stderr


def test_nothing_is_left_of_a_finished_fleet(killed: Killed) -> None:
    """No process, image, key, or copy of results of a host of `--local`."""
    assert still_running(lambda: matching(str(killed.results))) == []
    left = {path.name for path in (killed.results / ".fleet/r").iterdir()}
    logs = {"local-1.log", "local-2.log"}
    assert left == {"fleet.json", ".lock", *logs}
    assert not security.folder_of_fleet(killed.results / ".fleet/r").exists()


@pytest.fixture
def daemons(dbbench: Any) -> Iterator[tuple[str, list[str]]]:
    """The address of a scheduler that is to be started, and the words of its command; afterwards
    all that was started has ended.
    """
    dbbench.plan(PLAN)
    address = free_address()
    certs = str(dbbench.folder / "certs")
    with ending(dbbench.folder):
        yield address, ["fleet", "scheduler", "--listen", address, "--certs", certs]


def worker(dbbench: Any, address: str, name: str) -> Daemon:
    """Start a worker with a results folder of its own."""
    folder = str(dbbench.folder / "hosts" / name)
    certs = str(dbbench.folder / "certs")
    words = ("fleet", "worker", address, "--name", name, "--results", folder, "--certs", certs)
    return Daemon(dbbench, name, *words)


def test_killed_scheduler_is_replaced(dbbench: Any, daemons: tuple[str, list[str]]) -> None:
    """Workers stop what they run and connect to the next scheduler; the coordinator submits again
    what it has not collected.
    """
    address, words = daemons
    scheduler = Daemon(dbbench, "scheduler", *words)
    scheduler.until(lambda: (dbbench.folder / "certs").is_dir())
    for name in ("a", "b"):
        worker(dbbench, address, name)
    certs = str(dbbench.folder / "certs")
    there = ("--scheduler", address, "--hosts", "2", "--certs", certs)
    fleet = Daemon(dbbench, "fleet", *RUN, *there)
    results = dbbench.folder / "results"
    fleet.until(lambda: trials_of(results / "r"))
    kept = {path: path.stat().st_mtime_ns for path in (results / "r/trials").glob("[!.]*")}
    fleet.until(lambda: measuring(dbbench.folder))
    scheduler.kill()
    Daemon(dbbench, "next", *words)
    assert fleet.wait() == 0, fleet.printed()
    must_be_whole(dbbench, results)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_status_and_stop_use_the_scheduler(dbbench: Any) -> None:
    """`status` names the hosts and the trial of the one that has the disk; `stop` ends the trials
    and the coordinator, and the same command resumes.
    """
    dbbench.plan(PLAN)
    results = dbbench.folder / "results"
    with ending(dbbench.folder):
        fleet = Daemon(dbbench, "fleet", *RUN, "--local", "2")
        fleet.until(lambda: measuring(results))
        status = json.loads(dbbench("fleet", "status", "--json").stdout)
        assert [row["host"] for row in status["hosts"]] == ["local-1", "local-2"]
        assert sorted(bool(row["trial"]) for row in status["hosts"]) == [False, True]
        assert any("waiting for the disk" in row["note"] for row in status["hosts"])
        stopped = dbbench("fleet", "stop", "r").stdout
        assert "local-1: stopped" in stopped and "local-2: stopped" in stopped
        assert fleet.wait() == 143, fleet.printed()
        assert "Resume it with:  dbbench fleet run plan.toml" in fleet.printed()
        assert still_running(lambda: matching(str(results))) == []
        # As after a stopped `run`, the image is kept until the run is resumed or cleaned.
        dbbench("clean")
        assert list(results.glob(".fleet/r/hosts/*/r/.dbbench*.img")) == []


def test_scheduler_writes_nothing_where_others_may(
    dbbench: Any, daemons: tuple[str, list[str]]
) -> None:
    """Another account has made the folder that dask would use below /tmp, with links to a file of
    root's.
    """
    tmp = dbbench.folder / "tmp"
    planted = tmp / "dask-scratch-space"
    planted.mkdir(parents=True)
    tmp.chmod(0o1777)
    victim = dbbench.folder / "shadow"
    victim.write_text("root:*:\n")
    for name in ("global.lock", "purge.lock"):
        (planted / name).symlink_to(victim)
    before = sorted(planted.iterdir())
    address, words = daemons
    scheduler = Daemon(dbbench, "scheduler", *words, TMPDIR=str(tmp))
    scheduler.until(lambda: (dbbench.folder / "certs").is_dir())
    for name in ("a", "b"):
        worker(dbbench, address, name)
    certs = str(dbbench.folder / "certs")
    there = ("--scheduler", address, "--hosts", "2", "--certs", certs)
    fleet = Daemon(dbbench, "fleet", *RUN, *there, TMPDIR=str(tmp))
    fleet.until(lambda: measuring(dbbench.folder))
    fleet.child.terminate()
    assert fleet.wait() == 143
    assert victim.read_text() == "root:*:\n"
    assert sorted(planted.iterdir()) == before and list(tmp.iterdir()) == [planted]


def test_worker_of_dask_is_a_host_if_it_uses_tls(
    dbbench: Any, daemons: tuple[str, list[str]]
) -> None:
    """`dask worker --preload dbbench.fleet.preload` has its name and folder from the environment."""
    address, words = daemons
    scheduler = Daemon(dbbench, "scheduler", *words)
    scheduler.until(lambda: (dbbench.folder / "certs").is_dir())
    certs = dbbench.folder / "certs"
    tls = ["--tls-ca-file", str(certs / security.CA), "--tls-cert", str(certs / security.CERT)]
    env = {
        **dbbench.env,
        "DBBENCH_FLEET_NAME": "theirs",
        "DBBENCH_FLEET_RESULTS": str(dbbench.folder / "there"),
    }
    command = dask_worker(address, dbbench.folder)
    child = psutil.Popen([*command, *tls, "--tls-key", str(certs / security.KEY)], env=env)
    there = ("--scheduler", address, "--certs", str(certs))
    fleet = Daemon(dbbench, "fleet", *RUN, *there)
    fleet.until(lambda: "fleet r: spread, 1 host," in fleet.printed())
    # fleet.json has the directory of the certificates, which is not the default one.
    assert json.loads(dbbench("fleet", "status", "--json").stdout)["scheduler"]
    fleet.child.terminate()
    assert fleet.wait() == 143
    stored = json.loads((dbbench.folder / "results/.fleet/r/fleet.json").read_text())
    assert stored["hosts"] == ["theirs"]
    child.terminate()
    child.wait(120)


def dask_worker(address: str, folder: Path) -> list[str]:
    """Return the command of a worker of dask."""
    import sys

    words = "-m distributed.cli.dask_worker --nthreads 1 --no-dashboard --no-nanny"
    more = ["--preload", "dbbench.fleet.preload", "--local-directory", str(folder / "dask")]
    return [sys.executable, *words.split(), address, *more]
