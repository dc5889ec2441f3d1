"""A workload that is made of recorded statements: values, scripts and the command."""

import itertools
import random
import re
import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dbbench import cli
from dbbench.errors import ScriptInvalid
from dbbench.introspect.recordings import LEFT_OUT, RecordedStatements, Statement, read
from dbbench.introspect.values import Placeholder, parameters_of, samples_of
from dbbench.introspect.writing import choose, files_of
from dbbench.plan.catalog import catalog
from dbbench.results.merging import decoding, keep_scripts
from tests.support.plans import plan
from tests.unit.test_recorded import DATA, FIXTURES, left_out, logged, sample, slow, why


def test_columns_and_tables_are_found() -> None:
    """What a parameter is compared with, what it sets, and where it may lie."""
    parameters, tables = parameters_of(
        'UPDATE shop.orders AS o SET paid = $1, n = n + $5 FROM "item" WHERE o."id" = $12 AND n '
        "BETWEEN $2 AND $3"
    )
    assert {n: each.column for n, each in parameters.items()} == {
        1: "paid",
        5: "",
        12: "id",
        2: "n",
        3: "n",
    }
    assert tables == ("orders", "item") and parameters[3].after == 2
    parameters, _ = parameters_of("INSERT INTO a (b, c) VALUES ($1,$2),($3, date $4)")
    assert {n: (each.column, each.type) for n, each in parameters.items()} == {
        1: ("b", ""),
        2: ("c", ""),
        3: ("b", ""),
        4: ("c", "DATE"),
    }
    parameters, _ = parameters_of(
        "SELECT a FROM b WHERE t >= $1 AND c = $2 AND t < $3 LIMIT $4 OFFSET $5"
    )
    assert [(each.after, each.rows) for _, each in sorted(parameters.items())] == [
        (0, None),
        (0, None),
        (1, None),
        (0, 10),
        (0, 0),
    ]
    assert parameters_of("SELECT FROM WHERE (") == ({}, ())


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a FROM b WHERE c = $1 LIMIT $2 OFFSET $3", r"c = '\d{1,6}' LIMIT '\d+' OFFSET '0'"),
        ("a FROM b WHERE c > now() - interval $1", r"interval '\d+ seconds'"),
        ("a FROM b WHERE c = interval $1 day to second", r"interval '\d+ seconds' day to second"),
        ("a FROM b WHERE c = date $1", r"date '202\d-\d\d-\d\d [\d:]+'"),
        (
            "a FROM b WHERE c = timestamp with time zone $1",
            r"timestamp with time zone '202\d-\d\d-\d\d [\d:]+'",
        ),
        ("a FROM b WHERE created_at > $1", r"created_at > '202\d-\d\d-\d\d [\d:]+'"),
        ("a FROM b WHERE c = ANY($1)", r"""ANY\('\{"\d+"(,"\d+"){4}\}'\)"""),
        (
            "a FROM b WHERE c = ANY($1::bigint[]) OR c IN ($2,$3)",
            r"\}'::bigint\[\]\) OR c IN \('\d+','\d+'\)",
        ),
        ("a[$1:$2] FROM b", r"a\['\d+':'\d+'\] FROM b"),
        (
            "a FROM b WHERE c = $1::text::uuid AND d = $2::bool",
            r"'[0-9a-f-]{36}'::text::uuid AND d = '(True|False)'",
        ),
        ("/*+ SeqScan(b) */ a FROM b -- why", r"^SELECT /\*\+ SeqScan\(b\) \*/ a FROM b -- why$"),
    ],
)
def test_values_are_literals_of_any_type(text: str, sent: str) -> None:
    """The rest of the text stays as it was recorded."""
    assert re.search(sent, sample(f"SELECT {text}"))


def test_values_follow_the_statistics_or_a_guess() -> None:
    """The range of whole numbers of the column, its other values, or a guess."""
    rng = random.Random(1)

    def drawn(kind: str, *values: object, argument: bool = False) -> set[object]:
        return {Placeholder(kind, "c", values, argument=argument).draw(rng) for _ in range(500)}

    assert drawn("integer", 9, 5) == {5, 6, 7, 8, 9} and drawn("text", "it's", "{}") == {
        "it's",
        "{}",
    }
    assert drawn("text[]", 'a"', "b\\", argument=False) <= {
        "{" + ",".join(each) + "}" for each in itertools.product(('"a\\""', '"b\\\\"'), repeat=5)
    }
    assert max(map(int, map(str, drawn("smallint")))) < 32_768


@pytest.mark.parametrize("name", ["inet", "tsvector", "anyarray", "numeric(4,2)", "mood"])
def test_a_type_that_cannot_be_drawn_is_refused(name: str) -> None:
    """A wrong value would be an error each time."""
    with pytest.raises(ValueError, match=name.split("(")[0]):
        Placeholder(name).draw(random.Random(1))


@pytest.mark.parametrize(
    "text", ["c BETWEEN $1 AND $2", "c >= $1 AND c < $2", "c >= date $1 AND c < date $2"]
)
def test_the_end_of_a_range_follows_its_begin(text: str) -> None:
    """Two ends that are drawn by themselves would span a third of the table."""
    for each in samples_of(f"SELECT a FROM b WHERE {text}", None, 20_000)[0]:
        begin, end = re.findall(r"'([^']*)'", each)
        if "date" in text:
            assert datetime.fromisoformat(end) - datetime.fromisoformat(begin) < timedelta(days=1)
        else:
            assert 0 <= int(end) - int(begin) < 100


def test_statements_of_an_export_become_a_workload(tmp_path: Path) -> None:
    """An insert forgives a key that is there; the catalogue takes it as it is."""
    recording = RecordedStatements(
        "x.csv",
        "postgres",
        [
            Statement("SELECT a FROM t WHERE id = $1\n  AND b = $1", 99, database="shop"),
            Statement("INSERT INTO t VALUES ($1,$2) RETURNING a;", 1, database="shop"),
        ],
    )
    choose(recording, None, 9)
    assert re.fullmatch(
        r"SELECT a FROM t WHERE id = ('\d+')\n  AND b = \1", recording.in_workload[0].samples[0]
    )
    assert re.fullmatch(
        r"INSERT INTO t VALUES \('\d+','\d+'\) \nON CONFLICT DO NOTHING RETURNING a",
        recording.in_workload[1].samples[0],
    )
    assert [each.why for each in recording.in_workload] == [
        "guessed values",
        "rows whose key exists are not inserted (ON CONFLICT DO NOTHING); guessed values",
    ]
    (tmp_path / "workloads").mkdir()
    for name, content in files_of("mine", recording, ["postgres"], DATA).items():
        (tmp_path / "workloads" / name).write_bytes(content)
    workload = catalog([tmp_path]).workload("mine")
    assert (workload.driver, workload.script, workload.beside) == (
        "sysbench",
        "mine.lua",
        ("mine.statements",),
    )
    kinds = (tmp_path / "workloads/mine.statements").read_text().splitlines()[:2]
    assert [kind.split()[:2] for kind in kinds] == [["9900", "-"], ["100", "-"]]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT date_trunc($1, a) FROM t", False),
        ("SELECT EXTRACT($1 FROM a) FROM t", False),
        ("SELECT a AT TIME ZONE $1::text FROM t", False),
        ("SELECT a FROM t WHERE b LIKE $1 ESCAPE $2", False),
        ("SELECT a FROM t WHERE lower(b) = lower($1::text) AND c LIKE $2::varchar", True),
        ("SELECT date_bin($1::interval, a) FROM t", True),
        ("SELECT '$1' FROM t WHERE a = $2", False),
    ],
)
def test_a_guessed_text_is_not_an_argument_of_a_function(text: str, kept: bool) -> None:
    """date_trunc('12345', a) is an error each time."""
    assert (why(text) == "") is kept


@slow
@pytest.mark.starts_processes
def test_a_script_of_sysbench_sends_the_logged_texts(tmp_path: Path) -> None:
    """With an index of offsets and lengths; the kinds have weights, databases and the number of
    their samples.
    """
    texts = ["SELECT a FROM t WHERE b = 'é'", "SELECT a FROM t WHERE b = 'f'", "DELETE FROM t"]
    recording = logged(tmp_path, texts[0], f"use shop;\n{texts[1]}", texts[2])
    choose(recording, None, 9)
    files = files_of("logged", recording, ["mariadb", "mysql"], DATA)
    head, _, rest = files["logged.statements"].partition(b"\n\n")
    kinds = [line.split() for line in head.decode().splitlines()]
    assert [kind[1:] for kind in kinds] == [["-", "1"], [b"shop".hex(), "1"], [b"shop".hex(), "1"]]
    index = [tuple(map(int, rest[at : at + 20].split())) for at in range(0, 60, 20)]
    assert [rest[begin : begin + length].decode() for begin, length in index] == texts
    toml = tomllib.loads(files["logged.toml"].decode())
    assert toml["engines"] == ["mariadb", "mysql"] and toml["options"] == {
        "mysql-ignore-errors": "all"
    }


def test_the_most_frequent_are_kept() -> None:
    """The others are left out, with the reason."""
    kept = [Statement(f"SELECT {n} FROM a", 9 - n) for n in range(4)]
    recording = RecordedStatements(
        "x",
        "postgres",
        [*kept, Statement("SET a = 1", 99, None, LEFT_OUT, "x")],
    )
    choose(recording, None, 2)
    assert len(recording.in_workload) == 2
    assert [each.why for each in left_out(recording)] == [
        "not among the most frequent statements"
    ] * 2 + ["x"]


@pytest.mark.starts_processes
def test_the_command_says_what_it_made(tmp_path: Path, printed: Any) -> None:
    """Files, coverage and what was left out; the workload is found by --path and expands to
    trials.
    """
    target = str(tmp_path / "mine/workloads/shop.toml")
    export = tmp_path / "export.csv"
    typed = "SELECT 1 FROM pgbench_history WHERE mtime > now() - interval $1,900,1.5\n"
    export.write_text((FIXTURES / "pgss.csv").read_text() + typed)
    said = printed(
        "workload",
        "from-statements",
        str(export),
        "-o",
        target,
        "--data-of",
        "pgbench-tpcb",
    )
    assert "are approximated" in said and "BEGIN" not in said
    (tmp_path / "plan.toml").write_text(plan(workload={"name": "shop", "scale": 3}))
    assert "shop" in printed(
        "--path",
        str(tmp_path / "mine"),
        "plan",
        str(tmp_path / "plan.toml"),
        code=None,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "shop.toml"],
        ["-o", "workloads/a b.toml"],
        ["--engine", "mysql"],
        ["--most", "0"],
        ["--data-of", "nothing"],
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str],
    tmp_path: Path,
    here: Path,
) -> None:
    """A place where no catalogue looks, another engine's recording, no workload of that name:
    nothing is written.
    """
    assert cli.run(["workload", "from-statements", str(FIXTURES / "pgss.csv"), *words]) == 2
    assert list(tmp_path.iterdir()) == []


@slow
@pytest.mark.starts_processes
def test_bytes_that_are_not_utf8_stay_as_they_were_logged(
    here: Path, printed: Any, tmp_path: Path
) -> None:
    """A server writes the bytes of its clients."""
    statement = "SELECT id FROM customers WHERE name = 'M\udcfcller'"
    logged(tmp_path, statement)
    printed("workload", "from-statements", str(tmp_path / "slow.log"))
    content = Path("workloads/recorded.statements").read_bytes()
    assert b"'M\xfcller'" in content
    keep_scripts(here, {"a.statements": content.decode(errors=decoding("a.statements"))})
    assert (here / "scripts/a.statements").read_bytes() == content


def test_a_kind_of_statement_that_is_missing_is_named() -> None:
    """A workload without its writes is another workload."""
    recording = RecordedStatements(
        "x.csv",
        "postgres",
        [
            Statement("SELECT a FROM t WHERE id = $1", 60),
            Statement("/* app */ INSERT INTO t VALUES ($1)", 30, group=LEFT_OUT),
            Statement("SELECT b FROM t", 10, group=LEFT_OUT),
        ],
    )
    assert recording.missing_verbs() == {"INSERT": 0.3}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("SELECT date $1 + $2", r"date '[^']+' \+ CAST\('\d+' AS integer\)"),
        ("SELECT doc ->> $1 FROM t", r"doc ->> '\d+'"),
        ("SELECT left(a, $1) FROM t WHERE a || $2 = b", r"left\(a, '\d+'\)"),
    ],
)
def test_values_of_texts_that_any_function_accepts(text: str, sent: str) -> None:
    """The operators of JSON, functions on texts, and days that are added to a date."""
    assert re.search(sent, sample(text))


def test_a_log_of_postgres_is_called_that(tmp_path: Path) -> None:
    """Its statements are not read; the remedy is the export."""
    path = tmp_path / "postgresql.log"
    path.write_text("2026-01-10 UTC [7] LOG:  duration: 0.512 ms  statement: SELECT 1\n")
    with pytest.raises(ScriptInvalid, match="own log is not read") as refused:
        read(path)
    assert "pg_stat_statements" in str(refused.value.remedy)
