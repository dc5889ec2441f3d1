"""bcachefs: its own fsck in user space, changing nothing. Tried on files, as no kernel here has it."""

from __future__ import annotations

from dbbench import process
from dbbench.errors import FilesystemDamaged
from dbbench.operations.ext import FSCK_S
from dbbench.operations.port import Check, Filled


def checks(_filled: Filled) -> tuple[Check, ...]:
    """bcachefs fsck -n -f: all of it though the filesystem is clean, and nothing is corrected."""
    return (Check("bcachefs fsck -n", _fsck),)


def _fsck(filled: Filled) -> str:
    argv = ["bcachefs", "fsck", "-n", "-f", filled.volume.argument]
    done = process.run(argv, timeout_s=FSCK_S, ok=range(256), pass_fds=(filled.volume.fd,))
    if done.returncode:  # 8 where its trees cannot be read
        said = "; ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-4:])
        raise FilesystemDamaged(
            f"bcachefs fsck finds errors on {filled.volume.path} (status {done.returncode}): {said}",
            effect="The trial does not count.",
        )
    return "no errors"
