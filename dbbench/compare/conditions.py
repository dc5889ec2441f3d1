"""The conditions of a trial, each described once: the value that must be equal between arms, and a sentence for people.
The rows are in the order in which they are shown. `plan/conditions.py` has the sentences before a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dbbench.engines import profile_of
from dbbench.model import Trial
from dbbench.units import duration_text, number, size_text

Text = Callable[[Trial], str | None]


def _nothing(_trial: Trial) -> None:
    return None


class Condition(NamedTuple):
    """A condition of trials. `value`: compared between arms; `sentence`: completes "xfs: "; None where unknown."""

    name: str
    value: Text = _nothing
    sentence: Text = _nothing


def _profile_sentence(trial: Trial) -> str | None:
    if not trial.profile or not trial.effective_settings:
        return None
    stated = profile_of(trial.engine).statement(trial.effective_settings)
    return f"the server ran with the {trial.profile} profile{f' ({stated})' if stated else ''}"


def _binary_log(trial: Trial) -> str | None:
    """Return the state of the binary log, because each commit also waits for its flush."""
    settings = trial.effective_settings
    if "log_bin" not in settings:
        return None
    on = settings["log_bin"].upper() in ("ON", "1")
    return f"on, sync_binlog = {settings.get('sync_binlog')}" if on else "off"


def _memory(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None:
        return None
    limit = f"limited by {memory.enforced}" if memory.enforced else "not limited by the kernel"
    return f"{size_text(memory.effective_bytes)}, {limit}"


def _memory_sentence(trial: Trial) -> str | None:
    memory = trial.memory
    if memory is None or memory.effective_bytes is None or memory.dataset_ratio is None:
        return None
    limit = f"limited by the kernel ({memory.enforced})" if memory.enforced else "not limited by the kernel"
    meaning = {"cached": "most reads are served from memory", "edge": "some reads need the disk",
               "io-bound": "most reads need the disk"}.get(memory.label or "", "")  # fmt: skip
    return (f"the dataset is {memory.dataset_ratio:.2g} times as large as the {size_text(memory.effective_bytes)} of "
            f"memory that can hold data ({limit}): {memory.label}, {meaning}")  # fmt: skip


def _cache(direct: str, buffered: str, fallback: str) -> Text:
    texts = {"direct": direct, "buffered": buffered, "buffered-fallback": fallback}
    return lambda trial: texts.get(trial.memory.direct or "") if trial.memory else None


def _cores_sentence(trial: Trial) -> str | None:
    cores = trial.cores
    if cores is None or cores.server is None:
        return None
    if trial.client is not None:
        return f"the server ran on cores {cores.server}; no load generator ran on its host"
    if cores.shared:
        return f"the server and the load generator shared cores {cores.server}"
    return f"the server ran on cores {cores.server}, the load generator on {cores.client}"


def _client_sentence(trial: Trial) -> str | None:
    client = trial.client
    if client is None:
        return None
    # One digit, so that trials with almost the same time share a sentence.
    trip = "" if client.round_trip_ms is None else f" of about {float(f'{client.round_trip_ms:.1g}'):g} ms"
    return (f"the load came from another host, {client.hostname}, over TLS: the latency of each statement includes a "
            f"network round trip{trip}")  # fmt: skip


def _ceiling_sentence(trial: Trial) -> str | None:
    if trial.ceiling is None or not trial.ceiling.rows:
        return None
    page = profile_of(trial.engine).page_bytes // 1024
    single = next((row for row in trial.ceiling.rows if row.name == f"write_{page}k_fdatasync"), None)
    if single is None:
        return None
    return (f"the bare device completed {number(single.iops)} flushed single writes of {page} KiB per second, "
            f"{duration_text(single.mean_ms / 1000)} each")  # fmt: skip


def _limit_sentence(trial: Trial) -> str | None:
    limit = trial.limit
    if limit is None:
        return None
    measured = [
        f"{number(row.iops)} {kind} IOPS of 8 KiB" if row.name.endswith("8k") else f"{number(row.mb_per_s)} MB/s {kind}"
        for row in limit.rows for kind in [row.name.split("_")[0]]
    ]  # fmt: skip
    by = f" by {limit.enforced}" if limit.enforced else ""
    shown = f"; fio measured {', '.join(measured)}" if measured else ", not measured"
    return f"reads and writes of each device were limited to {limit.asked.text} each{by}{shown}"


def _read_ahead(trial: Trial) -> str | None:
    """Return the read-ahead for workloads that run to completion, because only these depend on it."""
    if trial.window is None or trial.window.kind == "fixed" or trial.filesystem is None:
        return None
    kb = trial.filesystem.read_ahead_kb
    return None if kb is None else f"{kb} kB"


def _atomic_writes(trial: Trial) -> str | None:
    """Return the disk's largest; whether the filesystem supports it is a property of the arm, not a condition."""
    most = trial.filesystem.queue.get("atomic_write_unit_max_bytes") if trial.filesystem else None
    return None if most is None else "none" if most == "0" else f"up to {most} bytes"


CONDITIONS: Final = (
    # More devices have more throughput, and fail more often.
    Condition("number of devices", lambda trial: str(max(1, len(trial.device.members))) if trial.device else None),
    Condition("settings profile", lambda trial: (trial.profile or None) if trial.effective_settings else None,
              _profile_sentence),
    Condition("binary log", _binary_log),
    Condition("huge pages", lambda trial: trial.effective_settings.get("huge_pages_status")),
    Condition("memory", _memory, _memory_sentence),
    Condition("I/O of the server",
              _cache("direct", "through the page cache, as configured", "through the page cache"),
              _cache("the server bypassed the page cache (direct I/O)",
                     "the server used the page cache, as configured",
                     "direct I/O was requested, but the filesystem went through the page cache")),
    Condition("cores", lambda trial: f"server {trial.cores.server}, load generator {trial.cores.client}"
              if trial.cores else None, _cores_sentence),
    Condition("place of the load generator",
              lambda trial: "another host, over the network" if trial.client else "this host", _client_sentence),
    Condition("limit of each device", lambda trial: trial.limit.asked.text if trial.limit else None, _limit_sentence),
    Condition("rate of the bare device", sentence=_ceiling_sentence),
    Condition("online discard", lambda trial: ("on" if trial.filesystem.discards else "off")
              if trial.filesystem else None),
    Condition("read-ahead", _read_ahead),
    Condition("atomic writes of the device", _atomic_writes),
    # An arm without snapshots does not pay for them.
    Condition("snapshots during the load",
              lambda trial: ("taken" if trial.snapshots.how else "none") if trial.snapshots else None),
)  # fmt: skip
