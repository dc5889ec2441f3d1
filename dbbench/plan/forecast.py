"""What to expect of a run before it starts: how many blocks its budget gives, which difference
these would detect nine times out of ten, and what its loads did in earlier runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dbbench import results
from dbbench.compare.interval import LEAST_BLOCKS, LEVEL, Estimate
from dbbench.compare.pairing import estimate_of, groups, values_of
from dbbench.compare.scatter import share_variance
from dbbench.compare.stopping import Examined, examine
from dbbench.errors import DbbenchError, PlanInvalid
from dbbench.metrics.summary import SHORT_WINDOW_S, is_short
from dbbench.model import Cell, EarlierLoad, Phase, Plan, Run, Status, Trial
from dbbench.model.plan import MOST_TRIALS
from dbbench.plan.expanding import Expanded, make_order
from dbbench.plan.preview import preview
from dbbench.plan.request import PlanRequest
from dbbench.plan.writes import with_copies
from dbbench.results import LoadedRun
from dbbench.units import count, duration_text

# CV of the trials of a cell on a quiet machine; 0.05 to 0.10 on shared virtual machines
DEFAULT_CV: Final = 0.03
POWER: Final = 0.9
_T = TypeVar("_T")
_PRECISIONS: Final = (0.1, 0.05, 0.03, 0.02, 0.01)  # of which the next one is priced
MOST_RUNS: Final = 5  # earlier runs that are read
ALPHA: Final = 0.05
# Share of the pooled degrees of freedom that the forecast counts: with few blocks, equal variances
# look different and are pooled less.
SHARED: Final = 1 / 2


@dataclass(frozen=True)
class Forecast:
    """What a run of so many blocks would detect."""

    blocks: int
    difference: float | None  # as a share; None: too few blocks for an interval
    trial_cv: float  # coefficient of variation of the trials of a cell
    runs: int  # number of earlier runs from which `trial_cv` comes; 0: it is DEFAULT_CV
    margin: float  # of the plan
    same: float | None  # probability that equal setups are called the same within the margin
    smoke: bool = False  # the windows are too short for a forecast

    @property
    def text(self) -> str:
        if self.smoke:
            return f"unknown: windows below {SHORT_WINDOW_S:g} s are a smoke test"
        if self.difference is None or self.same is None:
            return f"none: an interval needs at least {LEAST_BLOCKS} blocks"
        scatter = f"trials scatter by {_percent(self.trial_cv)} %"
        if self.runs:
            source = (
                f"in {count(self.runs, 'earlier run')} here, {scatter}, on average of the tests"
            )
        else:
            source = f"assumed, because there is no earlier run: {scatter}"
        return (
            f"{self.blocks} blocks would detect a difference of {_percent(self.difference)} % nine "
            f"times out of ten, and call equal setups the same within {_percent(self.margin)} % in "
            f"{100 * self.same:.0f} of 100 runs ({source})"
        )


def forecast(request: PlanRequest, results_folder: Path) -> Forecast:
    """Return what the plan's blocks would detect, if its setups scatter like earlier runs of this
    host.
    """
    plan = request.plan
    cells = request.expanded.cells
    primary = {}
    for cell in cells:
        primary[cell.engine.name, cell.workload.name] = cell.workload.primary
    # Earlier runs say how much the trials of a cell scatter here.
    of_runs = _newest(list(_variances(run, primary)) for run in _earlier(results_folder))
    variances = list(itertools.chain.from_iterable(of_runs))
    cv = DEFAULT_CV
    if variances:
        of_pair = math.fsum(variances) / len(variances)
        cv = math.sqrt(of_pair / 2)
    if any(is_short(cell.window) for cell in cells):
        return Forecast(plan.blocks, None, cv, len(of_runs), plan.margin, None, smoke=True)
    workloads = len({cell.group for cell in cells})
    # Holm divides the error between the setups that are compared.
    design = Design(cv, plan.blocks, workloads, max(1, len(plan.fs_setups) - 1))
    same = same_within(plan.margin, design)
    return Forecast(plan.blocks, detectable(design), cv, len(of_runs), plan.margin, same)


@dataclass(frozen=True)
class Allowance:
    """How many blocks a budget is expected to allow; the run itself uses the times that it
    measures.
    """

    budget_s: float
    prepare_s: float  # images, and golden copies that do not exist yet
    block_s: float
    blocks: int  # at least the first blocks, which run in any case
    enough: bool  # whether the budget is enough for the first blocks

    @property
    def text(self) -> str:
        budget = duration_text(self.budget_s)
        each = duration_text(self.block_s)
        first = (
            f" after {duration_text(self.prepare_s)} of preparation" if self.prepare_s >= 1 else ""
        )
        if not self.enough:
            blocks = count(self.blocks, "block")
            all_s = self.prepare_s + self.blocks * self.block_s
            return (
                f"the budget of {budget} will probably be exceeded: even the minimum of {blocks} "
                f"of {each} each"
                f"{first} takes about {duration_text(all_s)}"
            )
        return (
            f"the budget of {budget} gives about {count(self.blocks, 'block')} of {each} "
            f"each{first}"
        )


def budget_text(run: Run) -> str:
    """Describe what the budget of the run gave, and why it ended; "" without a budget."""
    if run.budget is None or run.plan.budget_s is None:
        return ""
    whole = count(run.budget.blocks or 0, "block")
    used = duration_text(run.budget.used_s)
    reason = {
        "": "the run is not finished",
        "time": "another block would not fit",
        "cut": "the time ended during another block, which does not count",
        "first": "the minimum number of blocks already used the whole budget",
        "precision": "the requested precision was reached",
        "decided": "every setup is told apart from the baseline, or the same",
        "most": "a run cannot have more blocks",
    }[run.budget.ended]
    return f"budget {duration_text(run.plan.budget_s)}: {whole} in {used}; {reason}"


def outlook(run: Run, trials: Sequence[Trial]) -> str:
    """Say how precise the open comparisons of a run with a budget will be at its end, each with its
    test, and what another precision of the least precise one would cost; "" if none is open, or
    for a smoke test.
    """
    if any(is_short(cell.window) for cell in run.cells):
        return ""
    # The comparisons that are open, by setup.
    examined = examine(trials, run.baseline, run.primary, run.plan.margin)
    pairs: list[tuple[Cell, Examined]] = []
    for cell in run.cells:
        pair = examined.get((cell.group, cell.arm))
        question = run.questions.get(cell.id)
        if pair is not None and question is not None and question.kind == "open":
            pairs.append((cell, pair))
    if not pairs or run.budget is None or run.plan.budget_s is None:
        return ""

    # The least precise comparison of each setup, when the budget is used up.
    open_s = _block_s(run, [cell for cell, _ in pairs])
    more = max(0, int((run.plan.budget_s - run.budget.used_s) / open_s)) if open_s else 0
    widest: dict[str, tuple[Cell, Examined]] = {}
    for cell, pair in pairs:
        before = widest.get(cell.arm)
        if before is None or pair.half_width(more) > before[1].half_width(more):
            widest[cell.arm] = cell, pair
    several = len({cell.group for cell in run.cells}) > 1
    ends = []
    for cell, pair in widest.values():
        where = f" in {cell.engine.name} {cell.title}" if several else ""
        ends.append(f"{cell.arm} ±{_percent(pair.half_width(more))} %{where}")
    text = ", ".join(ends)

    # The price of the next better precision of the least precise comparison.
    cell, pair = max(widest.values(), key=lambda entry: entry[1].half_width(more))
    width = pair.half_width(more)
    better = next((share for share in _PRECISIONS if share < width), None)
    blocks = pair.guess.blocks_to(math.log1p(better), LEVEL) if better else None
    if better and blocks:
        of_arm = [other for other, _ in pairs if other.arm == cell.arm]
        extra_s = (blocks - more) * _block_s(run, of_arm)
        text += f"; ±{_percent(better)} % for {cell.arm}: {duration_text(extra_s)} more"
    return f"at the end of the budget, by the scatter so far: {text}"


def _block_s(run: Run, cells: Sequence[Cell]) -> float:
    """Return the seconds of a block of these cells and their baselines, by the last trials of each."""
    if run.budget is None:
        return 0.0
    groups_of = {cell.group for cell in cells}
    baselines = [cell for cell in run.cells if cell.arm == run.baseline and cell.group in groups_of]
    return sum(run.budget.cell_s.get(cell.id, 0.0) for cell in (*cells, *baselines))


def apply_budget(request: PlanRequest) -> tuple[PlanRequest, Allowance | None]:
    """Return the request with as many blocks as the budget is expected to give; without a budget it
    is unchanged. Raises PlanInvalid if the windows of the first blocks alone are longer than the
    budget.
    """
    plan = request.plan
    expanded = request.expanded
    step = request.step
    if plan.budget_s is None:
        return request, None
    first = sorted({spec.block for spec in expanded.order})
    _check_windows(plan.budget_s, expanded, len(first))

    # As many blocks as fit, but no fewer than the first ones.
    look = preview(plan, expanded)
    block_s = sum(look.trial_s.values())
    fit = int((plan.budget_s - look.prepare_s) / block_s)
    most = MOST_TRIALS // len(expanded.cells)
    blocks = max(len(first), min(fit, most))
    allowance = Allowance(plan.budget_s, look.prepare_s, block_s, blocks, fit >= len(first))

    # Of all blocks, those of this host.
    last = first[0] + (blocks - 1) * step
    whole = make_order(expanded.cells, last, plan.seed)
    order = tuple(spec for spec in whole if (spec.block - first[0]) % step == 0)
    plan = dataclasses.replace(plan, blocks=blocks * step)
    expanded = expanded._replace(order=order)
    return dataclasses.replace(request, plan=plan, expanded=expanded), allowance


def _check_windows(
    budget_s: float,
    expanded: Expanded,
    blocks: int,
) -> None:
    windows = {cell.id: cell.window.seconds for cell in expanded.cells}
    load_s = sum(windows[spec.cell] for spec in expanded.order)
    if load_s > budget_s:
        raise PlanInvalid(
            f"the budget of {duration_text(budget_s)} is too short: warm-up and windows of "
            f"{count(blocks, 'block')} of {count(len(windows), 'trial')} take "
            f"{duration_text(load_s)}",
            remedy="Raise `budget`, shorten `warmup`, `measure` or lists, or select fewer setups with "
            "--fs.",
        )


def recall(request: PlanRequest, results_folder: Path) -> PlanRequest:
    """Return the request with what the load of each cell did in the newest runs of this host on
    such a device, and with the size of a user's own data that was copied before.
    """
    expanded = with_copies(request.expanded)
    of_runs = _newest(_on_same_device(run.trials, request.plan) for run in _earlier(results_folder))
    trials = list(itertools.chain.from_iterable(of_runs))
    cells = [
        dataclasses.replace(cell, earlier=_earlier_load(cell, trials)) for cell in expanded.cells
    ]
    return dataclasses.replace(request, expanded=expanded._replace(cells=tuple(cells)))


def _on_same_device(trials: Iterable[Trial], plan: Plan) -> list[Trial]:
    """Return the trials on the plan's disks, or on a device of the same kind if it is a file."""
    same = []
    for trial in trials:
        device = trial.device
        if device is None or device.kind != plan.device.kind:
            continue
        if device.image or device.path in plan.device.disks:
            same.append(trial)
    return same


def _earlier_load(cell: Cell, trials: Sequence[Trial]) -> EarlierLoad | None:
    """Return the medians of the trials of such a cell. If there are none with the same parameters,
    trials with other parameters are used, but only for a fixed window: the time and bytes of a
    load that runs to completion depend on its parameters.
    """
    if cell.workload.driver == "insert":
        return None  # the rate of its window does not include the load of its table before
    # Trials with the same parameters are the best guess.
    alike = [trial for trial in trials if _is_alike(trial, cell)]
    same = [trial for trial in alike if trial.parameters == cell.parameters]
    usable = alike if cell.window.kind == "fixed" and not same else same
    loads = list(filter(None, map(_load_of, usable)))
    if not loads:
        return None
    medians = {}
    for name in vars(loads[0]):
        counts = [getattr(load, name) for load in loads]
        counted = [count for count in counts if count is not None]
        if counted:
            medians[name] = statistics.median(counted)
    return EarlierLoad(**medians)


def _is_alike(trial: Trial, cell: Cell) -> bool:
    """Return whether the trial has the cell's engine, workload and setup, and its kind of window."""
    if trial.status is Status.FAILED or trial.window is None:
        return False
    tablespace = trial.dataset.tablespace if trial.dataset is not None else ""
    return (
        trial.engine == cell.engine.name
        and trial.profile in ("", cell.engine.profile)
        and trial.workload == cell.workload.name
        and trial.setup == cell.setup.name
        and trial.window.kind == cell.window.kind
        and tablespace == (cell.dataset.parameters.get("tablespace") or "")
    )


def _load_of(trial: Trial) -> EarlierLoad | None:
    seconds = {phase.name: phase.seconds for phase in trial.phases}
    window_s = seconds.get(Phase.MEASURE, 0.0)
    written = trial.io.write_bytes if trial.io is not None else None
    if written is None or window_s <= 0:
        return None
    whole_s = window_s + seconds.get(Phase.WARMUP, 0.0)
    # What the server counted, per second of the whole load.
    rates = {}
    for fact in trial.work:
        if fact.counted is not None:
            rates[fact.count] = fact.counted / whole_s
    drained = trial.drain.write_bytes if trial.drain is not None else None
    return EarlierLoad(
        load_s=whole_s,
        write_bytes_per_s=written / window_s,
        drain_bytes=drained or 0,
        log_bytes_per_s=rates.get("log_bytes"),
        binlog_bytes_per_s=rates.get("binlog_bytes"),
    )


class Design(NamedTuple):
    """What decides the precision of a run: its trials' scatter, and how many it compares."""

    trial_cv: float  # all pairs scatter alike
    blocks: int
    workloads: int
    candidates: int  # arms besides the baseline


def detectable(design: Design) -> float | None:
    """Return the smallest slowdown that is found with probability POWER at the level that Holm
    gives the first of the candidates. None below LEAST_BLOCKS.
    """
    if design.blocks < LEAST_BLOCKS:
        return None
    from scipy.special import nctdtr

    error, df, limit = _error(design)
    # bounds of the noncentrality: the difference in standard errors
    low = 0.0
    high = 1000.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if float(nctdtr(df, middle, limit)) > 1 - POWER:
            low = middle
        else:
            high = middle
    return -math.expm1(-high * error)


def same_within(margin: float, design: Design) -> float | None:
    """Return the probability that the interval of an equal setup is within the margin, as in
    `detectable`.
    """
    if design.blocks < LEAST_BLOCKS:
        return None
    from scipy.special import chdtri

    # The mean over what the measured scatter may be.
    error, df, limit = _error(design)
    shares = []
    for k in range(50):
        scatter = math.sqrt(float(chdtri(df, (k + 0.5) / 50)) / df)  # measured ÷ true
        z = math.log1p(margin) / error - limit * scatter
        shares.append(math.erf(max(0.0, z) / math.sqrt(2)))
    return statistics.fmean(shares)


def _error(design: Design) -> tuple[float, float, float]:
    """Return (standard error, degrees of freedom, quantile) of a pair's interval."""
    from scipy.special import stdtrit

    alike = Estimate(design.blocks, 0.0, math.sqrt(2) * design.trial_cv)
    arms = dict.fromkeys(range(design.candidates), alike)
    pair = share_variance(dict.fromkeys(range(design.workloads), arms))[0][0]
    df = design.blocks - 1 + pair.shared_df * SHARED
    quantile = float(stdtrit(df, 1 - ALPHA / design.candidates / 2))
    return alike.sd / math.sqrt(design.blocks), df, quantile


def _earlier(results_folder: Path) -> Iterator[LoadedRun]:
    """Yield the runs of this host, newest first. Runs that cannot be read are skipped."""
    if not results_folder.is_dir():
        return
    # A run says in a small file whether it is of this host; only those are read.
    loaded = []
    for folder in results.runs(results_folder):
        with contextlib.suppress(DbbenchError):
            run = results.load_spec(folder)
            if run.host.get("hostname") == platform.node() and run.order:
                loaded.append((run.created, folder))
    for _, folder in sorted(loaded, reverse=True):
        with contextlib.suppress(DbbenchError):
            yield results.load_run(folder, verify=False)


def _newest(of_runs: Iterable[list[_T]]) -> list[list[_T]]:
    """Return what the newest runs have, without runs that have nothing."""
    return list(itertools.islice(filter(None, of_runs), MOST_RUNS))


def _variances(run: LoadedRun, primary: Mapping[tuple[str, str], str]) -> Iterator[float]:
    """Yield the variance of each pair of the run; `primary` has the metric of each (engine,
    workload) that counts.
    """
    baseline = run.run.baseline
    trials = [trial for trial in run.trials if not is_short(trial.window)]
    # Only pairs of loads that the plan has say something about it.
    for (engine, workload, _), group in groups(trials).items():
        metric = primary.get((engine, workload))
        if metric is None:
            continue
        for arm in sorted({trial.fs_setup for trial in group} - {baseline}):
            guess = estimate_of(values_of(group, baseline, arm, metric))
            if guess is not None and guess.n >= LEAST_BLOCKS:
                yield guess.sd**2


def _percent(share: float) -> str:
    if share < 0.1:
        return f"{100 * share:.2g}"
    return f"{100 * share:.0f}"
