"""Run a tiny plan with the servers and tools of another release; list what its trials lack compared
with Debian 12.

    make releases RELEASE=debian13
    sudo .venv/bin/python -m tests.releases ubuntu2604 --command "make demo"

A bare root of the release is built once, by debootstrap, and kept in the user's cache; a damaged
or outdated one is built again. Everything runs in a private mount namespace, so nothing stays
mounted. Trials run on an overlay of the kept root, which does not change. `--command` runs a
command in a fresh clone of this checkout in a copy of the bare root, as a new user would.
"""

import argparse
import contextlib
import csv
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from dbbench.machine import namespaces
from dbbench.packages import TOOLS
from tests.server_roots import DEBIAN, UBUNTU, keys, mirror
from tests.support import private_mounts

CHECKOUT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = "debian12"
# of this machine, trusted in the roots too
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
TRUSTED: Final = Path("/etc/dbbench-certificates.crt")  # there, where no package writes it
# set: accept the expired lists of a mirror that is kept for tests
STALE: Final = "DBBENCH_TEST_STALE_MIRROR"
KEPT: Final = ("http_proxy", "https_proxy", "no_proxy", STALE)
FIRST: Final = "git make python3"  # what the README asks a new user for
VENV: Final = "/opt/dbbench"
# The root of the namespace, as on a machine of that release: a chroot may not make user namespaces,
# and a program that enters the mount namespace of a trial would see the files of this machine.
INTO: Final = 'cd "$0" && pivot_root . run/host && umount -l /run/host && exec "$@"'
# Facts that a release may lack, by the beginning of their path: not ours to find.
DIFFERENT: Final = (
    "warnings",
    "error",
    "commands",
    "effective_settings",
    "settings",
    "host_state",
    "engine_features",
    "checkpoints.by_cause",  # only causes that occurred in the window
    "types[].p95_ms",  # only of 200 transactions of a type in the window
    "types[].p99_ms",  # of 1,000
    "ceiling.limited",  # only if the load came near the limit of the device
)
GROWN: Final = ("growth.extents", "growth.preallocated_share")  # null where no table grew
# null if others used the disk (W127), as other lanes do
DISTURBED: Final = ("summary.write_amplification",)
# Values for which something must have happened in a window of seconds: not in each trial.
BY_CHANCE: Final = ("r_await_ms", "w_await_ms", "f_await_ms", "disk_await_ms", "disk_request_kb")
PLAN: Final = """
name = "releases"
fs_setups = ["ext4", "xfs", "btrfs"]
blocks = 1
seed = 1
warmup = "1s"
measure = "3s"
repeat_suspect = false
[device]
kind = "loop"
size = "1GiB"
[[engine]]
name = "postgres"
[[engine]]
name = "mariadb"
[[workload]]
name = "pgbench-tpcb"
engines = ["postgres"]
scale = 1
clients = 1
[[workload]]
name = "sysbench-oltp-read-write"
engines = ["mariadb"]
tables = 1
table_size = 1000
clients = 1
"""


STRANGE: Final = ("W013", "W140")  # what a program printed was not understood


class Release(NamedTuple):
    """A release, and how debootstrap makes its root."""

    suite: str
    ubuntu: bool = False


RELEASES: Final = {
    "debian12": Release("bookworm"),
    "debian13": Release("trixie"),
    "sid": Release("sid"),
    "ubuntu2404": Release("noble", ubuntu=True),
    "ubuntu2604": Release("resolute", ubuntu=True),
}


class Broken(Exception):
    """A root could not be built, or a command in it failed."""


def folder() -> Path:
    """Return dbbench/releases in the XDG cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "dbbench" / "releases"


def bare(name: str) -> Path:
    """Return the root of a release with the packages that the README names; build it if it is
    missing or damaged.
    """
    return _kept(folder() / name, FIRST, lambda making: _bare(making, RELEASES[name]))


def equipped(name: str) -> Path:
    """Return the root with the packages and the virtual environment of trials, built from the
    current lists.
    """
    lists = (repr(TOOLS), (CHECKOUT / "requirements.lock").read_text())
    recipe = hashlib.sha256("".join(lists).encode()).hexdigest()
    return _kept(folder() / f"{name}-run", recipe, lambda making: _equipped(making, bare(name)))


def _kept(root: Path, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return `root` as it was made by `recipe`, or make it; another process that makes it is waited
    for.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    making = root.with_suffix(".making")
    mark = root.with_suffix(".made")
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == f"{recipe} {_content(root)}":
            return root
        print(f"{root.name}: building", flush=True)
        for old in (making, root):
            shutil.rmtree(old, ignore_errors=True)
        make(making)
        making.rename(root)
        mark.write_text(f"{recipe} {_content(root)}")
    return root


def _content(root: Path) -> str:
    """Return a digest of names, sizes and times of all files, which detects changes without reading
    the files.
    """
    found = hashlib.sha256()
    for path, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            stat = os.lstat(f"{path}/{name}")
            found.update(
                f"{path}/{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_mode}\n".encode()
            )
    return found.hexdigest()


def _bare(root: Path, release: Release) -> None:
    options = [f"--keyring={keys(UBUNTU)}", "--components=main,universe"] if release.ubuntu else []
    # "": where the script has them from
    source = ["", "gutsy"] if release.ubuntu else [mirror(DEBIAN), "sid"]
    _run(["debootstrap", "--variant=minbase", *options, release.suite, str(root), *source])
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / TRUSTED.relative_to("/"))
    stale = 'Acquire::Check-Valid-Until "false";\n' if os.environ.get(STALE) else ""
    (root / "etc/apt/apt.conf.d/90dbbench").write_text(
        f'DPkg::Options:: "--force-unsafe-io";\n{stale}'
    )
    with entered(root) as inside:
        inside("apt-get", "update", "-q")
        inside("apt-get", "install", "-qy", "--no-install-recommends", *FIRST.split())


def _equipped(making: Path, root: Path) -> None:
    _run(["cp", "-a", str(root), str(making)])
    with entered(making) as inside:
        inside("python3", "/mnt/dbbench/packages.py", "run")
        inside("python3", "-m", "venv", VENV)
        inside(
            f"{VENV}/bin/pip",
            "install",
            "-q",
            "--require-hashes",
            "-r",
            "/mnt/requirements.lock",
        )


class Inside(Protocol):
    """Runs a program in a root; what it prints is kept for the error, or `shown`. Raises Broken
    where it fails.
    """

    def __call__(self, *argv: str, cwd: str = "/", shown: bool = False) -> None: ...


@contextlib.contextmanager
def entered(root: Path, work: Path | None = None) -> Iterator[Inside]:
    """A mount namespace in which programs are run in `root`, with this checkout at /mnt.

    With `work`, an empty directory, what they write goes there: /tmp of the root is its `tmp`.
    """
    with private_mounts.apart():
        if work is not None:
            upper, lower, merged, temporary = (
                work / name for name in ("upper", "overlay", "merged", "tmp")
            )
            for path in (upper, lower, merged, temporary):
                path.mkdir(mode=0o755, parents=True)
            temporary.chmod(0o1777)
            layers = f"lowerdir={root},upperdir={upper},workdir={lower}"
            namespaces.mount("overlay", merged, "overlay", data=layers)
            root = merged
            namespaces.mount(temporary, root / "tmp", flags=namespaces.MS_BIND)
        else:
            # pivot_root(2) takes a mount point only
            namespaces.mount(root, root, flags=namespaces.MS_BIND)
        for tree in ("proc", "sys", "dev"):
            namespaces.mount(f"/{tree}", root / tree, flags=namespaces.MS_BIND | namespaces.MS_REC)
        for place in ("dev/shm", "run"):
            namespaces.mount("tmpfs", root / place, "tmpfs")
        (root / "run/host").mkdir()
        namespaces.mount(CHECKOUT, root / "mnt", flags=namespaces.MS_BIND)

        def inside(*argv: str, cwd: str = "/", shown: bool = False) -> None:
            trusted = [f"PIP_CERT={TRUSTED}"] if (root / TRUSTED.relative_to("/")).exists() else []
            apart = ["unshare", "--mount", "--propagation", "unchanged"]
            _run([*apart, "sh", "-c", INTO, str(root), "env", "-C", cwd, *trusted, *argv], shown)

        yield inside


def _run(argv: list[str], shown: bool = False) -> None:
    env = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DBBENCH_CACHE": "/tmp/cache",
    }
    pipe = None if shown else subprocess.PIPE
    done = subprocess.run(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        printed = (done.stdout or "").splitlines()[-30:]
        raise Broken(
            f"{' '.join(argv)} ended with status {done.returncode}:\n  " + "\n  ".join(printed)
        )


class Found(NamedTuple):
    """What trials have: columns with a value by engine, facts that are not null by setup and
    engine.
    """

    columns: set[tuple[str, str]]
    facts: set[tuple[str, str]]
    problems: list[str]


def trials(name: str, work: Path) -> Found:
    """Run PLAN in a release's root, and read its results."""
    with entered(equipped(name), work) as inside:
        (work / "tmp/plan.toml").write_text(PLAN)
        inside(
            "env",
            "PYTHONPATH=/mnt",
            f"{VENV}/bin/python",
            "-m",
            "dbbench",
            "run",
            "/tmp/plan.toml",
            "--name",
            "r",
            cwd="/tmp",
        )
    return read(work / "tmp/results/r")


def read(run: Path) -> Found:
    """Read the trials of a run. Problems are what a trial says of programs that it did not
    understand.
    """
    found = Found(set(), set(), [])
    of_run = json.loads((run / "run.json").read_text())
    found.facts.update(
        ("the run", fact) for key in ("host", "versions") for fact in _facts(of_run[key], key)
    )
    for path in sorted(run.glob("trials/*/trial.json")):
        trial = json.loads(path.read_text())
        if trial["error"]:
            found.problems.append(
                f"{trial['id']} failed: {trial['error']['id']} {trial['error']['text']}"
            )
            continue
        with gzip.open(path.with_name("series.csv.gz"), "rt") as text:
            rows = list(csv.DictReader(text))
        found.columns.update(
            (trial["engine"], name) for name in rows[0] if any(row[name] for row in rows)
        )
        found.facts.update(
            (f"{trial['fs_setup']}.{trial['engine']}", fact) for fact in _of_trial(trial)
        )
        found.problems.extend(
            f"{trial['id']}: {w['id']} {w['text']}" for w in trial["warnings"] if w["id"] in STRANGE
        )
    return found


def _of_trial(trial: dict[str, Any]) -> Iterator[str]:
    """The facts of a trial. One in which no table grew has all of GROWN, and one whose
    filesystem others used (W127) no write amplification.
    """
    yield from _facts(trial)
    if any(warning["id"] == "W127" for warning in trial["warnings"]):
        yield "io.write_amplification"
    if trial["growth"]["data_bytes"] == 0:
        yield from GROWN


def _facts(found: Any, path: str = "") -> Iterator[str]:
    """Return the paths of all values of a document that are neither null nor empty."""
    if path in DIFFERENT or path == "time":  # of a disturbed trial the time is not explained
        return
    if isinstance(found, dict):
        for name, value in found.items():
            yield from _facts(value, f"{path}.{name}" if path else name)
    elif isinstance(found, list):
        for value in found:
            yield from _facts(value, f"{path}[]")
    elif found is not None and found != "":
        yield path


def lost(reference: Found, release: Found) -> list[str]:
    """Return columns that are empty and facts that are null only in a release's trials, and other
    problems of them.
    """
    if trials := {trial for trial, _ in reference.facts} - {trial for trial, _ in release.facts}:
        return [*release.problems, f"no trial of {', '.join(sorted(trials))}"]
    columns = [
        f"column {name} of {engine} is empty"
        for engine, name in sorted(reference.columns - release.columns)
        if name not in BY_CHANCE
    ]
    facts = [
        f"fact {fact} of {trial} is null or missing"
        for trial, fact in sorted(reference.facts - release.facts)
        if fact not in DISTURBED
    ]
    return [*release.problems, *columns, *facts]


def compared(name: str, work: Path) -> list[str]:
    """Run the plan with both releases at once, as nothing is timed, and compare what the trials
    have.
    """
    names = (REFERENCE, name)
    # each in a mount namespace of its own
    with ProcessPoolExecutor(mp_context=get_context("fork")) as both:
        list(both.map(equipped, names))
        reference, found = both.map(trials, names, (work / release for release in names))
    counts = f"{len(found.columns)} columns ({REFERENCE}: {len(reference.columns)})"
    print(f"{name}: {counts}, {len(found.facts)} facts ({len(reference.facts)})", flush=True)
    return [f"{name}: {problem}" for problem in lost(reference, found)]


def as_a_new_user(name: str, command: str, work: Path) -> None:
    """Run a command in a fresh clone, in a copy of the bare root."""
    root = work / "root"
    _run(["cp", "-a", str(bare(name)), str(root)])
    _run(["git", "-c", "safe.directory=*", "clone", "-q", str(CHECKOUT), str(root / "tmp/dbbench")])
    with entered(root) as inside:
        inside("sh", "-c", command, cwd="/tmp/dbbench", shown=True)


def main() -> int:
    """Return 0 if nothing is lost, otherwise 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", choices=RELEASES)
    parser.add_argument("--command", help="run this in a fresh clone in the bare root instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dbbench-releases-", dir="/var/tmp") as work:
        try:
            problems = [] if given.command else compared(given.release, Path(work))
            if given.command:
                as_a_new_user(given.release, given.command, Path(work))
        except (Broken, LookupError) as failure:
            problems = [str(failure)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
