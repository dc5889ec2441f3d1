"""What the kernel hides is "not observed", and never 0."""

import subprocess
import sys

import pytest

from dbbench import process
from dbbench.commands.doctor import _observe_waits
from dbbench.samplers.thread_waits import NO_PERMISSION

# Samples a program that waits, as root samples a server, and prints what the trial and doctor say.
SAMPLE = """
import os, sys, threading
from pathlib import Path
from dbbench.commands.doctor import _observe_waits
from dbbench.samplers.thread_waits import ThreadWaits

def look():
    sampler = ThreadWaits(int(sys.argv[1]), Path(os.devnull), frozenset)
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()
    sampler.work(ended)
    return f"{sampler.note}|{len(sampler.seconds)}|{_observe_waits()}"

if len(sys.argv) > 2:
    look()  # imports what the account may not read
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
print(look())
"""
WITHOUT_TRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--")
HIDDEN = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t proc -o hidepid=2 proc /proc && exec "$@"',
    "sh",
)
OTHER_ACCOUNT = "65534"

pytestmark = pytest.mark.needs("root", "setpriv", "unshare")


def sampled(*prefix: str, user: str = "") -> list[str]:
    """The note, whether there were samples, and doctor's word, of such a process of dbbench."""
    with process.running(("sleep", "20"), as_user=process.user("daemon")) as sleeper:
        argv = [*prefix, sys.executable, "-c", SAMPLE, str(sleeper.pid), *filter(None, [user])]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return done.stdout.strip().split("|")


def test_root_sees_what_other_accounts_wait_for() -> None:
    """The control."""
    assert sampled() == ["", "1", _observe_waits()]


@pytest.mark.parametrize(
    "prefix",
    [WITHOUT_TRACE, (*HIDDEN, *WITHOUT_TRACE)],
    ids=["root of a container", "hidden processes"],
)
def test_what_may_not_be_traced_is_not_observed(prefix: tuple[str, ...]) -> None:
    """The sampler and doctor agree."""
    assert sampled(*prefix) == [NO_PERMISSION, "0", "not observed"]


def test_another_account_does_not_see_the_servers_of_others() -> None:
    """It sees those that it has started, which doctor tries."""
    assert sampled(user=OTHER_ACCOUNT) == [NO_PERMISSION, "0", _observe_waits()]
