"""The catalogue's setups on layers and f2fs are made, mounted, filled, measured and removed.

They run on every kernel that supports them, including the second kernel.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import process
from dbbench.engines import mariadb
from dbbench.engines.port import Place
from dbbench.errors import EngineStartFailed, FilesystemFull
from dbbench.model import merge_settings
from dbbench.results.journal import Journal
from dbbench.storage import filesystems, layers
from dbbench.storage.filesystems import shape, volumes
from tests.support import setups
from tests.support.leftovers import GONE_S, layers_of
from tests.support.plans import SMALL, plan
from tests.support.setups import (
    ADDED,
    ALL,
    UPDATES,
    attached,
    commit,
    entry,
    flushes,
    setup_named,
    shipped,
    working,
)
from tests.system.conftest import HANGS_S

MIB: Final = 2**20
FAMILIES: Final = ("f2fs",)
NAMES: Final = [
    name
    for name in (*ALL.setups, *ADDED)
    if (setup := setup_named(name)).layers or setup.mkfs.family in FAMILIES
]
# What mkfs has made of the device, by the family's own tool.
GEOMETRY: Final[dict[str, dict[str, object]]] = {
    "f2fs": {"block_size": 4096, "segment_bytes": 2 * MIB, "features": ""},
}
# What the layers' own tools must read back, bottom first.
LAYERS: Final[dict[str, list[dict[str, object]]]] = {
    "xfs-md0": [{"level": 0, "chunk_kb": 512, "devices": 2}],
    "xfs-md0-4k": [{"level": 0, "chunk_kb": 4, "devices": 2}],
    "ext4-md1": [{"level": 1, "sync": "idle", "bitmap": "none"}],
    "xfs-md10": [{"level": 10, "chunk_kb": 512, "devices": 4, "sync": "idle"}],
    "ext4-lvm": [{"segtype": "linear", "snapshot": ""}],
    "ext4-on-lvm-snapshot": [{"segtype": "linear", "snapshot": "classic", "snapshot_room": 20}],
    "xfs-on-lvm-thin-snapshot": [{"segtype": "thin", "snapshot": "thin", "when_full": "error"}],
    "ext4-crypt": [{"cipher": "aes-xts-plain64", "key_bits": 512}],
    "ext4-lvm-striped-md1": [
        {"level": 1},
        {"level": 1},
        {"segtype": "striped", "stripes": 2, "stripe_kb": 64},
    ],
}


def left(folder: Path) -> list[str]:
    """What is there of a test: mounts and loop devices of its files, arrays, volumes, names."""
    return [*setups.left(folder), *layers_of(folder)]


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", NAMES)
def test_every_setup_is_what_it_says(name: str, tmp_path: Path) -> None:
    """Made, mounted, read back, claimed rightly, its snapshot held, flushing as its class says,
    measured, and gone.
    """
    setup = shipped(name)
    journal = Journal(tmp_path / "journal.jsonl")
    with (
        attached(tmp_path, setup.devices.min) as device,
        layers.stack_layers(setup.layers, device, journal) as volume,
    ):
        for found, wanted in zip(volume.layers, LAYERS.get(name, []), strict=False):
            assert found.items() >= wanted.items()
        made = filesystems.make(setup, volume)
        assert made.argv[0][-1] == str(volume.path)
        assert len(made.uuid) == 36
        assert made.geometry.items() >= GEOMETRY.get(name, {}).items()
        with filesystems.mount(setup, volume, tmp_path / "mnt") as fs:
            assert {"rw", "noatime", *set(setup.mount)} <= set(fs.options_effective)
            assert not [option for option in fs.options_effective if option.startswith("discard")]
            filesystems.check_promise(setup, fs)
            assert ("no-barrier" in [flag.value for flag in fs.flags]) is name.endswith("nobarrier")
            assert fs.tears is True
            assert fs.read_ahead_kb
            datadir = filesystems.data_directory(setup, fs)
            (datadir / "table").write_bytes(os.urandom(8 * MIB))
            filesystems.sync(fs.path)
            held = layers.take_snapshots(volume)
            assert [facts.get("snapshot_held") for facts in held if facts.get("snapshot")] == [
                True
            ] * sum(bool(layer.snapshot) for layer in setup.layers)
            before = flushes(device)
            commit(datadir / "log")
            flushed = flushes(device) - before
            assert flushed <= 2 if name.endswith("nobarrier") else flushed >= 20
            assert shape.healthy(fs) is None
            space = shape.space(fs, 8 * MIB)
            assert space.disk_bytes and space.free_bytes and space.disk_bytes > 8 * MIB
        os.close(os.open(volume.path, os.O_RDONLY | os.O_EXCL))
    assert left(tmp_path) == []


def layered(
    setups: list[str], *operations: str, size: str = "400MiB", count: int = 1, **cells: Any
) -> str:
    """A plan of short trials on those setups, each followed by these operations."""
    device = {"size": size, "count": count}
    return plan(
        [entry(name) for name in setups],
        **{"workload": UPDATES, **cells},
        measure="4s",
        operations=operations,
        device=device,
    )


# What this kernel cannot make is left out by its name.
CARRIED: Final = ["ext4-md0", "xfs-on-lvm-snapshot", "f2fs"]
OTHERS: Final = [name for name in NAMES if name not in CARRIED]


@pytest.mark.needs("root", "engine:postgres", "sadf")
@pytest.mark.parametrize(
    "wanted",
    [CARRIED, pytest.param(OTHERS, marks=pytest.mark.soak)],
    ids=["some", "others"],
)
def test_each_kind_carries_a_database(wanted: list[str], dbbench: Any) -> None:
    """One run: each has its class and says what it lay on; checked, snapshot with a second server,
    rolled back, grown by a device: none fails, and nothing is left.
    """
    names = working(wanted)
    most = max(
        setup_named(name).devices.min + volumes.devices_to_add(setup_named(name)) for name in names
    )
    dbbench.plan(layered(names, "fsck", "snapshot", "grow", count=most))
    dbbench("run", "plan.toml", "--name", "r", timeout_s=HANGS_S + 60 * len(names))
    trials = {trial["fs_setup"]: trial for trial in dbbench.trials().values()}
    assert [(name, t["error"]) for name, t in trials.items() if t["status"] == "failed"] == []
    assert set(trials) == set(names)
    for name, trial in trials.items():
        facts = trial["filesystem"]
        assert facts["durability_class"] == ("no-barrier" if name.endswith("nobarrier") else "full")
        assert [layer["kind"] for layer in facts["layers"]][-1:] == [
            layer.kind for layer in setup_named(name).layers
        ][-1:]
        assert all(layer["snapshot_held"] for layer in facts["layers"] if layer.get("snapshot"))
        assert trial["io"]["write_bytes"] > 0
        operated(name, {step["name"]: step for step in trial["operations"]})
    assert left(dbbench.folder) == []


@pytest.mark.needs("root", "engine:postgres", "engine:mariadb", "sysbench", "sadf")
@pytest.mark.parametrize("name", FAMILIES)
def test_short_trials_of_two_engines(name: str, dbbench: Any) -> None:
    """PostgreSQL and MariaDB, with a log that fits on the device: cold, flushed, checked by the
    engine and by fsck.
    """
    shipped(name)
    engines = ["postgres", {"name": "mariadb", "settings": {"innodb_log_file_size": 64 * MIB}}]
    sysbench = {
        "name": "sysbench-oltp-read-write",
        "engines": ["mariadb"],
        **SMALL["sysbench-oltp-read-write"],
    }
    loads = [{**UPDATES, "engines": ["postgres"]}, sysbench]
    dbbench(
        "run",
        dbbench.plan(layered([name], "fsck", size="1200MiB", engine=engines, workload=loads)),
        "--name",
        "r",
    )
    trials = dbbench.trials().values()
    assert [(t["engine"], t["error"]) for t in trials if t["status"] == "failed"] == []
    assert {t["engine"] for t in trials} == {"postgres", "mariadb"}
    for trial in trials:
        assert (trial["filesystem"]["family"], trial["filesystem"]["durability_class"]) == (
            name,
            "full",
        )
        assert trial["cache"]["proved"]
        assert trial["summary"]["transactions"] > 0
        assert float(trial["io"]["flushes_note"].split()[0]) > 0.3
        operated(name, {step["name"]: step for step in trial["operations"]})
    assert left(dbbench.folder) == []


@pytest.mark.needs("root", "engine:mariadb", "sadf")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_server_that_waits_for_space_is_reported_at_once(name: str, tmp_path: Path) -> None:
    """MariaDB on a filesystem that its log has filled waits there for ever: E305 within seconds,
    and it is gone.
    """
    setup = shipped(name)
    own = Path(tempfile.mkdtemp(prefix="dbbench-", dir="/var/tmp"))
    own.chmod(0o755)  # the server's account must get through; nobody else's gets into tmp_path
    place = Place(own / "s", own / "logs")
    with attached(tmp_path, 1) as device:
        filesystems.make(setup, device)
        with filesystems.mount(setup, device, own / "mnt") as fs:
            datadir = filesystems.data_directory(setup, fs)
            mariadb.ENGINE.create(datadir, place)
            began = time.monotonic()
            with (
                pytest.raises(
                    (FilesystemFull, EngineStartFailed), match=r"waits for space|error 28"
                ),
                mariadb.ENGINE.serving(
                    datadir,
                    merge_settings(("plan", {"innodb_log_file_size": 1024 * MIB})),
                    place,
                ),
            ):
                pass
            assert time.monotonic() - began < 290  # after 300 s it would be given up anyway
    shutil.rmtree(own)
    assert left(tmp_path) == left(own) == []


def operated(name: str, steps: dict[str, Any]) -> None:
    """No operation failed; what this setup can do was done, and took time."""
    assert [(step, facts["text"]) for step, facts in steps.items() if facts["failed"]] == []
    done = {step for step, facts in steps.items() if facts["seconds"] is not None}
    if "snapshot" in name:
        assert {
            f"snapshot: {step}" for step in ("create", "mount", "query", "roll back", "drop")
        } <= done
        assert steps["snapshot: query"]["bytes"] > 0
    if "md" in name or "lvm" in name:
        assert {"grow: add device", "grow: rebalance"} <= done
    if "md0" in name or "lvm" in name:
        assert "MiB larger" in steps["grow: rebalance"]["text"]


@pytest.mark.needs("root", "engine:postgres", "sadf", "lvcreate", "kernel:dm-snapshot")
@pytest.mark.parametrize("resume", [True, False])
def test_killed_at_a_random_step_layers_are_given_back(resume: bool, dbbench: Any) -> None:
    """SIGKILL in some phase of a trial: the next start, or `clean`, takes apart what no namespace
    has ended.
    """
    dbbench.plan(layered(["ext4-on-lvm-snapshot"]))
    phase = random.Random(os.urandom(4)).choice(
        ["mount", "restore", "settle", "drop_cache", "warmup", "drain"]
    )

    def at(event: dict[str, Any]) -> bool:
        return bool(event["kind"] == "phase_begin" and event.get("phase") == phase)

    def kill(pid: int) -> None:
        time.sleep(random.uniform(0, 0.3))
        os.kill(pid, signal.SIGKILL)

    status, said = dbbench.run_and("plan.toml", at, kill)
    assert status == -signal.SIGKILL, (phase, said)
    assert any("dbbench" in line for line in left(dbbench.folder)), phase
    if resume:
        dbbench("run", "plan.toml", "--name", "r")
        assert [trial["error"] for trial in dbbench.trials().values()] == [None]
    else:
        assert "removed layer lvm:dbbench-" in dbbench("clean", "r").stdout
    assert process.wait_while(lambda: left(dbbench.folder), GONE_S) == [], phase
