"""Settings of the kernel and the block layer that can change during a run and affect the results.
`equal_readahead` sets one of them: ext4 and xfs read ahead as much as their disk says and btrfs
at least 4 MiB, which alone changes the result of a scan.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench.machine.host.proc import chosen, common, number, text

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
# keep earlier settings.
_QUEUE: Final = (
    "scheduler",
    "read_ahead_kb",
    "nr_requests",
    "wbt_lat_usec",
    "rotational",
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "optimal_io_size",
    "max_sectors_kb",
    "write_cache",
    "fua",
    "discard_granularity",
    "discard_max_bytes",
    "nomerges",
    "rq_affinity",
    "add_random",
    "io_poll",
    "iostats",
    "stable_writes",
)
# Those that follow from the size of the sectors, which an fs setup may ask for.
SECTORS: Final = (
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "discard_granularity",
)
_SETTABLE: Final = (
    "scheduler",
    "read_ahead_kb",
    "nr_requests",
    "wbt_lat_usec",
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
        for attribute in _QUEUE:
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
def on_disks(disks: Sequence[str], size_bytes: int | None) -> Iterator[None]:
    """Set the read-ahead of the disks to `size_bytes` (None: leave it) within the block, which must
    mount the filesystem: most of them copy the value then. Raises OSError.
    """
    files = (
        [Path("/sys/class/block", disk, "queue/read_ahead_kb") for disk in disks]
        if size_bytes is not None
        else []
    )
    before = [(path, path.read_text()) for path in files]
    try:
        for path in files:
            path.write_text(str((size_bytes or 0) // 1024))
        yield
    finally:
        for path, value in before:
            path.write_text(value)


def on_mount(bdi: Path, size_bytes: int) -> int | None:
    """Set the read-ahead of a mounted filesystem; return the resulting kB, or None if it has none
    (ZFS prefetches).
    """
    path = bdi / "read_ahead_kb"
    if not path.is_file():
        return None
    path.write_text(str(size_bytes // 1024))
    return int(path.read_text())
