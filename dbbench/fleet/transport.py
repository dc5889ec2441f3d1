"""The transport of questions and answers: dask.distributed, behind an interface of four methods."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from dbbench import process
from dbbench.errors import FleetUnreachable
from dbbench.fleet import host, security
from dbbench.fleet.room import Answer, Leave, Question
from dbbench.machine import threads

PLACE: Final = "host_"  # resource of each worker: host_NAME = 1, so that a question goes to this host only
DISK: Final = "DISK"  # resource for one question at a time that uses the disk
_LOOK_S: Final = 5.0  # seconds between two queries of the list of workers, which is long in a large fleet
_TIMEOUT: Final = "20s"
_LEAVE_S: Final = 10.0
_STEP_S: Final = 0.2


@dataclass(frozen=True)
class Lost:
    """No answer came, because the worker or the transport died. Nothing is known; ask again."""

    why: str


class Transport(Protocol):
    """What the coordinator needs of a transport."""

    def hosts(self) -> dict[str, float]:
        """Return the available hosts, and when each was last heard (UTC)."""

    def ask(self, host: str, question: Question) -> None:
        """Send a question to a host, waiting until the host is available. One at a time for each host."""

    def answers(self, timeout_s: float) -> Sequence[tuple[str, Answer | Lost]]:
        """Return the answers that have arrived; wait up to the timeout for the first."""

    def forget(self, host: str) -> None:
        """Ignore answers of that host from now on."""


class Dask:
    """A transport through a scheduler of dask.distributed."""

    def __init__(self, address: str, certs: Path | None = None) -> None:
        """Raises FleetUnreachable if no scheduler answers, FleetInsecure, FileUnreadable."""
        import distributed

        address = security.whole(address)
        self._names = (f"dbbench-{uuid.uuid4().hex[:12]}-{n}" for n in itertools.count())
        self._done: queue.Queue[tuple[str, Question, Answer | Lost]] = queue.Queue()
        self._asked: dict[str, tuple[Question, Any]] = {}
        self._answered: list[Any] = []  # released together: one by one they would delay the next question
        self._there: dict[str, float] = {}
        self._looked = -_LOOK_S
        try:
            self._client = distributed.Client(address, security=security.of(certs), timeout=_TIMEOUT,
                                              set_as_default=False)  # fmt: skip
        except (OSError, TimeoutError, ValueError) as error:
            raise FleetUnreachable(f"no scheduler at {address}: {error}", remedy="dbbench fleet scheduler") from error

    def hosts(self) -> dict[str, float]:
        if time.monotonic() - self._looked >= _LOOK_S:
            self._looked = time.monotonic()
            self._there = self._look()
            self._answered.clear()
        return self._there

    def _look(self) -> dict[str, float]:
        try:
            workers = self._client.scheduler_info()["workers"].values()
        except Exception:  # a dying scheduler may raise anything; then no worker is known to be connected
            return {}
        return {
            name.removeprefix(PLACE): float(worker["last_seen"])
            for worker in workers
            for name in worker.get("resources", {})
            if name.startswith(PLACE)
        }

    def ask(self, host_name: str, question: Question) -> None:
        carried = asyncio.run_coroutine_threadsafe(self._carried(host_name, question), self._client.loop.asyncio_loop)
        self._asked[host_name] = question, carried

    async def _carried(self, host_name: str, question: Question) -> None:
        """Fetch an answer in the client's own thread, while the coordinator writes another one to its disk."""
        answer: Answer | Lost
        try:
            future = self._submit(host_name, question)
            answer = await future
            self._answered.append(future)
        except (Exception, asyncio.CancelledError) as error:  # KilledWorker, or a closed connection
            answer = Lost(f"{type(error).__name__}: {error}")
        self._done.put((host_name, question, answer))

    def _submit(self, host_name: str, question: Question) -> Any:
        return self._client.submit(
            host.answer, question, key=next(self._names), pure=False, retries=0,
            resources={f"{PLACE}{host_name}": 1, DISK: 1},
        )  # fmt: skip

    def answers(self, timeout_s: float) -> list[tuple[str, Answer | Lost]]:
        received = list[tuple[str, Answer | Lost]]()
        wait = timeout_s
        while True:
            try:
                name, question, answer = self._done.get(timeout=wait) if wait else self._done.get_nowait()
            except queue.Empty:
                return received
            wait = 0.0
            # Otherwise the answer is from a host that was forgotten.
            if name in self._asked and self._asked[name][0] is question:
                del self._asked[name]
                received.append((name, answer))

    def forget(self, host_name: str) -> None:
        _, carried = self._asked.pop(host_name, (None, None))
        if carried is not None:
            carried.cancel()

    @property
    def broken(self) -> bool:
        """Whether the scheduler has ended, so that a new transport is needed."""
        return bool(self._client.status != "running")

    def close(self) -> None:
        """Disconnect from the scheduler."""
        with contextlib.suppress(Exception):  # the connection is already closed
            self._client.close(timeout="2s")

    def end(self) -> None:
        """End workers and scheduler, without waiting for the workers' answers."""
        self._answered.clear()
        with contextlib.suppress(Exception):  # the scheduler has already ended
            # Keep the futures: Dask cancels tasks without one.
            asked = [self._submit(name, Leave()) for name in self._look()]
            process.wait_while(lambda: asked and self._look(), _LEAVE_S, _STEP_S)
        ending = threads.Helper("fleet-end", self._shut)  # Dask's own call has no time limit
        ending.start()
        ending.join(_LEAVE_S)

    def _shut(self) -> None:
        with contextlib.suppress(Exception):
            self._client.shutdown()


class Lasting:
    """A transport that outlives its scheduler: if that ends, all questions are lost, and it connects to the next
    scheduler.

    `upkeep` is called regularly: it restarts workers and schedulers that died.
    """

    def __init__(self, connect: Callable[[], Dask], upkeep: Callable[[Lasting], None]) -> None:
        self._connect, self._upkeep = connect, upkeep
        self._engine: Dask | None = None
        self._asked: set[str] = set()
        self._lost: list[str] = []

    def hosts(self) -> dict[str, float]:
        return self._engine.hosts() if self._engine is not None else {}

    def ask(self, host: str, question: Question) -> None:
        if self._engine is None:
            self._lost.append(host)
        else:
            self._asked.add(host)
            self._engine.ask(host, question)

    def answers(self, timeout_s: float) -> list[tuple[str, Answer | Lost]]:
        self._upkeep(self)
        if self._engine is not None and self._engine.broken:
            self.close()
        if self._engine is None:
            self.connect(timeout_s)
        received = list[tuple[str, Answer | Lost]](
            (host, Lost("the connection to the scheduler was lost")) for host in self._lost
        )
        self._lost.clear()
        if self._engine is not None and not received:
            received = self._engine.answers(timeout_s)
            self._asked -= {host for host, _ in received}
        return received

    def forget(self, host: str) -> None:
        self._asked.discard(host)
        if self._engine is not None:
            self._engine.forget(host)

    def connect(self, wait_s: float) -> bool:
        """Try to reach a scheduler; return whether there is one."""
        if self._engine is None:
            try:
                self._engine = self._connect()
            except FleetUnreachable:
                time.sleep(wait_s)
        return self._engine is not None

    def close(self) -> None:
        """Disconnect from the scheduler; pending questions are lost."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        self._lost += sorted(self._asked)
        self._asked.clear()

    def end(self) -> None:
        """End the workers and the scheduler that this coordinator started."""
        if self._engine is not None:
            self._engine.end()
            self._engine = None
