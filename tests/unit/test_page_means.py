"""One quantity has one value on the page, and every number says what it is."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.compare import means
from dbbench.model import DrainFacts, SpaceFacts
from dbbench.report.page.html import build
from dbbench.results import LoadedRun
from dbbench.units import GROUP, number

SPACE: Final = {"restore MB/s": "restore rate", "used on disk": "size on disk", "drain s": "drain"}


def scattered(run: LoadedRun) -> LoadedRun:
    """The run with figures that differ so much between the trials of an arm that different means
    are different texts, and with percentiles that are those of the histograms.
    """
    trials = []
    for trial in run.trials:
        scale = 1 + trial.block**2 / 10
        summary = {
            name: None if value is None else value * scale for name, value in trial.summary.items()
        }
        if histogram := run.histogram(trial):
            summary |= {f"p{percent}_ms": histogram.percentile_ms(percent) for percent in (95, 99)}
        space = dataclasses.replace(
            trial.space or SpaceFacts(), disk_bytes=round(summary["disk_bytes"] or 0)
        )
        drain = dataclasses.replace(trial.drain or DrainFacts(), drain_s=summary.get("drain_s"))
        trials.append(dataclasses.replace(trial, summary=summary, space=space, drain=drain))
    return dataclasses.replace(run, trials=tuple(trials))


def quantities(page: SimpleNamespace) -> Iterator[tuple[str, str, str]]:
    """Yield (quantity, arm, value) of the tables and panels of a page with one group."""
    (comparison,) = page.comparisons
    for row in comparison.table.rows:
        yield from ((heading.metric.label, row.arm.name, text) for heading, _, text, _ in row.cells)
    for latency in page.latencies:
        for line in latency.rows:
            yield from (
                (f"{name} latency", line.arm.name, number(line.percentiles[name]))
                for name in ("p95", "p99")
            )
    for space in page.space.rows:
        for heading, cell in zip(page.space.headings, space.cells, strict=True):
            yield SPACE.get(heading, heading), space.arm.name, cell
    for choice in page.choose.rows:
        yield "size on disk", choice.arm.name, choice.disk
        yield "CPU per transaction", choice.arm.name, choice.cpu.removesuffix(f"{GROUP}ms/tx")


@pytest.mark.parametrize(
    ("work", "often"),
    [
        (TPCB, {"CPU per transaction", "p95 latency", "p99 latency"}),
        ((("postgres", "scan"),), set()),
    ],
)
def test_a_page_shows_one_value_for_one_quantity(
    work: Any,
    often: set[str],
    tmp_path: Path,
) -> None:
    """The same mean in every table, panel and caption; many quantities are in several of them."""
    page = build([scattered(synthetic.loaded(tmp_path, Shape(work=work, blocks=4)))])
    shown: dict[tuple[str, str], list[str]] = {}
    for quantity, arm, value in quantities(page):
        if value != number(None):
            shown.setdefault((quantity, arm), []).append(value)
    assert {key: values for key, values in shown.items() if len(set(values)) > 1} == {}
    repeated = {quantity for (quantity, _), values in shown.items() if len(values) > 1}
    assert {*often, "size on disk"} <= repeated


def test_arms_have_the_same_kind_of_mean() -> None:
    """The geometric mean, to which the ratios belong; with a zero in one arm, the arithmetic mean
    in all.
    """
    assert means({"a": [1.0, 4.0], "b": [2.0, None, 8.0]}) == {
        "a": pytest.approx(2),
        "b": pytest.approx(4),
    }
    assert means({"a": [1.0, 4.0], "b": [0.0, 8.0]}) == {"a": 2.5, "b": 4.0}
    assert means({"a": [3.3, 3.3, 3.3], "b": [None]}) == {"a": 3.3, "b": None}


def test_captions_say_what_their_numbers_are(tmp_path: Path) -> None:
    """A median second, a mean of the window or of all requests, or a sum over all trials: nothing
    looks like a total that is none.
    """
    page = build([synthetic.loaded(tmp_path, Shape(work=TPCB, stalls=(10, 11)))])
    captions = {chart.ident: chart.caption for chart in page.comparisons[0].timelines.charts}
    assert "Median second of the window: ext4 " in captions["tps"]
    assert "in all trials together: ext4 " in captions["tps"]
    assert "Written, mean of the window: ext4 " in captions["disk"]
    assert "Flush, mean of all requests: ext4 " in captions["await"]
    facts = [
        fact for caption in captions.values() for fact in re.split(r"(?<=\.) (?=[A-Z])", caption)
    ]
    numbers = [fact for fact in facts if re.search(r": ext4 \d", fact)]
    assert len(numbers) > 8
    assert [
        fact
        for fact in numbers
        if not re.search("edian second|mean of|Mean of|in all trials", fact)
    ] == []
