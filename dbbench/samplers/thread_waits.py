"""threads: what each session of the server does or waits for, about twenty times a second, from
/proc/PID/task/TID/{syscall,wchan}. `threads.jsonl` has the counts of each second, the columns
`sessions_LAYER` the mean number of sessions in each layer (`time_layers.py`). The moments are random,
so that nothing periodic is always, or never, seen.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from dbbench import process
from dbbench.errors import DbbenchError
from dbbench.machine import threads
from dbbench.machine.host import proc as proc_files
from dbbench.machine.host.proc import PROC, CpuTurns, ProcessFamily, content, cpu_turns
from dbbench.machine.limits.cgroup import Groups
from dbbench.machine.mounts import mounts_of
from dbbench.metrics.series import Series, on_the_second
from dbbench.model import TIME_LAYERS, Json, TimeLayer, TrialWarning
from dbbench.samplers.sampler import Sampled, Sampling
from dbbench.samplers.time_layers import (
    RUNNING,
    SESSION,
    LockCounts,
    ThreadState,
    Wait,
    calls_by_number,
    kind_of,
    layer_of,
    table,
    waits,
)
from dbbench.units import iso

PROGRAMS: Final = ()
PER_S: Final = 20  # looks at all threads in a second, if they are cheap
_LEAST_PER_S: Final = 4
_MOST_CPU: Final = 0.006  # share of a core; the load has the rest
_MOST: Final = 512  # threads that are sampled in a second; of more, a random part
_READ_BYTES: Final = 256
_IDLE_S: Final = 1.0  # for an answer to dbbench's own session, which then waits for its client
_JOIN_S: Final = 2.0  # for an answer of the server about its sessions
NO_PERMISSION: Final = "the kernel does not let this user see what the server's threads wait for"
NO_TABLE: Final = "the system calls of this architecture are not known"


@dataclass
class Second:
    """The samples of one second, which ended at `utc`. `waits`: sessions × samples."""

    utc: float = 0.0
    samples: int = 0
    waits: Counter[Wait] = field(default_factory=Counter)
    part: float = 1.0  # share of the threads that were sampled
    on_cpu_s: float = 0.0  # of the sessions
    queued_s: float = 0.0  # they could run, and had no CPU
    throttled: bool = False  # a control group reached its quota of CPU time

    def means(self) -> dict[Wait, float]:
        """Return the mean number of sessions in each wait."""
        looks = self.samples * self.part
        return {wait: count / looks for wait, count in self.waits.items()}

    def sessions(self) -> dict[str, float]:
        """Return the mean number of sessions in each layer. Of those that run, the scheduler says how
        many had a CPU.
        """
        layers = dict.fromkeys((RUNNING, *map(str, TimeLayer)), 0.0)
        for wait, mean in self.means().items():
            layers[wait.layer] += mean
        running = layers.pop(RUNNING)
        wanted_s = self.on_cpu_s + self.queued_s
        on_cpu = running * self.on_cpu_s / wanted_s if wanted_s else running
        layers[TimeLayer.CPU] += on_cpu
        layers[TimeLayer.THROTTLED if self.throttled else TimeLayer.QUEUE] += running - on_cpu
        return layers


@dataclass(slots=True)
class Thread:
    """A thread of the server with its open files in /proc."""

    pid: int
    tid: int
    role: str
    syscall: int
    wchan: int
    schedstat: int
    title: int  # of the command line, of a process of PostgreSQL; -1 for another
    turns: CpuTurns = field(default_factory=CpuTurns)

    def __post_init__(self) -> None:
        self.grown()

    def grown(self) -> tuple[float, float]:
        """Return the seconds since the last call on a CPU, and waiting for one."""
        before = self.turns
        with contextlib.suppress(OSError):
            self.turns = cpu_turns(os.pread(self.schedstat, _READ_BYTES, 0))
        return self.turns.on_cpu_s - before.on_cpu_s, self.turns.queued_s - before.queued_s

    def close(self) -> None:
        for fd in (self.syscall, self.wchan, self.schedstat, self.title):
            with contextlib.suppress(OSError):  # -1
                os.close(fd)


@contextlib.contextmanager
def beside(target: Sampled, raw: Path) -> Iterator[Sampling | None]:
    """Sample the server's threads within the block."""
    pid = None if target.server is None else target.server.pid
    if target.server is None or pid is None:
        yield None
        return
    sampler = ThreadWaits(pid, raw / "threads.jsonl", target.server.session_threads)
    process.wait_while(lambda: not sampler.leave_out_idle(), _IDLE_S, 0.02)
    with threads.beside("threads", sampler.work, limit_s=_JOIN_S):
        yield sampler


class ThreadWaits:
    """Samples the threads of the server with this first process. `sessions`: `session_threads` of
    the server.
    """

    def __init__(
        self,
        server: int,
        log: Path,
        sessions: Callable[[], frozenset[int]],
        proc: Path = PROC,
    ) -> None:
        self.seconds: list[Second] = []
        self.cpu_s = 0.0  # its own CPU time
        self.note = "" if calls_by_number() else NO_TABLE
        self._server = server
        self._sessions = sessions
        self._log = log
        self._proc = proc
        self._groups = Groups(mounts_of(Path("/proc/self")))
        self._family = ProcessFamily(proc)
        self._threads: dict[int, Thread] = {}
        self._own = set[int]()  # threads of dbbench's sessions
        self._locks = LockCounts(Counter(), Counter())
        self._part = 1.0
        self._per_s = float(PER_S)

    def leave_out_idle(self) -> bool:
        """Leave out the sessions that wait for a client before the load begins: dbbench's own. Return
        False if there is none yet.
        """
        self._find_threads()
        for tid, thread in list(self._threads.items()):
            state = self._state(thread)
            if state and (state.role, layer_of(state)) == (SESSION, TimeLayer.CLIENT):
                self._own.add(tid)
                self._threads.pop(tid).close()
        if not self._own:
            return False
        # Other sessions have ended; MySQL has kept their threads for later ones.
        for thread in self._threads.values():
            if thread.role == SESSION:
                thread.role = ""
        return True

    def work(self, ended: Event) -> None:
        """Sample until `ended` is set."""
        with self._log.open("w", encoding="utf-8") as log:
            while not ended.is_set() and not self.note:
                second = self._sample_second(ended)
                if second.samples and not self.note:
                    self.seconds.append(second)
                    log.write(json.dumps(_line(second)) + "\n")
        for thread in self._threads.values():
            thread.close()
        self.cpu_s = time.thread_time()

    def read(self, begin_utc: float, seconds: int) -> tuple[Series, list[TrialWarning]]:
        means = [(second.utc, second.sessions()) for second in self.seconds]
        columns = {}
        for layer in TIME_LAYERS:
            points = ((utc, sessions[layer]) for utc, sessions in means)
            columns[f"sessions_{layer}"] = on_the_second(points, begin_utc, seconds)
        return Series(seconds, columns if means else {}), []

    def _sample_second(self, ended: Event) -> Second:
        # As many looks as the budget of CPU time allows, at random moments.
        began = time.monotonic()
        before_s = time.thread_time()
        self._find_threads()
        second = Second(part=self._part)
        for number in itertools.count(1):
            due = began + (number - random.random()) / self._per_s
            if due >= began + 1 or ended.wait(max(0.0, due - time.monotonic())):
                break
            states = [self._state(thread) for thread in list(self._threads.values())]
            readable = [state for state in states if state is not None]
            if not readable and not self.seconds:  # /proc may hide what belongs to others
                self.note = NO_PERMISSION
            second.waits.update(waits(readable, self._locks))
            second.samples += 1
            if time.monotonic() >= began + 1:
                break
        self._read_times(second)
        self._per_s = affordable(second.samples, time.thread_time() - before_s)
        second.utc = time.time()
        return second

    def _find_threads(self) -> None:
        """Open the files of new threads, and close those of ended ones."""
        # Sessions come and go, so the threads are listed again each second.
        present = {}
        for pid, task_of in self._family.read((self._server,)).items():
            for task in proc_files.threads(task_of, self._proc):
                present[task.pid] = (pid, task.name)
        chosen = present.keys() - self._own
        everyone = len(chosen)
        if everyone > _MOST:
            chosen = set(random.sample(sorted(chosen), _MOST))
        self._part = len(chosen) / everyone if chosen else 1.0
        # A process of PostgreSQL gets its title a moment after it has started.
        for tid, thread in list(self._threads.items()):
            if tid not in chosen or (thread.title < 0 and thread.pid != self._server):
                self._threads.pop(tid).close()
        new = chosen - self._threads.keys()
        for tid in new:
            self._open(*present[tid], tid)
        with contextlib.suppress(DbbenchError):  # the sampler `counters` reports it
            for tid in self._threads.keys() & self._sessions():
                thread = self._threads[tid]
                # A thread that MySQL has kept is a session's again when it runs.
                if tid in new or (thread.role != SESSION and thread.grown()[0] > 0):
                    thread.role = SESSION

    def _open(self, pid: int, name: str, tid: int) -> None:
        folder = f"{self._proc}/{pid}/task/{tid}"
        title = content(f"{self._proc}/{pid}/cmdline") or ""
        is_titled = title.startswith("postgres: ")
        self._threads[tid] = Thread(
            pid,
            tid,
            kind_of(title.split("\0")[0] if is_titled else name, "roles"),
            _open_file(f"{folder}/syscall"),
            _open_file(f"{folder}/wchan"),
            _open_file(f"{folder}/schedstat"),
            _open_file(f"{folder}/cmdline") if is_titled else -1,
        )

    def _state(self, thread: Thread) -> ThreadState | None:
        """Return what the thread does now; None if it has ended, or may not be read."""
        try:
            line = os.pread(thread.syscall, _READ_BYTES, 0)
            number, *arguments = line.split(None, 2)
            if number == b"running":
                return ThreadState(thread.role)
            name, call = _call_of(number)
            # Most threads wait for events or locks, in which the function says nothing more.
            function = ""
            if call.get("does") not in ("events", "lock"):
                function = os.pread(thread.wchan, _READ_BYTES, 0).decode()
            title = b""
            if call.get("does") == "events" and thread.title >= 0:
                title = os.pread(thread.title, _READ_BYTES, 0)
        except (OSError, ValueError):
            return None
        # Each session of PostgreSQL has one address for all of its locks.
        lock = ""
        if call.get("does") == "lock" and thread.title < 0:
            lock = arguments[0].decode()
        file = ""
        if call.get("fd"):
            with contextlib.suppress(OSError):
                link = f"{self._proc}/{thread.pid}/fd/{int(arguments[0], 16)}"
                file = kind_of(os.readlink(link), "files")  # noqa: PTH115 -- as in `proc`

        # A thread that waits for a client is a session; the first one only accepts connections.
        waits_for_client = file == "socket" or call.get("does") == "events"
        if waits_for_client and thread.title < 0 and thread.tid != thread.pid:
            thread.role = SESSION
        function = "" if function == "0" else function.partition(".")[0]
        return ThreadState(thread.role, name, file, function, _short(title) if title else "", lock)

    def _read_times(self, second: Second) -> None:
        """Add what the sessions used of the CPU, and how long they waited for it."""
        for thread in self._threads.values():
            if thread.role == SESSION:
                on_cpu_s, queued_s = thread.grown()
                second.on_cpu_s += on_cpu_s
                second.queued_s += queued_s
        second.throttled = self._groups.throttled(content(f"{self._proc}/{self._server}/cgroup"))


def affordable(looks: int, cpu_s: float) -> float:
    """Return how many looks the next second can have, if so many took `cpu_s` of CPU time."""
    if not looks or cpu_s <= 0:
        return float(PER_S)
    return min(float(PER_S), max(float(_LEAST_PER_S), looks * _MOST_CPU / cpu_s))


@functools.lru_cache
def _call_of(number: bytes) -> tuple[str, Json]:
    """Return name and row of the call with this number, the first word of the file `syscall`."""
    name = calls_by_number().get(int(number), number.decode())
    return name, table()["calls"].get(name, {})


@functools.lru_cache(4096)
def _short(title: bytes) -> str:
    """Return the end of a title that says whether its process waits, and for whom."""
    text = title.split(b"\0")[0].rstrip()
    for end in (" waiting", " idle", " idle in transaction"):
        if text.endswith(end.encode()):
            return end
    return " busy"


def _open_file(path: str) -> int:
    """Return -1 if the thread has ended, or this user may not read it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _line(second: Second) -> dict[str, object]:
    return {
        "utc": iso(second.utc),
        "samples": second.samples,
        "part": second.part,
        "on_cpu_s": round(second.on_cpu_s, 6),
        "queued_s": round(second.queued_s, 6),
        "throttled": second.throttled,
        "waits": [[*wait, count] for wait, count in second.waits.most_common()],
    }
