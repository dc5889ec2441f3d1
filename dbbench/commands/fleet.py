"""`dbbench fleet`: a plan on several machines."""

from __future__ import annotations

import importlib.util
import os
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from dbbench import packages, results
from dbbench.commands.finding import REPORT
from dbbench.commands.options import (
    Options,
    Time,
    Whole,
    command_group,
    command_line,
    plan_argument,
    plan_options,
    precision_option,
    progress_option,
    results_option,
)
from dbbench.commands.resuming import resumable, resume_command
from dbbench.errors import ProgramMissing, RunMissing
from dbbench.fleet import fleet_files, security
from dbbench.fleet.fleet_files import Fleet
from dbbench.machine import namespaces
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.request import load_request
from dbbench.report.progress.hosts import HOST_HEADER, host_cells, renderer
from dbbench.report.text import put, put_json, put_table
from dbbench.units import count, seconds_of

certs_option = click.option(
    "--certs",
    type=click.Path(path_type=Path, allow_dash=True, resolve_path=True),
    metavar="DIR",
    help="Directory of the certificates, or - for standard input [default: the fleet's, or "
    "~/.config/dbbench/fleet].",
)


@command_group
def command() -> None:
    """Run a plan on several machines with dask.distributed (extra `fleet`)."""


@command_line(
    "dbbench fleet run --ssh db1,db2 --each       the whole plan on each of them",
    "dbbench fleet run --ssh db1,db2 --spread     its blocks, shared by them",
    name="run",
    statuses=(0, 1, 2, 5, 130, 143),
)
@plan_argument
@plan_options
@results_option
@click.option("--scheduler", metavar="ADDRESS", help="Use a running scheduler with its workers.")
@click.option(
    "--ssh",
    metavar="HOST,..",
    help="Start a scheduler here and a worker on each of these hosts.",
)
@click.option(
    "--local",
    type=Whole(1),
    metavar="N",
    help="Start N workers on this machine (for a trial).",
)
@click.option("--each", "mode", flag_value="each", help="Run the whole plan on every host.")
@click.option(
    "--spread",
    "mode",
    flag_value="spread",
    default=None,
    help="Distribute the plan's blocks over the hosts.",
)
@precision_option
@click.option(
    "--hosts",
    "least",
    type=Whole(1),
    metavar="N",
    help="With --scheduler: wait for this many hosts.",
)
@click.option(
    "--gone-after",
    type=Time(),
    default="10m",
    show_default=True,
    help="Give up what no host can run for this long, because hosts are gone.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="With --ssh: address of the scheduler [default: this machine's name, with TLS].",
)
@click.option(
    "--dbbench",
    "remote",
    default="dbbench",
    show_default=True,
    help="With --ssh: the dbbench command on the hosts.",
)
@click.option(
    "--host-results",
    default="dbbench-fleet",
    show_default=True,
    help="With --ssh: results folder on the hosts.",
)
@certs_option
@click.option("--new", is_flag=True, help="Start a new fleet even if one can be resumed.")
@click.option("--name", metavar="RUN", help="Name of the fleet; a fleet of that name is resumed.")
@click.option(
    "--wipe",
    multiple=True,
    metavar="ID",
    help="Allow this device of a host to be erased; ID as `dbbench doctor` prints it.",
)
@progress_option
def run(options: Options, **given: Any) -> int:
    """Run a plan on several hosts and collect the results; the same command resumes it.

    A part of a plan (a block, or with --each the whole plan of a host) runs again, on another host
    if that may run it, when its host's worker dies. When this command ends, hosts stop their
    trials.
    """
    # What the options contradict is refused before anything is read.
    needs_engine()
    if (
        sum(given[way] is not None for way in ("scheduler", "ssh", "local")) != 1
        or given["mode"] is None
    ):
        raise click.UsageError(
            "exactly one of --scheduler, --ssh and --local, and one of --each and --spread, is "
            "required"
        )
    if given["precision"] is not None and given["mode"] == "each":
        raise click.UsageError("--until-precision requires --spread")
    from dbbench.fleet import operate
    from dbbench.fleet.launch import HostOptions

    root = options.results_folder.resolve()
    narrowing = Narrowing(
        given["fs"],
        given["blocks"],
        given["budget"],
        given["seed"],
        given["quick"],
        given["only"],
    )
    # What to run, and on which hosts.
    request = operate.FleetRequest(
        load_request(given["plan_file"], options.paths, narrowing),
        given["mode"],
        given["name"],
        given["new"],
        given["precision"],
        given["least"] or 1,
        given["wipe"],
        seconds_of(given["gone_after"]),
    )
    hosts = HostOptions(
        given["scheduler"],
        given["ssh"],
        given["local"],
        given["listen"],
        given["remote"],
        given["host_results"],
        given["certs"],
    )
    # The newest unfinished fleet of this plan is resumed.
    fleet = operate.choose(root, request)
    if fleet is not None and fleet.finished:
        click.echo(f"fleet {fleet.name} is already finished; --new starts another", err=True)
    else:
        with resumable(
            resume_command(options),
            "the fleet",
            "The hosts stop their trials; finished trials are kept.",
        ):
            fleet = operate.work(root, request, fleet, hosts, partial(options.shown, renderer))
    return conclude(options, root, fleet)


@command_line(
    "dbbench fleet worker tls://coordinator.lan --results /var/lib/dbbench", name="worker"
)
@click.argument("address")
@click.option(
    "--name",
    metavar="NAME",
    help="Name of this host in the results [default: its hostname].",
)
@click.option(
    "--give-up",
    type=float,
    metavar="SECONDS",
    help="Exit if no scheduler answered for this long.",
)
@certs_option
@results_option
def worker(
    options: Options,
    address: str,
    name: str | None,
    give_up: float | None,
    certs: Path | None,
) -> None:
    """Make this machine a host of the fleet whose scheduler is at ADDRESS, until it is stopped."""
    needs_engine()
    if namespaces.PARENT in os.environ:
        # The coordinator of a fleet on this machine has started it, and it ends with that.
        namespaces.die_with_parent()
    from dbbench.fleet import daemons

    host_name = security.valid_name(name or os.uname().nodename)
    daemons.work(address, host_name, options.results_folder, certs, give_up)


@command_line("dbbench fleet scheduler --listen tls://coordinator.lan", name="scheduler")
@click.option(
    "--listen",
    default="tls://127.0.0.1:8786",
    metavar="ADDRESS",
    show_default=True,
    help="Address to listen on.",
)
@certs_option
def scheduler(options: Options, listen: str, certs: Path | None) -> None:
    """Run a scheduler with TLS. If the directory of the certificates does not exist, it is made."""
    needs_engine()
    from dbbench.fleet import daemons

    listen = security.whole(listen)  # refused before anything is made
    folder = security.make(certs)
    there = ".config/dbbench/fleet"
    if certs is None and not security.is_loopback(listen):
        give = (
            f"tar -C {shlex.quote(str(folder))} -c . | ssh HOST 'mkdir -p {there} && tar -C "
            f"{there} -x'"
        )
        put(f"A worker needs the same certificates:  {give}")
    daemons.schedule(listen, folder)


@command_line("dbbench fleet status", name="status")
@click.argument("name", metavar="[RUN]", required=False)
@results_option
def status(options: Options, name: str | None) -> None:
    """Show the hosts of a fleet as its scheduler knows them: trial, last event."""
    needs_engine()
    root = options.results_folder.resolve()
    fleet = chosen(root, name)
    from dbbench.fleet.operate import report

    # Only a scheduler knows what the hosts do; a finished fleet has none.
    rows = None if fleet.finished else report(fleet)
    collected = sum(len(results.list_results(root / run)) for run in fleet.runs)
    if options.json:
        put_json(
            {
                "name": fleet.name,
                "mode": fleet.mode,
                "finished": fleet.finished,
                "scheduler": rows is not None,
                "collected": collected,
                "hosts": rows or [],
            }
        )
        return
    put(f"fleet {fleet.name}: {count(collected, 'trial')} collected")
    if rows:
        put_table(HOST_HEADER, [host_cells(row, time.time()) for row in rows])
    if rows is None and not fleet.finished:
        put("No scheduler answers. The same `fleet run` command resumes.")


@command_line("dbbench fleet stop", name="stop")
@click.argument("name", metavar="[RUN]", required=False)
@results_option
def stop(options: Options, name: str | None) -> None:
    """Stop a fleet: its hosts stop their trials cleanly, and its coordinator ends.

    Finished trials are kept, and `fleet run` resumes. Keys that a killed coordinator has left are
    removed.
    """
    needs_engine()
    root = options.results_folder.resolve()
    fleet = chosen(root, name)
    from dbbench.fleet.operate import keys_of
    from dbbench.fleet.operate import stop as stop_fleet

    keys = keys_of(root, fleet.name)
    had_keys = keys.is_dir()
    stopped = stop_fleet(root, fleet)
    for host_name in stopped:
        put(f"{host_name}: stopped")
    if not stopped:
        put(f"no host runs trials of fleet {fleet.name}")
    if had_keys and not keys.is_dir():
        put(f"removed the keys of a killed coordinator: {keys}")


for each in (run, worker, scheduler, status, stop):
    command.add_command(each)


def needs_engine() -> None:
    """Raise ProgramMissing if dask.distributed is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise ProgramMissing("dask.distributed is not installed", remedy=packages.extra("fleet"))


def chosen(results_folder: Path, name: str | None) -> Fleet:
    """Return the fleet of that name, or the newest one. Raises RunMissing."""
    if name is not None:
        return fleet_files.load(results_folder, name)
    fleets = fleet_files.fleets(results_folder)
    if not fleets:
        raise RunMissing(
            f"there is no fleet in {results_folder}", remedy="Start one:  dbbench fleet run PLAN"
        )
    return fleets[-1]


def conclude(options: Options, root: Path, fleet: Fleet) -> int:
    """Write the page of all hosts and print the verdict; return 1 if a trial failed."""
    # imported here, because a worker does not need them
    from dbbench.commands.report import put_verdict, write

    runs = [results.load_run(root / name) for name in fleet.runs]
    folder = runs[0].path if len(runs) == 1 else fleet_files.folder_of(root, fleet.name)
    page = write(runs, folder / REPORT)
    return put_verdict(
        options,
        runs,
        page,
        {"fleet": fleet.name, "mode": fleet.mode, "runs": fleet.runs},
    )
