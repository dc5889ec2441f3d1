"""Runs that are refused, and what a results folder may not make the program execute."""

import contextlib
import dataclasses
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from dbbench import results
from tests.support.plans import plan
from tests.support.setups import mounted

pytestmark = pytest.mark.needs("root", "fs:ext4", "mkfs.ext4", "engine:postgres", "sadf")


def test_second_run_on_the_same_folder_is_refused(dbbench: Any, nothing_left: None) -> None:
    """The second command names the process that works on the run, exit 5. The first one is stopped
    meanwhile: on a busy machine its trial could end before the second command looks.
    """
    dbbench.plan(plan())
    refused: list[subprocess.CompletedProcess[str]] = []

    def run_again(pid: int) -> None:
        command = psutil.Process(pid)
        first = [command, *command.children(recursive=True)]
        for process in first:
            with contextlib.suppress(psutil.NoSuchProcess):  # a program that has just ended
                process.suspend()
        try:
            refused.append(dbbench("run", "plan.toml", "--name", "r", status=5))
        finally:
            for process in first:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    dbbench.run_and("plan.toml", dbbench.in_window, run_again)
    assert "E803" in refused[0].stderr


def test_programs_that_a_results_folder_names_are_not_executed(
    dbbench: Any, nothing_left: None
) -> None:
    """run.json gets other server programs during the first trial: the second one does not begin,
    and the command is refused when it is repeated, with the key; so is a run with another plan.
    """
    evil = dbbench.folder / "evil"
    proof = dbbench.folder / "executed"
    evil.mkdir()
    for name in ("initdb", "pgbench", "pg_ctl", "postgres", "psql"):
        (evil / name).write_text(f'#!/bin/sh\necho $0 >> {proof}\nexec {name} "$@"\n')
        (evil / name).chmod(0o755)
    dbbench.plan(plan(blocks=2))
    folder = dbbench.folder / "results/r"
    written = list[bytes]()

    def plant(_pid: int) -> None:
        written.append((folder / "run.json").read_bytes())
        run = results.load_spec(folder)
        cells = [
            dataclasses.replace(c, engine=dataclasses.replace(c.engine, bins=(str(evil),)))
            for c in run.cells
        ]
        results.save_spec(folder, dataclasses.replace(run, cells=tuple(cells)))

    status, said = dbbench.run_and("plan.toml", dbbench.in_window, plant)
    assert status == 5 and "E803" in said, said[-2000:]
    assert len(dbbench.trials()) == 1
    refused = dbbench("run", "plan.toml", "--name", "r", status=5).stderr
    assert "E803" in refused and "cells[0].engine.bins" in refused
    run = results.load_spec(folder)
    device = dataclasses.replace(run.plan.device, at=str(evil))
    results.save_spec(
        folder, dataclasses.replace(run, plan=dataclasses.replace(run.plan, device=device))
    )
    assert "plan.device.at" in dbbench("run", "plan.toml", "--name", "r", status=5).stderr
    assert [path for path in evil.iterdir() if path.suffix == ".img"] == []
    (folder / "run.json").write_bytes(written[0])
    dbbench("run", "plan.toml", "--name", "r")
    assert len(dbbench.trials()) == 2 and not proof.exists()


def test_plan_with_five_errors_names_all_five_and_changes_nothing(dbbench: Any) -> None:
    """Each with its line; exit 2; no run folder."""
    text = plan(
        "ext5",
        "postgers",
        {"name": "pgbench-tpcb", "scael": 1},
        blocks=0,
        measure="3 apples",
    )
    done = dbbench("run", dbbench.plan(text), status=2)
    assert "Traceback" not in done.stderr
    for wrong in ("ext5", "blocks", "scael", "apples", "postgers"):
        assert wrong in done.stderr
    assert done.stderr.count("plan.toml:") >= 5
    assert not (dbbench.folder / "results").exists()


def test_mounted_device_is_refused_and_untouched(dbbench: Any, loop_device: Any) -> None:
    """A mounted block device: E104, exit status 5, not one byte changed, whatever was typed."""
    with mounted(loop_device, "-o", "ro") as at:
        before = hashlib.sha256(Path(loop_device.path).read_bytes()).hexdigest()
        text = plan(device={"kind": "block", "path": str(loop_device.path)})
        done = dbbench("run", dbbench.plan(text), "--wipe", loop_device.path.name, status=5)
        assert "E104" in done.stderr and str(at) in done.stderr
        assert before == hashlib.sha256(Path(loop_device.path).read_bytes()).hexdigest()
