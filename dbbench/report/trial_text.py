"""A trial in words, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from dbbench.compare.conditions import limit_sentence
from dbbench.engines import profile_of
from dbbench.metrics.histogram import PERCENTILES, percentile_ms
from dbbench.metrics.table import METRICS
from dbbench.model import FilesystemFacts, FreeExtents, Trial, title_of
from dbbench.report.page.environment import unjudged_options
from dbbench.report.page.operations import snapshot_column
from dbbench.report.time_layers import cause
from dbbench.results import LoadedRun
from dbbench.units import count, duration_text, number, percent, size_text, time_text


def trial_cells(trial: Trial, run: LoadedRun) -> tuple[object, ...]:
    """Return the row of a trial: id, status, primary metric, seconds, and each warning once."""
    metric = run.run.primary.get(trial.workload, "tps")
    value = trial.summary.get(metric)
    amount = None if value is None else f"{number(value)} {METRICS[metric].unit}"
    seconds = round(sum(phase.seconds for phase in trial.phases))
    notes = list(dict.fromkeys(warning.id for warning in trial.warnings))
    if trial.error is not None:
        notes.insert(0, f"{trial.error.id} in {trial.error.phase or '?'}: {trial.error.text}")
    return (trial.id, trial.status.value, amount, seconds, " ".join(notes))


def trial_text(trial: Trial, run: LoadedRun) -> Iterator[str]:
    """Return the lines that describe a trial of the run: phases, figures, latencies, proofs and
    warnings.
    """
    # What it was.
    yield f"{trial.id}: {trial.status.value}"
    work = title_of(trial.workload, trial.variant)
    yield (
        f"  {trial.engine} {trial.engine_version}, {work}, block {trial.block}, attempt "
        f"{trial.attempt}"
    )
    if trial.profile and trial.effective_settings:
        stated = profile_of(trial.engine).statement(trial.effective_settings)
        yield f"  {trial.profile} profile{f': {stated}' if stated else ''}"
    if trial.engine_features:
        yield "  " + ", ".join(f"{name} {value}" for name, value in trial.engine_features.items())
    if trial.error is not None:
        yield f"  error {trial.error.id} in {trial.error.phase or '?'}: {trial.error.text}"
    yield from _filesystem(trial)
    if model := limit_sentence(trial):
        yield f"  {model}"

    # How long it took, and what it measured.
    yield "  phases  " + "  ".join(f"{p.name} {time_text(p.seconds)}" for p in trial.phases)
    labels = {name: METRICS[name].label if name in METRICS else name for name in trial.summary}
    width = max(map(len, labels.values()), default=0)
    for name, value in trial.summary.items():
        unit = METRICS[name].unit if name in METRICS else ""
        yield f"  {labels[name]:<{width}}  {number(value)} {unit}".rstrip()
    yield from _latency(trial, run)

    slow_seconds = trial.time.slow if trial.time is not None else ()
    for slow in slow_seconds:
        yield f"  slow second {slow.second}: {number(slow.tps)} tx/s, {cause(slow)}"

    # What its figures rest on.
    if trial.cache is not None:
        proof = "verified" if trial.cache.proved else f"not verified: {trial.cache.reason}"
        yield f"  cold cache by {trial.cache.method}: {proof}"
    if trial.space is not None and trial.space.disk_bytes is not None:
        ratio = trial.space.compression_ratio
        shrunk = f", compressed {ratio:.2f}" if ratio else ""
        yield f"  on disk {size_text(trial.space.disk_bytes)}{shrunk}"
    yield from _shape(trial)
    yield from _growth(trial)
    yield from _snapshots(trial)
    yield from _operations(trial)

    # What a reader must know about it.
    for warning in trial.warnings:
        when = f" at second {warning.second}" if warning.second is not None else ""
        yield f"  ! {warning.id}{when}: {warning.text}"
    yield f"  raw output of the tools: {run.path / 'trials' / trial.id / 'raw'}"


def _growth(trial: Trial) -> Iterator[str]:
    grown = trial.growth
    if grown is None or not (grown.data_bytes or grown.log_bytes):
        return
    parts = [
        f"tables {size_text(grown.data_bytes or 0)}",
        f"logs {size_text(grown.log_bytes or 0)}",
    ]
    if grown.extents is not None:
        parts.append(f"{grown.extents} extents")
    if grown.compressed_share is not None:
        part = f"{percent(grown.compressed_share)} compressed"
        if grown.restored_share is not None:
            part += f" (restored: {percent(grown.restored_share)})"
        parts.append(part)
    if grown.preallocated_share:
        parts.append(f"{percent(grown.preallocated_share)} allocated but not yet written")
    yield f"  grown during the load: {', '.join(parts)}"


def _latency(trial: Trial, run: LoadedRun) -> Iterator[str]:
    histogram = run.histogram(trial)
    if histogram is None or not histogram.total:
        return
    cells = {
        name: number(percentile_ms(histogram, percent)) for name, percent in PERCENTILES.items()
    }
    cells["max"] = number(trial.summary.get("max_ms"))
    widths = {name: max(len(name), len(cell)) for name, cell in cells.items()}
    yield f"  latency of {count(histogram.total, 'transaction')}, ms"
    yield "    " + "  ".join(name.rjust(width) for name, width in widths.items())
    yield "    " + "  ".join(cells[name].rjust(width) for name, width in widths.items())
    for row in trial.types:
        values = ", ".join(f"{name} {number(value)}" for name, value in row.percentiles.items())
        yield f"    {row.type} ({count(row.transactions, 'transaction')}): {values}"


def _shape(trial: Trial) -> Iterator[str]:
    if trial.age is not None:
        age = trial.age
        yield (
            f"  aged by seed {age.seed}: {age.files} files, {size_text(age.written_bytes)} "
            f"written, {percent(age.filled)} full; free space {_free(age.before)}, then "
            f"{_free(age.after)}"
        )
    if trial.space is not None and trial.space.largest:
        first = trial.space.largest[0]
        free = _free(trial.space.free)
        yield (
            f"  largest file {first.path}: {size_text(first.bytes)}, {_extents(first.extents)}; "
            f"free space {free}"
        )


def _free(histogram: tuple[FreeExtents, ...] | None) -> str:
    if histogram is None:
        return "unknown"
    extents = sum(extent.extents for extent in histogram)
    size = sum(extent.bytes for extent in histogram)
    return f"{size_text(size)} in {_extents(extents)}"


def _extents(extents: int | None) -> str:
    if extents is None:
        return "an unknown number of extents"
    return count(extents, "extent")


def _snapshots(trial: Trial) -> Iterator[str]:
    facts = trial.snapshots
    if facts is None:
        return
    planned = f"every {duration_text(facts.every_s)}, {facts.keep} kept"
    if not facts.how:
        yield f"  snapshots {planned}: not possible: {facts.note}"
        return
    values = [f"{len(facts.taken)} taken"]
    for name, value in snapshot_column([facts]).items():
        if name != "taken":
            values.append(f"{name}: {value}")
    yield f"  snapshots by {facts.how}, {planned}: {'; '.join(values)}"


def _operations(trial: Trial) -> Iterator[str]:
    for step in trial.operations:
        took = "not possible" if step.seconds is None else duration_text(step.seconds)
        if step.failed:
            took = "failed"
        size = "" if step.bytes is None else size_text(step.bytes)
        details = ", ".join(filter(None, (size, step.text)))
        yield f"  {step.name:<32} {took:>12}  {details}".rstrip()


def _filesystem(trial: Trial) -> Iterator[str]:
    fs = trial.filesystem
    if fs is None:
        return
    for role, facts in fs.volumes.items():
        family = facts.family if role == "data" else f"log on {facts.family}"
        options = ",".join(facts.mount_options_effective)
        yield f"  {family}, durability class {facts.durability_class}; mounted {options}"
    for sentence in unjudged_options(trial):
        yield f"  {sentence}"
    yield from _small_writes(trial, fs)
    for facts in fs.volumes.values():
        for argv in facts.mkfs:
            yield f"  {' '.join(argv)}"
    # A log of its own has its own part of the writes.
    log = trial.io.wal if trial.io is not None else None
    if trial.io is not None and log is not None and log.write_bytes is not None:
        both = size_text(trial.io.write_bytes or 0)
        of_log = size_text(log.write_bytes)
        yield f"  written in the window {both}, of it to the log's device {of_log}"


def _small_writes(trial: Trial, fs: FilesystemFacts) -> Iterator[str]:
    rows = trial.ceiling.rows if trial.ceiling is not None else ()
    bare = next((row.mean_ms for row in rows if row.name == "write_16k_fdatasync"), None)
    beside = "" if bare is None else f"; the bare device: write and flush {number(bare)} ms"
    for role, facts in fs.volumes.items():
        where = "" if role == "data" else " to the log's filesystem"
        syncs = [
            f"{row.call} {number(row.mean_ms)} ms (p99 {number(row.p99_ms)})" for row in facts.syncs
        ]
        if syncs:
            yield f"  append of 16 KiB{where}: {', '.join(syncs)}{beside}"
        elif facts.syncs_note:
            yield f"  append of 16 KiB{where}: not measured: {facts.syncs_note}"
        queue = facts.queue.get("atomic_write_unit_max_bytes")
        if facts.atomic_writes is not None or queue is not None:
            # The kernel's number of bytes; "0" of a device without them.
            special = {None: "not reported", "0": "none"}
            device = special.get(queue, f"up to {queue} bytes")
            by_fs = facts.atomic_writes or "not reported"
            yield f"  atomic writes{where}: filesystem {by_fs}, device {device}"
