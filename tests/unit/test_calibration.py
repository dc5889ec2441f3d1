"""The short form of benchmarks/calibration.py: few series, so with a wide margin around the same
targets.
"""

from pathlib import Path

import calibration
import calibration_sharing
import numpy
import precision
import pytest
from calibration import SERIES, Nights
from made_up import HOSTS, Figure, Host

SETS = 60
MARGIN = 0.09  # three standard errors of 5 % in 60 sets


def holds(figure: Figure) -> bool:
    """Whether the target is met but for chance."""
    if figure.limit is None:
        return True
    return (
        figure.value <= figure.limit + MARGIN
        if figure.at_most
        else figure.value >= figure.limit - MARGIN
    )


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_verdicts_are_calibrated(host: Host) -> None:
    """False alarms, power and coverage on each host."""
    figures = list(calibration.verdicts(host, SETS, numpy.random.default_rng(11)))
    assert len(figures) == 8
    assert [figure.line() for figure in figures if not holds(figure)] == []


def test_spread_over_unlike_hosts_is_calibrated() -> None:
    """Blocks dealt over hosts whose speeds differ by 30 %: false alarms, power, and when hosts are
    called unlike.
    """
    figures = list(calibration.fleet(SETS, numpy.random.default_rng(13)))
    assert len(figures) == 6
    assert [figure.line() for figure in figures if not holds(figure)] == []


@pytest.mark.parametrize("kind", [SERIES[1], SERIES[5], SERIES[6]], ids=lambda kind: kind.name)
def test_nights_are_calibrated(kind: Nights) -> None:
    """False alarms of quiet series and the place of steps."""
    figures = list(calibration.nightly(kind, 20, numpy.random.default_rng(12)))
    assert [figure.line() for figure in figures if not holds(figure)] == []


@pytest.mark.parametrize(
    "case",
    [
        calibration_sharing.STOPPING[3],
        calibration_sharing.STOPPING[5],
        calibration_sharing.STOPPING[22],
    ],
    ids=lambda case: case.text,
)
def test_decided_arms_stop_without_harm(case: calibration_sharing.Case) -> None:
    """False alarms, coverage and bias, if decided arms are not measured again; a third of the
    trials is saved.
    """
    figures = list(calibration_sharing.stopping(case, 40, numpy.random.default_rng(14)))
    assert [figure.line() for figure in figures if not holds(figure)] == []
    assert figures[2].value < 0.01 and figures[3].value > 0.3


def test_a_recorded_run_needs_less_time_for_the_same_precision(tmp_path: Path) -> None:
    """Its btrfs is decided early; within a budget its time goes to the others."""
    draw = precision.replayed(
        precision.recorded_values(precision.RECORDED), numpy.random.default_rng(15)
    )
    run = precision.make_run(tmp_path, draw(1))
    shares = [share for _, share in precision.compare_precisions("recorded", run, draw, 6)]
    assert len(shares) == 2 and max(shares) < 0.9
    values = draw(60)
    plan = precision.dataclasses.replace(run.plan, budget_s=580.0)
    budget = precision.Budget(cell_s={cell.id: precision.TRIAL_S for cell in run.cells})
    end, _ = precision.by_run(precision.dataclasses.replace(run, plan=plan, budget=budget), values)
    count = {arm: sum(spec.cell.startswith(arm) for spec in end.order) for arm in ("btrfs", "xfs")}
    assert end.budget is not None and end.budget.ended == "time"
    assert count["btrfs"] < count["xfs"]
