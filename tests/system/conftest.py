"""What system tests share: the command line on real parts, with a cache and results of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.leftovers import leaving_nothing


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test leaves no loop device, mount, process or control group behind."""
    with leaving_nothing():
        yield


@dataclass
class Dbbench:
    """The command line, in a folder of its own."""

    folder: Path
    env: dict[str, str]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "dbbench", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.env,
        )  # fmt: skip

    def __call__(self, *words: str, status: int = 0, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "dbbench", *words],
            capture_output=True, text=True, cwd=self.folder, env=self.env, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert status == done.returncode, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def plan(self, text: str, name: str = "plan.toml") -> str:
        (self.folder / name).write_text(text)
        return name

    def run_and(
        self, plan: str, at: Callable[[dict[str, Any]], bool], do: Callable[[int], None], *words: str
    ) -> tuple[int, str]:
        """`run PLAN --name r WORDS`, with `do(pid)` at the first event for which `at` holds; exit status, stderr."""
        child = self.start("run", plan, "--name", "r", "--progress", "json", *words)
        assert child.stderr is not None
        said, done = [], False
        for line in child.stderr:
            said.append(line)
            event = _event(line)
            if not done and event is not None and at(event):
                do(child.pid)
                done = True
        child.communicate(timeout=60)
        assert done, "".join(said)
        return child.returncode, "".join(said)

    @staticmethod
    def in_window(event: dict[str, Any]) -> bool:
        """The first second of a measured window was told."""
        return bool(event["kind"] == "second" and event["phase"] == "measure")

    @staticmethod
    def kill(name: str) -> Callable[[int], None]:
        """Something to do with a run: SIGKILL the eldest process called `name` below it."""

        def do(pid: int) -> None:
            found = [p for p in psutil.Process(pid).children(recursive=True) if p.name() == name]
            min(found, key=lambda p: p.create_time()).send_signal(signal.SIGKILL)

        return do

    def trials(self, run: str = "r") -> dict[str, dict[str, Any]]:
        """trial.json of every finished trial, by id."""
        found = sorted((self.folder / "results" / run / "trials").glob("[!.]*/trial.json"))
        return {path.parent.name: json.loads(path.read_text()) for path in found}


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return {"kind": found["kind"], **found["data"]} if "kind" in found else None


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden copies of the whole session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def dbbench_in(cache: Path) -> Callable[[Path], Dbbench]:
    """A maker of command lines that work in a given folder, with the session's golden copies."""
    return lambda folder: Dbbench(folder, {**os.environ, "DBBENCH_CACHE": str(cache), "NO_COLOR": "1"})


@pytest.fixture
def dbbench(tmp_path: Path, dbbench_in: Callable[[Path], Dbbench]) -> Dbbench:
    """The command line in an empty folder."""
    return dbbench_in(tmp_path)
