"""Recorded statements: which are read or left out, with the reason, and that foreign text is never executed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from dbbench import cli
from dbbench.errors import FileMissing, InputTooLarge, RecordingUnreadable
from dbbench.introspect.recordings import RecordedStatements, Statement, read, tokens_of
from dbbench.introspect.rules import Kept, ParameterType, Rule, column_of, refusal, rule_of, sorted_out, tables_of
from dbbench.introspect.rules import sorted_out as sort
from dbbench.introspect.writing import lua_string, written
from dbbench.plan.catalog import catalog

FIXTURES: Final = Path(__file__).parents[1] / "fixtures/recorded"
DATA: Final = 'dataset = { kind = "none" }'


def kept(text: str, dialect: str = "postgres", calls: int = 1) -> Kept:
    """A statement as it would be taken; it must be."""
    found = sort(RecordedStatements("x", dialect, (Statement(text, calls),)))
    assert found.left_out == []
    return found.kept[0]


def why(text: str, dialect: str = "postgres") -> str:
    """Why a statement is left out."""
    found = sort(RecordedStatements("x", dialect, (Statement(text, 1),)))
    assert found.kept == []
    return found.left_out[0].why


# --- reading ---------------------------------------------------------------------------------------


def test_csv_and_json_of_one_view_are_the_same() -> None:
    """Statements over several lines with quotes; calls of the same text are added up; those called most come first."""
    by_csv, by_json = read(FIXTURES / "pgss.csv"), read(FIXTURES / "pgss.json")
    often = [{each.text: each.calls for each in one.statements if each.calls > 1} for one in (by_csv, by_json)]
    assert often[0] == often[1] and len(often[0]) > 20
    assert (by_csv.dialect, by_csv.calls) == ("postgres", sum(each.calls for each in by_csv.statements))
    calls = [each.calls for each in by_csv.statements]
    assert calls == sorted(calls, reverse=True)


def test_json_may_be_lines_or_lie_in_an_object(tmp_path: Path) -> None:
    """As psql, a monitoring tool or a log shipper writes it."""
    rows = [{"query": "SELECT 1", "calls": 2}, {"query": "SELECT $1", "calls": "3"}]
    for text in ("\n".join(map(json.dumps, rows)), json.dumps({"rows": rows}), json.dumps(rows)):
        (tmp_path / "f").write_text(text)
        assert [(each.text, each.calls) for each in read(tmp_path / "f").statements] == [
            ("SELECT $1", 3),
            ("SELECT 1", 2),
        ]


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A slow log of a year would fill the memory."""
    with (tmp_path / "slow.log").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(InputTooLarge) as refused:
        read(tmp_path / "slow.log")
    assert "head -c" in str(refused.value.remedy)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "query,calls\nSELECT 1,many\n", "[1, 2]", "{", "[" * 100_000])
def test_what_is_no_recording_is_told(text: str, tmp_path: Path) -> None:
    """E326 with what would be one; nothing falls over."""
    (tmp_path / "f").write_text(text)
    with pytest.raises(RecordingUnreadable):
        read(tmp_path / "f")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(FileMissing, match="nowhere"):
        read(tmp_path / "nowhere.csv")


def test_a_slow_log_is_counted_by_shape() -> None:
    """Literals become parameters with the values that were seen; longer lists of values are one statement."""
    found = read(FIXTURES / "slow.log")
    shapes = {each.text: each for each in found.statements}
    point = shapes["SELECT c FROM sbtest1 WHERE id=?"]
    assert found.dialect == "mysql" and point.calls > 5
    assert point.seen[0].least is not None and 1 <= point.seen[0].least < (point.seen[0].most or 0) <= 2000
    assert any(text.startswith("INSERT INTO sbtest1") for text in shapes)
    assert not any("SET timestamp" in text or "# " in text for text in shapes)


# --- taking apart ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("SELECT 'it''s -- no', $1 -- one\n FROM \"a\"\"b\"", ["SELECT", "'it''s -- no'", ",", "$1", "FROM", '"a""b"']),
        ("SELECT $tag$ ; $1 $tag$, $2::int", ["SELECT", "$tag$ ; $1 $tag$", ",", "$2", "::", "int"]),
        ("SELECT /* a */ 1.5e-3, x1", ["SELECT", "1.5e-3", ",", "x1"]),
    ],
)  # fmt: skip
def test_statements_are_taken_apart(text: str, pieces: list[str]) -> None:
    """Quotes, dollar quotes and comments as PostgreSQL reads them."""
    assert [token.text for token in tokens_of(text, "postgres") if token.kind != "blank"] == pieces


def test_mysqls_quotes_are_others() -> None:
    """A backslash hides a quote, double quotes are strings, # begins a comment."""
    found = [
        token.text for token in tokens_of(r"""SELECT 'a\'b', "c?" # no""" + "\n, ?", "mysql") if token.kind != "blank"
    ]
    assert found == ["SELECT", r"'a\'b'", ",", '"c?"', ",", "?"]


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT $a$ b"])
def test_an_open_quote_is_left_out(text: str) -> None:
    """Its end is unknown."""
    assert why(text) == "an unterminated quote"


# --- hostile text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;\n\\! touch /tmp/owned",
        "SELECT 1\n\\shell touch /tmp/owned",
        "SELECT 1 \\; DROP TABLE a",
        "SELECT 1; DROP TABLE a",
        "SELECT 'a\n\\setshell x touch owned'",
        "SELECT E'\\'; DROP TABLE a; --'",
        "SELECT ':client_id'",
        "SELECT * FROM a WHERE b = :scale",
        "SELECT 1 /* a /* b */ \\! c */",
        "SELECT 1 /*! UNION SELECT 2 */",
        "SELECT 1 /* open",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT lo_export(1, '/tmp/x')",
        'SELECT * FROM "pg_shadow"',
        "SELECT * INTO copy FROM a",
        "COPY a TO PROGRAM 'touch owned'",
        "DO $$ BEGIN PERFORM 1; END $$",
        "\\! touch owned",
        "",
        ";",
    ],
)
def test_what_could_do_more_than_ask_is_left_out(text: str) -> None:
    """Commands of pgbench, several statements in one, files of the server, variables: each with a reason."""
    assert why(text)


@pytest.mark.parametrize(
    "text", ["SELECT load_file('/etc/passwd')", "SELECT 1 INTO OUTFILE '/tmp/x'", "SELECT sleep(10)"]
)
def test_mysqls_ways_out_are_left_out(text: str) -> None:
    """Files of the server, and statements that only wait."""
    assert why(text, "mysql")


def test_no_text_can_leave_its_string_in_lua() -> None:
    """Quotes, backslashes, line breaks and what is no ASCII are written by number."""
    hostile = 'a" .. os.execute("touch owned") .. "\\\n\r\0é]]'
    quoted = lua_string(hostile)
    assert re.fullmatch(r'"(?:[^"\\\n]|\\\d{3})*"', quoted)
    assert bytes(int(n) if n else ord(c) for n, c in re.findall(r"\\(\d{3})|(.)", quoted[1:-1])).decode() == hostile


def test_a_hostile_name_stays_a_comment() -> None:
    """The recording's name stands in comments and in a title."""
    found = sort(RecordedStatements("x", "postgres", (Statement("SELECT $1", 1),)))
    files = written("w", 'a"\n[evil]\nb.csv', found, [(found.kept[0], (Rule(1, 9),))], ["postgres"], DATA)
    assert set(tomllib.loads(files["w.toml"])) >= {"title", "driver"} and "evil" not in tomllib.loads(files["w.toml"])
    assert files["w-001.sql"].count("\\") == 1


# --- rules -----------------------------------------------------------------------------------------


def test_columns_and_tables_are_found() -> None:
    """What a parameter is compared with, and where it may lie."""
    one = kept(
        'UPDATE shop.orders AS o SET paid = $1 FROM "item" WHERE o."id" = $12 AND n BETWEEN $2 AND $3 AND $1 > 0'
    )
    assert [column_of(one, name) for name in one.parameters] == ["paid", "id", "n", ""]
    assert tables_of(one) == ("orders", "item")


def test_rules_follow_types_values_or_a_guess() -> None:
    """A type with the range of its column; LIMIT is small; without anybody to ask a marked range; others have none."""
    one = kept("SELECT a FROM b WHERE c = $1 AND d = $2 AND e = $3 OFFSET $5 LIMIT $4")
    assert rule_of(one, 0, ParameterType("integer", 5, 9)) == Rule(5, 9, note="integer, the range of its column")
    date = rule_of(one, 1, ParameterType("timestamp with time zone"))
    assert date is not None and "timestamptz" in date.expression and not date.guessed
    assert rule_of(one, 2, ParameterType("inet")) is None
    limit, offset, guess = rule_of(one, 4, None), rule_of(one, 3, None), rule_of(one, 0, None)
    assert limit is not None and (limit.least, limit.most) == (1, 10)
    assert offset is not None and (offset.least, offset.most) == (0, 0)
    assert guess is not None and guess.guessed and (guess.least, guess.most) == (1, 100_000) and "GUESSED" in guess.note


def test_the_end_of_a_range_follows_its_begin() -> None:
    """Two ends that are drawn by themselves would span a third of the table; the log says how far they were apart."""
    one = kept("SELECT a FROM b WHERE c BETWEEN $1 AND $2 AND d = $3")
    first, end, other = (rule_of(one, index, ParameterType("integer", 1, 5000)) for index in range(3))
    assert first is not None and end is not None and other is not None
    assert (end.after, end.least, end.most) == ("$1", 0, 99) and first.after == other.after == ""
    found = sort(RecordedStatements("x", "postgres", (Statement(one.text, 1),)))
    script = written("w", "x", found, [(found.kept[0], (first, end, other))], ["postgres"], DATA)["w-001.sql"]
    assert "\\set p2 :p1 + random(0, 99)" in script
    logged = next(each for each in sorted_out(read(FIXTURES / "slow.log")).kept if "SUM(k)" in each.text)
    rules = tuple(rule_of(logged, index, None) for index in range(2))
    assert rules[1] is not None and (rules[1].least, rules[1].most, rules[1].after) == (99, 99, "?1")
    files = written("w", "x", found, [(logged, tuple(r for r in rules if r))], ["mysql"], DATA)
    assert re.search(r"local p1 = whole\(\d+, \d+\) return .* p1 .* whole\(p1 \+ 99, p1 \+ 99\)", files["w.lua"])


# --- writing ---------------------------------------------------------------------------------------


def test_scripts_of_pgbench_have_weights_and_variables(tmp_path: Path) -> None:
    """A file a statement, drawn by calls; an insert forgives a key that is there; the catalogue takes it as it is."""
    found = sort(RecordedStatements("x", "postgres", (
        Statement("SELECT a FROM t WHERE id = $1\n  AND b = $1", 99),
        Statement("INSERT INTO t VALUES ($1, $2) RETURNING a", 1),
    )))  # fmt: skip
    ruled = [(one, tuple(Rule(1, 7, note="n") for _ in one.parameters)) for one in found.kept]
    files = written("mine", "x.csv", found, ruled, ["postgres"], DATA)
    assert files["mine-001.sql"] == (
        "-- 99 calls\n-- $1: n\n\\set p1 random(1, 7)\nSELECT a FROM t WHERE id = :p1 AND b = :p1;\n"
    )
    assert "INSERT INTO t VALUES (:p1, :p2)  ON CONFLICT DO NOTHING RETURNING a;" in files["mine-002.sql"]
    (tmp_path / "workloads").mkdir()
    for name, text in files.items():
        (tmp_path / "workloads" / name).write_text(text)
    workload = catalog([tmp_path]).workload("mine")
    assert (workload.script, workload.beside, workload.weights) == ("mine-001.sql", ("mine-002.sql",), (9900, 100))


def test_a_lua_script_draws_from_the_values_that_were_seen() -> None:
    """Numbers by their range, texts from the log's own; an insert is one that ignores a key that is there."""
    found = sorted_out(read(FIXTURES / "slow.log"))
    rules = [tuple(rule_of(one, index, None) for index in range(len(one.parameters))) for one in found.kept]
    ruled = [(one, tuple(rule for rule in each if rule)) for one, each in zip(found.kept, rules, strict=True)]
    files = written("logged", "slow.log", found, ruled, ["mariadb", "mysql"], DATA)
    script = files["logged.lua"]
    assert re.search(
        r'statement = function\(\) return "SELECT c FROM sbtest1 WHERE id=" \.\. whole\(\d+, \d+\)', script
    )
    assert "INSERT IGNORE INTO sbtest1" in script and "one_of({" in script
    assert tomllib.loads(files["logged.toml"])["engines"] == ["mariadb", "mysql"]


def test_the_share_of_calls_is_told() -> None:
    """Utility statements and what lies beyond the most frequent count as left out."""
    found = sort(RecordedStatements("x", "postgres", (
        Statement("SELECT 1 FROM a", 60), Statement("BEGIN", 20), Statement("SELECT 2 FROM a", 15),
        Statement("SELECT 3", 5),
    )), most=2)  # fmt: skip
    assert found.share == pytest.approx(0.75)
    assert [each.why for each in found.left_out] == [
        "not a statement on rows (BEGIN)",
        "not among the 2 most frequent statements",
    ]
    assert refusal("SELECT 1", tokens_of("SELECT 1", "postgres")) == ""


@pytest.mark.starts_processes
def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, coverage and what was left out; the workload is found by --path and expands to trials."""
    target = str(tmp_path / "mine/workloads/shop.toml")
    assert (
        cli.run(["workload", "from-statements", str(FIXTURES / "pgss.csv"), "-o", target, "--data-of", "pgbench-tpcb"])
        == 0
    )
    said = capsys.readouterr().out
    assert "99.8 % of the calls" in said and "not a statement on rows (BEGIN)" in said and "GUESSED" in said
    (tmp_path / "plan.toml").write_text(
        'name = "p"\nfs_setups = ["ext4"]\n[engine]\nname = "postgres"\n[workload]\nname = "shop"\nscale = 3\n'
    )
    assert cli.run(["--path", str(tmp_path / "mine"), "plan", str(tmp_path / "plan.toml")]) == 0
    assert "shop" in capsys.readouterr().out


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
def test_what_cannot_be_meant_is_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place where no catalogue looks, another engine's recording, no workload of that name: nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(["workload", "from-statements", str(FIXTURES / "pgss.csv"), *words]) == 2
    assert list(tmp_path.iterdir()) == []
