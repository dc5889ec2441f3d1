"""f2fs: fsck.f2fs, changing nothing."""

from __future__ import annotations

from dbbench import process
from dbbench.errors import FilesystemDamaged
from dbbench.operations.ext import FSCK_S
from dbbench.operations.port import Check, Filled


def checks(_filled: Filled) -> tuple[Check, ...]:
    """fsck.f2fs -f --dry-run: all of it though the filesystem is clean, and nothing is corrected."""
    return (Check("fsck.f2fs --dry-run", _fsck),)


def _fsck(filled: Filled) -> str:
    argv = ["fsck.f2fs", "-f", "--dry-run", filled.volume.argument]
    done = process.run(argv, timeout_s=FSCK_S, ok=range(256), pass_fds=(filled.volume.fd,))
    if wrong := damages(done.stdout) or (done.stderr.strip() if done.returncode else ""):
        raise FilesystemDamaged(
            f"fsck.f2fs finds errors on {filled.volume.path}: {wrong}", effect="The trial does not count."
        )
    return "no errors"


def damages(text: str) -> str:
    """Of fsck.f2fs's table of checks: those that failed; its exit status is 0 for many of them."""
    failed = (line.removeprefix("[FSCK]").strip() for line in text.splitlines() if "[Fail]" in line)
    return "; ".join(" ".join(line.split()) for line in failed)
