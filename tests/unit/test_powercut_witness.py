"""The witnesses of the power-loss lab: what must exist follows from the number of answers."""

from __future__ import annotations

from pathlib import Path

from dbbench.labs.powercut import disk_images, schema_changes, witness


def test_tables_after_each_step_of_a_round() -> None:
    """One table, filled, emptied, halved, renamed and removed; a cycle has eight steps."""
    states = [schema_changes.state(1, steps) for steps in range(11)]
    assert states[:4] == [{}, {"change_1_0": 0}, {"change_1_0": 800}, {"change_1_0": 800}]
    assert states[6:] == [
        {"change_1_0": 400},
        {"change_1_0_renamed": 400},
        {},
        {"change_1_1": 0},
        {"change_1_1": 800},
    ]


def test_copy_has_the_same_bytes_and_holes(tmp_path: Path) -> None:
    """A copy of a sparse file takes no more than it, also where the target had data before."""
    source, target, new = (tmp_path / name for name in "abc")
    target.write_bytes(b"y" * 3 * 2**20)
    with source.open("wb") as file:
        file.truncate(4 * 2**20)
        file.seek(2**20)
        file.write(b"x" * 5000)
    for each in (target, new):
        disk_images.copy(source, each)
        assert source.read_bytes() == each.read_bytes()
        assert each.stat().st_blocks <= source.stat().st_blocks
    assert new.stat().st_mode == source.stat().st_mode


def test_transactions_follow_from_their_number_and_answers_count_before_the_cut() -> None:
    """Two different accounts within the bank, an amount above 0, spread over most of the accounts.
    An answer at the moment of the cut is none.
    """
    moves = [witness.move(session, n) for session in range(4) for n in range(1, 5001)]
    assert all(m.debit != m.credit and 0 < m.amount < 98 for m in moves)
    assert {m.credit for m in moves} <= set(range(witness.ACCOUNTS))
    assert len({m.debit for m in moves}) > witness.ACCOUNTS / 4
    assert witness.move(3, 7) == witness.move(3, 7)
    seen = witness.Acknowledged({0: [10, 20, 30], 5: [15, 40]})
    assert seen.before(30) == {0: 2, 5: 1}
    assert seen.count == 5
    assert seen.rounds() == [(10, 30), (15, 40)]
