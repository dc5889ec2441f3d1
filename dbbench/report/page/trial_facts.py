"""What a trial recorded about its conditions, filesystem, device, dataset and server, as flat text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dbbench.compare.conditions import CONDITIONS
from dbbench.model import CacheFacts, DatasetFacts, DeviceFacts, FilesystemFacts, Trial
from dbbench.units import size_text

# device names that change with every trial
_TARGET: Final = re.compile(r"^(/proc/self/fd/\d+|/dev/loop\d+)$")
# Settings whose value is a path, port or name of a trial and not a property of the arm.
_PLACES: Final = re.compile(
    r"(^|_)(dir|directory|directories|file|path|socket|pid|port|hostname|basedir|home)($|_)"
)


def facts(trial: Trial) -> dict[str, str]:
    """Return everything but the server's settings; first the conditions, because a difference
    affects the ratio.
    """
    every = _conditions(trial)
    if trial.memory is not None:
        every["dataset ÷ memory"] = trial.memory.label or ""
    if trial.client is not None:
        every["load generator"] = f"{trial.client.tool} on {trial.client.hostname}, over TLS"
    # What was made: filesystem and device, also those of a separate log.
    every["fs setup"] = trial.setup
    if trial.filesystem is not None:
        every |= _filesystem(trial.filesystem)
        if trial.filesystem.wal:
            every |= _of_log(_filesystem(trial.filesystem.wal))
    if trial.device is not None:
        every |= _device(trial.device)
        if trial.device.wal:
            every |= _of_log(_device(trial.device.wal))
    # What was loaded, and whether the caches were empty.
    if trial.dataset is not None:
        every |= _dataset(trial.dataset)
    if trial.cache is not None:
        every["cold cache"] = _cold_cache(trial.cache)
    return {key: value for key, value in every.items() if value}


def _conditions(trial: Trial) -> dict[str, str]:
    """Return the host's settings and the conditions of the comparison."""
    every = {}
    for name, state in trial.host_state.items():
        if state is not None:
            every[name] = fact_text(state)
    for condition in CONDITIONS:
        value = condition.value(trial)
        if value is not None:
            every[condition.name] = value
    return every


def _cold_cache(cache: CacheFacts) -> str:
    """Return how the caches were emptied, and whether that was verified."""
    proof = "verified"
    if not cache.proved:
        proof = f"not verified: {cache.reason}".rstrip(": ")
    return f"{cache.method}, {proof}" if cache.method else proof


def _of_log(every: Mapping[str, str]) -> dict[str, str]:
    return {f"log: {key}": value for key, value in every.items()}


def _filesystem(fs: FilesystemFacts) -> dict[str, str]:
    # The name of a device changes with every trial.
    commands = []
    for argv in fs.mkfs:
        commands.append(" ".join("DEVICE" if _TARGET.match(word) else word for word in argv))
    geometry = []
    for key, value in fs.geometry.items():
        if "uuid" not in key:
            geometry.append(f"{key} {fact_text(value, key)}")
    return {
        "filesystem": fs.family,
        "durability class": fs.durability_class,
        "mkfs": " ; ".join(commands),
        "mount options requested": ",".join(fs.mount_options_asked),
        "mount options effective": ",".join(fs.mount_options_effective),
        "read-ahead": "" if fs.read_ahead_kb is None else f"{fs.read_ahead_kb} kB",
        "geometry": ", ".join(geometry),
        "atomic writes": fs.atomic_writes or "",
        **{f"queue: {key}": value for key, value in fs.queue.items()},
    }


def _dataset(dataset: DatasetFacts) -> dict[str, str]:
    packed = "" if dataset.compressibility is None else f"{dataset.compressibility:.2f} by zlib"
    return {
        "dataset": dataset.source or dataset.kind,
        "compressibility of the data": packed,
        "only this tablespace is on the filesystem": dataset.tablespace,
        "changed in the copy of the source": "; ".join(dataset.told),
    }


def _device(device: DeviceFacts) -> dict[str, str]:
    direct = "" if device.direct_io is None else fact_text(device.direct_io)
    return {
        "device": " ".join(filter(None, (device.kind, device.model, device.serial))),
        "device size": size_text(device.size_bytes),
        "direct I/O of the loop device": direct,
    }


def server_settings(trial: Trial) -> dict[str, str]:
    """Return the settings that may differ between arms: those requested, and the others that the
    server reported.
    """
    if not trial.effective_settings:
        return {}
    settings = {"version": trial.engine_version}
    settings |= {name: fact_text(setting.value) for name, setting in trial.settings.items()}
    for name, value in trial.effective_settings.items():
        settings.setdefault(name, value)
    return {name: value for name, value in settings.items() if not _PLACES.search(name)}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested facts as `a.b: value`, without those that are not known."""
    every: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            every |= flatten(value, f"{prefix}{key}.")
        elif value is not None:
            every[f"{prefix}{key}"] = fact_text(value, str(key))
    return every


def fact_text(value: Any, name: str = "") -> str:
    """Return a fact as text: flags as on and off, sizes (names that end in `bytes`) with their
    unit.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if name.endswith("bytes") and isinstance(value, int):
        return size_text(value)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
