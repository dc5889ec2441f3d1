"""Release what a killed run has left on this machine, as its journal names it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from dbbench.errors import RunLocked
from dbbench.machine import limits, ownership
from dbbench.machine.host import tunables
from dbbench.results import RunFolder
from dbbench.results.journal import Journal
from dbbench.results.trials import leftovers
from dbbench.storage import filesystems, layers

# Time for the kernel to release what a killed trial used; with little dirty data it takes 0.1 s.
RELEASE_S: Final = 10.0


def release(folder: RunFolder) -> None:
    """Release the disks and everything else that a killed run still holds, before its plan is
    checked: the check would refuse them as in use. Raises RunLocked if the run is running, or if
    another account could change it.
    """
    must_be_trusted(folder.path)
    with folder.lock():
        give_back(folder.path, folder.journal)


def must_be_trusted(folder: Path) -> None:
    """Raise RunLocked if root would act upon a run that another account could change."""
    if writer := ownership.owner_of_run(folder):
        raise RunLocked(
            f"{writer}, and root would act upon it",
            remedy="Start another run with --name, or run the command as that account. `dbbench "
            "show`, `compare` and `report` only read.",
        )


def give_back(folder: Path, journal: Journal) -> list[str]:
    """Remove what a killed run has left, from top to bottom; return the pools and layers that no
    reboot had ended.
    """
    limits.give_back(journal)
    tunables.give_back(journal)
    removed = [*filesystems.give_back(journal), *layers.give_back(journal)]
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)
    for taken in journal.outstanding("runtime"):
        if Path(taken).is_dir() and Path(taken).lstat().st_uid == os.geteuid():
            shutil.rmtree(taken, ignore_errors=True)
        journal.release("runtime", taken)
    return removed
