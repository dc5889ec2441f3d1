"""The conditions of a trial, each described once: the value that must be equal between arms, and a
sentence for people; and which conditions differ between two arms. The rows are in the order in
which they are shown. `plan/planned_conditions.py` has the sentences before a run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from dbbench.compare.remarks import Remark, RemarkKind, remark
from dbbench.engines import profile_of
from dbbench.model import WORK_KINDS, Status, Trial
from dbbench.units import duration_text, number, size_text

# how often pages and rows are read depends on the plans
COMPARED_KINDS: Final = ("rows", "updated", "deleted")
# share, and rows per transaction: the server's own work is below the second
ROWS_OFF = 0.1
LEAST_ROWS = 0.05
# differences of host and block layer in a row; the section Environment lists all
MOST_LISTED: Final = 4

Text = Callable[[Trial], str | None]


class Condition(NamedTuple):
    """A condition of trials. `value`: compared between arms; `sentence`: completes "xfs: "; None
    where unknown.
    """

    name: str
    value: Text = lambda _trial: None
    sentence: Text = lambda _trial: None


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
    if on:
        return f"on, sync_binlog = {settings.get('sync_binlog')}"
    return "off"


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
    limit = (
        f"limited by the kernel ({memory.enforced})"
        if memory.enforced
        else "not limited by the kernel"
    )
    meaning = {
        "cached": "most reads are served from memory",
        "edge": "some reads need the disk",
        "io-bound": "most reads need the disk",
    }.get(memory.label or "", "")
    return (
        f"the dataset is {memory.dataset_ratio:.2g} times as large as the "
        f"{size_text(memory.effective_bytes)} of memory that can hold data ({limit}): "
        f"{memory.label}, {meaning}"
    )


def _cache(direct: str, buffered: str, fallback: str) -> Text:
    texts = {
        "direct": direct,
        "buffered": buffered,
        "buffered-fallback": fallback,
    }
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
    trip = (
        ""
        if client.round_trip_ms is None
        else f" of about {float(f'{client.round_trip_ms:.1g}'):g} ms"
    )
    return (
        f"the load came from another host, {client.hostname}, over TLS: the latency of each "
        f"statement includes a network round trip{trip}"
    )


def _ceiling_sentence(trial: Trial) -> str | None:
    if trial.ceiling is None or not trial.ceiling.rows:
        return None
    page = profile_of(trial.engine).page_bytes // 1024
    single = next(
        (row for row in trial.ceiling.rows if row.name == f"write_{page}k_fdatasync"), None
    )
    if single is None:
        return None
    return (
        f"the bare device completed {number(single.iops)} flushed single writes of {page} KiB per "
        f"second, {duration_text(single.mean_ms / 1000)} each"
    )


def limit_sentence(trial: Trial) -> str | None:
    """Return what the device was a model of, with what was measured; None without a limit."""
    limit = trial.limit
    if limit is None:
        return None
    measured = []
    # fio's rows are of small or of large requests.
    for row in limit.rows:
        kind = row.name.partition("_")[0]
        if row.name.endswith("8k"):
            measured.append(f"{number(row.iops)} {kind} IOPS of 8 KiB")
        else:
            measured.append(f"{number(row.mb_per_s)} MB/s {kind}")
    layers = trial.filesystem.layers if trial.filesystem else ()
    for layer in (layer for layer in layers if layer["kind"] == "delay"):
        for kind in limit.asked.delays:
            measured.append(f"{number(float(layer[f'{kind}_measured_ms']))} ms more per {kind}")
    by = f", reads and writes each, by {limit.enforced}" if limit.enforced else ""
    shown = f"; measured: {', '.join(dict.fromkeys(measured))}" if measured else ", not measured"
    return (
        f"the device is a model: {limit.asked.text}{by}{shown}. A constant delay has no tail, no "
        "neighbour and no burst"
    )


def _read_ahead(trial: Trial) -> str | None:
    """Return the read-ahead for workloads that run to completion, because only these depend on it."""
    if trial.window is None or trial.window.kind == "fixed" or trial.filesystem is None:
        return None
    kb = trial.filesystem.read_ahead_kb
    return None if kb is None else f"{kb} kB"


def _atomic_writes(trial: Trial) -> str | None:
    """Return the disk's largest; whether the filesystem supports it is a property of the arm, not a
    condition.
    """
    most = trial.filesystem.queue.get("atomic_write_unit_max_bytes") if trial.filesystem else None
    if most is None:
        return None
    return "none" if most == "0" else f"up to {most} bytes"


def _online_discard(trial: Trial) -> str | None:
    if trial.filesystem is None:
        return None
    return "on" if trial.filesystem.discards else "off"


def _snapshots(trial: Trial) -> str | None:
    if trial.snapshots is None:
        return None
    return "taken" if trial.snapshots.how else "none"


CONDITIONS: Final = (
    # More devices have more throughput, and fail more often.
    Condition(
        "number of devices",
        lambda trial: str(max(1, len(trial.device.members))) if trial.device else None,
    ),
    Condition(
        "settings profile",
        lambda trial: (trial.profile or None) if trial.effective_settings else None,
        _profile_sentence,
    ),
    Condition("binary log", _binary_log),
    Condition("huge pages", lambda trial: trial.effective_settings.get("huge_pages_status")),
    Condition("memory", _memory, _memory_sentence),
    Condition(
        "I/O of the server",
        _cache("direct", "through the page cache, as configured", "through the page cache"),
        _cache(
            "the server bypassed the page cache (direct I/O)",
            "the server used the page cache, as configured",
            "direct I/O was requested, but the filesystem went through the page cache",
        ),
    ),
    Condition(
        "cores",
        lambda trial: (
            f"server {trial.cores.server}, load generator {trial.cores.client}"
            if trial.cores
            else None
        ),
        _cores_sentence,
    ),
    Condition(
        "place of the load generator",
        lambda trial: "another host, over the network" if trial.client else "this host",
        _client_sentence,
    ),
    Condition(
        "limit of each device",
        lambda trial: f"model: {trial.limit.asked.text}" if trial.limit else None,
        limit_sentence,
    ),
    Condition("rate of the bare device", sentence=_ceiling_sentence),
    Condition("online discard", _online_discard),
    Condition("read-ahead", _read_ahead),
    Condition("atomic writes of the device", _atomic_writes),
    # An arm without snapshots does not pay for them.
    Condition("snapshots during the load", _snapshots),
)


def unequal(baseline: Sequence[Trial], candidate: Sequence[Trial]) -> tuple[Remark, ...]:
    """Return a remark for each condition that differs between the good trials of two arms of one
    group.
    """
    base = _good(baseline)
    other = _good(candidate)
    if not base or not other:
        return ()
    return (
        *_host(base, other),
        *_conditions(base, other),
        *_features(base, other),
        *_checkpoints(base, other),
        *_work(base, other),
    )


def device_limits(trials: Sequence[Trial]) -> bool:
    """Return whether the device limited most of these trials (W042), so that they cannot compare
    filesystems.
    """
    good = _good(trials)
    limited = 0
    for trial in good:
        limited += any(warning.id == "W042" for warning in trial.warnings)
    return 2 * limited > len(good)


def _good(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status is not Status.FAILED]


def _host(base: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    differing = []
    for name in base[0].host_state:
        # A setting that was not read everywhere is not compared.
        if all(name in trial.host_state for trial in (*base, *other)):
            base_values = {trial.host_state[name] for trial in base}
            other_values = {trial.host_state[name] for trial in other}
            if base_values != other_values:
                differing.append(_unequal(name, base_values, other_values))
    # The page lists all of them.
    yield from differing[:MOST_LISTED]
    if len(differing) > MOST_LISTED:
        yield remark(RemarkKind.MORE_UNEQUAL, settings=len(differing) - MOST_LISTED)


def _conditions(base: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    for condition in CONDITIONS:
        base_values = {condition.value(trial) for trial in base} - {None}
        other_values = {condition.value(trial) for trial in other} - {None}
        if base_values and other_values and base_values != other_values:
            yield _unequal(condition.name, base_values, other_values)


def _features(base: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the features of filesystems of one family; options or another version of mkfs may
    change them.
    """
    base_features = _family_features(base)
    other_features = _family_features(other)
    for family in sorted(base_features.keys() & other_features.keys()):
        # Arms of one family whose trials all have the same features do not differ.
        sets = base_features[family] | other_features[family]
        if len(sets) > 1:
            differing = sorted(frozenset.union(*sets) - frozenset.intersection(*sets))
            yield remark(
                RemarkKind.OTHER_FEATURES,
                family=family,
                features=", ".join(differing),
            )


def _family_features(trials: Sequence[Trial]) -> dict[str, set[frozenset[str]]]:
    """Return the sets of features that filesystems of each family have."""
    families: dict[str, set[frozenset[str]]] = {}
    for trial in trials:
        fs = trial.filesystem
        if fs is not None and fs.geometry.get("features"):
            features = frozenset(str(fs.geometry["features"]).split())
            families.setdefault(fs.family, set()).add(features)
    return families


def _work(base: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the rows that a transaction works on: a setup may not get other work than the
    baseline.
    """
    # Rows of a transaction, as the servers counted them.
    base_rows = _rows_per_unit(base)
    other_rows = _rows_per_unit(other)
    for kind in COMPARED_KINDS:
        if kind not in base_rows or kind not in other_rows:
            continue
        # A few per cent are chance: the mix of transactions is random.
        median = statistics.median(base_rows[kind])
        other_median = statistics.median(other_rows[kind])
        if abs(median - other_median) > max(LEAST_ROWS, ROWS_OFF * max(median, other_median)):
            yield remark(
                RemarkKind.UNEQUAL,
                what=f"{WORK_KINDS[kind]} per transaction",
                candidate=f"{other_median:.3g}",
                baseline=f"{median:.3g}",
            )


def _rows_per_unit(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Return, by kind, each trial's counted rows divided by what its load reports."""
    rows: dict[str, list[float]] = {}
    for trial in trials:
        for fact in trial.work:
            if fact.count in COMPARED_KINDS and fact.counted is not None and fact.claimed:
                rows.setdefault(fact.count, []).append(fact.counted / fact.claimed)
    return rows


def _checkpoints(base: Sequence[Trial], other: Sequence[Trial]) -> Iterator[Remark]:
    """Compare the checkpoints, because each is additional work. The median of an even number may be
    a half.
    """
    median = _median_checkpoints(base)
    other_median = _median_checkpoints(other)
    if median is not None and other_median is not None and abs(median - other_median) >= 1:
        yield remark(
            RemarkKind.UNEQUAL_CHECKPOINTS,
            candidate=other_median,
            baseline=median,
        )


def _median_checkpoints(trials: Sequence[Trial]) -> float | None:
    """InnoDB moves its checkpoint continuously, so only those that a full redo log forced count."""
    ended = []
    for trial in trials:
        facts = trial.checkpoints
        if facts is not None and facts.ended is not None:
            forced = facts.by_cause.get("redo full", 0)
            ended.append(facts.ended if facts.begun is not None else forced)
    return statistics.median(ended) if ended else None


def _unequal(what: str, baseline: set[Any], candidate: set[Any]) -> Remark:
    return remark(
        RemarkKind.UNEQUAL,
        what=what,
        candidate=_values(candidate),
        baseline=_values(baseline),
    )


def _values(values: set[Any]) -> str:
    return " and ".join(sorted("none" if value is None else str(value) for value in values))
