"""The worker's side on a host: answer a question from the directories that exist, and keep the
share running. Every question may be repeated at any time, also by another coordinator. Only the
host's identity and what it is to run are kept in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import __version__, process, results
from dbbench.errors import CommandFailed, CoordinatorGone, DbbenchError, ImportRefused, RunNameTaken
from dbbench.fleet import messages
from dbbench.fleet.host_folder import HostFolder, Taken
from dbbench.machine import host as machine
from dbbench.machine.host import tunables
from dbbench.model import Run, plain
from dbbench.model.base import NAME
from dbbench.results import merging

_STARTS: Final = 3  # starts of a share without a trial between them, before it is given up
_LOOK_S: Final = 0.2  # one `stat`: 0.03 % of a core
_LOOK_AGAIN_S: Final = 2.0  # a share that was killed writes no state


@dataclass
class HostTask:
    """What this host is to run. Kept in memory only: the results folder may come from someone else."""

    run: Run
    wipe: tuple[str, ...]
    starts: int = 0  # of the share, since its last trial
    trials: int = 0  # finished at its last start

    @property
    def blocks(self) -> set[int]:
        return {spec.block for spec in self.run.order}


@dataclass
class Here:
    """Identity of this host. A worker that dbbench did not start itself reads it from its
    environment.
    """

    name: str = field(
        default_factory=lambda: os.environ.get("DBBENCH_FLEET_NAME") or os.uname().nodename
    )
    results: Path = field(
        default_factory=lambda: Path(os.environ.get("DBBENCH_FLEET_RESULTS") or "results").resolve()
    )
    share: tuple[str, ...] = (sys.executable, "-m", "dbbench.fleet.share")
    tasks: dict[str, HostTask] = field(default_factory=dict)  # by the name of the run


HERE: Final = Here()


def answer(question: messages.Question) -> messages.Answer:
    """Answer a question. The only function that a coordinator calls here; errors of dbbench are
    returned as data.
    """
    try:
        folder = HERE.results / merging.checked_name(question.run)
        match question:
            case messages.Assignment():
                return _assign(folder, question)
            case messages.ResultRequest():
                return _report(HostFolder(folder), question)
            case messages.FileRequest():
                return _read(HostFolder(folder), question.trial, question.offset)
            case messages.StopRequest():
                _stop(HostFolder(folder))
                return None
    except DbbenchError as error:
        return messages.Refusal(error.as_data())
    except OSError as error:
        return messages.Refusal(DbbenchError(f"{HERE.name}: {error}").as_data())


def _assign(folder: Path, question: messages.Assignment) -> dict[str, Any]:
    """Make the run's directory once; note its blocks. Raises RunNameTaken (another plan), RunLocked
    (changed).
    """
    if question.version != __version__:
        raise ImportRefused(
            f"{HERE.name} has dbbench {__version__}, the coordinator {question.version}",
            effect="Nothing was changed.",
            remedy="Install the same version on all hosts.",
        )
    run = results.parsed_spec(question.spec)
    if (folder / "run.json").exists():
        there = results.RunFolder(folder)
        if there.run.plan_sha256 != run.plan_sha256:
            raise RunNameTaken(
                f"{folder} on {HERE.name} contains another plan",
                remedy="Choose another name with --name.",
            )
        results.must_match(
            there, run.plan, merging.own_scripts(run.cells, folder), question.scripts
        )
    else:
        facts = {**machine.facts(), "hostname": HERE.name, "state": tunables.state()}
        run = dataclasses.replace(
            run,
            host=facts,
            versions=machine.versions(),
            dbbench_version=__version__,
            cells=merging.own_scripts(run.cells, folder),
        )
        HERE.results.mkdir(parents=True, exist_ok=True)
        results.create_run(HERE.results, run, question.plan)
    merging.keep_scripts(folder, question.scripts)
    host = HostFolder(folder)
    task = HostTask(run, question.wipe)
    host.make()
    if not {spec.block for spec in host.run().order} <= task.blocks:
        _stop(host)  # some of its blocks belong to other hosts now
    HERE.tasks[question.run] = task
    return merging.facts_of(host.run())[HERE.name]


def _report(host: HostFolder, question: messages.ResultRequest) -> messages.HostReport:
    task = HERE.tasks.get(question.run)
    if (
        task is None
        or task.blocks != set(question.blocks)
        or not (host.folder / "run.json").exists()
    ):
        return messages.HostReport(False)

    def is_unchanged() -> bool:
        return host.stamp("state.json") == stamp

    until = time.monotonic() + question.patience_s
    host.save_receipt(Taken(question.taken, question.coordinator))
    while True:
        alive = _keep_running(host, task)
        stamp = host.stamp("state.json")
        state = host.state()
        # Nothing is transferred during a trial, because that would be load.
        new = [] if alive and state.trial else host.finished_beyond(question.taken)
        trial = next((spec.id for spec in new if spec.block in task.blocks), "")
        if trial or not alive or time.monotonic() >= until:
            repeats = tuple(plain(spec) for spec in host.run().order if spec.attempt > 1)
            return messages.HostReport(
                True, state, trial, _read(host, trial, 0) if trial else messages.Batch(), repeats
            )
        left_s = min(_LOOK_AGAIN_S, until - time.monotonic())
        process.wait_while(is_unchanged, left_s, _LOOK_S)


def _read(host: HostFolder, trial: str, offset: int) -> messages.Batch:
    """Return the next bytes of a trial; after the last ones the next trial may begin. A file
    without content that is between two batches may be in both.
    """
    folder = host.folder / "trials" / merging.checked_name(trial)
    pieces = list[tuple[str, bytes]]()
    left = messages.BATCH
    for name, size in merging.files_of(folder):
        skipped = min(offset, size)
        offset -= skipped
        if skipped == size and size:
            continue
        pieces.append((name, merging.read(folder / name, HERE.results, skipped, left)))
        left -= len(pieces[-1][1])
        if skipped + len(pieces[-1][1]) < size:
            return messages.Batch(tuple(pieces), last=False)
    taken = host.receipt()
    host.save_receipt(dataclasses.replace(taken, trials=(*taken.trials, trial)))
    return messages.Batch(tuple(pieces))


def _keep_running(host: HostFolder, task: HostTask) -> bool:
    """Start the share if none runs and trials are left; return whether one runs. An error of a
    share ends the work, unless it was started before the blocks were assigned, or had no
    coordinator.
    """
    if host.is_alive():
        return True
    state = host.state()
    left = results.pending(host.folder, _merge(host.run(), task))
    gone = state.error is not None and state.error.get("id") == CoordinatorGone.id
    if state.ended and (not left if state.error is None else task.starts and not gone):
        return False
    trials = len(results.list_results(host.folder))
    task.starts = task.starts + 1 if trials == task.trials else 1
    task.trials = trials
    if task.starts > _STARTS:
        raise DbbenchError(
            f"the trials of {host.folder.name} on {HERE.name} ended {_STARTS} times without a "
            "result",
            remedy=f"See {host.path / 'share.log'} and {host.folder / 'launcher.log'} on "
            f"{HERE.name}.",
        )
    with results.lock(host.folder):
        results.save_spec(host.folder, _merge(results.load_spec(host.folder), task))
    host.save_state(messages.HostState(note="starting"))
    # Another share was faster, or this one ended; the state contains the reason.
    with contextlib.suppress(CommandFailed):
        argv = [*HERE.share, str(host.folder), task.run.plan_sha256, *task.wipe]
        process.run(argv, env=process.kept_environment(), timeout_s=60, note=False)
    return True


def _merge(run: Run, task: HostTask) -> Run:
    """Return the run with the assigned blocks, new ones at the end, and with the repeats that it
    has.
    """
    kept = tuple(spec for spec in run.order if spec.block in task.blocks)
    ids = {spec.id for spec in kept}
    order = (*kept, *(spec for spec in task.run.order if spec.id not in ids))
    return run if order == run.order else dataclasses.replace(run, order=order)


def _stop(host: HostFolder) -> None:
    with contextlib.suppress(FileNotFoundError):
        if (pid := host.pid()) is not None:
            os.kill(pid, signal.SIGTERM)


def valid_name(name: str) -> str:
    """Return a host's name as used in results and resources. Raises ImportRefused if it is not
    valid.
    """
    if not NAME.fullmatch(name):
        raise ImportRefused(
            f"invalid host name {name!r}: use letters, digits and . _ + : = -", effect=""
        )
    return name
