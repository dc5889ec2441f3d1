"""Whether ratios differ between the levels of a factor: verdicts, intervals and what is printed."""

import math
from dataclasses import replace
from pathlib import Path

import calibration_factors
import numpy
import pytest
import synthetic
from calibration_factors import Factorial
from made_up import HOSTS
from synthetic import Shape

from dbbench.compare import Row
from dbbench.compare.interaction import Interaction, interactions
from dbbench.compare.interval import LogRatio
from dbbench.metrics.table import METRICS
from dbbench.model import DeviceLimit, FilesystemFacts, LimitFacts, Scalar, Trial, Verdict
from dbbench.report.page.charts.flush import flush_charts
from dbbench.report.page.html import build
from dbbench.report.sentences import interaction, plain_text
from dbbench.report.verdict_table import as_document, as_markdown, put_tables
from dbbench.report.verdicts import verdicts
from dbbench.units import GROUP

T_8_DF = 2.306004  # quantile of t for a two-sided 95 %, of a table


def row(arm: str, level: str, ratio: float, half: float | None = 0.02, **more: object) -> Row:
    """A row with a 95 % interval of that half width on the log scale, 8 degrees of freedom."""
    whole = Row(arm, "e", "w", value=100.0, ratio=ratio, n=5, variant=f"clients=8+f={level}")
    if arm == "a":
        whole = replace(whole, verdict=Verdict.BASELINE)
    if half is not None:
        error = half / T_8_DF
        whole = replace(
            whole,
            lo=ratio * math.exp(-half),
            hi=ratio * math.exp(half),
            level=0.95,
            log_ratio=LogRatio(math.log(ratio), error**2, 8.0),
        )
    return replace(whole, **more)  # type: ignore[arg-type]


LEVELS = {("e", "w", f"clients=8+f={level}"): {"f": level} for level in ("x", "y")}


def judged(*rows: Row) -> Interaction:
    """The only interaction of these rows and the baseline's."""
    (only,) = interactions([row("a", "x", 1.0), row("a", "y", 1.0), *rows], LEVELS, METRICS["tps"])
    return only


@pytest.mark.parametrize(
    ("ratios", "half", "verdict", "text"),
    [
        (
            (1.1, 0.9),
            0.02,
            "order-depends",
            "e w, clients=8: the order of the filesystems depends on f, compared",
        ),
        ((1.1, 1.3), 0.02, "ratio-depends", "the ratios of the filesystems depend on f"),
        ((1.2, 1.21), 0.01, "same", "do not depend on f: none changes by more than 5 %."),
        (
            (1.3, 1.31),
            0.1,
            "same-order",
            "same order at every level of f, compared with a: b is faster.",
        ),
        (
            (1.01, 1.02),
            0.1,
            "inconclusive",
            "the largest change is that of b to a, +1.0 % from x to y (CI",
        ),
        (
            (1.01, 1.02),
            None,
            "inconclusive",
            ": every combination needs a result of at least 3 blocks.",
        ),
    ],
)
def test_verdicts_of_planted_ratios(
    ratios: tuple[float, float],
    half: float | None,
    verdict: str,
    text: str,
) -> None:
    """The word and the sentence follow from the intervals."""
    found = judged(
        *(row("b", level, ratio, half) for level, ratio in zip("xy", ratios, strict=True))
    )
    assert found.verdict == verdict and text in plain_text(interaction(found))
    assert (found.variant, found.levels) == ("clients=8", ("x", "y"))


def test_the_interval_of_a_contrast_by_hand() -> None:
    """Two rows of equal error with 8 degrees each: √2 as wide at 16 degrees."""
    (contrast,) = judged(row("b", "x", 1.0), row("b", "y", 1.1)).contrasts
    assert contrast.df == pytest.approx(16) and contrast.confidence == 0.95
    half = 0.02 / T_8_DF * math.sqrt(2) * 2.119905
    assert (contrast.lo, contrast.hi) == pytest.approx(
        (1.1 * math.exp(-half), 1.1 * math.exp(half)), rel=1e-5
    )


def test_what_cannot_be_compared_has_no_word() -> None:
    """A combination that is missing, the device's ceiling, and another durability class."""
    assert judged(row("b", "x", 1.0)).contrasts == ()
    assert judged(row("b", "x", 1.0)).verdict == "inconclusive"
    limited = judged(row("b", "x", 1.0, verdict=Verdict.LIMITED), row("b", "y", 1.5))
    assert [contrast.verdict for contrast in limited.contrasts] == ["device-limited"]
    assert "the device was the limit" in plain_text(interaction(limited))
    assert judged(row("b", "x", 1.0, mixed_durability=True), row("b", "y", 1.5)).contrasts == ()


def test_interactions_are_calibrated() -> None:
    """Few false alarms, and +15 % is found; `benchmarks/calibration.py` measures it with more runs."""
    rng = numpy.random.default_rng(7)
    sets = 80
    runs = [
        calibration_factors.factor_run(HOSTS[0], Factorial(3, (2, 2)), 5, 1.0, rng)
        for _ in range(sets)
    ]
    assert (
        sum(any(one.verdict in calibration_factors.ALARMS for one in run) for run in runs)
        <= 0.15 * sets
    )
    runs = [
        calibration_factors.factor_run(HOSTS[0], Factorial(2, (2,)), 5, 1.15, rng)
        for _ in range(sets)
    ]
    assert sum(run[0].verdict in calibration_factors.ALARMS for run in runs) >= 0.9 * sets


def test_terminal_markdown_json_and_page_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence for each engine and workload, lines that cross, and rows for programs."""
    shape = Shape(
        arms=("ext4", "xfs"),
        work=(("mariadb", "oltp_read_write"),),
        blocks=5,
        crossed=True,
        noise=0.005,
    )
    loaded = synthetic.loaded(tmp_path, shape)
    compared = verdicts([loaded])
    (found,) = compared.interactions
    assert found.verdict == "order-depends"
    sentence = plain_text(interaction(found))
    assert sentence in as_markdown(compared).replace("\u202f", " ")
    put_tables(compared)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.endswith(f"{' '.join(sentence.split())} 20 trials count.")
    (entry,) = as_document(compared)["interactions"]
    assert (entry["factor"], entry["metric"], entry["levels"]) == ("binlog", "tps", [True, False])
    assert [contrast["verdict"] for contrast in entry["contrasts"]] == ["depends"]
    (parts,) = build([loaded]).verdict.factors
    assert plain_text(parts) == sentence


def delayed(trial: Trial) -> Trial:
    """That trial on a kernel that makes 25 ms of 20 ms."""
    limit = DeviceLimit(flush_ms=20 if trial.variant.endswith("flush20ms") else 0)
    layer = {"kind": "delay", "flush_measured_ms": 1.25 * limit.delays["flush"]}
    volume = FilesystemFacts("ext4", layers=(layer,))
    return replace(trial, limit=LimitFacts(limit), filesystem=volume)


def test_from_which_flush_on_the_filesystem_does_not_matter(tmp_path: Path) -> None:
    """Without a delay xfs is half as fast again, at 20 ms both are the same: a sentence and a chart."""
    limits = {"binlog=false": DeviceLimit(flush_ms=0), "binlog=true": DeviceLimit(flush_ms=20)}
    shape = Shape(
        arms=("ext4", "xfs"),
        work=(("mariadb", "oltp_read_write"),),
        blocks=5,
        crossed=True,
        noise=0.005,
        speeds=(("ext4", 1.0), ("xfs", 1.0)),
    )
    loaded = synthetic.loaded(tmp_path, shape)
    cells = []
    for cell in loaded.run.cells:
        limit = limits[cell.variant]
        levels: dict[str, Scalar] = {"limit": limit.name}
        cells.append(replace(cell, variant=f"limit={limit.name}", limit=limit, levels=levels))
    trials = [
        replace(trial, variant=f"limit={limits[trial.variant].name}") for trial in loaded.trials
    ]
    run = replace(loaded.run, cells=tuple(cells))
    loaded = replace(loaded, run=run, trials=tuple(trials))
    rounded = replace(loaded, trials=tuple(map(delayed, loaded.trials)))
    (sentence,) = build([rounded]).verdict.factors
    assert "**From 25 ms per flush on, the filesystem no longer matters**" in sentence
    section = build([loaded]).verdict
    (sentence,) = section.factors
    words = "**From 20 ms per flush on, the filesystem no longer matters**: every ratio is within"
    assert words in sentence and sentence.endswith("at 0 ms, xfs differs.")
    (chart,) = section.flushes
    assert [label for _, label in chart.along] == ["0", "20"]
    (line,) = chart.lines
    assert len(line.points) == 2 and line.points[0].y < line.points[1].y


def test_intervals_of_setups_stand_side_by_side() -> None:
    """They would cover each other at the same delay."""
    rows = [row(arm, level, 1.0) for arm in "bc" for level in "xy"]
    about = replace(judged(*rows), flush_ms={"x": 0, "y": 10})
    (chart,) = flush_charts([about], {})
    places = {line.points[0].x for line in chart.lines}
    assert len(places) == 2
    assert f"0{GROUP}%" in [text for _, text in chart.up]


def test_levels_with_the_same_delay_are_judged_together() -> None:
    """A kernel that delays by ticks of 10 ms makes 10 ms of 1 ms and of 5 ms."""
    found = judged(row("b", "x", 1.3), row("b", "y", 1.0))
    sentence = plain_text(interaction(replace(found, flush_ms={"x": 10, "y": 10})))
    assert sentence.endswith("The filesystem still matters at 10 ms per flush: b differs.")


@pytest.mark.parametrize(
    ("ratios", "half", "text"),
    [
        ((1.0, 1.0), 0.02, "The filesystem matters at none of these delays per flush"),
        ((1.3, 1.3), 0.02, "The filesystem still matters at 5 ms per flush: b differs."),
        ((1.3, 1.0), 0.2, "still matters at 5 ms per flush is inconclusive: levels"),
        ((1.0, 1.0), None, ""),
    ],
)
def test_flushes_that_decide_nothing(
    ratios: tuple[float, float], half: float | None, text: str
) -> None:
    """Alike or unlike everywhere, too wide, and without an interval."""
    found = judged(
        *(row("b", level, ratio, half) for level, ratio in zip("xy", ratios, strict=True))
    )
    before = plain_text(interaction(found))
    sentence = plain_text(interaction(replace(found, flush_ms={"x": 0, "y": 5})))
    assert sentence.startswith(before) and text in sentence
    assert text or sentence == before
