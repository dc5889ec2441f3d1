"""`python -m tests.support.second_kernel [--disks N] [--size 1GiB] [--share DIR] -- COMMAND ...`
runs a command as root in the second kernel, on this machine's root filesystem, and exits with
its status. Without a command it only builds that kernel.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dbbench.units import bytes_of, seconds_of
from tests.support.second_kernel import (
    LIMIT_S,
    MEMORY_BYTES,
    run_inside,
    small_root,
    unavailable,
)


def main() -> int:
    """Return the command's exit status; 1 if the kernel reported a fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.second_kernel", description=__doc__
    )
    parser.add_argument(
        "--disks",
        type=int,
        default=0,
        help="empty disks: /dev/ubdb, /dev/ubdc ...",
    )
    parser.add_argument("--size", type=bytes_of, default=2**30, help="of each, 1GiB by default")
    parser.add_argument(
        "--share",
        type=Path,
        action="append",
        default=[],
        help="a folder that the command may write",
    )
    parser.add_argument("--memory", type=bytes_of, default=MEMORY_BYTES)
    parser.add_argument("--limit", type=seconds_of, default=LIMIT_S)
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    if reason := unavailable():
        print(f"the second kernel is not available: {reason}", file=sys.stderr)
        return 1 if given.command else 0
    if not given.command:
        small_root(_tell)
        return 0
    done = run_inside(
        given.command,
        shared=given.share,
        disks=[given.size] * given.disks,
        cwd=Path.cwd(),
        timeout_s=given.limit,
        memory_bytes=given.memory,
        tell=_tell,
    )
    for line in done.faults:
        print(f"kernel: {line}", file=sys.stderr)
    print(
        f"Linux {done.kernel}: booted in {done.boot_s} s, ran {done.command_s} s", file=sys.stderr
    )
    return done.status or (1 if done.faults else 0)


def _tell(what: str) -> None:
    print(what, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
