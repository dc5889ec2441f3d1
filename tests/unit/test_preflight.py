"""What a run, `plan` and `doctor` refuse before anything is changed: programs, space, memory,
limits.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli, packages
from dbbench.commands.doctor import of_plan
from dbbench.commands.resuming import resumable
from dbbench.errors import (
    DiskTooSmall,
    FilesystemFull,
    Interrupted,
    KernelLacks,
    NotRoot,
    ProgramMissing,
    Terminated,
)
from dbbench.model import Settings, WearFacts
from dbbench.run import preflight
from tests.support.files import write_file
from tests.support.plans import plan
from tests.unit.test_run_names import PLAN, plan_asked

# Loop devices of this machine are asked in a process of their own.
pytestmark = pytest.mark.starts_processes

INSERTS = {"name": "sysbench-oltp-insert", "tables": 1, "table_size": 1000}


@dataclasses.dataclass
class Machine:
    """What the checks find: everything and much space; tests take a thing away."""

    missing: list[str] = dataclasses.field(default_factory=list)
    does_not_work: dict[str, str] = dataclasses.field(default_factory=dict)  # setup: why
    free_bytes: int = 10**12
    memory_bytes: int = 8 * 2**30
    user: int = 0
    open_files: int = 20_000
    wear: WearFacts | None = None
    # settings that its servers do not have
    unknown: set[str] = dataclasses.field(default_factory=set)

    def refuse(self, settings: Settings) -> str:
        """What a server prints about settings that it does not have."""
        return "".join(
            f"no such setting: {name}" for name in sorted(self.unknown & settings.keys())
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that preflight looks at."""
    found = Machine()
    for name, answer in (
        ("dbbench.run.preflight.missing_programs", lambda _expanded: found.missing),
        ("dbbench.storage.filesystems.missing_programs", lambda _setup: ()),
        ("dbbench.storage.filesystems.works", lambda setup: found.does_not_work.get(setup.name)),
        ("dbbench.run.disk_space.golden_bytes", lambda _expanded: 10**9),
        ("dbbench.engines.postgres.installed_version", lambda _bin=None: "15.18"),
        ("dbbench.engines.mariadb.ENGINE.installed_version", lambda _bin=None: "10.11.19"),
        ("dbbench.engines.postgres.refusal", lambda settings, _bin=None: found.refuse(settings)),
        (
            "dbbench.engines.mariadb.ENGINE.refusal",
            lambda settings, _bin=None: found.refuse(settings),
        ),
        ("dbbench.run.preflight.most_files", lambda: found.open_files),
        ("dbbench.run.disk_space.free_bytes", lambda _path: found.free_bytes),
        ("dbbench.machine.limits.cgroup.usable_bytes", lambda: found.memory_bytes),
        ("dbbench.storage.devices.smart.wear", lambda _disks: found.wear),
        ("os.geteuid", lambda: found.user),
    ):
        monkeypatch.setattr(name, answer)
    return found


def lacks(tmp_path: Path, text: str = PLAN) -> list[type[Exception]]:
    """The kinds of what is lacking for a plan."""
    wanted = plan_asked(tmp_path, text)
    return [type(error) for error in preflight.lacking(wanted, tmp_path / "results")]


@pytest.mark.usefixtures("machine")
def test_nothing_is_lacking_where_all_is_there(tmp_path: Path) -> None:
    """And the check makes no folder."""
    assert lacks(tmp_path) == []
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("fs", "device", "settings", "fits"),
    [
        ("f2fs", {"size": "400MiB"}, {}, False),
        ("f2fs", {"size": "2GiB"}, {}, True),
        ("btrfs-zstd", {"size": "400MiB"}, {}, True),  # compressed zeros take no space
        ("ext4", {"size": "400MiB"}, {"innodb_log_file_size": 2**26}, True),
        ("xfs", {"size": "2GiB", "wal": {"fs_setup": "ext4", "size": "400MiB"}}, {}, False),
        ("xfs", {"size": "2GiB", "wal": {"fs_setup": "ext4", "size": "1GiB"}}, {}, True),
    ],
)
def test_a_log_that_does_not_fit_is_reported_before(
    fs: str,
    device: dict[str, Any],
    settings: dict[str, Any],
    fits: bool,
    tmp_path: Path,
) -> None:
    """MariaDB allocates all of it when it starts, and waits for ever for space. It lies on
    [device.wal] if there is one.
    """
    text = plan(fs, {"name": "mariadb", "settings": settings}, INSERTS, device=device)
    assert lacks(tmp_path, text) == ([] if fits else [DiskTooSmall])


def test_missing_programs_are_reported_together_with_their_packages(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One error names all programs, and the one command that brings them."""
    # on no machine is a part of those packages there
    monkeypatch.setattr(packages, "find", lambda _name: None)
    machine.missing = ["sysbench", "/usr/lib/sysstat/sadc"]
    wanted = plan_asked(tmp_path)
    with pytest.raises(ProgramMissing) as caught:
        preflight.check(wanted, tmp_path)
    assert caught.value.evidence == "not installed: sysbench, /usr/lib/sysstat/sadc"
    assert caught.value.remedy == "apt-get install --no-install-recommends sysbench sysstat"


def test_all_that_is_lacking_is_reported_at_once(machine: Machine, tmp_path: Path) -> None:
    """The first gives ID and exit code, the others stand below it."""
    machine.user = 1000
    machine.free_bytes = 10**6
    machine.does_not_work = {"xfs": "no module"}
    assert lacks(tmp_path) == [KernelLacks, NotRoot, DiskTooSmall]
    wanted = plan_asked(tmp_path)
    with pytest.raises(KernelLacks) as caught:
        preflight.check(wanted, tmp_path)
    assert "also E202" in caught.value.evidence and "also E203" in caught.value.evidence


@pytest.mark.usefixtures("machine")
def test_a_cache_that_cannot_be_written_is_reported_before(
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of an account whose home directory does not exist; only copies that are still to be
    built need it.
    """
    environ["DBBENCH_CACHE"] = "/proc/none/golden"
    wanted = plan_asked(tmp_path)
    (error,) = preflight.lacking(wanted, tmp_path)
    assert error.evidence.startswith(
        "/proc/none/golden cannot be created: /proc is on a filesystem of the kernel"
    )
    assert error.remedy == "Name another folder with the environment variable DBBENCH_CACHE."
    # The copy of a load without data is empty, and written all the same.
    monkeypatch.setattr("dbbench.run.disk_space.golden_bytes", lambda _expanded: 0)
    assert lacks(tmp_path) == [type(error)]
    monkeypatch.setattr("dbbench.run.disk_space.golden_bytes", lambda _expanded: None)
    assert lacks(tmp_path) == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("memory", "cache", "expected"),
    [
        ("", "1GB", []),
        ("", "64GB", ["the cache of postgres has 64 GiB, but 8 GiB is the most"]),
        ('memory = "4GiB"', "1GB", []),
        ('memory = "4GiB"', "5GB", ["has 5 GiB, but 4 GiB is the most"]),
        (
            'memory = ["4GiB", "16GiB"]',
            "1GB",
            ["memory = 16 GiB, but only 8 GiB is available here"],
        ),
    ],
)
def test_memory_that_is_not_there(
    memory: str,
    cache: str,
    expected: list[str],
    tmp_path: Path,
) -> None:
    """A limit above the machine's memory limits nothing, and a server with a larger cache would be
    killed.
    """
    text = f"{memory}\n" + PLAN.replace(
        "[workload]", f'settings = {{ shared_buffers = "{cache}" }}\n[workload]'
    )
    wanted = plan_asked(tmp_path, text)
    found = preflight.refusals(wanted, tmp_path / "results")
    assert [error.id for error in found] == ["E213"] * len(expected)
    assert all(part in error.evidence for part, error in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("engine", "settings", "hard", "expected"),
    [
        ("mariadb", "", 20_000, []),
        ("mariadb", "", 4332, []),
        ("mariadb", "", 4331, ["opens up to 4332 files"]),
        ("mariadb", "table_open_cache = 200, max_connections = 100", 1024, []),
        (
            "mariadb",
            "open_files_limit = 30000",
            20_000,
            ["and open_files_limit = 30000 opens up to 30000 files"],
        ),
        ("postgres", "", 256, []),
        ("postgres", "", 32, ["the load generator of pgbench-tpcb opens up to"]),
    ],
)
def test_a_limit_of_open_files_that_is_too_low(
    machine: Machine,
    engine: str,
    settings: str,
    hard: int,
    expected: list[str],
    tmp_path: Path,
) -> None:
    """MariaDB would reduce its caches; the error names the limit and the command that raises it."""
    machine.open_files = hard
    workload = "sysbench-oltp-insert" if engine == "mariadb" else "pgbench-tpcb"
    text = PLAN.replace('"postgres"', f'"{engine}"').replace('"scan"', f'"{workload}"')
    wanted = plan_asked(
        tmp_path, text.replace("[workload]", f"settings = {{ {settings} }}\n[workload]")
    )
    found = preflight.refusals(wanted, tmp_path / "results")
    assert [error.id for error in found] == ["E213"] * len(expected)
    for part, error in zip(expected, found, strict=True):
        assert part in error.evidence and f"the hard limit is {hard} (ulimit -Hn)" in error.evidence
        assert "ulimit -Hn" in (error.remedy or "")


def test_a_misspelled_setting_is_refused_before_the_first_trial(
    machine: Machine, tmp_path: Path
) -> None:
    """Once, with the server's words and the setting that was probably meant."""
    machine.unknown = {"shared_bufers"}
    chosen = 'settings = { shared_bufers = "1GB", work_mem = ["4MB", "8MB"] }\n[workload]'
    wanted = plan_asked(tmp_path, PLAN.replace("[workload]", chosen))
    assert [
        (error.id, error.evidence.partition(" ")[2])
        for error in preflight.refusals(wanted, tmp_path)
    ] == [
        (
            "E001",
            "15.18 refuses shared_bufers = 1GB, set by the plan in line 6: no such setting: "
            'shared_bufers; did you mean "shared_buffers"?',
        )
    ]
    machine.unknown = {"work_mem", "hash_mem_multiplier"}
    assert not any(
        "refuses" in error.evidence for error in preflight.refusals(plan_asked(tmp_path), tmp_path)
    )


def test_plan_and_doctor_say_all_that_a_run_would_be_refused_for(
    machine: Machine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Cores, memory, each device: `plan` says so first and fails. Arms that are skipped are not
    counted.
    """
    machine.does_not_work = {"xfs": "mkfs.xfs not installed; no xfs"}
    device = f'[device]\nkind = "block"\npaths = ["{tmp_path}/a", "{tmp_path}/b"]\n'
    prealloc = (
        '{ use = "ext4", label = "prealloc", tuning.mysql = { innodb_extend_and_initialize = '
        "false } }"
    )
    text = PLAN.replace('"xfs"]', f'"xfs", {prealloc}]')
    text = text.replace("[engine]", f'memory = "16GiB"\n{device}[engine]\ncpus_server = "900"')
    path = write_file(tmp_path / "plan.toml", text)
    assert cli.run(["plan", str(path), "--results", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert (
        said.startswith("`dbbench run` would refuse this plan")
        and "1 setup, 1 cell, 1 block, 1 trial" in said
    )
    assert [
        part
        for part in (
            "prealloc: with postgres it is the same as ext4",
            "xfs: mkfs.xfs not installed; no xfs",
            "E213",
            "E213",
            f"{tmp_path}/a is missing",
            f"{tmp_path}/b is missing",
        )
        if part not in said
    ] == []
    assert cli.run(["plan", str(path), "--results", str(tmp_path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in document["refused"]] == ["E213", "E213", "E101", "E101"]
    assert set(document["skipped"]) == {"prealloc", "xfs"}
    rows = list(of_plan(str(path), [], tmp_path))
    # with E206: what could be installed
    assert [row.optional for row in rows] == [True] + [False] * 5


def test_plan_prints_the_share_of_the_rated_endurance(
    machine: Machine,
    tmp_path: Path,
    printed: Any,
) -> None:
    """Of the disk below the image: 30 TB were 3 % of its life."""
    machine.wear = WearFacts(30 * 10**12, 0.03, None)
    path = write_file(tmp_path / "plan.toml", PLAN)
    command = "plan", str(path), "--results", str(tmp_path)
    assert "of the disk's rated endurance" in " ".join(printed(*command, code=None).split())
    document = json.loads(printed(*command, "--json", code=None))
    (device,) = document["devices"]
    assert device["written_bytes"] == document["written_bytes"]
    assert device["endurance_share"] == pytest.approx(document["written_bytes"] / 10**15)


def test_space_is_added_up_by_disk(
    machine: Machine,
    tmp_path: Path,
    environ: dict[str, str],
) -> None:
    """Image, golden copies and results on one disk must fit together: 8 GiB + 1 GB here. A dataset
    that is larger than its device is an error before it is built.
    """
    environ["DBBENCH_CACHE"] = str(tmp_path / "cache")
    for machine.free_bytes, expected in ((9_000_000_000, [DiskTooSmall]), (10_500_000_000, [])):
        assert lacks(tmp_path) == expected
    text = (
        PLAN.replace("[engine]", '[device]\nsize = "400MiB"\n[engine]') + 'table_bytes = "1GiB"\n'
    )
    assert lacks(tmp_path, text) == [DiskTooSmall]


def test_directories_need_space_but_not_root(machine: Machine, tmp_path: Path) -> None:
    """Neither root nor mkfs is asked for; the directory is looked at. It needs space for the
    dataset, with InnoDB's redo log of 512 MiB, of one trial at a time; here with the copy.
    """
    machine.user = 1000
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    device = {"kind": "dir", "paths": {"ext4": f"{tmp_path}/a", "xfs": f"{tmp_path}/b"}}
    text = plan(["ext4", "xfs"], "mariadb", INSERTS, device=device)
    for machine.free_bytes, lacking in ((600 * 10**6, [DiskTooSmall]), (1900 * 10**6, [])):
        assert lacks(tmp_path, text) == lacking
    assert [kind.id for kind in lacks(tmp_path, text.replace(f"{tmp_path}/b", "/usr"))] == ["E101"]


def test_a_full_results_disk_names_the_command_that_resumes() -> None:
    """The error has the remedy of this command line."""
    with pytest.raises(FilesystemFull) as full, resumable("dbbench run p"):
        raise FilesystemFull("no space left")
    assert (
        full.value.remedy
        == "Free some disk space or correct the cause, then resume with:  dbbench run p"
    )


@pytest.mark.parametrize(
    ("stop", "kind"),
    [(KeyboardInterrupt(), Interrupted), (Terminated("SIGTERM"), Terminated)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_stopped_command_names_the_one_that_resumes(
    stop: BaseException,
    kind: type[Interrupted | Terminated],
) -> None:
    """Of each command, also of nightly run."""
    with pytest.raises(kind, match="the run was stopped") as stopped, resumable("dbbench run p"):
        raise stop
    assert stopped.value.remedy == "Resume it with:  dbbench run p"
