"""Write the kept statements as a workload of sysbench: a TOML file, a Lua script, and the
statements. Their text never gets into Lua or TOML.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from typing import Final

from dbbench.engines import profile_of
from dbbench.engines.sql import Ask
from dbbench.errors import LiveServerUnreadable
from dbbench.introspect.recordings import REPRODUCED, RecordedStatements, Statement
from dbbench.introspect.server import LiveServer
from dbbench.introspect.values import samples_of
from dbbench.model.base import data_folder
from dbbench.units import percent, size_text

WEIGHTS: Final = 10_000  # the sum of the weights, to which calls are scaled
ENTRY: Final = 20  # bytes of the index of workloads/dbbench_recorded.lua per statement
# of all statements next to a Lua script; a plan accepts files of 16 MiB
SAMPLE_BYTES: Final = 12 * 2**20


def choose(
    recording: RecordedStatements,
    live: LiveServer | None,
    most: int,
) -> None:
    """Leave out what cannot be sent again, and all but the `most` frequent. `live`: a server with
    these tables.
    """
    kept = recording.in_workload
    most_bytes = SAMPLE_BYTES // max(1, min(most, len(kept)))
    for statement in kept:
        try:
            if most == 0:
                raise ValueError("not among the most frequent statements")
            _limit(statement, most_bytes, live.rows if live else None)
            sql = profile_of(live.engine).sql if live else None
            if live and sql:
                sample = statement.samples[0]
                other = sql.other_plan(live.rows, statement.text, sample, statement.database)
                statement.approximate(other)
            most -= 1
        except ValueError as error:
            statement.leave_out(str(error))
        except LiveServerUnreadable as error:
            # Without the statement and a hint, which PostgreSQL adds.
            answer = error.evidence.partition(": ")[2].partition(" LINE 1: ")[0]
            statement.leave_out(f"the server refuses it ({answer})")


def _limit(statement: Statement, most_bytes: int, ask: Ask | None) -> None:
    """Keep a random sample of at most that size. Raises ValueError if none fits."""
    if not statement.samples:  # the recording has parameters instead of values
        statement.samples, differences = samples_of(statement.text, ask, most_bytes)
        statement.approximate(*differences)
    elif re.match(r"insert\b(?!.*\b(ignore|duplicate)\b)", statement.text, re.DOTALL):
        statement.approximate(
            "inserts its recorded keys again; those that exist are errors of the trial"
        )
    random.Random(1).shuffle(statement.samples)
    lengths = [len(text.encode(errors="surrogateescape")) for text in statement.samples]
    sizes = itertools.accumulate(length + ENTRY for length in lengths)
    fitting = sum(size <= most_bytes for size in sizes)
    statement.samples[:] = statement.samples[:fitting]
    if not statement.samples:
        raise ValueError(f"longer than {size_text(most_bytes)}")


def files_of(
    name: str,
    recording: RecordedStatements,
    engines: Sequence[str],
    dataset: str,
) -> dict[str, bytes]:
    """Return the content of the workload's files, by name; the first is the TOML file, of which
    `dataset` is a line.
    """
    kept = recording.in_workload
    kinds = bytearray()
    index = bytearray()
    texts = bytearray()
    exact, _ = recording.shares([each for each in kept if each.group == REPRODUCED])
    folder = data_folder() / "workloads"
    # The description of the workload.
    toml = (folder / "dbbench_recorded.in").read_text()
    toml = toml.format(
        name=name,
        source=re.sub(r"[^A-Za-z0-9._-]", "_", recording.source.rpartition("/")[2]),
        kept=len(kept),
        all=len(recording.statements),
        share=percent(exact, 1),
        engines=json.dumps(list(engines)),
        dataset=dataset,
    )
    # The format of the statements is described in the script.
    begin = ENTRY * sum(len(each.samples) for each in kept)
    whole = sum(each.calls for each in kept)
    for statement in kept:
        # In the copy, PostgreSQL's database has the name of dbbench.
        base = "" if recording.dialect == "postgres" else statement.database
        base = base.encode(errors="surrogateescape").hex()
        weight = max(1, round(WEIGHTS * statement.calls / whole))
        kinds += f"{weight} {base or '-'} {len(statement.samples)}\n".encode()
        for sample in statement.samples:
            text = sample.encode(errors="surrogateescape")
            index += b"%010d %08d\n" % (begin + len(texts), len(text))
            texts += text
    script = (folder / "dbbench_recorded.lua").read_bytes()
    return {
        f"{name}.toml": toml.encode(),
        f"{name}.lua": script,
        f"{name}.statements": bytes(kinds + b"\n" + index + texts),
    }
