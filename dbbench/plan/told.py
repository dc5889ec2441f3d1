"""The conditions under which a plan's cells would be measured, each in a sentence, before anything is done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from dbbench import ceiling, host
from dbbench.datasets import generated
from dbbench.engines import SERVERLESS
from dbbench.engines.settings import own_cache_bytes
from dbbench.filesystems.periods import PERIODS, period_s
from dbbench.limits import cgroup, cores
from dbbench.model import Cell, Plan
from dbbench.plan.preview import dataset_bytes
from dbbench.plan.settings import settings_of
from dbbench.plan.sizes import label
from dbbench.units import size_text

_HISTORY: Final = {
    "none": "The history of the device is taken as it is: `condition` in [device] makes it the same for all trials.",
    "discard": "The whole device is discarded before each trial.",
    "precondition": "Before each block of trials the device is filled twice and written at random until it is steady.",
}


def sentences(plan: Plan, cells: Sequence[Cell]) -> tuple[str, ...]:
    """What will be the same for all, what will not, and what the figures will mean, as far as it is known now."""
    return tuple(
        dict.fromkeys(
            (
                *_sources(plan, cells),
                *_memory(cells),
                *_client(plan),
                *_cores(cells),
                *_checkpoints(plan, cells),
                *_warm_up(cells),
                *_device(plan, cells),
            )
        )
    )


def _sources(plan: Plan, cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        own = cell.dataset.parameters
        if cell.dataset.kind == "source":
            alone = f"; of it the tablespace {own['tablespace']} alone" if "tablespace" in own else ""
            yield (f"{cell.workload.name} works on your own data: {own['path']}, {own['form']} of {cell.engine.name} "
                   f"{own['version']}{alone}.")  # fmt: skip
    if plan.restore == "reflink":
        yield "Data files share their blocks with a copy beside them: the first write of each goes elsewhere (W100)."
    elif plan.restore == "tar":
        yield "Datasets are restored as a stream of tar."


def _memory(cells: Sequence[Cell]) -> Iterator[str]:
    machine = host.memory_bytes()
    where = cgroup.hierarchy()
    for cell in (cell for cell in cells if cell.engine.name not in SERVERLESS):  # these make their own files
        limit, size = cell.memory_bytes, dataset_bytes(cell) - generated.SERVER_BYTES[cell.engine.name]
        held = limit is not None and not isinstance(where, str)
        pool = None if cell.engine.name == "postgres" else own_cache_bytes(settings_of(cell))  # direct I/O
        could = limit if held else pool or machine
        meant = f", {size / could:.2g} times that: {label(size / could)}" if could else ""
        sized = f"the tables of {cell.title} on {cell.engine.name} have {size_text(size)}{meant}"
        if limit is None:
            of = f"{size_text(could)} can hold data" if could else "all of the machine's can hold data"
            yield f"Memory is not limited: {of}, and {sized}. `memory` in the plan limits it."
        elif isinstance(where, str):
            yield (f"The servers' caches are sized for {size_text(limit)}, and the kernel cannot hold them to it here "
                   f"({where}, W038); {sized}.")  # fmt: skip
        else:
            yield (f"Server and page cache have {size_text(limit)} together, held by the kernel (cgroup "
                   f"v{where.version}); {sized}.")  # fmt: skip


def _client(plan: Plan) -> Iterator[str]:
    if plan.client is None:
        return
    at = plan.client
    yield (f"The load comes from {at.host} over the network to {at.address} port {at.port}, by TLS with a password: "
           "each statement waits for a round trip of the network, and its encryption costs the server CPU time. Both "
           "are in every latency, for all filesystems alike. Compare with trials of such a client only.")  # fmt: skip


def _cores(cells: Sequence[Cell]) -> Iterator[str]:
    for engine in dict.fromkeys(cell.engine.name for cell in cells if cell.engine.name not in SERVERLESS):
        spec = next(cell.engine for cell in cells if cell.engine.name == engine)
        away = any(cell.client is not None for cell in cells)
        found = cores.chosen(spec, os.sched_getaffinity(0), alone=away)
        node = f" of NUMA node {found.numa_node}" if found.numa_node is not None else ""
        if away:
            yield f"{engine} runs on cores {cores.written(found.server)}{node}; no load generator is on this machine."
        elif not found.shared:
            server, client = cores.written(found.server), cores.written(found.client)
            yield f"{engine} runs on cores {server}{node}, the load generator on {client}."
        else:
            yield (f"{engine} and the load generator share {len(found.shared)} cores: what one takes the other lacks. "
                   f"From {cores.APART_FROM} cores on they have their own.")  # fmt: skip


def _checkpoints(plan: Plan, cells: Sequence[Cell]) -> Iterator[str]:
    served = [cell for cell in cells if cell.engine.name not in SERVERLESS]
    windows = {cell.window.measure_s for cell in served if cell.window.kind == "fixed"}
    if not windows:
        return
    if plan.checkpoints == "log":
        yield "Checkpoints begin when 128 MiB of log are written: the faster filesystem has more of them."
    for seconds in sorted(windows) if plan.checkpoints == "time" else ():
        if seconds < 60:  # PostgreSQL's shortest interval is 30 s
            yield f"No checkpoint is sure to end in a window of {seconds:g} s: the figures are of a burst (W002)."
        else:
            yield f"Two checkpoints fall into each window of {seconds:g} s, by time; the log's size starts none."


def _warm_up(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        period = period_s(cell.setup.mkfs.family, cell.setup.mount, {})
        fixed = cell.window.kind == "fixed"
        if fixed and period is not None and cell.window.warmup_s < PERIODS * period:
            yield (f"{cell.window.warmup_s:g} s of warm-up are less than three of the {period:g} s after which "
                   f"{cell.setup.mkfs.family} writes out by itself (W041).")  # fmt: skip


def _device(plan: Plan, cells: Sequence[Cell]) -> Iterator[str]:
    if plan.device.kind == "dir":
        return
    longest = max(cell.window.measure_s for cell in cells)
    takes = len(ceiling.ROWS) * ceiling.seconds(longest)
    yield f"Before the first trial fio measures for {takes:.0f} s what the bare device can do."
    if plan.device.kind == "block":
        yield _HISTORY[plan.device.condition]
    if plan.equal_readahead_bytes is not None:
        yield f"Every filesystem reads ahead {size_text(plan.equal_readahead_bytes)}."
    elif any(cell.workload.window == "to-completion" for cell in cells):
        yield "Each filesystem reads ahead what it takes by itself, which moves a scan: `equal_readahead` sets it."
    yield ("Host and block layer are read before and after each trial: a change within the run makes a trial suspect, "
           "a difference between two arms stands beside their ratio.")  # fmt: skip
