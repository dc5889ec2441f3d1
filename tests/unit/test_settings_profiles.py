"""Profiles of server settings: their settings, their sentences, and which results can be
compared.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import synthetic

from dbbench import plan, results
from dbbench.compare.remarks import texts
from dbbench.datasets import golden
from dbbench.engines import ENGINES, SERVERS, mysqld, postgres, postgres_server, profile_of
from dbbench.labs.powercut.targets import targets
from dbbench.metrics.outcome import Claim
from dbbench.model import Cell, Dataset, EngineSpec, FilesystemFacts, Trial, Work, merge_settings
from dbbench.nightly.night import night_of
from dbbench.plan import planned_conditions, writes
from dbbench.plan.server_settings import defaults, settings_of
from dbbench.process import User
from dbbench.report.verdicts import compare_groups, verdicts
from tests.support.judged import IO, Judged, outcome, readings
from tests.support.plans import SHIPPED, flaws_of, plan_of
from tests.support.plans import plan as written

READ_WRITE = {"name": "sysbench-oltp-read-write", "clients": 2}


def cells(
    folder: Path, engine: Any, workload: Any = "sysbench-oltp-read-write", **keys: Any
) -> tuple[Cell, ...]:
    """The cells of a plan."""
    return plan.expand(plan_of(folder, written("ext4", engine, workload, **keys)), SHIPPED).cells


def values(folder: Path, engine: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """The merged settings of a plan's only cell."""
    (cell,) = cells(folder, engine, **keys)
    return {name: setting.value for name, setting in settings_of(cell).items()}


def sentences(folder: Path, engine: dict[str, Any], **keys: Any) -> list[str]:
    """What `dbbench plan` says of the profile."""
    found = cells(folder, engine, **keys)
    asked = plan.load(folder / "plan.toml", SHIPPED)
    return [line for line in planned_conditions.sentences(asked, found) if " profile: " in line]


@pytest.mark.parametrize("engine", ["mariadb", "mysql"])
def test_production_has_a_binary_log_that_each_commit_is_flushed_to(
    engine: str, tmp_path: Path
) -> None:
    """It is the default; `standalone` is a server without it, and otherwise the same."""
    production = values(tmp_path, {"name": engine})
    standalone = values(tmp_path, {"name": engine, "profile": "standalone"})
    assert {name: production[name] for name in mysqld.BINLOG_STATED} == {
        "log_bin": True,
        "sync_binlog": 1,
        "binlog_format": "ROW",
    }
    assert standalone == {
        **{k: v for k, v in production.items() if k != "binlog_format"},
        "log_bin": False,
    }


def test_production_of_postgres_logs_for_replicas_and_tries_huge_pages(tmp_path: Path) -> None:
    """A limit of memory does not count huge pages, so they are off under one; a plan's own word is
    the last.
    """
    found = values(tmp_path, {"name": "postgres"})
    assert (found["wal_level"], found["archive_mode"], found["huge_pages"]) == (
        "replica",
        "off",
        "try",
    )
    assert values(tmp_path, {"name": "postgres", "profile": "standalone"})["huge_pages"] == "off"
    assert values(tmp_path, {"name": "postgres"}, memory="1GiB")["huge_pages"] == "off"
    forced = {"name": "postgres", "settings": {"huge_pages": "on"}}
    assert values(tmp_path, forced, memory="1GiB")["huge_pages"] == "on"
    assert (
        values(tmp_path, {"name": "postgres", "profile": "production-archive"})["archive_mode"]
        == "on"
    )
    assert (
        values(tmp_path, {"name": "postgres", "profile": "production-slot"})[postgres_server.SLOT]
        is True
    )


@pytest.mark.parametrize("engine", SERVERS)
def test_each_server_has_both_profiles_and_standalone_adds_nothing(engine: str) -> None:
    """So results of versions without profiles are those of a standalone server."""
    profiles = profile_of(engine).settings_profiles
    assert {"production", "standalone"} <= profiles.keys() and not profiles["standalone"]
    assert defaults(EngineSpec(engine), None) == ENGINES[engine].defaults(None)
    assert EngineSpec(engine).profile == "standalone"


def test_a_plan_states_the_profile_and_what_it_sets_in_one_line(tmp_path: Path) -> None:
    """With what overrides it."""
    assert sentences(tmp_path, {"name": "mariadb"}) == [
        "MariaDB runs with the production profile: log_bin = on, sync_binlog = 1, binlog_format "
        "= ROW."
    ]
    asked = plan.load(tmp_path / "plan.toml", SHIPPED)
    told = planned_conditions.sentences(asked, plan.expand(asked, SHIPPED).cells)
    assert any("of binary log in each trial, and is removed after it" in line for line in told)
    assert sentences(tmp_path, {"name": "mariadb", "profile": "standalone"}) == [
        "MariaDB runs with the standalone profile: log_bin = off, sync_binlog = 1."
    ]
    assert sentences(tmp_path, {"name": "mysql", "settings": {"sync_binlog": 0}}) == [
        "MySQL runs with the production profile: log_bin = on, sync_binlog = 0 (set by the "
        "plan), binlog_format = ROW."
    ]
    (line,) = sentences(tmp_path, {"name": "mariadb", "settings": {"log_bin": [True, False]}})
    assert "; or log_bin = off (set by the plan)" in line


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    """So is one for an engine without settings."""
    for name, profile, workload, flaw in (
        (
            "mariadb",
            "prodution",
            READ_WRITE,
            'MariaDB has no profile "prodution"; did you mean "production"',
        ),
        ("postgres", "x", "pgbench-tpcb", "production-archive"),
        (
            "files",
            "production",
            "small-files",
            '"profile" has no effect with an engine without a server',
        ),
    ):
        assert flaw in flaws_of(
            tmp_path, written("ext4", {"name": name, "profile": profile}, workload)
        )


@pytest.mark.starts_processes
def test_a_golden_copy_serves_every_profile(programs: Path) -> None:
    """It is built without durability in any case, so nothing is built anew."""
    for name in ENGINES["mariadb"].programs():
        (programs / Path(name).name).write_text(
            "#!/bin/sh\necho 'mariadbd  Ver 10.11.1-MariaDB for Linux'\n"
        )
        (programs / Path(name).name).chmod(0o755)
    profiles = "production", "standalone"
    one, other = (
        golden.recipe(EngineSpec("mariadb", profile=name), Dataset("sysbench")).key
        for name in profiles
    )
    assert one == other and "10.11.1" in one


def test_the_lab_examines_the_profile_of_the_plan(tmp_path: Path) -> None:
    """What a profile sets is not what a plan changed."""
    (target,), _ = targets(cells(tmp_path, {"name": "mariadb"}), 1, lambda _setup: None)
    assert target.settings["log_bin"].value is True and target.deciding == {}
    (target,), _ = targets(
        cells(tmp_path, {"name": "mariadb", "settings": {"log_bin": False}}),
        1,
        lambda _setup: None,
    )
    assert target.deciding == {"log_bin": False}


def test_the_binary_log_is_estimated(tmp_path: Path) -> None:
    """By the load's time, or by its work; a load that only reads has none, nor has a server without
    one.
    """

    def kept(engine: Any, workload: Any) -> dict[str, int]:
        (cell,) = cells(tmp_path, engine, workload, warmup="10s", measure="20s")
        return writes.kept_logs(cell)

    assert kept("mariadb", READ_WRITE) == {"binary log": 30 * writes.BINLOG_RATE}
    assert kept({"name": "mariadb", "profile": "standalone"}, READ_WRITE) == {}
    assert (
        kept("mysql", {"name": "sysbench-oltp-point-select"})
        == kept("mysql", {"name": "scan"})
        == {}
    )
    assert kept("mariadb", {"name": "copy-in", "tables": 2, "file_bytes": "64MiB"}) == {
        "binary log": 2**27
    }
    assert kept("postgres", "pgbench-tpcb") == {}
    assert kept({"name": "postgres", "profile": "production-archive"}, "pgbench-tpcb").keys() == {
        writes.ARCHIVE
    }
    assert kept({"name": "postgres", "profile": "production-slot"}, "pgbench-tpcb").keys() == {
        "kept WAL"
    }


def test_the_files_of_a_binary_log_and_their_purge(tmp_path: Path) -> None:
    """Without its index, and without MariaDB's index of each file. A purge leaves one: MariaDB
    keeps a log until InnoDB has flushed its commits, so the purge is repeated.
    """
    for name, size in (
        ("binlog.000001", 10),
        ("binlog.000002", 5),
        ("binlog.index", 7),
        ("binlog.000001.idx", 3),
    ):
        (tmp_path / name).write_bytes(bytes(size))
    assert sum(path.stat().st_size for path in mysqld.binlog_files(tmp_path / "binlog")) == 15
    assert mysqld.binlog_place({"log_bin": "ON", "log_bin_basename": "/data/binlog"}) == Path(
        "/data/binlog"
    )
    assert mysqld.binlog_place({"log_bin": "OFF", "log_bin_basename": "/data/binlog"}) is None
    there = [("b.1", 1), ("b.2", 2)]
    asked = list[str]()
    busy = [True]

    def ask(statement: str) -> list[Any]:
        asked.append(statement)
        if statement.startswith("FLUSH"):
            there.append(("b.3", 3))
        elif statement.startswith("PURGE") and not (busy and busy.pop()):
            del there[:-1]
        return list(there) if statement.startswith("SHOW") else []

    mysqld.purge_binlog(ask)
    assert there == [("b.3", 3)] and asked.count("PURGE BINARY LOGS TO 'b.3'") == 2


def test_an_archive_lies_beside_the_data(tmp_path: Path) -> None:
    """Unless the plan has a command of its own."""
    owner = User("", tmp_path.stat().st_uid, tmp_path.stat().st_gid)
    on = merge_settings(("default", {"archive_mode": "on"}))
    archive = tmp_path / "data.archive"
    assert postgres.archiving(on, tmp_path / "data", owner) == {
        "archive_command": f"test ! -f {archive}/%f && cp %p {archive}/%f"
    }
    assert archive.is_dir()
    own = merge_settings(("default", {"archive_mode": "on"}), ("plan", {"archive_command": "true"}))
    assert postgres.archiving(own, tmp_path / "data", owner) == {}
    assert (
        postgres.archiving(
            merge_settings(("default", {"archive_mode": "off"})),
            tmp_path / "x",
            owner,
        )
        == {}
    )


def commits(folder: Path, flushes: int, binlog_bytes: int | None, **facts: Any) -> Trial:
    """A trial of 3000 commits of 4 clients."""
    seen = Work(transactions=3000, log_bytes=10**6, writes=3000, binlog_bytes=binlog_bytes)
    claimed = dataclasses.replace(outcome(), claims=(Claim("transactions", 3000),), histogram=None)
    return Judged(
        claimed,
        readings(dataclasses.replace(IO, flushes=flushes), seen),
        facts=facts,
    ).trial(folder)


@pytest.mark.parametrize(
    ("log_bin", "flushes", "least", "error"),
    [
        ("OFF", 250, 181, None),
        ("ON", 250, 362, "E352"),
        ("ON", 650, 362, None),
    ],
)
def test_a_binary_log_needs_flushes_of_its_own(
    log_bin: str,
    flushes: int,
    least: int,
    error: str | None,
    tmp_path: Path,
) -> None:
    """3000 commits of 4 clients need 181 flushes of one log, and twice as many of two."""
    facts = {
        "effective_settings": {"log_bin": log_bin, "sync_binlog": "1"},
        "filesystem": FilesystemFacts("ext4"),
    }
    trial = commits(tmp_path, flushes, 10**6, **facts)
    assert (trial.error and trial.error.id) == error
    assert [fact.least for fact in trial.work if fact.count == "flushes"] == [least]


def test_commits_without_binary_log_fail_the_trial(tmp_path: Path) -> None:
    """None: there is no binary log."""
    for number, (binlog_bytes, error) in enumerate(((None, None), (10**6, None), (1000, "E352"))):
        trial = commits(tmp_path / str(number), 3000, binlog_bytes)
        assert (trial.error and trial.error.id) == error
    assert trial.error and "1000 bytes of binary log for 3000 commits" in trial.error.text


def loaded(folder: Path, profile: str | None) -> results.LoadedRun:
    """A run of one engine; `profile` None: of a version without profiles."""
    path = synthetic.write(
        folder, synthetic.Shape(work=(("mariadb", "sysbench-oltp-read-write"),), blocks=3)
    )
    spec = json.loads((path / "run.json").read_text())
    for engine in (*spec["plan"]["engine"], *(cell["engine"] for cell in spec["cells"])):
        engine.pop("profile")
        engine |= {} if profile is None else {"profile": profile}
    (path / "run.json").write_text(json.dumps(spec))
    for file in path.glob("*.sha256"):
        file.unlink()
    return results.load_run(path, verify=False)


def test_runs_of_different_profiles_are_not_compared_silently(tmp_path: Path) -> None:
    """Each row has a note, paired or not; runs of one profile have none. Results of earlier
    versions count as standalone, in the run and in its trials.
    """
    old = loaded(tmp_path / "a", None)
    new = loaded(tmp_path / "b", "production")
    assert {cell.engine.profile for cell in old.run.cells} == {"standalone"}
    assert Trial.__dataclass_fields__["profile"].default == "standalone"
    said = "the runs differ in the settings profile of mariadb (standalone and production)"
    for row in (row for table in verdicts([old, new]).tables for row in table.rows):
        assert said in texts(row.notes)
    versions = []
    for run, version in ((old, "1"), (new, "2")):
        trials = tuple(dataclasses.replace(trial, engine_version=version) for trial in run.trials)
        versions.append(dataclasses.replace(run, path=Path(version), trials=trials))
    for row in (
        row for table in compare_groups(versions, "engine_version").tables for row in table.rows
    ):
        assert said in texts(row.notes)
    for row in (row for table in verdicts([new, new]).tables for row in table.rows):
        assert not any("profile" in text for text in texts(row.notes))


def test_a_night_with_another_profile_says_so(tmp_path: Path) -> None:
    """The profile is one of a night's facts."""

    def of(profile: str) -> results.LoadedRun:
        return synthetic.with_trials(
            loaded(tmp_path / profile, profile), lambda _: {"profile": profile}
        )

    changes = night_of(of("production"), night_of(of("standalone"))).changes
    assert [(c.name, c.before, c.after) for c in changes if "profile" in c.name] == [
        ("mariadb settings profile", "standalone", "production")
    ]


def test_huge_pages_of_a_process_are_reported() -> None:
    """This process has none; of one that has ended nothing is known."""
    assert postgres_server.huge_pages(os.getpid()) in ("off", "unknown")
    assert postgres_server.huge_pages(2**30) == "unknown"
