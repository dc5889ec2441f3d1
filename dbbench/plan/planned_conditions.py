"""The conditions under which a plan's cells would be measured, as sentences, before anything is
done.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dbbench.datasets import sources
from dbbench.engines import profile_of
from dbbench.engines.settings import own_cache_bytes, word
from dbbench.errors import DbbenchError, MachineTooSmall
from dbbench.machine import cores, host, known_faults
from dbbench.machine.limits import cgroup
from dbbench.metrics.summary import SHORT_WINDOW_S
from dbbench.model import Cell, DeviceLimit, DeviceSpec, EngineSpec, Plan, title_of, without_levels
from dbbench.model.run import COPIED
from dbbench.plan.promise import weakening_settings
from dbbench.plan.server_settings import settings_of
from dbbench.plan.variants import Factors, combinations, factors_of
from dbbench.plan.workloads import label
from dbbench.plan.writes import BINARY_LOG, devices_of, kept_logs, spares, tables_bytes
from dbbench.storage.devices import ceiling, sysfs
from dbbench.storage.devices.directory import disks_below, disks_with_several, nearest
from dbbench.storage.filesystems.common import mount_of
from dbbench.storage.filesystems.families import FAMILIES, PERIODS, family_by_name
from dbbench.storage.layers import delay
from dbbench.units import count, join_words, level_text, size_text

_HISTORY: Final = {
    "none": "The device is not conditioned, so earlier writes may affect results. `condition` in "
    "[device] avoids this.",
    "discard": "The whole device is discarded before each trial.",
    "precondition": "Before each block the device is filled twice, then written at random until it is steady.",
}

PLANNED: Final = ("W001", "W002", "W021", "W159")  # warnings that follow from the plan
SMALL_DEVICE: Final = 8 * 2**30  # bytes; the journal of ext4 has its full size from 128 GiB on

_IN_MEMORY: Final = ("tmpfs", "ramfs")
# script -> what sets the number of these rows
_LOCKED_ROWS: Final = {"tpcb-like": "scale", "tpcc.lua": "warehouses"}


def sentences(plan: Plan, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return what will be equal for all cells, what will differ, and what the results will mean, as
    far as known.
    """
    served = [cell for cell in cells if profile_of(cell.engine.name).has_server]
    texts = itertools.chain(
        factor_sentences(plan),
        _profiles(served),
        _weak_settings(served),
        _logs(cells),
        _sources(cells),
        _memory(served),
        _row_locks(served),
        _client(plan),
        _cores(served),
        _checkpoints(plan, served),
        filter(None, [limits(plan, cells)]),
        _device(plan, cells),
        _disks(plan, cells),
        known_fault_sentences(cells, host.kernel()),
    )
    return tuple(dict.fromkeys(texts))


def effect(plan: Plan) -> str:
    """Say what a run does to the machine that it runs on."""
    if plan.device.image_bytes:
        writes = f"writes and in the end removes {size_text(plan.device.image_bytes)} of images"
    elif plan.device.disks:
        writes = "erases the devices of the plan"
    else:
        writes = "writes into the directories of the plan, and empties them in the end"
    return (
        f"the run {writes}, and loads the processors and the disk below. Page cache, mounts and "
        "servers of others stay as they are"
    )


def _profiles(served: Sequence[Cell]) -> Iterator[str]:
    """Name the profile of each server, and the settings that a profile decides, with what overrides
    it.
    """
    statements: dict[tuple[str, str], dict[str, None]] = {}
    for cell in served:
        profile = profile_of(cell.engine.name)
        settings = settings_of(cell)
        values = {name: word(setting.value) for name, setting in settings.items()}
        for name in profile.stated:
            if name in settings and (origin := settings[name].origin) != "default":
                values[name] += f" (set by the {origin.replace('_', ' ')})"
        of_profile = statements.setdefault((cell.engine.name, cell.engine.profile), {})
        of_profile[profile.statement(values)] = None
    for (engine, name), of_profile in statements.items():
        text = "; or ".join(of_profile)
        yield f"{profile_of(engine).title} runs with the {name} profile: {text}."


def _weak_settings(served: Sequence[Cell]) -> Iterator[str]:
    for cell in served:
        for setting, kind in weakening_settings(cell).items():
            title = profile_of(cell.engine.name).title
            yield (
                f"{title} runs with {setting}: acknowledged commits can be lost in a power loss "
                f"(class {kind}; see dbbench explain {kind})."
            )


def _logs(cells: Sequence[Cell]) -> Iterator[str]:
    most: dict[tuple[str, str], int] = {}
    for cell in cells:
        for cause, size in kept_logs(cell).items():
            most[cell.engine.name, cause] = max(size, most.get((cell.engine.name, cause), 0))
    for (engine, cause), size in most.items():
        purged = ", and is removed after it" if cause == BINARY_LOG else ""
        yield (
            f"{profile_of(engine).title}: up to about {size_text(size)} of {cause} in each "
            f"trial{purged} (estimate)."
        )


def _sources(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        data = cell.dataset.parameters
        if cell.dataset.kind == "source":
            alone = f"; only its tablespace {data['tablespace']}" if "tablespace" in data else ""
            made_by = f"{cell.engine.name} {data['version']}".rstrip()
            yield (
                f"{cell.workload.name} uses your own data: {data['path']}, {data['form']} of "
                f"{made_by}{alone}."
            )
            # a source that cannot be used is refused elsewhere
            with contextlib.suppress(DbbenchError):
                source = sources.look(Path(str(data["path"])))
                for change in sources.examine(source, cell.engine.bin):
                    yield f"{data['path']}: {sources.text(change)}."
        elif "tablespace" in data:
            yield (
                f"{cell.workload.name}: only the tables (tablespace {data['tablespace']}) are on "
                "the filesystem under test; the cluster is elsewhere (W101)."
            )


def _memory(served: Sequence[Cell]) -> Iterator[str]:
    # Whether the kernel can enforce a limit here, and why not.
    machine = cgroup.usable_bytes()
    where = cgroup.hierarchy()
    reason = where if isinstance(where, str) else ""
    if not reason and any(cell.memory_bytes is not None for cell in served):
        reason = cgroup.obstacle()
    for cell in served:
        # The memory that can hold data: the limit, else the server's own cache, else all of it.
        limit = cell.memory_bytes
        usable_bytes = machine
        if profile_of(cell.engine.name).direct_io:
            usable_bytes = own_cache_bytes(settings_of(cell)) or machine
        if limit is not None and not reason:
            usable_bytes = limit

        # The tables, compared with it.
        size = tables_bytes(cell)
        title = title_of(cell.workload.name, without_levels(cell.variant, cell.levels))
        sized = f"the tables of {title} on {cell.engine.name} take {size_text(size)}"
        if cell.dataset.kind == "source" and COPIED not in cell.dataset.parameters:
            sized += " (estimated)"
        if usable_bytes:
            sized += f", {size / usable_bytes:.2g} times this ({label(size / usable_bytes)})"
        # What the server gets: no limit, one that cannot be enforced, or the kernel's.
        if limit is None:
            cache = f"up to {size_text(usable_bytes)}" if usable_bytes else "all memory"
            yield (
                f"Memory is not limited: {cache} can cache data, and {sized}. Set `memory` in the "
                "plan to limit it."
            )
        elif isinstance(where, str) or reason:
            yield (
                f"The servers' caches are sized for {size_text(limit)}, but the kernel cannot "
                f"enforce this here ({reason}, W038); {sized}."
            )
        else:
            yield (
                f"Server and page cache together are limited to {size_text(limit)} by the kernel "
                f"(cgroup v{where.version}); {sized}."
            )
        # The page cache keeps some of these tables; which part changes from trial to trial.
        if cell.workload.driver == "scan" and limit and 1 <= size / limit < 2:
            yield (
                f"How much of {title} each scan finds in the page cache is a matter of chance, "
                "because its tables take one to two times the memory. Make them larger, or "
                "`memory` smaller."
            )


def _row_locks(served: Sequence[Cell]) -> Iterator[str]:
    for cell in served:
        name = _LOCKED_ROWS.get(cell.workload.script, "")
        rows = cell.dataset.parameters.get(name)
        clients = cell.parameters.get("clients")
        paced = cell.parameters.get("rate") or cell.parameters.get("think_times")
        if isinstance(rows, int) and isinstance(clients, int) and clients > rows and not paced:
            yield (
                f"The {clients} clients of {cell.title} share {count(rows, 'row')} that each "
                f"transaction locks ({name} = {rows}): they wait for each other more than for the "
                "disk."
            )


def _client(plan: Plan) -> Iterator[str]:
    client = plan.client
    if client is None:
        return
    yield (
        f"The load comes from {client.host} over the network to {client.address} port "
        f"{client.port}, with TLS and a password. Every latency includes a network round trip and "
        "the encryption, for all filesystems alike. Compare these results only with those of a client on another host."
    )


def _cores(served: Sequence[Cell]) -> Iterator[str]:
    away = any(cell.client is not None for cell in served)
    specs = dict[str, EngineSpec]()
    # One sentence for each engine.
    for cell in served:
        specs.setdefault(cell.engine.name, cell.engine)
    for engine, spec in specs.items():
        try:
            chosen = cores.chosen_cores(spec, os.sched_getaffinity(0), alone=away)
        except MachineTooSmall as error:
            yield f"{engine} cannot run on the requested cores: {error.evidence}."
            continue
        # Who runs where.
        server = cores.written_cores(chosen.server)
        client = cores.written_cores(chosen.client)
        node = f" of NUMA node {chosen.numa_node}" if chosen.numa_node is not None else ""
        if away or not chosen.common:
            yield (
                f"{engine} runs on cores {server}{node}, the load generator on "
                f"{'another host' if away else client}."
            )
        else:
            yield (
                f"{engine} and the load generator share {len(chosen.common)} cores and compete for "
                f"them. With {cores.APART_FROM} or more cores, each gets its own."
            )


def _checkpoints(plan: Plan, served: Sequence[Cell]) -> Iterator[str]:
    windows = {cell.window.measure_s for cell in served if cell.window.kind == "fixed"}
    if not windows:
        return
    if plan.checkpoints == "log":
        yield (
            "Checkpoints start after every 128 MiB of log, so a faster filesystem has more of them."
        )
        return
    for seconds in sorted(windows):
        if seconds >= SHORT_WINDOW_S:  # PostgreSQL's shortest interval is 30 s
            yield (
                f"Each window of {seconds:g} s contains two checkpoints, started by time, not by "
                "the log's size."
            )


def limits(plan: Plan, cells: Sequence[Cell]) -> str:
    """Return what is known before the first trial to limit what the results mean, with the IDs of
    PLANNED; "" if nothing is.
    """
    windows = set()
    warm_ups = set()
    for cell in cells:
        if cell.window.kind != "fixed":
            continue
        if cell.window.measure_s < SHORT_WINDOW_S:
            windows.add(cell.window.measure_s)
        period = family_by_name(cell.setup.mkfs.family).writes_out_s(cell.setup.mount, {})
        if period is not None and cell.window.warmup_s < PERIODS * period:
            warm_ups.add(cell.window.warmup_s)
    texts = [f"windows of {seconds:g} s (W001, W002)" for seconds in sorted(windows)]
    texts += [f"a warm-up of {seconds:g} s (W001)" for seconds in sorted(warm_ups)]
    bursts = {
        cell.limit.burst_s
        for cell in cells
        if cell.limit and (cell.limit.burst_s or 0) > cell.window.warmup_s
    }
    texts += [f"a burst of {seconds} s longer than the warm-up (W159)" for seconds in bursts]
    if plan.device.image_bytes:
        smallest = min(volume.size_bytes for volume in plan.device.volumes.values())
        if smallest < SMALL_DEVICE:
            texts.append(f"a device of {size_text(smallest)} (W021)")
    for folder in sorted({volume.at for volume in plan.device.volumes.values() if volume.at}):
        if mount_of(nearest(Path(folder))).fstype in _IN_MEMORY:
            texts.append(f"an image in memory ({folder}), from which nothing reaches a disk")
    if texts:
        return f"Limits of this plan: {join_words(texts)}."
    return ""


def _device(plan: Plan, cells: Sequence[Cell]) -> Iterator[str]:
    if plan.device.directories:
        return
    # The measurement of the bare device is as long as a window makes it.
    longest = max(cell.window.measure_s for cell in cells)
    each_s = ceiling.row_seconds(longest)
    limits = plan.device.limit.levels if plan.device.limit else ()
    throttled = plan.device.limit.throttled if plan.device.limit else ()
    rows = sum(len(ceiling.limited_rows(limit)) for limit in throttled)
    takes = len(ceiling.ROWS) * each_s + rows * max(each_s, ceiling.LIMITED_S)
    yield f"Before the first trial, fio measures the bare device for {takes:.0f} s."
    if limits:
        levels = ", ".join(limit.text for limit in limits)
        yield (
            f"Each device is a model of a disk with {levels}. A model has constant delays, no "
            "neighbours and no further bursts."
        )
    if throttled:
        yield (
            "Rates are limited for reads and for writes each, from the server's start to the end "
            "of the load."
        )
    yield from _delays(limits)
    # The history of writes matters only on a real disk.
    if plan.device.disks:
        yield _HISTORY[plan.device.condition]
    if plan.device.queue:
        each = _levels_text(plan.device.queue)
        yield (
            f"Queue of each disk in a trial: {each}. It is set before mkfs, read back, and restored "
            "after the trial; fio measures the device with its own. Layers have no such queue."
        )
    # Read-ahead is part of the setup unless the plan makes it equal.
    if plan.equal_readahead_bytes is not None:
        yield f"Read-ahead is set to {size_text(plan.equal_readahead_bytes)} on every filesystem."
    elif not plan.device.readahead and any(
        cell.workload.window == "to-completion" for cell in cells
    ):
        yield (
            "Each filesystem uses its own read-ahead, which affects scans. Set `equal_readahead` "
            "to make it equal."
        )
    yield (
        "Settings of the host and the block layer are recorded before and after each trial: a "
        "change during the run makes a trial suspect, and a difference between two setups is "
        "reported next to their ratio."
    )


def _delays(limits: Sequence[DeviceLimit]) -> Iterator[str]:
    delays = sorted({asked for limit in limits for asked in limit.delays.values()})
    if not delays:
        return
    yield "Delays are in force during the whole trial, and measured before mkfs."
    tick = delay.tick_ms()
    longer = []
    for asked in delays:
        rounded = delay.rounded_ms(asked, tick)
        if rounded > (1 + delay.OFF) * asked:
            longer.append(f"{asked} ms becomes {rounded:.3g} ms")
    if longer:
        yield f"This kernel delays by whole ticks of {tick:.3g} ms: {join_words(longer)} (W157)."


def _disks(plan: Plan, cells: Sequence[Cell]) -> Iterator[str]:
    if plan.device.directories:
        yield from _directories(plan.device.directories)
        return
    added = {cell.arm: spares(plan, cell.setup) for cell in cells}
    if any(added.values()):
        each = ", ".join(f"{arm} by {number}" for arm, number in added.items() if number)
        yield f'Devices that the operation "grow" adds after the load: {each}.'
    # More disks are not a property of a filesystem.
    numbers = {cell.arm: devices_of(plan, cell.setup) for cell in cells}
    if len(set(numbers.values())) > 1:
        each = ", ".join(f"{arm} {number}" for arm, number in numbers.items())
        yield (
            f"The number of devices differs: {each}. A setup with more disks also has their "
            "throughput."
        )
    most = max(numbers.values())
    if names := disks_with_several(_physical(plan.device, most)):
        yield (
            f"Several devices are on one physical disk ({', '.join(names)}): RAID over them, or a "
            "separate log, gains nothing (W119)."
        )


def _directories(directories: Mapping[str, str]) -> Iterator[str]:
    folders = {arm: nearest(Path(path)) for arm, path in directories.items()}
    for arm, folder in folders.items():
        if (kind := mount_of(folder).fstype) not in FAMILIES:
            yield (
                f"{arm} is on {kind}: dbbench does not know whether its data survive a power loss."
            )
    if len({folder.stat().st_dev for folder in folders.values()}) < len(folders):
        yield (
            "Some of the directories are on the same filesystem, so only chance makes them differ."
        )
    elif names := disks_with_several([disks_below(folder) for folder in folders.values()]):
        yield (
            f"The same disk lies under several directories ({', '.join(names)}): only their "
            "filesystems differ."
        )


def _physical(device: DeviceSpec, most: int) -> list[tuple[str, ...]]:
    """Return the disks below each of the first `most` devices and below the log device; () for
    unknown disks.
    """
    disks: list[tuple[str, ...]] = []
    for role, volume in device.volumes.items():
        number = most if role == "data" else 1
        if volume.image_bytes:
            folder = nearest(Path(volume.at or "."))
            disks += [disks_below(folder)] * min(number, volume.count)
        for path in map(Path, volume.disks[:number]):
            name = None
            if path.exists():
                name = sysfs.name_at(path)
            disks.append(sysfs.leaves(name) if name else ())
    return disks


def _levels_text(factors: Factors) -> str:
    """Return "io_method sync, worker; jit on, off"."""
    return "; ".join(
        f"{name} {', '.join(map(level_text, levels))}" for name, levels in factors.items()
    )


def factor_sentences(plan: Plan) -> Iterator[str]:
    """Describe the factors of each engine, and those that it does not have."""
    for engine in plan.engine:
        factors = factors_of(plan.factors, engine)
        if not factors:
            continue
        yield (
            f"Factors of {engine.name}: {_levels_text(factors)}. Each setup runs with "
            f"{len(combinations(plan, engine))} combinations."
        )
    for name in plan.factors:
        without = [
            engine.name for engine in plan.engine if name not in factors_of(plan.factors, engine)
        ]
        if without:
            yield f"{name} is not a factor of {' and '.join(without)}."


def known_fault_sentences(
    cells: Sequence[Cell],
    kernel: Mapping[str, str | None],
) -> Iterator[str]:
    """Name the faults of a kernel that can lose the data of these cells, and the options that their
    durability classes do not know. `kernel`: `host.kernel`.
    """
    faults = known_faults.of_host(kernel)
    for cell in cells:
        family = cell.setup.mkfs.family
        engine = cell.engine.name
        settings = settings_of(cell) if profile_of(engine).has_server else {}
        options = (*cell.setup.mkfs.options, *cell.setup.mkfs.tune, *cell.setup.mount)

        # Everything that decides about a fault, as one text.
        values = {name: word(setting.value) for name, setting in settings.items()}
        text = known_faults.options_text(options, values)
        for fault, version in faults:
            if fault.concerns(family, engine, text):
                yield f"{fault.sentence(version)}."

        # Defaults are dbbench's own choice, and judged.
        chosen = {name: values[name] for name in values if settings[name].origin != "default"}
        text = known_faults.options_text(options, chosen)
        for sentence in known_faults.unknown_options(family, engine, text):
            yield f"{sentence}."
