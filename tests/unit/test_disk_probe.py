"""`dbbench probe`: latencies of real directories, percentiles that have enough values, and
comparisons.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from dbbench import process
from dbbench.errors import DeviceInUse, FileUnreadable, UsageInvalid
from dbbench.labs import disk_probe
from dbbench.labs.disk_probe import DirectoryPair, Latency, Probed, probe
from dbbench.storage import small_io
from dbbench.storage.devices import sysfs
from dbbench.storage.devices.directory import disks_below
from dbbench.storage.small_io import GROUP, METHODS, OVERWRITE, MeasuredDirectory
from tests.support.files import write_file


@pytest.mark.starts_processes  # systemd-detect-virt
def test_two_directories_of_one_disk(tmp_path: Path) -> None:
    """Every method has values; both directories name the disk below, and no file stays."""
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.mkdir()
    probed, (pair,) = probe(paths, 4.0, seed=1)
    for each in probed:
        assert [row.method for row in each.latencies] == [method.name for method in METHODS]
        assert all(row.count >= 1 and row.per_s > 0 and row.max_ms > 0 for row in each.latencies)
        assert "with group commit" in each.sentence and each.facts["filesystem"] in each.place
    assert set(pair.same_disks) == set(probed[0].facts["disks"])
    assert [list(path.iterdir()) for path in paths] == [[], []]


def test_a_percentile_has_ten_values_beyond_it() -> None:
    """1 % of flushes that take 50 ms move p99.9 and not p50; with fewer values there is no
    p99.9.
    """
    taken_s = [0.002] * 9_900 + [0.05] * 100
    row = Latency.of(METHODS[0], taken_s)
    assert (row.p50_ms, row.p999_ms, row.max_ms) == (2.0, 50.0, 50.0)
    assert Latency.of(METHODS[0], taken_s[:9_999]).p999_ms is None
    few = Latency.of(METHODS[0], [0.002] * 19)
    assert (few.p50_ms, few.p99_ms, few.p999_ms) == (None, None, None)


def test_a_slow_machine_has_no_median_to_doubt() -> None:
    """Of each method a few values, as in an emulated machine."""
    facts = {"disks": {"sda": {"rotational": "1"}}}
    rows = [Latency.of(method, [0.2, 0.3]) for method in METHODS]
    assert disk_probe._cautions(facts, rows) == []


def test_slow_flushes_of_a_real_directory_are_in_the_tail(tmp_path: Path) -> None:
    """1 % of them wait for 50 ms: p99.9 shows it, p50 does not."""
    calls = itertools.count(1)

    def flush(fd: int) -> None:
        os.fdatasync(fd)
        if next(calls) % 100 == 0:
            time.sleep(0.05)

    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        contextlib.closing(MeasuredDirectory(Path(folder), 1)) as d,
    ):
        method = dataclasses.replace(METHODS[0], flush=flush)
        row = Latency.of(method, d.measure(method, 9.0))
    assert row.p50_ms is not None and row.p50_ms < 25
    if memory != tmp_path:  # fast enough for 10 000 flushes
        assert row.p999_ms is not None and row.p999_ms >= 50


def test_a_virtual_disk_is_of_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It claims to rotate; a disk of a real machine that claims it does."""
    monkeypatch.setattr(
        sysfs,
        "queue_attributes",
        lambda _name: {"rotational": "1", "write_cache": "write back"},
    )
    for machine, words in (("kvm", "sdz, a virtual disk"), (None, "sdz, rotating")):
        facts = disk_probe._facts(Path("/"), ("sdz",), machine)
        assert words in Probed("/", facts, (), ()).place


@pytest.mark.starts_processes
@pytest.mark.needs("root", "losetup")
def test_the_disk_below_the_file_of_a_loop_device_is_named(tmp_path: Path) -> None:
    """So two images on one disk are not taken for two disks."""
    below = disks_below(tmp_path)
    with (tmp_path / "image").open("wb") as file:
        file.truncate(2**20)
    device = process.run(["losetup", "--find", "--show", tmp_path / "image"]).stdout.strip()
    try:
        assert disk_probe._physical((Path(device).name,)) == (Path(device).name, *below)
    finally:
        process.run(["losetup", "--detach", device])


def test_a_directory_is_rarely_called_different_from_itself() -> None:
    """At most 5 % of 200 comparisons, with commits that scatter by 30 % between rounds; twice as
    fast is found.
    """
    draw = random.Random(5)

    def rounds(factor: float) -> list[dict[str, list[float]]]:
        return [
            {METHODS[0].name: [0.002 * factor * draw.lognormvariate(0, 0.3)]} for _ in range(15)
        ]

    different = 0
    for _ in range(200):
        _ratio, low, high = disk_probe._compare(rounds(1), rounds(1))
        assert low is not None and high is not None
        different += not low <= 1 <= high
    assert different <= 10
    _ratio, low, high = disk_probe._compare(rounds(1), rounds(0.5))
    assert low is not None and low > 1
    assert DirectoryPair("b", "a", 1.5, 1.4, 1.6, ()).sentence.startswith("b commits faster than a")


def test_a_burst_credit_that_ends_is_said() -> None:
    """Half the rate in the second minute; not of a rate that stays, and not within one minute."""
    draw = random.Random(3)

    def rounds(*second_s: float) -> list[dict[str, list[float]]]:
        return [{METHODS[0].name: [taken_s * draw.lognormvariate(0, 0.3)]} for taken_s in second_s]

    minutes = [0] * 15 + [1] * 15
    ended = disk_probe._by_minute(rounds(*[0.002] * 15, *[0.004] * 15), minutes)
    assert len(ended[0]) == 2 and "burst credit may have ended: use --minutes 4" in ended[1]
    steady = disk_probe._by_minute(rounds(*[0.002] * 30), minutes)
    assert len(steady[0]) == 2 and steady[1] == ""
    assert disk_probe._by_minute(rounds(*[0.002] * 15), minutes[:15]) == ((), "")


@pytest.mark.parametrize(
    ("cache", "flushes", "keys"),
    [
        ("write back", 1, {"iops": 3200, "read_ms": 1, "flush_ms": 8}),
        ("write back", 2, {"iops": 3200, "read_ms": 1, "flush_ms": 4}),
        ("write through", 1, {"iops": 3200, "read_ms": 1, "write_ms": 8}),
    ],
)
def test_the_limit_that_models_a_disk(cache: str, flushes: int, keys: dict[str, int]) -> None:
    """A commit of 8 ms; its flushes share the time, and without a cache the write takes it."""
    taken_s = {"overwrite_16k": 0.008, "random_read_4k": 0.001}
    taken_s |= {"parallel_reads_4k": 0.00499, "parallel_writes_4k": 0.001}
    rows = {m.name: Latency.of(m, [taken_s[m.name]] * 99) for m in METHODS if m.name in taken_s}
    facts = {"disks": {"sdz": {"write_cache": cache}}}
    assert disk_probe._limit(facts, rows, flushes) == keys


def test_appends_never_overwrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file begins anew when it is full: each append makes it longer."""
    monkeypatch.setattr(small_io, "FILE_BYTES", 3 * 2**20)
    sizes = list[int]()
    method = dataclasses.replace(GROUP, flush=lambda fd: sizes.append(os.fstat(fd).st_size))
    with contextlib.closing(MeasuredDirectory(tmp_path, 1)) as directory:
        while len(sizes) < 4:
            directory.measure(method, 0.05)
    assert sizes[:4] == [2**20, 2 * 2**20, 3 * 2**20, 2**20]


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        (
            (181.2, 150.0, 211.0),
            "b commits about 180 times as fast as a (98 % interval 150 to 210 times)",
        ),
        ((0.25, 0.2, 0.5), "a commits about 4 times as fast as b (98 % interval 2 to 5 times)"),
    ],
)
def test_large_ratios_are_factors(bounds: tuple[float, float, float], sentence: str) -> None:
    """Nobody reads +17 900 %."""
    assert DirectoryPair("b", "a", *bounds, ()).sentence == sentence


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nonexistent", "does not exist"),
        ("/proc", "a filesystem that stores no files"),
        ("/dev/null", "a file or device"),
    ],
)
def test_a_directory_that_cannot_be_measured(path: str, words: str) -> None:
    """It is refused before anything is measured."""
    with pytest.raises(FileUnreadable, match=words):
        probe([Path(path)], 1.0, seed=1)


def test_a_directory_that_is_named_twice(tmp_path: Path) -> None:
    """By another path, too."""
    other = tmp_path / "x" / ".."
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageInvalid):
        probe([tmp_path, other], 1.0, seed=1)


DISK = {"write_cache": "write back"}
CACHELESS = {"write_cache": "write through"}


@pytest.mark.parametrize(
    ("disks", "reached", "machine", "words", "doubtful"),
    [
        ({}, 0, None, "no disk below", True),
        ({"a": DISK}, None, None, "unknown", True),
        ({"a": DISK}, 0, None, "only 0 flushes reached the disk for 100 calls", True),
        ({"a": CACHELESS}, 0, None, "needs no flushes", False),
        ({"a": DISK}, 150, None, "flushes reach the disk: 150 for 100 calls", False),
        ({"a": DISK}, 150, "kvm", "cannot determine whether the host", False),
        ({"a": CACHELESS}, 0, "kvm", "cannot determine whether the host", False),
    ],
)
def test_whether_flushes_reach_the_disk(
    disks: dict[str, Any],
    reached: int | None,
    machine: str | None,
    words: str,
    doubtful: bool,
) -> None:
    """It is always stated. The kernel sends no flushes to a disk without a volatile cache."""
    facts = {"disks": disks, "flushes": reached, "flush_calls": 100, "virtualisation": machine}
    text, doubt = disk_probe._flushes(facts)
    assert words in text
    assert doubt is doubtful


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """The second is refused; what a killed one left is used and removed."""
    with contextlib.closing(MeasuredDirectory(tmp_path, 1)), pytest.raises(DeviceInUse):
        MeasuredDirectory(tmp_path, 2)
    write_file(tmp_path / ".dbbench-probe/filled", b"half")
    with contextlib.closing(MeasuredDirectory(tmp_path, 1)) as directory:
        assert directory.measure(METHODS[-1], 0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """A link in its place, or a folder that others can write to: what they put there would be
    overwritten.
    """
    (other := tmp_path / "other").mkdir()
    (other / "filled").write_text("precious")
    (folder := tmp_path / ".dbbench-probe").symlink_to(other)
    with pytest.raises(FileUnreadable):
        probe([tmp_path], 1.0, seed=1)
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "filled").symlink_to(other / "filled")
    with pytest.raises(FileUnreadable, match="another account"):
        probe([tmp_path], 1.0, seed=1)
    folder.chmod(0o700)
    with contextlib.closing(MeasuredDirectory(tmp_path, 1)) as directory:
        directory.measure(OVERWRITE, 0.01)
    assert (other / "filled").read_text() == "precious"


@pytest.mark.starts_processes  # systemd-detect-virt
def test_the_command_prints_one_document(tmp_path: Path, printed: Any) -> None:
    """With --json; otherwise a table with a dash where a percentile has too few values, and a
    sentence.
    """
    document = json.loads(printed("probe", str(tmp_path), "--time", "1s", "--json"))
    assert document["directories"][0]["path"] == str(tmp_path) and document["pairs"] == []
    assert "| append 16 KiB, fdatasync |" in printed(
        "probe",
        str(tmp_path),
        "--time",
        "1s",
        "--markdown",
    )
