"""Memory and cores of a server: limited by the kernel, read back, given back; what breaks the limit is named."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench.limits import cgroup

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")

PLAN = """
name = "limits"
fs_setups = ["ext4"]
blocks = 1
warmup = "1s"
measure = "{measure}s"
memory = "{memory}"
repeat_suspect = false
[device]
size = "1GiB"
[[engine]]
name = "postgres"
{engine}
[[workload]]
name = "{workload}"
{parameters}
clients = 2
"""


def plan(memory: str = "64MiB", engine: str = "", parameters: str = "scale = 8", workload: str = "pgbench-tpcb",
         measure: int = 3) -> str:  # fmt: skip
    """A plan of one trial that lasts seconds."""
    return PLAN.format(memory=memory, engine=engine, parameters=parameters, workload=workload, measure=measure)


def groups() -> set[Path]:
    """Control groups of ours that are there now."""
    where = cgroup.hierarchy()
    if isinstance(where, str):
        pytest.skip(where)
    return set(where.parent.glob("dbbench-*"))


def the_trial(dbbench: Any, text: str, status: int = 0) -> dict[str, Any]:
    """Run a plan of one trial; its trial.json."""
    dbbench.plan(text)
    dbbench("run", "plan.toml", "--name", "r", status=status)
    (trial,) = dbbench.trials().values()
    assert isinstance(trial, dict)
    return trial


def test_memory_is_the_kernels_limit_and_page_cache_counts(dbbench: Any) -> None:
    """A dataset of twice the memory is io-bound on a machine with any: hardly half of it stays resident."""
    before = groups()
    engine = 'cpus_server = "0"\ncpus_client = "1"' if (os.cpu_count() or 1) > 1 else ""
    trial = the_trial(dbbench, plan(parameters='size = "io-bound"\nthreads = 2', engine=engine))
    memory, cores = trial["memory"], trial["cores"]
    assert memory["enforced"] in ("cgroup v1", "cgroup v2")
    assert memory["effective_bytes"] == memory["limit_bytes"] == 64 * 2**20
    assert memory["label"] == "io-bound"
    assert 2.0 < memory["dataset_ratio"] < 4.0
    assert memory["resident_bytes"] < 64 * 2**20 < memory["dataset_bytes"]
    assert memory["direct"] == "buffered"
    assert groups() == before
    if engine:  # and the cores are as asked
        assert (cores["server"], cores["client"], cores["shared"]) == ("0", "1", 0)
        assert 0 < cores["client_share"] < 1
    assert "W039" not in {w["id"] for w in trial["warnings"]}


def test_size_of_the_dataset_follows_the_memory(dbbench: Any) -> None:
    """The words are what the trial finds, by the bytes of the data files."""
    dbbench.plan(plan(memory="128MiB", parameters='size = ["cached", "edge"]', measure=1))
    dbbench("run", "plan.toml", "--name", "r")
    assert {t["variant"]: t["memory"]["label"] for t in dbbench.trials().values()} == {
        "size=cached": "cached",
        "size=edge": "edge",
    }


def test_kill_by_the_limit_fails_the_trial_by_name(dbbench: Any) -> None:
    """A server in 4 MiB: the kernel kills it, and the trial says why it did not start."""
    before = groups()
    trial = the_trial(dbbench, plan(memory="4MiB", parameters="scale = 1"), status=1)
    assert (trial["status"], trial["error"]["id"]) == ("failed", "E210")
    assert "4 MiB" in trial["error"]["text"]
    assert groups() == before


def test_group_of_a_killed_run_is_given_back(dbbench: Any) -> None:
    """What no namespace ends, the journal does: after a SIGKILL and `clean` there is no group of ours."""
    before = groups()
    dbbench.plan(plan())
    during: list[set[Path]] = []

    def kill(pid: int) -> None:
        during.append(groups() - before)
        os.kill(pid, signal.SIGKILL)

    dbbench.run_and("plan.toml", dbbench.in_window, kill)
    time.sleep(1.0)
    assert len(during[0]) == 1
    dbbench("clean", "r")
    assert groups() == before


def test_client_on_the_servers_core_is_named(dbbench: Any) -> None:
    """It is done as asked, and the trial carries W039."""
    trial = the_trial(dbbench, plan(engine='cpus_server = "0"\ncpus_client = "0"'))
    assert any(w["id"] == "W039" and "load generator on 0" in w["text"] for w in trial["warnings"])


def test_load_generator_at_its_limit_makes_the_trial_suspect(dbbench: Any) -> None:
    """Cached single-row reads of eight sessions by one thread of pgbench: it is what is measured."""
    parameters = "scale = 8\nclients = 8\nthreads = 1"
    text = plan(memory="256MiB", workload="pgbench-select-only", parameters=parameters).replace("\nclients = 2\n", "\n")
    trial = the_trial(dbbench, text)
    told = [w for w in trial["warnings"] if w["id"] == "W016"]
    assert bool(told) == (trial["cores"]["client_share"] > 0.8)  # on a busy machine it may not get that far
    assert all(w["suspect"] and "%" in w["text"] for w in told)


def test_cores_that_the_machine_lacks_are_told_before_anything_is_done(dbbench: Any) -> None:
    """E211, exit 2, and no run folder."""
    dbbench.plan(plan(engine='cpus_server = "4096"'))
    done = dbbench("run", "plan.toml", "--name", "r", status=2)
    assert "E211" in done.stderr and "4096" in done.stderr
    assert not (dbbench.folder / "results").exists()
