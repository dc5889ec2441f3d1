"""Factors of a plan: their cells and their errors."""

import re
from pathlib import Path

import pytest

from dbbench.errors import PlanInvalid
from dbbench.machine import host
from dbbench.model import Scalar, Setting
from dbbench.plan import expand, identity, load
from dbbench.plan.planned_conditions import factor_sentences as plan_sentences
from dbbench.plan.request import able, of_plan
from dbbench.plan.server_settings import settings_of
from dbbench.run import preflight
from tests.support.files import write_file
from tests.support.plans import SHIPPED, plan, plan_of

PLAN = """\
name = "f"
fs_setups = ["ext4", "xfs"]
{factors}
[[engine]]
name = "postgres"
[[engine]]
name = "mariadb"
settings = {{ sync-binlog = 0 }}
[[workload]]
name = "pgbench-tpcb"
engines = ["postgres"]
[[workload]]
name = "sysbench-oltp-read-write"
engines = ["mariadb"]
"""
TWO = 'factors = { io_method = ["sync", "worker", "io_uring"], binlog = [true, false] }'


def written(folder: Path, factors: str) -> Path:
    """The file of a plan with these factors."""
    path = write_file(folder / "plan.toml", PLAN.format(factors=factors))
    return path


def test_each_engine_runs_every_combination_of_its_factors(tmp_path: Path) -> None:
    """io_method belongs to PostgreSQL and binlog to MariaDB; a combination is a variant, and
    carries its levels. A run is not continued with other factors.
    """
    swept = load(written(tmp_path, TWO), SHIPPED)
    cells = expand(swept, SHIPPED).cells
    assert len(cells) == 2 * 3 + 2 * 2
    assert {
        (cell.variant, *cell.levels.items()) for cell in cells if cell.engine.name == "postgres"
    } == {
        (f"io_method={method}", ("io_method", method)) for method in ("sync", "worker", "io_uring")
    }
    logged, unlogged = (
        settings_of(next(cell for cell in cells if cell.levels == {"binlog": level}))
        for level in (True, False)
    )
    assert logged["log_bin"] == Setting(True, "plan") and unlogged["log_bin"] == Setting(
        False, "plan"
    )
    # however the plan spells it
    assert logged["sync_binlog"].value == 1 and "sync-binlog" not in logged
    said = " ".join(plan_sentences(swept))
    assert "io_method sync, worker, io_uring. Each setup runs with 3" in said
    assert "binlog is not a factor of postgres." in said
    assert identity(swept, cells) != identity(load(written(tmp_path, ""), SHIPPED), cells)


@pytest.mark.parametrize(
    ("engine", "name", "levels"),
    [
        ("postgres", "file_extend_method", ("posix_fallocate", "write_zeros")),
        ("postgres", "file_copy_method", ("copy", "clone")),
        ("mysql", "innodb_extend_and_initialize", (True, False)),
    ],
)
def test_how_files_grow_can_be_a_factor(
    tmp_path: Path,
    engine: str,
    name: str,
    levels: tuple[Scalar, Scalar],
) -> None:
    """These settings are known although dbbench has no defaults for them."""
    text = plan("btrfs-zstd", engine, "bulk-insert", factors={name: levels})
    cells = expand(plan_of(tmp_path, text), SHIPPED).cells
    assert [settings_of(cell)[name] for cell in cells] == [
        Setting(level, "plan") for level in levels
    ]


@pytest.mark.parametrize(
    ("factors", "evidence"),
    [
        ("factors = { io_methode = ['sync', 'worker'] }", 'did you mean "io_method"'),
        ("factors = { whatever = [1, 2] }", "is not supported by engine"),
        ("factors = { io_method = ['sync'] }", "has one level"),
        ("factors = { io_method = [] }", "is an empty list"),
        ("factors = { io_method = ['sync', 'sync'] }", "lists 'sync' twice"),
        ("factors = { io_method = 'sync' }", "factors"),
        ("factors = { binlog = ['on', 'off'] }", 'the levels of "binlog" are true and false'),
        ("factors = { profile = ['production', 'fast'] }", 'no profile "fast"'),
        ("factors = { shared_buffers = ['64MiB', '128MB'] }", 'write "64MB"'),
        (
            "factors = { full_page_writes = [" + ",".join(f"'v{n}'" for n in range(300)) + "] }",
            "the limit is 200",
        ),
    ],
)
def test_wrong_factors_are_named(
    tmp_path: Path,
    factors: str,
    evidence: str,
) -> None:
    """Each error is found before anything runs."""
    with pytest.raises(PlanInvalid, match=re.escape(evidence)):
        load(written(tmp_path, factors), SHIPPED)


def test_many_factors_are_counted_not_built(tmp_path: Path) -> None:
    """Too many combinations are refused without making a list of them."""
    names = (
        "bgwriter_delay",
        "bgwriter_lru_maxpages",
        "io_workers",
        "jit",
        "io_method",
        "wal_buffers",
        "max_wal_size",
    )
    many = ", ".join(f"{name} = [{', '.join(map(str, range(200)))}]" for name in names)
    with pytest.raises(PlanInvalid, match=r"combinations of setup, engine and workload; at most"):
        load(written(tmp_path, f"factors = {{ {many} }}"), SHIPPED)


@pytest.fixture
def refused_io_uring(monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel without io_uring, and what it says."""
    reason = "the kernel refuses io_uring: sysctl kernel.io_uring_disabled is 2; 0 permits it"
    monkeypatch.setattr(host, "without_io_uring", lambda: reason)
    return reason


def test_a_level_that_the_kernel_refuses_is_skipped(tmp_path: Path, refused_io_uring: str) -> None:
    """Without io_uring the other levels run, and the sysctl is named."""
    path = written(
        tmp_path, f'{TWO}\n[device]\nkind = "dir"\npaths = {{ ext4 = "/a", xfs = "/b" }}'
    )
    wanted = able(of_plan(path.read_text(), load(path, SHIPPED), SHIPPED), [])
    assert wanted.skipped == {"io_method=io_uring": refused_io_uring}
    assert {cell.levels.get("io_method") for cell in wanted.expanded.cells} == {
        "sync",
        "worker",
        None,
    }


@pytest.mark.starts_processes
def test_a_setting_that_this_machine_cannot_have_is_refused(
    tmp_path: Path, refused_io_uring: str
) -> None:
    """What the server refuses, each setting with its origin, and io_uring where nothing else
    remains.
    """
    bin_ = server(tmp_path / "postgres", "15.18", "io_method", "file_extend_method")
    path = written(tmp_path, TWO)
    path.write_text(path.read_text().replace('"postgres"\n', f'"postgres"\nbin = "{bin_}"\n', 1))
    swept = load(path, SHIPPED)
    refused = [error.evidence for error in preflight.lacking(of_plan("", swept, SHIPPED), tmp_path)]
    assert f"io_method = io_uring is not possible: {refused_io_uring}" in refused
    assert (
        "PostgreSQL 15.18 refuses io_method = sync, set by the plan: no setting io_method"
        in refused
    )
    arm = {"use": "btrfs-zstd", "tuning": {"postgres": {"file_extend_method": "write_zeros"}}}
    tuned = plan_of(tmp_path, plan(arm, {"name": "postgres", "bin": bin_}, "bulk-insert"))
    refused = [error.evidence for error in preflight.lacking(of_plan("", tuned, SHIPPED), tmp_path)]
    assert [text for text in refused if "file_extend_method" in text] == [
        "PostgreSQL 15.18 refuses file_extend_method = write_zeros, set by the fs setup: no "
        "setting file_extend_method"
    ]


def server(program: Path, version: str, *absent: str) -> str:
    """Return the folder of a program that has the version of a server and refuses settings."""
    banner = (
        f"postgres (PostgreSQL) {version}"
        if program.name == "postgres"
        else f"mariadbd  Ver {version}-MariaDB"
    )
    refusals = [f"*--{name}=*) echo 'FATAL:  no setting {name}' >&2; exit 1;;\n" for name in absent]
    write_file(
        program, f"#!/bin/sh\ncase $* in\n{''.join(refusals)}*) echo '{banner}'\nesac\n"
    ).chmod(0o755)
    return str(program.parent)


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("engine", "version", "setting", "value", "lacks"),
    [
        (
            "postgres",
            "15.18",
            "file_extend_method",
            "write_zeros",
            "PostgreSQL 15.18 has no setting file_extend_method",
        ),
        ("postgres", "16.12", "file_extend_method", "write_zeros", None),
        (
            "postgres",
            "17.7",
            "file_extend_method",
            "write_zeros",
            "PostgreSQL 17.7 has no setting file_extend_method",
        ),
        ("postgres", "19beta1", "file_extend_method", "write_zeros", None),
        (
            "mariadb",
            "10.11.19",
            "innodb_doublewrite",
            "fast",
            "MariaDB 10.11.19 has no setting innodb_doublewrite=fast",
        ),
        ("mariadb", "11.4.2", "innodb_doublewrite", "fast", None),
        ("mariadb", "12.3.1", "innodb_doublewrite", "fast", None),
        ("mariadb", "10.11.19", "innodb_doublewrite", False, None),  # as old as the setting
    ],
)
def test_an_arm_whose_tuning_the_server_lacks_is_skipped(
    tmp_path: Path,
    engine: str,
    version: str,
    setting: str,
    value: Scalar,
    lacks: str | None,
) -> None:
    """With the setting and the version, also in minor releases, and for one value alone; the server
    would refuse to start.
    """
    bin_ = server(tmp_path / {"postgres": "postgres", "mariadb": "mariadbd"}[engine], version)
    tuned = {"use": "btrfs", "label": "tuned", "tuning": {engine: {setting: value}}}
    device = {"kind": "dir", "paths": {"btrfs": "/a", "tuned": "/b"}}
    text = plan(["btrfs", tuned], {"name": engine, "bin": bin_}, "bulk-insert", device=device)
    wanted = able(of_plan(text, plan_of(tmp_path, text), SHIPPED), [])
    assert wanted.skipped == ({"tuned": lacks} if lacks else {})


@pytest.mark.parametrize(
    ("value", "reason"), [("0", None), ("1", "is 1; 0"), ("2", "kernel.io_uring_disabled is 2")]
)
def test_the_sysctl_of_io_uring(
    tmp_path: Path,
    value: str,
    reason: str | None,
) -> None:
    """1 refuses it to a server too, which is not root; with 0 the call decides."""
    write_file(tmp_path / "proc/sys/kernel/io_uring_disabled", value)
    said = str(host.without_io_uring(tmp_path))
    assert reason in said if reason else "sysctl" not in said
