"""Write the kept statements as a workload of sysbench: a TOML file, a Lua script, and the statements. Their text never
gets into Lua or TOML."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from collections.abc import Sequence
from typing import Any, Final

from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.recordings import REPRODUCED, RecordedStatements, Statement
from dbbench.introspect.values import Ask, prepare, samples_of
from dbbench.model.base import data_folder
from dbbench.units import percent, size_text

WEIGHTS: Final = 10_000  # the sum of the weights, to which calls are scaled
ENTRY: Final = 20  # bytes of the index of workloads/dbbench_recorded.lua per statement
SAMPLE_BYTES: Final = 12 * 2**20  # of all statements next to a Lua script; a plan accepts files of 16 MiB


def choose(recording: RecordedStatements, ask: Ask | None, most: int) -> None:
    """Leave out the statements that cannot be sent again, and all but the `most` frequent. `ask` queries a server with
    their tables."""
    kept = recording.in_workload
    most_bytes = SAMPLE_BYTES // max(1, min(most, len(kept)))
    for statement in kept:
        try:
            if most == 0:
                raise ValueError("not among the most frequent statements")
            _limit(statement, recording.dialect, most_bytes, ask)
            if ask:
                (_check_plan if recording.dialect == "postgres" else _prepare)(statement, ask)
            most -= 1
        except ValueError as error:
            statement.leave_out(str(error))
        except LiveServerUnreadable as error:
            statement.leave_out(f"the server refuses it ({error.evidence.split(': ', 1)[-1]})")


def _limit(statement: Statement, dialect: str, most_bytes: int, ask: Ask | None) -> None:
    """Keep a random sample of at most that size. Raises ValueError if none fits."""
    if dialect == "postgres":
        statement.samples, differences = samples_of(statement.text, ask, most_bytes)
        for difference in differences:
            statement.approximate(difference)
    elif re.match(r"insert\b(?!.*\b(ignore|duplicate)\b)", statement.text, re.DOTALL):
        statement.approximate("inserts its recorded keys again; those that exist are errors of the trial")
    random.Random(1).shuffle(statement.samples)
    sizes = itertools.accumulate(len(text.encode(errors="surrogateescape")) + ENTRY for text in statement.samples)
    statement.samples[:] = statement.samples[: sum(size <= most_bytes for size in sizes)]
    if not statement.samples:
        raise ValueError(f"longer than {size_text(most_bytes)}")


def _prepare(statement: Statement, ask: Ask) -> None:
    """Let the server check a statement of a slow log."""
    if statement.database:
        ask(f"USE `{statement.database.replace('`', '``')}`")
    ask("COMMIT")  # in the read-only transaction of `reading`, a change cannot even be prepared
    ask("PREPARE dbbench_asked FROM %s", statement.samples[0])


def _check_plan(statement: Statement, ask: Ask) -> None:
    """Compare the plans of a statement with values and of the recorded one, which PostgreSQL plans for any values."""
    plan = _nodes(ask(f"EXPLAIN (FORMAT JSON) {statement.samples[0]}"))
    numbers = {int(number) for number in re.findall(r"\$(\d+)", statement.text)}
    execute = f"EXECUTE dbbench_asked({', '.join(['NULL'] * len(numbers))})" if numbers else "EXECUTE dbbench_asked"
    with contextlib.suppress(LiveServerUnreadable):  # `interval $1` cannot be prepared
        force = "SET plan_cache_mode = force_generic_plan"
        expected = _nodes(prepare(ask, statement.text, force, f"EXPLAIN (FORMAT JSON) {execute}"))
        if plan != expected:
            statement.approximate(f"another plan: {plan} instead of {expected}")


def _nodes(answer: list[tuple[Any, ...]]) -> str:
    """Return the nodes of a plan, with their tables and indexes."""
    ((tree,),) = answer
    nodes, parts = [tree[0]["Plan"]], list[str]()
    while nodes:
        node = nodes.pop()
        parts.append(" ".join(str(node[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in node))
        nodes += node.get("Plans", ())
    return ", ".join(parts)


def files_of(name: str, recording: RecordedStatements, engines: Sequence[str], dataset: str) -> dict[str, bytes]:
    """Return the content of the workload's files, by name; the first is the TOML file, of which `dataset` is a line."""
    kept = recording.in_workload
    exact, _ = recording.shares([each for each in kept if each.group == REPRODUCED])
    folder = data_folder() / "workloads"
    text = (folder / "dbbench_recorded.in").read_text().format(
        name=name, source=re.sub(r"[^A-Za-z0-9._-]", "_", recording.source.rpartition("/")[2]), kept=len(kept),
        all=len(recording.statements), share=percent(exact, 1), engines=json.dumps(list(engines)), dataset=dataset,
    )  # fmt: skip
    script = (folder / "dbbench_recorded.lua").read_bytes()
    return {f"{name}.toml": text.encode(), f"{name}.lua": script, f"{name}.statements": _statements(recording)}


def _statements(recording: RecordedStatements) -> bytes:
    """Return the statements in the format that the script describes."""
    kept, kinds, index, texts = recording.in_workload, bytearray(), bytearray(), bytearray()
    begin, whole = ENTRY * sum(len(each.samples) for each in kept), sum(each.calls for each in kept)
    for statement in kept:
        # In the copy, PostgreSQL's database has the name of dbbench.
        base = "" if recording.dialect == "postgres" else statement.database
        weight = max(1, round(WEIGHTS * statement.calls / whole))
        kinds += f"{weight} {base.encode(errors='surrogateescape').hex() or '-'} {len(statement.samples)}\n".encode()
        for sample in statement.samples:
            text = sample.encode(errors="surrogateescape")
            index += b"%010d %08d\n" % (begin + len(texts), len(text))
            texts += text
    return bytes(kinds + b"\n" + index + texts)
