"""Whether filesystems and data are intact after the load."""

from __future__ import annotations

from dbbench.datasets import generated
from dbbench.errors import FilesystemDamaged
from dbbench.model import Dataset
from dbbench.operations import StoredDatabase
from dbbench.run.stages import Mounts
from dbbench.storage.filesystems import shape


def check(dataset: Dataset, mounts: Mounts, ready: StoredDatabase) -> str:
    """Return what was checked. Raises FilesystemDamaged, DataCorrupt."""
    for fs in mounts.values():
        if bad := shape.healthy(fs):
            raise FilesystemDamaged(bad, remedy="Read the kernel log with dmesg.")
    text, consistency = ready.check(ready.datadir), generated.CONSISTENCY.get(dataset.kind)
    if consistency is None:
        return text
    with ready.serving(ready.datadir) as server:
        return f"{text}; {consistency(server, dataset)}"
