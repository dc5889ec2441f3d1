"""The options that choose and narrow a plan, and what they come to: used by `plan` and `run` alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from dbbench.catalog import Catalog, catalog
from dbbench.errors import PlanInvalid
from dbbench.model import Arm, Plan
from dbbench.plan import Expanded, dealt, expand, identity, load, narrowed

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Asked:
    """A plan as it will be driven."""

    text: str  # the file, as given
    plan: Plan
    expanded: Expanded
    sha256: str
    skipped: dict[str, str] = field(default_factory=dict)  # arm -> why this machine cannot make it


def plan_options(function: Function) -> Function:
    """--fs, --blocks, --quick and --seed."""
    for option in (
        click.option("--seed", type=int, metavar="N", help="Another order of the trials."),
        click.option("--quick", is_flag=True, help="One block of the shortest windows: to see that all works."),
        click.option("--blocks", type=int, metavar="N", help="Other than the plan's."),
        click.option("--fs", metavar="A,B", help="Only these of the plan's fs_setups."),
    ):
        function = option(function)
    return function


def _share_given(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """ "2%" or "0.02" as 0.02."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise click.BadParameter(f"{value} is no share; write 2%")
    return share


precision_option = click.option(
    "--until-precision",
    "precision",
    metavar="2%",
    callback=_share_given,
    help="Further blocks, 15 at most, until each interval is that narrow; settled arms stop early.",
)


def asked(file: str, paths: list[str], fs: str | None, blocks: int | None, quick: bool, seed: int | None) -> Asked:
    """Read the plan and what the command line says over it. FileMissing, PlanInvalid, UnknownName."""
    known = catalog(paths)
    labels = [word.strip() for word in fs.split(",") if word.strip()] if fs else []
    plan = narrowed(load(Path(file), known), fs=labels, blocks=blocks, seed=seed, quick=quick)
    expanded = expand(plan, known)
    return Asked(Path(file).read_text(encoding="utf-8"), plan, expanded, identity(plan, expanded.cells))


def able(wanted: Asked, paths: list[str]) -> Asked:
    """Without the arms that this machine cannot make, each by name with its reason. As it was where that leaves no
    baseline, or nothing: then it is refused as a whole, with what to install."""
    plan, known = wanted.plan, catalog(paths)
    if plan.device.kind == "dir":
        return wanted
    skipped = {arm.label: reason for arm in plan.fs_setups if (reason := _lacking(arm, plan, known))}
    rest = tuple(arm for arm in plan.fs_setups if arm.label not in skipped)
    if not skipped or not rest or (plan.baseline or plan.fs_setups[0].label) in skipped:
        return wanted
    plan = replace(plan, fs_setups=rest)
    expanded = expand(plan, known)
    return Asked(wanted.text, plan, expanded, identity(plan, expanded.cells), skipped)


def shared(wanted: Asked, part: tuple[int, int] | None) -> Asked:
    """Only the K-th of N shares of its blocks; the plan, and so its hash, stays the same. PlanInvalid: no block."""
    if part is None:
        return wanted
    order = dealt(wanted.expanded.order, *part)
    if not order:
        raise PlanInvalid(f"--share {part[0]}/{part[1]} of {wanted.plan.blocks} blocks is none")
    return replace(wanted, expanded=wanted.expanded._replace(order=order))


def _lacking(arm: Arm, plan: Plan, known: Catalog) -> str | None:
    from dbbench import filesystems

    log = plan.device.wal.fs_setup if plan.device.wal and arm.wal else ""
    return next((why for name in (arm.use, log) if name and (why := filesystems.works(known.setup(name)))), None)
