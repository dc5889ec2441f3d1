"""Runs by the names that people type: a run's name in the results folder, or the path of its folder."""

from __future__ import annotations

from pathlib import Path

from dbbench import store
from dbbench.errors import RunMissing
from dbbench.store import LoadedRun
from dbbench.tomlfile import did_you_mean


def folder_of(results: Path, name: str) -> Path:
    """The folder of a run. RunMissing, with the name that may have been meant."""
    for path in (results / name, Path(name)):
        if (path / "run.json").is_file():
            return path
    known = [path.name for path in store.runs(results)] if results.is_dir() else []
    hint = did_you_mean(name, known) if known else f"; {results} holds no run"
    raise RunMissing(f'no run "{name}"{hint}', remedy="dbbench list")


def loaded(results: Path, names: tuple[str, ...], *, verify: bool = True) -> list[LoadedRun]:
    """The runs of those names. RunMissing, ResultDamaged."""
    return [store.load_run(folder_of(results, name), verify=verify) for name in names]


def report_of(folder: Path) -> Path:
    """Where the report page of a run lies."""
    return folder / "report.html"
