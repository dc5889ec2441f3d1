"""What each key of a plan requires, what it excludes, and with what it has no effect: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from dbbench.datasets import generated
from dbbench.drivers import AWAY
from dbbench.engines import SERVERS, profile_of
from dbbench.model import FsSetup, WorkloadSpec
from dbbench.model.base import SIZE_PARAMETERS
from dbbench.model.plan import QUEUE
from dbbench.operations import OPERATIONS
from dbbench.plan.draft import PlanDraft
from dbbench.plan.tomlfile import Key
from dbbench.storage.filesystems import FAMILIES
from dbbench.storage.filesystems.volumes import devices_to_add

REQUIRES = "{} requires {}"
EXCLUDES = "{} cannot be combined with {}"
NO_EFFECT = "{} has no effect {}; remove it"
WITHOUT_SERVER: Final = ("fsck", "grow")  # operations that start no server
READING: Final = (*WITHOUT_SERVER, "scan")  # operations that a read-only standby can run
# operations that change no filesystem
ANYWHERE: Final = ("clone", "base-backup", "crash-recovery", "scan")
# only for generated data
GENERATED: Final = ("size", "table_bytes", "rows", "seed", "fillfactor", "compressibility")
SHOWN: Final = ("kind", "fs_setup")  # keys whose value decides, and is therefore in the text

OWN_FILESYSTEM: Final = 'a filesystem of its own: set kind = "loop" or "block" in [device]'
FILESYSTEM: Final = 'a filesystem, but "{}" has none'
WHOLE: Final = '"tablespace": it requires a whole data directory'
WITHOUT_SOURCE: Final = 'without a "source"'
A_PATH: Final = 'path = "/dev/disk/by-id/..."'
ONE_TABLESPACE: Final = " and ".join(name for name in SERVERS if profile_of(name).one_tablespace)

LOG: Final = "device.wal"  # the table of the log's own volume
LOG_TEXT: Final = f"[{LOG}]"
# Key of [device] or of the log's table -> the kinds with which it has an effect; the log's table is
# refused with "dir".
DEVICE_KEYS: Final = {
    "size": ("loop",),
    "at": ("loop",),
    "count": ("loop",),
    "path": ("block",),
    "paths": ("block", "dir"),
    "identity": ("block",),
    "condition": ("block",),
    "limit": ("loop", "block"),
    **dict.fromkeys(QUEUE, ("loop", "block")),
    "wal": ("loop", "block"),
    "wal.size": ("loop", "dir"),
    "wal.at": ("loop", "dir"),
    "wal.path": ("block", "dir"),
    "wal.identity": ("block", "dir"),
}

# The names with which a key is in conflict, for {} in the text; or whether it is, if the text needs
# none.
Conflict = Callable[[PlanDraft, Key], Iterable[object] | bool]


class Rule(NamedTuple):
    """`key`: "age", "device.count", "engine.profile" (in each entry of the list), "engine" (each
    entry as a whole).
    """

    key: str
    relation: str
    other: str
    conflict: Conflict


def check_rules(draft: PlanDraft) -> None:
    """Note every rule that the plan breaks, with the line of the key; none about a device that
    could not be read.
    """
    unknown = () if draft.device_known else ("device", "fs_setups")
    for rule in RULES:
        if rule.key.startswith(unknown):
            continue
        for entry, place, subject in _places(draft, rule.key):
            names = rule.conflict(draft, entry)
            if isinstance(names, bool):
                names = ("",) if names else ()
            for name in names:
                other = rule.other.replace("{}", str(name))
                draft.document.flaw(place, rule.relation.format(subject, other))


def _places(draft: PlanDraft, rule_key: str) -> Iterator[tuple[Key, Key, str]]:
    """Yield (key of the entry or of the whole, key of the flaw, its name in the text) where the
    rule's key is given.
    """
    # A key of the plan itself has one place, that of a list one in each entry.
    head, *rest = rule_key.split(".")
    subjects = draft.subjects
    if head not in subjects:
        key = (head, *rest)
        value = draft.value(key)
        if value is not None:
            text = f'{key[-1]} = "{value}"' if key[-1] in SHOWN else f'"{key[-1]}"'
            yield key, key, text
        return
    for entry, subject in subjects[head].items():
        if draft.operations.get(entry) not in (None, *OPERATIONS):
            continue  # it does not exist
        if not rest:
            yield entry, (*entry, "name"), subject
        elif draft.value((*entry, *rest)) is not None:
            yield entry, (*entry, *rest), f'"{rest[-1]}"'


def _kind(kind: str, conflict: Conflict = lambda _draft, _key: True) -> Conflict:
    """Return the conflict with one kind of device."""
    return lambda draft, key: conflict(draft, key) if draft.device.kind == kind else ()


def _other_kind(kinds: Iterable[str]) -> Conflict:
    """Return the conflict with every other kind of device, which is its name."""

    def conflict(draft: PlanDraft, _key: Key) -> Iterator[str]:
        if draft.device.kind not in kinds:
            yield draft.device.kind

    return conflict


def _of_log(condition: Callable[[FsSetup], bool]) -> Conflict:
    """Return the conflict with the setup of the log's own volume."""
    return lambda draft, _: draft.log_setup is not None and condition(draft.log_setup)


def _devices_for_log(draft: PlanDraft, _key: Key) -> Iterator[int]:
    if draft.log_setup is not None and draft.log_setup.devices.min > 1:
        yield draft.log_setup.devices.min


def _client(draft: PlanDraft, _key: Key) -> bool:
    return "client" in draft.document.data


def _has_server(draft: PlanDraft, engine: Key) -> bool:
    return profile_of(draft.engines[engine].name).has_server


def _arms_without_filesystem(draft: PlanDraft, key: Key) -> list[str]:
    if draft.value(key) == []:
        return []
    return [arm.use for place, arm in draft.arms.items() if _is_raw(draft, place)]


def _is_raw(draft: PlanDraft, arm: Key) -> bool:
    return arm in draft.setups and draft.setups[arm].mkfs.family == "raw"


def _log_apart(draft: PlanDraft, arm: Key) -> bool:
    return "log" in draft.device.volumes and draft.arms[arm].wal


def _log_volume(draft: PlanDraft, arm: Key) -> bool:
    return arm in draft.setups and "wal" in draft.setups[arm].volumes


def _engines_without_source(draft: PlanDraft, load: Key) -> list[str]:
    spec, _ = draft.workloads[load]
    if not spec.source or "" in spec.source:
        return []
    return [engine for engine in spec.engines if engine not in spec.source]


def _tablespaces(draft: PlanDraft, key: Key) -> bool:
    return bool(draft.value(key)) and any(spec.tablespace for spec, _ in draft.workloads.values())


def _windows_too_short(draft: PlanDraft, _key: Key) -> list[str]:
    """Return the plan's window if no snapshot would be taken in it."""
    plan = draft.plan
    if plan is None or plan.snapshots is None:
        return []
    if any(workload.window != "fixed" for _, workload in draft.workloads.values()):
        return []
    if plan.snapshots.every_s >= plan.measure_s:
        return [f"{plan.measure_s:g} s"]
    return []


def _too_few_devices(draft: PlanDraft, arm: Key) -> list[str]:
    number = draft.device.device_count
    setup = draft.setups.get(arm)
    if setup is None or draft.device.existing or number >= setup.devices.min:
        return []
    return [f"{setup.devices.min} devices or more, but the plan has {number}"]


def _too_few_spares(draft: PlanDraft, operation: Key) -> Iterator[str]:
    number = draft.device.device_count
    counted = draft.device_known and not draft.device.existing
    if draft.operations[operation] != "grow" or not counted:
        return
    for setup in draft.setups.values():
        more = devices_to_add(setup)
        least = setup.devices.min
        if more and number < least + more:
            further = "one device" if more == 1 else f"{more} devices"
            yield (
                f'{further} more than the {least} of fs setup "{setup.name}", but the plan has '
                f"{number}"
            )


def _no_table(draft: PlanDraft, _key: Key) -> Iterator[str]:
    """Yield a label for the example if the device has no table of directories."""
    if draft.whole and not draft.device.directories:
        yield next(iter(draft.labels), "ext4")


def _labels_without_directory(draft: PlanDraft, _key: Key) -> list[str]:
    folders = draft.device.directories
    if not folders or not draft.whole:
        return []
    return [label for label in draft.labels if label not in folders]


def _standby(draft: PlanDraft, operation: Key) -> bool:
    """Whether the operation writes to a server that an apply workload leaves as a read-only
    standby.
    """
    applied = any(workload.driver == "apply" for _, workload in draft.workloads.values())
    standby = any(profile_of(engine.name).standby for engine in draft.engines.values())
    return applied and standby and draft.operations[operation] not in READING


def _without_source(condition: Callable[[WorkloadSpec], bool]) -> Conflict:
    """Return the conflict of a workload without the user's data."""

    def with_spec(draft: PlanDraft, load: Key) -> bool:
        spec, _ = draft.workloads[load]
        return not spec.source and condition(spec)

    return with_spec


def _tablespace_alone(draft: PlanDraft, load: Key) -> bool:
    spec, workload = draft.workloads[load]
    placed = generated.TABLESPACE in generated.PARAMETERS[str(workload.dataset["kind"])]
    return bool(spec.tablespace) and not spec.source and not placed


def _relative(draft: PlanDraft, load: Key) -> bool:
    spec, _ = draft.workloads[load]
    return any((*spec.sweeps.get("size", ()), spec.parameters.get("size", "")))


def _other_size(draft: PlanDraft, load: Key) -> list[str]:
    """Return the key that gives the size that `size` gives too."""
    spec, workload = draft.workloads[load]
    grows = SIZE_PARAMETERS.get(str(workload.dataset["kind"]), "")
    given = grows in spec.parameters or grows in spec.sweeps
    if given and _relative(draft, load):
        return [grows]
    return []


def _engines_for_raw(draft: PlanDraft, arm: Key) -> list[str]:
    """Return the engines that cannot use a device without a filesystem."""
    if not _is_raw(draft, arm):
        return []
    names = {engine.name for engine in draft.engines.values()}
    return sorted(name for name in names if not profile_of(name).one_tablespace)


def _copies(draft: PlanDraft, arm: Key) -> list[str]:
    """Return the operations that copy the data, if the arm's log is not with it."""
    if not _log_apart(draft, arm) and not _log_volume(draft, arm):
        return []
    return [name for name in ("snapshot", "clone") if name in draft.operations.values()]


def _local_driver(draft: PlanDraft, load: Key) -> Iterator[str]:
    driver = draft.workloads[load][1].driver
    if _client(draft, load) and driver not in AWAY:
        yield driver


def _operation_without_server(draft: PlanDraft, operation: Key) -> list[str]:
    if draft.operations[operation] in WITHOUT_SERVER:
        return []
    names = [engine.name for engine in draft.engines.values()]
    return [name for name in names if not profile_of(name).has_server]


RULES: Final = (
    Rule(
        "budget",
        EXCLUDES,
        '"blocks": both decide the number of blocks',
        lambda draft, _: "blocks" in draft.document.data,
    ),
    Rule("equal_readahead", NO_EFFECT, 'with kind = "dir"', _kind("dir")),
    Rule(
        "device.readahead",
        EXCLUDES,
        '"equal_readahead": both set the read-ahead',
        lambda draft, _: "equal_readahead" in draft.document.data,
    ),
    Rule("age", REQUIRES, OWN_FILESYSTEM, _kind("dir")),
    Rule("age", REQUIRES, FILESYSTEM, _arms_without_filesystem),
    Rule("operations", REQUIRES, FILESYSTEM, _arms_without_filesystem),
    Rule("operations", EXCLUDES, WHOLE, _tablespaces),
    Rule("snapshots", EXCLUDES, WHOLE, _tablespaces),
    Rule(
        "snapshots.every",
        REQUIRES,
        "a longer window than {}; otherwise no snapshot is taken",
        _windows_too_short,
    ),
    *(
        Rule(f"device.{key}", NO_EFFECT, 'with kind = "{}"', _other_kind(kinds))
        for key, kinds in DEVICE_KEYS.items()
    ),
    Rule(
        "device.kind",
        REQUIRES,
        A_PATH,
        _kind("block", lambda draft, _: not draft.device.disks),
    ),
    Rule(
        "device.kind",
        REQUIRES,
        "paths as a list",
        _kind("block", lambda draft, _: isinstance(draft.device.paths, dict)),
    ),
    Rule(
        "device.kind",
        REQUIRES,
        'a directory of each fs setup: paths = { {} = "/mnt/a" }',
        _kind("dir", _no_table),
    ),
    Rule(
        "device.paths",
        REQUIRES,
        'a directory for "{}"',
        _kind("dir", _labels_without_directory),
    ),
    Rule(
        LOG,
        REQUIRES,
        f'{A_PATH}, because kind = "block"',
        _kind("block", lambda draft, _: not draft.value(("device", "wal", "path"))),
    ),
    Rule(
        f"{LOG}.fs_setup",
        REQUIRES,
        "{} devices or more, but the log has one",
        _devices_for_log,
    ),
    Rule(
        f"{LOG}.fs_setup",
        EXCLUDES,
        f"{LOG_TEXT}: mkfs does not make it; use a setup with a volume for the log",
        _of_log(
            lambda setup: setup.mkfs.family in FAMILIES and not FAMILIES[setup.mkfs.family].by_mkfs
        ),
    ),
    Rule(
        f"{LOG}.fs_setup",
        EXCLUDES,
        f"{LOG_TEXT}: it has volumes",
        _of_log(lambda setup: bool(setup.volumes)),
    ),
    Rule("fs_setups", REQUIRES, "{}", _too_few_devices),
    Rule("fs_setups.mount", NO_EFFECT, 'with kind = "dir"', _kind("dir")),
    Rule("fs_setups.mkfs", NO_EFFECT, 'with kind = "dir"', _kind("dir")),
    Rule(
        "fs_setups.wal",
        NO_EFFECT,
        f"without {LOG_TEXT}",
        lambda draft, _: "log" not in draft.device.volumes,
    ),
    Rule(
        "fs_setups",
        REQUIRES,
        f"{LOG_TEXT} for the remaining files, because it has no filesystem",
        lambda draft, arm: _is_raw(draft, arm) and not _log_apart(draft, arm),
    ),
    Rule(
        "fs_setups",
        EXCLUDES,
        f'engine "{{}}", which requires a filesystem (possible: {ONE_TABLESPACE})',
        _engines_for_raw,
    ),
    Rule(
        "fs_setups",
        EXCLUDES,
        f"{LOG_TEXT}: it already has a volume for the log; add wal = false",
        lambda draft, arm: _log_apart(draft, arm) and _log_volume(draft, arm),
    ),
    Rule(
        "fs_setups",
        EXCLUDES,
        'operation "{}", which cannot copy a log on another device',
        _copies,
    ),
    Rule(
        "engine",
        EXCLUDES,
        f"{LOG_TEXT}: it has no write-ahead log",
        lambda draft, key: "log" in draft.device.volumes and not _has_server(draft, key),
    ),
    Rule(
        "engine.profile",
        NO_EFFECT,
        "with an engine without a server",
        lambda draft, key: not _has_server(draft, key),
    ),
    Rule("engine.cpus_client", NO_EFFECT, "with [client]", _client),
    Rule(
        "workload",
        EXCLUDES,
        f"[client]: its driver {{}} runs only on this host, unlike {' and '.join(AWAY)}",
        _local_driver,
    ),
    Rule(
        "workload",
        EXCLUDES,
        '[client]: it has a "during" statement',
        lambda draft, key: _client(draft, key) and bool(draft.workloads[key][1].during),
    ),
    Rule("workload.tablespace", NO_EFFECT, WITHOUT_SOURCE, _tablespace_alone),
    Rule(
        "workload.database",
        NO_EFFECT,
        WITHOUT_SOURCE,
        _without_source(lambda spec: bool(spec.database)),
    ),
    Rule(
        "workload.settle",
        NO_EFFECT,
        WITHOUT_SOURCE,
        _without_source(lambda spec: not spec.settle),
    ),
    Rule("workload.checksums", NO_EFFECT, WITHOUT_SOURCE, _without_source(lambda _: True)),
    *(
        Rule(
            f"workload.{name}",
            EXCLUDES,
            '"source": it applies to generated datasets',
            lambda draft, key: bool(draft.workloads[key][0].source),
        )
        for name in GENERATED
    ),
    Rule("workload.source", REQUIRES, "a path for {}", _engines_without_source),
    Rule(
        "workload.size",
        REQUIRES,
        'memory, to which it is relative: for example memory = "2GiB"',
        lambda draft, key: _relative(draft, key) and not draft.document.data.get("memory"),
    ),
    Rule("workload.size", EXCLUDES, '"{}"', _other_size),
    Rule(
        "operation",
        REQUIRES,
        OWN_FILESYSTEM,
        _kind("dir", lambda draft, key: draft.operations[key] not in ANYWHERE),
    ),
    Rule(
        "operation",
        REQUIRES,
        'a server, but engine "{}" has none',
        _operation_without_server,
    ),
    Rule(
        "operation",
        REQUIRES,
        "a server that writes, but an apply workload of PostgreSQL leaves a read-only standby",
        _standby,
    ),
    Rule("operation", REQUIRES, "{}", _too_few_spares),
)
