"""What `dbbench fleet run` and `stop` do: resume a fleet or make a new one, and run it to its end."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import __version__, errors, results
from dbbench.fleet import fleet_files, launch, security
from dbbench.fleet.connection import Connection
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.dealing import first_blocks
from dbbench.fleet.fleet_files import Fleet
from dbbench.fleet.launch import HostOptions
from dbbench.fleet.messages import Assignment, StopRequest
from dbbench.model import Budget, Run
from dbbench.model.events import Emit, Event
from dbbench.plan import make_order
from dbbench.plan.conditions import limits
from dbbench.plan.forecast import apply_budget
from dbbench.plan.request import PlanRequest
from dbbench.run.create import free_name, must_be_of, refine, scripts_of
from dbbench.units import iso

_START_S: Final = 60.0  # time to wait for the hosts of a scheduler
_ANSWER_S: Final = 30.0


@dataclasses.dataclass(frozen=True)
class FleetRequest:
    """What a fleet is to run."""

    plan: PlanRequest
    mode: str  # "each" or "spread"
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
    wanted = request.plan
    # refuses a budget that is too short before anything starts
    apply_budget(wanted.plan, wanted.expanded)
    if wanted.plan.client is not None:
        raise errors.PlanInvalid(
            "[client] names the address of one machine, but a fleet has several",
            remedy="Remove [client], or run the plan on each machine with `dbbench run`.",
        )
    fleet = _existing(root, request)
    if fleet is None or (request.precision is None and fleet.finished):
        return fleet
    _must_match(root, fleet, wanted)
    if request.precision is not None:
        with fleet_files.coordinating(root, fleet.name):
            folder = results.RunFolder(root / fleet.name)
            refine(folder, request.precision, folder.run.plan)
            fleet = dataclasses.replace(fleet, finished=fleet.finished and not folder.pending)
            fleet_files.save(root, fleet)
    return fleet


def work(
    root: Path,
    request: FleetRequest,
    fleet: Fleet | None,
    options: HostOptions,
    show: Callable[[], contextlib.AbstractContextManager[Emit]],
) -> Fleet:
    """Run the plan until all trials are collected. Raises FleetUnreachable, HostLost, Interrupted,
    Terminated.
    """
    wanted = request.plan
    name = fleet.name if fleet else request.name or free_name(root, wanted.plan.name)
    folder = fleet_files.folder_of(root, name)
    before = fleet.scheduler if fleet else None
    with (
        fleet_files.coordinating(root, name),
        _detachable(options.ends_with_coordinator) as check,
        launch.connect(options, folder, before, check) as (connection, hosts, address),
    ):
        if fleet is None:
            hosts = hosts or sorted(
                connection.wait_for_hosts(lambda hosts: len(hosts) >= request.least_hosts, _START_S)
            )
            fleet = _create(root, request, name, hosts, address)
        assignment = Assignment("", b"", wanted.text, scripts_of(wanted), request.wipe, __version__)
        with show() as emit:
            budget = _about_budget(root, request, fleet)
            for text in filter(None, (*budget, limits(wanted.plan, wanted.expanded.cells))):
                emit(Event("note", {"text": text}))
            _must_match(root, fleet, wanted)
            Coordinator(
                root,
                fleet,
                connection,
                assignment,
                emit,
                gone_after_s=request.gone_after_s,
                tied=options.ends_with_coordinator,
            ).work()
    return fleet


def _existing(root: Path, request: FleetRequest) -> Fleet | None:
    """Return the fleet that the command resumes, or None if it starts a new one. Raises
    RunNameTaken.
    """
    plan = (request.plan.sha256, request.mode)
    name = request.name
    same = [fleet for fleet in fleet_files.fleets(root) if (fleet.plan_sha256, fleet.mode) == plan]
    if name is None:
        return (
            None if request.new or not same else ([f for f in same if not f.finished] or same)[-1]
        )
    for fleet in same:
        if fleet.name == name:
            return fleet
    if (root / name).exists() or fleet_files.exists(root, name):
        raise errors.RunNameTaken(
            f"{name} in {root} is another run, or a fleet of another plan or mode",
            remedy="Give another --name.",
        )
    return None


def _must_match(root: Path, fleet: Fleet, wanted: PlanRequest) -> None:
    """Check that the runs of the fleet are those of the user's plan. Raises RunLocked."""
    for name in fleet.runs:
        must_be_of(results.RunFolder(root / name), wanted)


def _about_budget(root: Path, request: FleetRequest, fleet: Fleet) -> list[str]:
    """Return lines about the budget: what it is expected to allow, or that the fleet keeps its
    first budget.
    """
    _, _, allowance = apply_budget(request.plan.plan, request.plan.expanded)
    if allowance is None:
        return []
    if results.load_spec(root / fleet.runs[0]).plan.budget_s != allowance.budget_s:
        return [f"fleet {fleet.name} keeps its original budget; --new starts another fleet"]
    return [f"on each host: {allowance.text}"]


def _create(root: Path, request: FleetRequest, name: str, hosts: list[str], address: str) -> Fleet:
    if not hosts:
        raise errors.FleetUnreachable(
            "no fleet worker is connected to the scheduler",
            effect="Nothing was started.",
            remedy="On each host:  dbbench fleet worker ADDRESS",
        )
    wanted = request.plan
    plan = wanted.plan
    cells = wanted.expanded.cells
    trials = wanted.expanded.order
    # Each host gets one block and adds others while its budget lasts.
    if plan.budget_s is not None and request.mode == "spread":
        trials = tuple(make_order(cells, max(plan.blocks, len(hosts)), plan.seed))
    fleet = Fleet(
        name,
        "each" if request.mode == "each" else "spread",
        iso(time.time()),
        wanted.sha256,
        first_blocks(trials, hosts, request.mode),
        scheduler=address,
    )
    run = Run(
        name,
        fleet.created,
        plan,
        wanted.sha256,
        cells,
        trials,
        dbbench_version=__version__,
        precision=request.precision,
        budget=None if plan.budget_s is None else Budget(),
        skipped=wanted.skipped,
    )
    fleet_files.save(root, fleet)
    fleet_files.create_runs(root, fleet, run, wanted.text, scripts_of(wanted))
    return fleet


@contextlib.contextmanager
def _detachable(tied: bool) -> Iterator[Callable[[], None]]:
    """On SIGINT or SIGTERM stop the coordinator, but not the hosts; `tied` ones stop after their
    current trial. Yield a function that then raises Interrupted or Terminated, for moments
    without half-done work. A second signal: at once.
    """
    arrived = list[int]()

    def note(number: int, _frame: object) -> None:
        if arrived:
            raise KeyboardInterrupt
        arrived.append(number)

    def check() -> None:
        if arrived:
            raise (errors.Interrupted if arrived[0] == signal.SIGINT else errors.Terminated)(
                "stopped on request"
            )

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    except (KeyboardInterrupt, errors.Interrupted, errors.Terminated) as stopped:
        raise (type(stopped) if isinstance(stopped, errors.DbbenchError) else errors.Interrupted)(
            "the coordinator was stopped",
            effect="The hosts on this machine stop after their current trial; collected results are "
            "kept."
            if tied
            else "The hosts continue with their blocks; collected results are kept.",
            remedy=f"Resume it with:  dbbench {shlex.join(sys.argv[1:])}\nTo stop the hosts:  "
            "dbbench fleet stop",
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(root: Path, fleet: Fleet, address: str, certs: Path | None) -> list[str]:
    """Ask the hosts to stop; return those that did. Raises FleetUnreachable."""
    own_certs = security.folder_of_fleet(fleet_files.folder_of(root, fleet.name))
    connection = Connection(address, certs or (own_certs if own_certs.is_dir() else None))
    connection.connect()
    hosts = sorted(connection.hosts().keys() & fleet.blocks.keys())
    for host in hosts:
        connection.ask(host, StopRequest(fleet.run_of(host)))
    answers = dict[str, object]()
    until = time.monotonic() + _ANSWER_S
    while len(answers) < len(hosts) and time.monotonic() < until:
        answers |= dict(connection.answers(1.0))
    connection.close()
    return sorted(host for host, answer in answers.items() if answer is None)
