"""The command as installed: Ctrl-C at any moment of its start."""

import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

LAUNCHER: Final = Path(__file__).parents[2] / "packaging/launcher.sh"
MOMENTS: Final = 16


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The launcher beside the tests' python3, as in a virtual environment."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return Path(shutil.copy(LAUNCHER, tmp_path / "dbbench"))


def test_it_starts_the_program(command: Path) -> None:
    """With its arguments, also through a link."""
    link = command.with_name("link")
    link.symlink_to(command)
    done = subprocess.run([link, "explain", "E104"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("E104: ")


def test_ctrl_c_while_it_starts_prints_no_traceback(command: Path) -> None:
    """The process ends, by the signal or with 130, or it had ended before."""
    rng = random.Random(int(os.environ.get("DBBENCH_SEED", "53")))
    for _ in range(MOMENTS):
        child = subprocess.Popen(
            [command, "fs"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=restore,
        )
        time.sleep(delay_s := rng.uniform(0, 0.5))
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=20)
        assert "Traceback" not in said, f"after {delay_s} s: {said}"
        assert child.returncode in (0, 130, -signal.SIGINT), f"after {delay_s} s"


def test_ctrl_c_within_a_callback_is_not_lost() -> None:
    """Python drops the exception there; the command ends all the same, without a traceback."""
    code = """
import signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup may have it ignored

from dbbench import __main__, cli

class Thing: ...

def command(arguments):
    thing = Thing()
    callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    time.sleep(20)
    return 0

cli.run = command
sys.exit(__main__.main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def restore() -> None:
    """End by the signal, which a background job of a script ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_children_are_not_protected_from_ctrl_c(command: Path) -> None:
    """The mask of the process is as before when the command runs."""
    code = "import signal; from dbbench.__main__ import main; main(); print(signal.pthread_sigmask(0, []))"
    argv = ["env", "--block-signal=INT", sys.executable, "-c", code, "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
