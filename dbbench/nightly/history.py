"""One line a night, for ever: RESULTS/nightly/PLAN.jsonl. It outlives the folders of the runs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dbbench import compare
from dbbench.compare.interval import LEAST_BLOCKS, estimate
from dbbench.compare.pairs import paired
from dbbench.errors import NightlyLocked, ResultDamaged
from dbbench.metrics import METRICS, Metric
from dbbench.model import Run, Status, Trial, plain
from dbbench.model.expanded import titled
from dbbench.nightly.guard import GUARD
from dbbench.store import LoadedRun
from dbbench.store.files import exclusive, sync, write_text, writing

FOLDER: Final = "nightly"
ITSELF: Final = " itself"  # after the reference's label: its own figure, not a ratio
LEVEL: Final = 0.95
GUARD_P: Final = 0.005  # a guard that called one quiet night in twenty bad would be switched off
GUARD_SHIFT: Final = 0.03  # as of a change point


@dataclass(frozen=True)
class Ratio:
    """Candidate ÷ reference of one night's blocks, with its interval where there were blocks enough. Of the reference
    itself: its own figure."""

    ratio: float
    lo: float | None
    hi: float | None
    n: int
    better: str = "higher"


@dataclass(frozen=True)
class Night:
    """What is kept of a night. Keys of `ratios` and `states` are "ENGINE WORKLOAD, VARIANT: ARM"."""

    night: str  # YYYY-MM-DD
    run: str
    created: str
    good: bool = True  # accepted: nothing failed and the guard was the reference
    reasons: tuple[str, ...] = ()  # why not
    failed: int = 0
    ratios: dict[str, Ratio] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)  # kernel, server and package versions
    breaks: tuple[str, ...] = ()  # facts that differ from the night before
    states: dict[str, str] = field(default_factory=dict)
    confirmations: dict[str, Ratio] = field(default_factory=dict)


def night_of(loaded: LoadedRun, before: Night | None = None) -> Night:
    """The line of a run. A night with a failed trial, or whose guard differs from the reference, is not good."""
    failed = sum(trial.status is Status.FAILED for trial in loaded.trials)
    reasons = [f"{failed} trials failed"] if failed else []
    if loaded.unfinished:
        reasons.append(f"{len(loaded.unfinished)} trials were not driven")
    ratios: dict[str, Ratio] = {}
    for (engine, workload, variant), group in compare.groups(loaded.trials).items():
        title, metric = f"{engine} {titled(workload, variant)}", _metric(loaded.run, workload)
        reasons += [f"{said} ({title})" for said in _guard_says(group, loaded.run.baseline, metric)]
        ratios |= {f"{title}: {arm}": ratio for arm, ratio in _ratios(group, loaded.run.baseline, metric)}
    facts = _facts(loaded)
    breaks = () if before is None else tuple(_breaks(before.facts, facts))
    created = loaded.run.created
    return Night(created[:10], loaded.path.name, created, not reasons, tuple(reasons), failed, ratios, facts, breaks)


def _metric(run: Run, workload: str) -> Metric:
    primary = next((cell.workload.primary for cell in run.cells if cell.workload.name == workload), "tps")
    return METRICS[primary]


def _ratios(group: Sequence[Trial], baseline: str, metric: Metric) -> Iterator[tuple[str, Ratio]]:
    """(arm, ratio) of every arm but the guard; of the reference its own figure, which shows what all arms share."""
    for row in compare.rows(group, baseline, metric.name):
        if row.verdict == "baseline" and row.value is not None:
            yield baseline + ITSELF, _own(group, baseline, metric)
        elif not row.fs_setup.endswith(GUARD) and row.ratio is not None:
            yield row.fs_setup, Ratio(row.ratio, row.lo, row.hi, row.n, metric.better)


def _own(group: Sequence[Trial], arm: str, metric: Metric) -> Ratio:
    """Geometric mean of the arm's trials that count, with the t interval of their logarithms."""
    mine = [trial.summary.get(metric.name) for trial in compare.chosen(group) if trial.fs_setup == arm]
    guess = estimate([(1.0, value) for value in mine if value])
    if guess.n < LEAST_BLOCKS:
        return Ratio(guess.ratio, None, None, guess.n, metric.better)
    half = guess.half_width(LEVEL)
    return Ratio(guess.ratio, math.exp(guess.mean - half), math.exp(guess.mean + half), guess.n, metric.better)


def _guard_says(group: Sequence[Trial], baseline: str, metric: Metric) -> Iterator[str]:
    """One line where the guard differs from the reference that it is."""
    values = [
        (one.summary.get(metric.name), other.summary.get(metric.name))
        for one, other in paired(group, baseline, baseline + GUARD)
    ]
    known = [(b, c) for b, c in values if b and c]
    if known:
        guess = estimate(known)
        if guess.p_value() < GUARD_P and abs(guess.mean) >= GUARD_SHIFT:
            yield f"the guard is {guess.ratio - 1:+.1%} from the reference that it is: the host was not quiet"


def _facts(loaded: LoadedRun) -> dict[str, str]:
    run: Run = loaded.run
    servers = {f"{trial.engine} server": trial.engine_version for trial in loaded.trials if trial.engine_version}
    kernel = {"kernel": str(run.host["kernel"])} if run.host.get("kernel") else {}
    host = {"host": str(run.host["hostname"])} if run.host.get("hostname") else {}
    return {
        **host,
        **kernel,
        **servers,
        **{k: str(v) for k, v in run.versions.items() if v},
        "dbbench": run.dbbench_version,
    }


def _breaks(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for name in now:
        if name in before and before[name] != now[name]:
            yield f"{name} {before[name]} → {now[name]}"


def known(results: Path, plan: str) -> list[Night]:
    """All nights of the plan, the eldest first. ResultDamaged names a line that cannot be read."""
    path = results / FOLDER / f"{plan}.jsonl"
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(_night(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise ResultDamaged(f"{path}:{number}: {error}", remedy="Restore the file from a copy.") from error
    return sorted(found, key=lambda night: night.created)


def append(results: Path, plan: str, night: Night) -> None:
    """Add a night, in place of one of the same run; the file is whole or as it was."""
    nights = [known_night for known_night in known(results, plan) if known_night.run != night.run]
    folder = results / FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        sync(results)
    lines = [json.dumps(plain(one), ensure_ascii=False, allow_nan=False) for one in (*nights, night)]
    write_text(folder / f"{plan}.jsonl", "\n".join(lines) + "\n")


def _night(content: dict[str, Any]) -> Night:
    kept = {f.name: content[f.name] for f in dataclasses.fields(Night) if f.name in content}
    for name in ("ratios", "confirmations"):
        kept[name] = {key: Ratio(**value) for key, value in kept.get(name, {}).items()}
    return Night(**kept | {name: tuple(kept.get(name, ())) for name in ("reasons", "breaks")})


def missing_dates(nights: Sequence[Night], until: str | None = None) -> list[str]:
    """Dates between the first night and `until` (or the last night) on which there was none."""
    dates = {datetime.date.fromisoformat(night.night) for night in nights}
    if not dates:
        return []
    last = datetime.date.fromisoformat(until) if until else max(dates)
    days = (min(dates) + datetime.timedelta(n) for n in range((last - min(dates)).days))
    return [day.isoformat() for day in days if day not in dates]


@contextlib.contextmanager
def one_at_a_time(results: Path, plan: str) -> Iterator[None]:
    """Keep a second nightly of the same plan out. NightlyLocked."""
    folder = results / FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(
        folder / f".{plan}.lock",
        lambda pid: NightlyLocked(
            f"nightly {plan} is going on in process {pid}",
            effect="Nothing was changed.",
            remedy="Wait for it; a timer starts the next one.",
        ),
    ):
        yield
