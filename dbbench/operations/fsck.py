"""Operation `fsck`: every check of the filesystem as a whole that its family has, timed, on the filled filesystem."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dbbench.model import OperationFacts
from dbbench.operations.abilities import CHECKED, of
from dbbench.operations.port import Filled
from dbbench.operations.steps import impossible, timed, unmounted


def fsck(filled: Filled) -> Iterator[OperationFacts]:
    """One step a check: e2fsck -fn, xfs_repair -n, btrfs scrub and check, a pool's scrub. FilesystemDamaged."""
    able = of(CHECKED, filled.setup)
    if able is None:
        yield impossible("fsck", f"{filled.fs.family} has no check that is known here")
        return
    for check in able.checks(filled):
        name, work = f"fsck: {check.name}", partial(check.run, filled)
        if check.mounted:
            yield timed(name, work)
        else:
            with unmounted(filled):
                yield timed(name, work)
