"""Write the kept statements: a TOML file, and next to it scripts for pgbench, or one Lua script for sysbench with the
statements of a slow log as they were logged.

Text of the recording gets into pgbench's scripts without backslashes and colons, and never into Lua or TOML.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.recordings import RecordedStatements
from dbbench.introspect.rules import REPRODUCED, SHOWN, Role, Statement, drawn, fault_of, rewritten, roles_of
from dbbench.model.base import shipped
from dbbench.units import percent, size_text

WEIGHTS: Final = 10_000  # the sum of the weights, to which calls are scaled: pgbench adds weights in an int
ARGUMENTS: Final = 255  # values of a statement that pgbench can send
ENTRY: Final = 20  # bytes of the index of workloads/dbbench_recorded.lua per statement
SAMPLE_BYTES: Final = 12 * 2**20  # of all statements next to a Lua script; a plan accepts files of 16 MiB
Ask = Callable[..., list[tuple[Any, ...]]]  # (statement, *values) -> rows; raises LiveServerUnreadable

_TYPES: Final = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'dbbench_asked'"
_NUMBERED: Final = re.compile(r":p(\d+)\b")  # a parameter of a rewritten statement
_VARIABLE: Final = re.compile(r"(?<!:):p\d+(?:_\d+)?")  # of a script
_TOML: Final = """\
# Written from {source}: {kept} statements of {all}, {share} of the calls as recorded.
# Each statement is a transaction of its own, because the recording has no transactions. Weights are numbers of calls.
# {values}
title   = "Statements recorded from {source}"
driver  = "{driver}"
engines = {engines}
script  = "{script}"
beside  = {beside}
{more}
{dataset}

[parameters]
clients = {{ type = "integer", default = 4, min = 1, help = "number of sessions" }}
rate = {{ type = "integer", default = 0, min = 0, help = "scheduled statements per second, latency measured from the \
schedule (open loop); 0 = as fast as possible" }}
"""
_PGBENCH: Final = """\
threads = { type = "integer", default = 2, min = 1, help = "number of pgbench threads (at most one per client)" }
protocol = { type = "string", default = "prepared", choices = ["extended", "prepared"], help = "of sending statements" }
"""


def written(
    name: str, recording: RecordedStatements, scripts: Sequence[str], engines: Sequence[str], dataset: str
) -> dict[str, bytes]:
    """Return the content of the workload's files, by name; the first is the TOML file.

    `scripts`: those of pgbench for the kept statements; without them it is written for sysbench. `dataset`: the line
    that defines what is loaded.
    """
    source = re.sub(r"[^A-Za-z0-9._-]", "_", recording.source.rpartition("/")[2])  # for comments and a string
    kept = recording.kept
    whole = sum(each.calls for each in kept)
    weights = [max(1, round(WEIGHTS * each.calls / whole)) for each in kept]
    if scripts:
        files = {f"{name}-{number:03}.sql": text.encode() for number, text in enumerate(scripts, 1)}
        driver, more = "pgbench", f"weights = {weights}"
        values = "Parameters are drawn by the rules in the scripts. Edit those that are marked GUESSED."
    else:
        files = _for_sysbench(name, kept, weights)
        driver, more = "sysbench", 'options = { mysql-ignore-errors = "all" }  # errors of the trial, with W019'
        values = "The statements have the values of the log."
    first, *others = files
    exact, _ = recording.shares([each for each in kept if each.group == REPRODUCED])
    text = _TOML.format(
        source=source, kept=len(kept), all=len(recording.statements), values=values, share=percent(exact, 1),
        driver=driver, script=first, beside=json.dumps(others), engines=json.dumps(list(engines)), more=more,
        dataset=dataset,
    )  # fmt: skip
    return {f"{name}.toml": (text + (_PGBENCH if scripts else "")).encode(), **files}


def _for_sysbench(name: str, kept: Sequence[Statement], weights: Sequence[int]) -> dict[str, bytes]:
    """Return the script and its statements, whose format the script describes."""
    kinds, index, texts = bytearray(), bytearray(), bytearray()
    begin = ENTRY * sum(len(statement.samples) for statement in kept)
    for statement, weight in zip(kept, weights, strict=True):
        database = statement.database.encode(errors="surrogateescape").hex() or "-"
        kinds += f"{weight} {database} {len(statement.samples)}\n".encode()
        for sample in statement.samples:
            text = sample.encode(errors="surrogateescape")
            index += b"%010d %08d\n" % (begin + len(texts), len(text))
            texts += text
    script = (shipped() / "workloads/dbbench_recorded.lua").read_bytes()
    return {f"{name}.lua": script, f"{name}.statements": bytes(kinds + b"\n" + index + texts)}


def scripts_of(recording: RecordedStatements, ask: Ask | None, most: int) -> list[str]:
    """Return pgbench's scripts of the kept statements, none for a slow log; leave out those that cannot be run again,
    and all but the `most` frequent. `ask` queries a server with their tables."""
    scripts, usable = list[str](), recording.kept
    share = SAMPLE_BYTES // max(1, min(most, len(usable)))
    for statement in usable:
        try:
            if most == 0:
                raise ValueError("not among the most frequent statements")
            if recording.dialect == "postgres":
                scripts.append(pgbench_script(statement, ask))
            else:
                _limit(statement, share, ask)
            most -= 1
        except ValueError as error:
            statement.leave_out(str(error))
        except LiveServerUnreadable as error:
            statement.leave_out(f"the server refuses it ({error.evidence.split(': ', 1)[-1]})")
    return scripts


def _limit(statement: Statement, most_bytes: int, ask: Ask | None) -> None:
    """Keep a random sample of at most that size, and let the server check one. Raises ValueError if none fits."""
    random.Random(1).shuffle(statement.samples)
    sizes = itertools.accumulate(len(text.encode(errors="surrogateescape")) + ENTRY for text in statement.samples)
    statement.samples[:] = statement.samples[: sum(size <= most_bytes for size in sizes)]
    if not statement.samples:
        raise ValueError(f"longer than {size_text(most_bytes)}")
    if re.match(r"insert\b(?!.*\b(ignore|duplicate)\b)", statement.text, re.DOTALL):
        statement.approximate("inserts its recorded keys again; those that exist are errors of the trial")
    if ask:
        if statement.database:
            ask(f"USE `{statement.database.replace('`', '``')}`")
        ask("COMMIT")  # in the read-only transaction of `reading`, a change cannot even be prepared
        ask("PREPARE dbbench_asked FROM %s", statement.samples[0])


def pgbench_script(statement: Statement, ask: Ask | None) -> str:
    """Return the script of a statement of pg_stat_statements; `ask` queries a server with its tables.

    Notes in the statement in which respects it differs from the recorded one. Raises ValueError with the reason if no
    script can send it, LiveServerUnreadable if the server refuses it.
    """
    text = rewritten(statement.text)
    roles, lines, expressions = _roles_of(text, ask), f"-- {statement.calls} calls\n", dict[int, str]()
    for number, role in roles.items():
        drawing, expressions[number] = drawn(number, role, expressions.get(role.after, ""))
        lines += drawing
    if re.match(r"insert\b(?!.*\bon conflict\b)", text, re.IGNORECASE):  # an error would end the client
        place = min((match.start() for match in re.finditer(r"\breturning\b", text, re.IGNORECASE)), default=len(text))
        text = f"{text[:place]} ON CONFLICT DO NOTHING {text[place:]}".rstrip()
        statement.approximate("rows whose key exists are not inserted (ON CONFLICT DO NOTHING)")
    sent = _NUMBERED.sub(lambda match: expressions[int(match[1])], text)
    pieces = _VARIABLE.split(sent)
    if len(pieces) - 1 > ARGUMENTS:
        raise ValueError(f"{len(pieces) - 1} values; pgbench can send {ARGUMENTS}")
    if any(role.guessed for role in roles.values()):
        statement.approximate("guessed values")
    if ask:
        numbered = "".join(f"{piece}${number}" for number, piece in enumerate(pieces[:-1], 1)) + pieces[-1]
        plan, expected = _plan(ask, numbered), ""
        with contextlib.suppress(LiveServerUnreadable):  # `interval $1` cannot be prepared
            expected = _plan(ask, statement.text)
        if expected not in ("", plan):
            statement.approximate(
                "; ".join(filter(None, (statement.why, f"another plan: {plan} instead of {expected}")))
            )
    return f"{lines}{sent};\n"


def _roles_of(text: str, ask: Ask | None) -> dict[int, Role]:
    """Return the roles of all parameters of a rewritten text, the begin of a range before its end."""
    roles, tables = roles_of(text)
    types = _prepared(ask, _NUMBERED.sub(r"$\1", text), _TYPES)[0][0] if ask else []
    for number in {int(number) for number in _NUMBERED.findall(text)}:
        role = roles.setdefault(number, Role())
        if ask:
            role.type, role.values = role.type or types[number - 1], _values(ask, role.column, tables)
    return dict(sorted(roles.items(), key=lambda each: (each[1].after, each[0])))


def _values(ask: Ask, column: str, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a column in the server's statistics that a script can contain."""
    if not column:
        return ()
    values = [str(row[0]) for row in ask(
        "SELECT unnest(coalesce(most_common_vals::text::text[], '{}') || coalesce(histogram_bounds::text::text[], "
        "'{}')) FROM pg_stats WHERE attname = %s AND tablename = ANY(%s)",
        column, list(tables),
    )]  # fmt: skip
    return tuple(value for value in values if len(value) <= SHOWN and not fault_of(value))


def _prepared(ask: Ask, text: str, *questions: str) -> list[tuple[Any, ...]]:
    """Prepare a statement and return the answer to the last question. Raises the server's own error."""
    ask(f"PREPARE dbbench_asked AS {text}")
    try:
        return [ask(question) for question in questions][-1]
    finally:
        ask("DEALLOCATE dbbench_asked")


def _plan(ask: Ask, text: str) -> str:
    """Return the nodes of the plan for unknown values, with their tables and indexes."""
    ((types,),) = _prepared(ask, text, _TYPES)
    values = f"({', '.join(['NULL'] * len(types))})" if types else ""
    question = f"EXPLAIN (FORMAT JSON) EXECUTE dbbench_asked{values}"
    ((tree,),) = _prepared(ask, text, "SET plan_cache_mode = force_generic_plan", question)
    nodes, parts = [tree[0]["Plan"]], list[str]()
    while nodes:
        node = nodes.pop()
        parts.append(" ".join(str(node[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in node))
        nodes += node.get("Plans", ())
    return ", ".join(parts)
