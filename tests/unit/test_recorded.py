"""Recorded statements: which are read or left out, with the reason, and that foreign text is never
executed.
"""

import gzip
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from dbbench.errors import FileUnreadable, ScriptInvalid
from dbbench.introspect.recordings import LEFT_OUT, RecordedStatements, Statement, read
from dbbench.introspect.refusals import refusal
from dbbench.introspect.values import samples_of
from dbbench.introspect.writing import choose, files_of

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
def test_what_is_not_a_recording_is_reported(
    text: str,
    evidence: str,
    tmp_path: Path,
) -> None:
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
        (packed, ScriptInvalid, "compressed", "gunzip -c"),
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
def test_headings_within_a_log_are_no_statements(
    heading: str,
    end: str,
    tmp_path: Path,
) -> None:
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
        'a"\n[evil]\nb.csv',
        "postgres",
        [Statement("SELECT $1::int", 1)],
    )
    choose(recording, None, 9)
    files = files_of("w", recording, ["postgres"], DATA)
    text = files["w.toml"].decode()
    assert set(tomllib.loads(text)) >= {"title", "driver"} and "evil" not in tomllib.loads(text)
    assert b"evil" not in files["w.lua"]
