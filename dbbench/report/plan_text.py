"""What a run of a plan would do, as text and as a document."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dbbench.errors import DbbenchError, error_kinds
from dbbench.model import Cell, Json, plain
from dbbench.plan import Preview, planned_conditions
from dbbench.plan.forecast import Allowance, Forecast
from dbbench.plan.promise import class_of
from dbbench.plan.request import PlanRequest
from dbbench.report.text import put, put_paragraph, put_table
from dbbench.storage import devices
from dbbench.storage.devices import smart, sysfs
from dbbench.storage.devices.directory import disks_below, nearest
from dbbench.storage.filesystems.common import mount_of
from dbbench.units import count, group_by, size_text, time_text


def as_document(
    wanted: PlanRequest,
    look: Preview,
    expected: Forecast,
    results_folder: Path,
) -> Json:
    """Return the preview for JSON."""
    # A trial is listed with what its cell is, so that programs need no second lookup.
    cells = {cell.id: cell for cell in wanted.expanded.cells}
    classes = _classes(wanted)
    return {
        "trials": [
            {
                "id": spec.id,
                "fs_setup": cells[spec.cell].arm,
                "engine": cells[spec.cell].engine.name,
                "workload": cells[spec.cell].workload.name,
                "variant": cells[spec.cell].variant,
                "block": spec.block,
                "attempt": spec.attempt,
                "position": spec.position,
                "durability_class": classes[spec.cell],
            }
            for spec in wanted.expanded.order
        ],
        "eta_s": round(look.eta_s),
        "forecast": plain(expected),
        "disk_bytes": look.disk_bytes,
        "written_bytes": look.written_bytes,
        "written": look.written,
        "commands": [
            {
                "fs_setup": arm,
                "argv": list(argv),
            }
            for arm, argv in look.commands
        ],
        "devices": _devices(wanted, look, results_folder),
        "conditions": [
            planned_conditions.effect(wanted.plan),
            *planned_conditions.sentences(wanted.plan, wanted.expanded.cells),
        ],
        "plan": plain(wanted.plan),
        "plan_sha256": wanted.sha256,
    }


def put_plan(
    wanted: PlanRequest,
    look: Preview,
    expected: Forecast,
    allowance: Allowance | None,
    results_folder: Path,
) -> None:
    """Print the cost of the run, what it compares, and the conditions."""
    plan = wanted.plan
    cells = list(wanted.expanded.cells)
    # What is compared.
    counts = ", ".join(
        (
            count(len(plan.fs_setups), "setup"),
            count(len(cells), "cell"),
            count(plan.blocks, "block"),
            count(len(wanted.expanded.order), "trial"),
        )
    )
    put_paragraph(
        f"{plan.name}: {counts} in random order (seed {plan.seed}); baseline {plan.baseline_label}"
    )

    # The cost of the run: time, space and bytes.
    causes = sorted(look.written.items(), key=lambda pair: -pair[1])
    written = ", ".join(f"{cause} {size_text(size)}" for cause, size in causes if size)
    measured = (
        f"; the load was measured in earlier runs for {look.remembered} of "
        f"{count(len(cells), 'cell')}"
    )
    minutes = max(1, round(look.eta_s / 60))
    eta = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    put_paragraph(f"  time: about {eta}" + (f"; {allowance.text}" if allowance else ""))
    put_paragraph(f"  disk space: about {size_text(look.disk_bytes)}")
    put_paragraph(f"  written: about {size_text(look.written_bytes)}: {written}{measured}")
    for device in _devices(wanted, look, results_folder):
        put_paragraph(f"    {_device_text(device)}")

    # What it detects, and what it does to this machine.
    put_paragraph(f"  precision: {expected.text}")
    put_paragraph(f"  this machine: {planned_conditions.effect(plan)}")
    for arm, reason in wanted.skipped.items():
        put_paragraph(f"  skipped: {arm}: {reason}")
    put()
    classes = _classes(wanted)
    rows = []
    for cell in cells:
        window = cell.window
        load = (
            "to its end"
            if window.kind == "to-completion"
            else f"{window.warmup_s:g}+{window.measure_s:g} s"
        )
        rows.append(
            (
                cell.arm,
                cell.engine.name,
                cell.title,
                load,
                classes[cell.id],
                time_text(look.trial_s[cell.id]),
            )
        )
    put_table(
        ("setup", "engine", "workload", "load", "durability", "trial"),
        rows,
        right=("trial",),
    )

    # What holds for several cells.
    _put_classes(cells, classes)
    _put_list("conditions", planned_conditions.sentences(plan, cells))
    parameters = []
    for cell in cells:
        values = ", ".join(f"{key} = {value}" for key, value in cell.parameters.items())
        parameters.append(f"{cell.workload.name}: {values}")
    _put_list("parameters", dict.fromkeys(parameters))
    if look.commands:
        put("\ncommands that make the filesystem of each trial")
    for arm, argv in look.commands:  # not wrapped, so that they can be copied
        put(f"  {arm}: {shlex.join(argv)}")


def _put_list(title: str, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        if not number:
            put(f"\n{title}")
        put_paragraph(f"  {line}")


def put_refusals(refused: Sequence[DbbenchError]) -> None:
    """List the reasons why a run on this machine would be refused, each with its remedy."""
    put("`dbbench run` would refuse this plan on this machine:")
    for error in refused:
        first, *more = f"{error.id} {error.title}: {error.evidence}".splitlines()
        put_paragraph(f"  {first}")
        remedy = error.remedy or error_kinds()[error.id].remedy
        for line in (*more, *remedy.splitlines()):
            put_paragraph(f"    {line.strip()}")
    put()


def _classes(wanted: PlanRequest) -> dict[str, str | None]:
    """Return the durability class that each cell promises; None for an existing directory."""
    given = wanted.plan.device.directories
    return {cell.id: None if given else class_of(cell) for cell in wanted.expanded.cells}


def _put_classes(cells: Sequence[Cell], classes: Mapping[str, str | None]) -> None:
    mixed = []
    names = dict[str, None]()
    # Only what is compared with each other may not differ.
    compared = group_by(cells, lambda cell: (cell.engine.name, cell.title))
    for (engine, title), of_group in compared.items():
        if len({classes[cell.id] for cell in of_group}) > 1:
            mixed.append(f"{title} on {engine}")
            for cell in of_group:
                names |= dict.fromkeys((classes[cell.id] or "").split(" + "))
    if mixed:
        put_paragraph(
            f"W022: durability classes differ in {', '.join(mixed)}: a setup may be faster because "
            f"it guarantees less (dbbench explain {' '.join(names)})"
        )


def _device_text(device: Json) -> str:
    share = device["endurance_share"]
    size = device["size_bytes"]
    place = device["path"] or "the results folder"
    what = f"to {place}"
    details = []
    # An image has the size of the plan, a disk its own.
    if device["kind"] == "loop":
        what = f"to a file of {size_text(size)} in {place}"
    elif size:
        details.append(size_text(size))
    if device["identity"]:
        details.append(f"identity {device['identity']}")
    if device["kind"] != "block":
        disks = ", ".join(device["disks"]) or "no disk of this machine"
        details.append(f"{device['filesystem']} on {disks}")
    # Wear is known only of disks that report their endurance.
    if share is None:
        details.append("wear not reported")
    else:
        details.append(f"{100 * share:.2g} % of the disk's rated endurance")
    return f"{size_text(device['written_bytes'])} {what} ({', '.join(details)})"


def _devices(
    wanted: PlanRequest,
    look: Preview,
    results_folder: Path,
) -> list[Json]:
    """Return the images, disks or directories of the plan, those of the log last, with the bytes
    that the run writes to each and the share of the disk's rated endurance, if it reports that.
    Several images or disks share the bytes.
    """
    spec = wanted.plan.device
    rows = list[Json]()
    # Directories, or the disks and images of each volume.
    for arm, directory in spec.directories.items():
        rows.append(
            {
                "kind": "dir",
                "path": directory,
                "size_bytes": None,
                "written_bytes": look.arm_bytes.get(arm, 0),
            }
        )
    for volume in spec.volumes.values():
        paths = volume.disks or [volume.at for _ in range(volume.count) if volume.image_bytes]
        size = volume.size_bytes if volume.image_bytes else None
        for disk in paths:
            rows.append(
                {
                    "kind": spec.kind,
                    "path": disk,
                    "size_bytes": size,
                    "written_bytes": 0,
                }
            )
    for row in rows:
        path = Path(row["path"] or results_folder)
        row |= {"identity": None, "filesystem": None, "disks": []}
        # Of several devices each gets an equal part; a directory has that of its arm.
        if not spec.directories:
            row["written_bytes"] = look.written_bytes // len(rows)
        # it does not exist: `put_refusals` lists it
        with contextlib.suppress(OSError, DbbenchError):
            if spec.disks:
                name = sysfs.name_at(path) or ""
                row |= {
                    "identity": devices.identity(path),
                    "size_bytes": sysfs.size_bytes(name),
                    "disks": sysfs.leaves(name),
                }
            else:
                row |= {
                    "filesystem": mount_of(nearest(path)).fstype,
                    "disks": disks_below(nearest(path)),
                }
        row["endurance_share"] = smart.endurance_share(
            smart.wear(row["disks"]), row["written_bytes"]
        )
    return rows
