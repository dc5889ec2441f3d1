"""Moving a stopped server's write-ahead log out of its data directory, onto another filesystem perhaps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from dbbench.engines.serving import own
from dbbench.pagecache import syncfs
from dbbench.process import User


def moved(sources: Iterable[Path], to: Path, account: User) -> None:
    """Move files and folders into the folder `to`, which is made where it is missing, for the server's account.

    Copied by plain writes, as a golden copy is restored, and on the device when this returns.
    """
    own(to, account)
    for source in sources:
        target = to / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
            shutil.rmtree(source)
        else:
            shutil.copy2(source, target)
            source.unlink()
        for path in (target, *(target.rglob("*") if target.is_dir() else ())):
            if os.geteuid() == 0:
                os.lchown(path, account.uid, account.gid)
    syncfs(to)
