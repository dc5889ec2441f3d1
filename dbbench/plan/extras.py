"""What a plan asks for beside the load: a past of the filesystem, snapshots, and operations after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dbbench.datasets.methods import REFLINKING
from dbbench.engines import SERVERLESS
from dbbench.model import Ageing, DeviceSpec, EngineSpec, FsSetup, Plan, SnapshotSpec, Workload
from dbbench.operations import OPERATIONS
from dbbench.operations.abilities import GROWING, of
from dbbench.tomlfile import Document, did_you_mean

OF_FILES = ("fsck", "grow")  # operations that start no server
ANYWHERE = ("clone", "base-backup", "crash-recovery")  # operations that change no filesystem
OWN = "wants a filesystem of its own: [device] of kind loop or block"


def check_extras(
    document: Document,
    plan: Plan | None,
    device: DeviceSpec | None,
    setups: Iterable[FsSetup],
    engines: Iterable[EngineSpec] = (),
    workloads: Iterable[Workload] = (),
) -> None:
    """Note the flaws of `age`, `snapshots` and `operations`, as written."""
    if "age" in document.data:
        _check_age(document, plan.age if plan else None, device)
    if plan is not None:
        _check_restore(document, plan, setups)
        if plan.snapshots is not None:
            _check_snapshots(document, plan, plan.snapshots, all(one.window == "fixed" for one in workloads))
    standby = any(one.driver == "apply" for one in workloads) and any(one.name == "postgres" for one in engines)
    asked = document.data.get("operations", [])
    for index, name in enumerate(asked if isinstance(asked, list) else []):
        _check_operation(document, ("operations", index), name, asked[:index], device, setups)
        if standby:
            _check_standby(document, ("operations", index), name)
        for engine in engines:
            if engine.name in SERVERLESS and name in OPERATIONS and name not in OF_FILES:
                document.flaw(
                    ("operations", index), f'operation "{name}" starts a server; engine "{engine.name}" has none'
                )


def _check_standby(document: Document, key: tuple[str | int, ...], name: Any) -> None:
    """PostgreSQL is still a standby after it."""
    if name in OPERATIONS and name not in OF_FILES:
        document.flaw(key, f'operation "{name}" writes into the server; an apply of PostgreSQL leaves a standby')


def _check_snapshots(document: Document, plan: Plan, asked: SnapshotSpec, fixed: bool) -> None:
    if asked.every_s < 1:
        document.flaw(("snapshots", "every"), f'"every" should be 1 s or more, not {asked.every_s:g} s')
    elif fixed and asked.every_s >= plan.measure_s:
        text = f'"every" should be less than the window of {plan.measure_s:g} s, or none is taken'
        document.flaw(("snapshots", "every"), text)
    if asked.keep < 1:
        document.flaw(("snapshots", "keep"), f'"keep" should be 1 or more, not {asked.keep}')


def _check_restore(document: Document, plan: Plan, setups: Iterable[FsSetup]) -> None:
    """A way of restoring that a filesystem cannot go; a tablespace beside what works on whole data directories."""
    if plan.restore == "reflink" and plan.device.kind != "dir":
        for setup in setups:
            if setup.mkfs.family not in REFLINKING:
                document.flaw(("restore",), f'restore = "reflink": fs setup "{setup.name}" cannot share blocks between '
                                            f'files; {", ".join(REFLINKING)} can')  # fmt: skip
    for name in ("operations", "snapshots", "age_engine"):
        if getattr(plan, name) and any(spec.tablespace for spec in plan.workload):
            document.flaw((name,), f'"{name}" work on a whole data directory, not beside a "tablespace"')


def check_age_engine(
    document: Document, plan: Plan | None, windows: Iterable[tuple[str, str]], engines: Iterable[str]
) -> None:
    """Note the flaws of `age_engine`. `windows`: each workload of the plan with its kind of window."""
    if "age_engine" not in document.data:
        return
    for name in engines:
        if name in SERVERLESS:
            document.flaw(("age_engine",), f'"age_engine" wants tables; engine "{name}" has none')
    for name, window in windows:
        if window != "fixed":
            document.flaw(("age_engine",), f'"age_engine" wants loads that go on; workload "{name}" runs to its end')
    factors = plan.age_engine.write_factors if plan and plan.age_engine else (0.0,)
    if not factors or min(factors) < 0 or len(set(factors)) < len(factors):
        text = f'"write_factors" should be different numbers, 0 or more, not {list(factors)}'
        document.flaw(("age_engine", "write_factors"), text)


def _check_age(document: Document, age: Ageing | None, device: DeviceSpec | None) -> None:
    if device is not None and device.kind == "dir":
        document.flaw(("age",), f'"age" {OWN}')
    if age is None:
        return
    if not 0 < age.fill < 1:
        document.flaw(("age", "fill"), f'"fill" should be a share between 0 and 1, not {age.fill:g}')
    if age.churn < 0:
        document.flaw(("age", "churn"), f'"churn" should be 0 or more, not {age.churn:g}')


def _check_operation(
    document: Document,
    key: tuple[str | int, ...],
    name: Any,
    before: list[Any],
    device: DeviceSpec | None,
    setups: Iterable[FsSetup],
) -> None:
    if not isinstance(name, str):
        return  # told already, by its type
    if name not in OPERATIONS:
        hint = did_you_mean(name, OPERATIONS) or f"; there are {', '.join(OPERATIONS)}"
        document.flaw(key, f'"{name}" is no operation{hint}')
    elif name in before:
        document.flaw(key, f'operation "{name}" stands twice')
    elif device is not None and device.kind == "dir" and name not in ANYWHERE:
        document.flaw(key, f'operation "{name}" {OWN}')
    elif device is not None and name == "grow":
        _check_spare(document, key, device, setups)


def _check_spare(document: Document, key: tuple[str | int, ...], device: DeviceSpec, setups: Iterable[FsSetup]) -> None:
    for setup in setups:
        if of(GROWING, setup) is not None and device.given <= setup.devices.min:
            document.flaw(key, f'operation "grow" wants one device more than fs setup "{setup.name}" needs, which is '
                               f"{setup.devices.min}; the plan has {device.given}")  # fmt: skip
