"""What `dbbench fleet run`, `status` and `stop` do: resume a fleet or make a new one, run it to its
end, report and stop it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

from dbbench import __version__, errors, process, results
from dbbench.fleet import fleet_files, security
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.launch import Cluster, HostOptions, cluster
from dbbench.fleet.parts import Given, parts_of
from dbbench.fleet.scheduler import Hosts, Scheduler
from dbbench.model import Budget, Run
from dbbench.model.base import NAME, NAME_RULE
from dbbench.model.events import Emit, Event
from dbbench.plan.forecast import apply_budget
from dbbench.plan.planned_conditions import limits
from dbbench.plan.request import PlanRequest
from dbbench.run.children import stoppable
from dbbench.run.create import free_name, must_be_of, scripts_of
from dbbench.units import iso

_START_S: Final = 60.0  # time to wait for the first hosts
_LOOK_S: Final = 0.5


@dataclasses.dataclass(frozen=True)
class FleetRequest:
    """What a fleet is to run."""

    plan: PlanRequest
    mode: Literal["each", "spread"]
    name: str | None  # name of the fleet
    new: bool  # start a new fleet even if one with this plan can be resumed
    precision: float | None
    least_hosts: int
    wipe: tuple[str, ...]  # devices that may be erased
    gone_after_s: float


def choose(root: Path, request: FleetRequest) -> Fleet | None:
    """Return the fleet of that plan that the command resumes, or None if it starts a new one. A
    finished fleet that is less precise than the request is resumed. Raises PlanInvalid,
    RunNameTaken, RunLocked.
    """
    planned = request.plan
    # A budget that is too short is refused before anything starts.
    apply_budget(planned)
    if planned.plan.client is not None:
        raise errors.PlanInvalid(
            "[client] names the address of one machine, but a fleet has several",
            remedy="Remove [client], or run the plan on each machine with `dbbench run`.",
        )
    if planned.plan.budget_s is not None and request.precision is not None:
        raise errors.PlanInvalid(
            "--until-precision cannot be combined with the budget of a fleet, which each host has "
            "for itself",
            remedy="Remove one of them.",
        )
    fleet = _existing(root, request)
    if fleet is None or (request.precision is None and fleet.finished):
        return fleet
    for run in fleet.runs:
        if (root / run / "run.json").exists():
            must_be_of(results.RunFolder(root / run), planned)
    return dataclasses.replace(fleet, finished=False)


def _existing(root: Path, request: FleetRequest) -> Fleet | None:
    """Return the fleet that the command resumes, or None if it starts a new one. Raises
    RunNameTaken.
    """
    plan = (request.plan.sha256, request.mode)
    name = request.name
    same = [fleet for fleet in fleet_files.fleets(root) if (fleet.plan_sha256, fleet.mode) == plan]
    if name is None and request.new:
        return None
    if name is not None:
        if not NAME.fullmatch(name):
            raise errors.RunNameTaken(f'invalid name of a fleet "{name}": {NAME_RULE}')
        same = [fleet for fleet in same if fleet.name == name]
        used = (root / name, fleet_files.folder_of(root, name) / fleet_files.FILE)
        if not same and any(path.exists() for path in used):
            raise errors.RunNameTaken(
                f"{name} in {root} is another run, or a fleet of another plan or mode",
                remedy="Give another --name.",
            )
    unfinished = [fleet for fleet in same if not fleet.finished]
    return next(reversed(unfinished or same), None)


def work(
    root: Path,
    request: FleetRequest,
    fleet: Fleet | None,
    options: HostOptions,
    show: Callable[[], contextlib.AbstractContextManager[Emit]],
) -> Fleet:
    """Run the plan until all results are imported. Raises FleetUnreachable, HostLost, Interrupted,
    Terminated.
    """
    wanted = request.plan
    # The same name goes on with the fleet that it belongs to.
    name = fleet.name if fleet else request.name or free_name(root, wanted.plan.name)
    folder = fleet_files.folder_of(root, name)
    with (
        fleet_files.coordinating(root, name),
        stoppable(),
        cluster(options, folder) as started,
        contextlib.closing(Scheduler(started.address, started.certs, name)) as scheduler,
    ):
        # The hosts are part of the fleet, which is saved before anything is sent to them.
        hosts = _wait_for_hosts(scheduler, started, request.least_hosts, fleet)
        fleet = fleet or Fleet(
            name,
            request.mode,
            iso(time.time()),
            wanted.sha256,
            tuple(hosts),
            budget_s=wanted.plan.budget_s,
        )
        fleet = dataclasses.replace(
            fleet,
            scheduler=started.address,
            certs=None if started.certs is None else str(started.certs),
        )
        fleet_files.save(root, fleet)
        run = _run_of(root, request, fleet)
        given = Given(wanted.text, scripts_of(wanted), request.wipe)
        with show() as emit:
            # From here on the screen shows what the hosts report.
            for text in _notes(request, fleet):
                emit(Event("note", {"text": text}))
            coordinator = Coordinator(
                root,
                fleet,
                parts_of(fleet, run, wanted),
                run,
                given,
                emit,
                gone_after_s=request.gone_after_s,
            )
            coordinator.work(scheduler)
    # What the hosts of --local have is collected, and their workers have ended.
    shutil.rmtree(folder / fleet_files.HOSTS, ignore_errors=True)
    return coordinator.fleet


def _wait_for_hosts(
    scheduler: Scheduler,
    started: Cluster,
    least: int,
    fleet: Fleet | None,
) -> list[str]:
    """Return the connected hosts, as soon as all of those that dbbench starts, or `least`, are
    there. Raises FleetUnreachable if a new fleet would lack hosts.
    """

    def are_missing() -> bool:
        there = scheduler.hosts()
        return not started.logs.keys() <= there.keys() or len(there) < least

    process.wait_while(are_missing, _START_S, _LOOK_S)
    there = scheduler.hosts().keys()
    missing = sorted(started.logs.keys() - there)
    if fleet is None and missing:
        raise errors.FleetUnreachable(
            f"no worker started on {', '.join(missing)}",
            effect="Nothing was started.",
            remedy=f"See {', '.join(str(started.logs[name]) for name in missing)}.",
        )
    if fleet is None and not there:
        raise errors.FleetUnreachable(
            "no fleet worker is connected to the scheduler",
            effect="Nothing was started.",
            remedy="On each host:  dbbench fleet worker ADDRESS",
        )
    return sorted(there)


def _run_of(root: Path, request: FleetRequest, fleet: Fleet) -> Run:
    """Return the run of which hosts get parts: plan and cells are the user's, never those of a
    results folder. With `spread` and no budget, an earlier start may have added blocks.
    """
    planned = request.plan
    plan = dataclasses.replace(planned.plan, budget_s=fleet.budget_s)
    run = Run(
        fleet.name,
        fleet.created,
        plan,
        planned.sha256,
        planned.expanded.cells,
        planned.expanded.order,
        dbbench_version=__version__,
        precision=request.precision,
        budget=None if plan.budget_s is None else Budget(),
        skipped=planned.skipped,
    )
    folder = root / fleet.name
    if fleet.mode == "each" or run.budget is not None or not (folder / "run.json").exists():
        return run
    stored = results.load_spec(folder)
    if request.precision is not None:
        stored = dataclasses.replace(stored, precision=request.precision, questions={})
        results.save_spec(folder, stored)
    specs = {spec.id: spec for spec in (*run.order, *stored.order)}
    return dataclasses.replace(run, order=tuple(specs.values()))


def _notes(request: FleetRequest, fleet: Fleet) -> Iterator[str]:
    """Yield lines about the budget and the limits of the plan."""
    plan = request.plan.plan
    _, allowance = apply_budget(request.plan)
    if plan.budget_s != fleet.budget_s:
        yield f"fleet {fleet.name} keeps its original budget; --new starts another fleet"
    elif allowance is not None:
        yield f"on each host: {allowance.text}"
    text = limits(plan, request.plan.expanded.cells)
    if text:
        yield text


def report(fleet: Fleet) -> list[dict[str, Any]] | None:
    """Return a row for each host of a fleet; None if no scheduler answers."""
    try:
        scheduler = _connect(fleet)
    except errors.DbbenchError:
        return None
    with contextlib.closing(scheduler):
        hosts = Hosts(set(scheduler.hosts()))
        for when, event in scheduler.past_events():
            if event["kind"] != "stop":
                hosts.follow(when, event)
        return hosts.rows()


def stop(root: Path, fleet: Fleet) -> list[str]:
    """Cancel the parts that hosts are running; return the hosts. If the coordinator was killed,
    its scheduler has ended with it, and the keys that it has left are removed.
    """
    stopped: list[str] = []
    with (
        contextlib.suppress(errors.FleetUnreachable, errors.FileUnreadable),
        contextlib.closing(_connect(fleet)) as scheduler,
    ):
        stopped = scheduler.stop()
    with contextlib.suppress(errors.RunLocked), fleet_files.coordinating(root, fleet.name):
        shutil.rmtree(keys_of(root, fleet.name), ignore_errors=True)
    return stopped


def keys_of(root: Path, name: str) -> Path:
    """Return the directory of the keys that a fleet with its own scheduler has."""
    return security.folder_of_fleet(fleet_files.folder_of(root, name))


def _connect(fleet: Fleet) -> Scheduler:
    certs = None if fleet.certs is None else Path(fleet.certs)
    return Scheduler(fleet.scheduler, certs, fleet.name)
