"""Recorded statements: which are read or left out, with the reason, and that foreign text is never
executed.
"""

import gzip
import itertools
import os
import random
import re
import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench import cli
from dbbench.errors import FileUnreadable, ScriptInvalid
from dbbench.introspect.recordings import LEFT_OUT, RecordedStatements, Statement, read
from dbbench.introspect.refusals import refusal
from dbbench.introspect.values import Placeholder, parameters_of, samples_of
from dbbench.introspect.writing import choose, files_of
from dbbench.plan.catalog import catalog
from tests.support.plans import plan

FIXTURES: Final = Path(__file__).parents[1] / "fixtures/recorded"
DATA: Final = 'dataset = { kind = "none" }'
HEADING: Final = (
    "# User@Host: app[app] @ web1 [192.0.2.11]  Id:    77\n# Query_time: 0.5  Lock_time: 0.0\n"
)
slow = pytest.mark.needs("pt-query-digest")  # which reads slow logs


def why(text: str, dialect: str = "postgres") -> str:
    """Why a statement is left out; "" if it is kept."""
    try:
        return refusal(text, dialect) or ("" if dialect == "mysql" or sample(text) else "?")
    except ValueError as error:
        return str(error)


def sample(text: str) -> str:
    """One statement with values."""
    return samples_of(text, None, 1)[0][0]


def left_out(recording: RecordedStatements) -> list[Statement]:
    """The statements that are not in the workload."""
    return [each for each in recording.statements if each.group == LEFT_OUT]


def logged(tmp_path: Path, *texts: str) -> RecordedStatements:
    """A slow log with these statements, read."""
    path = tmp_path / "slow.log"
    path.write_text("".join(f"{HEADING}{text};\n" for text in texts), errors="surrogateescape")
    return read(path)


def test_an_export_is_read() -> None:
    """Statements over several lines with quotes; those called most come first."""
    recording = read(FIXTURES / "pgss.csv")
    calls = {each.text: each.calls for each in recording.in_workload}
    assert (
        calls["SELECT c FROM sbtest1 WHERE id=$1"] == 1050
        and len(calls) > 15
        and recording.dialect == "postgres"
    )
    assert list(calls.values()) == sorted(calls.values(), reverse=True)
    assert not any(text in calls for text in ("BEGIN", "END", "COMMIT"))


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("", "no statements"),
        ("[1, 2]", "no columns `query` and `calls`, but: [1, 2]"),
        ("query;calls\nSELECT 1;2\n", "no columns `query` and `calls`, but: query;calls"),
        ("QUERY,CALLS\nSELECT 1,2\n", "but: QUERY, CALLS"),
        ("\n0", "but: none"),
        ("query,calls\nSELECT 1,many\n", "line 2 has"),
        ("query,calls\nSELECT 1\n", "line 2 has"),
        ('query,calls,total_time\nSELECT 1,2,"52,5"\n', "a number such as 52.5"),
    ],
)
def test_what_is_no_recording_is_told(text: str, evidence: str, tmp_path: Path) -> None:
    """E335 with what would be one; nothing falls over."""
    (tmp_path / "f").write_text(text)
    with pytest.raises(ScriptInvalid) as refused:
        read(tmp_path / "f")
    assert evidence in refused.value.evidence
    (tmp_path / "f").write_text(text, encoding="utf-16")
    with pytest.raises(ScriptInvalid, match="encoded as UTF-16"):
        read(tmp_path / "f")


def test_files_that_are_not_read(tmp_path: Path) -> None:
    """A slow log of a year would fill the memory, a compressed one has to be unpacked, another is
    missing.
    """
    huge = tmp_path / "slow.log"
    packed = tmp_path / "slow.log.gz"
    huge.touch()
    os.truncate(huge, 2**28 + 1)
    packed.write_bytes(gzip.compress(b"# Time: x"))
    for path, error, evidence, remedy in (
        (huge, FileUnreadable, "slow.log", "head -c"),
        (packed, ScriptInvalid, "compressed", "gunzip -k"),
        (tmp_path / "nowhere.csv", FileUnreadable, "nowhere", ""),
    ):
        with pytest.raises(error) as refused:
            read(path)
        assert evidence in refused.value.evidence and remedy in str(refused.value.remedy)


def test_shares_are_those_of_calls_and_time(tmp_path: Path) -> None:
    """What is not used counts: hidden and absent texts, another database. BEGIN and END do not."""
    (tmp_path / "f").write_text(
        "query,calls,total_exec_time,datname\nSELECT 1 FROM a,60,3000,shop\n/* x */ "
        "BEGIN,900,1,shop\nEND,900,1,shop\n"
        "<insufficient privilege>,20,6000,shop\n,10,0,shop\nSELECT 1 FROM b,10,1000,blog\n"
    )
    recording = read(tmp_path / "f")
    assert recording.shares(recording.in_workload) == (pytest.approx(0.6), pytest.approx(0.3))
    assert sorted(each.why.split(":")[0] for each in left_out(recording)) == [
        "its text is hidden",
        "of another database (blog)",
        "the recording does not contain its text",
    ]


def test_a_hidden_text_is_named_with_the_grant(here: Path, printed: Any) -> None:
    """If there is nothing else, the command says so and writes nothing."""
    Path("f").write_text("query,calls\n<insufficient privilege>,20\n")
    told = printed("workload", "from-statements", "f", "-o", "workloads/a.toml", code=2)
    assert "GRANT pg_read_all_stats" in told and not Path("workloads").exists()


@slow
@pytest.mark.starts_processes
def test_a_slow_log_is_counted_by_kind() -> None:
    """Statements that differ in their literals are one kind; longer lists of values too."""
    recording = read(FIXTURES / "slow.log")
    kinds = {each.text: each for each in recording.in_workload}
    point = kinds["select c from sbtest1 where id=?"]
    assert (
        recording.dialect == "mysql"
        and point.calls == len(point.samples) > 5
        and point.database == "dbbench"
    )
    assert all(re.fullmatch(r"SELECT c FROM sbtest1 WHERE id=\d+", text) for text in point.samples)
    assert any(text.startswith("insert into sbtest1") for text in kinds) and point.seconds
    assert not any(word in text for text in kinds for word in ("set timestamp", "# ", "commit"))


@slow
@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "heading",
    [
        "C:\\Program Files\\MySQL\\bin\\mysqld.exe, Version: 8.0.36. started with:\nTCP Port: "
        "3306, Named Pipe: MySQL\n"
        "Time                 Id Command    Argument\n",
        "/usr/sbin/mariadbd, Version: 10.11.8-MariaDB. started with:\nTcp port: 3306  Unix "
        "socket: /run/mysqld.sock\n"
        "Time\t\t    Id Command\tArgument\n",
        "# explain: id   select_type     table\n# explain: 1    SIMPLE  a\n",
        "# Schema: shop  Last_errno: 0  Killed: 0\n  Bytes_sent: 56  Tmp_tables: 0\n#   "
        "InnoDB_IO_r_ops: 0\n",
        "# administrator command: Quit;\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headings_within_a_log_are_no_statements(heading: str, end: str, tmp_path: Path) -> None:
    """Those of a server's start, of Windows, of Percona Server and of MariaDB with `explain`."""
    time = "# Time: 2026-03-02T09:15:01.000101Z\n"
    before, after = (heading, "") if heading[0] != "#" else ("", heading)
    one = f"{time}{HEADING}{after}SET timestamp=1772442901;\nSELECT a FROM t WHERE id = 1;\n"
    if "administrator" in heading:
        one = (
            f"{time}{HEADING}{heading}{time}{HEADING}SET timestamp=1772442901;\nSELECT a FROM t "
            "WHERE id = 1;\n"
        )
    (tmp_path / "slow.log").write_bytes(
        (before + one + before + one + one).replace("\n", end).encode()
    )
    recording = read(tmp_path / "slow.log")
    assert [(each.text, each.calls) for each in recording.in_workload] == [
        ("select a from t where id = ?", 3)
    ]
    assert left_out(recording) == []


@slow
@pytest.mark.starts_processes
def test_no_statement_is_lost_without_a_word(tmp_path: Path) -> None:
    """One that the log's end cuts, and one whose end pt-query-digest misses, are left out with a
    reason.
    """
    good = f"{HEADING}SELECT 1;\n"
    (tmp_path / "slow.log").write_text(f"{good}{HEADING}SELECT a FROM t WHERE b = 1 AN")
    assert [each.why for each in left_out(read(tmp_path / "slow.log"))] == [
        "the recording ends within it"
    ]
    (tmp_path / "slow.log").write_text(f"{good}{HEADING}SELECT 'a;\n# b';\n{good}{good}")
    recording = read(tmp_path / "slow.log")
    assert recording.shares(recording.in_workload)[0] < 1
    assert any("cannot tell" in each.why for each in left_out(recording))


@slow
@pytest.mark.starts_processes
def test_kinds_differ_in_more_than_literals(tmp_path: Path) -> None:
    """Numbers, strings, hexadecimal literals and the length of lists make no kind; tables do. The
    samples are the texts of the log, with their hints and literals. `use` holds for the
    statements after it; bytes that are not UTF-8 stay as they are.
    """
    recording = logged(
        tmp_path,
        "use `a``b`;\nSELECT 1 FROM t",
        "SELECT 2 FROM t",
        "use shop;\nSELECT '\udcff' FROM t",
    )
    assert {(each.database, text) for each in recording.in_workload for text in each.samples} == {
        ("a`b", "SELECT 1 FROM t"),
        ("a`b", "SELECT 2 FROM t"),
        ("shop", "SELECT '\udcff' FROM t"),
    }
    texts = [
        "SELECT a FROM t1 WHERE b = 0xDEAD AND c IN (1, 2,3)",
        "SELECT a FROM t1 WHERE b = 0xbeef AND c IN (4)",
        "SELECT /*+ NO_ICP(t) */ a FROM t2 /*!50000 FORCE INDEX (b) */ WHERE c = 'a\\'b' LIMIT "
        "100000, 50",
        "REPLACE INTO t VALUES (1, 'a'), (2,'b')",
        "REPLACE INTO t VALUES (-1.5e3, x'AB')",
    ]
    recording = logged(tmp_path, *texts)
    assert (
        sorted(each.calls for each in recording.in_workload) == [1, 2, 2]
        and left_out(recording) == []
    )
    assert sorted(text for each in recording.in_workload for text in each.samples) == sorted(texts)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        *(
            ("postgres", text)
            for text in (
                "SELECT 1;\n\\! touch /tmp/owned",
                "SELECT 1\n\\shell touch /tmp/owned",
                "SELECT 1 \\; DROP TABLE a",
                "SELECT 1; DROP TABLE a",
                "SELECT 'a\n\\setshell x touch owned'",
                "SELECT E'\\'; DROP TABLE a; --'",
                "SELECT pg_read_file('/etc/passwd')",
                "SELECT lo_export(1, '/tmp/x')",
                'SELECT * FROM "pg_shadow"',
                "SELECT * INTO copy FROM a",
                "COPY a TO PROGRAM 'touch owned'",
                "DO $$ BEGIN PERFORM 1; END $$",
                "\\! touch owned",
                "",
                ";",
            )
        ),
        *(
            ("mysql", text)
            for text in (
                "SELECT load_file('/etc/passwd')",
                "SELECT 1 INTO OUTFILE '/tmp/x'",
                "SELECT sleep(10)",
                "SELECT 1; SELECT 2",
                "SELECT 1 /*! INTO OUTFILE '/tmp/x' */",
                "SELECT 1 /*!50000 ; DROP TABLE a */",
                "SELECT @a := 1",
                "INSERT INTO a VALUES (last_insert_id())",
                "SELECT a INTO b FROM c",
                "SELECT a FROM b WHERE c = ?",
                "SELECT `a",
            )
        ),
    ],
)
def test_what_could_do_more_than_ask_is_left_out(dialect: str, text: str) -> None:
    """Commands of a client, several statements in one, files of the server, and what depends on an
    earlier statement of the session: each with a reason.
    """
    assert why(text, dialect)


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT $a$ b", "SELECT 1 /* open"])
def test_an_open_quote_is_left_out(text: str) -> None:
    """Its end is unknown."""
    assert why(text) == "an unterminated quote or comment"


def test_a_hostile_name_stays_a_comment() -> None:
    """The recording's name stands in comments and in a title."""
    recording = RecordedStatements(
        'a"\n[evil]\nb.csv', "postgres", [Statement("SELECT $1::int", 1)]
    )
    choose(recording, None, 9)
    files = files_of("w", recording, ["postgres"], DATA)
    text = files["w.toml"].decode()
    assert set(tomllib.loads(text)) >= {"title", "driver"} and "evil" not in tomllib.loads(text)
    assert b"evil" not in files["w.lua"]


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
def test_a_guessed_text_is_no_argument_of_a_function(text: str, kept: bool) -> None:
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
        "x", "postgres", [*kept, Statement("SET a = 1", 99, None, LEFT_OUT, "x")]
    )
    choose(recording, None, 2)
    assert len(recording.in_workload) == 2
    assert [each.why for each in left_out(recording)] == [
        "not among the most frequent statements"
    ] * 2 + ["x"]


@pytest.mark.starts_processes
def test_the_command_says_what_it_made(tmp_path: Path, printed: Any) -> None:
    """Files, coverage and what was left out; the workload is found by --path and expands to trials."""
    target = str(tmp_path / "mine/workloads/shop.toml")
    export = tmp_path / "export.csv"
    typed = "SELECT 1 FROM pgbench_history WHERE mtime > now() - interval $1,900,1.5\n"
    export.write_text((FIXTURES / "pgss.csv").read_text() + typed)
    said = printed(
        "workload", "from-statements", str(export), "-o", target, "--data-of", "pgbench-tpcb"
    )
    assert "are approximated" in said and "BEGIN" not in said
    (tmp_path / "plan.toml").write_text(plan(workload={"name": "shop", "scale": 3}))
    assert "shop" in printed(
        "--path", str(tmp_path / "mine"), "plan", str(tmp_path / "plan.toml"), code=None
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
def test_what_cannot_be_meant_is_refused(words: list[str], tmp_path: Path, here: Path) -> None:
    """A place where no catalogue looks, another engine's recording, no workload of that name:
    nothing is written.
    """
    assert cli.run(["workload", "from-statements", str(FIXTURES / "pgss.csv"), *words]) == 2
    assert list(tmp_path.iterdir()) == []
