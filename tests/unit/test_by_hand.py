"""The first screen of a page is what another program computes from the files of the trials."""

from dataclasses import replace
from pathlib import Path

import pytest

from dbbench.report.page.html import render
from dbbench.results import load_run
from dbbench.units import number
from tests import by_hand
from tests.fixtures import synthetic
from tests.fixtures.synthetic import Shape

WORK = (("postgres", "pgbench-tpcb"), ("mariadb", "oltp_read_write"))


def test_values_changes_and_intervals_of_the_page(tmp_path: Path) -> None:
    """Two groups of three setups and five blocks; one figure that is wrong is noticed."""
    shape = Shape(work=WORK, blocks=5, samplers=False, noise=0.05)
    folder = synthetic.write(tmp_path, shape)
    run = synthetic.with_trials(
        load_run(folder),
        lambda trial: {
            "summary": {
                **trial.summary,
                "tps": by_hand.throughput(folder / "trials" / trial.id),
            }
        },
    )
    assert by_hand.missing(folder, "ext4", render([run])) == []
    first = run.trials[0]
    summary = {**first.summary, "tps": (first.summary["tps"] or 0) * 1.05}
    wrong = replace(run, trials=(replace(first, summary=summary), *run.trials[1:]))
    assert by_hand.missing(folder, "ext4", render([wrong])) != []


@pytest.mark.parametrize("value", [77.0, 76.99999999999999, 77.00000000000001])
def test_a_whole_number_is_looked_for_without_decimals(value: float) -> None:
    """dbbench shows 77 and, where a mean of logarithms missed it by its last bit, 77.0."""
    assert by_hand.shown(by_hand.Line(value)) == ["77"]
    assert number(value) in ("77", "77.0")
