"""Questions to hosts and their answers, through a scheduler of dask.distributed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any, Final

from dbbench.errors import FleetUnreachable
from dbbench.fleet import host, security
from dbbench.fleet.messages import Answer, Question

# resource of each worker: host_NAME = 1, so that a question goes to this host only
PLACE: Final = "host_"
DISK: Final = "DISK"  # resource for one question at a time that uses the disk
# seconds between two queries of the list of workers, which is long in a large fleet
_LOOK_S: Final = 5.0
_TIMEOUT: Final = "20s"


class Lost:
    """No answer came, because the worker or the scheduler died. Nothing is known; ask again."""


class Connection:
    """A client of a scheduler. If that ends, all questions are lost, and the client of the next
    scheduler is used. `upkeep` is called regularly: it restarts workers and schedulers that
    died.
    """

    def __init__(
        self,
        address: str,
        certs: Path | None = None,
        upkeep: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """Raises FleetInsecure."""
        self.address = security.whole(address)
        self._certs = certs
        self._upkeep = upkeep
        self._names = (f"dbbench-{uuid.uuid4().hex[:12]}-{n}" for n in itertools.count())
        # host -> the answer to its question
        self._pending: dict[str, futures.Future[Answer | Lost]] = {}
        # released together: one by one they would delay the next question
        self._futures: list[Any] = []
        self._client: Any = None
        self._hosts: dict[str, float] = {}
        self._looked = -_LOOK_S

    def connect(self) -> None:
        """Connect to the scheduler. Raises FleetUnreachable if it does not answer, FleetInsecure,
        FileUnreadable.
        """
        import distributed

        self._looked = -_LOOK_S
        try:
            self._client = distributed.Client(
                self.address,
                security=security.of(self._certs),
                timeout=_TIMEOUT,
                set_as_default=False,
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise FleetUnreachable(
                f"no scheduler at {self.address}: {error}",
                remedy="Start it with: dbbench fleet scheduler",
            ) from error

    def hosts(self) -> dict[str, float]:
        """Return the available hosts, and when each was last heard (UTC)."""
        if time.monotonic() - self._looked >= _LOOK_S or self._client is None:
            self._looked = time.monotonic()
            self._hosts = {}
            # of a dying scheduler; then no worker is known to be connected
            with contextlib.suppress(Exception):
                for worker in self._client.scheduler_info()["workers"].values():
                    names = [name for name in worker.get("resources", {}) if name.startswith(PLACE)]
                    self._hosts |= {
                        name.removeprefix(PLACE): float(worker["last_seen"]) for name in names
                    }
            self._futures.clear()
        return self._hosts

    def ask(self, host_name: str, question: Question) -> None:
        """Send a question to a host, waiting until the host is available. One at a time for each
        host.
        """
        if self._client is None:
            self._pending[host_name] = _lost()
        else:
            loop = self._client.loop.asyncio_loop
            carried = self._carry(self._client, host_name, question)
            self._pending[host_name] = asyncio.run_coroutine_threadsafe(carried, loop)

    async def _carry(self, client: Any, host_name: str, question: Question) -> Answer | Lost:
        """Fetch an answer in the client's own thread, while the coordinator writes another one to
        its disk.
        """
        try:
            future = client.submit(
                host.answer,
                question,
                key=next(self._names),
                pure=False,
                retries=0,
                resources={f"{PLACE}{host_name}": 1, DISK: 1},
            )
            answer: Answer = await future
            self._futures.append(future)
        except (Exception, asyncio.CancelledError):  # KilledWorker, or a closed connection
            return Lost()
        return answer

    def answers(self, timeout_s: float) -> list[tuple[str, Answer | Lost]]:
        """Return the answers that have arrived; wait up to the timeout for the first."""
        self._upkeep(self)
        if self._client is not None and self._client.status != "running":
            self.close()
        try:
            if self._client is None:
                self.connect()
        except FleetUnreachable:
            time.sleep(timeout_s)
        if self._pending:
            futures.wait(self._pending.values(), timeout_s, futures.FIRST_COMPLETED)
        else:
            time.sleep(timeout_s)
        done = [name for name, future in self._pending.items() if future.done()]
        return [(name, self._pending.pop(name).result()) for name in done]

    def forget(self, host_name: str) -> None:
        if host_name in self._pending:
            self._pending.pop(host_name).cancel()

    def close(self) -> None:
        """Disconnect from the scheduler; pending questions are lost."""
        if self._client is not None:
            with contextlib.suppress(Exception):  # the connection is already closed
                self._client.close(timeout="2s")
        self._client = None
        self._futures.clear()
        self._pending = {name: _lost() for name in self._pending}

    def wait_for_hosts(self, enough: Callable[[set[str]], bool], within_s: float) -> set[str]:
        """Return the available hosts as soon as there are enough, or after so many seconds."""
        until = time.monotonic() + within_s
        while not enough(hosts := set(self.hosts())) and time.monotonic() < until:
            self.answers(0.5)
        return hosts


def _lost() -> futures.Future[Answer | Lost]:
    future = futures.Future[Answer | Lost]()
    future.set_result(Lost())
    return future
