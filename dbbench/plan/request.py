"""A plan as the command line asks for it, and what of it this machine can do."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dbbench.engines import ENGINES, profile_of
from dbbench.engines.settings import numbers_of
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.errors.similar_names import did_you_mean
from dbbench.model import Arm, Cell, Plan
from dbbench.plan import Expanded, deal, expand, identity, load, make_order, narrow
from dbbench.plan.catalog import Catalog, catalog
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.tomlfile import MOST_BYTES
from dbbench.plan.variants import level_text
from dbbench.results.fileio import given_text


@dataclass(frozen=True)
class PlanRequest:
    """A plan as it will be run."""

    text: str  # content of the plan file
    plan: Plan
    expanded: Expanded
    sha256: str
    # arm -> why it is not run with all or some engines
    skipped: dict[str, str] = field(default_factory=dict)
    step: int = 1  # distance between block numbers: N of --share K/N
    only: tuple[str, ...] = ()  # patterns of cells, from --only


def load_request(
    file: str,
    paths: list[str],
    narrowing: Narrowing | None = None,
    change: Callable[[Plan], Plan] = lambda plan: plan,
) -> PlanRequest:
    """Read the plan, apply the command line, then `change`; `skipped` has the arms that are the same
    as another setup. Raises FileUnreadable, PlanInvalid, UnknownName.
    """
    # Each pattern must match a cell, because a misspelled one would select nothing.
    available = catalog(paths)
    to = narrowing or Narrowing()
    plan = change(narrow(load(Path(file), available), to))
    if to.only:
        names = [cell.id for cell in expand(plan, available).cells]
        for pattern in to.only:
            if not fnmatch.filter(names, pattern):
                hint = did_you_mean(pattern, names)
                raise UnknownName(f'--only: the plan has no cell "{pattern}"{hint}')
    return of_plan(given_text(Path(file), MOST_BYTES), plan, available, tuple(to.only))


def of_plan(
    text: str,
    plan: Plan,
    available: Catalog,
    only: tuple[str, ...] = (),
) -> PlanRequest:
    """Return the request for a plan; arms without a cell are not among its arms. Raises
    PlanInvalid.
    """
    expanded = expand(plan, available)
    if only:
        names = [cell.id for cell in expanded.cells]
        chosen = set[str]()
        for pattern in only:
            chosen.update(fnmatch.filter(names, pattern))
        cells = tuple(cell for cell in expanded.cells if cell.id in chosen)
        order = make_order(cells, plan.blocks, plan.seed)
        expanded = expanded._replace(cells=cells, order=tuple(order))
    arms = {cell.arm for cell in expanded.cells}
    kept = tuple(arm for arm in plan.fs_setups if arm.label in arms)
    baseline = plan.baseline if plan.baseline in ("", *arms) else kept[0].label
    plan = replace(plan, fs_setups=kept, baseline=baseline)
    sha256 = identity(plan, expanded.cells)
    return PlanRequest(text, plan, expanded, sha256, dict(expanded.skipped), only=only)


def able(request: PlanRequest, paths: list[str]) -> PlanRequest:
    """Return the request without the arms and levels that are not possible on this machine, with
    the reason for each. Unchanged if no baseline or no arm would remain: it is then refused as a
    whole, with what to install.
    """
    plan = request.plan
    skipped = list_gaps(request, paths)
    # Without the baseline nothing can be compared.
    rest = tuple(arm for arm in plan.fs_setups if arm.label not in skipped)
    if not skipped or not rest or plan.baseline_label in skipped:
        return request
    # The levels that remain, and the request as if the plan named only these.
    factors = {}
    for name, levels in plan.factors.items():
        factors[name] = tuple(of for of in levels if level_text(name, of) not in skipped)
    plan = replace(plan, fs_setups=rest, factors=factors)
    possible = of_plan(request.text, plan, catalog(paths), request.only)
    return replace(
        possible,
        skipped={
            **request.skipped,
            **possible.skipped,
            **skipped,
        },
    )


def list_gaps(request: PlanRequest, paths: list[str]) -> dict[str, str]:
    """Return the arms that this machine cannot make or whose tuning its servers lack, and the
    levels of factors that its kernel refuses ("io_method=io_uring"), with the reason for each.
    """
    plan = request.plan
    available = catalog(paths)
    gaps: dict[str, str] = {}
    for cell in request.expanded.cells:
        if reason := _without_setting(cell):
            gaps[cell.arm] = reason
    # Filesystems that exist need not be made.
    if not plan.device.directories:
        for arm in plan.fs_setups:
            if reason := _without_filesystem(arm, plan, available):
                gaps[arm.label] = reason
    return {**gaps, **_refused_levels(plan)}


def _without_setting(cell: Cell) -> str | None:
    """Return the setting of the setup's tuning that the installed version of the server does not
    have, or None.
    """
    profile = profile_of(cell.engine.name)
    words = []
    for name, value in cell.setup.tuning.get(cell.engine.name, {}).items():
        words += [name, level_text(name, value)]
    limited = [word for word in words if word in profile.versions]
    if not limited:
        return None
    version = ENGINES[cell.engine.name].installed_version(cell.engine.bin)
    if not version:
        return None
    for word in limited:
        if numbers_of(version) not in profile.versions[word]:
            return f"{profile.title} {version} has no setting {word}"
    return None


def _without_filesystem(
    arm: Arm,
    plan: Plan,
    available: Catalog,
) -> str | None:
    """Return why this machine cannot make the arm's filesystems, or None."""
    from dbbench.storage import filesystems

    setups = [available.setup_of(arm)]
    if plan.device.wal is not None and arm.wal:
        setups.append(available.setup(plan.device.wal.fs_setup))
    reason = next(filter(None, map(filesystems.works, setups)), None)
    # An option of the user that is wrong is not skipped, but refused.
    if reason and arm.adds and plan.study is None:
        if filesystems.works(available.setup(arm.use)):
            return reason
        return None
    return reason


def _refused_levels(plan: Plan) -> dict[str, str]:
    """Return the levels that require io_uring, and why the kernel refuses it, if another level
    remains.
    """
    from dbbench.machine import host

    refused = []
    for engine in plan.engine:
        for name, level in profile_of(engine.name).io_uring.items():
            levels = plan.factors.get(name, ())
            if len(levels) > 1 and level in levels:
                refused.append(level_text(name, level))
    reason = host.without_io_uring() if refused else None
    if reason:
        return dict.fromkeys(refused, reason)
    return {}


def take_share(request: PlanRequest, part: tuple[int, int] | None) -> PlanRequest:
    """Return the K-th of N shares of its blocks; the plan and therefore its hash stay the same.
    Raises PlanInvalid. With a budget each share begins with at least one block, and adds every
    N-th.
    """
    if part is None:
        return request
    # With a budget the order grows, so each share begins with a block of its own.
    index, shares = part
    plan = request.plan
    order = request.expanded.order
    if plan.budget_s is not None:
        blocks = max(plan.blocks, shares)
        order = tuple(make_order(request.expanded.cells, blocks, plan.seed))
    order = deal(order, index, shares)
    if not order:
        raise PlanInvalid(
            f"--share {index}/{shares} contains no block, because the plan has only {plan.blocks}"
        )
    return replace(
        request,
        expanded=request.expanded._replace(order=order),
        step=shares,
    )
