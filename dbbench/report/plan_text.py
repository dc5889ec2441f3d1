"""What a run of a plan would do, as text and as a document."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dbbench.errors import DbbenchError
from dbbench.model import Cell, plain
from dbbench.plan import Preview, conditions, preview
from dbbench.plan.forecast import Allowance, Forecast
from dbbench.plan.promise import class_of
from dbbench.plan.request import PlanRequest
from dbbench.report.text import put, put_table
from dbbench.storage import devices
from dbbench.storage.devices import smart, sysfs
from dbbench.units import count, size_text, time_text


def as_document(wanted: PlanRequest, look: Preview, expected: Forecast) -> dict[str, Any]:
    """Return the preview for JSON."""
    cells = {cell.id: cell for cell in wanted.expanded.cells}
    classes = _classes(wanted)
    return {
        "trials": [
            {"id": spec.id, "fs_setup": cells[spec.cell].arm, "engine": cells[spec.cell].engine.name,
             "workload": cells[spec.cell].workload.name, "variant": cells[spec.cell].variant,
             "block": spec.block, "attempt": spec.attempt, "position": spec.position,
             "durability_class": classes[spec.cell]}
            for spec in wanted.expanded.order
        ],
        "eta_s": round(look.eta_s),
        "forecast": plain(expected),
        "disk_bytes": look.disk_bytes,
        "written_bytes": look.written_bytes,
        "written": look.written,
        "commands": [{"fs_setup": arm, "argv": list(argv)} for arm, argv in look.commands],
        "devices": _devices(wanted),
        "conditions": list(conditions.sentences(wanted.plan, wanted.expanded.cells)),
        "plan": plain(wanted.plan),
        "plan_sha256": wanted.sha256,
    }  # fmt: skip


def put_plan(wanted: PlanRequest, look: Preview, expected: Forecast, allowance: Allowance | None) -> None:
    """Print the preview."""
    plan, cells = wanted.plan, {cell.id: cell for cell in wanted.expanded.cells}
    trials, baseline = len(wanted.expanded.order), plan.baseline or plan.fs_setups[0].label
    put(f"{plan.name}: {len(plan.fs_setups)} filesystems, {len(cells)} cells, {plan.blocks} blocks, {trials} trials; "
        f"baseline {baseline}, seed {plan.seed}")  # fmt: skip
    put(f"about {_minutes(look.eta_s)}, {size_text(look.disk_bytes)} of disk, "
        f"{size_text(look.written_bytes)} written (estimates)")  # fmt: skip
    causes = sorted(look.written.items(), key=lambda pair: -pair[1])
    put("written: " + ", ".join(f"{cause} {size_text(size)}" for cause, size in causes if size))
    put(f"written volume: measured earlier for {look.remembered} of {count(len(cells), 'cell')}, assumed for the rest")
    if allowance is not None:
        put(allowance.text)
    put(expected.text)
    for device in _devices(wanted):
        identity = f", identity {device['identity']}" if device["identity"] else ""
        size = f", {size_text(device['size_bytes'])}" if device["size_bytes"] else ""
        put(f"device {device['kind']} {device['path'] or 'made for the run'}{size}{identity}{_wear_text(device)}")
    put()
    rows, classes = [], _classes(wanted)
    for spec in wanted.expanded.order:
        cell = cells[spec.cell]
        window = cell.window
        load = "to its end" if window.kind == "to-completion" else f"{window.warmup_s:g}+{window.measure_s:g} s"
        rows.append((spec.position, cell.arm, cell.engine.name, cell.title, spec.block, load,
                     classes[cell.id] or "that of the directory", time_text(look.trial_s[cell.id])))  # fmt: skip
    header = ("", "filesystem", "engine", "workload", "block", "load", "durability", "in all")
    put_table(header, rows, right=("", "block", "in all"))
    _put_classes(list(cells.values()), classes)
    put("\nconditions")
    for line in conditions.sentences(plan, list(cells.values())):
        put(f"  {line}")
    put("\nparameters")
    for line in dict.fromkeys(_parameters(cell.workload.name, cell.parameters) for cell in cells.values()):
        put(f"  {line}")
    put("\ncommands that make the filesystem of each trial")
    for arm, argv in look.commands:
        put(f"  {arm}: {shlex.join(argv)}")


def put_skips(equal: Mapping[str, str], lacking: Mapping[str, str]) -> None:
    """List the filesystems that a run would skip: those that are equal to another setup with these engines, and those
    that this machine cannot make. A run without its baseline is refused."""
    if equal:
        put("\nskipped: identical to another setup")
    for arm, reason in equal.items():
        put(f"  {arm}: {reason}")
    if lacking:
        put("\nnot possible on this machine (a run skips them, and is refused if the baseline is among them)")
    for arm, reason in lacking.items():
        put(f"  {arm}: {reason}")


def put_refusals(refused: Sequence[DbbenchError]) -> None:
    """List the reasons why a run on this machine would be refused, each with its remedy."""
    if refused:
        put("\na run on this machine would be refused")
    for error in refused:
        put(f"  {error.id} {error.title}: {error.evidence}")
        for line in (error.remedy or "").splitlines():
            put(f"    {line}")


def _classes(wanted: PlanRequest) -> dict[str, str | None]:
    """Return the durability class that each cell promises; None for an existing directory."""
    given = wanted.plan.device.directories
    return {cell.id: None if given else class_of(cell) for cell in wanted.expanded.cells}


def _put_classes(cells: Sequence[Cell], classes: Mapping[str, str | None]) -> None:
    """Print W022 if cells that are compared with each other promise different durability classes."""
    compared: dict[tuple[str, str], set[str | None]] = {}
    for cell in cells:
        compared.setdefault((cell.engine.name, cell.title), set()).add(classes[cell.id])
    mixed = [f"{title} on {engine}" for (engine, title), found in compared.items() if len(found) > 1]
    if mixed:
        put(f"W022: durability classes differ in {', '.join(mixed)}: a setup may be faster because it guarantees less")


def _life(path: Path, wanted: PlanRequest) -> dict[str, Any]:
    """Return the size of a disk, and the share of its rated life that the run uses if the disk reports it."""
    name = sysfs.name_of(path.stat().st_rdev) or ""
    size = sysfs.size_bytes(name) if name else None
    written = preview(wanted.plan, wanted.expanded).written_bytes
    return {
        "size_bytes": size,
        "written_bytes": written,
        "endurance_share": smart.endurance_share(smart.wear(sysfs.leaves(name)) if name else None, written),
    }


def _wear_text(device: dict[str, Any]) -> str:
    if device.get("written_bytes") is None:
        return ""
    share = device["endurance_share"]
    life = "the disk does not report its wear" if share is None else f"{100 * share:.2g} % of its rated endurance"
    return f"; {size_text(device['written_bytes'])} will be written, {life}"


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _parameters(name: str, values: dict[str, Any]) -> str:
    return f"{name}: " + ", ".join(f"{key} = {value}" for key, value in values.items())


def _devices(wanted: PlanRequest) -> list[dict[str, Any]]:
    """Return the images, disks or directories of the plan, those of the log last."""
    spec = wanted.plan.device
    if spec.image_bytes:
        return [{"kind": "loop", "path": volume.at, "identity": None, "size_bytes": volume.size_bytes}
                for volume in spec.volumes.values() for _ in range(volume.count)]  # fmt: skip
    disks = [path for volume in spec.volumes.values() for path in volume.disks]
    rows: list[dict[str, Any]] = []
    for path in dict.fromkeys([*spec.directories.values(), *disks]):
        rows.append({"kind": spec.kind, "path": path, "identity": None, "size_bytes": None})
        if spec.disks:
            with contextlib.suppress(OSError):  # it does not exist: `put_refused` lists it
                rows[-1] |= {"identity": devices.identity(Path(path)), **_life(Path(path), wanted)}
    return rows
