"""Some questions are never answered. The other questions are; the program does not wait for an
answer, and asks no such question twice.
"""

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from dbbench.machine import questions

pytestmark = pytest.mark.starts_processes
NAMES = ("a", "silent", "b")
PATIENCE_S = 0.2


def ask(name: str) -> int:
    """Only `silent` does not answer; the answer is the process that asked."""
    if name == "silent":
        time.sleep(600)
    return os.getpid()


@pytest.fixture(autouse=True)
def _reap() -> Iterator[None]:
    """End and await what a test starts: other tests look at the children of this process."""
    before = psutil.Process().children()
    yield
    for child in psutil.Process().children():
        if child not in before:
            child.kill()
            child.wait(10)


@pytest.fixture(params=["here", "helper"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Ask by this process, and by a helper, which ends with the test."""
    monkeypatch.setattr(questions, "_asleep", {})
    monkeypatch.setattr(questions, "_helper", None)
    if request.param == "helper":
        questions.prepare()
    yield request.param
    if questions._helper is not None:
        questions._helper.close()


@pytest.mark.usefixtures("way")
def test_what_does_not_answer_is_left_out() -> None:
    """And its process is not used for the names after it."""
    answers = questions.ask_each(ask, NAMES, PATIENCE_S)
    assert list(answers) == ["a", "b"]
    assert len({os.getpid(), *answers.values()}) == 3


@pytest.mark.usefixtures("way")
def test_it_is_asked_once() -> None:
    """While its process waits, the answer is awaited no second time."""
    questions.ask_each(ask, NAMES, PATIENCE_S)
    began = time.monotonic()
    answers = questions.ask_each(ask, NAMES, 60.0)
    assert list(answers) == ["a", "b"] and time.monotonic() - began < 30


def end_helper(_name: str) -> None:
    """As the kernel does for lack of memory."""
    os.kill(os.getppid(), signal.SIGKILL)


def test_a_helper_that_was_killed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing answer would be taken for a filesystem that does not answer."""
    monkeypatch.setattr(questions, "_helper", None)
    questions.prepare()
    with pytest.raises(OSError, match="was killed"):
        questions.ask_each(end_helper, NAMES, PATIENCE_S)
