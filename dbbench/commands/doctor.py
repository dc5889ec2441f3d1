"""`dbbench doctor`: what this machine has, what it lacks, and the command that installs it.

The file is long because it is a list: one short function for each thing that is checked.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import click

from dbbench import packages, process
from dbbench.commands.options import Options, command_line, results_option
from dbbench.datasets.golden import cache_folder
from dbbench.drivers import PROGRAMS
from dbbench.engines import ENGINES, SERVERS, innodb, profile_of
from dbbench.errors import EXIT_OK, EXIT_USAGE, ProgramMissing
from dbbench.labs.powercut import requirements
from dbbench.machine import host, known_faults, namespaces
from dbbench.machine.host import tunables, versions
from dbbench.machine.host.proc import content, task
from dbbench.machine.limits import cgroup, throttle
from dbbench.plan.request import load_request
from dbbench.report.text import columns, put, put_json, put_paragraph
from dbbench.run.disk_space import free_bytes
from dbbench.run.preflight import refusals
from dbbench.samplers import programs as sampled
from dbbench.samplers.time_layers import calls_by_number
from dbbench.storage import devices
from dbbench.storage.devices import configured, loop_driver, sysfs, used
from dbbench.storage.devices.directory import nearest
from dbbench.storage.filesystems import FAMILIES
from dbbench.storage.layers import delay
from dbbench.units import join_words, size_text

NEEDED_BYTES = 8 * 2**30  # disk space for the demo
_PLAIN = ("disk", "part", "loop")  # others are layers: RAID, LVM, encryption
_INDENT = 14  # of lines for which the terminal is too narrow next to the name of the check
_QUIET = 0.2  # load per CPU; a higher load changes results by more than filesystems differ


class Purpose(StrEnum):
    """What a user wants to do."""

    PLAN = "this plan"
    MEASURE = "measure"
    POWERCUT = "power-loss lab"
    FLEET = "fleet"
    HOST = "reproducible results"
    DEVICES = "devices"


# The state of a check that is not ok.
_NEEDED = defaultdict(
    lambda: "missing",
    {Purpose.HOST: "change", Purpose.DEVICES: "in use"},
)
# A member of an array or a volume group that is not active has only a signature.
_OPTIONAL = defaultdict(
    lambda: "not needed",
    {Purpose.PLAN: "skipped", Purpose.DEVICES: "not empty"},
)


class Probe(NamedTuple):
    """One row of doctor's table."""

    purpose: str
    check: str
    ok: bool
    found: str | None
    needed: str = ""  # what needs it, or how much is needed
    fix: str = ""  # what to do if it is not ok
    packages: tuple[str, ...] = ()  # the packages to install with apt
    optional: bool = False  # the purpose is possible without it


@command_line("dbbench doctor plan.toml")
@click.option(
    "--plan",
    "plan_file",
    metavar="PLAN",
    help="Check the needs of this plan; exit with 2 if one is not met.",
)
@results_option
def command(options: Options, plan_file: str | None) -> int:
    """Check tools, permissions, disk space and devices, and list what to install for which purpose.

    The list of devices has the identities that `dbbench run --wipe` requires. Nothing is changed.
    """
    folder = options.results_folder
    of_this = list(of_plan(plan_file, options.paths, folder)) if plan_file else []
    rows = [
        row._replace(fix="", packages=()) if row.ok else row for row in (*of_this, *checks(folder))
    ]
    if options.json:
        put_json({"checks": [row._asdict() for row in rows]})
    else:
        put_rows(rows)
        put()
        put_paragraph(summary(rows))
    if all(row.optional for row in of_this):
        return EXIT_OK
    return EXIT_USAGE


def put_rows(rows: list[Probe]) -> None:
    """Print the table."""
    width = max(len(row.check) for row in rows if row.purpose != Purpose.PLAN)
    for number, (purpose, group) in enumerate(itertools.groupby(rows, lambda row: row.purpose)):
        section = list(group)
        put(("\n" if number else "") + purpose.capitalize())
        for row in section:
            _put_row(row, width)
        if to_install := dict.fromkeys(
            name for row in section if not row.optional for name in row.packages
        ):
            command = packages.install(list(to_install), "--no-install-recommends", "--no-remove")
            put(f"  Install what is missing:  {command}")


def summary(rows: Sequence[Probe]) -> str:
    """Return one line with everything that is to be changed before a measurement."""
    parts = []
    purposes = {
        Purpose.PLAN: "for this plan",
        Purpose.MEASURE: "missing",
        Purpose.HOST: "for reproducible results",
    }
    for purpose, why in purposes.items():
        failed = [row for row in rows if row.purpose == purpose and not row.ok and not row.optional]
        checks = dict.fromkeys(row.check for row in failed)
        if checks:
            parts.append(f"{join_words(list(checks))} ({why})")
    if not parts:
        return "Nothing to change: this machine is ready to measure."
    return f"To change: {'; '.join(parts)}. The lines above say how."


def _put_row(row: Probe, width: int) -> None:
    states = _OPTIONAL if row.optional else _NEEDED
    state = "ok" if row.ok else states[Purpose(row.purpose)]
    text = row.found or ""
    if not row.ok and row.needed:
        text += f"{'; ' if text else ''}{'only for' if row.optional else 'needed:'} {row.needed}"
    lead = f"  {state:<10}  {row.check:<{width}}  "
    terminal = columns() or sys.maxsize
    evidence = text.splitlines()
    fixes = row.fix.splitlines()
    narrow = len(lead) + max(map(len, (*evidence, *fixes)), default=0) > terminal
    put((lead if narrow else f"{lead}{text}").rstrip())
    indent = " " * (_INDENT if narrow else len(lead))
    if narrow:
        fixes = [*evidence, *fixes]
    for line in fixes:
        put_paragraph(f"{indent}{line}", terminal)


def checks(results_folder: Path) -> Iterator[Probe]:
    """Yield the checks of all purposes, in the order of `Purpose`."""
    # Most of the time is spent on waiting for programs, so these are started at the same time.
    with ThreadPoolExecutor() as pool:
        pool.submit(packages.policies)  # its answer is kept
        of_servers = pool.submit(_versions_of_servers)
        of_programs = pool.submit(versions)
    yield from _engines(of_servers.result())
    yield from _programs(of_programs.result())
    yield from _system(results_folder)
    yield from _labs_and_fleet()
    yield from _host()
    yield from _devices()


def of_plan(
    file: str,
    paths: list[str],
    results_folder: Path,
) -> Iterator[Probe]:
    """Yield what a plan needs and this machine lacks, and the setups that a run would skip for
    another reason.
    """
    request = load_request(file, paths)
    # A setup that is skipped does not keep the plan from running.
    for arm, reason in request.skipped.items():
        yield Probe(
            Purpose.PLAN,
            f"{file}: fs setup {arm} is skipped",
            False,
            reason,
            optional=True,
        )
    # What would refuse the run, with the packages that are missing.
    for error in refusals(request, results_folder):
        names = packages.installable(error.programs) if isinstance(error, ProgramMissing) else ()
        yield Probe(
            Purpose.PLAN,
            f"{file}: {error.title}",
            False,
            error.evidence,
            "this plan",
            error.remedy or "",
            tuple(names),
        )


def _versions_of_servers() -> dict[str, str | None]:
    return {name: ENGINES[name].installed_version() for name in SERVERS}


def _engines(version_of: Mapping[str, str | None]) -> Iterator[Probe]:
    # Why a server cannot be installed here, or how it can.
    for name, version in version_of.items():
        profile = profile_of(name)
        fix = ""
        to_install = tuple[str, ...]()
        rivals = [profile_of(other).title for other in profile.excluded_by if version_of.get(other)]
        if version is None and rivals:
            fix = f"its packages cannot be installed next to {rivals[0]}"
        elif version is None and profile.package:
            fix = packages.fix(profile.package)
            to_install = (profile.package,) if packages.exists(profile.package) else ()
        elif version is None:
            fix = f'unpack a release of {profile.title} and set `bin = "DIR/bin"` in [[engine]]'
        # One server is enough, so the others are optional.
        others = any(other is not None for other in version_of.values())
        yield Probe(
            Purpose.MEASURE,
            f"engine {name}",
            version is not None,
            version,
            f"plans with {profile.title}",
            fix,
            to_install,
            optional=others,
        )


def _programs(version_of: Mapping[str, str]) -> Iterator[Probe]:
    # What each program is for; a later use replaces an earlier one.
    uses = {program: f"workloads of {name}" for name, program in PROGRAMS.items()}
    uses |= {program: "telemetry" for program in sampled()}
    uses |= {
        f"mkfs.{name}": f"fs setups of {name}"
        for name, family in FAMILIES.items()
        if family.by_mkfs
    }
    uses |= {"zpool": "fs setups of zfs"}
    uses |= {
        program: f"fs setups of {name}"
        for name, family in FAMILIES.items()
        for program in family.reads_with
    }
    uses |= {
        "compsize": "compression ratios of btrfs",
        "fio": "the ceiling of the device",
        "pt-query-digest": "workloads from slow logs",
        "wipefs": "block devices",
        "lsblk": "the list of devices",
    }
    # PostgreSQL's own programs come with the server, which has a row of its own.
    for program, use in uses.items():
        if packages.package_of(program) != "postgresql":
            yield _program(
                Purpose.MEASURE,
                program,
                use,
                not packages.is_essential(program),
                version_of.get(program),
            )


def _program(
    purpose: str,
    program: str,
    use: str,
    optional: bool = False,
    version: str | None = None,
) -> Probe:
    path = process.find(program)
    if path is not None:
        return Probe(purpose, program, True, version or str(path), use, optional=optional)
    absent = tuple(packages.installable([program]))
    return Probe(purpose, program, False, None, use, packages.remedy([program]), absent, optional)


def _system(results_folder: Path) -> Iterator[Probe]:
    root = os.geteuid() == 0
    yield Probe(
        Purpose.MEASURE,
        "root",
        root,
        "yes" if root else "no",
        'kind = "loop" and "block"',
        'run with sudo, or use kind = "dir"',
    )
    # Without namespaces a trial could not be isolated.
    may_isolate = not root or namespaces.has_capability()
    spaces = [name for name in ("mnt", "pid", "ipc") if not Path(f"/proc/self/ns/{name}").exists()]
    yield Probe(
        Purpose.MEASURE,
        "namespaces",
        not spaces and may_isolate,
        "mnt, pid, ipc" if not spaces else None,
        "every trial" if may_isolate else "CAP_SYS_ADMIN, which root lacks here",
        f"use a kernel with {', '.join(spaces)} namespaces" if spaces else namespaces.CAPABLE,
    )
    # Limits are optional: a plan without them runs anyway.
    for what, controller, reason in (
        ("`memory` in a plan", cgroup.MEMORY, cgroup.obstacle()),
        ("`limit` in a plan", cgroup.IO, throttle.obstacle()),
    ):
        groups = cgroup.hierarchy(controller=controller)
        yield Probe(
            Purpose.MEASURE,
            f"control groups: {controller}",
            not reason,
            reason or (groups if isinstance(groups, str) else f"v{groups.version}"),
            what,
            f"mount the {controller} controller, see cgroups(7)",
            optional=True,
        )
    reason = delay.obstacle()
    yield Probe(
        Purpose.MEASURE,
        "dm-delay",
        not reason,
        reason or f"steps of {delay.tick_ms():g} ms",
        "`read_ms`, `write_ms`, `flush_ms` of `limit`",
        "use a kernel that has it",
        optional=True,
    )
    # Space where the results and the golden copies are kept.
    for what, path in (("results", results_folder), ("golden copies", cache_folder())):
        free = free_bytes(path)
        yield Probe(
            Purpose.MEASURE,
            f"space for {what}",
            free >= NEEDED_BYTES,
            f"{size_text(free)} free at {nearest(path)}",
            size_text(NEEDED_BYTES),
            "free some space, or use --results DIR and DBBENCH_CACHE",
        )


def _labs_and_fleet() -> Iterator[Probe]:
    for need in requirements():
        to_install = tuple(packages.installable([need.program])) if need.program else ()
        yield Probe(
            Purpose.POWERCUT,
            need.name,
            need.evidence is not None,
            need.evidence,
            "`dbbench powercut`",
            need.remedy,
            to_install,
        )
    # The fleet's libraries are an extra of the package.
    dask = importlib.util.find_spec("distributed") is not None
    version = importlib.metadata.version("distributed") if dask else None
    yield Probe(
        Purpose.FLEET,
        "dask.distributed",
        dask,
        version,
        "extra fleet",
        packages.extra("fleet"),
    )
    yield _program(Purpose.FLEET, "ssh", "`dbbench fleet run --ssh`", optional=True)


def _host() -> Iterator[Probe]:
    """Yield conditions that affect measurements. A run starts in spite of them, and records them in
    its results.
    """
    # Settings of the CPU and of memory that make trials differ.
    state = tunables.state()
    governor = state.get("governor")
    calm = governor in (None, "performance")
    yield Probe(
        Purpose.HOST,
        "CPU governor",
        calm,
        str(governor or "none"),
        "performance",
        "cpupower frequency-set -g performance",
    )
    thp = state.get("thp")
    yield Probe(
        Purpose.HOST,
        "transparent huge pages",
        thp != "always",
        str(thp or "none"),
        "never or madvise",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
    # A profile of AppArmor confines a server to the packages' directories.
    for server in innodb.CONFINED:
        if remedy := innodb.apparmor_remedy(server):
            yield Probe(
                Purpose.HOST,
                f"AppArmor: {server.name}",
                False,
                "a profile is enforced",
                "plans with this server",
                remedy,
            )
    yield from _known_faults(host.kernel())
    # What only telemetry needs.
    psi = Path("/proc/pressure/io").exists()
    yield Probe(
        Purpose.HOST,
        "pressure stall information",
        psi,
        "on" if psi else "off",
        "telemetry of stalls",
        "boot with the kernel parameter psi=1",
        optional=True,
    )
    seen = _observe_waits()
    yield Probe(
        Purpose.HOST,
        "waits of threads",
        seen == "visible",
        seen,
        "where the time of a transaction goes",
        "use a kernel with /proc/PID/syscall and kallsyms, on x86_64 or aarch64, and let this user "
        "trace the programs that it starts (kernel.yama.ptrace_scope 0 or 1; root of a container: "
        "CAP_SYS_PTRACE)",
        optional=True,
    )
    # What runs besides, and whether this is a machine at all.
    load = os.getloadavg()[0]
    cpus = os.cpu_count() or 1
    idle = load < _QUIET * cpus
    yield Probe(
        Purpose.HOST,
        "other load",
        idle,
        f"load {load:.2f} on {cpus} CPUs",
        "an idle machine",
        "stop other programs; `top` shows them",
    )
    virtual = host.virtualisation()
    yield Probe(Purpose.HOST, "virtual machine", True, virtual or "unknown")


def _observe_waits() -> str:
    """Return whether the kernel says what a program waits for that this user has started."""
    if not calls_by_number():
        return "not observed"
    # As root, servers have accounts of their own; a container may not let root trace them.
    account = process.user("nobody") if os.geteuid() == 0 else None
    with process.running(("sleep", "9"), as_user=account) as sleeper:
        # A program that still starts runs, and then it is in no function of the kernel.
        process.wait_while(lambda: not _is_asleep(sleeper.pid), 5.0)
        call = content(f"/proc/{sleeper.pid}/syscall")
        function = content(f"/proc/{sleeper.pid}/wchan")
    if call is None:
        return "not observed"
    if function not in (None, "", "0"):
        return "visible"
    return "without the kernel's functions"


def _is_asleep(pid: int) -> bool:
    read = task(f"/proc/{pid}")
    return read is None or read.state == "S"


def _known_faults(kernel: Mapping[str, str | None]) -> Iterator[Probe]:
    """Yield the faults of this kernel that lose data, according to public reports. Those that need
    an option are left to the plan that has it.
    """
    check = "known faults"
    faults = [pair for pair in known_faults.of_host(kernel) if not pair[0].option]
    for fault, version in faults:
        text = fault.sentence(version)
        yield Probe(
            Purpose.HOST, check, False, text, "data that lasts", "update the kernel or module"
        )
    if not faults:
        release = kernel["kernel"]
        is_judged = "linux" in known_faults.versions(kernel)
        text = "none listed for" if is_judged else "not judged, because it has fixes of its vendor:"
        yield Probe(Purpose.HOST, check, True, f"{text} Linux {release}")


def _devices() -> Iterator[Probe]:
    """Yield every disk with its identity, and who uses it or would after the next start. Nothing is
    decided by this list.
    """
    statuses = loop_driver.statuses(sysfs.disks())
    silent = [name for name, status in statuses.items() if not status.answers]
    disks = devices.describe_all(silent)
    used_names = in_use(disks)

    # lsblk does not see other mount namespaces, nor programs that have a disk open.
    names_of_quiet = [disk.name for disk in disks if disk.name not in used_names]
    quiet = used.targets(names_of_quiet, statuses)
    users = used.users_of(quiet)
    entries = list[configured.ConfiguredUse]()
    with contextlib.suppress(OSError):
        entries = configured.entries()
    tags = {disk.name: disk.tags for disk in disks}
    for device in quiet:
        named = configured.by_configuration(device, entries, tags[device.name])
        users.setdefault(device.name, []).extend(named)
    for name in silent:
        users[name] = ["the filesystem of its file does not answer"]
    names = devices.DiskNames()
    for disk in disks:
        using = [text for text in users.get(disk.name, ()) if not isinstance(text, used.Unseen)]
        if disk.mounts:
            using = [f"mounted at {', '.join(disk.mounts)}"]
        parts = [size_text(disk.size_bytes), devices.model(disk.name), disk.fstype, *using[:1]]
        text = f"identity {devices.identity_of(disk.name, names)}; {', '.join(filter(None, parts))}"
        unused = not using and disk.name not in used_names
        yield Probe(
            Purpose.DEVICES,
            f"device {disk.path}",
            unused and not disk.fstype,
            text,
            optional=unused,
        )


def in_use(disks: Sequence[devices.Listed]) -> set[str]:
    """Return the names of what is mounted, and of everything that a mount or a layer is made of."""
    by_name = {disk.name: disk for disk in disks}
    names = set[str]()

    def add(name: str) -> None:
        if name in names:
            return
        names.add(name)
        if name in by_name:
            for lower in by_name[name].below:
                add(lower)

    for disk in disks:
        if disk.mounts:
            add(disk.name)
        if disk.kind not in _PLAIN:
            for lower in disk.below:
                add(lower)
    return names
