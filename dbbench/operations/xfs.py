"""xfs: xfs_repair, changing nothing."""

from __future__ import annotations

from dbbench import process
from dbbench.errors import FilesystemDamaged
from dbbench.operations.ext import FSCK_S
from dbbench.operations.port import Check, Filled


def checks(_filled: Filled) -> tuple[Check, ...]:
    """xfs_repair -n."""
    return (Check("xfs_repair -n", _repair),)


def _repair(filled: Filled) -> str:
    argv = ["xfs_repair", "-n", filled.volume.argument]
    done = process.run(argv, timeout_s=FSCK_S, ok=(0, 1), pass_fds=(filled.volume.fd,))
    if done.returncode:
        raise FilesystemDamaged(
            f"xfs_repair finds errors on {filled.volume.path}:\n  "
            + "\n  ".join((done.stderr + done.stdout).splitlines()[-8:]),
            effect="The trial does not count.",
        )
    return "no errors"
