"""RESULTS/baselines.json: the accepted run of each plan, when and why. Entries are never overwritten."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbbench.errors import ResultDamaged
from dbbench.metrics.clock import iso
from dbbench.model import plain
from dbbench.nightly.history import Ratio, night_of
from dbbench.results import LoadedRun
from dbbench.results.fileio import read_bytes, sound_json, write_json

FILE: Final = "baselines.json"


@dataclass(frozen=True)
class Accepted:
    """An accepted run: nights are compared with its level from then on."""

    run: str
    created: str  # of the run
    reason: str
    at: str  # when it was accepted
    ratios: dict[str, Ratio]


def all_accepted(results: Path) -> dict[str, list[Accepted]]:
    """Return every acceptance by the plan's name, the oldest first. Raises ResultDamaged."""
    path = results / FILE
    if not os.path.lexists(path):
        return {}
    try:
        content: dict[str, list[dict[str, Any]]] = sound_json(read_bytes(path, results))
        return {plan: [_entry(entry) for entry in entries] for plan, entries in content.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultDamaged(f"{path}: {error}", remedy="Restore the file from a copy.") from error


def accepted(results: Path, plan: str) -> Accepted | None:
    """Return the newest acceptance for a plan."""
    entries = all_accepted(results).get(plan)
    return entries[-1] if entries else None


def accept(results: Path, loaded: LoadedRun, reason: str) -> Accepted:
    """Accept a run's level for its plan from now on."""
    night = night_of(loaded)
    entry = Accepted(loaded.path.name, loaded.run.created, reason, iso(time.time()), night.ratios)
    all_entries = all_accepted(results)
    all_entries.setdefault(loaded.run.plan.name, []).append(entry)
    write_json(
        results / FILE,
        {plan: [plain(entry_of_plan) for entry_of_plan in entries] for plan, entries in all_entries.items()},
    )
    return entry


def _entry(content: dict[str, Any]) -> Accepted:
    ratios = {key: Ratio(**value) for key, value in content["ratios"].items()}
    return Accepted(**{**content, "ratios": ratios})
