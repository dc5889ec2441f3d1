"""Helper threads of a trial: their exceptions are raised in the thread that waits for them."""

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dbbench import process
from dbbench.engines.port import Server
from dbbench.errors import CommandFailed, HelperDied
from dbbench.labs.powercut.witness import Acknowledged, banking
from dbbench.machine import threads
from dbbench.machine.host import proc
from dbbench.model import SnapshotSpec, Status
from dbbench.operations import StoredDatabase, copies
from dbbench.remote.ssh import Session
from dbbench.run.stages import snapshots
from dbbench.samplers import engine_counters, machine
from dbbench.samplers.sampler import Sampled
from tests.support.road import Road

from .test_samplers_counters import FakeServer


def fail(error: BaseException) -> Callable[..., Any]:
    """A function that raises this."""

    def raising(*_args: Any, **_named: Any) -> Any:
        raise error

    return raising


def test_what_a_thread_dies_of_is_raised_at_the_end_of_its_block() -> None:
    """An error of dbbench as it is, any other with the thread's name and its cause."""
    planted = ValueError("planted")
    with pytest.raises(HelperDied, match='the thread "w" ended: ValueError: planted') as caught:  # noqa: SIM117
        with threads.beside("w", fail(planted)):
            pass
    assert caught.value.__cause__ is planted
    with pytest.raises(CommandFailed), threads.beside("w", fail(CommandFailed("planted"))):
        pass
    with pytest.raises(InterruptedError), threads.beside("w", fail(planted)):
        # an interrupted trial is not one that failed because its threads break off
        raise InterruptedError


def test_the_end_waits_for_the_work_but_not_for_ever() -> None:
    """The event is set, and a limit holds where there is one."""
    release = Event()
    seen = list[bool]()

    def work(ended: Event) -> None:
        ended.wait(20)
        seen.append(True)

    with threads.beside("w", work):
        pass
    assert seen == [True]
    with threads.beside("w", lambda _ended: release.wait(20), limit_s=0.05) as helper:
        pass
    assert helper.alive
    release.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_nobody_waited_for_is_raised_at_the_end_of_all() -> None:
    """Unless it was read: then the reader says it in other words. Not only threads of dbbench help
    a trial: rich draws the progress in one of its own.
    """
    with pytest.raises(HelperDied, match="planted"), threads.check_all():
        helper = threads.Helper("w", fail(ValueError("planted")))
        helper.start()
        helper.join()
    with threads.check_all():
        helper = threads.Helper("w", fail(ValueError("planted")))
        helper.start()
        helper.join()
        assert isinstance(helper.error(), ValueError)
    ended = 'the thread "library" ended: ValueError: planted'
    with pytest.raises(HelperDied, match=ended) as caught, threads.check_all():
        thread = Thread(target=fail(ValueError("planted")), name="library")
        thread.start()
        thread.join()
    assert isinstance(caught.value.__cause__, ValueError)


def test_programs_of_a_thread_are_among_the_callers() -> None:
    """It runs in a copy of the caller's context."""
    with (
        process.recording() as commands,
        threads.beside("w", lambda _ended: process._resolve(["/bin/a"], True)),
    ):
        pass
    assert commands == [["/bin/a"]]


class Dying(FakeServer):
    """A server whose class has a fault: not even the sampler's own handler copes with it."""

    def counters(self) -> dict[str, float]:
        raise SystemExit("planted")


@contextlib.contextmanager
def sampling_counters(folder: Path) -> Any:
    """The sampler of counters, of a server that raises what no driver raises."""
    with engine_counters.beside(Sampled(None, cast(Server, Dying())), folder):
        yield time.sleep(0.1)


@contextlib.contextmanager
def sampling_machine(folder: Path) -> Any:
    """The sampler of the machine, which cannot read /proc."""
    with machine.beside(Sampled(None, None), folder):
        yield time.sleep(0.1)


@contextlib.contextmanager
def taking_snapshots(_folder: Path) -> Any:
    """Take snapshots during a load, by a function with a fault."""
    with snapshots.taking(
        SnapshotSpec(0.01, 2),
        cast(StoredDatabase, object()),
        copies.PLAIN,
        time.time,
    ):
        yield time.sleep(0.1)


@pytest.mark.parametrize("block", [sampling_counters, sampling_machine, taking_snapshots])
def test_every_helper_of_a_run_that_dies_is_an_error(
    block: Callable[[Path], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of them ends without a word. (A fault of the progress does not end the run.)"""
    monkeypatch.setattr(proc, "_list_names", fail(PermissionError("planted")))
    with pytest.raises(HelperDied), block(tmp_path):
        pass


def test_output_of_the_other_host_that_cannot_be_kept_is_not_called_a_lost_connection(
    tmp_path: Path,
) -> None:
    """The thread that reads it has died here; the network is not to blame."""
    pipe = io.BytesIO(b'{"output": "out", "text": "progress\\n"}\n')
    ssh: Any = SimpleNamespace(popen=SimpleNamespace(stdout=pipe, stdin=io.BytesIO()))
    session = Session("db2", ssh, tmp_path / "log")
    session.prints = {"out": tmp_path / "none" / "out"}
    session._helpers[0].start()
    session._done.wait(10)
    with pytest.raises(HelperDied, match=r"client listen.*No such file"):
        session.ask("find")


def test_a_session_of_the_witness_that_ends_before_the_kill_is_an_error() -> None:
    """Fewer sessions than were asked for are another load."""
    server: Any = type(
        "Server",
        (),
        {
            "engine": "mariadb",
            "pid": 7,
            "connect": fail(ValueError("planted")),
            "alive": lambda _self: False,
        },
    )()
    with banking(server, 0, Acknowledged(), False) as must_work:
        time.sleep(0.1)
        with pytest.raises(Exception, match="witness-0 ended: ValueError: planted"):
            must_work()


def test_a_thread_that_dies_fails_the_trial(road: Road) -> None:
    """The error has an ID, and its traceback is in raw/, even if no thread waited for it."""
    helper = threads.Helper("of the trial", fail(ValueError("planted")))
    road.calls.at["check"] = helper.start
    trial = road.trial()
    assert trial.status is Status.FAILED and trial.error is not None
    assert trial.error.id == "E350"
    traceback = road.folder / "results/r/trials" / trial.id / "raw/traceback.txt"
    assert "ValueError: planted" in traceback.read_text()
