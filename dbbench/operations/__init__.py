"""Operations on the filled filesystem, timed after the load: check, snapshot, grow, backup, crash,
repair, scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dbbench.errors import DbbenchError, FilesystemDamaged, Interrupted, Terminated
from dbbench.model import OperationFacts
from dbbench.operations.backup import base_backup, clone, snapshot
from dbbench.operations.crash import crash_recovery
from dbbench.operations.maintenance import fsck, grow, repair, scan
from dbbench.operations.steps import Operation, StoredDatabase, impossible

__all__ = ["OPERATIONS", "StoredDatabase", "operate"]

OPERATIONS: Final[dict[str, Operation]] = {
    "fsck": fsck,
    "snapshot": snapshot,
    "clone": clone,
    "grow": grow,
    "base-backup": base_backup,
    "crash-recovery": crash_recovery,
    "repair": repair,
    "scan": scan,
}

# Damaged data or a request to stop is not a failure of the operation itself.
_THE_TRIALS: Final = (FilesystemDamaged, Interrupted, Terminated)


def operate(
    names: Sequence[str],
    filled: StoredDatabase,
    operations: Mapping[str, Operation] = OPERATIONS,
) -> tuple[OperationFacts, ...]:
    """Run the operations until a step fails; then only the load's results are valid. Raises
    FilesystemDamaged.
    """
    steps: list[OperationFacts] = []
    for number, name in enumerate(names):
        try:
            for facts in operations[name](filled):
                steps.append(facts)
        except _THE_TRIALS:
            raise
        except (DbbenchError, OSError) as error:
            steps.append(OperationFacts(name, None, text=str(error), failed=True))
            for later in names[number + 1 :]:
                steps.append(impossible(later, f"not tried: {name} failed before"))
            break
    return tuple(steps)
