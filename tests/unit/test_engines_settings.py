"""Settings: the effective value equals the requested one, in whatever unit it was written; features
of a version.
"""

import pytest

from dbbench.engines import ENGINES, profile_of
from dbbench.engines.serving import total
from dbbench.engines.settings import (
    Reported,
    Versions,
    keep_existing,
    numbers_of,
    own_cache_bytes,
    raise_sizes,
    refuse_differences,
    refuse_reservations,
    same_in_mysql,
    same_in_postgres,
    word,
)
from dbbench.errors import SettingRefused
from dbbench.model import Scalar, merge_settings
from dbbench.units import bytes_of


@pytest.mark.parametrize(
    ("asked", "value", "unit", "same"),
    [
        ("1GB", "131072", "8kB", True),
        ("256MB", "32768", "8kB", True),
        ("1024kB", "1", "MB", True),
        ("5min", "300", "s", True),
        ("60s", "60", "s", True),
        ("2ms", "2", "ms", True),
        ("0.5h", "1800", "s", True),
        (4096, "4096", "kB", True),
        (0.9, "0.9", "", True),
        (True, "on", "", True),
        ("true", "on", "", True),
        (1, "on", "", True),
        (False, "off", "", True),
        ("FDATASYNC", "fdatasync", "", True),
        ("on", "pglz", "", True),  # wal_compression = on
        (-1, "2048", "8kB", True),  # wal_buffers = -1: choose for me
        ("1234567B", "151", "8kB", True),  # rounded to whole units
        ("1GB", "16384", "8kB", False),
        ("5min", "30", "s", False),
        ("on", "off", "", False),
        (True, "off", "", False),
        (False, "on", "", False),
        ("fdatasync", "open_sync", "", False),
        (100, "101", "", False),
        (0.9, "0.5", "", False),
        ("on", "1", "s", False),
        ("1gb", "131072", "8kB", False),  # not a unit of PostgreSQL's
    ],
)
def test_postgres_value_is_the_one_asked_for(
    asked: Scalar,
    value: str,
    unit: str,
    same: bool,
) -> None:
    """Units are converted, on is true is 1, and -1 yields to what the server chose."""
    assert same_in_postgres(asked, Reported(value, unit)) is same


@pytest.mark.parametrize(
    ("asked", "value", "same"),
    [
        ("1G", "1073741824", True),
        ("256m", "268435456", True),
        (268435456, "268435456", True),
        (True, "ON", True),
        ("on", "ON", True),
        (1, "ON", True),
        (1, "1", True),
        (False, "OFF", True),
        (90, "90.000000", True),
        ("O_DIRECT", "O_DIRECT", True),
        ("none", "NONE", True),
        ("1G", "134217728", False),
        (True, "OFF", False),
        (2, "1", False),
        ("O_DIRECT", "fsync", False),
        (90, "90.5", False),
        ("ON", "DETECT_ONLY", False),
    ],
)
def test_mysql_value_is_the_one_asked_for(
    asked: Scalar,
    value: str,
    same: bool,
) -> None:
    """Size suffixes, booleans and decimals are the same thing written differently."""
    assert same_in_mysql(asked, Reported(value)) is same


def test_a_difference_is_refused_with_both_values_and_origin() -> None:
    """The refusal says what was asked, by whom, and what runs."""
    asked = merge_settings(("default", {"fsync": True}), ("plan", {"shared_buffers": "1GB"}))
    found = {"fsync": Reported("on"), "shared_buffers": Reported("16384", "8kB")}
    with pytest.raises(
        SettingRefused, match=r"shared_buffers = 1GB \(plan\): the server runs with 16384 × 8kB"
    ):
        refuse_differences(asked, found, same_in_postgres)


def test_no_remedy_is_to_change_a_default() -> None:
    """A default that the server reduced is due to a limit of the machine, which the server's log
    names.
    """
    asked = merge_settings(("default", {"table_open_cache": 2000}))
    found = {"table_open_cache": Reported("347"), "max_connections": Reported("100")}
    with pytest.raises(
        SettingRefused, match=r"2000 \(default\): the server runs with 347"
    ) as caught:
        refuse_differences(asked, found, same_in_mysql, "  Changed limits: max_open_files: 1024")
    assert "Changed limits: max_open_files: 1024" in caught.value.evidence
    assert "setting" not in (caught.value.remedy or "") and "Raise it" in (
        caught.value.remedy or ""
    )
    with pytest.raises(SettingRefused) as caught:
        refuse_differences(
            asked | merge_settings(("plan", {"max_connections": 300})),
            found,
            same_in_mysql,
        )
    assert "in the settings of the plan, or remove the setting there" in (caught.value.remedy or "")


def test_only_a_default_may_be_unknown_to_the_server() -> None:
    """A default that this version lacks is left out; a requested setting must exist."""
    refuse_differences(merge_settings(("default", {"io_method": "worker"})), {}, same_in_postgres)
    with pytest.raises(SettingRefused, match="no such setting"):
        refuse_differences(
            merge_settings(("fs_setup", {"io_method": "worker"})),
            {},
            same_in_postgres,
        )


def test_what_makes_the_server_private_cannot_be_set() -> None:
    """A plan that opens a port is refused before anything starts; a line break in a value would be
    another setting in the file.
    """
    with pytest.raises(SettingRefused):
        word("on'\nlisten_addresses='*")
    for name in ("listen_addresses", "Listen-Addresses", "loose_listen_addresses"):
        with pytest.raises(SettingRefused, match="is reserved: private"):
            refuse_reservations(
                merge_settings(("plan", {name: "*"})), {"listen_addresses": "private"}
            )


def test_sizes_that_dbbench_chose_fit_a_log_of_large_segments() -> None:
    """A value of the plan stays, and the server says what is wrong with it."""
    settings = merge_settings(
        ("default", {"min_wal_size": "80MB", "max_wal_size": "4GB"}),
        ("plan", {"other": "1MB"}),
    )
    raised = raise_sizes(settings, ("min_wal_size", "max_wal_size", "other"), 2**27)
    values = {name: setting.value for name, setting in raised.items()}
    assert values == {"min_wal_size": "128MB", "max_wal_size": "4GB", "other": "1MB"}


@pytest.mark.parametrize(
    ("name", "value", "bytes_"),
    [
        ("shared_buffers", "512MB", 512 * 2**20),
        ("shared_buffers", "1GB", 2**30),
        ("shared_buffers", 16384, 128 * 2**20),
        ("innodb_buffer_pool_size", 268435456, 2**28),
        ("innodb_buffer_pool_size", "1G", 2**30),
        ("shared_buffers", "much", None),
        ("work_mem", "4MB", None),
    ],
)
def test_the_servers_own_cache_in_bytes(
    name: str,
    value: Scalar,
    bytes_: int | None,
) -> None:
    """PostgreSQL's bare numbers are blocks of 8 KiB, InnoDB's bytes; what is not known is None."""
    assert own_cache_bytes(merge_settings(("plan", {name: value}))) == bytes_


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("15.18", (15, 18)),
        ("19rc1", (19,)),
        ("19beta1", (19,)),
        ("10.11.19-MariaDB-0", (10, 11, 19)),
        ("", ()),
    ],
)
def test_the_numbers_of_a_version(version: str, numbers: tuple[int, ...]) -> None:
    """What comes before the first letter; a release candidate belongs to its release."""
    assert numbers_of(version) == numbers


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        (Versions(), [(), (9,)], []),
        (Versions((18,)), [(18,), (18, 6), (20,)], [(17, 11)]),
        (Versions((18,), (18,)), [(18,), (18, 6)], [(17, 11), (19,)]),
        (Versions(last=(10,)), [(10, 11, 19)], [(11, 0, 1)]),
        (Versions((10, 11, 8)), [(10, 11, 8), (11, 4)], [(10, 11, 7), (10, 6, 20)]),
    ],
)
def test_versions_have_a_first_and_a_last(
    versions: Versions,
    inside: list[tuple[int, ...]],
    outside: list[tuple[int, ...]],
) -> None:
    """Both ends are included, with all releases below the numbers given."""
    assert [version in versions for version in inside] == [True] * len(inside)
    assert [version in versions for version in outside] == [False] * len(outside)


def test_a_default_can_be_dropped() -> None:
    """The value "default" of a later layer takes the setting away; a layer after it can set it
    again.
    """
    layers = (
        ("default", {"innodb_flush_method": "fsync", "b": 1}),
        ("plan", {"innodb-flush-method": "default"}),
    )
    assert merge_settings(*layers) == merge_settings(("default", {"b": 1}))
    again = {"innodb_flush_method": "O_DIRECT"}
    assert merge_settings(*layers, ("lab", {"b": "default", **again})) == merge_settings(
        ("lab", again)
    )


def test_what_a_version_has_not_is_left_out() -> None:
    """15 has neither io_method nor io_combine_limit, 17 the latter, 18 both; other settings are not
    told.
    """
    old = {"full_page_writes": "on", "port": "5432"}
    assert profile_of("postgres").shown(old) == {"full_page_writes": "on"}
    new = profile_of("postgres").shown({**old, "io_combine_limit": "128kB", "io_method": "worker"})
    assert new == {"io_method": "worker", "io_combine_limit": "128kB", "full_page_writes": "on"}
    assert profile_of("mariadb").shown({"innodb_use_atomic_writes": "ON"}) == {
        "innodb_use_atomic_writes": "ON"
    }


def test_an_engine_has_one_name_and_a_sum_all_of_its_parts() -> None:
    """The name in the registry is the profile's, and another profile is a blank one. A default that
    the server does not have is not recorded; names are compared as servers read them, and what a
    person asked for is recorded in any case. A part that is missing makes a sum unknown, not
    smaller.
    """
    assert {name: engine.PROFILE.name for name, engine in ENGINES.items()} == {
        name: name for name in ENGINES
    }
    assert profile_of("of-another-version").title == "of-another-version"
    asked = merge_settings(("default", {"io_workers": 3, "timezone": "UTC"}), ("plan", {"x.y": 1}))
    assert keep_existing(asked, {"TimeZone": "UTC"}).keys() == {"timezone", "x.y"}
    assert [total(found, "a", "b") for found in ({"a": 1, "b": 2}, {"a": 1}, {"b": 1})] == [
        3,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("unit", "bytes_"), [("k", 2**10), ("M", 2**20), ("G", 2**30), ("T", 2**40)]
)
def test_a_letter_is_a_binary_unit(unit: str, bytes_: int) -> None:
    """As for lvcreate, mkfs and fallocate; "GB" is decimal."""
    assert bytes_of(f"4{unit}") == 4 * bytes_
    assert bytes_of("4GB") == 4 * 10**9
