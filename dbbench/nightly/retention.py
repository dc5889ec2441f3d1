"""What of a night's run is kept how long: raw output a month, seconds a year, figures for ever."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dbbench.nightly.history import Night
from dbbench.store.files import sha256, write_text, writing
from dbbench.store.trials import SUMS

RAW_DAYS: Final = 30
SERIES_DAYS: Final = 365
_SECONDS: Final = ("series.csv.gz", "histogram.json")


def prune(results: Path, nights: Sequence[Night], today: datetime.date) -> list[str]:
    """Remove what is past its time from the runs of these nights, never from other runs; one line for each run."""
    told = []
    for night in nights:
        age = (today - datetime.date.fromisoformat(night.night)).days
        trials = results / night.run / "trials"
        if age <= RAW_DAYS or not trials.is_dir():
            continue
        removed = sum(_pruned(folder, age > SERIES_DAYS) for folder in sorted(trials.glob("[!.]*")))
        if removed:
            told.append(f"{night.run}: raw output{' and seconds' if age > SERIES_DAYS else ''} of {removed} trials")
    return told


def _pruned(trial: Path, seconds_too: bool) -> bool:
    """Whether anything was removed. Sums are written first: a folder that is cut off in between is still whole."""
    gone = [trial / "raw", *((trial / name for name in _SECONDS) if seconds_too else ())]
    gone = [path for path in gone if path.exists()]
    if not gone:
        return False
    with writing(trial):
        kept = sorted(p for p in trial.rglob("*") if p.is_file() and p.name != SUMS
                      and not any(p == path or path in p.parents for path in gone))  # fmt: skip
        write_text(trial / SUMS, "".join(f"{sha256(path)}  {path.relative_to(trial)}\n" for path in kept))
        for path in gone:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return True
