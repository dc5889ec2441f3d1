"""Simulated hosts of a fleet: a scheduler whose tasks are finished as soon as they are submitted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dbbench import results
from dbbench.errors import DbbenchError
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.parts import Given, Part, PartOutcome, pack, parts_of
from dbbench.fleet.scheduler import Host
from dbbench.model import Run, TrialSpec, plain
from dbbench.model.events import Emit, ignore
from dbbench.plan import Expanded, make_order
from dbbench.plan.request import PlanRequest
from dbbench.results.fileio import sha256
from tests.support.runs import small_run
from tests.support.trials import trial


def two_arms(blocks: int) -> Run:
    """Return a run `f` of ext4 and xfs in so many blocks."""
    run = small_run("f")
    cells = tuple(
        dataclasses.replace(run.cells[0], id=f"{arm}.postgres.w", arm=arm)
        for arm in ("ext4", "xfs")
    )
    order = tuple(make_order(cells, blocks, 1))
    plan = dataclasses.replace(run.plan, blocks=blocks, repeat_suspect=False)
    return dataclasses.replace(run, cells=cells, order=order, plan=plan)


def new_fleet(
    run: Run,
    hosts: Collection[str],
    mode: Any = "spread",
) -> Fleet:
    """Return a fleet that runs `run`."""
    names = tuple(sorted(hosts))
    return Fleet(run.name, mode, run.created, run.plan_sha256, names, budget_s=run.plan.budget_s)


def coordinator(
    results_folder: Path,
    fleet: Fleet,
    run: Run,
    emit: Emit = ignore,
    gone_after_s: float = 600.0,
) -> Coordinator:
    """Return the coordinator of a fleet, the first one or a later one."""
    folder = results_folder / fleet.name
    if (folder / "run.json").exists():
        stored = results.load_spec(folder).order
        specs = {spec.id: spec for spec in (*run.order, *stored)}
        run = dataclasses.replace(run, order=tuple(specs.values()))
    wanted = PlanRequest("# plan\n", run.plan, Expanded(run.cells, run.order), run.plan_sha256)
    return Coordinator(
        results_folder,
        fleet,
        parts_of(fleet, run, wanted),
        run,
        Given("# plan\n", {}),
        emit,
        gone_after_s=gone_after_s,
        look_s=0.0,
    )


@dataclasses.dataclass
class Task:
    """A part that a simulated host has run."""

    result: PartOutcome | None
    done: bool = True

    def outcome(self) -> PartOutcome | None:
        """Return what the host returns."""
        return self.result


def _without(order: tuple[TrialSpec, ...], arm: str) -> tuple[TrialSpec, ...]:
    """Return the trials of other arms, whose positions then have no gap."""
    left_out = [spec for spec in order if spec.cell.partition(".")[0] == arm]
    kept = []
    for spec in order:
        before = sum(gone.position < spec.position for gone in left_out)
        if spec not in left_out:
            kept.append(dataclasses.replace(spec, position=spec.position - before))
    return tuple(kept)


class Hosts:
    """A scheduler with simulated hosts. They take parts in turn."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        self.folder = folder
        self.there = {name: Host(f"tls://{name}", is_usable=True) for name in names}
        self.unusable: set[str] = set()
        self.refuses: dict[str, str] = {}  # host -> evidence of its error
        self.damages: set[str] = set()  # hosts whose parcels are damaged
        self.lost = 0  # number of the next tasks that are lost with their scheduler
        self.suspect: set[str] = set()  # ids of trials
        self.left_out = ""  # the arm whose options are refused
        self.ran: list[tuple[str, str]] = []  # (host, part), in order
        self._turn = 0

    def hosts(self) -> dict[str, Host]:
        """Return the hosts that are connected."""
        return self.there

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """Return no events."""
        return []

    def set_usable(self, host: Host, usable: bool) -> None:
        """Note whether the host gets parts."""
        name = host.address.removeprefix("tls://")
        (self.unusable.discard if usable else self.unusable.add)(name)

    def submit(self, part: Part, given: Given) -> Task:
        """Run a part on the next host that may run it."""
        if self.lost:
            self.lost -= 1
            return Task(None)
        able = [name for name in self.there if name not in self.unusable]
        self._turn += 1
        host = part.host or able[self._turn % len(able)]
        if host in self.refuses:
            return Task(PartOutcome(host, error=DbbenchError(self.refuses[host]).as_data()))
        self.ran.append((host, part.name))
        files = self._run(host, part.run, given)
        if host in self.damages:
            files = {name: content[: len(content) // 2] for name, content in files.items()}
        return Task(PartOutcome(host, files))

    def _run(self, host: str, run: Run, given: Given) -> dict[str, bytes]:
        """Finish the trials of a part in the host's folder."""
        order = _without(run.order, self.left_out)
        run = dataclasses.replace(run, host={"hostname": host, "kernel": "6.1"}, order=order)
        folder = self.folder / host / run.name
        if not folder.exists():
            (self.folder / host).mkdir(parents=True, exist_ok=True)
            results.create_run(self.folder / host, run, given.plan)
        results.save_spec(folder, run)
        for spec in run.order:
            if not (folder / "trials" / spec.id).exists():
                self._publish(folder, host, spec)
        return pack(folder)

    def _publish(self, folder: Path, host: str, spec: TrialSpec) -> None:
        trial_folder = folder / "trials" / spec.id
        (trial_folder / "raw").mkdir(parents=True)
        arm = spec.cell.partition(".")[0]
        status = "suspect" if spec.id in self.suspect else "ok"
        made = trial(
            arm,
            spec.block,
            9.5,
            id=spec.id,
            run="f",
            host=host,
            position=spec.position,
            attempt=spec.attempt,
            status=status,
        )
        content = {"trial.json": json.dumps(plain(made)), "raw/pgbench.out": "x" * 9000}
        for name, text in content.items():
            (trial_folder / name).write_text(text)
        sums = [f"{sha256(trial_folder / name, trial_folder)}  {name}\n" for name in content]
        (trial_folder / "SHA256SUMS").write_text("".join(sums))
