"""Recorded statements: which are read or left out, with the reason, and that foreign text is never executed."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from dbbench import cli
from dbbench.errors import FileMissing, InputTooLarge, RecordingUnreadable
from dbbench.introspect.recordings import RecordedStatements, read
from dbbench.introspect.rules import LEFT_OUT, Role, Statement, drawn, refusal, rewritten, roles_of
from dbbench.introspect.writing import pgbench_script, scripts_of, written
from dbbench.plan.catalog import catalog

FIXTURES: Final = Path(__file__).parents[1] / "fixtures/recorded"
DATA: Final = 'dataset = { kind = "none" }'
HEADING: Final = "# User@Host: app[app] @ web1 [192.0.2.11]  Id:    77\n# Query_time: 0.5  Lock_time: 0.0\n"
slow = pytest.mark.needs("pt-query-digest")  # which reads slow logs


def why(text: str, dialect: str = "postgres") -> str:
    """Why a statement is left out; "" if it is kept."""
    try:
        return refusal(text, dialect) or ("" if dialect == "mysql" or pgbench_script(Statement(text, 1), None) else "?")
    except ValueError as error:
        return str(error)


def script(text: str) -> str:
    """The last line of the script of a statement."""
    return pgbench_script(Statement(text, 1), None).splitlines()[-1]


def left_out(recording: RecordedStatements) -> list[Statement]:
    """The statements that are not in the workload."""
    return [each for each in recording.statements if each.group == LEFT_OUT]


def logged(tmp_path: Path, *texts: str) -> RecordedStatements:
    """A slow log with these statements, read."""
    path = tmp_path / "slow.log"
    path.write_text("".join(f"{HEADING}{text};\n" for text in texts), errors="surrogateescape")
    return read(path)


# --- reading ---------------------------------------------------------------------------------------


def test_an_export_is_read() -> None:
    """Statements over several lines with quotes; those called most come first."""
    recording = read(FIXTURES / "pgss.csv")
    calls = {each.text: each.calls for each in recording.kept}
    assert calls["SELECT c FROM sbtest1 WHERE id=$1"] == 1050 and len(calls) > 15 and recording.dialect == "postgres"
    assert list(calls.values()) == sorted(calls.values(), reverse=True)
    assert not any(text in calls for text in ("BEGIN", "END", "COMMIT"))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A slow log of a year would fill the memory."""
    with (tmp_path / "slow.log").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(InputTooLarge) as refused:
        read(tmp_path / "slow.log")
    assert "head -c" in str(refused.value.remedy)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "query,calls\nSELECT 1,many\n", "query,calls\nSELECT 1\n", "[1, 2]"]
)
def test_what_is_no_recording_is_told(text: str, tmp_path: Path) -> None:
    """E326 with what would be one; nothing falls over."""
    (tmp_path / "f").write_text(text)
    with pytest.raises(RecordingUnreadable):
        read(tmp_path / "f")


def test_a_compressed_recording_is_recognised(tmp_path: Path) -> None:
    """With the command that unpacks it."""
    (tmp_path / "slow.log.gz").write_bytes(gzip.compress(b"# Time: x"))
    with pytest.raises(RecordingUnreadable) as refused:
        read(tmp_path / "slow.log.gz")
    assert "compressed" in refused.value.evidence and "gunzip -k" in str(refused.value.remedy)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(FileMissing, match="nowhere"):
        read(tmp_path / "nowhere.csv")


def test_shares_are_those_of_calls_and_time(tmp_path: Path) -> None:
    """What is not used counts: hidden and absent texts, another database. BEGIN and END do not."""
    (tmp_path / "f").write_text(
        "query,calls,total_exec_time,datname\nSELECT 1 FROM a,60,3000,shop\n/* x */ BEGIN,900,1,shop\nEND,900,1,shop\n"
        "<insufficient privilege>,20,6000,shop\n,10,0,shop\nSELECT 1 FROM b,10,1000,blog\n"
    )
    recording = read(tmp_path / "f")
    assert recording.shares(recording.kept) == (pytest.approx(0.6), pytest.approx(0.3))
    assert sorted(each.why.split(":")[0] for each in left_out(recording)) == [
        "its text is hidden", "of another database (blog)", "the recording does not contain its text",
    ]  # fmt: skip


def test_a_hidden_text_is_named_with_the_grant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If there is nothing else, the command says so and writes nothing."""
    (tmp_path / "f").write_text("query,calls\n<insufficient privilege>,20\n")
    assert cli.run(["workload", "from-statements", str(tmp_path / "f"), "-o", str(tmp_path / "workloads/a.toml")]) == 2
    assert "GRANT pg_read_all_stats" in capsys.readouterr().err and not (tmp_path / "workloads").exists()


@slow
@pytest.mark.starts_processes
def test_a_slow_log_is_counted_by_kind() -> None:
    """Statements that differ in their literals are one kind; longer lists of values too."""
    recording = read(FIXTURES / "slow.log")
    kinds = {each.text: each for each in recording.kept}
    point = kinds["select c from sbtest1 where id=?"]
    assert recording.dialect == "mysql" and point.calls == len(point.samples) > 5 and point.database == "dbbench"
    assert all(re.fullmatch(r"SELECT c FROM sbtest1 WHERE id=\d+", text) for text in point.samples)
    assert any(text.startswith("insert into sbtest1") for text in kinds) and point.seconds
    assert not any(word in text for text in kinds for word in ("set timestamp", "# ", "commit"))


@slow
@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "heading",
    [
        "C:\\Program Files\\MySQL\\bin\\mysqld.exe, Version: 8.0.36. started with:\nTCP Port: 3306, Named Pipe: MySQL\n"
        "Time                 Id Command    Argument\n",
        "/usr/sbin/mariadbd, Version: 10.11.8-MariaDB. started with:\nTcp port: 3306  Unix socket: /run/mysqld.sock\n"
        "Time\t\t    Id Command\tArgument\n",
        "# explain: id   select_type     table\n# explain: 1    SIMPLE  a\n",
        "# Schema: shop  Last_errno: 0  Killed: 0\n  Bytes_sent: 56  Tmp_tables: 0\n#   InnoDB_IO_r_ops: 0\n",
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
        one = f"{time}{HEADING}{heading}{time}{HEADING}SET timestamp=1772442901;\nSELECT a FROM t WHERE id = 1;\n"
    (tmp_path / "slow.log").write_bytes((before + one + before + one + one).replace("\n", end).encode())
    recording = read(tmp_path / "slow.log")
    assert [(each.text, each.calls) for each in recording.kept] == [("select a from t where id = ?", 3)]
    assert left_out(recording) == []


@slow
@pytest.mark.starts_processes
def test_no_statement_is_lost_without_a_word(tmp_path: Path) -> None:
    """One that the log's end cuts, and one whose end pt-query-digest misses, are left out with a reason."""
    good = f"{HEADING}SELECT 1;\n"
    (tmp_path / "slow.log").write_text(f"{good}{HEADING}SELECT a FROM t WHERE b = 1 AN")
    assert [each.why for each in left_out(read(tmp_path / "slow.log"))] == ["the recording ends within it"]
    (tmp_path / "slow.log").write_text(f"{good}{HEADING}SELECT 'a;\n# b';\n{good}{good}")
    recording = read(tmp_path / "slow.log")
    assert recording.shares(recording.kept)[0] < 1 and any("cannot tell" in each.why for each in left_out(recording))


@slow
@pytest.mark.starts_processes
def test_each_statement_keeps_its_database_and_its_bytes(tmp_path: Path) -> None:
    """`use` holds for the statements after it; bytes that are not UTF-8 stay as they are."""
    recording = logged(tmp_path, "use `a``b`;\nSELECT 1 FROM t", "SELECT 2 FROM t", "use shop;\nSELECT '\udcff' FROM t")
    assert {(each.database, text) for each in recording.kept for text in each.samples} == {
        ("a`b", "SELECT 1 FROM t"), ("a`b", "SELECT 2 FROM t"), ("shop", "SELECT '\udcff' FROM t"),
    }  # fmt: skip


# --- taking apart ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("SELECT 'it''s -- no', $1 -- one\n FROM \"a\"\"b\";", "SELECT 'it''s -- no', :p1 FROM \"a\"\"b\""),
        ("SELECT /* a */ 1.5e-3, ($1,$2)", "SELECT 1.5e-3, ( :p1 , :p2 )"),
        ("SELECT /*+ SeqScan(a) */ b FROM a", "SELECT /*+ SeqScan(a) */ b FROM a"),
        ("SELECT $2::int", "SELECT :p2 ::int"),
    ],
)  # fmt: skip
def test_statements_are_taken_apart(text: str, sent: str) -> None:
    """Quotes and comments as PostgreSQL reads them; hints stay."""
    assert rewritten(text).split() == sent.replace(",", " ,").split() or rewritten(text).split() == sent.split()


@slow
@pytest.mark.starts_processes
def test_kinds_differ_in_more_than_literals(tmp_path: Path) -> None:
    """Numbers, strings, hexadecimal literals and the length of lists make no kind; tables do. The samples are the
    texts of the log, with their hints and literals."""
    texts = [
        "SELECT a FROM t1 WHERE b = 0xDEAD AND c IN (1, 2,3)", "SELECT a FROM t1 WHERE b = 0xbeef AND c IN (4)",
        "SELECT /*+ NO_ICP(t) */ a FROM t2 /*!50000 FORCE INDEX (b) */ WHERE c = 'a\\'b' LIMIT 100000, 50",
        "REPLACE INTO t VALUES (1, 'a'), (2,'b')", "REPLACE INTO t VALUES (-1.5e3, x'AB')",
    ]  # fmt: skip
    recording = logged(tmp_path, *texts)
    assert sorted(each.calls for each in recording.kept) == [1, 2, 2] and left_out(recording) == []
    assert sorted(text for each in recording.kept for text in each.samples) == sorted(texts)


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT $a$ b"])
def test_an_open_quote_is_left_out(text: str) -> None:
    """Its end is unknown."""
    assert why(text) == "an unterminated quote or comment"


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
    "text",
    [
        "SELECT load_file('/etc/passwd')", "SELECT 1 INTO OUTFILE '/tmp/x'", "SELECT sleep(10)", "SELECT 1; SELECT 2",
        "SELECT 1 /*! INTO OUTFILE '/tmp/x' */", "SELECT 1 /*!50000 ; DROP TABLE a */", "SELECT @a := 1",
        "INSERT INTO a VALUES (last_insert_id())", "SELECT a INTO b FROM c", "SELECT a FROM b WHERE c = ?", "SELECT `a",
    ],
)  # fmt: skip
def test_what_mysql_must_not_be_sent_is_left_out(text: str) -> None:
    """Files of the server, several statements, and what depends on an earlier statement of the session."""
    assert why(text, "mysql")


def test_a_hostile_name_stays_a_comment() -> None:
    """The recording's name stands in comments and in a title."""
    recording = RecordedStatements('a"\n[evil]\nb.csv', "postgres", [Statement("SELECT $1::int", 1)])
    files = written("w", recording, scripts_of(recording, None, 9), ["postgres"], DATA)
    text = files["w.toml"].decode()
    assert set(tomllib.loads(text)) >= {"title", "driver"} and "evil" not in tomllib.loads(text)
    assert files["w-001.sql"].count(b"\\") == 1


# --- rules -----------------------------------------------------------------------------------------


def test_columns_and_tables_are_found() -> None:
    """What a parameter is compared with, what it sets, and where it may lie."""
    roles, tables = roles_of(
        'UPDATE shop.orders AS o SET paid = :p1, n = n + :p5 FROM "item" WHERE o."id" = :p12 AND n BETWEEN :p2 AND :p3'
    )
    assert {n: role.column for n, role in roles.items()} == {1: "paid", 5: "", 12: "id", 2: "n", 3: "n"}
    assert tables == ("orders", "item") and roles[3].after == 2
    roles, _ = roles_of("INSERT INTO a (b, c) VALUES (:p1, :p2),(:p3, CAST(:p4 AS date))")
    assert {n: (role.column, role.type) for n, role in roles.items()} == {
        1: ("b", ""), 2: ("c", ""), 3: ("b", ""), 4: ("c", "DATE"),
    }  # fmt: skip
    roles, _ = roles_of("SELECT a FROM b WHERE t >= :p1 AND c = :p2 AND t < :p3 LIMIT :p4 OFFSET :p5")
    assert (roles[3].after, roles[1].after, roles[4].rows, roles[5].rows) == (1, 0, "limit", "offset")
    assert roles_of("SELECT FROM WHERE (") == ({}, ())


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("SELECT a FROM b WHERE c > now() - interval $1", "c > now() - CAST(:p1 AS interval)"),
        ("SELECT a FROM b WHERE c = date $1", "c = CAST(:p1 AS date)"),
        ("SELECT a FROM b WHERE c = timestamp with time zone $1", "c = CAST(:p1 AS timestamp with time zone)"),
        ("SELECT a FROM b WHERE c = interval $1 day", "c = CAST(:p1 AS interval)"),
        ("SELECT a FROM b WHERE c = interval $1 day to second AND d = $2", "c = CAST(:p1 AS interval) AND d = :p2"),
        ("SELECT a FROM b WHERE c AT TIME ZONE $1 = $2", "c AT TIME ZONE :p1 = :p2"),
        ("SELECT a FROM b WHERE c LIKE $1 ESCAPE $2", "c LIKE :p1 ESCAPE :p2"),
    ],
)  # fmt: skip
def test_what_cannot_be_prepared_is_rewritten(text: str, sent: str) -> None:
    """A literal with a type before it becomes a cast."""
    assert rewritten(text).split() == f"SELECT a FROM b WHERE {sent}".split()


def test_values_follow_the_statistics_or_a_guess() -> None:
    """The range of whole numbers of the column, its other values, or a marked guess."""
    role = Role("integer", "c", ("9", "5"))
    assert drawn(1, role) == ("-- $1: integer, the range of c\n\\set p1 random(5, 9)\n", "((:p1)::INT)")
    assert not role.guessed
    lines, expression = drawn(2, Role("text", "c", ("it's", "{}"), argument=False))
    assert "random(1, 2)" in lines and expression == "(((ARRAY['it''s', '{}']::TEXT[])[:p2::int])::TEXT)"
    for role, bounds in ((Role("bigint", rows="limit"), "1, 10"), (Role("bigint", rows="offset"), "0, 0"),
                         (Role("numeric"), "1, 100000"), (Role("smallint"), "1, 32767")):  # fmt: skip
        lines, _ = drawn(1, role)
        assert f"random({bounds})" in lines and "GUESSED" in lines and role.guessed
    lines, expression = drawn(1, Role("bigint[]"))
    assert lines.count("random(1, 100000)") == 5 and expression.startswith("ARRAY[((:p1_1)::BIGINT), ")


@pytest.mark.parametrize("name", ["", "inet", "tsvector", "anyarray", "numeric(4,2)", "mood"])
def test_a_type_that_cannot_be_drawn_is_refused(name: str) -> None:
    """A wrong guess would end the trial of all statements."""
    with pytest.raises(ValueError, match=name.split("(")[0] or "does not contain the type of [$]1; --socket"):
        drawn(1, Role(name))


def test_the_end_of_a_range_follows_its_begin() -> None:
    """Two ends that are drawn by themselves would span a third of the table."""
    assert script("SELECT a FROM b WHERE c BETWEEN $1::int AND $2::int").endswith(
        "BETWEEN ((:p1)::INT) ::int AND ((((:p1)::INT) + :p2::INT)::INT) ::int;"
    )
    text = script("SELECT a FROM b WHERE c >= date $1 AND c < date $2")
    begin = "(('2020-01-01 00:00'::DATE + :p1::int * interval '1 second')::DATE)"
    assert f"< CAST((({begin} + :p2::int * interval '1 second')::DATE) AS date);" in text


# --- writing ---------------------------------------------------------------------------------------


def test_scripts_of_pgbench_have_weights_and_variables(tmp_path: Path) -> None:
    """A file a statement, drawn by calls; an insert forgives a key that is there; the catalogue takes it as it is."""
    recording = RecordedStatements("x.csv", "postgres", [
        Statement("SELECT a FROM t WHERE id = $1::int\n  AND b = $1", 99),
        Statement("INSERT INTO t VALUES ($1::int, $2::text) RETURNING a", 1),
    ])  # fmt: skip
    files = written("mine", recording, scripts_of(recording, None, 9), ["postgres"], DATA)
    assert (
        files["mine-001.sql"].decode().splitlines()[-1]
        == "SELECT a FROM t WHERE id = ((:p1)::INT) ::int AND b = ((:p1)::INT);"
    )
    assert b"::text)  ON CONFLICT DO NOTHING RETURNING a;" in files["mine-002.sql"]
    assert [each.why for each in recording.kept] == [
        "guessed values", "rows whose key exists are not inserted (ON CONFLICT DO NOTHING); guessed values",
    ]  # fmt: skip
    (tmp_path / "workloads").mkdir()
    for name, content in files.items():
        (tmp_path / "workloads" / name).write_bytes(content)
    workload = catalog([tmp_path]).workload("mine")
    assert (workload.script, workload.beside, workload.weights) == ("mine-001.sql", ("mine-002.sql",), (9900, 100))


def test_limits_of_pgbench_are_checked() -> None:
    """255 values per statement; a slice of an array is no variable."""
    columns = ", ".join(f"${n}::int" for n in range(1, 257))
    assert "256 values" in why(f"SELECT a FROM t WHERE b IN ({columns})")
    assert why("SELECT a FROM t WHERE b IN (" + columns.removesuffix(", $256::int") + ")") == ""
    assert script("SELECT a[$1::int:$2::int] FROM t") == "SELECT a[ ((:p1)::INT) ::int: ((:p2)::INT) ::int] FROM t;"
    assert why("SELECT a FROM t WHERE b = ANY($1::int[])") == "" == why("INSERT INTO a VALUES ($1::int,$2::int)")
    assert "does not contain the type" in why("INSERT INTO a VALUES ($1,$2)")
    assert ":p1abc" not in script("SELECT $1::int") and why("SELECT a FROM t WHERE b = :p1abc")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT date_trunc($1::text, a) FROM t", False),
        ("SELECT a AT TIME ZONE $1::text FROM t", False),
        ("SELECT a FROM t WHERE b LIKE $1::text ESCAPE $2::text", False),
        ("SELECT a FROM t WHERE lower(b) = lower($1::text) AND c LIKE $2::varchar", True),
        ("INSERT INTO t VALUES ($1::text)", True),
        ("SELECT date_bin($1::interval, a) FROM t", True),
    ],
)
def test_a_guessed_text_is_no_argument_of_a_function(text: str, kept: bool) -> None:
    """date_trunc('12345', a) is an error, which would end the load of all statements."""
    assert (why(text) == "") is kept


def test_the_last_of_several_casts_decides() -> None:
    """A number is no uuid."""
    assert "(md5(:p1::text))::UUID" in script("SELECT a FROM t WHERE b = $1::text::uuid")


@slow
@pytest.mark.starts_processes
def test_a_script_of_sysbench_sends_the_logged_texts(tmp_path: Path) -> None:
    """With an index of offsets and lengths; the kinds have weights, databases and the number of their samples."""
    recording = logged(
        tmp_path, "SELECT a FROM t WHERE b = 'é'", "use shop;\nSELECT a FROM t WHERE b = 'f'", "DELETE FROM t"
    )
    assert scripts_of(recording, None, 9) == []
    files = written("logged", recording, [], ["mariadb", "mysql"], DATA)
    head, _, rest = files["logged.statements"].partition(b"\n\n")
    kinds = [line.split() for line in head.decode().splitlines()]
    assert [kind[1:] for kind in kinds] == [["-", "1"], [b"shop".hex(), "1"], [b"shop".hex(), "1"]]
    index = [tuple(map(int, rest[at : at + 20].split())) for at in range(0, 60, 20)]
    assert [rest[begin : begin + length].decode() for begin, length in index] == [
        "SELECT a FROM t WHERE b = 'é'", "SELECT a FROM t WHERE b = 'f'", "DELETE FROM t",
    ]  # fmt: skip
    toml = tomllib.loads(files["logged.toml"].decode())
    assert toml["engines"] == ["mariadb", "mysql"] and toml["options"] == {"mysql-ignore-errors": "all"}


def test_a_statement_of_unknown_types_is_left_out() -> None:
    """A value of another type than the column's would end the trial of all statements."""
    texts = ("SELECT 1 FROM a WHERE t > now() - interval $1 LIMIT $2", "SELECT 1 FROM a WHERE b = $1",
             "SELECT EXTRACT($1 FROM b) FROM a", "SELECT 1 FROM a WHERE b = ANY($1)")  # fmt: skip
    recording = RecordedStatements("x", "postgres", [Statement(text, 1) for text in texts])
    assert len(scripts_of(recording, None, 9)) == 1
    assert [each.text for each in left_out(recording)] == list(texts[1:])
    assert all("--socket" in each.why for each in left_out(recording)) and recording.shares(recording.kept)[0] == 0.25


def test_the_most_frequent_are_kept() -> None:
    """The others are left out, with the reason."""
    kept = [Statement(f"SELECT {n} FROM a", 9 - n) for n in range(4)]
    recording = RecordedStatements("x", "postgres", [*kept, Statement("SET a = 1", 99, None, LEFT_OUT, "x")])
    assert len(scripts_of(recording, None, 2)) == len(recording.kept) == 2
    assert [each.why for each in left_out(recording)] == ["not among the most frequent statements"] * 2 + ["x"]


@pytest.mark.starts_processes
def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, coverage and what was left out; the workload is found by --path and expands to trials."""
    target, export = str(tmp_path / "mine/workloads/shop.toml"), tmp_path / "export.csv"
    typed = "SELECT 1 FROM pgbench_history WHERE mtime > now() - interval $1,900,1.5\n"
    export.write_text((FIXTURES / "pgss.csv").read_text() + typed)
    assert cli.run(["workload", "from-statements", str(export), "-o", target, "--data-of", "pgbench-tpcb"]) == 0
    said = capsys.readouterr().out
    assert "are approximated" in said and "BEGIN" not in said and "GUESSED" in said
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
