"""A server that is killed while it recovers from a kill, and starts a third time."""

import pytest

from dbbench.labs.harm.second_kill import COLUMN, kill_twice
from dbbench.model import HarmOutcome
from tests.support.labs import lab_of

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.needs("mkfs.ext4", "engine:postgres")
def test_postgres_recovers_from_a_kill_during_its_recovery() -> None:
    """All acknowledged rows are there; the evidence says when it was killed. A recovery that ends
    before the kill is no attempt.
    """
    with lab_of("ext4") as (lab, base):
        counts = kill_twice(lab, base, 2)
        assert sorted(path.name for path in lab.scratch.glob("*.img")) == ["base.img"]
    tried = next(count for count in counts if count.of)
    assert (tried.column, tried.word) == (COLUMN, HarmOutcome.UNHARMED), counts
    assert tried.detail.startswith("killed after 0.")
