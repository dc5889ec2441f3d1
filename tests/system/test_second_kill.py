"""A server that is killed while it recovers from a kill, and starts a third time."""

import pytest

from dbbench.labs.harm.second_kill import COLUMN, kill_twice
from dbbench.model import HarmOutcome
from tests.support.labs import lab_of

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]


@pytest.mark.needs("mkfs.ext4", "engine:postgres")
def test_postgres_recovers_from_a_kill_during_its_recovery() -> None:
    """All acknowledged rows are there; the evidence says when it was killed."""
    with lab_of("ext4") as (lab, base):
        (count,) = kill_twice(lab, base, 1)
        assert sorted(path.name for path in lab.scratch.glob("*.img")) == ["base.img"]
    assert (count.column, count.word, count.of) == (COLUMN, HarmOutcome.UNHARMED, 1), count
    assert count.detail.startswith("killed after 0.")
