"""What `dbbench fleet run`, `collect` and `stop` do: find or start the fleet, reach its hosts, run it to its end."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dbbench import __version__, errors, results
from dbbench.fleet import ledger, processes, security
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.ledger import Fleet
from dbbench.fleet.processes import Reach
from dbbench.fleet.room import Halt
from dbbench.fleet.transport import Dask, Lasting
from dbbench.model import Budget, Run
from dbbench.model.events import Emit, Event
from dbbench.plan import ordered
from dbbench.plan.forecast import foreseen
from dbbench.plan.request import Asked
from dbbench.report.progress.fleet import renderer
from dbbench.run.create import free_name, must_be_of, refine, scripts_of
from dbbench.run.preflight import UNTOUCHED
from dbbench.units import iso

_START_S: Final = 60.0  # time limit for the start of hosts on this machine
_ANSWER_S: Final = 30.0


@dataclasses.dataclass(frozen=True)
class FleetOrder:
    """What a fleet is to run."""

    asked: Asked
    mode: str  # "each" or "spread"
    name: str | None  # name of the fleet
    new: bool  # start a new fleet even if one with this plan can be resumed
    precision: float | None
    least_hosts: int
    wipe: tuple[str, ...]  # devices that may be erased
    gone_after_s: float


def resumed(root: Path, order: FleetOrder) -> Fleet | None:
    """Return the fleet of that plan that the command resumes, or None if it starts a new one.

    Raises PlanInvalid, RunNameTaken, RunLocked.
    """
    foreseen(order.asked.plan, order.asked.expanded)  # refuses a budget that is too short before anything starts
    if order.asked.plan.client is not None:
        raise errors.PlanInvalid("[client] names the address of one machine, but a fleet has several", effect=UNTOUCHED,
                          remedy="Remove [client], or run the plan on each machine with `dbbench run`.")  # fmt: skip
    fleet = _existing(root, order)
    if fleet is not None and (order.precision is not None or not fleet.finished):
        _must_match(root, fleet, order.asked)
    return fleet if fleet is None or order.precision is None else _refined(root, fleet, order.precision)


def work(root: Path, order: FleetOrder, fleet: Fleet | None, reach: Reach,
         show: Callable[[], contextlib.AbstractContextManager[Emit]]) -> Fleet:  # fmt: skip
    """Run the plan on its hosts until every trial has been collected; return the fleet.

    Raises FleetUnreachable, HostLost; Interrupted or Terminated on a signal.
    """
    name = fleet.name if fleet else order.name or free_name(root, order.asked.plan.name)
    with (
        ledger.coordinating(root, name),
        _detachable(reach.ends) as stop,
        _engine(reach, ledger.folder_of(root, name), fleet, stop) as (engine, hosts, address),
    ):
        if fleet is None:
            present_hosts = processes.waited(engine, lambda present: len(present) >= order.least_hosts, _START_S)
            fleet = _made(root, order, name, hosts or sorted(present_hosts), address)
        if fleet.detached != reach.detach:
            fleet = dataclasses.replace(fleet, detached=reach.detach)
            ledger.save(root, fleet)
        with show() as emit:
            for text in _announced(root, order, fleet):
                emit(Event("note", {"text": text}))
            _must_match(root, fleet, order.asked)
            Coordinator(root, fleet, order.asked.text, scripts_of(order.asked), engine, emit, wipe=order.wipe,
                        gone_after_s=order.gone_after_s).work()  # fmt: skip
    return fleet


@contextlib.contextmanager
def _engine(reach: Reach, folder: Path, fleet: Fleet | None, stop: _Stop) -> Iterator[tuple[Lasting, list[str], str]]:
    """Yield the engine, the hosts that dbbench starts itself, and the address of their scheduler.

    What was started ends with the block, unless the block is stopped: then it stays for the next coordinator.
    """
    if reach.scheduler is not None:
        address = security.whole(reach.scheduler)
        Dask(address, reach.certs).close()  # reports an unreachable scheduler at once
        engine = Lasting(lambda: Dask(address, reach.certs), lambda _: stop.check())
        try:
            yield engine, [], ""
        finally:
            engine.close()
        return
    before = fleet.scheduler if fleet else ""
    with contextlib.ExitStack() as stack:
        certs = reach.certs
        if certs is None:
            certs = security.folder_of_fleet(folder)
            stack.callback(shutil.rmtree, security.made(certs), ignore_errors=True)
        security.files_of(certs)  # reports missing certificates before anything starts
        if reach.local is not None:
            address = before if before and security.is_loopback(before) else processes.free_address()
            workers = processes.local(address, reach, certs, folder)
        else:
            address = before or (security.whole(reach.listen) if reach.listen else processes.own_address())
            workers = processes.by_ssh(address, reach, certs, folder)
        upkeep = processes.Upkeep(stack, processes.scheduler(address, certs, folder), workers, reach.ends)

        def see(at: Lasting) -> None:
            stop.check()
            upkeep(at)

        engine = Lasting(lambda: Dask(address, certs), see)
        missing = set(workers) - processes.waited(engine, lambda found: found >= set(workers), _START_S)
        if missing and fleet is None:
            raise errors.FleetUnreachable(
                f"no worker started on {', '.join(sorted(missing))}",
                effect="Nothing was started.",
                remedy=f"See {', '.join(str(workers[name].log) for name in sorted(missing))}.",
            )
        yield engine, sorted(workers), address
        engine.end()


def _existing(root: Path, order: FleetOrder) -> Fleet | None:
    """Return the fleet that the command resumes, or None if it starts a new one. Raises RunNameTaken."""
    same, name = (
        [f for f in ledger.fleets(root) if (f.plan_sha256, f.mode) == (order.asked.sha256, order.mode)],
        order.name,
    )
    if name is None:
        return None if order.new or not same else ([f for f in same if not f.finished] or same)[-1]
    for fleet in same:
        if fleet.name == name:
            return fleet
    if (root / name).exists() or ledger.folder_of(root, name).joinpath("fleet.json").exists():
        raise errors.RunNameTaken(f"{name} in {root} is another run, or a fleet of another plan or mode",
                           effect="Nothing was changed.", remedy="Give another --name.")  # fmt: skip
    return None


def _must_match(root: Path, fleet: Fleet, request: Asked) -> None:
    """Check that the runs of the fleet are those of the user's plan. Raises RunLocked."""
    for name in ledger.run_names(fleet):
        must_be_of(results.RunFolder(root / name), request)


def _refined(root: Path, fleet: Fleet, precision: float) -> Fleet:
    """Return the fleet with that precision. A finished fleet that is less precise is resumed. Raises RunLocked."""
    with ledger.coordinating(root, fleet.name):
        folder = results.RunFolder(root / fleet.name)
        refine(folder, precision, _budget_s(root, fleet))
        fleet = dataclasses.replace(fleet, finished=fleet.finished and not folder.pending)
        ledger.save(root, fleet)
    return fleet


def _announced(root: Path, order: FleetOrder, fleet: Fleet) -> list[str]:
    """Return lines about the budget: what it is expected to allow, or that the fleet keeps its first budget."""
    _, _, allowance = foreseen(order.asked.plan, order.asked.expanded)
    if allowance is None:
        return []
    if _budget_s(root, fleet) != allowance.budget_s:
        return [f"fleet {fleet.name} keeps its original budget; --new starts another fleet"]
    return [f"on each host: {allowance.text}"]


def _budget_s(root: Path, fleet: Fleet) -> float | None:
    """Return the budget of a fleet, which applies to each of its hosts."""
    return results.load_spec(root / ledger.run_names(fleet)[0]).plan.budget_s


def _made(root: Path, order: FleetOrder, name: str, hosts: list[str], address: str) -> Fleet:
    request = order.asked
    if not hosts:
        raise errors.FleetUnreachable("no fleet worker is connected to the scheduler", effect="Nothing was started.",
                               remedy="On each host:  dbbench fleet worker ADDRESS")  # fmt: skip
    plan, cells, trials = request.plan, request.expanded.cells, request.expanded.order
    # Each host gets one block and adds others while its budget lasts.
    if plan.budget_s is not None and order.mode == "spread":
        trials = tuple(ordered(cells, max(plan.blocks, len(hosts)), plan.seed))
    dealt = ledger.deal(trials, hosts, order.mode)
    fleet = Fleet(
        name, "each" if order.mode == "each" else "spread", iso(time.time()), request.sha256, dealt, scheduler=address
    )
    run = Run(name, fleet.created, plan, request.sha256, cells, trials, dbbench_version=__version__,
              precision=order.precision, budget=None if plan.budget_s is None else Budget(),
              skipped=request.skipped)  # fmt: skip
    ledger.save(root, fleet)
    ledger.create_runs(root, fleet, run, request.text, scripts_of(request))
    return fleet


class _Stop:
    """Stores SIGINT or SIGTERM; `check` raises it between two answers, when nothing is half done. A second signal
    interrupts at once."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number

    def check(self) -> None:
        """Raise Interrupted or Terminated if a signal has arrived."""
        if self.number is not None:
            raise (errors.Interrupted if self.number == signal.SIGINT else errors.Terminated)("stopped on request")


@contextlib.contextmanager
def _detachable(ends: bool) -> Iterator[_Stop]:
    """Stop the coordinator on a signal, but not the hosts; with `ends` they stop after their current trial."""
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except (KeyboardInterrupt, errors.Interrupted, errors.Terminated) as stopped:
        raise (type(stopped) if isinstance(stopped, errors.DbbenchError) else errors.Interrupted)(
            "the coordinator was stopped",
            effect="The hosts on this machine stop after their current trial; collected results are kept."
            if ends
            else "The hosts continue with their blocks; collected results are kept.",
            remedy=f"Resume it with:  dbbench {shlex.join(sys.argv[1:])}\nTo stop the hosts:  dbbench fleet stop",
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def collect(root: Path, fleet: Fleet, address: str, certs: Path | None) -> tuple[int, int]:
    """Ask each host once for all its finished trials; return the number of collected trials, and of all trials."""
    engine = Lasting(lambda: Dask(address, _certs(root, fleet, certs)), lambda _: None)
    if not engine.connect(0.0):
        raise errors.FleetUnreachable(f"no scheduler at {address}")
    run = results.load_spec(root / ledger.run_name(fleet, next(iter(fleet.dealing))))
    with ledger.coordinating(root, fleet.name), renderer("plain", sys.stderr) as emit:
        engine.hosts()
        at_work = Coordinator(root, fleet, "", {}, engine, emit, patience_s=_ANSWER_S / 2)
        at_work.collect(_ANSWER_S)
        engine.close()
    return sum(len(book.taken) for book in at_work.books.values()), len(run.order)


def halt(root: Path, fleet: Fleet, address: str, certs: Path | None) -> list[str]:
    """Ask the hosts to stop; return those that answered."""
    engine = Dask(address, _certs(root, fleet, certs))
    there = sorted(set(engine.hosts()) & set(fleet.dealing))
    for host in there:
        engine.ask(host, Halt(ledger.run_name(fleet, host)))
    answered, until = list[str](), time.monotonic() + _ANSWER_S
    while len(answered) < len(there) and time.monotonic() < until:
        answered += [host for host, _ in engine.answers(1.0)]
    engine.close()
    return sorted(answered)


def _certs(root: Path, fleet: Fleet, certs: Path | None) -> Path | None:
    """Return the directory of certificates: `certs`, or that of the fleet's coordinator."""
    made = security.folder_of_fleet(ledger.folder_of(root, fleet.name))
    return certs or (made if made.is_dir() else None)
