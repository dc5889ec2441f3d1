"""Fixtures of unit tests: a run that needs no machine, and a command line for results."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic

from dbbench import cli, packages
from dbbench.machine.limits import cgroup
from dbbench.storage.filesystems import FAMILIES
from tests.support.road import Road
from tests.support.runs import small_run
from tests.support.stored import RecordingStorage


@pytest.fixture(autouse=True)
def every_package_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that apt has each package: apt-cache is a program, and its answers differ between
    machines.
    """
    monkeypatch.setattr(packages, "policy", lambda _name: "  Candidate: 1.0\n")


@pytest.fixture(autouse=True)
def no_units_of_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no transient unit, as on a machine without systemd."""
    monkeypatch.setattr(cgroup, "SYSTEMD", Path("/nonexistent"))


@pytest.fixture
def programs(
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a directory; this machine seems to have the programs that the test puts there, and no
    others.
    """
    (folder := tmp_path / "programs").mkdir()
    environ["PATH"] = str(folder)
    monkeypatch.setattr(packages, "PATH", "")
    return folder


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """`cli.run` handles SIGTERM for the life of a command line."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def road(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
) -> Road:
    """Return the road for trials of one cell in a directory."""
    environ["DBBENCH_CACHE"] = str(tmp_path / "cache")
    return Road(small_run(), tmp_path, monkeypatch)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command line and returns stdout, or stderr if the exit status
    `code` is not 0. With None it may also be 2, because this machine lacks something.
    """

    def run(*argv: str, code: int | None = 0) -> str:
        assert cli.run(argv) in ((0, 2) if code is None else (code,))
        out, err = capsys.readouterr()
        return err if code else out

    return run


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A results folder with a run `demo` of three filesystems, three workloads and three blocks."""
    synthetic.write(tmp_path / "results", synthetic.Shape())
    return tmp_path / "results"


@pytest.fixture
def told(printed: Any, results_folder: Path) -> Any:
    """Return `printed` for the fixture `results_folder`."""
    return lambda *argv, **code: printed(*argv, "--results", str(results_folder), **code)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordingStorage:
    """Return the snapshots of ext4, its servers and its data, which record their calls; with a
    stale pid file.
    """
    storage = RecordingStorage(tmp_path)
    monkeypatch.setattr(FAMILIES["ext4"], "snapshots", storage)
    (tmp_path / "postmaster.pid").touch()
    return storage
