"""Checks of a plan's optional parts: the client's host, CPUs and sizes, filesystem ageing, snapshots, operations after
the load, factors."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dbbench import model
from dbbench.drivers import AWAY
from dbbench.engines import ENGINES, SERVERLESS, profile_of
from dbbench.engines.settings import respelt_size
from dbbench.machine import limits
from dbbench.model.base import SIZE_PARAMETERS
from dbbench.operations import OPERATIONS
from dbbench.plan.arms import PROFILE, factor_names, factors_of
from dbbench.plan.tomlfile import Document, Key, did_you_mean
from dbbench.plan.workloads import check_length, check_list
from dbbench.storage.filesystems import devices_to_add

OF_FILES = ("fsck", "grow")  # operations that start no server
ONLY_READ = (*OF_FILES, "scan")  # operations that a read-only standby can run
ANYWHERE = ("clone", "base-backup", "crash-recovery", "scan")  # operations that change no filesystem
OWN = 'requires a filesystem of its own: set kind = "loop" or "block" in [device]'
_MOST_FACTOR: Final = 1000  # multiples of the size of the data


def check_extras(
    document: Document,
    plan: model.Plan | None,
    device: model.DeviceSpec | None,
    workloads: Iterable[model.Workload],
) -> None:
    """Note the errors of `age`, tablespaces and `snapshots`, as written."""
    if "age" in document.data:
        _check_age(document, plan.age if plan else None, device)
    if plan is not None:
        _check_tablespaces(document, plan)
        if plan.snapshots is not None:
            _check_snapshots(
                document, plan, plan.snapshots, all(workload_spec.window == "fixed" for workload_spec in workloads)
            )


def check_operations(
    document: Document,
    device: model.DeviceSpec | None,
    setups: Iterable[model.FsSetup],
    engines: Iterable[model.EngineSpec],
    workloads: Iterable[model.Workload],
) -> None:
    """Note the errors of `operations`, as written."""
    applied = any(workload.driver == "apply" for workload in workloads)
    standby = applied and any(profile_of(engine.name).standby for engine in engines)
    asked = document.data.get("operations", [])
    for index, name in enumerate(asked if isinstance(asked, list) else []):
        key = ("operations", index)
        if not isinstance(name, str):
            continue  # its type is an error already
        if name in asked[:index]:
            document.flaw(key, f'operation "{name}" is listed twice')
        else:
            _check_operation(document, key, name, device, setups)
        if standby:
            _check_standby(document, key, name)
        for engine in engines:
            if engine.name in SERVERLESS and name in OPERATIONS and name not in OF_FILES:
                document.flaw(key, f'operation "{name}" requires a server, but engine "{engine.name}" has none')


def _check_standby(document: Document, key: tuple[str | int, ...], name: Any) -> None:
    """Note an operation that writes to the server: after an apply workload, PostgreSQL is still a standby."""
    if name in OPERATIONS and name not in ONLY_READ:
        document.flaw(
            key,
            (
                f'operation "{name}" writes to the server, but an apply workload of PostgreSQL leaves a read-only '
                "standby"
            ),
        )


def _check_snapshots(document: Document, plan: model.Plan, asked: model.SnapshotSpec, fixed: bool) -> None:
    if asked.every_s < 1:
        document.flaw(("snapshots", "every"), f'"every" must be 1 s or more, not {asked.every_s:g} s')
    elif fixed and asked.every_s >= plan.measure_s:
        text = f'"every" must be less than the window of {plan.measure_s:g} s; otherwise no snapshot is taken'
        document.flaw(("snapshots", "every"), text)
    if asked.keep < 1:
        document.flaw(("snapshots", "keep"), f'"keep" must be 1 or more, not {asked.keep}')


def _check_tablespaces(document: Document, plan: model.Plan) -> None:
    """Note a tablespace with operations on whole data directories."""
    for name in ("operations", "snapshots", "age_engine"):
        if getattr(plan, name) and any(spec.tablespace for spec in plan.workload):
            document.flaw((name,), f'"{name}" require a whole data directory and cannot be combined with "tablespace"')


def check_age_engine(
    document: Document, plan: model.Plan | None, windows: Iterable[tuple[str, str]], engines: Iterable[str]
) -> None:
    """Note the errors of `age_engine`. `windows`: each workload of the plan with its kind of window."""
    if "age_engine" not in document.data:
        return
    for name in engines:
        if name in SERVERLESS:
            document.flaw(("age_engine",), f'"age_engine" requires tables, but engine "{name}" has none')
    for name, window in windows:
        if window != "fixed":
            document.flaw(
                ("age_engine",),
                (f'"age_engine" requires a load of fixed duration, but workload "{name}" runs to completion'),
            )
    factors = plan.age_engine.write_factors if plan and plan.age_engine else (0.0,)
    if not factors or not 0 <= min(factors) <= max(factors) <= _MOST_FACTOR or len(set(factors)) < len(factors):
        text = f'"write_factors" must be different numbers from 0 to {_MOST_FACTOR}, not {list(factors)}'
        document.flaw(("age_engine", "write_factors"), text)


def _check_age(document: Document, age: model.Ageing | None, device: model.DeviceSpec | None) -> None:
    if device is not None and device.existing:
        document.flaw(("age",), f'"age" {OWN}')
    if age is None:
        return
    if not 0 < age.fill < 1:
        document.flaw(("age", "fill"), f'"fill" must be between 0 and 1, not {age.fill:g}')
    if age.churn < 0:
        document.flaw(("age", "churn"), f'"churn" must be 0 or more, not {age.churn:g}')


def _check_operation(
    document: Document,
    key: tuple[str | int, ...],
    name: str,
    device: model.DeviceSpec | None,
    setups: Iterable[model.FsSetup],
) -> None:
    if name not in OPERATIONS:
        hint = did_you_mean(name, OPERATIONS) or f"; there are {', '.join(OPERATIONS)}"
        document.flaw(key, f'unknown operation "{name}"{hint}')
    elif device is not None and device.existing and name not in ANYWHERE:
        document.flaw(key, f'operation "{name}" {OWN}')
    elif device is not None and name == "grow":
        _check_spare(document, key, device, setups)


def _check_spare(
    document: Document, key: tuple[str | int, ...], device: model.DeviceSpec, setups: Iterable[model.FsSetup]
) -> None:
    for setup in setups:
        more = devices_to_add(setup)
        if more and device.given < setup.devices.min + more:
            further = "one device" if more == 1 else f"{more} devices"
            document.flaw(key, (f'operation "grow" requires {further} more than the {setup.devices.min} of fs setup '
                f'"{setup.name}", but the plan has {device.given}'))  # fmt: skip


_DESTINATION: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._@%:-]*")  # ssh would take a leading "-" as an option


def check_client(
    document: Document,
    plan: model.Plan | None,
    engines: Mapping[Key, model.EngineSpec],
    workloads: Iterable[tuple[Key, model.Workload]],
) -> None:
    """Note all errors of `client` and of keys that depend on it."""
    if "client" not in document.data:
        return
    if plan is not None and plan.client is not None:
        _check_spec(document, plan.client)
    for key, workload in workloads:
        if workload.driver not in AWAY:
            document.flaw(
                (*key, "name"),
                (
                    f'the driver {workload.driver} of "{workload.name}" runs only on this host; with [client] use a '
                    f"workload of {' or '.join(AWAY)}"
                ),
            )
        elif workload.during:
            document.flaw(
                (*key, "name"), f'"{workload.name}" has a "during" statement, which cannot be combined with [client]'
            )
    for key, engine in engines.items():
        if engine.cpus_client is not None:
            document.flaw((*key, "cpus_client"), '"cpus_client" has no effect with [client]; remove it')
    if "age_engine" in document.data:
        document.flaw(("age_engine",), '"age_engine" cannot be combined with [client]')


def _check_spec(document: Document, client: model.ClientSpec) -> None:
    if not _DESTINATION.fullmatch(client.host):
        document.flaw(
            ("client", "host"), f'"host" must be a destination for ssh such as "user@db2", not "{client.host}"'
        )
    try:
        address = ipaddress.ip_address(client.address)
    except ValueError:
        document.flaw(("client", "address"), f'"address" must be an IP address of this machine, not "{client.address}"')
    else:
        if address.is_unspecified or address.is_multicast:
            document.flaw(("client", "address"), f'"address" must be a specific address, not "{client.address}"')
        elif address.is_loopback:
            document.flaw(
                ("client", "address"), f'"address" cannot be "{client.address}", which other hosts cannot connect to'
            )
    if not 1024 <= client.port <= 65535:
        document.flaw(("client", "port"), f'"port" must be between 1024 and 65535, not {client.port}')
    if not Path(client.password_file).is_absolute():
        document.flaw(("client", "password_file"), '"password_file" must be an absolute path')


def check_fair(
    document: Document,
    engines: Mapping[Key, model.EngineSpec],
    workloads: Mapping[Key, tuple[model.WorkloadSpec, model.Workload]],
) -> None:
    """Note errors in the CPUs of an engine, its NUMA node, `equal_readahead`, and the size of the load."""
    for key, engine in engines.items():
        for name in ("cpus_server", "cpus_client"):
            _check_cores(document, (*key, name), getattr(engine, name))
        if engine.numa_node is not None and engine.numa_node < 0:
            document.flaw((*key, "numa_node"), '"numa_node" must be 0 or more')
    device = document.data.get("device")
    if "equal_readahead" in document.data and isinstance(device, dict) and device.get("kind") == "dir":
        document.flaw(("equal_readahead",), '"equal_readahead" has no effect with kind = "dir"; remove it')
    for key, (spec, workload) in workloads.items():
        _check_size(document, key, spec, workload)


def _check_cores(document: Document, key: Key, words: str | None) -> None:
    if words is None:
        return
    try:
        limits.parsed_cores(words)
    except ValueError:
        document.flaw(key, f'"{key[-1]}" must be a list of CPUs such as "0-3,8", not "{words}"')


def _check_size(document: Document, key: Key, spec: model.WorkloadSpec, workload: model.Workload) -> None:
    asked: list[Any] = [*spec.sweeps.get("size", ()), spec.parameters.get("size", "")]
    if not any(asked):
        return
    if not document.data.get("memory"):
        document.flaw(
            (*key, "size"),
            ('"size" is relative to the memory, so the plan must set memory, for example memory = "2GiB"'),
        )
    grows = SIZE_PARAMETERS.get(str(workload.dataset["kind"]), "")
    if grows in spec.parameters or grows in spec.sweeps:
        document.flaw((*key, "size"), f'"size" and "{grows}" cannot be combined')


def check_factors(document: Document, plan: model.Plan | None, engines: Mapping[Key, model.EngineSpec]) -> None:
    """Note all errors of `factors`."""
    if plan is None:
        return
    for name, levels in plan.factors.items():
        key = ("factors", name)
        check_length(document, key, list(levels))
        check_list(document, key, list(levels), levels, "setting")
        if len(levels) == 1:
            document.flaw(
                key, f'factor "{name}" has one level; use "settings" of the [[engine]] for it, or add a level'
            )
        knowing = [engine for engine in engines.values() if name in factors_of({name: levels}, engine)]
        if not knowing and engines:
            known = [other for engine in engines.values() for other in factor_names(engine)]
            hint = did_you_mean(name, known) or '; if a server has such a setting, list it in its "settings" too'
            either = " or ".join(f'engine "{engine.name}"' for engine in engines.values())
            document.flaw(key, f'factor "{name}" is not supported by {either}{hint}')
        for engine in knowing:
            _check_levels(document, engine, name, levels)


def _check_levels(document: Document, engine: model.EngineSpec, name: str, levels: Iterable[model.Scalar]) -> None:
    profile, key = ENGINES[engine.name].PROFILE, ("factors", name)
    if any(model.spelt(swept) == model.spelt(name) for swept in engine.sweeps):
        document.flaw(key, f'"{name}" is also a list in "settings" of engine "{engine.name}"; remove one of them')
    for index, level in enumerate(levels):
        if name == PROFILE and level not in profile.settings_profiles:
            hint = did_you_mean(str(level), profile.settings_profiles)
            known = hint or f"; known: {', '.join(profile.settings_profiles)}"
            document.flaw((*key, index), f'{profile.title} has no profile "{level}"{known}')
        elif name in profile.switches and not isinstance(level, bool):
            document.flaw((*key, index), f'the levels of "{name}" are true and false, not {level!r}')
        elif respelt := respelt_size(engine.name, level):
            text = f'"{level}" is not a size in the format of this server; write "{respelt}"'
            document.flaw((*key, index), text)
