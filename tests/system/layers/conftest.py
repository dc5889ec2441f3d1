"""Empty devices; no test leaves a layer behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbbench import process
from dbbench.results.journal import Journal
from dbbench.storage.devices import loop
from dbbench.storage.devices.port import joint
from tests.support.layers import SIZE, Disks
from tests.support.leftovers import layers_of


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    """A maker of so many empty loop devices as one."""

    def images(count: int) -> list[Path]:
        found = [tmp_path / f"image{number}" for number in range(count)]
        for path in found:
            path.touch(0o600)
            os.truncate(path, SIZE)
        return found

    return lambda count: joint([loop.attach(image) for image in images(count)])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal."""
    return Journal(tmp_path / "journal.jsonl")


@pytest.fixture(autouse=True)
def no_layer_left(tmp_path: Path) -> Iterator[None]:
    """The test leaves no array, volume, or name of one behind."""
    yield
    # udev removes its names a little later
    assert process.wait_while(lambda: layers_of(tmp_path), 60) == []
