"""Merging a run from elsewhere into a results folder: the same plan, ids that stand once, hosts that are kept."""

from __future__ import annotations

import dataclasses
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbbench.errors import ImportRefused, RunMissing, RunNameTaken
from dbbench.model import Cell, Run, TrialSpec
from dbbench.store import taking
from dbbench.store.files import write_text, writing
from dbbench.store.runs import CEILING, create_run, folders, load_spec, locked, save_spec


@dataclass(frozen=True)
class Merged:
    """What came of one folder."""

    folder: Path
    added: tuple[str, ...]  # ids of trials that are new here
    known: tuple[str, ...]  # that stood here already, the same


def sources(folder: Path) -> list[Path]:
    """The run folders of `folder`: itself, or those in it. RunMissing where there is none."""
    found = [folder] if (folder / "run.json").is_file() else folders(folder)
    if not found:
        raise RunMissing(f"{folder} holds no run", remedy="Name a run's folder, or a results folder.")
    return found


def merge(source: Path, results: Path) -> Merged:
    """Take the finished trials of the run in `source` over into `results`.

    Everything is verified before anything is written. Raises ResultDamaged, ImportRefused, RunNameTaken (the run's
    name stands for another plan here), RunLocked.
    """
    theirs = load_spec(_plain_folder(source))
    folder = results / taking.checked_name(theirs.name)
    finished = _finished(source, theirs)
    if folder.exists():
        ours = _same_plan(folder, theirs)
        for trial in finished:
            taking.standing(trial, folder / "trials" / trial.name)
    else:
        ours = None
    scripts = _scripts(source)
    if ours is None:
        ours = dataclasses.replace(theirs, hosts=facts_of(theirs), cells=own_scripts(theirs.cells, folder))
        create_run(results, ours, _text(source / "plan.toml"))
    with locked(folder):
        keep_scripts(folder, scripts)
        save_spec(folder, united(ours, theirs))
        if (source / CEILING).is_file() and not (folder / CEILING).exists():
            write_text(folder / CEILING, _text(source / CEILING))
        new = {trial.name: taking.take(trial, folder) for trial in finished}
    return Merged(folder, tuple(i for i, added in new.items() if added), tuple(i for i in new if not new[i]))


def united(ours: Run, theirs: Run) -> Run:
    """Both orders and both hosts' facts in one run. ImportRefused where an id stands for two trials."""
    known = {spec.id: spec for spec in ours.order}
    for spec in theirs.order:
        if known.setdefault(spec.id, spec) != spec:
            raise ImportRefused(f"{ours.name}: {spec.id} is another trial in the two runs", effect=taking.UNCHANGED)
    order = sorted(known.values(), key=_rank)
    return dataclasses.replace(ours, order=tuple(order), hosts={**ours.hosts, **facts_of(theirs)})


def facts_of(run: Run) -> dict[str, dict[str, Any]]:
    """The hosts of a run with what they are; of a run that one machine drove, that machine."""
    name = str(run.host.get("hostname") or "unknown")
    return run.hosts or {name: {**run.host, "versions": {**run.versions, "dbbench": run.dbbench_version}}}


def own_scripts(cells: tuple[Cell, ...], folder: Path) -> tuple[Cell, ...]:
    """The cells with their workloads' scripts in the run's own folder."""
    return tuple(
        dataclasses.replace(cell, workload=dataclasses.replace(
            cell.workload, script=str(folder / "scripts" / Path(cell.workload.script).name)))
        if Path(cell.workload.script).is_absolute() else cell
        for cell in cells
    )  # fmt: skip


def keep_scripts(folder: Path, scripts: dict[str, str]) -> None:
    """Write scripts into the run's folder, once. ImportRefused where another one stands under the name."""
    for name, content in scripts.items():
        own = folder / "scripts" / taking.checked_name(name)
        if not own.exists():
            with writing(own):
                own.parent.mkdir(exist_ok=True)
            write_text(own, content)
        elif own.read_text(encoding="utf-8") != content:
            raise ImportRefused(f"{own} is another script under the same name", effect=taking.UNCHANGED)


def _rank(spec: TrialSpec) -> tuple[int, int, str]:
    return spec.position, spec.attempt, spec.id


def _plain_folder(source: Path) -> Path:
    """The folder, whose own parts are no links."""
    for path in (source, source / "run.json", source / "trials", source / "plan.toml", source / CEILING):
        if path.is_symlink():
            raise ImportRefused(f"{path} is a link", effect=taking.UNCHANGED, remedy="Name the folder itself.")
    return source


def _finished(source: Path, run: Run) -> list[Path]:
    """The finished trials of the run, each whole. An unknown folder beside them is no trial of it."""
    found = []
    for spec in run.order:
        path = source / "trials" / taking.checked_name(spec.id)
        if path.is_symlink() or (path.exists() and not stat.S_ISDIR(path.lstat().st_mode)):
            raise ImportRefused(f"{path} is a link or no folder", effect=taking.UNCHANGED)
        if path.is_dir():
            taking.must_be_whole(path)
            found.append(path)
    return found


def _same_plan(folder: Path, theirs: Run) -> Run:
    ours = load_spec(folder)
    if ours.plan_sha256 != theirs.plan_sha256:
        raise RunNameTaken(
            f"{folder} holds another plan than the run that is to be merged into it",
            effect=taking.UNCHANGED,
            remedy=f"Put the one here away:  mv {folder} {folder}-old",
        )
    united(ours, theirs)
    return ours if ours.hosts else dataclasses.replace(ours, hosts=facts_of(ours))


def _scripts(source: Path) -> dict[str, str]:
    if (source / "scripts").is_symlink():
        raise ImportRefused(f"{source / 'scripts'} is a link", effect=taking.UNCHANGED)
    paths = sorted((source / "scripts").iterdir()) if (source / "scripts").is_dir() else []
    return {path.name: _text(path) for path in paths}


def _text(path: Path) -> str:
    return taking.read(path, most=2**28).decode("utf-8")
