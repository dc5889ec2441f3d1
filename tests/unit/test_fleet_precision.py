"""`fleet run --spread --until-precision`: further blocks over all hosts, whole, until each question is answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from dbbench import results
from dbbench.fleet import dealing, ledger
from dbbench.fleet.coordinator import Coordinator
from dbbench.fleet.ledger import Fleet
from dbbench.fleet.messages import Deal, Question
from dbbench.model import Run, TrialSpec
from dbbench.report.progress.event import ignore
from dbbench.run.adaptive import LEAST
from tests.support.fleet_hosts import Hosts

NAMES = ["a", "b"]


@pytest.fixture
def hosts(tmp_path: Path, make_run: Callable[..., Run]) -> Hosts:
    """Two made-up hosts of a new fleet: two arms in two blocks, each figure the same in every trial, asked for 5 %."""
    one = make_run()
    cells = tuple(dataclasses.replace(one.cells[0], id=f"{arm}.postgres.w", arm=arm) for arm in ("ext4", "xfs"))
    order = tuple(TrialSpec(f"{cell.id}-b{block}-a1", cell.id, block, 1, 2 * block + i - 1)
                  for block in (1, 2) for i, cell in enumerate(cells))  # fmt: skip
    run = dataclasses.replace(one, name="f", cells=cells, order=order, precision=0.05)
    fleet = Fleet("f", "spread", "2026-01-01T00:00:00Z", "cafe", dealing.deal(order, NAMES, "spread"))
    ledger.save(tmp_path, fleet)
    ledger.create_runs(tmp_path, fleet, run, "# plan\n", {})
    return Hosts(NAMES, tmp_path / "hosts")


def coordinator(results_folder: Path, hosts: Hosts) -> Coordinator:
    """One at work, or the next one."""
    return Coordinator(results_folder, ledger.load(results_folder, "f"), "", {}, hosts, ignore, clock=hosts.clock)


def test_blocks_are_added_whole_until_all_is_settled(tmp_path: Path, hosts: Hosts) -> None:
    """One to each host at a time, as on one machine: from LEAST pairs on, and no further. Hosts decide nothing."""
    coordinator(tmp_path, hosts).work()
    run = results.load_run(tmp_path / "f")
    assert run.unfinished == [] and ledger.load(tmp_path, "f").finished
    assert {spec.block for spec in run.run.order} == set(range(1, LEAST + 2))  # two at a time
    assert run.run.settled == {"xfs.postgres.w": f"settled after {LEAST + 1} pairs: ±0.0 % at 98 %"}
    by_block = {block: {t.host for t in run.trials if t.block == block} for block in range(1, LEAST + 2)}
    assert list(by_block.values()) == [{"a"}, {"b"}] * 3


def test_next_coordinator_deals_what_was_added(tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was killed between the longer order and its dealing leaves blocks that nobody has."""
    first = coordinator(tmp_path, hosts)

    def killed(_dealt: object, run: Run, _gone: object) -> None:
        raise SystemExit(len(run.order))

    monkeypatch.setattr(first, "_deal_again", killed)
    with pytest.raises(SystemExit, match="8"):
        first.work()
    assert len(results.load_spec(tmp_path / "f").order) == 8
    second = coordinator(tmp_path, hosts)
    second.work()
    assert results.load_run(tmp_path / "f").unfinished == []
    assert sorted(block for mine in second.fleet.dealing.values() for block in mine) == list(range(1, LEAST + 2))


def test_hosts_are_not_asked_for_the_precision(tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that added blocks by itself would drive those of another."""
    asked, ask = list[Question](), hosts.ask
    monkeypatch.setattr(hosts, "ask", lambda host, question: (asked.append(question), ask(host, question)))
    coordinator(tmp_path, hosts).work()
    assert {results.parsed_spec(deal.spec).precision for deal in asked if isinstance(deal, Deal)} == {None}
    assert results.load_spec(tmp_path / "f").precision == 0.05
