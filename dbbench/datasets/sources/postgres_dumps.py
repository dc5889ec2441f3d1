"""Load dumps of pg_dump and pg_dumpall into a running server, and compare them with what it then has."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

from dbbench import process
from dbbench.datasets.sources import files
from dbbench.datasets.sources.postgres_script import PostgresScript
from dbbench.datasets.sources.scripts import LINES, LOAD_S, Tables, compare, feed, last_lines, shown
from dbbench.datasets.sources.source import Source, unusable
from dbbench.engines import postgres
from dbbench.engines.port import Server
from dbbench.engines.sql import execute, rows
from dbbench.errors import DatasetBuildFailed, DbbenchError, SourceUnusable
from dbbench.model import SourceChange


def load(source: Source, server: Server, data: Path) -> tuple[SourceChange, ...]:
    """Load the dump; return what was left out. Raises DatasetBuildFailed, SourceUnusable, SourceRefused."""
    tables, skipped = _psql(source, server) if source.form == "pg_dump plain" else _restore(source, server, data)
    return compare(source.path, tables, skipped, functools.partial(_rows_of, server))


def _psql(source: Source, server: Server) -> tuple[Tables, dict[str, None]]:
    account, key = postgres.account(), secrets.token_hex(16)
    argv = [str(server.bin / "psql"), "--no-psqlrc", "--quiet", "--output=/dev/null", *_where(server)]
    # The environment names the database: an option would take a name with "=" for a connection string.
    env = {"PGDATABASE": server.database}
    probe = process.run([*argv, f"--command=\\restrict {key}"], ok=(0, 1), as_user=account, env=env)
    # Since 2025 psql can refuse commands from then on; an older one gets only lines without a command.
    first = [f"\\restrict {key}\n".encode()] if probe.returncode == 0 else []
    argv += ["--set=ON_ERROR_STOP=1", "--file=-"]
    with source.path.open("rb") as file:
        script = PostgresScript(
            file,
            lambda name: bool(rows(server, f"SELECT current_setting('{name}', true) IS NULL")[0][0]),
            functools.partial(_make_role, server),
            server.user,
        )
        for database, lines in itertools.groupby(script, lambda _: script.database):
            before = script.line - 1 - len(first)
            env = {"PGDATABASE": database or server.database}
            status, printed = feed(argv, itertools.chain(first, lines), account, env)
            if status:
                raise _failure(source, before, printed)
    return script.tables, script.skipped


def _failure(source: Source, before: int, printed: str) -> DbbenchError:
    """Return the error with the statement that failed; psql's line numbers begin after the line `before`."""
    *_, reason = printed.strip().split("psql:<stdin>:")
    number, _, text = reason.partition(": ")
    statement, at = b"", before + int(number) if number.isdecimal() else 0
    with source.path.open("rb") as file:
        script = PostgresScript(file, lambda _: False, lambda _: None)
        for _line in script:
            if script.line >= at:
                statement, at = script.statement, script.begun
                break
    return DatasetBuildFailed(
        f"{source.path}, line {at}: {shown(statement)}\n{last_lines(text)}",
        effect="The copy was removed; nothing was measured.",
        remedy="Correct this line or make the dump again, or install what the statement needs. "
        "Then run the same command.",
    )


def _make_role(server: Server, quoted: str) -> None:
    with contextlib.suppress(Exception):  # it exists
        execute(server, f"CREATE ROLE {quoted}")


def _rows_of(server: Server, database: str, table: str, count: bool) -> int | None:
    quoted = table.replace("'", "''")
    (kind,) = rows(server, f"SELECT (SELECT relkind FROM pg_class WHERE oid = to_regclass('{quoted}'))",
                   database=database or None)[0]  # fmt: skip
    if kind is None or not count:
        return None if kind is None else 0
    only = "" if kind == "p" else "ONLY "  # the rows of a partitioned table are in its partitions
    return int(rows(server, f"SELECT count(*) FROM {only}{table}", database=database or None)[0][0])


def _restore(source: Source, server: Server, data: Path) -> tuple[Tables, dict[str, None]]:
    """Read the archive once to see whether it is complete, then restore a copy, which the server's account can read."""
    account, copy, program = postgres.account(), data.with_name("source"), server.bin / "pg_restore"
    files.copy_tree(source.path, copy)
    files.hand_over(copy, account)
    with (
        tempfile.TemporaryFile() as messages,
        process.running(
            [program, "--file=-", copy], stdout=subprocess.PIPE, stderr=messages.fileno(), as_user=account
        ) as reader,
    ):
        assert reader.popen.stdout is not None
        script = PostgresScript(reader.popen.stdout, lambda _: False, functools.partial(_make_role, server))

        def read_messages() -> str:
            messages.seek(0)
            return messages.read().decode(errors="replace").strip()

        try:
            for _line in script:
                pass
        except SourceUnusable as error:
            reason = read_messages() if reader.wait(LOAD_S) else error.evidence
            raise unusable(f"{source.path} is damaged or truncated: {reason}") from error
        if reader.wait(LOAD_S):
            raise unusable(f"{source.path} cannot be read:\n{last_lines(read_messages())}")
    jobs = 1 if source.form == "pg_dump tar" else len(os.sched_getaffinity(0))
    argv: list[str | Path] = [program, "--no-owner", "--no-privileges", "--no-tablespaces", "--exit-on-error",
                              f"--jobs={jobs}", *_where(server), f"--dbname={server.database}", copy]  # fmt: skip
    done = process.run(argv, timeout_s=LOAD_S, as_user=account, ok=(0, 1))
    if done.returncode:  # the first error, with its statement; the last one says that a worker has ended
        lines = done.stderr[max(0, done.stderr.find("pg_restore: error:")) :].splitlines()[:LINES]
        reason = "\n".join(f"  {line}" for line in lines)
        raise DatasetBuildFailed(f"{source.path} could not be restored:\n{reason}", effect="The copy was removed.",
                                 remedy="Make the dump again, or install what the statement needs. "
                                        "Then run the same command.")  # fmt: skip
    shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
    return script.tables, {}


def _where(server: Server) -> list[str]:
    port = server.socket.name.rpartition(".")[2]
    return [f"--host={server.socket_dir}", f"--port={port}", f"--username={server.user}"]
