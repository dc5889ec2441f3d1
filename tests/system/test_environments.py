"""Commands in odd environments: standard output, current directory, names, limits, a second
command.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbbench.cli import COMMANDS, run
from tests.support.plans import plan
from tests.system.conftest import HANGS_S

LONG = "n" * 300
FILES = {"name": "small-files", "files": 100}
PLAN = plan("ext4", "files", FILES, measure="1s", device={"size": "320MiB"})
PRINTING = [
    ["--help"],
    ["--version"],
    ["show"],
    ["fs"],
    ["workload"],
    ["study"],
    ["explain", "E104"],
    ["clean"],
    ["completion", "bash"],
    ["nightly", "status"],
    ["doctor"],
    ["plan", "plan.toml"],
]
# Every command that takes a path or a name of the user, with one that no filesystem can have.
NAMING = [
    ["init", "-o", LONG],
    ["doctor", "--plan", LONG],
    ["plan", LONG],
    ["run", LONG],
    ["show", "--results", LONG],
    ["run", "plan.toml", "--name", LONG],
    ["run", "plan.toml", "--results", LONG],
    ["size", LONG, "--rate", "100"],
    ["compare", LONG],
    ["report", LONG],
    ["nightly", "status", LONG],
    ["fleet", "stop", LONG],
    ["fleet", "scheduler", "--certs", LONG],
    ["import", LONG],
    ["fs", "--path", LONG],
    ["workload", "from-statements", LONG],
    ["study", "run", "bonnie-2011", "--bin", LONG],
    ["powercut", "plan.toml", "--name", LONG],
    ["clean", "--results", LONG],
    ["explain", LONG],
    ["completion", LONG],
    ["probe", LONG],
]
RELATIVE = [
    ["doctor"],
    ["plan", "{}/plan.toml"],
    ["run", "{}/plan.toml"],
    ["import", "x"],
    ["init"],
    ["nightly", "run", "{}/plan.toml"],
    ["powercut", "{}/plan.toml"],
    ["study", "run", "bonnie-2011"],
]


def failure(done: subprocess.CompletedProcess[str], words: list[str]) -> str:
    """Return the ID of the error that a command ended with; "" without one."""
    assert done.returncode >= 0, words
    return error_of(done.stderr, words)


def error_of(printed: str, words: list[str]) -> str:
    """Return the ID of the error that a command printed; "" without one. It is never a fault of
    dbbench.
    """
    assert "error E999" not in printed and "Traceback" not in printed, (words, printed)
    return next(
        (line.split()[1].strip(":") for line in printed.splitlines() if line.startswith("error E")),
        "",
    )


@pytest.fixture
def started(dbbench: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs dbbench after a command of the shell, in a directory with a plan."""
    dbbench.plan(PLAN)

    def start(words: list[str], shell: str, **more: Any) -> subprocess.CompletedProcess[str]:
        argv = ["bash", "-c", shell, "bash", sys.executable, "-m", "dbbench", *words]
        return subprocess.run(
            argv,
            check=False,
            text=True,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=dbbench.env,
            **{"cwd": dbbench.folder, "stdout": subprocess.DEVNULL, **more},
            timeout=600,
        )

    return start


def test_a_full_standard_output_is_an_error(started: Any) -> None:
    """E305 for each command that prints, also for help."""
    for words in PRINTING:
        done = started(words, 'exec "$@" >/dev/full')
        assert (failure(done, words), done.returncode) == ("E305", 1), words
        assert "standard output" in done.stderr


def test_a_closed_standard_output_is_refused(started: Any) -> None:
    """E804 before the command is looked at: otherwise a file of the results would be standard
    output.
    """
    for words in PRINTING[::5]:
        done = started(words, 'exec "$@" >&-')
        assert (failure(done, words), done.returncode) == ("E804", 2), words
        assert "Nothing was changed." in done.stderr


def test_other_streams_do_not_matter(started: Any) -> None:
    """A closed standard input, and a closed or full standard error, do not change the result."""
    for shell in ('exec "$@" <&-', 'exec "$@" 2>&-', 'exec "$@" 2>/dev/full'):
        done = started(["fs", "ext4", "--json"], shell, stdout=subprocess.PIPE)
        assert (done.returncode, json.loads(done.stdout)["name"]) == (0, "ext4"), shell
        assert started(["show", "r"], shell).returncode == 2


def test_names_that_are_too_long_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No command ends with a fault of dbbench; at least once for each command that takes a path or
    name.
    """
    (here / "plan.toml").write_text(PLAN)
    for words in NAMING:
        status = run(words)
        printed = capsys.readouterr().err
        assert status == 2 and "n" * 90 in printed, (words, printed)
        error_of(printed, words)
    assert {words[0] for words in NAMING} == set(COMMANDS)


def test_a_deleted_current_directory_is_named(
    started: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """E003, or E804 for a file that cannot be written there; a command that needs no directory
    starts and works.
    """
    gone = tmp_path / "gone"
    for words in RELATIVE:
        gone.mkdir()
        with contextlib.chdir(gone):
            gone.rmdir()
            run([word.format(tmp_path) for word in words])
        printed = capsys.readouterr().err
        assert error_of(printed, words) in ("E003", "E804"), (words, printed)
    gone.mkdir()
    assert failure(started(["show"], 'rmdir "$PWD" && exec "$@"', cwd=gone), ["show"]) == ""


@pytest.mark.parametrize(
    ("limit", "word"), [("ulimit -v 200000", "address space"), ("ulimit -s 128", "stack")]
)
def test_too_little_memory_for_a_process_is_named(
    limit: str,
    word: str,
    started: Any,
) -> None:
    """E213 with the limit, and not the end of a library."""
    done = started(["show"], f'{limit}; exec "$@"')
    assert (failure(done, []), done.returncode) == (
        "E213",
        2,
    ) and f"the {word} is limited to" in done.stderr


# The shell of an environment in which everything works as always; "$@" is the command.
FOLDERS = """
mkdir dev && mount -t tmpfs none dev
cp -a /dev/null /dev/zero /dev/urandom /dev/kmsg /dev/loop-control dev
for number in $(seq 0 99); do mknod dev/loop$number b 7 $number; done
mount --move dev /dev
mount --bind "$PWD" "$PWD"
mount --rbind /tmp /tmp
mount -o remount,bind,ro /tmp
cd "$PWD" && exec "$@"
"""
ODD = {
    "variables": """unset HOME PATH
        export LANG=tr_TR LC_ALL=xx_YY TZ=Nowhere/Bad TMPDIR=/nonexistent
        umask 077
        ulimit -n 256
        exec "$@" """,
    "folders": f"exec unshare --mount bash -c '{FOLDERS}' bash \"$@\"",
}


# All commands in one process, because each start takes longer than what most of them do.
IN_TURN = """
import sys
from dbbench.cli import run
for words in sys.argv[1:]:
    if status := run(words.split()):
        sys.exit(f"{words} ended with {status}")
"""
COMMANDS_OF_A_RUN = (
    "plan plan.toml",
    "run plan.toml --name r --quick --progress none",
    "compare r",
    "show r",
    "clean",
)


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf", "unshare")
@pytest.mark.parametrize("name", ODD)
def test_the_environment_does_not_matter(name: str, dbbench: Any) -> None:
    """Neither variables, a locale, the mask of new files and few descriptors, nor a read-only /tmp
    and a /dev without shm.
    """
    dbbench.plan(PLAN)
    argv = ["bash", "-c", ODD[name], "bash", sys.executable, "-c", IN_TURN, *COMMANDS_OF_A_RUN]
    done = subprocess.run(
        argv,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dbbench.env,
        cwd=dbbench.folder,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")
def test_a_run_works_with_the_least_limits(started: Any) -> None:
    """With the limits that E213 names."""
    words = ["run", "plan.toml", "--name", "r", "--progress", "none"]
    done = started(words, 'ulimit -v 524288 -s 256; exec "$@"')
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("root", "mkfs.ext4", "fs:ext4", "sadf")
@pytest.mark.parametrize("words", [["--name", "r"], ["--new"]])
def test_two_commands_with_one_new_name(words: list[str], dbbench: Any) -> None:
    """One of them runs the plan, the others end with E803 and change nothing."""
    dbbench.plan(PLAN)
    children = [dbbench.start("run", "plan.toml", *words, "--progress", "none") for _ in range(3)]
    ended = [(child.communicate(timeout=HANGS_S)[1], child.returncode) for child in children]
    assert [status for _, status in ended].count(0) >= 1
    assert all(status == 0 or (status == 5 and "error E803" in text) for text, status in ended), (
        ended
    )
