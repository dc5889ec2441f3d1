"""`dbbench fs list` and `dbbench fs show NAME`: the catalogue of fs setups."""

from __future__ import annotations

import shlex
from typing import Any

import click

from dbbench.catalog import catalog
from dbbench.commands.options import Options, command_line, global_options
from dbbench.commands.text import put, put_json, put_table
from dbbench.model import FsSetup, durability_class, plain


@click.group()
@global_options
def command() -> None:
    """The catalogue of fs setups: what there is, what works here, how each is made."""


@command_line(name="list")
def list_(options: Options) -> None:
    """All fs setups, and why one does not work on this machine."""
    known = catalog(options.paths)
    rows = [_row(known.setup(name)) for name in known.setups]
    if options.json:
        put_json(rows)
        return
    header = ("name", "family", "works", "durability", "cow", "compresses", "what to do")
    put_table(header, [(r["name"], r["family"], r["works"], r["durability_class"], r["cow"], r["compresses"],
                        r["reason"] or "") for r in rows])  # fmt: skip


@command_line(name="show")
@click.argument("name")
def show(options: Options, name: str) -> None:
    """One fs setup: its file, and the commands by which it is made and mounted."""
    known = catalog(options.paths)
    setup = known.setup(name)
    row = _row(setup)
    if options.json:
        put_json({**row, "file": str(known.setups[name]), "setup": plain(setup), "commands": _commands(setup)})
        return
    put(f"# {known.setups[name]}")
    put(known.setups[name].read_text(encoding="utf-8").rstrip())
    put(f"\n# {_devices(setup)}; durability class {row['durability_class']}")
    put("# commands")
    for argv in _commands(setup):
        put(shlex.join(argv))
    if row["reason"]:
        put(f"\n# does not work here: {row['reason']}")


def _row(setup: FsSetup) -> dict[str, Any]:
    from dbbench import filesystems
    from dbbench.plan.promise import of_setup

    known = setup.mkfs.family in filesystems.FAMILIES
    traits = filesystems.traits(setup) if known else None
    reason = filesystems.works(setup)
    return {
        "name": setup.name,
        "family": setup.mkfs.family,
        "layers": [layer.kind for layer in setup.layers],
        "devices": {"min": setup.devices.min, "max": setup.devices.max},
        "works": reason is None,
        "reason": reason,
        "install": list(filesystems.install(setup)),
        "durability_class": of_setup(setup) if known else durability_class(setup.claims),
        "cow": traits.cow if traits else None,
        "compresses": traits.compresses if traits else None,
        "snapshots": traits.snapshots if traits else None,
    }


def _devices(setup: FsSetup) -> str:
    least, most = setup.devices.min, setup.devices.max
    if most == 1:
        return "one device"
    return f"{least} devices" if least == most else f"{least} to {most} devices, of which {least} stand here"


def _commands(setup: FsSetup) -> list[list[str]]:
    from dbbench.filesystems import FAMILIES, commands
    from dbbench.plan.preview import MOUNT_POINT

    least = setup.devices.min
    targets = ("DEVICE",) if least == 1 else tuple(f"DEVICE{number}" for number in range(1, least + 1))
    if setup.mkfs.family not in FAMILIES:
        return []
    return [list(argv) for argv in commands(setup, targets, MOUNT_POINT)]


command.add_command(list_)
command.add_command(show)
