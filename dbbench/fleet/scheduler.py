"""What the coordinator, `fleet status` and `fleet stop` ask of a scheduler of dask."""

from __future__ import annotations

import contextlib
import queue
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench.errors import DbbenchError, FleetUnreachable
from dbbench.fleet import daemons, security
from dbbench.fleet.parts import Given, Part, PartOutcome
from dbbench.fleet.task import run_part
from dbbench.units import iso

import distributed  # isort: skip  (`daemons` configures dask before it is imported)

_TIMEOUT: Final = "20s"
_FETCH: Final = "60s"
_GONE: Final = (OSError, TimeoutError)  # dask's CommClosedError is an OSError
_LoggedEvent = tuple[float, dict[str, Any]]  # UTC, event of a host (`task._REPORTED`)


@dataclass(frozen=True)
class Host:
    """A worker that is connected to the scheduler."""

    address: str
    # whether it may get parts: a host that refused one gets no others; None: it has another version
    is_usable: bool | None


@dataclass
class Hosts:
    """What the hosts have reported last."""

    connected: set[str] = field(default_factory=set)
    reports: dict[str, _LoggedEvent] = field(default_factory=dict)

    def follow(self, when: float, event: dict[str, Any]) -> None:
        """Take an event of a host."""
        host = event["host"]
        data = event["data"]
        if event["kind"] == "prepare":  # also within a trial
            data = {**self.reports.get(host, (0.0, {}))[1], **data}
        if event["kind"] != "note":
            self.reports[host] = (when, data)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of each host for `fleet status`."""
        rows = []
        for name in sorted({*self.connected, *self.reports}):
            when, data = self.reports.get(name, (None, {}))
            row = {
                "host": name,
                "connected": name in self.connected,
                "trial": data.get("id", ""),
                "note": data.get("what", ""),
                "since": None if when is None else iso(when),
            }
            rows.append(row)
        return rows


class Submitted:
    """A part that the scheduler has."""

    def __init__(self, future: Any) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return bool(self._future.done())

    def outcome(self) -> PartOutcome | None:
        """Return what its task returned; None if it was lost with its scheduler."""
        try:
            outcome: PartOutcome = self._future.result(timeout=_FETCH)
        except (CancelledError, *_GONE):
            return None
        except Exception as error:  # KilledWorker: every worker that had this part died
            evidence = str(error).strip().splitlines()[0]
            return PartOutcome("", error=DbbenchError(evidence).as_data())
        return outcome


class Scheduler:
    """A connection to a scheduler, for one fleet."""

    def __init__(
        self,
        address: str,
        certs: Path | None,
        fleet_name: str,
    ) -> None:
        """Raises FleetInsecure, FileUnreadable, FleetUnreachable."""
        self.address = security.whole(address)
        self._security = security.of(certs)
        self._name = fleet_name
        self._topic = f"dbbench/{fleet_name}"
        self._events: queue.SimpleQueue[_LoggedEvent] = queue.SimpleQueue()
        self._client = self._connect()

    def _connect(self) -> Any:
        try:
            return distributed.Client(
                self.address,
                security=self._security,
                timeout=_TIMEOUT,
                set_as_default=False,
            )
        except (*_GONE, ValueError) as error:
            raise FleetUnreachable(
                f"no scheduler at {self.address}: {error}",
                remedy="Start it with: dbbench fleet scheduler",
            ) from error

    def close(self) -> None:
        """Disconnect; the scheduler cancels the parts that this connection has submitted."""
        with contextlib.suppress(Exception):  # the connection is already closed
            self._client.close(timeout="5s")

    def hosts(self) -> dict[str, Host]:
        """Return the connected hosts by name; none while the scheduler does not answer. Connect
        again after it died.
        """
        if self._client.status == "closed":
            with contextlib.suppress(FleetUnreachable):
                self._client = self._connect()
        if self._client.status != "running":
            return {}
        try:
            # A scheduler that was started again does not know the subscription.
            self._client.subscribe_topic(self._topic, self._events.put)
            workers = self._client.scheduler_info(n_workers=-1)["workers"]
        except _GONE:
            return {}
        hosts = {}
        for address, worker in workers.items():
            resources = worker.get("resources", {})
            of_version = resources.get(daemons.VERSION)
            for resource in resources:
                if resource.startswith(daemons.PLACE):
                    name = resource.removeprefix(daemons.PLACE)
                    hosts[name] = Host(address, None if of_version is None else of_version > 0)
        return hosts

    def set_usable(self, host: Host, usable: bool) -> None:
        """Let the scheduler give parts to a host, or not."""
        with contextlib.suppress(*_GONE):
            self._client.run(
                _set_resource,
                float(usable),
                workers=[host.address],
                on_error="ignore",
            )

    def submit(self, part: Part, given: Given) -> Submitted:
        """Submit a part. dask gives it to another host, if it may run there, when a worker dies."""
        needed = {daemons.VERSION: 1.0}
        if part.host is not None:
            needed[f"{daemons.PLACE}{part.host}"] = 1.0
        # A key that was used before could mean a task that its host has not yet stopped.
        key = f"{self._name}/{part.name}/{uuid.uuid4().hex[:12]}"
        future = self._client.submit(
            run_part,
            part.run,
            given,
            self._topic,
            key=key,
            pure=False,
            resources=needed,
        )
        return Submitted(future)

    def events(self) -> Iterator[_LoggedEvent]:
        """Yield the events of hosts since the last call."""
        while not self._events.empty():
            yield self._events.get()

    def past_events(self) -> tuple[_LoggedEvent, ...]:
        """Return the last events of hosts, oldest first."""
        return tuple(self._client.get_events(self._topic))

    def stop(self) -> list[str]:
        """Cancel the fleet's parts that hosts are running, and tell its coordinator; return the
        hosts.
        """
        self._client.log_event(self._topic, {"kind": "stop"})
        running = self._client.processing()
        stopped = []
        for name, host in sorted(self.hosts().items()):
            keys = [
                key for key in running.get(host.address, ()) if key.startswith(f"{self._name}/")
            ]
            futures = [distributed.Future(key, self._client) for key in keys]
            self._client.cancel(futures, force=True)
            if keys:
                stopped.append(name)
        return stopped


async def _set_resource(quantity: float, dask_worker: Any) -> None:
    await dask_worker.set_resources(**{daemons.VERSION: quantity})
