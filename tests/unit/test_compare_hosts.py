"""The same question on several hosts: per-host ratios, and a test of whether they agree."""

import math

import numpy
import pytest
import scipy.stats

from dbbench.compare.interval import Estimate, estimate
from dbbench.compare.unpaired import by_host, heterogeneity
from dbbench.model import Trial
from tests.support.trials import trial


def trials(
    ratios: dict[str, float],
    blocks: int,
    speeds: dict[str, float],
    sd: float,
    seed: int = 1,
) -> list[Trial]:
    """Two arms on hosts of those speeds and ratios."""
    rng = numpy.random.default_rng(seed)
    found = []
    block = 0
    for host, ratio in ratios.items():
        for _ in range(blocks):
            block += 1
            for arm, level in (("a", 1.0), ("b", ratio)):
                tps = 1000 * speeds.get(host, 1.0) * level * math.exp(rng.normal(0, sd))
                found.append(trial(arm, block, tps, host=host, position=len(found)))
    return found


def test_q_is_the_one_way_f_test() -> None:
    """Q ÷ (k − 1) is F of a one-way analysis of variance of the blocks' differences by host."""
    rng = numpy.random.default_rng(3)
    hosts = [rng.normal(0, 0.05, n) for n in (4, 3, 6)]
    found = heterogeneity(
        [estimate([(1.0, math.exp(d)) for d in differences]) for differences in hosts]
    )
    expected = scipy.stats.f_oneway(*hosts)
    assert found is not None
    assert (found.q / found.df, found.p) == pytest.approx((expected.statistic, expected.pvalue))


def test_hosts_of_unlike_speed_agree() -> None:
    """A host that is half as fast has the same ratio: its speed cancels within the block."""
    (found,) = by_host(
        trials({"x": 0.8, "y": 0.8, "z": 0.8}, 5, {"x": 0.5, "z": 2.0}, 0.02),
        "a",
        "tps",
    )
    assert found.spread is not None and not found.spread.disagree
    assert [host.ratio for host in found.hosts] == pytest.approx([0.8] * 3, rel=0.05)
    assert [(host.host, host.n) for host in found.hosts] == [("x", 5), ("y", 5), ("z", 5)]


def test_hosts_that_disagree_are_found() -> None:
    """Faster on one host and slower on the other."""
    (found,) = by_host(trials({"x": 1.2, "y": 0.8}, 5, {}, 0.02), "a", "tps")
    assert found.spread is not None and found.spread.disagree and found.spread.i2 > 0.9


def test_one_block_a_host_says_nothing() -> None:
    """Without a second block on any host, scatter and disagreement cannot be distinguished. A
    single host is not compared.
    """
    (found,) = by_host(trials({"x": 1.2, "y": 0.8}, 1, {}, 0.02), "a", "tps")
    assert found.spread is None
    assert {host.lo for host in found.hosts} == {None}
    assert by_host(trials({"x": 1.2}, 5, {}, 0.02), "a", "tps") == []


def test_without_scatter() -> None:
    """Equal hosts agree, others do not; no division by zero."""
    same = Estimate(3, 0.1, 0.0)
    other = Estimate(3, 0.2, 0.0)
    agreeing = heterogeneity([same, same])
    unlike = heterogeneity([same, other])
    assert agreeing is not None and unlike is not None
    assert (agreeing.disagree, unlike.disagree) == (False, True)


def test_hosts_that_agree_are_called_unlike_in_one_of_twenty() -> None:
    """Four hosts with three blocks each: 5 % by design, within three standard errors at 1000
    sets.
    """
    rng = numpy.random.default_rng(7)
    found = [
        heterogeneity(
            [estimate([(1.0, math.exp(d)) for d in rng.normal(0, 0.05, 3)]) for _ in range(4)]
        )
        for _ in range(1000)
    ]
    assert 0.029 <= sum(one.disagree for one in found if one) / 1000 <= 0.071
