import fcntl
import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dbbench.datasets import golden, manifest, restore_copy, split
from dbbench.datasets.manifest import Golden, Manifest
from dbbench.errors import DiskTooSmall, RestoreFailed
from dbbench.model import Dataset
from dbbench.model.events import Event
from dbbench.process import User
from dbbench.report.progress.state import State, copy_text
from dbbench.results.fileio import lock_file
from dbbench.results.trials import ELSEWHERE, leftovers
from dbbench.run.stages.restore import pace

ME = User("me", os.geteuid(), os.getegid())


def a_copy(folder: Path) -> Golden:
    """A golden copy with all that a data directory has: an empty folder, modes, empty and large
    files.
    """
    data = folder / "data"
    (data / "base" / "5").mkdir(parents=True)
    (data / "pg_notify").mkdir(mode=0o700)
    noise = random.Random(1).randbytes(3 * 2**20 + 17)
    (data / "base" / "5" / "16384").write_bytes(noise)
    (data / "base" / "5" / "16385").touch(0o600)
    (data / "PG_VERSION").write_text("15\n")
    (data / "PG_VERSION").chmod(0o640)
    with (data / "sparse").open("wb") as file:
        file.truncate(2**20)
    (data / "base").chmod(0o550)
    entries = manifest.scan(data, 2)
    size = sum(entry.size for entry in entries)
    left = manifest.compressibility([data / "base/5/16384"])
    whole = Manifest(
        key=folder.name,
        dataset=Dataset("none"),
        logical_bytes=size,
        compressibility=left,
        entries=entries,
    )
    manifest.save(folder, whole)
    return Golden(folder, whole)


@pytest.fixture
def made(tmp_path: Path) -> Golden:
    """A golden copy in a cache of its own."""
    (tmp_path / "cache").mkdir()
    return a_copy(tmp_path / "cache" / "copy")


@pytest.mark.parametrize("lag", [0, 2**20, 2**30])
def test_a_restored_copy_is_the_golden_copy(
    lag: int,
    made: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names, bytes, modes and empty folders are restored, for the owner, and each file is compared
    once, however far that lags behind; figures are the manifest's.
    """
    compared: list[str] = []

    def note(path: Path) -> tuple[int, int]:
        compared.append(path.name)
        return manifest.crc_of(path)

    monkeypatch.setattr("dbbench.datasets.copying.crc_of", note)
    said: list[tuple[int, int]] = []
    found = restore_copy(
        made,
        tmp_path / "data",
        ME,
        lambda done, whole: said.append((done, whole)),
        lag,
    )
    assert manifest.scan(tmp_path / "data", 1) == made.manifest.entries
    assert found.bytes == made.manifest.logical_bytes
    assert found.copy_s > 0
    assert said[-1] == (found.bytes, found.bytes)
    assert sorted(compared) == ["16384", "16385", "PG_VERSION", "sparse"]


def test_an_empty_folder_is_filled_and_a_full_one_refused(made: Golden, tmp_path: Path) -> None:
    """The data directory may be there already, with attributes; what lies in it is never
    overwritten. A sparse file of the golden copy takes all its blocks, as on every other
    filesystem. What is gone from the cache is an error before anything is written.
    """
    assert manifest.load(made.path) == made and (made.data / "sparse").stat().st_blocks == 0
    assert made.manifest.compressibility == pytest.approx(1.0, abs=0.01)  # noise
    (tmp_path / "data").mkdir()
    restore_copy(made, tmp_path / "data", ME)
    assert (tmp_path / "data/sparse").stat().st_blocks * 512 >= 2**20
    with pytest.raises(RestoreFailed, match="not an empty directory"):
        restore_copy(made, tmp_path / "data", ME)
    assert golden.evict(made.path)
    with pytest.raises(RestoreFailed, match="no longer exists"):
        restore_copy(made, tmp_path / "other", ME)
    assert not (tmp_path / "other").exists()


def test_a_byte_flipped_on_its_way_is_found(made: Golden, tmp_path: Path) -> None:
    """A restored file that differs by one bit is named, and the golden copy, which is sound,
    stays.
    """
    whole = made.data / "base/5/16384"
    file = tmp_path / "data/base/5/16384"

    def damage(_done: int, _all: int) -> None:
        """Flip a bit of the file once it is complete."""
        if file.exists() and file.read_bytes() == whole.read_bytes():
            flip(file)

    with pytest.raises(
        RestoreFailed, match=r"after reading them back, and it is intact: base/5/16384$"
    ):
        restore_copy(made, tmp_path / "data", ME, damage)
    assert golden.exists("copy", made.path.parent)


def flip(file: Path) -> None:
    """Change a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    file.write_bytes(content)


def test_a_damaged_golden_copy_is_named_and_not_used_again(made: Golden, tmp_path: Path) -> None:
    """A damaged golden copy is distinguished from data that was altered during the restore. A file
    that went away is found before a restore by its size, and in a restore by its name.
    """
    flip(made.data / "base/5/16384")
    assert golden.exists("copy", made.path.parent)  # sizes alone do not show it
    with pytest.raises(
        RestoreFailed, match=r"golden copy .* is damaged: these files changed: base/5/16384"
    ):
        restore_copy(made, tmp_path / "data", ME)
    assert not golden.exists("copy", made.path.parent)
    other = a_copy(made.path.with_name("other"))
    (other.data / "PG_VERSION").unlink()
    assert not golden.exists("other", other.path.parent)
    with pytest.raises(RestoreFailed, match="PG_VERSION"):
        restore_copy(other, tmp_path / "data2", ME)


def test_a_copy_in_use_is_not_evicted(made: Golden) -> None:
    """Neither while it is restored nor while another process builds it."""
    with manifest.in_use(made):
        assert not golden.evict(made.path)
    with manifest.lock_of(made.path).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not golden.evict(made.path)
    assert golden.evict(made.path)


def test_a_process_that_waited_for_a_failed_build_makes_lock_and_directory_again(
    tmp_path: Path,
) -> None:
    """The failed one has removed both."""
    copy = tmp_path / "cache" / "key"
    waits = threading.Event()

    def wait() -> None:
        with golden.alone(copy, lambda _: waits.set()):
            assert not golden.evict(copy)

    with ThreadPoolExecutor(1) as pool:
        with lock_file(manifest.lock_of(copy)):
            waiting = pool.submit(wait)
            assert waits.wait(30)
            shutil.rmtree(copy.parent)
        waiting.result(30)


def test_an_error_removes_the_lock_only_of_a_missing_copy(made: Golden) -> None:
    """Processes that restore a copy hold its lock."""
    for copy in (made.path, made.path.with_name("none")):
        with pytest.raises(RestoreFailed), golden.alone(copy, print):
            raise RestoreFailed("stopped")
        assert manifest.lock_of(copy).exists() == copy.exists()


def test_the_copy_used_longest_ago_goes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    """Over the limit, the copies that were used longest ago are removed until the new one fits;
    other folders stay.
    """
    for number, name in enumerate(["old", "used", "new"]):
        copy = a_copy(tmp_path / name)
        manifest.lock_of(copy.path).touch()
        os.utime(manifest.lock_of(copy.path), (0, 1000 + number))
    os.utime(tmp_path / ".old.lock", (0, 5000))
    (tmp_path / "letters").mkdir()
    size = golden.disk_bytes(tmp_path / "new")
    environ["DBBENCH_CACHE_LIMIT"] = str(2 * size + 4096)
    golden.make_room(tmp_path, size)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == [
        "letters",
        "old",
    ]


def test_a_disk_that_is_too_small_after_evictions_is_not_called_unchanged(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """Copies were removed before it was known that even that is not enough."""
    copy = a_copy(tmp_path / "old")
    environ["DBBENCH_CACHE_LIMIT"] = str(2**61)
    with pytest.raises(DiskTooSmall) as refused:
        golden.make_room(tmp_path, 2**60)
    assert not copy.path.exists() and refused.value.effect == "Nothing was built."


def test_a_copy_is_split_into_a_folder_and_the_rest(made: Golden, tmp_path: Path) -> None:
    """Both are restored by themselves, and together they are the whole."""
    within, rest = split(made, "base/5")
    assert {entry.path for entry in within.manifest.entries} == {"16384", "16385"}
    assert (
        within.manifest.logical_bytes + rest.manifest.logical_bytes == made.manifest.logical_bytes
    )
    assert not [entry.path for entry in rest.manifest.entries if entry.path.startswith("base/5")]
    restore_copy(within, tmp_path / "part", ME)
    assert (tmp_path / "part/16384").read_bytes() == (made.data / "base/5/16384").read_bytes()
    restore_copy(rest, tmp_path / "rest", ME)
    assert (tmp_path / "rest/base").is_dir()


def test_progress_reports_rate_and_time_left_once_a_second() -> None:
    """From the bytes and the clock; both renderers read the same words."""
    told: list[Event] = []
    times = iter([0.0, 0.5, 2.0, 2.1, 4.0])
    tell = pace(told.append, lambda: next(times))
    for done in (10, 100_000_000, 110_000_000, 300_000_000):
        tell(done, 400_000_000)
    assert [event.data["bytes"] for event in told] == [100_000_000, 300_000_000]
    state = State()
    state.take(told[-1], 0.0)
    assert copy_text(state.copied) == "75 % at 75 MB/s, 2 s left"


def test_what_a_killed_trial_left_beside_its_filesystem_is_a_leftover(tmp_path: Path) -> None:
    """The rest of a cluster is removed by the next start and by `clean`; a link of that name is not
    followed.
    """
    (tmp_path / "trials").mkdir()
    assert leftovers(tmp_path) == []
    (beside := tmp_path / ELSEWHERE).mkdir()
    assert leftovers(tmp_path) == [beside]
    beside.rename(tmp_path / "other")
    beside.symlink_to(tmp_path / "other")
    assert leftovers(tmp_path) == []
