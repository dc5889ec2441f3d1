"""The load generator of a trial on another host (`[client]` of the plan)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from dbbench.engines.port import Place
from dbbench.metrics.clock import Clock
from dbbench.remote import Client
from dbbench.run.job import Job


def client_of(job: Job) -> Client | None:
    """Return the client's host of a trial, or None for a local load generator."""
    spec, engine = job.cell.client, job.cell.engine
    if spec is None:
        return None
    version = job.engine.installed(Path(engine.bin) if engine.bin else None)
    return Client(spec, job.cell.workload.driver, version or "", job.workdir.root / "client")


@contextlib.contextmanager
def reached(client: Client | None, place: Place, clock: Clock, raw: Path, scratch: Path) -> Iterator[Place]:
    """Yield the place of a server that the load can reach: on the network for another host, otherwise unchanged."""
    if client is None:
        yield place
        return
    with client.reached(clock, raw, scratch) as network:
        yield dataclasses.replace(place, network=network)
