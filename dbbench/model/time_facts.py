"""Where the time of a transaction goes: the layers, and what a trial records of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class TimeLayer(StrEnum):
    """What a session of the server does or waits for."""

    CPU = "cpu"
    QUEUE = "queue"  # it could run, and has no CPU
    LOCK = "lock"
    LOG = "log"
    WRITE = "write"
    READ = "read"
    FILESYSTEM = "filesystem"
    THROTTLED = "throttled"
    CLIENT = "client"
    UNKNOWN = "unknown"


# What a session does: "22 % of its time on a CPU".
TIME_LAYERS: Final = {
    TimeLayer.CPU: "on a CPU",
    TimeLayer.QUEUE: "waiting for a CPU",
    TimeLayer.LOCK: "waiting for a lock of the server",
    TimeLayer.LOG: "waiting for the log to be written and flushed",
    TimeLayer.WRITE: "writing data",
    TimeLayer.READ: "reading data",
    TimeLayer.FILESYSTEM: "waiting for a lock or the journal of the filesystem",
    TimeLayer.THROTTLED: "throttled by a quota or by write-back",
    TimeLayer.CLIENT: "waiting for the client",
    TimeLayer.UNKNOWN: "not known",
}


@dataclass(frozen=True)
class TimeWait:
    """A wait of sessions. `share` of their time; `through` is their own call, if they waited for
    another thread that did this.
    """

    layer: str
    call: str = ""  # of the system
    file: str = ""  # "log", "data", "doublewrite", "temporary", "socket"
    function: str = ""  # of the kernel
    through: str = ""
    share: float = 0.0


@dataclass(frozen=True)
class SlowSecond:
    """One of the slowest seconds of the window, and what most sessions did in it."""

    second: int  # from the start of the warm-up
    tps: float
    layer: str
    share: float  # of the sessions' time
    function: str = ""  # of the kernel, in which most of them slept; "": not read
    events: tuple[str, ...] = ()  # "checkpoint", "write-back", "steal"


@dataclass(frozen=True)
class TimeFacts:
    """What the sessions of the server did and waited for in the window, by samples."""

    note: str = ""  # why nothing was observed
    samples: int = 0
    sessions: float | None = None  # mean number, without dbbench's
    # of the sessions' time, by layer
    shares: dict[str, float] = field(default_factory=dict)
    # the same in ms per transaction, without the client's between two transactions
    ms_per_tx: dict[str, float] = field(default_factory=dict)
    latency_ms: float | None = None  # mean latency as the client measured it
    waits: tuple[TimeWait, ...] = ()  # the longest
    slow: tuple[SlowSecond, ...] = ()  # the slowest first
    # CPUs that kernel threads used in the window, by name; without those below 0.5 % of one
    kernel: dict[str, float] = field(default_factory=dict)
    # threads of the load generator that had a CPU ("cpu") or waited for one ("queue"), on average
    client: dict[str, float] = field(default_factory=dict)
    sampler_cpu_s: float | None = None  # CPU time of the sampler, warm-up included
