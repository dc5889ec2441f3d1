"""Fixtures of system tests: the command line with real parts, and a separate cache and results
folder.
"""

import csv
import ctypes
import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dbbench
from dbbench.datasets.golden import cache_folder
from dbbench.machine import namespaces
from tests.support.leftovers import below, leaving_nothing, sign

UNUSED_S = 3 * 86400.0  # golden copies that no test used for three days are removed
# Files that take a quarter of a minute or more, the longest first; files of `make test-all` come
# before all others. Lanes begin with them, so that none ends long after the others.
LONGEST = (
    "test_second_kernel.py",
    "test_tutorial.py",
    "test_packages.py",
    "test_image_examples.py",
    "test_releases.py",
    "test_budget.py",
    "test_zfs.py",
    "test_run.py",
    "test_commands.py",
    "test_fair_window.py",
    "test_fair_limits.py",
    "test_fleet.py",
    "test_environments.py",
    "test_terminal.py",
    "test_powercut.py",
    "test_lab_processes.py",
    "test_catalogue.py",
    "test_wal.py",
    "test_steps.py",
    "test_moments.py",
    "test_operations.py",
    "test_insert_benchmark.py",
    "test_fair_condition.py",
    "test_faults.py",
    "test_studies.py",
    "test_work.py",
    "test_accounts.py",
    "test_fleet_ssh.py",
    "test_client.py",
    "test_operations_dba.py",
    "test_apply.py",
    "test_fair_device.py",
    "test_races.py",
    "test_nightly.py",
    "test_dumps_innodb.py",
    "test_dumps_postgres.py",
    "test_golden.py",
    "test_guard.py",
    "test_guard_looks.py",
    "test_machine.py",
    "test_beside_others.py",
    "test_statements.py",
    "test_sweeps.py",
    "test_ci.py",
    "test_open_loop.py",
    "test_snapshots_beside.py",
    "test_writes.py",
    "test_settled_sources.py",
    "test_datasets_sources.py",
    "test_sick_disk.py",
    "test_files.py",
    "test_from_statements.py",
    "test_added_engine.py",
    "test_tpcc.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; the tests of a file keep their order."""
    items.sort(
        key=lambda item: (
            LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
        )
    )


@pytest.fixture(autouse=True, scope="session")
def lane() -> None:
    """Run each process of tests in a separate mount namespace. Otherwise private copies of the
    mount table that its tests make would keep mounts of other lanes or of another session busy.
    """
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(namespaces.CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        namespaces.mount("none", Path("/"), flags=namespaces.MS_REC | namespaces.MS_SLAVE)


@pytest.fixture(autouse=True, scope="session")
def signed() -> None:
    """Put the token into the environment, so that the leak check recognises the processes of these
    tests.
    """
    sign()


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Assert that the test leaves no loop device, mount, process or control group behind."""
    with leaving_nothing(tmp_path):
        yield


# then a command hangs: the longest one takes 100 s, and several times as long on a busy machine
HANGS_S = 1200.0


@dataclass
class Dbbench:
    """The command line in a folder."""

    folder: Path
    env: dict[str, str]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "dbbench", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.env,
        )

    def __call__(
        self, *words: str, status: int | None = 0, timeout_s: float = HANGS_S
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "dbbench", *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.env,
            timeout=timeout_s,
            check=False,
        )
        assert status in (None, done.returncode), (
            f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def plan(self, text: str, name: str = "plan.toml") -> str:
        (self.folder / name).write_text(text)
        return name

    def run_and(
        self,
        plan: str,
        at: Callable[[dict[str, Any]], bool],
        do: Callable[[int], None],
        *words: str,
    ) -> tuple[int, str]:
        """`run PLAN --name r WORDS`, with `do(pid)` at the first event for which `at` holds; exit
        status, stderr.
        """
        child = self.start("run", plan, "--name", "r", "--progress", "json", *words)
        assert child.stderr is not None
        said = []
        done = False
        for line in child.stderr:
            said.append(line)
            event = _event(line)
            if not done and event is not None and at(event):
                do(child.pid)
                done = True
        child.communicate(timeout=HANGS_S)
        assert done, "".join(said)
        return child.returncode, "".join(said)

    @staticmethod
    def in_window(event: dict[str, Any]) -> bool:
        """Whether this is the first second of a measured window."""
        return bool(event["kind"] == "second" and event["phase"] == "measure")

    @staticmethod
    def kill(name: str) -> Callable[[int], None]:
        """Return an action for `run_and`: kill the oldest process called `name` below the run with
        SIGKILL.
        """

        def do(pid: int) -> None:
            below(pid, name)[0].send_signal(signal.SIGKILL)

        return do

    def trials(self, run: str = "r") -> dict[str, dict[str, Any]]:
        """Return trial.json of every finished trial, by id."""
        found = sorted((self.folder / "results" / run / "trials").glob("[!.]*/trial.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in found}

    def spec(self, run: str = "r") -> dict[str, Any]:
        """Return run.json."""
        return dict(json.loads((self.folder / "results" / run / "run.json").read_text()))

    def trial(self, text: str | None = None, *words: str, status: int = 0) -> dict[str, Any]:
        """Run a plan, by default the one in plan.toml, as "r"; return trial.json of its only trial."""
        self("run", self.plan(text) if text else "plan.toml", "--name", "r", *words, status=status)
        (trial,) = self.trials().values()
        return trial

    def compared(self, run: str = "r") -> list[dict[str, Any]]:
        """Return the rows of `compare`, with their verdicts."""
        return list(json.loads(self("compare", run, "--json").stdout)["rows"])

    def series(self, trial: dict[str, Any]) -> list[dict[str, str]]:
        """Return the rows of a trial's series, one for each second."""
        path = self.folder / "results" / trial["run"] / "trials" / trial["id"] / "series.csv.gz"
        with gzip.open(path, "rt") as text:
            return list(csv.DictReader(text))

    def stalled(self, run: str = "r") -> bool:
        """Return whether a trial failed because no transaction ended in its window (E604)."""
        return "E604" in {
            trial["error"]["id"]
            for trial in self.trials(run).values()
            if trial["status"] == "failed"
        }


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return {"kind": found["kind"], **found["data"]} if "kind" in found else None


@pytest.fixture(scope="session")
def cache() -> Path:
    """Return the golden copies for all lanes and later sessions. They are next to those of the
    user, under a key of the code that builds them. Deleting the folder costs only time.
    """
    package = Path(dbbench.__file__).parent
    code = [
        path for room in ("datasets", "engines") for path in sorted((package / room).rglob("*.py"))
    ]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()[:12]
    folder = cache_folder().with_name("tests") / key
    for old in folder.parent.glob("*"):
        if old != folder and time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    return folder


@pytest.fixture(scope="session")
def dbbench_in(cache: Path) -> Callable[[Path], Dbbench]:
    """Return a function that makes the command line in a folder, with the golden copies of the
    session.
    """
    return lambda folder: Dbbench(
        folder, {**os.environ, "DBBENCH_CACHE": str(cache), "NO_COLOR": "1"}
    )


@pytest.fixture(name="dbbench")
def dbbench_here(tmp_path: Path, dbbench_in: Callable[[Path], Dbbench]) -> Dbbench:
    """Return the command line in an empty folder."""
    return dbbench_in(tmp_path)
