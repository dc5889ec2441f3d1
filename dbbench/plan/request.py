"""A plan as the command line asks for it, and what of it this machine can do."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field, replace
from pathlib import Path

from dbbench.engines import ENGINES, profile_of
from dbbench.engines.settings import numbers_of
from dbbench.errors import PlanInvalid, UnknownName
from dbbench.model import Arm, Cell, Plan
from dbbench.plan import Expanded, deal, expand, identity, load, make_order, narrow
from dbbench.plan.arms import level_text
from dbbench.plan.catalog import Catalog, catalog
from dbbench.plan.narrowing import Narrowing
from dbbench.plan.tomlfile import MOST_BYTES, did_you_mean
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


def load_request(file: str, paths: list[str], narrowing: Narrowing | None = None) -> PlanRequest:
    """Read the plan and apply the command line; `skipped` has the arms that are the same as another
    setup. Raises FileUnreadable, PlanInvalid, UnknownName.
    """
    known = catalog(paths)
    to = narrowing or Narrowing()
    plan = narrow(load(Path(file), known), to)
    names = [cell.id for cell in expand(plan, known).cells] if to.only else []
    for pattern in to.only:
        if not fnmatch.filter(names, pattern):
            raise UnknownName(
                f'--only: the plan has no cell "{pattern}"{did_you_mean(pattern, names)}'
            )
    return of_plan(given_text(Path(file), MOST_BYTES), plan, known, tuple(to.only))


def of_plan(text: str, plan: Plan, known: Catalog, only: tuple[str, ...] = ()) -> PlanRequest:
    """Return the request for a plan; arms without a cell are not among its arms. Raises
    PlanInvalid.
    """
    expanded = expand(plan, known)
    if only:
        cells = tuple(
            cell
            for cell in expanded.cells
            if any(fnmatch.fnmatchcase(cell.id, each) for each in only)
        )
        expanded = expanded._replace(
            cells=cells, order=tuple(make_order(cells, plan.blocks, plan.seed))
        )
    arms = {cell.arm for cell in expanded.cells}
    kept = tuple(arm for arm in plan.fs_setups if arm.label in arms)
    baseline = plan.baseline if plan.baseline in ("", *arms) else kept[0].label
    plan = replace(plan, fs_setups=kept, baseline=baseline)
    return PlanRequest(
        text, plan, expanded, identity(plan, expanded.cells), dict(expanded.skipped), only=only
    )


def able(wanted: PlanRequest, paths: list[str]) -> PlanRequest:
    """Return the request without the arms and levels that are not possible on this machine, with
    the reason for each. Unchanged if no baseline or no arm would remain: it is then refused as a
    whole, with what to install.
    """
    plan = wanted.plan
    known = catalog(paths)
    skipped = list_gaps(wanted, paths)
    rest = tuple(arm for arm in plan.fs_setups if arm.label not in skipped)
    if not skipped or not rest or (plan.baseline or plan.fs_setups[0].label) in skipped:
        return wanted
    levels = {
        name: tuple(level for level in of if level_text(name, level) not in skipped)
        for name, of in plan.factors.items()
    }
    less = of_plan(wanted.text, replace(plan, fs_setups=rest, factors=levels), known, wanted.only)
    return replace(less, skipped={**wanted.skipped, **less.skipped, **skipped})


def list_gaps(wanted: PlanRequest, paths: list[str]) -> dict[str, str]:
    """Return the arms that this machine cannot make or whose tuning its servers lack, and the
    levels of factors that its kernel refuses ("io_method=io_uring"), with the reason for each.
    """
    plan = wanted.plan
    known = catalog(paths)
    arms = () if plan.device.directories else plan.fs_setups
    untuned = {cell.arm: reason for cell in wanted.expanded.cells if (reason := _untunable(cell))}
    lacking = {arm.label: reason for arm in arms if (reason := _lacking(arm, plan, known))}
    return {**untuned, **lacking, **_refused_levels(plan)}


def _refused_levels(plan: Plan) -> dict[str, str]:
    """Return the levels that require io_uring, and why the kernel refuses it, if another level
    remains.
    """
    from dbbench.machine import host

    refused = {
        level_text(name, level): name
        for engine in plan.engine
        for name, level in profile_of(engine.name).io_uring.items()
        if len(plan.factors.get(name, ())) > 1 and level in plan.factors[name]
    }
    reason = host.without_io_uring() if refused else None
    return dict.fromkeys(refused, reason) if reason else {}


def _untunable(cell: Cell) -> str | None:
    """Return the setting of the setup's tuning that the installed version of the server does not
    have, or None.
    """
    profile = profile_of(cell.engine.name)
    tuning = cell.setup.tuning.get(cell.engine.name, {})
    words = [word for name, value in tuning.items() for word in (name, level_text(name, value))]
    if not (known := [word for word in words if word in profile.versions]):
        return None
    version = ENGINES[cell.engine.name].installed_version(cell.engine.bin)
    absent = [
        name for name in known if version and numbers_of(version) not in profile.versions[name]
    ]
    return f"{profile.title} {version} has no setting {absent[0]}" if absent else None


def take_share(wanted: PlanRequest, part: tuple[int, int] | None) -> PlanRequest:
    """Return the K-th of N shares of its blocks; the plan and therefore its hash stay the same.
    Raises PlanInvalid. With a budget each share begins with at least one block, and adds every
    N-th.
    """
    if part is None:
        return wanted
    whole = wanted.expanded.order
    if wanted.plan.budget_s is not None:
        whole = tuple(
            make_order(wanted.expanded.cells, max(wanted.plan.blocks, part[1]), wanted.plan.seed)
        )
    order = deal(whole, *part)
    if not order:
        share = f"--share {part[0]}/{part[1]}"
        raise PlanInvalid(
            f"{share} contains no block, because the plan has only {wanted.plan.blocks}"
        )
    return replace(wanted, expanded=wanted.expanded._replace(order=order), step=part[1])


def _lacking(arm: Arm, plan: Plan, known: Catalog) -> str | None:
    from dbbench.storage import filesystems

    setups = [
        known.setup_of(arm),
        *([known.setup(plan.device.wal.fs_setup)] if plan.device.wal and arm.wal else []),
    ]
    why = next(filter(None, map(filesystems.works, setups)), None)
    typed = (
        why and arm.adds and plan.study is None and filesystems.works(known.setup(arm.use)) is None
    )
    return None if typed else why  # an option of the user that is wrong is not skipped, but refused
