"""The load of a trial: its generator, on this or on the client's host, and the samplers next to it."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dbbench.drivers import sessions_of
from dbbench.drivers.protocol import Live, Load
from dbbench.engines import ENGINES, profile_of
from dbbench.engines.port import Place, Server
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Clock
from dbbench.model import Cell, Phase, Window
from dbbench.remote import Client
from dbbench.run.stages import Mounts, Volumes, paths
from dbbench.run.workdir import WorkDir
from dbbench.samplers import Sampled
from dbbench.storage import filesystems
from dbbench.storage.devices import leaves_of
from dbbench.storage.devices.directory import shared_disks


@contextlib.contextmanager
def reach(
    cell: Cell,
    workdir: WorkDir,
    clock: Clock,
    raw: Path,
) -> Iterator[tuple[Client | None, Place]]:
    """Yield the client's host, or None for a local load generator, and the place of a server that
    it can reach.
    """
    place = workdir.place(cell.engine)
    if cell.client is None:
        yield None, place
        return
    version = ENGINES[cell.engine.name].installed_version(cell.engine.bin) or ""
    client = Client(
        cell.client,
        cell.workload.driver,
        version,
        workdir.root / "client",
    )
    with client.reach(clock, raw, workdir.scratch) as network:
        yield client, dataclasses.replace(place, network=network)


def list_samplers(
    cell: Cell,
    disks: Volumes,
    mounts: Mounts,
    server: Server,
) -> Sampled:
    """Return what the samplers read: the disks, the mounts, the server."""
    first = {role: device.leaves[0] for role, device in disks.items() if device.leaves}
    all_disks = dict.fromkeys((*leaves_of(disks), *shared_disks(disks)))
    return Sampled(
        disk=first.get("data"),
        server=server if profile_of(cell.engine.name).has_server else None,
        log=first.get("log"),
        disks=tuple(all_disks),
        mounts=paths(mounts),
        sessions=sessions_of(cell),
        has_burst=bool(cell.limit and cell.limit.burst_s),
    )


def drain(server: Server, mounts: Mounts) -> None:
    """Write back what caches deferred, including those of a pool."""
    server.checkpoint()
    for fs in mounts.values():
        filesystems.sync(fs.path)
        if fs.pool is not None:
            fs.pool.sync()


def watch(
    phase: Phase,
    window: Window,
    tell: Callable[..., None],
) -> Callable[[Live], None]:
    """Return a function that reports the load generator's last line as progress, once per second."""
    warm = window.warmup_s if phase is Phase.MEASURE else 0.0
    whole = window.measure_s if phase is Phase.MEASURE else window.warmup_s

    def report(live: Live) -> None:
        second = live.second - warm
        tell(
            "second",
            phase=phase.value,
            second=second,
            of=whole or None,
            tps=live.tps,
            p95_ms=live.p95_ms,
        )

    return report


@contextlib.contextmanager
def reading(load: Load) -> Iterator[Future[Outcome]]:
    """Read the load generator's results in a thread within the block; an error is raised where the
    outcome is used.
    """
    with ThreadPoolExecutor(1) as reader:
        yield reader.submit(contextvars.copy_context().run, load.outcome)
