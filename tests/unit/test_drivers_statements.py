"""Scripts of SQL steps: their format, placeholders, the file of rows, and the result."""

from pathlib import Path

import pytest

from dbbench.drivers import statements
from dbbench.drivers.statements import SqlStep, parse
from dbbench.engines import SERVERS
from dbbench.errors import ScriptInvalid
from dbbench.metrics import summary
from dbbench.metrics.outcome import Outcome
from dbbench.metrics.series import Series
from dbbench.model import IoFacts
from dbbench.plan import catalog
from tests.support.plans import SHIPPED

TEXT = """-- A remark before the first step.
-- step fill; on postgres; untimed
INSERT INTO a VALUES (1);
INSERT INTO a
VALUES ('{colour}');
-- step clean up; each table
-- a remark within
VACUUM {table};
"""


def test_steps_are_read_with_their_comments() -> None:
    """Names may have spaces, statements several lines; a step of another engine is left out.
    Parameters are filled in, and tables left for later; a name that is no parameter is an error
    with its step.
    """
    fill, clean = parse(TEXT, "postgres")
    assert fill == SqlStep(
        "fill",
        ("INSERT INTO a VALUES (1)", "INSERT INTO a\nVALUES ('{colour}')"),
        ("postgres",),
        timed=False,
    )
    assert clean == SqlStep("clean up", ("VACUUM {table}",), each_table=True)
    assert parse(TEXT, "mariadb") == (clean,)
    assert fill.of({"colour": "red"}).statements[1].endswith("('red')")
    assert clean.of({}).statements == ("VACUUM {table}",)
    with pytest.raises(ScriptInvalid, match=r'"fill": \{colour\}'):
        fill.of({})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT 1;\n-- step a\nSELECT 1;", "SQL before the first"),
        ("-- step a; on oracle\nSELECT 1;", "oracle"),
        ("-- step a; quickly\nSELECT 1;", "quickly"),
        ("-- step a\n-- step b\nSELECT 1;", 'step "a" has no statement'),
        ("-- step a; untimed\nSELECT 1;", "no timed step"),
        ("-- step a\nSELECT 1;\n-- step b; untimed\nSELECT 1;", "follows a timed step"),
    ],
)
def test_what_is_not_a_script_is_refused_with_its_reason(text: str, says: str) -> None:
    """No step is guessed at."""
    with pytest.raises(ScriptInvalid, match=says):
        parse(text, "postgres")


@pytest.mark.parametrize("engine", SERVERS)
def test_every_shipped_script_has_its_steps_on_every_engine(engine: str) -> None:
    """With the parameters of its workload filled in."""
    for name in SHIPPED.workloads:
        if (workload := SHIPPED.workload(name)).driver == "statements":
            script = SHIPPED.script(workload)
            assert script is not None
            values = {**catalog.defaults(workload), "file": Path("/rows")}
            assert all(step.of(values).statements for step in parse(script.read_text(), engine)), (
                name
            )


def test_the_file_of_rows_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    """Whole rows of three columns, at least as many bytes as asked for."""
    one, same, other = (
        statements.write_rows(tmp_path / name, 50_000, seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert (
        (tmp_path / "a").read_bytes()
        == (tmp_path / "b").read_bytes()
        != (tmp_path / "c").read_bytes()
    )
    lines = (tmp_path / "a").read_text().splitlines()
    assert one == same == (tmp_path / "a").stat().st_size
    assert one - 50_000 < 300 and other
    assert {line.count("\t") for line in lines} == {2}
    assert [line.split("\t")[0] for line in lines] == [
        str(number) for number in range(1, len(lines) + 1)
    ]


def test_work_that_runs_to_its_end_has_rates_of_the_device() -> None:
    """Over its own seconds, all passes of a scan; what was not counted is None, and a fixed window
    has no duration.
    """
    ended = Outcome(0.0, 8.0, 0, 0, Series(8), None, {"duration_s": 4.0})
    assert summary.completion_summary(ended, 0.5, IoFacts(16_000_000, 4_000_000)) == {
        "device_read_mb_per_s": 2.0,
        "device_write_mb_per_s": 0.5,
        "drained_s": 4.5,
    }
    assert summary.completion_summary(ended, 0.5, IoFacts())["device_read_mb_per_s"] is None
    assert (
        summary.completion_summary(Outcome(0.0, 4.0, 9, 0, Series(4), None), 0.5, IoFacts(1, 1))
        == {}
    )
