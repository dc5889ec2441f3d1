"""Simulated hosts: an engine for the coordinator of a fleet, on a simulated clock."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from dbbench.errors import BudgetUsedUp
from dbbench.fleet import dealing, fleet_files, messages
from dbbench.fleet.connection import Connection, Lost
from dbbench.fleet.fleet_files import Fleet
from dbbench.model import Run, TrialSpec, plain
from dbbench.plan import make_order
from dbbench.results.fileio import sha256
from dbbench.results.merging import files_of
from tests.support.runs import small_run
from tests.support.trials import trial

TRIAL_S = 10.0
_RUN = TypeAdapter(Run)


def two_arms(blocks: int) -> Run:
    """Return a run `f` of ext4 and xfs in so many blocks."""
    run = small_run("f")
    cells = tuple(
        dataclasses.replace(run.cells[0], id=f"{arm}.postgres.w", arm=arm)
        for arm in ("ext4", "xfs")
    )
    order = tuple(make_order(cells, blocks, 1))
    return dataclasses.replace(
        run, cells=cells, order=order, plan=dataclasses.replace(run.plan, blocks=blocks)
    )


def new_fleet(
    run: Run, names: list[str], results_folder: Path, mode: Literal["spread", "each"] = "spread"
) -> Hosts:
    """Make a fleet that runs `run`, and return its hosts, whose folders are beside the results
    folder.
    """
    fleet = Fleet(
        run.name, mode, run.created, run.plan_sha256, dealing.first_blocks(run.order, names, mode)
    )
    fleet_files.save(results_folder, fleet)
    fleet_files.create_runs(results_folder, fleet, run, "# plan\n", {})
    return Hosts(names, results_folder.with_name(f"{results_folder.name}-hosts"))


class Hosts(Connection):
    """An engine whose hosts run trials of TRIAL_S on a simulated clock; it includes the
    coordinator's CPU time.
    """

    def __init__(self, names: list[str], folder: Path) -> None:
        super().__init__("tls://made.up")
        self.names = names
        self.folder = folder
        self.now = 1e9
        # CPU seconds of this simulation, and at the start
        self._theirs, self._began = 0.0, time.thread_time()
        self.order: dict[str, tuple[TrialSpec, ...]] = {}
        self.ready: dict[str, float] = {}  # when the current trial of a host is finished
        self.finished: dict[str, list[str]] = {}
        self.waiting: list[tuple[float, str, messages.Question]] = []
        self.dead: set[str] = set()
        self.refuse: dict[str, str] = {}
        self.asked: list[messages.Question] = []
        self.lose = 0  # number of the next answers that are lost
        self.budget_s = math.inf  # a host starts no trial after this time
        # host -> time of its trials in the budget; default TRIAL_S
        self.trial_s: dict[str, float] = {}

    def clock(self) -> float:
        """Return the time of the hosts plus the coordinator's CPU time; other load does not affect
        CPU time.
        """
        return self.now + self.own_s

    @property
    def own_s(self) -> float:
        """Return the CPU seconds of the coordinator."""
        return time.thread_time() - self._began - self._theirs

    def hosts(self) -> dict[str, float]:
        """Return all hosts except the dead ones."""
        return {name: self.clock() for name in self.names if name not in self.dead}

    def ask(self, host: str, question: messages.Question) -> None:
        """Note the time of the answer."""
        with self._inside():
            assert host not in [name for _, name, _ in self.waiting], (
                "one question at a time for each host"
            )
            self.asked.append(question)
            at = (
                self._advanced(host, question)
                if isinstance(question, messages.ResultRequest)
                else self.clock()
            )
            self.waiting.append((at, host, question))

    def _advanced(self, host: str, question: messages.ResultRequest) -> float:
        """Return when the next trial beyond `taken` is finished; the one after it starts when this
        one was fetched.
        """
        if set(self.finished[host]) - set(question.taken):
            return self.clock()
        left = [spec for spec in self.order[host] if spec.id not in self.finished[host]]
        return self.clock() + (min(TRIAL_S, question.patience_s) if left else 0.0)

    def answers(self, timeout_s: float) -> list[tuple[str, messages.Answer | Lost]]:
        """Return the next answer that is due, and advance the clock to it."""
        with self._inside():
            return self._next(timeout_s)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """Do not count the CPU time of the block as the coordinator's."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._theirs += time.thread_time() - began

    def _next(self, timeout_s: float) -> list[tuple[str, messages.Answer | Lost]]:
        due = sorted((w for w in self.waiting if w[1] not in self.dead), key=lambda w: w[:2])
        if not due or due[0][0] > self.clock() + timeout_s:
            self.now += timeout_s
            return []
        at, host, question = due[0]
        self.waiting.remove(due[0])
        self.now += max(0.0, at - self.clock())
        if self.lose:
            self.lose -= 1
            return [(host, Lost())]
        return [(host, self._answer(host, question))]

    def forget(self, host: str) -> None:
        """Do not answer the question of this host."""
        self.waiting = [entry for entry in self.waiting if entry[1] != host]

    def _answer(self, host: str, question: messages.Question) -> messages.Answer:
        match question:
            case messages.Assignment() if host in self.refuse:
                return messages.Refusal({"evidence": self.refuse[host], "remedy": None})
            case messages.Assignment():
                self.order[host] = _RUN.validate_json(question.spec).order
                self.finished.setdefault(host, [])
                return {"hostname": host, "kernel": "6.1", "versions": {}}
            case messages.ResultRequest():
                return self._seen(host, question)
        raise AssertionError(question)

    def _seen(self, host: str, question: messages.ResultRequest) -> messages.HostReport:
        left = [spec for spec in self.order[host] if spec.id not in self.finished[host]]
        over = len(self.finished[host]) * self.trial_s.get(host, TRIAL_S) >= self.budget_s
        if left and not over and not set(self.finished[host]) - set(question.taken):
            self.publish(host, left.pop(0))
        new = next((i for i in self.finished[host] if i not in question.taken), "")
        state = messages.HostState(
            mean_s=TRIAL_S,
            ended=not left or over,
            since=self.clock(),
            used_s=len(self.finished[host]) * self.trial_s.get(host, TRIAL_S),
            error={"id": BudgetUsedUp.id, "evidence": ""} if left and over else None,
        )
        if not new:
            return messages.HostReport(True, state)
        folder = self.folder / host / "trials" / new
        batch = messages.Batch(
            tuple((name, (folder / name).read_bytes()) for name, _ in files_of(folder))
        )
        return messages.HostReport(True, state, new, batch)

    def publish(self, host: str, spec: TrialSpec) -> None:
        """Finish a trial at once."""
        folder = self.folder / host / "trials" / spec.id
        (folder / "raw").mkdir(parents=True)
        arm = spec.cell.partition(".")[0]
        made = trial(arm, spec.block, 9.5, id=spec.id, run="f", host=host, position=spec.position)
        content = {"trial.json": json.dumps(plain(made)), "raw/pgbench.out": "x" * 9000}
        for name, text in content.items():
            (folder / name).write_text(text)
        (folder / "SHA256SUMS").write_text(
            "".join(f"{sha256(folder / name, folder)}  {name}\n" for name in content)
        )
        self.finished[host].append(spec.id)
