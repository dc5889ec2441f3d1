"""Detect users of a block device: one function per detector, each returning its evidence as
sentences. None is sufficient: O_EXCL misses plain opens and the same file in a second loop
device; lsblk does not see other mount namespaces. What cannot be read is reported too, because
it might be a user. The file is long because a device is only free if all detectors say so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dbbench.machine import libc, questions
from dbbench.machine.host.proc import text
from dbbench.machine.mounts import mounts_of, unescape
from dbbench.machine.namespaces import host_proc
from dbbench.storage.devices import loop_driver, sysfs

# The process or the descriptor has ended, or the process is a zombie.
_ENDED: Final = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
_IN_MODIFY: Final = 0x2
_IN_CLOSE_WRITE: Final = 0x8
# struct inotify_event without the name: watch, mask, cookie, length of the name
_EVENT: Final = struct.Struct("=iIII")
_EVENTS_BYTES: Final = 65536
_UDEV: Final = ("(udev-worker)", "systemd-udevd", "udevd")  # names of its processes
_SHOWN: Final = 5  # processes that a message names
_ANSWER_S: Final = 1.0  # for the status of a file
_COMMAND: Final = 120  # longest command line in a message, in characters


Statuses = Mapping[str, loop_driver.LoopStatus]
Users = dict[str, list[str]]  # by name of the device: the evidence of its users, as sentences


@dataclass(frozen=True)
class Target:
    """The device in question, and everything that counts as it."""

    name: str
    numbers: frozenset[int]  # device numbers of the device, its disk, and everything on top of it
    files: frozenset[tuple[int, int]]  # (device, inode) of the file behind a loop device

    def is_at(self, found: os.stat_result | libc.FileStatus) -> bool:
        if stat.S_ISBLK(found.st_mode):
            return found.st_rdev in self.numbers
        return (found.st_dev, found.st_ino) in self.files


class WriteWatch:
    """Notices by inotify(7), if there is one, that a process wrote to one of these disks and closed
    it: through a device node, or into the file of a loop device. The kernel does not close what
    a filesystem or a loop device writes to, so their I/O does not count; nor does an open
    without a write, such as udev's.
    """

    def __init__(self, disks: Sequence[str]) -> None:
        names = dict.fromkeys(name for disk in disks for name in (disk, *sysfs.above(disk)))
        files = [sysfs.attribute(name, "loop/backing_file") for name in names]
        self._paths: dict[int, str] = {}
        self._written: set[int] = set()
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = libc.call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        for path in (*(f"/dev/{name}" for name in names), *filter(None, files)):
            with contextlib.suppress(OSError):  # a container may lack the node
                watch = libc.call(
                    "inotify_add_watch",
                    self._fd,
                    os.fsencode(path),
                    _IN_MODIFY | _IN_CLOSE_WRITE,
                )
                self._paths[watch] = path

    def list_writes(self) -> list[str]:
        """Return the device nodes and files that were written to and closed since the last call."""
        events = b""
        place = 0
        paths = dict[str, None]()
        with contextlib.suppress(OSError):
            while chunk := os.read(self._fd, _EVENTS_BYTES):
                events += chunk
        while place < len(events):
            watch, mask, _cookie, length = _EVENT.unpack_from(events, place)
            place += _EVENT.size + length
            if mask & _IN_MODIFY:
                self._written.add(watch)
            elif mask & _IN_CLOSE_WRITE and watch in self._written:
                self._written.discard(watch)
                paths[self._paths[watch]] = None
        return list(paths)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class Unseen(str):
    """Evidence that a possible user could not be inspected. It does not prove a use."""

    __slots__ = ()


class ByUdev(str):
    """Evidence of a use by udev, which ends by itself."""

    __slots__ = ()


def target(name: str, statuses: Statuses | None = None) -> Target:
    """Return the device of that kernel name with what is on it. `statuses`: of all loop devices, if
    they were asked before. Raises OSError if a loop device cannot be queried.
    """
    if statuses is None:
        statuses = loop_driver.statuses([name])
    status = statuses.get(name)
    if status is not None and (status.failure or not status.answers):
        reason = status.failure or "its filesystem does not answer"
        raise OSError(f"{status.file_name}, the backing file of {name}: {reason}")
    related = (name, sysfs.disk_of(name), *sysfs.above(name))
    numbers = frozenset(number for each in related if (number := sysfs.number_of(each)) is not None)
    return Target(
        name,
        numbers,
        frozenset({status.file}) if status and any(status.file) else frozenset(),
    )


def users(name: str, mine: Set[int] = frozenset()) -> list[str]:
    """Return what mounts the device of that kernel name, has it open, or is built on it."""
    device = target(name)
    proc = host_proc()
    mounts = mounts_of_each([device], proc)[name]
    openers = openers_of_each([device], proc, mine)[name]
    return [*mounts, *openers, *by_layers(device)]


def targets(names: Sequence[str], statuses: Statuses) -> list[Target]:
    """Return these devices. One that cannot be queried is omitted: only root may query a loop device."""
    devices = list[Target]()
    for name in names:
        with contextlib.suppress(OSError):
            devices.append(target(name, statuses))
    return devices


def users_of(devices: Sequence[Target]) -> Users:
    """Return the users of each device, with one look at the mounts and open files of all processes."""
    proc = host_proc()
    try:
        mounts, _ = _find_mounts(devices, proc)
        openers, _ = _openers(devices, proc)
    except OSError:
        return {}
    return {
        device.name: [*mounts[device.name], *openers[device.name], *by_layers(device)]
        for device in devices
    }


def openers_of_each(
    devices: Sequence[Target],
    proc: Path,
    mine: Set[int] = frozenset(),
) -> Users:
    """Return processes with a descriptor of each device, except for the descriptors `mine`, and
    those that could not be examined.
    """
    openers, unreadable = _openers(devices, proc, mine)
    return {name: unreadable + texts for name, texts in openers.items()}


def _openers(
    devices: Sequence[Target],
    proc: Path,
    mine: Set[int] = frozenset(),
) -> tuple[Users, list[str]]:
    """Return the processes with a descriptor of each device, and who could not be examined."""
    # A device is opened by its number, an image by its file.
    by_number: dict[int, list[Target]] = defaultdict(list)
    by_file: dict[tuple[int, int], list[Target]] = defaultdict(list)
    for device in devices:
        for number in device.numbers:
            by_number[number].append(device)
        for file in device.files:
            by_file[file].append(device)
    me = (proc / "self").readlink().name
    openers: dict[str, dict[str, None]] = {device.name: {} for device in devices}

    def look(folder: str) -> None:
        for fd, status in libc.files_in(f"{folder}/fd", _ENDED):
            if stat.S_ISBLK(status.st_mode):
                opened = by_number.get(status.st_rdev, ())
            else:
                opened = by_file.get((status.st_dev, status.st_ino), ())
            if not opened:
                continue
            process = Path(folder)
            if process.name != me or int(fd) not in mine:
                for device in opened:
                    openers[device.name][_use(process, f"opened by {_who(process)}")] = None

    unreadable = _each(proc, look, "the open files")
    return {name: list(texts) for name, texts in openers.items()}, unreadable


def by_files(root: Path) -> list[str]:
    """Return some processes with a file, working directory or root on the filesystem; [] if stat(2)
    fails there.
    """
    users: list[str] = []

    def look(folder: str) -> None:
        process = Path(folder)
        opened = (entry for name in ("fd", "map_files") for entry in (process / name).iterdir())
        for link in (process / "cwd", process / "root", *opened):
            with contextlib.suppress(OSError):
                if len(users) < _SHOWN and libc.known_status(link).st_dev == st_dev:
                    users.append(
                        f"{_who(process)}: {link.parent.name}/{link.name} -> {link.readlink()}"
                    )
                    return

    with contextlib.suppress(OSError):
        st_dev = root.stat().st_dev
        _each(Path("/proc"), look, "the open files")
    return users


def by_writers(device: Target, proc: Path) -> list[str]:
    """Return other processes that have it open for writing, without those that cannot be inspected."""
    me = (proc / "self").readlink().name

    def hit(process: Path, fd: str, status: libc.FileStatus) -> bool:
        return (
            process.name != me and device.is_at(status) and is_for_writing(process / "fdinfo" / fd)
        )

    users, _unreadable = _with_descriptor(proc, hit)
    return [f"opened for writing by {_who(process)}: {_command(process)}" for process in users]


def by_locks(file: os.stat_result, proc: Path) -> list[str]:
    """Return processes that hold a flock(2) on that file or device node, with their commands:
    neither loop devices that lock their image, nor processes that inherited the lock and have
    not used it.
    """

    def hit(process: Path, fd: str, status: libc.FileStatus) -> bool:
        # Each lock of this open file has a line (proc(5)): "lock:  1: FLOCK  ADVISORY  WRITE 4711
        # 00:05:305 0 EOF"
        same = (status.st_dev, status.st_ino) == (file.st_dev, file.st_ino)
        return same and "FLOCK" in (process / "fdinfo" / fd).read_text()

    users, unreadable = _with_descriptor(proc, hit)
    locked = [_use(process, f"locked by {_who(process)}: {_command(process)}") for process in users]
    return locked + unreadable


def _with_descriptor(
    proc: Path, hit: Callable[[Path, str, libc.FileStatus], bool]
) -> tuple[list[Path], list[str]]:
    """Return the processes with a file for which `hit` is true, and who could not be examined."""
    users = []

    def look(folder: str) -> None:
        process = Path(folder)
        for fd, status in libc.files_in(f"{folder}/fd", _ENDED):
            with _ignore_ends():
                if hit(process, fd, status):
                    users.append(process)
                    return

    return users, _each(proc, look, "the open files")


def mounts_of_each(devices: Sequence[Target], proc: Path) -> Users:
    """Return mount points of each device, or of what is on it, in every process's mount namespace,
    and the processes that could not be examined.
    """
    mounts, unreadable = _find_mounts(devices, proc)
    return {name: unreadable + texts for name, texts in mounts.items()}


def _find_mounts(devices: Sequence[Target], proc: Path) -> tuple[Users, list[str]]:
    """Return the mounts of each device, and who could not be examined. Each mount is listed once:
    services have namespaces of their own with copies of the same mounts.
    """
    numbers = {number for device in devices for number in device.numbers}
    own_namespace = str((proc / "self/ns/mnt").readlink())
    seen: set[str] = set()
    # source and device of a mount -> which of `numbers` it has
    number_of: dict[tuple[str, str], int | None] = {}
    # (number of the device, mount) -> the processes in whose namespaces it is
    places: dict[tuple[int, str], list[str]] = defaultdict(list)

    def is_of_a_device(_fstype: str, device: str, source: str) -> bool:
        key = source, device
        if key not in number_of:
            number_of[key] = _mounted_number(device, source, numbers)
        return number_of[key] is not None

    def look(folder: str) -> None:
        namespace = os.readlink(f"{folder}/ns/mnt")  # noqa: PTH115 (of 30,000 processes)
        if namespace in seen:
            return
        process = Path(folder)
        table = mounts_of(process, is_of_a_device)
        seen.add(namespace)
        who = "" if namespace == own_namespace else _who(process)
        for entry in table:
            number = number_of[entry.source, entry.device]
            if number is not None:
                places[number, f"{entry.source} is mounted at {entry.point}"].append(who)

    unreadable = _each(proc, look, "the mounts")
    mounts = Users()
    btrfs = sysfs.mounted_btrfs()
    for device in devices:
        mounts[device.name] = [
            text + _namespaces(whose)
            for (number, text), whose in places.items()
            if number in device.numbers
        ]
        # Mount tables do not have the device numbers of btrfs, and the path may be a descriptor.
        for uuid, members in btrfs.items():
            if members & device.numbers:
                text = f"it is a device of the mounted btrfs with UUID {uuid}"
                mounts[device.name].append(text)
    return mounts, unreadable


def _namespaces(whose: Sequence[str]) -> str:
    """Return the words for the namespaces of a mount; "": it is in this process's own."""
    if "" in whose:
        return ""
    first = f" in the mount namespace of {whose[0]}"
    more = len(whose) - 1
    if not more:
        return first
    return f"{first} and of {more} other{'' if more == 1 else 's'}"


def by_loops(device: Target) -> list[str]:
    """Return loop devices over it, or over the same file."""
    return loops_of_each([device], loop_driver.statuses(sysfs.disks()))[device.name]


def loops_of_each(devices: Sequence[Target], statuses: Statuses) -> Users:
    """Return loop devices over each device, or over the same file."""
    users: Users = {device.name: [] for device in devices}
    for name, status in statuses.items():
        failure = ""
        if status.failure:
            failure = f"the backing file of {name} cannot be determined: {status.failure}"
        for device in devices:
            text = failure or _over(device, name, status)
            if text and name != device.name:
                users[device.name].append(text)
    return users


def _over(device: Target, name: str, status: loop_driver.LoopStatus) -> str:
    """Return the evidence that the loop device is over the device or its file; "" if it is not."""
    if not any(status.file) and not device.files:
        return f"the backing file of {name} cannot be examined ({status.file_name})"
    if status.file in device.files or status.number in device.numbers:
        return f"{name} is attached to the same data ({status.file_name})"
    return ""


def swaps_of_each(devices: Sequence[Target], proc: Path) -> Users:
    """Return swap areas on each device."""
    users: Users = {device.name: [] for device in devices}
    for line in (proc / "swaps").read_text(errors="surrogateescape").strip("\n").split("\n")[1:]:
        area = unescape(line.split()[0])
        file = status_of(area)
        number: int | None = None
        if file is None:
            number = sysfs.number_of(Path(area).name)
            if number is None:
                for texts in users.values():
                    texts.append(f"the swap area {area} cannot be examined")
        for device in devices:
            if number in device.numbers or (file is not None and device.is_at(file)):
                users[device.name].append(f"{area} is swap")
    return users


def by_layers(device: Target) -> list[str]:
    """Return partitions on it, and md or dm devices that are built on it."""
    users = [f"it has the partition {name}" for name in sysfs.partitions(device.name)]
    users += [f"it is held by {holder(name)}" for name in sysfs.holders(device.name)]
    return users


def holder(name: str) -> str:
    """Return the kernel name of a layer, with the name that its owner gave it."""
    volume = sysfs.attribute(name, "dm/name")
    level = sysfs.attribute(name, "md/level")
    if volume:
        return f"{name} (/dev/mapper/{volume})"
    return f"{name} (md {level})" if level else name


def releases(name: str) -> list[str]:
    """Return the commands that release the layers on a device, the upper ones first."""
    commands = map(_release, reversed(sysfs.above(name)))
    return list(dict.fromkeys(filter(None, commands)))


def is_of_dbbench(layer: str) -> bool:
    """Whether a run of dbbench made this layer, by its name."""
    if (sysfs.attribute(layer, "dm/name") or "").startswith("dbbench-"):
        return True
    return any(link.resolve().name == layer for link in Path("/dev/md").glob("*dbbench-*"))


def _release(name: str) -> str:
    """Return the command for one layer; "" for a partition and for an unknown kind."""
    volume = sysfs.attribute(name, "dm/name") or ""
    # what made a volume of device-mapper stands before the first hyphen of its UUID
    kind = (sysfs.attribute(name, "dm/uuid") or "").partition("-")[0]
    if kind == "LVM":
        return f"vgchange -an {_group_of(volume)}"
    if kind == "CRYPT":
        return f"cryptsetup close {volume}"
    if kind == "mpath":
        return f"multipath -f {volume}"
    if volume:
        return f"dmsetup remove {volume}"
    if sysfs.attribute(name, "md/level"):
        return f"mdadm --stop /dev/{name}"
    return ""


def _group_of(volume: str) -> str:
    """Return the volume group in device-mapper's name of a volume: "my--vg-data" is "my-vg"."""
    return volume.replace("--", "\0").partition("-")[0].replace("\0", "-")


@contextlib.contextmanager
def _ignore_ends() -> Iterator[None]:
    """Ignore that the process or its descriptor has ended."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ENDED:
            raise


def is_for_writing(info: Path) -> bool:
    """Whether a descriptor was opened for writing, from its fdinfo: "flags:" is an octal number
    (proc(5)).
    """
    flags = next(
        (line.split()[1] for line in info.read_text().splitlines() if line.startswith("flags:")),
        "0",
    )
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _mounted_number(
    device: str,
    path: str,
    numbers: Set[int],
) -> int | None:
    """Return which of the device numbers a mount with that device and source has, or None."""
    number: int | None = os.makedev(*map(int, device.split(":")))
    if number in numbers:
        return number
    # btrfs shows an anonymous number, but the source is one of its devices
    source = Path(path)
    if source.is_relative_to("/proc"):
        # a descriptor of the process that mounted it: here the same path is another file
        return None
    if source.parent == Path("/dev"):
        number = sysfs.number_of(source.name)
    elif source.is_absolute() and (file := status_of(path)) and stat.S_ISBLK(file.st_mode):
        number = file.st_rdev
    return number if number in numbers else None


def status_of(path: str) -> libc.FileStatus | None:
    """Return the status of the file of an absolute path; None without one, or if its filesystem does
    not answer.
    """
    if path.startswith("/dev/"):
        answer = _ask_status(path)
    else:
        answer = questions.ask_each(_ask_status, [path], _ANSWER_S).get(path)
    if answer is None:
        return None
    return libc.FileStatus(*answer)


def _ask_status(path: str) -> tuple[int, int, int, int] | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # a path with a null byte does not exist
        return None
    return status.st_mode, status.st_ino, status.st_rdev, status.st_dev


def _each(proc: Path, look: Callable[[str], None], what: str) -> list[str]:
    """Call `look` with every process's directory; return a sentence for each that exists and cannot
    be read. The directory is a string, because of 30,000 processes Path objects cost half a second.
    """
    unreadable: list[str] = []
    with os.scandir(proc) as entries:
        pids = sorted(int(entry.name) for entry in entries if entry.name.isdigit())
    for folder in (f"{proc}/{pid}" for pid in pids):
        try:
            look(folder)
        except OSError as error:
            if error.errno in _ENDED:
                continue
            who = _who(Path(folder))
            unreadable.append(Unseen(f"{what} of {who} cannot be read: {error.strerror}"))
    return unreadable


def _who(process: Path) -> str:
    return f"process {process.name} ({text(process / 'comm') or 'unknown'})"


def _use(process: Path, sentence: str) -> str:
    if text(process / "comm") in _UDEV:
        return ByUdev(sentence)
    return sentence


def _command(process: Path) -> str:
    words = (text(process / "cmdline") or "?").replace("\0", " ")
    if len(words) <= _COMMAND:
        return words
    return words[:_COMMAND] + " ..."
