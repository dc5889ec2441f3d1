"""Load dumps of pg_dump and pg_dumpall into a running server, line by line (see `scripts`), and
compare them with what it then has.

The file is long because the script's reader (`PostgresScript`) decides line by line what the loader
leaves out, so that neither is understood alone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from dbbench import process
from dbbench.datasets.sources import safe_files, scripts
from dbbench.datasets.sources.source import Source, damaged
from dbbench.engines import postgres
from dbbench.engines.port import NAME, Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import (
    DatasetBuildFailed,
    DbbenchError,
    SourceRefused,
    SourceUnusable,
    collect_errors,
)
from dbbench.machine import namespaces
from dbbench.model import SourceChange
from dbbench.results.fileio import open_fd

_NAME: Final = rb'(?:"(?:[^"]|"")+"|[^\s".(;]+)'
_TABLE: Final = rb"(" + _NAME + rb"(?:\." + _NAME + rb")?)"
_SET: Final = re.compile(rb"SET (?:SESSION )?(\w+) *(?:=|TO) *(.*?);\s*$")
_PATH: Final = re.compile(rb"SET search_path = (" + _NAME + rb")[,;]")
_COPY: Final = re.compile(
    rb"COPY (?:ONLY )?" + _TABLE + rb'(?: *\((?:[^()"]|"[^"]*")*\))? +FROM stdin(.*);\s*$', re.I
)
_OF_FILES: Final = re.compile(rb"\s*COPY\b(?!.* FROM stdin\b)", re.I)
_CREATE: Final = re.compile(
    rb"CREATE (?:UNLOGGED |FOREIGN )?TABLE (?:IF NOT EXISTS )?" + _TABLE + rb"[ (]"
)
_CONNECT: Final = re.compile(
    rb'\\c(?:onnect)?\s+(?:-reuse-previous=on\s+)?("(?:[^"]|"")*"|[^\s"\\=-][^\s"\\=]*)\s*$'
)
_CONNINFO: Final = re.compile(r"dbname='((?:[^'\\]|\\.)*)'|dbname=([^\s'\\]*)")
# psql protects itself from the data of a dump with a key; before it connects to an odd name, a dump
# names the encoding.
_HARMLESS: Final = re.compile(rb"\\(?:(?:un)?restrict|encoding) \w+\s*$")
_POLICY: Final = re.compile(rb"CREATE POLICY .*? TO (?!PUBLIC)(.*?)(?: USING| WITH CHECK|;)")
_MARK: Final = re.compile(rb"-- PostgreSQL database (?:cluster )?dump( complete)?\s*$")
# Owners and privileges name accounts of the original server; in a new database there is nothing to
# drop.
_LEFT_OUT: Final = re.compile(
    rb"ALTER .* OWNER TO |GRANT |REVOKE |ALTER DEFAULT PRIVILEGES |SET SESSION AUTHORIZATION |CREATE USER MAPPING |"
    rb"DROP |CREATE SCHEMA public;|ALTER TABLE (?:ONLY )?"
    + _TABLE
    + rb" (?:ALTER COLUMN "
    + _NAME
    + rb" )?DROP "
)
# What concerns directories and settings of the original server.
_OF_CLUSTER: Final = re.compile(
    rb"ALTER SYSTEM |(?:CREATE|ALTER|COMMENT ON|SECURITY LABEL .*?ON) TABLESPACE |"
    rb"ALTER DATABASE " + _NAME + rb" SET TABLESPACE ",
    re.I,
)
_IN_TABLESPACE: Final = re.compile(
    rb"(CREATE DATABASE .*?) (TABLESPACE = " + _NAME + rb")(.*;)\s*$", re.I
)
_PRINTED: Final = 2**20  # bytes of what psql printed that are read
_PIECE: Final = 2**20
_LISTED_TABLE: Final = re.compile(
    rb"^\d+; \d+ \d+ (?:FOREIGN )?TABLE (?!DATA |ATTACH )", re.MULTILINE
)
# A file in the table of contents of a directory; a string has its length in 4 bytes before it.
_IN_CONTENTS: Final = re.compile(rb"\0{3}(\d+\.dat|blobs\w*\.toc)")
_LARGE_OBJECT: Final = re.compile(rb"\bblob_\w+\.dat")
_PACKED: Final = re.compile(r"\.(?:gz|lz4|zst)$")
_ROWS_END: Final = b"\n\n\n"  # after the last row of a table, with COPY and with INSERT
_TOKEN: Final = re.compile(rb"""['"\\;]|--|/\*|\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$""")
_PLAIN: Final = re.compile(rb"'")
_ESCAPED: Final = re.compile(rb"(?:\\.|''|[^'\\])*?'(?!')", re.DOTALL)
_QUOTED: Final = re.compile(rb'"')
_COMMENT: Final = re.compile(rb"/\*|\*/")


def load(
    source: Source,
    server: Server,
    data: Path,
) -> tuple[SourceChange, ...]:
    """Load the dump; return what was left out. Raises DatasetBuildFailed, SourceUnusable,
    SourceRefused.
    """
    plain = source.form == "pg_dump plain"
    script = _psql(source, server) if plain else _restore(source, server, data)
    return scripts.compare(
        source.path,
        script.tables,
        script.skipped if plain else (),
        functools.partial(_rows_of, server),
    )


def examine(source: Source, bin: Path | None) -> tuple[SourceChange, ...]:
    """Read the dump without a server; return what loading it would leave out. Raises what `load`
    raises for a dump that is incomplete or has no rows.
    """
    if source.form == "pg_dump plain":
        with source.path.open("rb") as file:
            script = PostgresScript(file, lambda _: False, lambda _: None, NAME)
            for _line in script:
                pass
        script.refuse_empty(source.path)
        return scripts.left_out(script.skipped)
    path = source.path
    program = Path(postgres.programs(bin)[0]).with_name("pg_restore")
    if path.is_dir():
        contents = path / "toc.dat"
        # The server's account reaches a copy only through the descriptor that it is given.
        with namespaces.temporary_folder() as folder:
            folder.chmod(0o755)
            (folder / contents.name).write_bytes(safe_files.open_plain(contents, path).read())
            with reading(contents, folder, program, "--list", "/proc/self/fd/0") as printed:
                listed = printed.read()
        check_files(path)
    else:
        with reading(path, path, program, "--list") as printed:
            listed = printed.read()
        with reading(path, path, program, "--file=/dev/null"):
            pass
    has_tables = _LISTED_TABLE.search(listed) is not None
    scripts.refuse_empty(path, has_tables, b" TABLE DATA " in listed)
    return ()


@contextlib.contextmanager
def reading(
    path: Path,
    opened: Path,
    program: Path,
    *options: str,
) -> Iterator[IO[bytes]]:
    """Yield what pg_restore, whose standard input is `opened`, prints of the archive `path`. Raises
    SourceUnusable if it fails, or if the block raises that.
    """
    damage = list[DbbenchError]()
    with (
        tempfile.TemporaryFile(dir=scripts.UNNAMED) as messages,
        open_fd(opened) as archive,
        process.running(
            [program, *options],
            stdin=archive,
            stdout=subprocess.PIPE,
            stderr=messages.fileno(),
            as_user=postgres.account(),
        ) as reader,
    ):
        assert reader.popen.stdout is not None
        with collect_errors(damage, SourceUnusable):
            yield reader.popen.stdout
        # It would wait for a reader of the rest, and it knows better what is damaged.
        while reader.popen.stdout.read(_PIECE):
            pass
        status = reader.wait(safe_files.LOAD_S)
        messages.seek(0)
        if status:
            raise damaged(path, messages.read().decode(errors="replace").strip())
    if damage:
        raise damaged(path, damage[0].evidence)


def check_files(folder: Path) -> None:
    """Decompress each file that the directory's table of contents names to its end: pg_restore does
    not notice every truncated one. Raises SourceUnusable, SourceRefused.
    """
    names = _IN_CONTENTS.findall((folder / "toc.dat").read_bytes())
    for listing in sorted(folder.glob("blobs*.toc")):
        names += _LARGE_OBJECT.findall(safe_files.open_plain(listing, folder).read())
    present = {_PACKED.sub("", path.name): path for path in sorted(folder.iterdir())}
    for name in dict.fromkeys(name.decode() for name in names):
        if name not in present:
            raise damaged(folder, f"its file {name} is missing")
        if not name.endswith(".dat"):
            continue
        end = _end_of(present[name], folder)
        if name[0].isdigit() and end != _ROWS_END:
            raise damaged(present[name], "it ends within the rows of a table")


def _end_of(path: Path, folder: Path) -> bytes:
    """Decompress a file of an archive, and return its last bytes."""
    end = b""
    with (
        safe_files.open_plain(path, folder) as file,
        safe_files.decompress(file, path.name) as content,
    ):
        while piece := content.read(_PIECE):
            end = (end + piece)[-len(_ROWS_END) :]
    return end


def _psql(source: Source, server: Server) -> PostgresScript:
    account = postgres.account()
    key = secrets.token_hex(16)
    argv = [
        str(server.bin / "psql"),
        "--no-psqlrc",
        "--quiet",
        "--output=/dev/null",
        *_where(server),
    ]
    # The environment names the database: an option would take a name with "=" for a connection
    # string.
    env = {"PGDATABASE": server.database}
    probe = process.run(
        [*argv, f"--command=\\restrict {key}"],
        ok=(0, 1),
        as_user=account,
        env=env,
    )
    # Since 2025 psql can refuse commands from then on; an older one gets only lines without a
    # command.
    first = [f"\\restrict {key}\n".encode()] if probe.returncode == 0 else []
    argv += ["--set=ON_ERROR_STOP=1", "--file=-"]
    with source.path.open("rb") as file:
        script = PostgresScript(
            file,
            lambda name: bool(
                rows(server, f"SELECT current_setting('{name}', true) IS NULL")[0][0]
            ),
            functools.partial(_make_role, server),
            server.user,
        )
        for database, lines in itertools.groupby(script, lambda _: script.database):
            before = script.line - 1 - len(first)
            env = {"PGDATABASE": database or server.database}
            pieces = itertools.chain(first, lines)
            with scripts.feed(argv, pieces, account, env) as (status, printed):
                if status:
                    text = printed.read(_PRINTED).decode(errors="replace")
                    raise _failure(source, before, text)
    script.refuse_empty(source.path)
    return script


def _failure(source: Source, before: int, printed: str) -> DbbenchError:
    """Return the error with the statement that failed; psql's line numbers begin after the line
    `before`.
    """
    *_, reason = printed.strip().split("psql:<stdin>:")
    number, _, text = reason.partition(": ")
    statement = b""
    line_number = before + int(number) if number.isdecimal() else 0
    with source.path.open("rb") as file:
        script = PostgresScript(file, lambda _: False, lambda _: None)
        for _line in script:
            if script.line >= line_number:
                statement = script.statement
                line_number = script.begun
                break
    return DatasetBuildFailed(
        f"{source.path}, line {line_number}: {scripts.shown(statement)}\n{scripts.last_lines(text)}",
        effect="The copy was removed; nothing was measured.",
        remedy="Correct this line or make the dump again, or install what the statement needs. "
        "Then run the same command.",
    )


def _make_role(server: Server, quoted: str) -> None:
    with contextlib.suppress(Exception):  # it exists
        execute(server, f"CREATE ROLE {quoted}")


def _rows_of(
    server: Server,
    database: str,
    table: str,
    count: bool,
) -> int | None:
    quoted = table.replace("'", "''")
    (kind,) = rows(
        server,
        f"SELECT (SELECT relkind FROM pg_class WHERE oid = to_regclass('{quoted}'))",
        database=database or None,
    )[0]
    if kind is None or not count:
        return None if kind is None else 0
    only = "" if kind == "p" else "ONLY "  # the rows of a partitioned table are in its partitions
    return int(rows(server, f"SELECT count(*) FROM {only}{table}", database=database or None)[0][0])


def _restore(
    source: Source,
    server: Server,
    data: Path,
) -> PostgresScript:
    """Read the archive once to see whether it is complete, then restore a copy, which the server's
    account can read.
    """
    account = postgres.account()
    copy = data.with_name("source")
    program = server.bin / "pg_restore"
    safe_files.copy_tree(source.path, copy)
    safe_files.hand_over(copy, account)
    if copy.is_dir():
        check_files(copy)
    with reading(source.path, copy, program, "--file=-", str(copy)) as printed:
        script = PostgresScript(
            printed,
            lambda _: False,
            functools.partial(_make_role, server),
        )
        for _line in script:
            pass
    script.refuse_empty(source.path)
    jobs = 1 if source.form == "pg_dump tar" else len(os.sched_getaffinity(0))
    argv: list[str | Path] = [
        program,
        "--no-owner",
        "--no-privileges",
        "--no-tablespaces",
        "--exit-on-error",
        f"--jobs={jobs}",
        *_where(server),
        f"--dbname={server.database}",
        copy,
    ]
    done = process.run(argv, timeout_s=safe_files.LOAD_S, as_user=account, ok=(0, 1))
    # the first error, with its statement; the last one says that a worker has ended
    if done.returncode:
        begin = max(0, done.stderr.find("pg_restore: error:"))
        lines = done.stderr[begin:].splitlines()
        reason = "\n".join(f"  {line}" for line in lines[: scripts.LINES])
        raise DatasetBuildFailed(
            f"{source.path} could not be restored:\n{reason}",
            effect="The copy was removed.",
            remedy="Make the dump again, or install what the statement needs. Then run the same command.",
        )
    shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    return script


def _where(server: Server) -> list[str]:
    port = server.socket.name.rpartition(".")[2]
    return [f"--host={server.socket_dir}", f"--port={port}", f"--username={server.user}"]


class PostgresScript:
    """A plain dump, or the script that pg_restore makes of an archive, as lines for psql.
    `database` is that of the last line, "" before the first \\connect: where it changes, another
    session begins. `skipped`: settings left out.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        unknown: Callable[[str], bool],
        needs: Callable[[str], None],
        role: str = "",
    ) -> None:
        """`unknown`: whether the server lacks a setting. `needs`: makes a role that a policy names.
        `role`: the superuser and its database, which a dump does not change.
        """
        self.tables: scripts.Tables = {}
        self.creates_tables = False
        self.has_rows = False
        self.skipped: dict[str, None] = {}
        self.database = ""
        # the current line; where the current statement begins
        self.line = 0
        self.begun = 0
        self.statement = b""
        self._lines = scripts.lines_of(lines)
        self._unknown = unknown
        self._needs = needs
        self._ours = re.compile(
            rb'(?:CREATE|ALTER) (?:ROLE|USER|DATABASE) "?' + role.encode() + rb'"?[ ;]'
        )
        self._schema = b""
        # what ends the string or the comments that a line left open
        self._open: list[re.Pattern[bytes]] = []
        # between two statements; in plain strings; open
        self._between = True
        self._escapes = False
        self._marks = 0

    def refuse_empty(self, path: Path) -> None:
        """Raise SourceUnusable if the dump, which was read, has no tables or no rows."""
        scripts.refuse_empty(path, self.creates_tables, self.has_rows)

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.line += 1
            if self._open or not self._between:
                self._follow(line)
                yield line
                continue
            yield (kept := self._statement(line))
            if copy := _COPY.match(kept):
                yield from self._rows(copy)
        if self._open or not self._between:
            raise scripts.incomplete(
                f"it ends within the statement of line {self.begun}: "
                f"{scripts.shown(self.statement)}"
            )
        if self._marks:
            raise scripts.incomplete("its closing comment is missing")

    def _statement(self, line: bytes) -> bytes:
        """Return the line, on which a statement may begin, or an empty one in its place."""
        if mark := _MARK.match(line):
            self._marks += -1 if mark[1] else 1
        if line.startswith(b"\\"):
            self._command(line)
            return b"\n"
        scripts.refuse_message(line, self.line)
        self.begun = self.line
        self.statement = line
        if self._is_left_out(line):
            return b"\n"
        if tablespace := _IN_TABLESPACE.match(line):
            self.skipped[scripts.shown(tablespace[2])] = None
            line = tablespace[1] + tablespace[3] + b"\n"
        self.has_rows = self.has_rows or line.startswith(b"INSERT INTO ")
        if table := _CREATE.match(line):
            self.creates_tables = True
            self.tables.setdefault((self.database, self._qualify(table[1])), None)
        elif path := _PATH.match(line):
            self._schema = path[1]
        elif policy := _POLICY.match(line):
            for name in re.findall(_NAME, policy[1]):
                self._needs(name.decode(errors="replace").rstrip(","))
        self._follow(line)
        return line

    def _is_left_out(self, line: bytes) -> bool:
        ends = line.rstrip().endswith(b";")
        if _LEFT_OUT.match(line) or self._ours.match(line):
            return ends
        if _OF_CLUSTER.match(line) and ends:
            self.skipped[scripts.shown(line)] = None
            return True
        if not (set_ := _SET.match(line)):
            return False
        name = set_[1].decode()
        value = set_[2].strip(b"'\"")
        if name == "standard_conforming_strings":
            self._escapes = value in (b"off", b"false", b"0")
        if not self._unknown(name) and (name != "default_tablespace" or not value):
            return False
        self.skipped[scripts.shown(line)] = None
        return True

    def _rows(self, copy: re.Match[bytes]) -> Iterator[bytes]:
        first = self.line
        plain = not copy[2].strip()  # with options, a row may have several lines
        tabs = -1
        for line in self._lines:
            self.line += 1
            if line.startswith(b"\\.") and line.rstrip() == b"\\.":
                yield line
                break
            if tabs < 0:
                tabs = line.count(b"\t")
            # Without an end, the rows go on with the next statements.
            if plain and (line.count(b"\t") != tabs or (not tabs and _COPY.match(line))):
                raise scripts.incomplete(
                    f"line {self.line} is not a row as line {first + 1}: {scripts.shown(line)}"
                )
            yield line
        else:
            raise scripts.incomplete(
                f"it ends within the rows of line {first}: {scripts.shown(copy[0])}"
            )
        key = self.database, self._qualify(copy[1])
        self.has_rows = self.has_rows or self.line > first + 1
        before = self.tables.get(key) or 0
        self.tables[key] = None
        if plain:
            self.tables[key] = before + self.line - first - 1

    def _qualify(self, name: bytes) -> str:
        alone = self._schema and re.fullmatch(_NAME, name)
        return (self._schema + b"." + name if alone else name).decode(errors="replace")

    def _command(self, line: bytes) -> None:
        if not (connect := _CONNECT.match(line)):
            if not _HARMLESS.match(line):
                raise self._refusal(line)
            return
        name = connect[1].decode(errors="replace")
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        if conninfo := _CONNINFO.fullmatch(name):
            name = re.sub(r"\\(.)", r"\1", conninfo[1] or conninfo[2] or "")
        elif "=" in name or "://" in name:  # it could name another server
            raise self._refusal(line)
        self.database = name
        self._schema = b""

    def _refusal(self, line: bytes, what: str = "contains a command for psql") -> DbbenchError:
        within = (
            f", in the statement that begins in line {self.begun}: {scripts.shown(self.statement)}"
        )
        return SourceRefused(
            f"line {self.line} of the dump {what}, as no dump does: "
            f"{scripts.shown(line)}"
            + (within if self.begun < self.line and not self._between else ""),
            remedy="If a message of pg_dump is in the file, make the dump again without it. "
            "Otherwise do not use the file unless you know where it comes from.",
        )

    def _follow(self, line: bytes) -> None:
        """Follow strings and comments through the line, and notice where statements end."""
        position = 0
        while True:
            if self._open:
                if (end := self._open[-1].search(line, position)) is None:
                    return
                position = end.end()
                if end[0] == b"/*":
                    self._open.append(_COMMENT)
                else:
                    self._open.pop()
                continue
            token = _TOKEN.search(line, position)
            if line[position : token.start() if token else len(line)].strip():
                if self._between and _OF_FILES.match(line[position:]):
                    raise self._refusal(line, "reads or writes a file or a program of the server")
                self._between = False
            if token is None or token[0] == b"--":
                return
            position = token.end()
            if token[0] in (b";", b"/*"):
                self._between = self._between or token[0] == b";"
                self._open += [_COMMENT] if token[0] == b"/*" else []
            elif token[0] == b"\\":
                raise self._refusal(line)
            else:
                self._between = False
                self._begin_string(token, line[max(0, token.start() - 2) : token.start()])

    def _begin_string(self, token: re.Match[bytes], before: bytes) -> None:
        if token[0] == b"'":
            escapes = self._escapes or re.search(rb"(?:^|[^\w$])[Ee]$", before)
            self._open.append(_ESCAPED if escapes else _PLAIN)
        elif token[0] == b'"':
            self._open.append(_QUOTED)
        # otherwise the dollar sign belongs to a name
        elif not re.search(rb"[\w$\x80-\xff]$", before):
            self._open.append(re.compile(re.escape(token[0])))
