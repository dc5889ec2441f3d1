"""`dbbench fleet`: one plan over many machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dbbench import store
from dbbench.commands.options import Options, command_line, global_options, results_option
from dbbench.commands.planning import plan_options, precision_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import FleetMissing, RunMissing

certs_option = click.option("--certs", metavar="DIR", help="Certificates; default: ~/.config/dbbench/fleet.")


@click.group()
@global_options
def command() -> None:
    """One plan over many machines, on dask.distributed (the extra `fleet`)."""


@command_line(name="run")
@click.argument("plan_file", metavar="PLAN")
@plan_options
@results_option
@click.option("--scheduler", metavar="ADDRESS", help="A scheduler that runs, with its workers.")
@click.option("--ssh", metavar="HOST,..", help="Start a scheduler here and a worker on each of these.")
@click.option("--local", type=click.IntRange(1), metavar="N", help="N workers on this machine, to try it.")
@click.option("--each", "mode", flag_value="each", help="The whole plan on every host.")
@click.option("--spread", "mode", flag_value="spread", default=None, help="The plan's blocks dealt over the hosts.")
@precision_option
@click.option("--hosts", "least", type=click.IntRange(1), metavar="N", help="Wait for so many; with --scheduler.")
@click.option("--gone-after", default="10m", metavar="TIME", show_default=True, help="A host not heard for that long.")
@click.option("--listen", metavar="ADDRESS", help="Of the scheduler with --ssh; default: this machine's name, TLS.")
@click.option(
    "--dbbench", "remote", default="dbbench", show_default=True, help="What dbbench is called on --ssh hosts."
)
@click.option("--host-results", default="dbbench-fleet", show_default=True, help="Results folder on --ssh hosts.")
@certs_option
@click.option("--new", is_flag=True, help="Start another fleet, also where one could be resumed.")
@click.option("--name", metavar="RUN", help="Its name; a fleet of that name is resumed.")
@click.option("--wipe", multiple=True, metavar="ID", help="This device of a host may be erased: its identity.")
@click.option("--progress", type=click.Choice(["auto", "plain", "json", "none"]), default="auto", show_default=True)
def run(options: Options, **given: Any) -> int:
    """Drive a plan on many hosts and take the results home; the same command goes on with it.

    Hosts go on by themselves when this command, the scheduler or a worker dies. Ctrl-C stops this command only;
    `dbbench fleet stop` stops the hosts.
    """
    from dbbench.commands.fleeting import drive

    needs_engine()
    return drive(options, **given)


@command_line(name="worker")
@click.argument("address")
@click.option("--name", metavar="NAME", help="Of this host in results; default: its hostname.")
@click.option("--give-up", type=float, metavar="SECONDS", help="End when no scheduler was there for so long.")
@certs_option
@results_option
def worker(
    options: Options, address: str, name: str | None, give_up: float | None, certs: str | None, results: str
) -> None:
    """Make this machine a host of the fleet at ADDRESS, until it is stopped."""
    needs_engine()
    from dbbench.fleet import daemons
    from dbbench.fleet.host import named

    daemons.work(_whole(address, certs), named(name or os.uname().nodename), Path(results), _path(certs), give_up)


@command_line(name="scheduler")
@click.option("--listen", default="tcp://127.0.0.1:8786", metavar="ADDRESS", show_default=True)
@certs_option
def scheduler(options: Options, listen: str, certs: str | None) -> None:
    """Run a scheduler: on loopback, or anywhere with certificates (tls://HOST:PORT)."""
    needs_engine()
    from dbbench.fleet import daemons

    daemons.schedule(_whole(listen, certs), _path(certs))


@command_line(name="status")
@click.argument("name", metavar="[RUN]", required=False)
@results_option
def status(options: Options, name: str | None, results: str) -> None:
    """Each host of a fleet: trial, phase, when it will be done, when it was last heard."""
    import time

    from dbbench.fleet import record
    from dbbench.fleet.showing import HEADER, cells
    from dbbench.fleet.summing import standing

    fleet, rows = chosen(Path(results), name), []
    told = record.told(Path(results), fleet.name)
    rows = told.get("hosts", [])
    working = _coordinated(Path(results), fleet.name)
    if options.json:
        put_json({"name": fleet.name, "mode": fleet.mode, "finished": fleet.finished, "coordinator": working,
                  "utc": told.get("utc"), "hosts": rows})  # fmt: skip
        return
    if rows:
        put_table(HEADER, [cells(row, time.time()) for row in rows])
        put(standing(rows))
    if not working and not fleet.finished:
        put("No coordinator is at work: what stands above is as it was last told. The same `fleet run` goes on.")


@command_line(name="collect")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--scheduler", "address", required=True, metavar="ADDRESS")
@certs_option
@results_option
def collect(options: Options, name: str | None, address: str, certs: str | None, results: str) -> int:
    """Take home what the hosts have finished, and return; nothing is started or dealt."""
    needs_engine()
    from dbbench.commands.fleeting import take_home

    return take_home(
        options, chosen(Path(results), name), Path(results).resolve(), _whole(address, certs), _path(certs)
    )


@command_line(name="stop")
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--scheduler", "address", metavar="ADDRESS", help="Default: the one that the fleet was started with.")
@certs_option
@results_option
def stop(options: Options, name: str | None, address: str | None, certs: str | None, results: str) -> None:
    """Stop the trials of a fleet's hosts cleanly; what is finished is kept, and `fleet run` goes on with it."""
    needs_engine()
    from dbbench.commands.fleeting import halt

    fleet = chosen(Path(results), name)
    for host in halt(fleet, _whole(address or fleet.scheduler, certs), _path(certs)):
        put(f"{host}: stopped")


@command_line(name="certs")
@click.option("--for", "names", required=True, metavar="NAME,..", help="Names or IP addresses of the machines.")
@click.option("-o", "--output", metavar="DIR", help="Default: ~/.config/dbbench/fleet.")
def certs(options: Options, names: str, output: str | None) -> None:
    """Make an authority and a certificate for each machine, readable by the owner only (mode 0600)."""
    from dbbench.fleet import security

    folder = Path(output).resolve() if output else security.default_folder()
    made = security.make(folder, [word.strip() for word in names.split(",") if word.strip()])
    if options.json:
        put_json([{"name": path.name, "path": str(path)} for path in made])
        return
    for path in made:
        put(f"{path}: copy its files to {path.name}, into ~/.config/dbbench/fleet")


for each in (run, worker, scheduler, status, collect, stop, certs):
    command.add_command(each)


def needs_engine() -> None:
    """FleetMissing where dask.distributed is not installed."""
    import importlib.util

    if importlib.util.find_spec("distributed") is None:
        raise FleetMissing(
            "dask.distributed is not installed", effect="Nothing was changed.", remedy='pip install "dbbench[fleet]"'
        )


def chosen(results: Path, name: str | None) -> Any:
    """The fleet of that name, or the newest. RunMissing."""
    from dbbench.fleet import record

    if name is not None:
        return record.load(results, name)
    known = record.fleets(results)
    if not known:
        raise RunMissing(f"{results} holds no fleet", remedy="dbbench fleet run PLAN")
    return known[-1]


def _coordinated(results: Path, name: str) -> bool:
    from dbbench.errors import RunLocked
    from dbbench.fleet import record

    try:
        with store.locked(record.folder_of(results, name)):
            return False
    except RunLocked:
        return True


def _path(certs: str | None) -> Path | None:
    return Path(certs).resolve() if certs else None


def _whole(address: str, certs: str | None) -> str:
    """The address with protocol and port; refused at once where it is not this machine and has no TLS."""
    from dbbench.fleet import security

    whole = security.whole(address)
    security.of(whole, _path(certs))
    return whole
