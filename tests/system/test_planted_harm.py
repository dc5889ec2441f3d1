"""Planted faults are found, and targets without a fault are not accused. The faults are a disk that
loses one write of the log, and a server that ignores the error of a flush.
"""

from typing import Final

import pytest

from dbbench.labs.faults import parse
from dbbench.labs.harm.disk_faults import CONTROL, GIVEN, fail_once
from dbbench.labs.harm.rows import MARK
from dbbench.model import HarmCount, HarmOutcome
from tests.support.labs import lab_of
from tests.support.servers import open_folder
from tests.support.setups import shipped
from tests.support.swallowing import swallowing

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("root", "cc", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fs:xfs", "fs:btrfs"),
    pytest.mark.needs("engine:postgres", "engine:mariadb"),
    pytest.mark.usefixtures("nothing_left"),
]
ENGINES: Final = ("postgres", "mariadb", "mysql")
SETUPS: Final = ("ext4", "xfs", "btrfs")
# Of these numbers `make test-all` tries the first two, and `make soak` all.
PLANTED: Final = 20
CONTROLS: Final = 40
HARMS: Final = {
    HarmOutcome.LOST,
    HarmOutcome.UNRECOVERED,
    HarmOutcome.DAMAGED,
    HarmOutcome.TORN,
    HarmOutcome.FSCK,
}


def numbers(count: int) -> list[object]:
    """The numbers as parameters, of which all but two are left to the soak."""
    return [
        number
        if number < 2
        else pytest.param(number, marks=(pytest.mark.soak, pytest.mark.needs("engine:mysql")))
        for number in range(count)
    ]


def outcomes(number: int, action: str) -> list[HarmCount]:
    """What an attempt finds on the number's target: `action` with a write of a row, or "" for none.
    Every second server ignores errors.
    """
    ignores = number % 2 == 0
    engine = ENGINES[number // 2 % 3]
    setup = SETUPS[number // 6 % 3]
    shipped(setup)
    with open_folder() as folder, lab_of(setup, engine) as (lab, base):
        target = swallowing(base, folder) if ignores else base
        # Not the first writes, which may be of the table's creation, nor a late one of MySQL's, which
        # may be of its table, whose rows the log has.
        text = f"{action} write {3 + number % 10} with {MARK}"
        faults = parse(text) if action else ()
        column = GIVEN if action else CONTROL
        return fail_once(column, lambda _: faults, lab, target, f"planted-{number}")


@pytest.mark.parametrize("number", numbers(PLANTED))
def test_a_planted_fault_is_found(number: int) -> None:
    """Acknowledged rows are missing, and the table says so."""
    (noticed, after) = outcomes(number, "fail" if number % 2 == 0 else "lose")
    assert after.word in HARMS, (noticed, after)


@pytest.mark.parametrize("number", numbers(CONTROLS))
def test_a_target_without_a_fault_is_not_accused(number: int) -> None:
    """Also not a server that would ignore an error: there is none."""
    (control,) = outcomes(number, "")
    assert control.word is HarmOutcome.UNHARMED, control
