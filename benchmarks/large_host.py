"""How long `dbbench doctor` and `dbbench plan` take on a large host, beside this one.

    sudo .venv/bin/python benchmarks/large_host.py [ROUNDS]

The host is made for the measurement and removed after it: 200 loop devices, 2,000 bind mounts in
a mount namespace, 30,000 sleeping processes in a PID namespace (which needs about 8 GB of
memory). Prints medians of seconds and of CPU seconds; exit 1 where a command takes more than 2 s.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.errors import EXIT_OK, EXIT_REFUSED, EXIT_USAGE

DISKS: Final = 200
MOUNTS: Final = 2_000
PROCESSES: Final = 30_000

MOST_S: Final = 2

_PLAN: Final = Path(__file__).parents[1] / "docs/plans/demo.toml"
COMMANDS: Final = {"doctor": ["doctor"], "plan": ["plan", str(_PLAN)]}
_PID_MAX: Final = Path("/proc/sys/kernel/pid_max")
_SLEEPERS: Final = 'i=0; while [ $i -lt "$1" ]; do sleep infinity & i=$((i+1)); done; echo; wait'


@dataclass(frozen=True)
class Cost:
    """Medians of a command: wall time, and the CPU time of all its processes."""

    wall_s: float
    cpu_s: float


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(words: list[str], rounds: int) -> Cost:
    """Run a command of dbbench; return its cost. A host may lack something (exit status 2 or 5),
    but an error would be quick. The first round is not counted: it may have to compile the modules,
    which are installed compiled. Raises SystemExit.
    """
    walls = []
    cpus = []
    compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    for _ in range(rounds + 1):
        cpu_before = _cpu_s()
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "dbbench", *words],
            check=False,
            env=compiled,
            stdout=subprocess.DEVNULL,
        )
        if done.returncode not in (EXIT_OK, EXIT_USAGE, EXIT_REFUSED):
            sys.exit(f"dbbench {words[0]} ended with status {done.returncode}")
        walls.append(time.perf_counter() - began)
        cpus.append(_cpu_s() - cpu_before)
    return Cost(statistics.median(walls[1:]), statistics.median(cpus[1:]))


@contextlib.contextmanager
def disks(folder: Path) -> Iterator[None]:
    """Attach sparse files; detach them at the end."""
    devices = []
    try:
        for number in range(DISKS):
            image = folder / f"disk{number}"
            with image.open("wb") as file:
                file.truncate(2**24)
            attach = ["losetup", "--find", "--show", str(image)]
            device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout
            devices.append(device.strip())
        yield
    finally:
        if devices:
            subprocess.run(["losetup", "--detach", *devices], check=True)


@contextlib.contextmanager
def pid_numbers() -> Iterator[None]:
    """Let the kernel give enough numbers to processes; give its limit back at the end."""
    before = _PID_MAX.read_text()
    if int(before) < 2 * PROCESSES:
        _PID_MAX.write_text(str(2 * PROCESSES))
    try:
        yield
    finally:
        _PID_MAX.write_text(before)


def mount_many(folder: Path) -> None:
    """Mount a folder many times; the mounts end with the namespace."""
    for number in range(MOUNTS):
        target = folder / f"mount{number}"
        target.mkdir()
        subprocess.run(["mount", "--bind", str(folder), str(target)], check=True)


def sleep_many() -> None:
    """Start the processes; they end with the namespace."""
    sleepers = subprocess.Popen(
        ["sh", "-c", _SLEEPERS, "sh", str(PROCESSES)],
        stdout=subprocess.PIPE,
    )
    assert sleepers.stdout is not None
    sleepers.stdout.readline()


def report(host: str, rounds: int) -> int:
    """Print the costs on a host; return 1 if one is above the target."""
    missed = 0
    for name, words in COMMANDS.items():
        cost = measure(words, rounds)
        print(f"{host:10} {name:6} {cost.wall_s:5.2f} s, CPU {cost.cpu_s:5.2f} s", flush=True)
        if cost.wall_s > MOST_S:
            missed = 1
    return missed


def main() -> int:
    """Measure here and on the large host; return 1 if the target is missed there."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=5)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    # The second half of this script, in the namespaces.
    if arguments.inside:
        mount_many(arguments.inside)
        sleep_many()
        return report("large host", arguments.rounds)

    report("this host", arguments.rounds)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, pid_numbers(), disks(Path(folder)):
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        again = [sys.executable, __file__, str(arguments.rounds), "--inside", folder]
        return subprocess.run([*apart, *again], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
