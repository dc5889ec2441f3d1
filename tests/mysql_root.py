"""A MySQL to test against where the system has none: Debian 12 ships MariaDB only.

A small root of Debian unstable with mysql-server-core (560 MB, about 75 s, once a machine), made by debootstrap and
used in place as an engine's `bin`. It lies where the server's unprivileged account can reach it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

CACHE: Final = Path("/var/cache/dbbench-tests")
DEADLINE_S: Final = 600


@functools.lru_cache
def mysql_root() -> Path | None:
    """The root, made now where it is missing; None where it cannot be made (no root, debootstrap or mirror)."""
    root = CACHE / "mysql-root"
    if (root / "usr/sbin/mysqld").exists():
        return root
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return None
    CACHE.mkdir(0o755, parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of other workers of this session, one makes it
        if not root.exists() and not _made(root):
            return None
    return root


def _made(root: Path) -> bool:
    making, mirror = root.with_name("making"), _mirror()
    shutil.rmtree(making, ignore_errors=True)
    if mirror is None:
        return False
    argv = [
        "debootstrap",
        "--variant=minbase",
        "--include=mysql-server-core,mysql-client-core",
        "sid",
        str(making),
        mirror,
    ]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        done = False
    if done:
        making.chmod(0o755)
        making.rename(root)
    else:
        shutil.rmtree(making, ignore_errors=True)
    return done


def _mirror() -> str | None:
    """Where this machine has its own Debian packages from; None where it has none."""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    found = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    return next((address for address in found if "security" not in address), None)
