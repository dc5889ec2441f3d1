"""Write a plan that compares the filesystem of a running server with others on this machine."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

from dbbench.datasets.generated import SCALE_BYTES, SYSBENCH_ROW_BYTES
from dbbench.engines import profile_of
from dbbench.errors import DbbenchError
from dbbench.introspect.server import LiveServer, ServerFacts
from dbbench.plan.catalog import Catalog
from dbbench.units import size_text

TABLES: Final = 8  # of sysbench's
OTHERS: Final = ("ext4", "xfs", "btrfs")  # that the baseline is held against
_QUIET: Final = {
    "noatime",
    "relatime",
    "discard",
    "nodiscard",
    "nodiscard=async",
    "rw",
    "defaults",
}  # of no setup alone
FREE: Final = 2.5  # device ÷ data: the copy, its log, and room to grow
LEAST_BYTES: Final = 8 * 2**30

_PLAN: Final = """\
# Made from {engine} {version} on {socket}, read at one moment and without changing anything.
# The same question on other filesystems:   dbbench plan {file}
name = "{name}"

# The data lies on {ground}.
fs_setups = [{setups}]
baseline = "{baseline}"{unsure}

blocks = 5
warmup = "60s"
measure = "120s"
# memory = "{memory}"      # this machine's; the kernel then holds server and page cache within it

[device]
kind = "loop"             # better a disk like the server's own: kind = "block", path = "/dev/disk/by-id/..."
size = "{device}"

[[engine]]
name = "{engine}"
# Settings of the server that differ from its defaults and matter to storage:
{settings}
{tables}
[[workload]]
{workload}
"""


def setup_of(facts: ServerFacts, catalog: Catalog) -> tuple[str, str]:
    """Return the fs setup that is closest to the mount of the data directory, and in which respects it may differ."""
    if facts.mount is None:
        return "ext4", f"this role may not see where {facts.engine}'s data lies: name the setup yourself"
    family = facts.mount.fstype
    if family.startswith("zfs"):
        return "zfs", "record size and compression are no mount options: `zfs get all` tells which zfs setup is nearest"
    best: tuple[int, str] | None = None
    for name in catalog.setups:
        try:
            setup = catalog.setup(name)
        except DbbenchError:
            continue
        special = setup.layers or setup.volumes or setup.attributes or setup.claims or setup.mkfs.options
        wanted = set(setup.mount) - _QUIET
        if setup.mkfs.family == family and not special and wanted <= _options(facts):
            best = max(best or (-1, ""), (len(wanted), name), key=lambda each: (each[0], -len(each[1])))
    if best is None:
        return "ext4", f"no setup is of {facts.mount.fstype}: name the nearest yourself"
    return best[1], ""


def _options(facts: ServerFacts) -> set[str]:
    """Return the mount's options; btrfs's compression also in the spelling that people use."""
    found = set(facts.mount.options) if facts.mount else set()
    return found | {re.sub(r"^(compress(?:-force)?=(?:zlib|zstd)):3$", r"\1", option) for option in found}


def plan_text(live: LiveServer, facts: ServerFacts, catalog: Catalog, file: Path, memory_bytes: int | None) -> str:
    """Return the plan, which can be loaded as it is."""
    baseline, unsure = setup_of(facts, catalog)
    setups = dict.fromkeys((baseline, *OTHERS))
    size = facts.data_bytes or 0
    mount = facts.mount
    ground = (
        f"{mount.fstype} ({','.join(mount.options)}) at {mount.point}" if mount else "a filesystem that is not known"
    )
    return _PLAN.format(
        engine=facts.engine,
        version=_plain(facts.version),
        socket=_plain(str(live.socket)),
        file=_plain(str(file)),
        name=re.sub(r"[^A-Za-z0-9._-]", "-", file.stem).strip("._-") or "plan",
        ground=_plain(ground),
        setups=", ".join(f'"{name}"' for name in setups),
        baseline=baseline,
        unsure=f"  # {_plain(unsure)}" if unsure else "",
        memory=f"{memory_bytes // 2**30}GiB" if memory_bytes and memory_bytes >= 2**30 else "8GiB",
        device=f"{-(-int(max(LEAST_BYTES, size * FREE)) // 2**30)}GiB",
        settings=_settings(facts.settings),
        tables=_tables(facts),
        workload=_workload(live, facts),
    )


def _plain(text: str) -> str:
    """Return text of a server for a comment: one line of printable characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _settings(settings: dict[str, str]) -> str:
    rows = [f"settings.{name} = {json.dumps(value)}" for name, value in settings.items() if name.isidentifier()]
    return "\n".join(row for row in rows if "\\u" not in row) or "# (none)"


def _tables(facts: ServerFacts) -> str:
    lines = [f"#   {size_text(size):>10}  {_plain(name)}" for name, size in facts.tables]
    whole = "an amount that this role may not see" if facts.data_bytes is None else size_text(facts.data_bytes)
    return "\n".join([f"# It holds {whole}; its largest tables, with their indexes:", *lines])


def _workload(live: LiveServer, facts: ServerFacts) -> str:
    size = max(facts.data_bytes or 0, SCALE_BYTES)
    profile, copy = profile_of(facts.engine), "/srv/copy"
    if profile.generated == "pgbench":
        own = ['name = "pgbench-tpcb"', f"scale = {max(1, size // SCALE_BYTES)}   # a dataset of the same size"]
    else:
        rows = max(1000, size // SYSBENCH_ROW_BYTES // TABLES)
        own = ['name = "sysbench-oltp-read-write"', f"tables = {TABLES}", f"table_size = {rows}   # of the same size"]
    command = profile.copying.format(
        host=shlex.quote(str(live.socket.parent)), port=live.socket.name.rpartition(".")[2],
        socket=shlex.quote(str(live.socket)), copy=copy,
    )  # fmt: skip
    return "\n".join([
        *own, "clients = 8",
        "# The server's own data in its place, and its own statements (dbbench workload from-statements):",
        f"#   {_plain(command)}",
        f'# source = "{copy}"',
    ])  # fmt: skip
