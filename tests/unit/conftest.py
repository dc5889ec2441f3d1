"""Fixtures of unit tests: a run that needs no machine, and a command line for results."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli, packages
from dbbench.model import (
    Arm,
    Cell,
    Dataset,
    EngineSpec,
    FsSetup,
    Mkfs,
    Plan,
    Run,
    TrialSpec,
    Window,
    Workload,
    WorkloadSpec,
)
from dbbench.plan.catalog import Catalog, catalog
from tests.support.road import Road

MakeRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def every_package_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that apt has each package: apt-cache is a program, and its answers differ between machines."""
    monkeypatch.setattr(packages, "policy", lambda _name: "  Candidate: 1.0\n")


@pytest.fixture
def programs(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory; this machine seems to have the programs that the test puts there, and no others."""
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


@pytest.fixture(scope="session")
def known() -> Catalog:
    """Return the shipped catalogue."""
    return catalog([])


@pytest.fixture
def make_run() -> MakeRun:
    """Return a function that makes runs of one cell in two blocks."""
    return _run


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Road:
    """Return the road for trials of one cell in a directory."""
    environ["DBBENCH_CACHE"] = str(tmp_path / "cache")
    return Road(_run(), tmp_path, monkeypatch)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command line and returns stdout, or stderr if the exit status `code` is not 0. With
    None it may also be 2, because this machine lacks something."""

    def run(*argv: str, code: int | None = 0) -> str:
        assert cli.run(argv) in ((0, 2) if code is None else (code,))
        out, err = capsys.readouterr()
        return err if code else out

    return run


@pytest.fixture
def told(printed: Any, results_folder: Path) -> Any:
    """Return `printed` for the fixture `results_folder`."""
    return lambda *argv, **code: printed(*argv, "--results", str(results_folder), **code)


def _run(name: str = "r") -> Run:
    """Return a run of one cell in two blocks."""
    setup = FsSetup("ext4", Mkfs("ext4"), name="ext4", mount=("noatime",))
    workload = Workload("TPC-B", "pgbench", ("postgres",), {"kind": "pgbench"}, name="w")
    window = Window("fixed", 1, 2)
    cell = Cell("ext4.postgres.w", "ext4", setup, EngineSpec("postgres"), workload, {"clients": 4},
                Dataset("pgbench", {"scale": 1}), window)  # fmt: skip
    order = tuple(TrialSpec(f"{cell.id}-b{b}-a1", cell.id, b, 1, b) for b in (1, 2))
    plan = Plan("p", (Arm("ext4", "ext4"),), (EngineSpec("postgres"),), (WorkloadSpec("w"),), blocks=2)
    return Run(name, "2026-01-01T00:00:00Z", plan, "cafe", (cell,), order)
