"""What a fleet has on a machine beside its results, and whose it is: a worker's scratch folder, hosts of `--local`.

RESULTS/.fleet-worker/          of the worker that has this results folder: dask's own files
RESULTS/.fleet-worker.lock      held by it
RESULTS/.fleet/FLEET/hosts/     results folders of hosts that are workers of `--local`, with runs of their own
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dbbench import store
from dbbench.errors import RunLocked
from dbbench.fleet import record
from dbbench.fleet.record import Fleet
from dbbench.store.files import exclusive
from dbbench.store.trials import SUMS, damage

SCRATCH: Final = ".fleet-worker"


@contextlib.contextmanager
def worker_of(results: Path) -> Iterator[Path]:
    """Be the worker of a results folder while the block lasts: two would answer for the same disk. Its scratch folder.

    RunLocked where there is one.
    """
    results.mkdir(parents=True, exist_ok=True)
    with exclusive(
        results / f"{SCRATCH}.lock",
        lambda pid: RunLocked(f"another fleet worker has {results}: process {pid}", effect="Nothing was changed.",
                              remedy="Name another folder: --results DIR."),
    ):  # fmt: skip
        yield results / SCRATCH


def hosts_here(results: Path, name: str) -> list[Path]:
    """The results folders of the fleet's hosts that are workers of this machine."""
    return sorted(path for path in (record.folder_of(results, name) / "hosts").glob("*") if path.is_dir())


def runs_here(results: Path, name: str) -> list[Path]:
    """The runs of those hosts."""
    return [run for host in hosts_here(results, name) for run in store.runs(host)]


def copies(results: Path, fleet: Fleet) -> list[Path]:
    """Trials of hosts of this machine that are home too, the same and whole; none before the fleet is finished."""
    if not fleet.finished:
        return []
    trials = [path for run in runs_here(results, fleet.name) for path in sorted((run / "trials").glob("[!.]*"))]
    return [path for path in trials if _is_home(path, results / path.parts[-3] / "trials" / path.name)]


def _is_home(copy: Path, home: Path) -> bool:
    """Whether the result at `home` is whole and the same as `copy`."""
    try:
        return (copy / SUMS).read_bytes() == (home / SUMS).read_bytes() and not damage(home)
    except OSError:
        return False
