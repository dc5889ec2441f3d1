"""`dbbench init`: write a commented plan.toml for the installed engines, an example plan, or the systemd units."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from dbbench.commands.options import Options, command_line, write_new
from dbbench.engines import ENGINES, SERVERS, profile_of
from dbbench.errors import LiveServerUnreadable
from dbbench.model.base import data_folder
from dbbench.report.text import put, put_json

_HEAD: Final = """\
# Which of these filesystems should hold the database?
#   dbbench plan {file}      show what a run would do, how long it takes and how much it writes
#   dbbench run {file}       run it; run it again to resume
# Sizes and times take units ("4GiB", "90s"). Keys that are not listed here have defaults.
name = "{name}"

# `dbbench fs` lists all of them. Give one a label to list it twice.
fs_setups = ["ext4", "xfs", "btrfs"]     # or {{ use = "ext4", label = "ext4-again" }}, to see the effect of chance
baseline = "ext4"                        # the setup that the others are compared with

blocks = 5          # every combination once per block, in random order; fewer than 5 are seldom conclusive
seed = 1            # for the random order
warmup = "90s"      # not counted; fills the caches, and is three of the 30 s intervals at which btrfs writes out
measure = "120s"    # long enough for two checkpoints

[device]
kind = "loop"       # a file with direct I/O on the disk of the results: safe, for a first impression
size = "8GiB"       # it is written in full once
# at = "/srv"       # directory of the file
# Test a real disk for a real decision. It is ERASED, and refused if it is in use or not empty:
# kind = "block"
# path = "/dev/disk/by-id/nvme-..."      # `dbbench doctor` lists them
# Directories on existing filesystems: no root needed, nothing is formatted.
# kind = "dir"
# paths = {{ ext4 = "/mnt/a", xfs = "/mnt/b" }}
# pg_wal, redo and binary logs on a separate device and filesystem; setups are then called "xfs+wal:ext4":
# [device.wal]
# fs_setup = "ext4"
# size = "4GiB"     # kind = "block": path = "/dev/disk/by-id/..."
"""

_SYSBENCH: Final = """
[[workload]]
name = "sysbench-oltp-read-write"
engines = [{engines}]
tables = 8
table_size = 250000
clients = 8
"""


_EXAMPLES: Final = ("demo", "tiny")
_PROGRAM: Final = "/usr/local/bin/dbbench"  # the path in the units of the checkout, which is replaced


@command_line()
@click.option("--example", type=click.Choice(_EXAMPLES), help="Write this example plan instead.")
@click.option(
    "--units",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the systemd units of nightly runs to DIR instead.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=click.Choice(SERVERS),
    help="Engine to include [default: all that are installed].",
)
@click.option("-o", "--output", default="plan.toml", metavar="FILE", show_default=True, help="File to write.")
@click.option(
    "--from-running",
    is_flag=True,
    help="Take settings, sizes and filesystem from a running server, which is only read.",
)
@click.option(
    "--socket", type=click.Path(path_type=Path), help="Socket of that server [default: where packages put it]."
)
@click.option("--user", help="User to connect as [default: this account's name].")
@click.option("--database", help="Database to read the sizes of.")
def command(options: Options, engines: tuple[str, ...], output: str, from_running: bool, socket: Path | None,
            user: str | None, database: str | None, example: str | None, units: Path | None) -> None:  # fmt: skip
    """Write a commented plan.toml. An existing file is not overwritten."""
    path = Path(output)
    if not from_running and (socket or user or database):
        raise click.UsageError("--socket, --user and --database require --from-running")
    if (example or units) and (engines or from_running or (example and units)):
        raise click.UsageError("--example, --units, --engine and --from-running cannot be combined")
    if units:
        _write_units(options, units)
        return
    chosen: tuple[str, ...] = ()
    if example:
        text = (data_folder() / "plans" / f"{example}.toml").read_text(encoding="utf-8")
    elif from_running:
        chosen, text = _running(options, path, socket, user, database)
    else:
        chosen = (
            engines or tuple(name for name in SERVERS if ENGINES[name].installed_version() is not None) or SERVERS[:1]
        )
        text = plan_text(path, tuple(name for name in SERVERS if name in chosen))
    write_new({path: text})
    if options.json:
        put_json({"path": str(path), "engines": list(chosen)})
    else:
        put(f"Wrote {path}{' for ' if chosen else ''}{', '.join(chosen)}. Review it, then run:  dbbench plan {path}")


def _write_units(options: Options, folder: Path) -> None:
    """Write the units with the path of this program, quoted as systemd reads it."""
    started = shutil.which(sys.argv[0]) or shutil.which("dbbench")
    program = str(Path(started).absolute()) if started else _PROGRAM
    word = program if re.fullmatch(r"[\w/.+@-]+", program) else f'"{program.replace("%", "%%")}"'
    texts = {
        folder / file.name: file.read_text(encoding="utf-8") for file in sorted((data_folder() / "systemd").iterdir())
    }
    with suppress(OSError):  # reported with the first file
        folder.mkdir(parents=True, exist_ok=True)
    write_new({path: text.replace(_PROGRAM, word) for path, text in texts.items()})
    if options.json:
        put_json({"paths": [str(path) for path in texts], "program": program})
    else:
        put("\n".join([*(f"Wrote {path}" for path in texts), "Next:  systemctl daemon-reload"]))


def plan_text(path: Path, engines: tuple[str, ...]) -> str:
    """Return the text of a plan for these engines, which can be loaded as it is."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in path.stem).strip("._-") or "plan"
    text = _HEAD.format(file=path, name=name) + "".join(profile_of(engine).plan for engine in engines)
    others = [f'"{engine}"' for engine in engines if profile_of(engine).generated == "sysbench"]
    return text + (_SYSBENCH.format(engines=", ".join(others)) if others else "")


def _running(
    options: Options, path: Path, socket: Path | None, user: str | None, database: str | None
) -> tuple[tuple[str, ...], str]:
    """Return the engine of a running server, and a plan for it; the server is only read."""
    from dbbench.introspect import server as live
    from dbbench.machine import host
    from dbbench.plan.catalog import catalog

    paths = [socket] if socket else live.sockets()
    if len(paths) != 1:
        raise LiveServerUnreadable(
            f"found {len(paths)} server sockets in the usual places: {', '.join(map(str, paths)) or 'none'}",
            effect="Nothing was read or written.",
            remedy="Choose one:  dbbench init --from-running --socket /run/postgresql",
        )
    with live.reading(paths[0], user, database) as server:
        memory = host.facts().get("memory_bytes")
        facts = live.facts_of(server, memory)
        return (facts.engine,), live.plan_text(server, facts, catalog(options.paths), path, memory)
