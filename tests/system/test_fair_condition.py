"""Preconditioning of a loop device: discarded, or written until it is steady."""

import os
from pathlib import Path

import pytest

from dbbench.storage.devices import loop, precondition
from dbbench.storage.devices.image import allocation, make_image

pytestmark = pytest.mark.needs("root")


def test_discard_frees_every_block_before_a_trial(tmp_path: Path) -> None:
    """What was written is gone, on the device and below it."""
    image = tmp_path / "image"
    make_image(image, 320 * 2**20, lambda _: None)
    full = allocation(image)[0]
    with loop.attach(image) as device:
        os.pwrite(device.fd, b"x" * 4096, 2**20)
        found = precondition.discard(device)
        assert os.pread(device.fd, 4096, 2**20) == bytes(4096)
    assert (found.how, found.written_bytes) == ("discard", 0)
    after = allocation(image)[0]
    assert full is not None and after is not None and after < full / 100


@pytest.mark.needs("fio")
def test_preconditioning_fills_twice_and_then_writes_at_random(tmp_path: Path) -> None:
    """Five rounds at least; it says whether it came to rest."""
    image = tmp_path / "image"
    make_image(image, 64 * 2**20, lambda _: None)
    with loop.attach(image) as device:
        found = precondition.fill(device, 1)
        assert os.pread(device.fd, 4096, 32 * 2**20) != bytes(4096)
    assert found.written_bytes > 2 * 64 * 2**20
    assert 5 <= len(found.rounds_iops) <= 25
    assert found.steady == precondition.is_steady(found.rounds_iops)
