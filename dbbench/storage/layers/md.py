"""md (software RAID) by mdadm: levels 0, 1 and 10. Arrays are made with `--assume-clean`, because a
resync would disturb the window and a filesystem reads only what it has written, and without a
write-intent bitmap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dbbench import process
from dbbench.errors import MakeFailed
from dbbench.model import Commands, Layer, Scalars, Words
from dbbench.results.journal import Journal
from dbbench.storage.devices import hold, sysfs
from dbbench.storage.devices.port import Device
from dbbench.storage.layers.volume import (
    failing,
    kept_open,
    load_module,
    open_volume,
    persistently,
    reserve,
    wipe,
)

_ENV: Final = {"MDADM_NO_UDEV": "1"}  # mdadm creates device nodes itself and does not wait for udev
# Home host of the arrays, by which a machine recognises an array as foreign: at boot udev assembles
# it as /dev/md/dbbench:NAME and no configuration file names it.
_HOST: Final = "dbbench"
_REDUNDANT: Final = (1, 10)
_RESHAPE_S: Final = 6 * 3600.0  # long enough to read and write every block of large disks
PROGRAMS: Final = ("mdadm", "wipefs")  # for making and removing


def needs(layer: Layer) -> Words:
    """Return the module of the level."""
    return (f"raid{layer.level}",)


def commands(layer: Layer, targets: Words) -> tuple[Commands, Words]:
    """Return the command for one array of all targets."""
    volume = "/dev/md/dbbench"
    return [_create(layer, volume, targets)], (volume,)


def _create(layer: Layer, volume: str, targets: Sequence[str], *more: str) -> Words:
    """Return the command with --run: mdadm must not ask about earlier content, because the guard
    has decided.
    """
    chunk = (
        [f"--chunk={layer.chunk_bytes // 1024}K"] if layer.chunk_bytes and layer.level != 1 else []
    )
    whole = ["--assume-clean", "--bitmap=none"] if layer.level in _REDUNDANT else []
    level = [f"--level={layer.level}", f"--raid-devices={len(targets)}"]
    return (
        "mdadm",
        "--create",
        volume,
        "--run",
        "--quiet",
        "--metadata=1.2",
        *more,
        *level,
        *chunk,
        *whole,
        *targets,
    )


@contextlib.contextmanager
def make(
    layer: Layer,
    devices: Sequence[Device],
    journal: Journal,
) -> Iterator[tuple[Device, ...]]:
    """Yield an array of the devices, in sync. Raises MakeFailed, UnmountFailed."""
    with reserve("md", end, devices, journal) as name:
        # The devices are handed over as descriptors.
        arguments = [device.argument for device in devices]
        argv = _create(layer, f"/dev/md/{name}", arguments, f"--name={name}", f"--homehost={_HOST}")
        paths = ", ".join(str(device.path) for device in devices)
        with failing(f"md RAID{layer.level} of {paths}"):
            load_module(*needs(layer))
            process.run(argv, pass_fds=[device.fd for device in devices], env=_ENV, timeout_s=120)
        array = find_array(name)
        if array is None:
            raise MakeFailed(
                f"mdadm did not create the array {name}", effect="Nothing was measured."
            )
        # What the kernel made is compared with the setup, and it must be in sync.
        facts = read_back(array, name)
        expected: dict[str, object] = {"level": layer.level, "degraded": 0}
        expected["sync"] = "idle" if layer.level in _REDUNDANT else "none"
        if layer.chunk_bytes and layer.level != 1:
            expected["chunk_kb"] = layer.chunk_bytes // 1024
        wrong = []
        for key, value in expected.items():
            if facts.get(key) != value:
                wrong.append(f"{key} {facts.get(key)} instead of {value}")
        if wrong:
            raise MakeFailed(
                f"the kernel reports another md RAID{layer.level} than requested: "
                f"{', '.join(wrong)}",
                effect="Nothing was measured.",
            )
        with open_volume(array, facts) as volume:
            yield (volume,)


def read_back(array: str, name: str) -> Scalars:
    """Return what the kernel reports. `sync`: "idle", the action, or "none" if the level has
    nothing to sync.
    """

    def read(place: str) -> str:
        return sysfs.attribute(array, f"md/{place}") or ""

    facts: Scalars = {
        "kind": "md",
        "name": name,
        "level": int(read("level").removeprefix("raid") or -1),
        "devices": int((read("raid_disks") or "0").split()[0]),  # "4 (3)" during a reshape
        "metadata": read("metadata_version"),
        "sync": read("sync_action") or "none",
        "degraded": int(read("degraded") or 0),
        "bitmap": read("bitmap/location") or "none",
        "size_bytes": sysfs.size_bytes(array),
    }
    if chunk := int(read("chunk_size") or 0):
        facts["chunk_kb"] = chunk // 1024
    return facts


def find_array(name: str) -> str | None:
    """Return the kernel name of the running array with that name, or None."""
    for array in sysfs.disks():
        # that of a stopped array may remain, without members
        if array.startswith("md") and sysfs.slaves(array):
            argv = ["mdadm", "--detail", "--export", f"/dev/{array}"]
            done = process.run(argv, ok=(0, 1, 2, 4), env=_ENV, note=False)
            facts = done.stdout.splitlines()
            if f"MD_NAME={_HOST}:{name}" in facts:
                return array
    return None


def end(name: str) -> bool:
    """Stop the array and erase it from its members; return whether it existed. Raises
    UnmountFailed.
    """
    array = find_array(name)
    if array is not None:
        with kept_open(sysfs.slaves(array)) as members:
            argv = ["mdadm", "--stop", "--quiet", f"/dev/{array}"]
            persistently(
                lambda: process.run(argv, env=_ENV, timeout_s=60),
                f"the array /dev/{array} ({name})",
            )
            for fd in members:
                wipe(fd)
    Path("/dev/md", name).unlink(missing_ok=True)
    return array is not None


def add(facts: Scalars, spare: Device) -> None:
    """Add a device; in the background RAID0 and RAID10 are reshaped, RAID1 is copied. Raises
    MakeFailed.
    """
    array = find_array(str(facts["name"]))
    number = int(facts["devices"]) + 1
    with failing(f"adding {spare.path} to /dev/{array}"):
        wipe(spare.fd)
        hold.release(spare.fd)
        with_it = ["--add", spare.argument] if facts["level"] == 0 else []
        if facts["level"] == 0:
            load_module("raid456")  # the kernel reshapes RAID0 as RAID4 without parity
        else:
            process.run(
                ["mdadm", f"/dev/{array}", "--add", spare.argument],
                pass_fds=(spare.fd,),
                env=_ENV,
            )
        argv = ["mdadm", "--grow", f"/dev/{array}", f"--raid-devices={number}", *with_it]
        process.run(argv, pass_fds=(spare.fd,), env=_ENV, timeout_s=600)


def until_idle(facts: Scalars) -> Scalars:
    """Wait until the array has finished moving data; return its facts. Raises DeadlinePassed."""
    name = str(facts["name"])
    array: Scalars = {}

    def is_busy() -> bool:
        array.update(read_back(find_array(name) or "", name))
        return (
            array["sync"] not in ("none", "idle")
            or array["level"] != facts["level"]
            or bool(array["degraded"])
        )

    if process.wait_while(is_busy, _RESHAPE_S):
        raise process.too_late(
            f"the array {name} is still busy ({array['sync']}) after more than {_RESHAPE_S:.0f} s"
        )
    return array
