"""What `dbbench fleet run`, `collect` and `stop` do: choose or make the fleet, find its hosts, conclude."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from dbbench import __version__, results
from dbbench.commands.finding import report_of
from dbbench.commands.options import Options
from dbbench.errors import (
    EXIT_OK,
    EXIT_TRIAL_FAILED,
    DbbenchError,
    FleetUnreachable,
    Interrupted,
    PlanInvalid,
    RunNameTaken,
    Terminated,
)
from dbbench.fleet import dealing, ledger, processes, security, showing
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.ledger import Fleet
from dbbench.fleet.messages import Halt
from dbbench.fleet.transport import Dask, Lasting
from dbbench.metrics.clock import iso
from dbbench.model import Run, Status
from dbbench.plan.catalog import MOST_SCRIPT
from dbbench.plan.request import Asked, asked
from dbbench.report.text import put, put_json
from dbbench.results.fileio import given_text
from dbbench.run.create import free_name, refine
from dbbench.run.preflight import UNTOUCHED
from dbbench.units import seconds_of

_START_S: Final = 60.0  # for hosts that we start
_ANSWER_S: Final = 30.0


def drive(
    options: Options, *, plan_file: str, results_folder: str, scheduler: str | None, ssh: str | None, local: int | None,
    mode: str | None, least: int | None, gone_after: str, listen: str | None, remote: str, host_results: str,
    certs: str | None, new: bool, name: str | None, detach: bool, wipe: tuple[str, ...], progress: str,
    precision: float | None, **narrowing: Any,
) -> int:  # fmt: skip
    """Drive the plan on its hosts, write the page, print the verdict; 1 where a trial failed."""
    if sum(word is not None for word in (scheduler, ssh, local)) != 1 or mode is None:
        raise click.UsageError("give one of --scheduler, --ssh and --local, and one of --each and --spread")
    if detach and local is None:
        raise click.UsageError("--detach has no effect without --local: hosts on other machines always continue")
    if precision is not None and mode == "each":
        raise click.UsageError("--until-precision requires --spread")
    wanted, root = asked(plan_file, options.paths, **narrowing), Path(results_folder).resolve()
    if wanted.plan.client is not None:
        raise PlanInvalid("[client] names the address of one machine, but a fleet has several", effect=UNTOUCHED,
                          remedy="Remove [client], or run the plan on each machine with `dbbench run`.")  # fmt: skip
    fleet = _known(root, wanted, mode, name=name, new=new)
    if fleet is not None and precision is not None:
        fleet = _refined(root, fleet, precision)
    if fleet is not None and fleet.finished:
        click.echo(f"fleet {fleet.name} is already finished; --new starts another", err=True)
        return conclude(options, root, fleet)
    called = fleet.name if fleet else name or free_name(root, wanted.plan.name)
    how = _How(root, called, scheduler, ssh, local, listen, remote, host_results,
               Path(certs).resolve() if certs else None, ends=local is not None and not detach)  # fmt: skip
    with (
        ledger.coordinating(root, called),
        _detachable(how.ends) as stop,
        _engine(how, fleet, stop) as (engine, hosts, address),
    ):
        if fleet is None:
            names = sorted(processes.waited(engine, lambda found: len(found) >= (least or 1), _START_S))
            fleet = _made(root, wanted, mode, called, hosts or names, address, precision)
        if fleet.detached != detach:
            fleet = dataclasses.replace(fleet, detached=detach)
            ledger.save(root, fleet)
        kind = "none" if options.quiet and progress == "auto" else progress
        with showing.renderer(kind, sys.stderr, color=not options.no_color) as emit:
            Coordinator(root, fleet, wanted.text, _scripts(wanted), engine, emit, wipe=wipe,
                        gone_after_s=seconds_of(gone_after)).work()  # fmt: skip
    return conclude(options, root, fleet)


@dataclasses.dataclass(frozen=True)
class _How:
    """How hosts are reached."""

    root: Path
    name: str
    scheduler: str | None
    ssh: str | None
    local: int | None
    listen: str | None
    remote: str
    host_results: str
    certs: Path | None
    ends: bool  # what works on this machine ends with this command


@contextlib.contextmanager
def _engine(how: _How, fleet: Fleet | None, stop: _Stop) -> Iterator[tuple[Lasting, list[str], str]]:
    """(engine, hosts that we start ourselves, address of their scheduler); what we started ends with the block,
    unless the block ends by being stopped: then it stays for the next coordinator."""
    folder = ledger.folder_of(how.root, how.name)
    if how.scheduler is not None:
        address = security.whole(how.scheduler)
        secured = security.of(address, how.certs)
        Dask(address, secured).close()  # what cannot be reached at all is told at once
        engine = Lasting(lambda: Dask(address, secured), lambda _: stop.check())
        try:
            yield engine, [], ""
        finally:
            engine.close()
        return
    before = fleet.scheduler if fleet else ""
    if how.local is not None:
        address = before or processes.free_address()
        workers = processes.local(address, how.local, folder)
    else:
        address = before or (security.whole(how.listen) if how.listen else processes.own_address())
        words = [word.strip() for word in (how.ssh or "").split(",") if word.strip()]
        workers = processes.by_ssh(address, words, how.certs, folder, how.remote, how.host_results)
    secured = security.of(address, how.certs)
    with contextlib.ExitStack() as stack:
        upkeep = processes.Upkeep(stack, processes.scheduler(address, how.certs, folder), workers, how.ends)

        def see(at: Lasting) -> None:
            stop.check()
            upkeep(at)

        engine = Lasting(lambda: Dask(address, secured), see)
        missing = set(workers) - processes.waited(engine, lambda found: found >= set(workers), _START_S)
        if missing and fleet is None:
            raise FleetUnreachable(
                f"no worker came up for {', '.join(sorted(missing))}",
                effect="Nothing was started.",
                remedy=f"See {', '.join(str(workers[name].log) for name in sorted(missing))}.",
            )
        yield engine, sorted(workers), address
        engine.end()


def _known(root: Path, wanted: Asked, mode: str, *, name: str | None, new: bool) -> Fleet | None:
    """The fleet that the command goes on with; None: a new one. RunNameTaken."""
    mine = [f for f in ledger.fleets(root) if f.plan_sha256 == wanted.sha256 and f.mode == mode]
    if name is None:
        return None if new or not mine else ([f for f in mine if not f.finished] or mine)[-1]
    for fleet in mine:
        if fleet.name == name:
            return fleet
    if (root / name).exists() or ledger.folder_of(root, name).joinpath("fleet.json").exists():
        raise RunNameTaken(f"{name} in {root} is another run, or a fleet of another plan or mode",
                           effect="Nothing was changed.", remedy="Give another --name.")  # fmt: skip
    return None


def _refined(root: Path, fleet: Fleet, precision: float) -> Fleet:
    """The fleet of which that precision is asked; one that is finished, but not that precise, goes on. RunLocked."""
    with ledger.coordinating(root, fleet.name):
        refine(root / fleet.name, precision)
        left = results.load_run(root / fleet.name, verify=False).unfinished
        fleet = dataclasses.replace(fleet, finished=fleet.finished and not left)
        ledger.save(root, fleet)
    return fleet


def _made(
    root: Path, wanted: Asked, mode: str, name: str, hosts: list[str], address: str, precision: float | None
) -> Fleet:
    if not hosts:
        raise FleetUnreachable("the scheduler has no worker of a fleet", effect="Nothing was started.",
                               remedy="On each host:  dbbench fleet worker ADDRESS")  # fmt: skip
    dealt = dealing.deal(wanted.expanded.order, hosts, mode)
    fleet = Fleet(
        name, "each" if mode == "each" else "spread", iso(time.time()), wanted.sha256, dealt, scheduler=address
    )
    run = Run(name, fleet.created, wanted.plan, wanted.sha256, wanted.expanded.cells, wanted.expanded.order,
              dbbench_version=__version__, precision=precision)  # fmt: skip
    ledger.save(root, fleet)
    ledger.create_runs(root, fleet, run, wanted.text, _scripts(wanted))
    return fleet


def _scripts(wanted: Asked) -> dict[str, str]:
    paths = [Path(cell.workload.script) for cell in wanted.expanded.cells]
    return {path.name: given_text(path, MOST_SCRIPT) for path in paths if path.is_absolute()}


class _Stop:
    """SIGINT and SIGTERM are looked for between two answers, where nothing is half done; a second one at once."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number

    def check(self) -> None:
        """Raise Interrupted or Terminated once a signal came."""
        if self.number is not None:
            raise (Interrupted if self.number == signal.SIGINT else Terminated)("stopped on request")


@contextlib.contextmanager
def _detachable(ends: bool) -> Iterator[_Stop]:
    """Being stopped is no end: the hosts go on. `ends`: they end after the trial that they are in."""
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except (KeyboardInterrupt, Interrupted, Terminated) as stopped:
        raise (type(stopped) if isinstance(stopped, DbbenchError) else Interrupted)(
            "the coordinator was stopped",
            effect="The hosts on this machine stop after their current trial; collected results are kept."
            if ends
            else "The hosts continue with their blocks; collected results are kept.",
            remedy=f"Resume it with:  dbbench {shlex.join(sys.argv[1:])}\nTo stop the hosts:  dbbench fleet stop",
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def take_home(options: Options, fleet: Fleet, root: Path, address: str, certs: Path | None) -> int:
    """Ask each host once for all it has finished."""
    engine = Lasting(lambda: Dask(address, security.of(address, certs)), lambda _: None)
    if not engine.connect(0.0):
        raise FleetUnreachable(f"no scheduler at {address}")
    run = results.load_spec(root / ledger.run_name(fleet, next(iter(fleet.dealing))))
    with ledger.coordinating(root, fleet.name), showing.renderer("plain", sys.stderr) as emit:
        engine.hosts()
        at_work = Coordinator(root, fleet, "", {}, engine, emit, patience_s=_ANSWER_S / 2)
        at_work.collect(_ANSWER_S)
        engine.close()
    home = sum(len(book.taken) for book in at_work.books.values())
    if options.json:
        put_json({"name": fleet.name, "trials": home, "of": len(run.order)})
    else:
        put(f"{fleet.name}: {home} trials collected")
    return EXIT_OK


def halt(fleet: Fleet, address: str, certs: Path | None) -> list[str]:
    """Ask the hosts to stop; those that answered."""
    engine = Dask(address, security.of(address, certs))
    there = sorted(set(engine.hosts()) & set(fleet.dealing))
    for host in there:
        engine.ask(host, Halt(ledger.run_name(fleet, host)))
    said, until = list[str](), time.monotonic() + _ANSWER_S
    while len(said) < len(there) and time.monotonic() < until:
        said += [host for host, _ in engine.answers(1.0)]
    engine.close()
    return sorted(said)


def conclude(options: Options, root: Path, fleet: Fleet) -> int:
    """Write the page of all hosts and print the verdict; 1 where a trial failed."""
    from dbbench.commands.report import write
    from dbbench.report import verdicts as made

    runs = [results.load_run(root / name) for name in ledger.run_names(fleet)]
    page = write(runs, report_of(runs[0].path if len(runs) == 1 else ledger.folder_of(root, fleet.name)))
    found = made.verdicts(runs)
    trials = [trial for run in runs for trial in run.trials]
    counts = {status.value: sum(trial.status is status for trial in trials) for status in Status}
    if options.json:
        put_json({"fleet": fleet.name, "mode": fleet.mode, "runs": [run.path.name for run in runs],
                  "report": str(page), **counts, "compare": made.as_document(found)})  # fmt: skip
    else:
        made.put_tables(found)
        put()
        put(f"{counts['ok']} trials ok, {counts['suspect']} suspect, {counts['failed']} failed; page: {page}")
    return EXIT_TRIAL_FAILED if counts["failed"] else EXIT_OK
