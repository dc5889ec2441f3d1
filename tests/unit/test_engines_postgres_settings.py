"""PostgreSQL's settings by version, its configuration, and the files of its data directory."""

from pathlib import Path

import pytest

from dbbench.engines import ENGINES, postgres, profile_of
from dbbench.engines.port import Engine, Place, Server
from dbbench.engines.postgres_counters import (
    SOURCES,
)
from dbbench.engines.postgres_server import ready
from dbbench.engines.settings import EVERY_VERSION, absent_defaults, keep_existing
from dbbench.model import merge_settings
from tests.support.files import write_file


@pytest.mark.parametrize(
    ("engine", "version"), [("postgres", "20beta1"), ("mariadb", "12.3.1"), ("mysql", "9.8.0")]
)
def test_a_newer_release_than_the_tested_ones_is_reported(engine: str, version: str) -> None:
    """W147 alone, and the trial counts; the newest tested release has no warning."""
    newest = ".".join(map(str, profile_of(engine).newest)) + (
        ".99" if engine != "postgres" else "rc1"
    )
    place = Place(Path(), Path())
    newer, tested = (Server(profile_of(engine), place, number) for number in (version, newest))
    (warning,) = newer.warnings()
    assert (warning.id, warning.suspect) == ("W147", False)
    assert tested.warnings() == ()


@pytest.mark.parametrize(
    ("version", "has", "has_not"),
    [
        (
            "14.1",
            {"default_toast_compression"},
            {"io_method", "io_workers", "io_min_workers", "io_combine_limit"},
        ),
        (
            "17.11",
            {"io_combine_limit", "vacuum_buffer_usage_limit"},
            {"io_method", "io_workers", "io_min_workers"},
        ),
        ("18.6", {"io_method", "io_workers"}, {"io_min_workers", "io_max_workers"}),
        ("19rc1", {"io_method", "io_min_workers", "io_max_workers"}, {"io_workers"}),
        ("20.1", {"io_method", "io_min_workers", "io_max_workers"}, {"io_workers"}),
    ],
)
def test_a_default_has_a_first_and_a_last_version(
    version: str,
    has: set[str],
    has_not: set[str],
) -> None:
    """Defaults that a version does not have are left out; what a person asked for is not."""
    plan = {"io_workers": 5} if version == "14.1" else {}
    asked = merge_settings(("default", postgres.defaults(None)), ("plan", plan))
    missing = absent_defaults(asked, (), version, postgres.PROFILE.versions)
    assert has <= set(missing) and not has_not & set(missing)
    assert ("io_workers" in keep_existing(asked, ())) == (version == "14.1")


def test_every_setting_with_versions_is_a_default_or_a_feature() -> None:
    """A row for a setting that is neither any more would hold nothing. Setups and plans may set the
    features.
    """
    assert postgres.PROFILE.versions.keys() <= {
        *postgres.defaults(None),
        *postgres.PROFILE.features,
    }
    assert [source for source in SOURCES if source.versions == EVERY_VERSION] != []


def test_a_window_holds_two_timed_checkpoints() -> None:
    """checkpoint_timeout is half the window, never below the server's least; the log's size starts
    none.
    """
    assert postgres.window_settings(60, 120) == {"checkpoint_timeout": "60s", "max_wal_size": "1TB"}
    assert postgres.window_settings(5, 20)["checkpoint_timeout"] == "30s"


def test_a_quote_stays_within_its_setting() -> None:
    """Quotes and backslashes of a value are doubled, and the origin is beside it."""
    lines = postgres._config(merge_settings(("plan", {"search_path": "it's \\ x"})), {"port": 5432})
    assert "search_path = 'it''s \\\\ x'  # plan" in lines.splitlines()
    assert "port = '5432'  # private" in lines.splitlines()


def test_data_files_are_tables_and_indexes(tmp_path: Path) -> None:
    """Files of relations with their forks and segments; no log, no version file, no map."""
    wanted = ["base/5/1259", "base/5/1259_fsm", "base/5/16384.1", "base/16400/2619_vm"]
    other = [
        "base/5/PG_VERSION",
        "base/5/pg_filenode.map",
        "pg_wal/000000010000000000000001",
        "global/1262",
    ]
    for name in wanted + other:
        write_file(tmp_path / name)
    assert sorted(
        str(path.relative_to(tmp_path)) for path in postgres.data_files(tmp_path)
    ) == sorted(wanted)


def test_a_pid_file_of_another_server_is_not_ready(tmp_path: Path) -> None:
    """Line 8 says ready, and line 1 says who: what a crashed server left does not count."""
    assert not ready(10, tmp_path)
    (tmp_path / "postmaster.pid").write_text("10\n/d\n1\n5432\n/s\n\n1 2\nready   \n")
    assert ready(10, tmp_path)
    assert not ready(11, tmp_path)


def test_every_engine_of_a_plan_is_registered() -> None:
    """One line an engine; all give the same verbs."""
    assert list(ENGINES) == ["postgres", "mariadb", "mysql", "files"]
    verbs = [name for name in vars(Engine) if not name.startswith("_")]
    assert [
        f"{name}.{verb}" for name, e in ENGINES.items() for verb in verbs if not hasattr(e, verb)
    ] == []
