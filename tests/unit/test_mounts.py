"""Mounts as the kernel lists them, and which of them belong to other users."""

from pathlib import Path

from dbbench.machine import mounts, namespaces

TABLE = mounts.parsed_mounts(
    (Path(__file__).parent.parent / "fixtures/devices/mountinfo.txt").read_text()
)


def foreign(*keep: str) -> list[str]:
    """The mount points that go when these paths are kept."""
    return [str(entry.point) for entry in namespaces.foreign(TABLE, [Path(path) for path in keep])]


def test_a_line_is_read_whole() -> None:
    """Escapes are undone, and options of the mount and of the superblock stand once each; a shared
    or slave mount has fields before the dash that others have not.
    """
    ext4 = next(entry for entry in TABLE if entry.point == Path("/srv/with space"))
    assert (ext4.device, ext4.fstype, ext4.source, ext4.options) == (
        "7:3",
        "ext4",
        "/dev/loop3",
        ("ro", "relatime"),
    )
    assert ext4.parent == next(entry.id for entry in TABLE if entry.point == Path("/srv"))
    # proc(5)
    line = "36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue"
    (ext3,) = mounts.parsed_mounts(line)
    assert (ext3.fstype, ext3.options) == ("ext3", ("rw", "noatime", "errors=continue"))


def test_a_path_lies_on_the_deepest_mount_and_the_latest_of_two() -> None:
    """/dev/pts is mounted twice here: the later one hides the earlier."""
    assert mounts.mount_holding(Path("/srv/btr/deep/x"), TABLE) == next(
        e for e in TABLE if e.device == "7:4"
    )
    assert mounts.mount_holding(Path("/srv/btrx"), TABLE) == next(
        e for e in TABLE if e.point == Path("/srv")
    )
    pts = mounts.mount_holding(Path("/dev/pts/0"), TABLE)
    assert pts is not None and pts.device == "0:26"


def test_other_filesystems_are_foreign_and_the_kernels_own_are_not() -> None:
    """Disks, btrfs without a device number and overlays go; /, tmpfs, /proc, /sys and /dev stay.
    The btrfs above a kept folder is busy through us in any case, so its second mount stays too.
    The deepest are detached first: else a lazy umount of the upper one would take along what was
    to be looked at.
    """
    order = foreign("/", "/usr")
    assert set(order) == {
        "/srv/merged",
        "/srv/btr",
        "/srv/bind",
        "/srv/with space",
        "/srv/btr/deep",
    }
    assert order.index("/srv/btr/deep") < order.index("/srv/btr")
    assert set(foreign("/", "/srv/btr/deep/results")) == {"/srv/merged", "/srv/with space"}
