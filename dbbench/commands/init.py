"""`dbbench init`: a commented plan.toml for the engines that are installed. It overwrites nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from dbbench.commands.options import Options, command_line
from dbbench.commands.text import put, put_json
from dbbench.errors import FileTaken, LiveServerUnreadable, ResultsUnwritable

ENGINES: Final = ("postgres", "mariadb", "mysql")

_HEAD: Final = """\
# A question to this machine: which of these filesystems should hold the database?
#   dbbench plan {file}      what would be done, how long it takes, what it writes; changes nothing
#   dbbench run {file}       does it; typed again it goes on where it was stopped
# Sizes and times take units ("4GiB", "90s"). What is not written here has a default.
name = "{name}"

# `dbbench fs list` shows all of them. A label makes two of the same kind distinct.
fs_setups = ["ext4", "xfs", "btrfs"]     # or {{ use = "ext4", label = "ext4-again" }}, to see what chance alone does
baseline = "ext4"                        # the one that others are compared with

blocks = 5          # every combination once per block, in random order; fewer than 5 seldom decide anything
seed = 1            # of the order
warmup = "60s"      # not counted; long enough for caches and for btrfs's commits every 30 s
measure = "120s"    # long enough for two checkpoints

[device]
kind = "loop"       # a file with direct I/O on the disk of the results: safe, and good for a first look
size = "8GiB"       # it is written in full once
# at = "/srv"       # where the file is made
# A real disk gives the real answer. It is ERASED; it is refused while anything is on it or uses it:
# kind = "block"
# path = "/dev/disk/by-id/nvme-..."      # `dbbench doctor` lists them
# Directories on filesystems that exist already: no root, nothing is formatted.
# kind = "dir"
# paths = {{ ext4 = "/mnt/a", xfs = "/mnt/b" }}
# pg_wal, redo and binary logs on a device and filesystem of their own; arms are then called "xfs+wal:ext4":
# [device.wal]
# fs_setup = "ext4"
# size = "4GiB"     # kind = "block": path = "/dev/disk/by-id/..."
"""

_ENGINE: Final = {
    "postgres": """
[[engine]]
name = "postgres"                        # its own private server; one that runs here already is not touched
# bin = "/usr/lib/postgresql/17/bin"     # default: the newest that is installed; a list compares within each
# settings = { shared_buffers = "1GB" }  # over the defaults

[[workload]]                             # `dbbench workload list` shows all of them
name = "pgbench-tpcb"
engines = ["postgres"]
scale = 50                               # 50 x 16 MB
clients = 8                              # a list is a sweep: [1, 8, 64]
""",
    "mariadb": """
[[engine]]
name = "mariadb"
# settings = { innodb_buffer_pool_size = "1G" }
""",
    "mysql": """
[[engine]]
name = "mysql"
# bin = "/usr/sbin/mysqld"
# settings = { innodb_buffer_pool_size = "1G" }
""",
}

_SYSBENCH: Final = """
[[workload]]
name = "sysbench-oltp-read-write"
engines = [{engines}]
tables = 8
table_size = 250000
clients = 8
"""


@command_line()
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="Default: all that are installed.")
@click.option("-o", "--output", default="plan.toml", metavar="FILE", show_default=True)
@click.option("--from-running", is_flag=True, help="Of a server that runs here: its settings, sizes and filesystem.")
@click.option("--socket", type=click.Path(path_type=Path), help="Its socket. Default: where packages put it.")
@click.option("--user", help="The role that reads. Default: this account's name.")
@click.option("--database", help="The database that is looked at.")
def command(options: Options, engines: tuple[str, ...], output: str, from_running: bool, socket: Path | None,
            user: str | None, database: str | None) -> None:  # fmt: skip
    """Write a commented plan.toml to begin with."""
    path = Path(output)
    if not from_running and (socket or user or database):
        raise click.UsageError("--socket, --user and --database are of --from-running")
    if from_running:
        chosen, text = _running(options, path, socket, user, database)
    else:
        chosen = engines or _installed() or ("postgres",)
        text = plan_text(path, tuple(name for name in ENGINES if name in chosen))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise FileTaken(
            f"{path} exists", effect="It was not changed.", remedy="Name another file:  dbbench init -o other.toml"
        ) from None
    except OSError as error:
        raise ResultsUnwritable(f"{path} cannot be written: {error.strerror}", effect="Nothing was changed.") from None
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    if options.json:
        put_json({"path": str(path), "engines": list(chosen)})
    else:
        put(f"{path} is written for {', '.join(chosen)}. Look it over, then:  dbbench plan {path}")


def plan_text(path: Path, engines: tuple[str, ...]) -> str:
    """The text of a plan for these engines; it can be loaded as it is."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in path.stem).strip("._-") or "plan"
    text = _HEAD.format(file=path, name=name) + "".join(_ENGINE[engine] for engine in engines)
    innodb = [f'"{engine}"' for engine in engines if engine != "postgres"]
    return text + (_SYSBENCH.format(engines=", ".join(innodb)) if innodb else "")


def _running(
    options: Options, path: Path, socket: Path | None, user: str | None, database: str | None
) -> tuple[tuple[str, ...], str]:
    """The engine and the plan of a server that runs; it is only read."""
    from dbbench import host, live
    from dbbench.catalog import catalog
    from dbbench.live import planning

    found = [socket] if socket else live.sockets()
    if len(found) != 1:
        raise LiveServerUnreadable(
            f"{len(found)} sockets of servers are where packages put them: {', '.join(map(str, found)) or 'none'}",
            effect="Nothing was read or written.",
            remedy="Name one:  dbbench init --from-running --socket /run/postgresql",
        )
    with live.reading(found[0], user, database) as server:
        facts = live.facts_of(server)
        memory = host.facts().get("memory_bytes")
        return (facts.engine,), planning.plan_text(server, facts, catalog(options.paths), path, memory)


def _installed() -> tuple[str, ...]:
    from dbbench.engines import ENGINES as registered

    return tuple(name for name in ENGINES if name in registered and registered[name].installed() is not None)
