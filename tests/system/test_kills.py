"""A server that is killed while it recovers from a kill, or while its data directory is made."""

import pytest

from dbbench.labs.harm import ATTEMPTS, count_harms
from dbbench.model import HarmCount, HarmOutcome
from tests.support.labs import lab_of

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("nothing_left")]
POSTGRES = pytest.mark.needs("mkfs.ext4", "engine:postgres")


def tried(column: str, engine: str, rounds: int) -> list[HarmCount]:
    """The outcomes of the attempts that were made; the lab removes their disks. One whose work ends
    before the kill is no attempt.
    """
    with lab_of("ext4", engine) as (lab, base):
        counts = list(count_harms(lab, base, rounds, {column: ATTEMPTS[column]}))
        assert sorted(path.name for path in lab.scratch.glob("*.img")) == ["base.img"]
    made = [count for count in counts if count.of]
    assert {count.column for count in made} == {column}, counts
    return made


@POSTGRES
def test_postgres_recovers_from_a_kill_during_its_recovery() -> None:
    """All acknowledged rows are there; the evidence says when it was killed."""
    (made,) = tried("kill during recovery", "postgres", 2)
    assert made.word is HarmOutcome.UNHARMED, made
    assert made.detail.startswith("killed after 0.")


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("postgres", marks=POSTGRES),
        pytest.param("mariadb", marks=pytest.mark.needs("mkfs.ext4", "engine:mariadb")),
    ],
)
def test_a_server_does_not_start_on_half_a_data_directory(engine: str) -> None:
    """Who starts it sees that something is missing."""
    for made in tried("kill during initialization", engine, 2):
        assert made.word in (HarmOutcome.FAILS, HarmOutcome.UNHARMED), made
        assert made.detail.startswith("killed after ")
