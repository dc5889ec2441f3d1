"""What can change on a host within a run, and moves the numbers: read before every trial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dbbench.host.sysfs import chosen, common, number, text

Value = str | int | None

_VM: Final = (
    "swappiness", "dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes",
    "dirty_expire_centisecs", "dirty_writeback_centisecs", "overcommit_memory", "nr_hugepages",
    "vfs_cache_pressure",
)  # fmt: skip


def state(root: Path = Path("/")) -> dict[str, Value]:
    """Flat; None where this machine has no such thing. `mitigation_*` are the kernel's own sentences."""
    cpu, proc = root / "sys/devices/system/cpu", root / "proc"
    thp = root / "sys/kernel/mm/transparent_hugepage"
    found: dict[str, Value] = {
        "cpus_online": text(cpu / "online"),
        "governor": common(cpu.glob("cpufreq/policy*/scaling_governor")),
        "cpu_max_khz": common(cpu.glob("cpufreq/policy*/scaling_max_freq")),
        "energy_preference": common(cpu.glob("cpufreq/policy*/energy_performance_preference")),
        "turbo": _turbo(cpu),
        "smt": text(cpu / "smt/control"),
        "c_states": _c_states(cpu),
        "thp": chosen(thp / "enabled"),
        "thp_defrag": chosen(thp / "defrag"),
        "numa_balancing": number(proc / "sys/kernel/numa_balancing"),
        "swap_kb": _swap_kb(proc),
    }
    found.update({f"vm_{name}": number(proc / "sys/vm" / name) for name in _VM})
    for path in sorted((cpu / "vulnerabilities").glob("*")):
        found[f"mitigation_{path.name}"] = text(path)
    return found


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """One line for each key that differs: "governor: performance -> powersave"; for W018."""
    keys = dict.fromkeys([*before, *after])
    return [
        f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _shown(value: object) -> str:
    return "not there" if value is None else str(value)


def _turbo(cpu: Path) -> str | None:
    no_turbo, boost = number(cpu / "intel_pstate/no_turbo"), number(cpu / "cpufreq/boost")
    if no_turbo is not None:
        return "off" if no_turbo else "on"
    if boost is not None:
        return "on" if boost else "off"
    return None


def _c_states(cpu: Path) -> str | None:
    """The idle states that CPU 0 may enter, shallow first: "POLL C1 C6"; disabled ones are left out."""
    states = sorted((cpu / "cpu0/cpuidle").glob("state*"), key=lambda path: int(path.name[5:]))
    return " ".join(text(path / "name") or "?" for path in states if number(path / "disable") != 1) or None


def _swap_kb(proc: Path) -> int | None:
    lines = text(proc / "swaps")
    if lines is None:
        return None
    try:
        return sum(int(line.split()[-3]) for line in lines.splitlines()[1:])
    except (IndexError, ValueError):
        return None
