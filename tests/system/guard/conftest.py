"""Disks for the guard to look at, on a machine whose processes can all be read."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dbbench.storage.devices import block, guard, loop, used
from tests.support.planted import Disk, detach, new_disk, release_leftovers


@pytest.fixture(autouse=True, scope="session")
def without_leftovers() -> None:
    """A test run that was killed leaves the disks in use that it had planted."""
    if os.geteuid() == 0:
        release_leftovers()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield a user's blank disk."""
    made = new_disk(tmp_path / "one")
    yield made
    detach(made.path)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Disk]:
    """A second one."""
    made = new_disk(tmp_path / "two")
    yield made
    detach(made.path)


@pytest.fixture(autouse=True)
def only_readable_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out processes that a container or sandbox hides even from root.

    To the program each of them is a reason to refuse (test_what_cannot_be_read_counts_as_use);
    the other tests would find nothing else on such a machine.
    """
    look_at_each = used._each

    def look_at_readable(
        proc: Path,
        look: Callable[[str], None],
        what: str,
    ) -> list[str]:
        def look_if_readable(folder: str) -> None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                try:
                    Path(folder, "ns/mnt").readlink()
                except PermissionError:
                    return
            look(folder)

        return look_at_each(proc, look_if_readable, what)

    monkeypatch.setattr(used, "_each", look_at_readable)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use is not waited for."""
    for module, name in (
        (block, "_SETTLE_S"),
        (block, "_FREE_S"),
        (loop, "_SETTLE_S"),
        (guard, "_MOMENT_S"),
    ):
        monkeypatch.setattr(module, name, 0.2)
