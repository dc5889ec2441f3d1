"""Private mounts for tests, as a trial has them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dbbench.machine import libc, namespaces


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Give this thread its own mount namespace within the block, without a new process. Raises
    OSError.

    Mounts that are made over the system's directories are gone afterwards.
    """
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    folder = Path.cwd()
    outer = namespaces._private
    try:
        libc.call("unshare", namespaces.CLONE_NEWNS)
        try:
            namespaces.mount("none", Path("/"), flags=namespaces.MS_REC | namespaces.MS_SLAVE)
            namespaces._private = True
            yield
        finally:
            namespaces._private = outer
            # this sets the working directory to the root
            libc.call("setns", before, namespaces.CLONE_NEWNS)
            os.chdir(folder)
    finally:
        os.close(before)
