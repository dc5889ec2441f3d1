"""Faults of simulated disks: their text, which requests they concern, and what the disk then does."""

import errno
from pathlib import Path

import pytest

from dbbench.labs.faults import DiskFault, FaultyDisks, Orders, describe, parse

TEXTS = (
    "fail write 3",
    "lose write 1 with dbbench-row",
    "fail read of 4096-8191",
    "fail flush 3-",
    "hold any for 0.5 s",
    "fail write 2 of 0-511 for 5 s; lose flush",
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_faults_makes_the_same_faults(text: str) -> None:
    """A result names the text, and the command line accepts it."""
    assert describe(parse(text)) == text


@pytest.mark.parametrize("text", ["fail", "break write", "fail write 0", "fail write;fail read"])
def test_another_text_is_refused_by_name(text: str) -> None:
    """With an example of what is accepted."""
    with pytest.raises(ValueError, match='is not a fault, such as "fail flush 3"'):
        parse(text)


@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        (DiskFault("fail", "flush"), [1, 2, 3, 4]),
        (DiskFault("fail", "flush", 3), [3]),
        (DiskFault("fail", "flush", 3, True), [3, 4]),
        (DiskFault("fail", "flush", seconds=0.0), []),
    ],
)
def test_a_fault_concerns_requests_by_their_number(fault: DiskFault, numbers: list[int]) -> None:
    """Counted from the order; without a number all, until its time is over."""
    assert [number for number in range(1, 5) if fault.strikes(number, 0.0)] == numbers


@pytest.mark.parametrize(
    ("text", "request_", "offset", "data", "expected"),
    [
        ("fail write", "read", 0, b"x", False),
        ("fail any", "read", 0, b"x", True),
        ("fail write with row", "write", 0, b"a row", True),
        ("fail write with row", "write", 0, b"a line", False),
        ("fail read of 4096-8191", "read", 4095, b"x", False),
        ("fail read of 4096-8191", "read", 4095, b"xx", True),
        ("fail read of 4096-8191", "read", 8191, b"x", True),
        ("fail read of 4096-8191", "read", 8192, b"x", False),
    ],
)
def test_a_fault_concerns_requests_by_kind_content_and_place(
    text: str,
    request_: str,
    offset: int,
    data: bytes,
    expected: bool,
) -> None:
    """A place is concerned if one of its bytes is."""
    (fault,) = parse(text)
    assert fault.matches(request_, offset, data) is expected


class Disk:
    """The disk's requests without FUSE, and its orders."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "image"
        self.image.write_bytes(bytes(8))
        self.orders = Orders(folder / "orders")
        self.requests = FaultyDisks([self.image], self.orders.path)

    def write(self, data: bytes) -> int:
        """Write to the beginning."""
        return self.requests.write("/0", data, 0, None)


def test_a_failed_write_is_not_carried_out(tmp_path: Path) -> None:
    """Only the second one fails, with EIO, and is noted."""
    disk = Disk(tmp_path)
    disk.orders.give(*parse("fail write 2"))
    disk.write(b"one")
    with pytest.raises(OSError) as caught:
        disk.write(b"two")
    assert caught.value.errno == errno.EIO
    assert disk.image.read_bytes() == b"one" + bytes(5)
    assert disk.orders.met() == ["fail write 2: write of 3 bytes at 0"]


def test_a_lost_write_is_acknowledged_and_not_carried_out(tmp_path: Path) -> None:
    """After other orders the disk works again."""
    disk = Disk(tmp_path)
    disk.orders.give(*parse("lose write"))
    assert disk.write(b"lost") == 4
    assert disk.image.read_bytes() == bytes(8)
    disk.orders.give()
    disk.write(b"kept")
    assert disk.image.read_bytes() == b"kept" + bytes(4)


def test_new_orders_count_anew(tmp_path: Path) -> None:
    """The same text given again concerns the next request again."""
    disk = Disk(tmp_path)
    for _ in range(2):
        disk.orders.give(*parse("fail flush 1"))
        with pytest.raises(OSError, match="Input/output error"):
            disk.requests.fsync("/0", 0, None)
        assert disk.requests.fsync("/0", 0, None) == 0


def test_a_held_request_is_carried_out_afterwards(tmp_path: Path) -> None:
    """When the fault's time is over."""
    disk = Disk(tmp_path)
    disk.orders.give(*parse("hold write for 0.05 s"))
    disk.write(b"late")
    assert disk.image.read_bytes() == b"late" + bytes(4)
