"""The options that choose and narrow a plan, and what they come to: used by `plan` and `run` alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from dbbench.catalog import catalog
from dbbench.model import Plan
from dbbench.plan import Expanded, expand, identity, load, narrowed

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Asked:
    """A plan as it will be driven."""

    text: str  # the file, as given
    plan: Plan
    expanded: Expanded
    sha256: str


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


def asked(file: str, paths: list[str], fs: str | None, blocks: int | None, quick: bool, seed: int | None) -> Asked:
    """Read the plan and what the command line says over it. FileMissing, PlanInvalid, UnknownName."""
    known = catalog(paths)
    labels = [word.strip() for word in fs.split(",") if word.strip()] if fs else []
    plan = narrowed(load(Path(file), known), fs=labels, blocks=blocks, seed=seed, quick=quick)
    expanded = expand(plan, known)
    return Asked(Path(file).read_text(encoding="utf-8"), plan, expanded, identity(plan, expanded.cells))
