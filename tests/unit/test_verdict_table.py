"""The columns of the verdict table: one list for every export."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import synthetic
from synthetic import Shape

from dbbench.report.page.html import build, render
from dbbench.report.verdict_table import COLUMNS, Column, as_csv, as_document, as_markdown, put_tables
from dbbench.report.verdicts import verdicts
from dbbench.results import load_run


@pytest.fixture
def win_share() -> Iterator[None]:
    """Add a column that dbbench does not have."""
    COLUMNS.append(
        Column("win_share", "wins in %", lambda row, _: row.wins / max(1, row.n), lambda row, _: 100 * row.wins)
    )
    yield
    COLUMNS.pop()


@pytest.mark.usefixtures("win_share")
def test_a_column_is_one_entry_and_appears_in_every_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal, Markdown, CSV, JSON, the table of the page, and its downloads."""
    run = load_run(synthetic.write(tmp_path, Shape(arms=("ext4", "xfs"), work=(("postgres", "pgbench-tpcb"),))))
    tables = verdicts([run])
    wins = tables.tables[0].rows[1].wins
    put_tables(tables)
    ends = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.startswith(("setup ", "xfs  "))]
    assert ends == ["%", str(100 * wins)]
    assert "| wins in % |" in as_markdown(tables)
    assert [row["win_share"] for row in csv.DictReader(io.StringIO(as_csv(tables)))] == ["0.0", str(wins / 3)]
    assert [row["win_share"] for row in as_document(tables)["rows"]] == [0.0, wins / 3]
    page = render([run])
    assert '<th scope="col" class="num">wins in %</th>' in page
    assert f'data-label="wins in %">{100 * wins}</td>' in page
    model = build([run])
    download = model.comparisons[0].table.raw()
    assert [row[download["columns"].index("win_share")] for row in download["rows"]][-1] == wins / 3
    assert model.results["compare"][0]["rows"][1]["win_share"] == wins / 3
