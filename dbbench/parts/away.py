"""A trial's load generator on another host (`[client]` of the plan)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from dbbench.clock import Clock
from dbbench.engines import ENGINES
from dbbench.engines.port import Place
from dbbench.model import Cell
from dbbench.parts.room import Room
from dbbench.remote import Client


def client_of(cell: Cell, room: Room) -> Client | None:
    """The client's host of a cell; None: its load generator runs here."""
    if cell.client is None:
        return None
    version = ENGINES[cell.engine.name].installed(Path(cell.engine.bin) if cell.engine.bin else None)
    return Client(cell.client, cell.workload.driver, version or "", room.root / "client")


@contextlib.contextmanager
def reached(client: Client | None, place: Place, clock: Clock, raw: Path, scratch: Path) -> Iterator[Place]:
    """The place of a server that the load reaches: over the network where the client is elsewhere, else unchanged."""
    if client is None:
        yield place
        return
    with client.reached(clock, raw, scratch) as network:
        yield dataclasses.replace(place, network=network)
