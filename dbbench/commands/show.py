"""`dbbench show RUN [TRIAL]`: a run with its trials, or all that is known of one trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from dbbench.commands.finding import folder_of, report_of
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import UnknownName
from dbbench.metrics import METRICS
from dbbench.model import FreeExtents, Trial, plain, titled
from dbbench.progress.wording import figure
from dbbench.store import LoadedRun, load_run
from dbbench.tomlfile import did_you_mean
from dbbench.units import duration_text, size_text, time_text


@command_line()
@click.argument("run", metavar="RUN")
@click.argument("trial", metavar="[TRIAL]", required=False)
@results_option
def command(options: Options, run: str, trial: str | None, results: str) -> None:
    """A run with its trials, or one trial with its phases, figures, proofs and warnings."""
    found = load_run(folder_of(Path(results), run))
    if trial is None:
        _show_run(options, found)
        return
    one = next((known for known in found.trials if known.id == trial), None)
    if one is None:
        hint = did_you_mean(trial, [known.id for known in found.trials])
        raise UnknownName(f'run {found.path.name} has no finished trial "{trial}"{hint}')
    if options.json:
        put_json(plain(one))
    else:
        for line in _told(one, found):
            put(line)


def _show_run(options: Options, found: LoadedRun) -> None:
    if options.json:
        put_json({"run": plain(found.run), "trials": [plain(trial) for trial in found.trials]})
        return
    run = found.run
    left = f", {len(found.unfinished)} to do" if found.unfinished else ""
    put(
        f"{run.name}: {len(found.trials)} of {len(run.order)} trials{left}; seed {run.plan.seed}, created {run.created}"
    )
    put(f"folder {found.path}" + (f", page {report_of(found.path)}" if report_of(found.path).exists() else ""))
    header = ("trial", "status", "value", "seconds", "warnings")
    put_table(header, [_row(trial, found) for trial in found.trials], right="--rr")


def _row(trial: Trial, found: LoadedRun) -> tuple[object, ...]:
    name = _primary(trial, found)
    value = trial.summary.get(name)
    shown = f"{figure(value)} {METRICS[name].unit}" if value is not None else None
    seconds = round(sum(phase.seconds for phase in trial.phases))
    notes = [warning.id for warning in trial.warnings]
    if trial.error is not None:
        notes.insert(0, f"{trial.error.id} in {trial.error.phase or '?'}: {trial.error.text}")
    return (trial.id, trial.status.value, shown, seconds, " ".join(notes))


def _primary(trial: Trial, found: LoadedRun) -> str:
    return next((c.workload.primary for c in found.run.cells if c.workload.name == trial.workload), "tps")


def _told(trial: Trial, found: LoadedRun) -> Iterator[str]:
    yield f"{trial.id}: {trial.status.value}"
    work = titled(trial.workload, trial.variant)
    yield f"  {trial.engine} {trial.engine_version}, {work}, block {trial.block}, attempt {trial.attempt}"
    if trial.engine_features:
        yield "  " + ", ".join(f"{name} {value}" for name, value in trial.engine_features.items())
    if trial.error is not None:
        yield f"  error {trial.error.id} in {trial.error.phase or '?'}: {trial.error.text}"
    yield from _filesystem(trial)
    yield "  phases  " + "  ".join(f"{p.name.value} {time_text(p.seconds)}" for p in trial.phases)
    for name, value in trial.summary.items():
        metric = METRICS.get(name)
        yield f"  {metric.label if metric else name:<24} {figure(value)} {metric.unit if metric else ''}".rstrip()
    if trial.cache is not None:
        proof = "proved" if trial.cache.proved else f"not proved: {trial.cache.reason}"
        yield f"  cold cache by {trial.cache.method}: {proof}"
    if trial.space is not None and trial.space.disk_bytes is not None:
        ratio = trial.space.compression_ratio
        shrunk = f", compressed {ratio:.2f}" if ratio else ""
        yield f"  on disk {size_text(trial.space.disk_bytes)}{shrunk}"
    yield from _shape(trial)
    yield from _snapshots(trial)
    yield from _wear(trial)
    yield from _operations(trial)
    for warning in trial.warnings:
        at = f" at second {warning.second}" if warning.second is not None else ""
        yield f"  ! {warning.id}{at}: {warning.text}"
    yield f"  raw output of the tools: {found.path / 'trials' / trial.id / 'raw'}"


def _shape(trial: Trial) -> Iterator[str]:
    if trial.age is not None:
        age = trial.age
        yield (
            f"  aged by seed {age.seed}: {age.files} files, {size_text(age.written_bytes)} written, "
            f"{age.filled:.0%} full; free space {_free(age.before)}, then {_free(age.after)}"
        )
    if trial.space is not None and trial.space.largest:
        first = trial.space.largest[0]
        free = _free(trial.space.free)
        yield f"  largest file {first.path}: {size_text(first.bytes)}, {_extents(first.extents)}; free space {free}"


def _free(histogram: tuple[FreeExtents, ...] | None) -> str:
    if histogram is None:
        return "not known"
    extents, size = sum(one.extents for one in histogram), sum(one.bytes for one in histogram)
    return f"{size_text(size)} in {_extents(extents)}"


def _extents(number: int | None) -> str:
    if number is None:
        return "extents not known"
    return f"{number} extent{'' if number == 1 else 's'}"


def _snapshots(trial: Trial) -> Iterator[str]:
    facts = trial.snapshots
    if facts is None:
        return
    asked = f"every {duration_text(facts.every_s)}, {facts.keep} kept"
    if not facts.how:
        yield f"  snapshots {asked}: not possible: {facts.note}"
        return
    cost = f"; the load kept {facts.cost_ratio:.3f} of its rate meanwhile" if facts.cost_ratio is not None else ""
    yield f"  snapshots by {facts.how}, {asked}: {len(facts.taken)} taken{cost}"
    for one in facts.taken:
        dropped = f", the oldest dropped in {duration_text(one.drop_s)}" if one.drop_s is not None else ""
        held = f", holds {size_text(one.bytes)}" if one.bytes is not None else ""
        yield (
            f"    second {one.at_s:.1f}: taken in {duration_text(one.snapshot_s)}, "
            f"answered after {duration_text(one.ready_s)} ({one.text}){held}{dropped}"
        )


def _wear(trial: Trial) -> Iterator[str]:
    """What the engine's own load has made of its tables."""
    if trial.age_engine is None:
        return
    for point in trial.age_engine.points:
        if point.asked is not None:
            pieces = f", {point.extents} extents" if point.extents is not None else ""
            yield f"  aged {point.factor:.2g} ×: {point.tps:.4g} tx/s{pieces}"
    for scan in trial.age_engine.scans:
        if scan.mb_per_s is not None:
            yield f"  scan {scan.when}: {scan.mb_per_s:.4g} MB/s{'' if scan.cold else ', not proved cold'}"
    for step in trial.age_engine.repairs:
        took = "not possible" if step.seconds is None else duration_text(step.seconds)
        yield f"  {step.name}: {took}; {step.text}"


def _operations(trial: Trial) -> Iterator[str]:
    for step in trial.operations:
        took = "failed" if step.failed else "not possible" if step.seconds is None else duration_text(step.seconds)
        more = [size_text(step.bytes)] if step.bytes is not None else []
        yield f"  {step.name:<32} {took:>12}  {', '.join([*more, *([step.text] if step.text else [])])}".rstrip()


def _filesystem(trial: Trial) -> Iterator[str]:
    fs = trial.filesystem
    if fs is None:
        return
    yield f"  {fs.family}, durability class {fs.durability_class}; mounted {','.join(fs.mount_options_effective)}"
    if fs.wal is not None:
        own = fs.wal.durability_class
        yield f"  log on {fs.wal.family}, durability class {own}; mounted {','.join(fs.wal.mount_options_effective)}"
    for argv in (*fs.mkfs, *(fs.wal.mkfs if fs.wal else ())):
        yield f"  {' '.join(argv)}"
    if trial.io is not None and (log := trial.io.wal) is not None and log.write_bytes is not None:
        both = size_text(trial.io.write_bytes or 0)
        yield f"  written in the window {both}, of it to the log's device {size_text(log.write_bytes)}"
