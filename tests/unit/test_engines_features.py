"""Features of a server that are reported with its version."""

from dbbench.engines import ENGINES, profile_of
from dbbench.engines.serving import total
from dbbench.engines.settings import keep_existing
from dbbench.model import merge_settings


def test_what_a_version_has_not_is_left_out() -> None:
    """15 has neither io_method nor io_combine_limit, 17 the latter, 18 both; other settings are not told."""
    old = {"full_page_writes": "on", "port": "5432"}
    assert profile_of("postgres").shown(old) == {"full_page_writes": "on"}
    new = profile_of("postgres").shown({**old, "io_combine_limit": "128kB", "io_method": "worker"})
    assert new == {"io_method": "worker", "io_combine_limit": "128kB", "full_page_writes": "on"}
    assert profile_of("mariadb").shown({"innodb_use_atomic_writes": "ON"}) == {"innodb_use_atomic_writes": "ON"}


def test_an_engine_has_one_name_and_a_sum_all_of_its_parts() -> None:
    """The name in the registry is the profile's, and another profile is a blank one. A default that the server does not
    have is not recorded; names are compared as servers read them, and what a person asked for is recorded in any case.
    A part that is missing makes a sum unknown, not smaller."""
    assert {name: engine.PROFILE.name for name, engine in ENGINES.items()} == {name: name for name in ENGINES}
    assert profile_of("of-another-version").title == "of-another-version"
    asked = merge_settings(("default", {"io_workers": 3, "timezone": "UTC"}), ("plan", {"x.y": 1}))
    assert keep_existing(asked, {"TimeZone": "UTC"}).keys() == {"timezone", "x.y"}
    assert [total(found, "a", "b") for found in ({"a": 1, "b": 2}, {"a": 1}, {"b": 1})] == [3, None, None]
