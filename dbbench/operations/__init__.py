"""Operations on the filled filesystem, timed after the load: check, snapshot, clone, grow, backup, crash,
repair. One file each.

What a filesystem or layer must be able to do for them is in `port.py`, who can in `abilities.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dbbench.errors import CopyWrong, DbbenchError, FilesystemDamaged, FilesystemGone, Interrupted, Terminated
from dbbench.model import OperationFacts
from dbbench.operations.backup import base_backup
from dbbench.operations.copying import clone, snapshot
from dbbench.operations.crash import crash_recovery
from dbbench.operations.fsck import fsck
from dbbench.operations.growing import grow
from dbbench.operations.port import Filled, Operation
from dbbench.operations.repair import repair

__all__ = ["OPERATIONS", "Filled", "operated"]

OPERATIONS: Final[dict[str, Operation]] = {
    "fsck": fsck,
    "snapshot": snapshot,
    "clone": clone,
    "grow": grow,
    "base-backup": base_backup,
    "crash-recovery": crash_recovery,
    "repair": repair,
}

# The data is not what it should be, or somebody asked us to stop: not the operation's own affair.
_THE_TRIALS: Final = (FilesystemDamaged, CopyWrong, FilesystemGone, Interrupted, Terminated)


def operated(names: Sequence[str], filled: Filled) -> tuple[OperationFacts, ...]:
    """The steps of these operations, in order. One that fails is told and ends them: the load's figures stand, but
    what the filesystem is like now is not known. FilesystemDamaged, CopyWrong."""
    found: list[OperationFacts] = []
    for number, name in enumerate(names):
        try:
            for facts in OPERATIONS[name](filled):
                found.append(facts)
        except _THE_TRIALS:
            raise
        except (DbbenchError, OSError) as error:
            found.append(OperationFacts(name, None, text=str(error), failed=True))
            left = names[number + 1 :]
            found += [OperationFacts(later, None, text=f"not tried: {name} failed before") for later in left]
            break
    return tuple(found)
