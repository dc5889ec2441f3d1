"""`dbbench fs [NAME]`: the catalogue of fs setups."""

from __future__ import annotations

import shlex

from dbbench.commands.options import Options, catalogue
from dbbench.model import FsSetup, Json, plain
from dbbench.plan.catalog import catalog
from dbbench.plan.preview import MOUNT_POINT
from dbbench.plan.promise import of_setup
from dbbench.report.text import put_json, put_reasons, put_table
from dbbench.storage import filesystems
from dbbench.storage.filesystems import FAMILIES, commands
from dbbench.storage.filesystems.families import compression, copies_on_write


def _put_all(options: Options) -> None:
    entries = catalog(options.paths)
    rows = [_row(entries.setup(name)) for name in entries.setups]
    if options.json:
        put_json({"fs_setups": rows})
        return
    header = ("name", "works", "durability", "copy-on-write", "compresses")
    put_table(
        header,
        [(r["name"], r["works"], r["durability_class"], r["cow"], r["compresses"]) for r in rows],
    )
    put_reasons(rows)


@catalogue(lambda: catalog([]).setups, _put_all, examples=("dbbench fs", "dbbench fs xfs"))
def command(options: Options, name: str) -> None:
    """List the filesystem setups, with the reason where one does not work on this machine, or show
    one.

    With NAME: its file, and the commands that make and mount it.
    """
    entries = catalog(options.paths)
    setup = entries.setup(name)
    file = entries.setups[name]
    row = _row(setup)
    argvs = _commands(setup)
    options.put(
        {**row, "file": str(file), "setup": plain(setup), "commands": argvs},
        f"# {file}",
        file.read_text(encoding="utf-8").rstrip(),
        f"\n# {_devices(setup)}; durability class {row['durability_class'] or 'unknown'}",
        "# commands",
        *map(shlex.join, argvs),
        *([f"\n# does not work on this machine: {row['reason']}"] if row["reason"] else []),
    )


def _row(setup: FsSetup) -> Json:
    registered = setup.mkfs.family in filesystems.FAMILIES
    reason = filesystems.works(setup)
    return {
        "name": setup.name,
        "family": setup.mkfs.family,
        "layers": [layer.kind for layer in setup.layers],
        "devices": {
            "min": setup.devices.min,
            "max": setup.devices.max,
        },
        "works": reason is None,
        "reason": reason,
        "install": list(filesystems.install(setup)),
        "durability_class": of_setup(setup) if registered else None,
        "cow": copies_on_write(setup) if registered else None,
        "compresses": compression(setup),
        "snapshots": filesystems.family_of(setup).snapshots is not None if registered else None,
    }


def _devices(setup: FsSetup) -> str:
    least = setup.devices.min
    most = setup.devices.max
    if most == 1:
        return "one device"
    if least == most:
        return f"{least} devices"
    return f"{least} to {most} devices (commands for {least})"


def _commands(setup: FsSetup) -> list[list[str]]:
    least = setup.devices.min
    targets = (
        ("DEVICE",) if least == 1 else tuple(f"DEVICE{number}" for number in range(1, least + 1))
    )
    if setup.mkfs.family not in FAMILIES:
        return []
    return [list(argv) for argv in commands(setup, targets, MOUNT_POINT)]
