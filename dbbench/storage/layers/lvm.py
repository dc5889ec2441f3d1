"""LVM: one volume group of the devices, with the volume `data`; linear, striped or thin, with a
snapshot held. It is taken of the restored data, just before the load: the first write to a chunk
then includes a copy. The trial fails if `snapshot_size`, a share of the volume, is not
sufficient. LVM uses no settings or services of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import FilesystemDamaged
from dbbench.machine import namespaces
from dbbench.model import Commands, Json, Layer, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold
from dbbench.storage.devices.port import Device
from dbbench.storage.layers.volume import (
    MAPPER_ENV,
    failing,
    load_module,
    mapped_below,
    mapped_names,
    mapped_status,
    open_volume,
    remove_dm,
    reserve,
    wipe,
)

DATA: Final = "data"
HELD: Final = "held"
_POOL: Final = "pool"
_ENV: Final = {**MAPPER_ENV, "LVM_SUPPRESS_FD_WARNINGS": "1"}
# Replaces the lvm.conf of the machine: only our own devices, neither udev nor dmeventd, and no
# thin_check, which a new pool does not need.
_CONFIG: Final = """
devices {{ use_devicesfile = 0 scan_lvs = 0 filter = [ {accept}, "r|.*|" ] }}
activation {{ udev_sync = 0 udev_rules = 0 monitoring = 0 }}
global {{ thin_check_executable = "" use_lvmpolld = 0 }}
"""
_COLUMNS: Final = "lv_name,lv_size,segtype,stripes,stripe_size,chunk_size,lv_when_full"
PROGRAMS: Final = ("vgcreate", "lvcreate", "lvs", "dmsetup", "wipefs")  # for making and removing


def needs(layer: Layer) -> Words:
    """Return the kernel modules; linear and striped are in dm-mod itself."""
    return (
        "dm-mod",
        *{"classic": ("dm-snapshot",), "thin": ("dm-thin-pool",)}.get(layer.snapshot, ()),
    )


def commands(layer: Layer, targets: Words) -> tuple[Commands, Words]:
    """Return the commands for one group of all targets, and the volume."""
    return [_group("dbbench", targets), *_volume(layer, "dbbench", None)], (f"/dev/dbbench/{DATA}",)


def holding(layer: Layer) -> Commands:
    """Return the command for the snapshot."""
    if layer.snapshot:
        return [_snapshot("dbbench", DATA, HELD, _room(layer), layer.snapshot == "thin")]
    return []


@contextlib.contextmanager
def make(
    layer: Layer,
    devices: Sequence[Device],
    journal: Journal,
) -> Iterator[tuple[Device, ...]]:
    """Yield the volume `data` of a group of the devices. Raises MakeFailed, UnmountFailed,
    FilesystemDamaged.
    """
    names = [str(device.path) for device in devices]
    with reserve("lvm", end, devices, journal) as group:
        with failing(f"LVM on {', '.join(names)}"):
            load_module(*needs(layer))
            _lvm(_group(group, names), names)
            steps = _volume(layer, group, None)
            for number, argv in enumerate(steps):
                if layer.snapshot == "thin" and number == 1:
                    pool = int(_report(group, names)[_POOL]["lv_size"])
                    argv = _volume(layer, group, pool)[number]
                _lvm(argv, names)
            facts = volume_facts(_report(group, names))
        facts |= {
            "kind": "lvm",
            "name": group,
            "snapshot": layer.snapshot,
            "snapshot_room": _room(layer),
        }
        with open_volume(_kernel_name(group, DATA), facts) as volume:
            yield (volume,)
            check_snapshot(facts)


def _group(group: str, names: Sequence[str]) -> Words:
    """Return vgcreate with autoactivation disabled."""
    return ("vgcreate", "--yes", "--setautoactivation", "n", group, *names)


def _volume(
    layer: Layer,
    group: str,
    pool_bytes: int | None,
) -> Commands:
    """Return lvcreate's argv lists. Nothing is zeroed, because mkfs follows. `pool_bytes`: None
    before it is known.
    """
    # The volume's share of the group (thin: of the pool); the rest is for chunks of the snapshot.
    share = 1 / (1 + _room(layer) / 100) if layer.snapshot else 1.0
    if layer.snapshot == "thin":
        size = f"{int(pool_bytes * share) // 2**20}m" if pool_bytes else f"{share * 100:.0f}%POOL"
        pool = (
            "lvcreate",
            "--yes",
            "--type",
            "thin-pool",
            "-l",
            "100%FREE",
            "--poolmetadataspare",
            "n",
            "-n",
            _POOL,
        )
        return [
            (*pool, group),
            ("lvcreate", "--yes", "-V", size, "--thinpool", _POOL, "-n", DATA, group),
            ("lvchange", "--errorwhenfull", "y", f"{group}/{_POOL}"),
        ]
    # Without a pool the volume lies on the group itself, striped if the setup says so.
    stripes = ["--stripes", str(layer.stripes)] if layer.stripes > 1 else []
    if layer.stripes > 1 and layer.chunk_bytes:
        stripes += ["--stripesize", f"{layer.chunk_bytes // 1024}k"]
    extents = f"{int(share * 100)}%VG" if layer.snapshot else "100%FREE"
    return [
        (
            "lvcreate",
            "--yes",
            "--zero",
            "n",
            "--wipesignatures",
            "n",
            *stripes,
            "-l",
            extents,
            "-n",
            DATA,
            group,
        )
    ]


def _snapshot(
    group: str,
    origin: str,
    name: str,
    room_percent: int,
    thin: bool = False,
) -> Words:
    size = [] if thin else ["-l", f"{room_percent}%ORIGIN"]
    return ("lvcreate", "--yes", "--snapshot", *size, "-n", name, f"{group}/{origin}")


def _room(layer: Layer) -> int:
    return int(layer.snapshot_size.rstrip("%"))


def take_snapshot(facts: Scalars) -> Scalars:
    """Take the snapshot that the layer requires, and read it back. Raises MakeFailed."""
    if not facts["snapshot"]:
        return facts
    snapshot(facts, HELD)
    group = str(facts["name"])
    rows = _report(group, _devices(group))
    held_facts: Scalars = {**facts, "snapshot_held": True}
    keeper = rows[_POOL if facts["snapshot"] == "thin" else HELD]
    held_facts["snapshot_chunk_kb"] = int(keeper["chunk_size"]) // 1024
    if facts["snapshot"] == "classic":
        held_facts["snapshot_bytes"] = int(keeper["lv_size"])
    return held_facts


def check_snapshot(facts: Scalars) -> None:
    """Raise FilesystemDamaged if the space for the snapshot was full: the load then ran without
    one, or got errors.
    """
    group = str(facts["name"])
    kind = str(facts["snapshot"])
    name = {"classic": _dm_name(group, HELD), "thin": _dm_name(group, f"{_POOL}-tpool")}.get(kind)
    if name is None or name not in mapped_names(_dm_name(group)):
        return
    words = mapped_status(name)
    if any(word in words for word in ("Invalid", "Overflow", "Fail", "out_of_data_space", "Error")):
        raise FilesystemDamaged(
            f"the {kind} snapshot was lost: {words}",
            effect="The trial is marked failed, because part of it ran without the snapshot.",
            remedy=f"Increase snapshot_size above {facts['snapshot_room']}%, or use a larger device.",
        )


def snapshot(
    facts: Scalars,
    name: str,
    origin: str = DATA,
    share: float = 1.0,
) -> str:
    """Take a snapshot of a volume; return its kernel name (dm-5), active and writable. A classic
    one gets that share of the space for snapshots. The kernel freezes the filesystem meanwhile.
    Raises MakeFailed.
    """
    group = str(facts["name"])
    thin = facts["snapshot"] == "thin"
    names = _devices(group)
    with failing(f"a snapshot of {group}/{origin}"):
        room = int(int(facts["snapshot_room"]) * share)
        _lvm(_snapshot(group, origin, name, room, thin), names)
        if thin:
            activate = ("lvchange", "--activate", "y", "--ignoreactivationskip")
            _lvm((*activate, f"{group}/{name}"), names)
    return _kernel_name(group, name)


def clone(facts: Scalars, name: str, of: str) -> str:
    """Make a writable copy of an unchanged snapshot; return its kernel name. LVM has none for
    classic snapshots: device-mapper alone uses the remaining space. Raises MakeFailed.
    """
    if facts["snapshot"] == "thin":
        return snapshot(facts, name, of)
    group = str(facts["name"])
    room = f"{name}room"
    mapped = _dm_name(str(facts["name"]), name)
    with failing(f"a copy of {group}/{of}"):
        _lvm(
            ("lvcreate", "--yes", "--wipesignatures", "n", "-l", "100%FREE", "-n", room, group),
            _devices(group),
        )
        below, kept = (f"/dev/{_kernel_name(group, volume)}" for volume in (of, room))
        sectors = int(process.run(["blockdev", "--getsz", below], note=False).stdout)
        # chunks of 8 sectors, the default of lvcreate
        table = f"0 {sectors} snapshot {below} {kept} N 8"
        process.run(["dmsetup", "create", mapped, "--table", table], env=MAPPER_ENV)
    return _kernel_name(group, name)


def _kernel_name(group: str, volume: str) -> str:
    return mapped_names(_dm_name(group))[_dm_name(group, volume)]


def drop(facts: Scalars, *volumes: str) -> None:
    """Remove snapshots, the later of `volumes` first; missing ones are ignored. Raises MakeFailed."""
    group = str(facts["name"])
    with failing(f"removing {', '.join(volumes)} of {group}"):
        for volume in reversed(volumes):
            if volume in _report(group, _devices(group)):
                _lvm(("lvremove", "--yes", f"{group}/{volume}"), _devices(group))
            elif _dm_name(group, volume) in mapped_names(_dm_name(group)):
                process.run(
                    ["dmsetup", "remove", "--retry", _dm_name(group, volume)], env=MAPPER_ENV
                )


def merge(facts: Scalars, name: str) -> None:
    """Restore the volume to the snapshot, which is then gone. The volume must not be open. Raises
    MakeFailed.
    """
    group = str(facts["name"])
    with failing(f"merging {group}/{name}"):
        _lvm(
            ("lvconvert", "--merge", "--interval", "1", f"{group}/{name}"),
            _devices(group),
            timeout_s=6 * 3600,
        )


def extend(facts: Scalars, spare: Device) -> None:
    """Add a device to the group and extend the volume (thin: its pool first); a striped one
    continues without stripes, which would need as many devices. Raises MakeFailed.
    """
    group = str(facts["name"])
    names = _devices(str(facts["name"]))
    with failing(f"adding {spare.path} to {group}"):
        wipe(spare.fd)
        hold.release(spare.fd)
        names = [*names, str(spare.path)]
        _lvm(("vgextend", "--yes", group, str(spare.path)), names)
        if facts["snapshot"] == "thin":
            _lvm(("lvextend", "-l", "+100%FREE", f"{group}/{_POOL}"), names)
            _lvm(
                (
                    "lvextend",
                    "-L",
                    f"+{os.lseek(spare.fd, 0, os.SEEK_END) // 2**20}m",
                    f"{group}/{DATA}",
                ),
                names,
            )
        else:
            _lvm(extension(facts), names)


def extension(facts: Scalars) -> Words:
    """Return the command that extends the data's volume over all free space of its group."""
    plain = ("--stripes", "1") if facts["segtype"] == "striped" else ()
    return ("lvextend", *plain, "-l", "+100%FREE", f"{facts['name']}/{DATA}")


def used_bytes(facts: Scalars, name: str) -> int:
    """Return a snapshot's space: classic, its chunks; thin ones, all pool blocks that are not the
    volume's.
    """
    group = str(facts["name"])
    if facts["snapshot"] != "thin":
        return parse_bytes(mapped_status(_dm_name(group, name)), 0)
    chunk = int(facts["pool_chunk_kb"]) * 1024
    pool = parse_bytes(mapped_status(_dm_name(group, f"{_POOL}-tpool")), chunk)
    return pool - parse_bytes(mapped_status(_dm_name(group, DATA)), chunk)


@process.understood("dmsetup")
def parse_bytes(status: str, chunk_bytes: int) -> int:
    """Return bytes from device-mapper's status of a snapshot, a pool or a thin volume. Formats:
    "snapshot 16/139264 16" (sectors with and of its own tables), "thin-pool 2 112/1024 40/6208
    ..." (chunks), "thin 2560 638975" (sectors).
    """
    kind, *words = status.split()
    if kind == "snapshot":
        used = int(words[0].split("/")[0])
        tables = int(words[1])
        return (used - tables) * 512
    if kind == "thin-pool":
        chunks = int(words[2].split("/")[0])
        return chunks * chunk_bytes
    return int(words[0]) * 512


@process.understood("lvs")
def parse_lvs(text: str) -> dict[str, Json]:
    """Return the rows of `lvs`, by the names of the volumes."""
    report = json.loads(text)["report"][0]
    return {row["lv_name"].strip("[]"): row for row in report["lv"]}


@process.understood("lvs")
def volume_facts(rows: dict[str, Json]) -> Scalars:
    """Return the facts of a group with `data`: the kind of volume, sizes in bytes and kB."""
    data = rows[DATA]
    facts: Scalars = {"segtype": data["segtype"], "size_bytes": int(data["lv_size"])}
    if data["segtype"] == "striped":
        facts |= {"stripes": int(data["stripes"]), "stripe_kb": int(data["stripe_size"]) // 1024}
    if pool := rows.get(_POOL):
        facts |= {
            "pool_bytes": int(pool["lv_size"]),
            "pool_chunk_kb": int(pool["chunk_size"]) // 1024,
            "when_full": pool["lv_when_full"],
        }
    return facts


def _report(group: str, names: Sequence[str]) -> dict[str, Json]:
    how = ["--reportformat", "json", "--units", "b", "--nosuffix", "--all", "-o", _COLUMNS]
    return parse_lvs(_lvm(("lvs", *how, group), names, note=False))


def _lvm(
    argv: Sequence[str],
    names: Sequence[str],
    note: bool = True,
    timeout_s: float = 300,
) -> str:
    """Run one of LVM's programs with separate settings, so that it sees only these devices."""
    accept = ", ".join(f'"a|^{name}$|"' for name in names)
    with namespaces.temporary_folder() as folder:
        (folder / "lvm.conf").write_text(_CONFIG.format(accept=accept))
        return process.run(
            argv,
            env={**_ENV, "LVM_SYSTEM_DIR": str(folder)},
            timeout_s=timeout_s,
            note=note,
        ).stdout


def _devices(group: str) -> list[str]:
    return [f"/dev/{name}" for name in mapped_below(_dm_name(group))]


def _dm_name(group: str, volume: str = "") -> str:
    """Return device-mapper's name of a group or volume: hyphens in the group's name are doubled."""
    return group.replace("-", "--") + (f"-{volume}" if volume else "")


def end(name: str) -> bool:
    """Remove the group's volumes and erase it from its devices; return whether it had any. Raises
    UnmountFailed.
    """
    existed = remove_dm(_dm_name(name))
    folder = Path("/dev", name)  # of links whose devices are gone; dmsetup does not know it
    for link in filter(Path.is_symlink, folder.glob("*")):
        link.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
    return existed
