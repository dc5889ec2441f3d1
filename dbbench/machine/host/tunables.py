"""Settings of the kernel and the block layer that can change during a run and affect the results.
A plan can set some of them for its disks, the read-ahead also for the filesystem: ext4 and xfs
read ahead as much as their disk says and btrfs at least 4 MiB, which changes a scan's result.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench.errors import KernelLacks
from dbbench.machine.host.proc import BOOT_ID, chosen, common, number, text
from dbbench.model import Scalar
from dbbench.model.plan import QUEUE, READ_AHEAD
from dbbench.results.journal import Journal

Value = str | int | None

_VM: Final = (
    "swappiness",
    "dirty_ratio",
    "dirty_bytes",
    "dirty_background_ratio",
    "dirty_background_bytes",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "overcommit_memory",
    "nr_hugepages",
    "vfs_cache_pressure",
)
# the kind of its entries in the journal: "BOOT FILE BEFORE VALUE"
WHAT: Final = "queue"
# Settings of `state` that are one short file each.
_FILES: Final = {
    "cpus_online": "sys/devices/system/cpu/online",
    "turbo": "sys/devices/system/cpu/cpufreq/boost",
    "no_turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "smt": "sys/devices/system/cpu/smt/control",
    "thp": "sys/kernel/mm/transparent_hugepage/enabled",
    "thp_defrag": "sys/kernel/mm/transparent_hugepage/defrag",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
}
# Properties and settings of a disk (Documentation/ABI/stable/sysfs-block of the kernel). Each of
# them can change a comparison, above all read_ahead_kb and scheduler. Loop numbers are reused and
# keep earlier settings. These follow from the size of the sectors, which an fs setup may ask for.
SECTORS: Final = (
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "discard_granularity",
)
_SETTABLE: Final = (
    *QUEUE.values(),
    "rotational",
    "max_sectors_kb",
    "write_cache",
    "discard_max_bytes",
    "nomerges",
    "rq_affinity",
    "add_random",
    "io_poll",
    "iostats",
)
_FIXED: Final = (*SECTORS, "optimal_io_size", "fua", "stable_writes")
_DISK: Final = (
    "ro",
    "size",
    "device/queue_depth",
    "device/cache_type",
    "loop/dio",
    "loop/backing_file",
)


def paths_to_watch() -> dict[str, Path]:
    """Return the files behind `state` that are cheap enough to be read once per second: name ->
    path.
    """
    files = {name: Path("/", path) for name, path in _FILES.items()}
    files.update({f"vm_{name}": Path("/proc/sys/vm", name) for name in _VM})
    for policy in sorted(Path("/sys/devices/system/cpu/cpufreq").glob("policy*")):
        files[f"governor of {policy.name}"] = policy / "scaling_governor"
        files[f"cpu_max_khz of {policy.name}"] = policy / "scaling_max_freq"
    return files


def state(root: Path = Path("/")) -> dict[str, Value]:
    """Return the settings by name; None for what this machine does not have. `mitigation_*`: the
    kernel's own sentences.
    """
    cpu = root / "sys/devices/system/cpu"
    proc = root / "proc"
    thp = root / "sys/kernel/mm/transparent_hugepage"
    # The idle states available to CPU 0, shallowest first: "POLL C1 C6"; disabled states are
    # omitted.
    idle = sorted((cpu / "cpu0/cpuidle").glob("state*"), key=lambda path: int(path.name[5:]))
    # Two drivers report turbo in opposite ways.
    no_turbo = number(cpu / "intel_pstate/no_turbo")
    boost = number(cpu / "cpufreq/boost")
    turbo: str | None = None
    if no_turbo is not None or boost is not None:
        turbo = "on" if no_turbo == 0 or (no_turbo is None and boost) else "off"
    states = [text(path / "name") or "?" for path in idle if number(path / "disable") != 1]
    # A machine without swap has the table's heading only.
    swaps = text(proc / "swaps")
    swap_kb: int | None = None
    if swaps is not None:
        swap_kb = sum(int(line.split()[-3]) for line in swaps.splitlines()[1:])
    # Frequencies that differ between CPUs are listed, see `common`.
    values: dict[str, Value] = {
        "cpus_online": text(cpu / "online"),
        "governor": common(cpu.glob("cpufreq/policy*/scaling_governor")),
        "cpu_max_khz": common(cpu.glob("cpufreq/policy*/scaling_max_freq")),
        "energy_preference": common(cpu.glob("cpufreq/policy*/energy_performance_preference")),
        "turbo": turbo,
        "smt": text(cpu / "smt/control"),
        "c_states": " ".join(states) or None,
        "thp": chosen(thp / "enabled"),
        "thp_defrag": chosen(thp / "defrag"),
        "numa_balancing": number(proc / "sys/kernel/numa_balancing"),
        "swap_kb": swap_kb,
    }
    values.update({f"vm_{name}": number(proc / "sys/vm" / name) for name in _VM})
    for path in sorted((cpu / "vulnerabilities").glob("*")):
        values[f"mitigation_{path.name}"] = text(path)
    return values


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return one line for each key that differs, for W018: "governor: performance -> powersave"."""

    def shown(value: object) -> object:
        return "absent" if value is None else value

    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return [
        f"{key}: {shown(old)} -> {shown(new)}" for key, (old, new) in pairs.items() if old != new
    ]


def block_layer(
    disks: Sequence[str],
    root: Path = Path("/"),
    called: str = "disk",
) -> dict[str, str | None]:
    """Return the block layer's settings of whole disks: "disk: scheduler", for several "disk 2:
    scheduler", or None.
    """
    attributes: dict[str, str | None] = {}
    for position, disk in enumerate(disks, 1):
        queue = root / "sys/class/block" / disk / "queue"
        name = called if position == 1 else f"{called} {position}"
        for attribute in (*_SETTABLE, *_FIXED):
            attributes[f"{name}: {attribute}"] = (chosen if attribute == "scheduler" else text)(
                queue / attribute
            )
    return attributes


def block_files(
    disks: Sequence[str],
    mounts: Sequence[Path],
    root: Path = Path("/"),
) -> dict[str, Path]:
    """Return the files of settings that can be changed, for the disks and for the volumes that
    contain the paths.
    """
    paths: dict[str, Path] = {}
    for path in mounts:
        device = path.stat().st_dev
        volume = f"{os.major(device)}:{os.minor(device)}"
        paths[f"{path}: read_ahead_kb"] = root / "sys/class/bdi" / volume / "read_ahead_kb"
        folder = root / "sys/dev/block" / volume
        if folder.resolve().name not in disks:
            # not its limits, which a snapshot during the load changes
            for attribute in ("scheduler", "nr_requests"):
                paths[f"{path}: {attribute}"] = folder / "queue" / attribute
    for disk in disks:
        folder = root / "sys/class/block" / disk
        paths.update(
            {f"{disk}: {attribute}": folder / "queue" / attribute for attribute in _SETTABLE}
        )
        paths.update({f"{disk}: {name}": folder / name for name in _DISK})
        # a btrfs mount's device number has no bdi
        for member in (root / "sys/fs/btrfs").glob(f"*/devices/{disk}"):
            paths["btrfs: read_ahead_kb"] = member.parents[1] / "bdi/read_ahead_kb"
    return paths


@contextlib.contextmanager
def on_disks(
    disks: Sequence[str],
    wanted: Mapping[str, Scalar],
    journal: Journal,
) -> Iterator[None]:
    """Set these settings of the disks' queues within the block, which must mount the filesystem:
    most of them copy the read-ahead then. Raises KernelLacks.
    """
    give_back(journal)  # of a killed trial
    try:
        for disk in disks:
            _set_queue(_queue(disk), wanted, journal)
        yield
    finally:
        give_back(journal)


def _set_queue(queue: Path, wanted: Mapping[str, Scalar], journal: Journal) -> None:
    before = {name: chosen(queue / name) for name in QUEUE.values()}
    for name, level in wanted.items():
        value = str(level)
        if chosen(queue / name) == value:
            continue
        _note_change(journal, queue / name, before[name], value)
        problem = ""
        try:
            (queue / name).write_text(value)
        except OSError as error:
            problem = f": {error.strerror}"
        if (actual := chosen(queue / name)) != value:
            raise KernelLacks(
                f"{queue / name} is {actual} instead of {value}{problem}",
                effect="Completed trials are kept. Nothing was written to the device.",
                remedy="Correct its value in the plan.",
            )
    # A scheduler has its own defaults of other settings.
    for name in QUEUE.values():
        if name not in wanted and (now := chosen(queue / name)) != before[name]:
            _note_change(journal, queue / name, before[name], now)


def _note_change(journal: Journal, file: Path, before: str | None, value: str | None) -> None:
    journal.take(WHAT, f"{text(BOOT_ID)} {file} {before} {value}")


def give_back(journal: Journal) -> None:
    """Restore the settings of queues, unless they have been changed since, or the machine was booted."""
    taken = journal.outstanding(WHAT)
    # All are compared before the first is written: a scheduler changes others.
    restored = dict[Path, str]()
    for entry in taken:
        boot, file, before, value = entry.split()
        if boot == text(BOOT_ID) and chosen(Path(file)) == value:
            restored[Path(file)] = before
    for path, before in restored.items():
        with contextlib.suppress(OSError):  # the disk no longer exists
            path.write_text(before)
    for entry in taken:
        journal.release(WHAT, entry)


def queue_obstacles(disk: str, wanted: Mapping[str, Sequence[Scalar]]) -> Iterator[str]:
    """Yield why settings of a disk's queue cannot have these values; nothing is changed."""
    queue = _queue(disk)
    for name in wanted:
        if text(queue / name) is None:
            yield f"{disk} has no {name}"
    offered = re.findall(r"[\w-]+", text(queue / "scheduler") or "")
    schedulers = wanted.get("scheduler", ())
    missing = [str(value) for value in schedulers if value not in offered]
    if offered and missing:
        yield f"{disk} has no scheduler {', '.join(missing)} (available: {', '.join(offered)})"
    # Only a scheduler can queue more requests than the driver.
    most = number(queue.parent / "mq/0/nr_tags")
    asked = max(map(int, wanted.get("nr_requests", (0,))))
    if "none" in (schedulers or (chosen(queue / "scheduler"),)) and most and asked > most:
        yield f"{disk} has at most {most} nr_requests without a scheduler, not {asked}"


def _queue(disk: str) -> Path:
    return Path("/sys/class/block", disk, "queue")


def on_mount(bdi: Path, kilobytes: int) -> int | None:
    """Set the read-ahead of a mounted filesystem; return the resulting kB, or None if it has none
    (ZFS prefetches).
    """
    path = bdi / READ_AHEAD
    if not path.is_file():
        return None
    path.write_text(str(kilobytes))
    return int(path.read_text())
