"""ext2, ext3, ext4: e2fsck, and no snapshots of its own."""

from __future__ import annotations

from dbbench import process
from dbbench.errors import FilesystemDamaged
from dbbench.operations.port import Check, Filled

FSCK_S = 6 * 3600.0  # terabytes of small files
_FOUND = (1, 2, 4)  # exit status of e2fsck: errors, corrected or not; with -n nothing is corrected


def checks(_filled: Filled) -> tuple[Check, ...]:
    """e2fsck -f -n: all of its passes though the filesystem is clean, and nothing is changed."""
    return (Check("e2fsck -fn", _fsck),)


def _fsck(filled: Filled) -> str:
    argv = ["e2fsck", "-f", "-n", filled.volume.argument]
    done = process.run(argv, timeout_s=FSCK_S, ok=(0, *_FOUND), pass_fds=(filled.volume.fd,))
    if done.returncode:
        raise FilesystemDamaged(
            f"e2fsck finds errors on {filled.volume.path}:\n  " + "\n  ".join(done.stdout.splitlines()[-8:]),
            effect="The trial does not count.",
        )
    return done.stdout.strip().splitlines()[-1].split(": ", 1)[-1]
