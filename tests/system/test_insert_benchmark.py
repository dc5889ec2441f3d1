"""The insert benchmark as complete trials: one reaches its rate, one is made to miss it."""

from typing import Any, Final

import pytest

from tests.support.plans import plan

pytestmark = pytest.mark.needs("root", "mkfs.xfs", "fs:xfs", "sysbench", "sadf")
STEPS: Final = (
    "load_rows_per_s",
    "index_price_s",
    "index_shop_s",
    "index_customer_s",
    "insert_rows_per_s",
    "p95_ms",
)


def trial(dbbench: Any, engine: str, rate: int, **keys: Any) -> dict[str, Any]:
    """The only trial of a run with that rate."""
    load = {
        "name": "insert-benchmark",
        "rows": 20_000,
        "clients": 2,
        "batch": 10,
        "insert_rate": rate,
    }
    found = dbbench.trial(plan("xfs", engine, load, device={"size": "1GiB"}, **keys))
    assert found["error"] is None
    return dict(found)


@pytest.mark.needs("engine:mariadb")
def test_every_step_has_its_figure(dbbench: Any) -> None:
    """The server confirmed the work; every step has its figure in trial.json, on the terminal and
    on the page.

    The rate is less than one batch per window, so that a batch that a busy disk delays does not
    miss it.
    """
    reached = trial(dbbench, "mariadb", 3)
    assert "W153" not in {warning["id"] for warning in reached["warnings"]}
    assert {fact["count"] for fact in reached["work"]} >= {"statements", "rows"}
    summary = reached["summary"]
    assert all(
        summary[name] > 0 for name in (*STEPS, "queries_per_s") if name != "insert_rows_per_s"
    )
    assert summary["insert_rows_per_s"] is not None and summary["required_rows_per_s"] == 3
    shown = dbbench("show", "r", reached["id"]).stdout
    assert "rows loaded" in shown and "index on shop" in shown and "required_rows_per_s" in shown
    assert '"queries_per_s"' in dbbench("compare", "r", "--json").stdout
    dbbench("report", "r", "-o", "r.html")
    page = (dbbench.folder / "r.html").read_text()
    assert "Steps of the insert benchmark" in page and "Rows inserted" in page


@pytest.mark.needs("engine:postgres")
def test_a_rate_that_is_missed_fails_its_step(dbbench: Any) -> None:
    """The queries have no figure, and a warning says why; the trial is not suspect, so it is not
    repeated.
    """
    # a busy disk holds a batch for seconds
    missed = trial(dbbench, "postgres", 50_000_000, measure="6s")
    (warning,) = [warning for warning in missed["warnings"] if warning["id"] == "W153"]
    assert "50 000 000 rows/s are required" in warning["text"].replace(
        "\N{NARROW NO-BREAK SPACE}", " "
    )
    assert not warning["suspect"]
    summary = missed["summary"]
    assert summary["queries_per_s"] is None and all(summary[name] > 0 for name in STEPS)
    assert summary["insert_rows_per_s"] < 0.95 * summary["required_rows_per_s"] == 0.95 * 50_000_000
    compared = " ".join(dbbench("compare", "r").stdout.split())
    assert "the required rate of inserts was missed in 1 of 1 trials (W153)" in compared
    dbbench("report", "r", "-o", "r.html")
    assert "the required rate of inserts was missed" in (dbbench.folder / "r.html").read_text()
