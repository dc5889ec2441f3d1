"""Reading results back. Damage is found by the checksums and named, never guessed around."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dbbench.errors import ResultDamaged, RunMissing
from dbbench.histogram import Histogram
from dbbench.model import LabFacts, Run, Trial
from dbbench.series import Series, read_csv_gz
from dbbench.store.files import plain_file, read_bytes
from dbbench.store.lab import load_lab
from dbbench.store.runs import folders, load_spec
from dbbench.store.trials import damage

_TRIAL: TypeAdapter[Trial] | None = None


@dataclass(frozen=True)
class LoadedRun:
    """A run as it lies in its folder: the question and the trials that are finished, in the run's order."""

    path: Path
    run: Run
    trials: tuple[Trial, ...]
    lab: LabFacts | None = None  # of the power-cut lab, where it was in this folder

    @property
    def unfinished(self) -> list[str]:
        """Ids of trials that are still to be driven."""
        done = {trial.id for trial in self.trials}
        return [spec.id for spec in self.run.order if spec.id not in done]

    def series(self, trial: Trial) -> tuple[Series, list[str]] | None:
        """The trial's series and the phase of each second, or None where it has none."""
        path = self.path / "trials" / trial.id / "series.csv.gz"
        try:
            with plain_file(path) as file:
                return read_csv_gz(file)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise ResultDamaged(f"{path}: {error}") from error

    def histogram(self, trial: Trial) -> Histogram | None:
        """The latencies of the trial's window, or None where it has none."""
        path = self.path / "trials" / trial.id / "histogram.json"
        try:
            counts = json.loads(read_bytes(path))["counts"]
            return Histogram({int(bucket): n for bucket, n in counts.items()})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultDamaged(f"{path}: {error}") from error


def load_run(path: str | Path, *, verify: bool = True) -> LoadedRun:
    """Read a run's folder. `verify` holds every file against SHA256SUMS.

    RunMissing where it is no run; ResultDamaged names every damaged trial and file, or the lab's.
    """
    folder = Path(path)
    run = load_spec(folder)
    order = {spec.id: spec.position for spec in run.order}
    trials, faults = [], []
    for spec_id in sorted(order, key=lambda name: order[name]):
        where = folder / "trials" / spec_id
        if not where.is_dir():
            continue
        found = damage(where) if verify else []
        faults += [f"{spec_id}: {fault}" for fault in found]
        if not found:
            trials.append(load_trial(where))
    if faults:
        raise ResultDamaged(
            f"{folder}: " + "; ".join(faults),
            effect="Nothing was changed.",
            remedy=f"Restore the folder from a copy, or remove the damaged trial and run the plan again: "
            f"rm -r {folder / 'trials' / faults[0].split(':')[0]}",
        )
    return LoadedRun(folder, run, tuple(trials), load_lab(folder, verify=verify))


def load_trial(folder: Path) -> Trial:
    """The content of trial.json."""
    global _TRIAL
    if _TRIAL is None:
        _TRIAL = TypeAdapter(Trial)
    path = folder / "trial.json"
    try:
        return _TRIAL.validate_json(read_bytes(path))
    except (OSError, ValidationError, ValueError) as error:
        raise ResultDamaged(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def runs(results: Path) -> list[Path]:
    """The folders of all runs below `results`, by name."""
    if not results.is_dir():
        raise RunMissing(f"{results} is not a results folder", remedy="Name it with --results DIR.")
    return folders(results)
