"""The kernel log: records of /dev/kmsg, recorded while faults were planted on loop1."""

from pathlib import Path

import pytest

from dbbench.machine import kernel_log
from tests.support.files import write_file

RECORDED = Path(__file__).parent.parent / "fixtures/filesystems/kmsg.txt"


def lines() -> list[kernel_log.KernelMessage]:
    """The recording."""
    return [kernel_log.parse(record) for record in RECORDED.read_text().splitlines()]


def test_a_record_gives_level_sequence_and_text() -> None:
    """The level is in the low bits of the first number; escaped line ends are line ends again."""
    assert kernel_log.parse(
        "1,495,2249832199,-;EXT4-fs (loop1): shut down requested (2)\n SUBSYSTEM=x"
    ) == kernel_log.KernelMessage(495, 1, "EXT4-fs (loop1): shut down requested (2)")
    assert kernel_log.parse("30,7,1,-;daemon: info").priority == 6
    assert kernel_log.parse("6,512,1,-;a\\x0aloop1: rw=1").text == "a\nloop1: rw=1"


def test_faults_of_every_family_differ_from_messages_of_mounting() -> None:
    """Shut down, aborted journals, I/O errors and going read-only are faults; mounting and
    unmounting are not.
    """
    faults = [
        line.text
        for line in lines()
        if kernel_log.names(line.text, "loop1") and kernel_log.is_fault(line)
    ]
    for part in (
        "EXT4-fs (loop1): shut down requested",
        "Aborting journal on device loop1-8",
        "XFS (loop1): User initiated shutdown",
        "BTRFS error (device loop1): bdev",
        "attempt to access beyond end of device",
        "forced readonly",
    ):
        assert any(part in text for text in faults), part
    harmless = [line.text for line in lines() if not kernel_log.is_fault(line)]
    assert len(faults) + len(harmless) == len(lines()), (
        "no line of the recording names another device"
    )
    for word in (
        "mounted filesystem",
        "Ending clean mount",
        "first mount",
        "unmounting",
        "drop_caches",
    ):
        assert any(word in text for text in harmless), word


def test_a_refused_operation_is_not_a_fault_where_the_filesystem_can_do_without_it() -> None:
    """Lines of Linux 6.18 about a loop device whose image is on a tmpfs; a refused write is a
    fault.
    """
    text = (
        "operation not supported error, dev loop1, sector 819072 op 0x9:(WRITE_ZEROES) flags "
        "0x20000800 phys_seg 0"
    )
    refused = {
        operation: kernel_log.is_fault(
            kernel_log.parse(f"3,1,1,-;{text.replace('WRITE_ZEROES', operation)}")
        )
        for operation in ("WRITE_ZEROES", "DISCARD", "WRITE", "FLUSH")
    }
    assert refused == {"WRITE_ZEROES": False, "DISCARD": False, "WRITE": True, "FLUSH": True}
    assert kernel_log.is_fault(
        kernel_log.parse("3,1,1,-;I/O error, dev loop1, sector 8 op 0x3:(DISCARD)")
    )


@pytest.mark.parametrize(
    ("text", "disk", "said"),
    [
        ("I/O error, dev loop1, sector 8", "loop1", True),
        ("I/O error, dev loop10, sector 8", "loop1", False),
        ("Aborting journal on device loop1-8.", "loop1", True),
        ("Buffer I/O error on dev sda1, logical block 1", "sda", True),
        ("Buffer I/O error on dev sdaa, logical block 1", "sda", False),
        ("nvme0n1p2: error", "nvme0n1", True),
        ("nvme0n12: error", "nvme0n1", False),
        ("x\nloop1: rw=1", "loop1", True),
    ],
)
def test_a_line_belongs_to_the_disk_it_names_and_to_no_other(
    text: str,
    disk: str,
    said: bool,
) -> None:
    """Partitions count as their disk; a longer number or name is another disk."""
    assert kernel_log.names(text, disk) is said


def test_lost_lines_are_noticed(tmp_path: Path) -> None:
    """A gap in the sequence, and a record that is none: what it meant to say is not known. No log
    to read is not the same as a log without lines.
    """
    found = lines()
    assert not kernel_log.has_gap(found)
    assert kernel_log.has_gap(found[:10] + found[11:])
    with kernel_log.Watch("loop1", log := tmp_path / "kmsg") as watch:
        assert watch.lines_about() is watch.lost() is None
    log.touch()
    with kernel_log.Watch("loop1", log) as watch:
        log.write_text("nothing that the kernel writes")
        assert watch.lost() is True


TROUBLE = (
    "Out of memory: Killed process 9 (postgres)",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
    "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "mce: [Hardware Error]: Machine check events logged",
    "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
    "INFO: task jbd2/vda1-8:211 blocked for more than 120 seconds.",
)


def test_trouble_of_the_machine_is_reported_and_a_limit_of_another_group_is_not(
    tmp_path: Path,
) -> None:
    """No memory at all, hung processors, hardware touch every trial; a kill by another group's
    limit none.
    """
    log = write_file(tmp_path / "kmsg", "")
    for number, text in enumerate(
        (*TROUBLE, "Memory cgroup out of memory: Killed process 7 (java)")
    ):
        with kernel_log.Watch("loop1", log) as watch:
            watch._lines = [kernel_log.parse(f"3,{number},5,-;{text}")]
            assert watch.lines_about_machine() == ((text,) if text in TROUBLE else ())
