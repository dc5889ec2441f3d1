"""What of a server's version is told beside its number."""

from __future__ import annotations

from dbbench.engines import ENGINES
from dbbench.engines.features import MATTERS, features


def test_what_a_version_has_not_is_left_out() -> None:
    """15 has neither io_method nor io_combine_limit, 17 the latter, 18 both; other settings are not told."""
    old = {"full_page_writes": "on", "port": "5432"}
    assert features("postgres", old) == {"full_page_writes": "on"}
    new = features("postgres", {**old, "io_combine_limit": "128kB", "io_method": "worker"})
    assert new == {"io_method": "worker", "io_combine_limit": "128kB", "full_page_writes": "on"}
    assert features("mariadb", {"innodb_use_atomic_writes": "ON"}) == {"innodb_use_atomic_writes": "ON"}


def test_every_engine_has_its_own() -> None:
    """An engine that is registered says what matters in it."""
    assert MATTERS.keys() == ENGINES.keys()
