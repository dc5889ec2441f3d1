"""RESULTS/baselines.json: which run's level a person has accepted for a plan, when and why. Nothing is overwritten."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.clock import iso
from dbbench.errors import ResultDamaged
from dbbench.model import plain
from dbbench.nightly.history import Ratio, night_of
from dbbench.store import LoadedRun
from dbbench.store.files import write_json

FILE: Final = "baselines.json"


@dataclass(frozen=True)
class Accepted:
    """From this run on its level is what nights are held against."""

    run: str
    created: str  # of the run
    reason: str
    at: str  # when it was accepted
    ratios: dict[str, Ratio]


def all_accepted(results: Path) -> dict[str, list[Accepted]]:
    """Every acceptance by the plan's name, the eldest first. ResultDamaged."""
    path = results / FILE
    if not path.is_file():
        return {}
    try:
        content: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
        return {plan: [_entry(one) for one in entries] for plan, entries in content.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultDamaged(f"{path}: {error}", remedy="Restore the file from a copy.") from error


def accepted(results: Path, plan: str) -> Accepted | None:
    """The newest acceptance for a plan."""
    entries = all_accepted(results).get(plan)
    return entries[-1] if entries else None


def accept(results: Path, loaded: LoadedRun, reason: str) -> Accepted:
    """Accept a run's level for its plan from now on."""
    night = night_of(loaded)
    entry = Accepted(loaded.path.name, loaded.run.created, reason, iso(time.time()), night.ratios)
    known = all_accepted(results)
    known.setdefault(loaded.run.plan.name, []).append(entry)
    write_json(results / FILE, {plan: [plain(one) for one in entries] for plan, entries in known.items()})
    return entry


def _entry(content: dict[str, Any]) -> Accepted:
    ratios = {key: Ratio(**value) for key, value in content["ratios"].items()}
    return Accepted(**{**content, "ratios": ratios})
