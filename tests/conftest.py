"""Parts of all tests: the mark `needs`, the rule that unit tests start no processes, and loop
devices.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.machine.mounts import mounts_of
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import Device
from dbbench.storage.layers import volume
from tests.server_roots import RECIPES, server_bin

UNIT: Final = Path(__file__).parent / "unit"
PATH: Final = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
STARTS: Final = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "os.exec",
}
# servers that this release does not ship; they are unpacked in a root
BUILT: Final = "engine:mysql$|engine:.*-"
SMALL: Final = 512 * 2**20  # bytes: mkfs.xfs refuses less than 300 MiB
# then a test hangs, whatever it waits for; long ones may build a kernel or packages before
HANGS_S: Final = 1800.0
LONG_HANGS_S: Final = 7200.0

_forbidden = False


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and watch for processes."""
    config.addinivalue_line(
        "markers",
        'needs(*names): "root", programs, "fs:xfs", "kernel:raid0", "engine:mysql-8.4", '
        '"python:pandas", "freezer:2"',
    )
    config.addinivalue_line("markers", "starts_processes: a unit test that may start a process")
    sys.addaudithook(_watch)


def _watch(event: str, args: tuple[object, ...]) -> None:
    if _forbidden and event in STARTS:
        pytest.fail(
            f"a unit test starts a process ({event}{args[:2]}); mark it starts_processes or move it"
        )


@pytest.fixture(autouse=True)
def no_process_in_unit_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail every test below tests/unit that starts a process, unless it is marked."""
    global _forbidden
    marked = request.node.get_closest_marker("starts_processes") is not None
    _forbidden = UNIT in request.node.path.parents and not marked
    yield
    _forbidden = False


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that need a server in BUILT as long."""
    if any(re.match(BUILT, str(name)) for mark in item.iter_markers("needs") for name in mark.args):
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Let a test fail, with its fixtures, that never ends; its cleanup is interrupted again every
    minute.
    """
    if item.get_closest_marker("soak") or threading.current_thread() is not threading.main_thread():
        return (yield)
    limit_s = LONG_HANGS_S if item.get_closest_marker("long") else HANGS_S

    def hangs(*_: object) -> None:
        pytest.fail(f"the test has not ended after {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 60.0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the names of its needs that this machine lacks."""
    lacking = [
        lack for mark in item.iter_markers("needs") for name in mark.args if (lack := _lacks(name))
    ]
    if lacking:
        pytest.skip("needs " + ", ".join(lacking))


def _lacks(name: str) -> str | None:
    """Return what this machine lacks for `name`; None if it has it."""
    if name == "root":
        return None if os.geteuid() == 0 else "root"
    kind, _, what = name.partition(":")
    if kind == "fs":
        return None if _kernel_has(what) else f"a kernel with {what}"
    if kind == "kernel":
        return volume.kernel_lacks(what)
    if kind == "python":
        return None if importlib.util.find_spec(what) else f"the Python package {what}"
    if kind == "freezer":
        return (
            None
            if _freezer(what)
            else f"a mounted hierarchy of control groups, version {what}, with a freezer"
        )
    if kind == "engine":
        return None if engine_bin(what) else f"{what} (install it, or set {_named_by(what)})"
    return None if shutil.which(name, path=PATH) else f"the program {name}"


def _freezer(version: str) -> bool:
    """Whether this version of control groups has a freezer. Version 2 has it in every group,
    version 1 as a separate hierarchy.
    """
    return any(
        mount.fstype == "cgroup2"
        if version == "2"
        else mount.fstype == "cgroup" and "freezer" in mount.options
        for mount in mounts_of(Path("/proc/self"))
    )


def _kernel_has(filesystem: str) -> bool:
    if filesystem in Path("/proc/filesystems").read_text().split():
        return True
    modules = Path("/lib/modules") / os.uname().release / "modules.dep"
    return modules.exists() and f"/{filesystem}.ko" in modules.read_text()


def engine_bin(name: str) -> Path | None:
    """Return `bin` of a plan for an engine or a release of it ("postgres-18"); None if there is
    none.

    The variable DBBENCH_TEST_NAME_BIN takes precedence, then installed packages, then a root
    with the server of another release (`server_roots`).
    """
    given = os.environ.get(_named_by(name))
    if given:
        return Path(given)
    if name in RECIPES:
        return server_bin(name)
    if name == "postgres":
        found = [
            *sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")),
            *Path("/usr/bin").glob("postgres"),
        ]
        return found[-1].parent if found else None
    hit = shutil.which({"mariadb": "mariadbd", "mysql": "mysqld"}[name], path=PATH)
    if hit is None or (name == "mysql" and "mariadb" in Path(hit).resolve().name):
        return server_bin("mysql-9.7") if name == "mysql" else None
    return Path(hit).parent


def _named_by(name: str) -> str:
    """Return the variable for the `bin` of an engine: DBBENCH_TEST_POSTGRES_18_BIN."""
    return f"DBBENCH_TEST_{re.sub('[-.]', '_', name).upper()}_BIN"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List every skipped test by name, once per reason, because what was not tested is part of the
    result.
    """
    named: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        named.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    if named:
        terminalreporter.section("skipped tests and why")
    for reason, names in named.items():
        terminalreporter.line(f"{len(names)} skipped: {reason}")
        for name in names:
            terminalreporter.line(f"    {name}")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Run the test in its temporary directory; return that directory."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def environ() -> Iterator[MutableMapping[str, str]]:
    """Return the environment; it is as before after the test."""
    before = dict(os.environ)
    yield os.environ
    os.environ.clear()
    os.environ.update(before)
    time.tzset()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a sparse file that is large enough for every mkfs."""
    path = tmp_path / "image"
    path.touch(0o600)
    os.truncate(path, SMALL)
    return path


@pytest.fixture
def loop_device(image: Path) -> Iterator[Device]:
    """Yield an attached, locked, empty loop device of 512 MiB; it is detached at the end of the
    test.
    """
    with loop.attach(image) as device:
        yield device
