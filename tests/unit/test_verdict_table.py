"""The columns of the verdict table: one list for every export."""

import contextlib
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from synthetic import TPCB, Shape

from dbbench.commands.options import Options
from dbbench.commands.report import put_verdict
from dbbench.report.page.html import build, render
from dbbench.report.page.results import document
from dbbench.report.verdict_table import (
    COLUMNS,
    Column,
    as_csv,
    as_document,
    as_markdown,
    put_tables,
)
from dbbench.report.verdicts import Verdicts, verdicts
from tests.support.terminal import WideStream


@pytest.fixture
def win_share() -> Iterator[None]:
    """Add a column that dbbench does not have."""
    COLUMNS.append(
        Column(
            "win_share",
            "wins in %",
            lambda row, _: row.wins / max(1, row.n),
            lambda row, _: 100 * row.wins,
        )
    )
    yield
    COLUMNS.pop()


@pytest.mark.usefixtures("win_share")
def test_a_column_is_one_entry_and_appears_in_every_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terminal, Markdown, CSV, JSON, the table of the page, and its downloads."""
    run = synthetic.loaded(tmp_path, Shape(arms=("ext4", "xfs"), work=TPCB))
    tables = verdicts([run])
    wins = tables.tables[0].rows[1].wins
    put_tables(tables)
    ends = [
        line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("setup ", "xfs  "))
    ]
    assert ends == ["%", str(100 * wins)]
    assert "| wins in % |" in as_markdown(tables)
    assert [row["win_share"] for row in csv.DictReader(io.StringIO(as_csv(tables)))] == [
        "0.0",
        str(wins / 3),
    ]
    assert [row["win_share"] for row in as_document(tables)["rows"]] == [0.0, wins / 3]
    page = render([run])
    assert '<th scope="col" class="num">wins in %</th>' in page
    assert f'<td class="num">{100 * wins}</td>' in page
    model = build([run])
    download = document(model.comparisons[0].table)
    assert [row[download["columns"].index("win_share")] for row in download["rows"]][-1] == wins / 3
    assert model.results["compare"][0]["rows"][1]["win_share"] == wins / 3


LONG = (
    "ext4",
    "xfs",
    "btrfs-zstd+a-label-as-long-as-a-line-of-a-letter",
    "zfs-8k",
    "ext4-nobarrier",
)


def on_terminal(
    columns: int,
    tables: Verdicts,
    details: bool = False,
) -> list[str]:
    """The lines that a terminal of that width receives."""
    with WideStream(columns) as stdout, contextlib.redirect_stdout(stdout):
        put_tables(tables, details)
        return stdout.getvalue().splitlines()


@pytest.mark.parametrize("details", [False, True])
def test_a_terminal_of_80_columns(tmp_path: Path, details: bool) -> None:
    """No line is wider, whatever the setups are called, and no number is divided; a wider terminal
    is used.
    """
    run = synthetic.loaded(tmp_path, Shape(arms=LONG, noise=0.1))
    narrow = on_terminal(80, verdicts([run]), details)
    assert max(map(len, narrow)) <= 80
    assert not [
        line for line in narrow if re.search(r"^ *[./%]", line) or re.search(r"[+−]$", line)
    ]
    wide = on_terminal(200, verdicts([run]), details)
    assert 110 < max(map(len, wide)) <= 200 and len(wide) < len(narrow)
    assert any(line.startswith(LONG[2] + " ") for line in wide)


@pytest.mark.parametrize("columns", [40, 80])
def test_no_name_breaks_inside_a_word(tmp_path: Path, columns: int) -> None:
    """Where names do not fit beside each other, each setup is a paragraph."""
    arms = ("ext4", "zfs-8k-lz4-recordsize-atime-off", "ext4-nobarrier")
    run = synthetic.loaded(tmp_path, Shape(arms=arms, work=TPCB))
    lines = on_terminal(columns, verdicts([run]))
    words = {word for line in lines for word in line.split()}
    assert {*arms, "(differs)", "no-barrier"} <= words
    assert max(map(len, lines)) <= columns


def test_a_blank_line_is_above_the_remarks_of_all_tables(tmp_path: Path) -> None:
    """Also if the first of them is wider than the terminal."""
    run = synthetic.loaded(tmp_path, Shape(measure_s=90, work=TPCB))
    lines = on_terminal(50, verdicts([run]))
    number = next(number for number, line in enumerate(lines) if line.startswith("all results: "))
    assert lines[number - 1] == "" and len(lines[number]) <= 50


def test_remarks_of_all_setups_are_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A smoke test says in a sentence that its windows contain no checkpoint. Degrees of freedom
    and level need -v.
    """
    run = synthetic.loaded(tmp_path, Shape())
    put_tables(verdicts([run]))
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("too short to contain a checkpoint") == 1 and "burst" not in text
    assert "degrees of freedom" not in text and "level" not in text
    put_tables(verdicts([run]), details=True)
    assert "level 97.5 %, 2 degrees of freedom" in " ".join(capsys.readouterr().out.split())
    long = synthetic.loaded(tmp_path, Shape(name="long", measure_s=90, work=TPCB))
    put_tables(verdicts([long]))
    assert capsys.readouterr().out.count("all results: burst: no checkpoint") == 1


def test_a_count_of_several_setups_is_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of both together."""
    failed = [f"{arm}.postgres.pgbench-tpcb-b1-a1" for arm in ("ext4", "xfs")]
    run = synthetic.loaded(tmp_path, Shape(work=TPCB, failed=failed))
    put_tables(verdicts([run]))
    assert "\n  ext4 and xfs each: 1 failed\n" in capsys.readouterr().out


def test_warnings_are_one_table_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ID with its trials and what to do, without those that follow from the plan; of many
    failures, three.
    """
    names = [
        f"{arm}.postgres.pgbench-tpcb-b{block}-a1" for arm in ("ext4", "xfs") for block in (1, 2, 3)
    ]
    run = synthetic.loaded(tmp_path, Shape(work=TPCB, suspect=names[:1], failed=names[2:]))
    put_verdict(Options(), [run], Path("report.html"), {})
    text = capsys.readouterr().out
    assert re.search(r"^warning +trials +what to do$", text, re.MULTILINE)
    assert re.search(r"^W012 +1 +background load\. Stop the named process", text, re.MULTILINE)
    assert [line.split()[0] for line in text.splitlines() if re.match(r"W\d\d\d ", line)] == [
        "W012"
    ]
    counts = "6 trials count; 6 are left out: 1 disturbed, 1 of a repeated block and 4 failed."
    assert f"{counts}\nPage: report.html" in text
    assert text.count(" failed in measure: E402") == 3 and "and 1 more:  dbbench show demo" in text
    one = synthetic.loaded(tmp_path, Shape(name="one", arms=("ext4",), work=TPCB, blocks=1))
    put_verdict(Options(), [one], Path("report.html"), {})
    assert "\n1 trial counts.\nPage:" in capsys.readouterr().out
