"""The short form of benchmarks/calibration.py: few series, so with a wide margin around the same targets."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import calibration
from calibration import HOSTS, SERIES, Figure, Host, Nights

SETS = 60
MARGIN = 0.09  # three standard errors of 5 % in 60 sets


def holds(figure: Figure) -> bool:
    """Whether the target is met but for chance."""
    if figure.limit is None:
        return True
    return figure.value <= figure.limit + MARGIN if figure.at_most else figure.value >= figure.limit - MARGIN


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_verdicts_are_calibrated(host: Host) -> None:
    """False alarms, power and coverage on each host."""
    figures = list(calibration.verdicts(host, SETS, numpy.random.default_rng(11)))
    assert len(figures) == 8
    assert [figure.line() for figure in figures if not holds(figure)] == []


def test_spread_over_unlike_hosts_is_calibrated() -> None:
    """Blocks dealt over hosts whose speeds differ by 30 %: false alarms, power, and when hosts are called unlike."""
    figures = list(calibration.fleet(SETS, numpy.random.default_rng(13)))
    assert len(figures) == 6
    assert [figure.line() for figure in figures if not holds(figure)] == []


@pytest.mark.parametrize("kind", [SERIES[1], SERIES[5], SERIES[6]], ids=lambda kind: kind.name)
def test_nights_are_calibrated(kind: Nights) -> None:
    """False alarms of quiet series and the place of steps."""
    figures = list(calibration.nightly(kind, 20, numpy.random.default_rng(12)))
    assert [figure.line() for figure in figures if not holds(figure)] == []
