"""`dbbench doctor`: what this machine has, what it lacks, and the command that helps. Changes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from dbbench import process
from dbbench.commands.checking import free_bytes, lacking, nearest
from dbbench.commands.options import Options, command_line, results_option
from dbbench.commands.text import put, put_json, put_table
from dbbench.errors import EXIT_OK, EXIT_USAGE, DbbenchError
from dbbench.packages import package_of
from dbbench.units import size_text

NEEDED_BYTES = 8 * 2**30  # what the demo takes


class Finding(NamedTuple):
    """One row: what was looked at, whether it will do, what was found, what is needed, what helps."""

    check: str
    ok: bool
    found: str | None
    needed: str = ""
    fix: str = ""


@command_line()
@click.option("--plan", "plan_file", metavar="PLAN", help="Also what this plan needs; exit code 2 where it lacks it.")
@results_option
def command(options: Options, plan_file: str | None, results: str) -> int:
    """Tools with their versions, root, free space, what disturbs measurements, and the disks with their identities.

    The identity is what `dbbench run --wipe` wants to be typed.
    """
    folder = Path(results)
    findings = [*_tools(), *_rights(), *_space(folder), *_host(), *_devices()]
    blocking = list(_plan(plan_file, options, folder)) if plan_file else []
    if options.json:
        put_json([finding._asdict() for finding in [*blocking, *findings]])
    else:
        _put([*blocking, *findings])
    return EXIT_USAGE if blocking else EXIT_OK


def _put(findings: list[Finding]) -> None:
    rows = [("ok" if f.ok else "--", f.check, f.found, f.needed, f.fix) for f in findings]
    put_table(("", "check", "found", "needed", "what helps"), rows)
    packages = [f.fix.rsplit(maxsplit=1)[-1] for f in findings if f.fix.startswith("apt-get install ")]
    if packages:
        put("\nAll of it at once, creating no cluster and starting no service:  python3 -m dbbench.packages run")
        put(f"or  apt-get install --no-install-recommends {' '.join(dict.fromkeys(packages))}")


def _tools() -> Iterator[Finding]:
    """Servers by their engines, then the programs of drivers, samplers and filesystems."""
    from dbbench.drivers import DRIVERS
    from dbbench.engines import ENGINES
    from dbbench.filesystems.families import FAMILIES, POOLED
    from dbbench.host import versions
    from dbbench.samplers import programs as sampled

    for name, engine in ENGINES.items():
        version = engine.installed()
        package = {"postgres": "postgresql", "mariadb": "mariadb-server-core"}.get(name)
        fix = "" if version else f"apt-get install {package}" if package else "your vendor's server package"
        yield Finding(f"engine {name}", version is not None, version, "for plans that name it", fix)
    known = versions()
    programs = {program: f"driver {name}" for name, driver in DRIVERS.items() for program in driver.programs()}
    programs |= {program: "samplers" for program in sampled()}
    programs |= {f"mkfs.{family}": f"fs setups of {family}" for family in FAMILIES if family not in POOLED}
    programs |= {"zpool": "fs setups of zfs"}
    programs |= {"compsize": "compression of btrfs", "fio": "ceiling of the device",
                 "wipefs": "guards of block devices", "lsblk": "this list"}  # fmt: skip
    for program, needed in programs.items():
        if package_of(program) == "postgresql":
            continue  # they lie with the server, which was looked at above
        found = process.find(program)
        package = package_of(program)
        fix = "" if found else f"apt-get install {package}" if package else ""
        yield Finding(program, found is not None, (known.get(program) or str(found)) if found else None, needed, fix)


def _rights() -> Iterator[Finding]:
    root = os.geteuid() == 0
    yield Finding(
        "root", root, "yes" if root else "no", 'kind = "loop" and "block"', "" if root else "sudo dbbench ..."
    )
    from dbbench.limits import cgroup

    spaces = [name for name in ("mnt", "pid", "ipc") if not Path(f"/proc/self/ns/{name}").exists()]
    yield Finding("namespaces", not spaces, ", ".join(spaces) + " missing" if spaces else "mount, pid, ipc", "trials",
                  "another kernel" if spaces else "")  # fmt: skip
    groups = cgroup.hierarchy()
    limits = not isinstance(groups, str)
    yield Finding("control groups", limits, groups if isinstance(groups, str) else f"cgroup v{groups.version}",
                  "`memory` as a limit", "" if limits else "mount the memory controller (cgroups(7))")  # fmt: skip


def _space(results: Path) -> Iterator[Finding]:
    from dbbench.datasets.cache import cache_folder

    for what, path in (("results", results), ("golden copies", cache_folder())):
        free = free_bytes(path)
        fix = "" if free >= NEEDED_BYTES else "free some, or use --results DIR, DBBENCH_CACHE"
        yield Finding(f"free space for {what}", free >= NEEDED_BYTES, f"{size_text(free)} at {nearest(path)}",
                      size_text(NEEDED_BYTES), fix)  # fmt: skip


def _host() -> Iterator[Finding]:
    """What moves figures. None of it keeps a run from starting; all of it is written into the result."""
    from dbbench import host

    state = host.state()
    governor = state.get("governor")
    calm = governor in (None, "performance")
    yield Finding("CPU governor", calm, str(governor or "none to set"), "performance",
                  "" if calm else "cpupower frequency-set -g performance")  # fmt: skip
    thp = state.get("thp")
    yield Finding("transparent huge pages", thp != "always", str(thp or "not there"), "never or madvise",
                  "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled" if thp == "always" else "")  # fmt: skip
    psi = Path("/proc/pressure/io").exists()
    yield Finding("pressure stall information", psi, "on" if psi else "off", "better telemetry",
                  "" if psi else "kernel parameter psi=1")  # fmt: skip
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    idle = load < 0.2 * cpus  # a fifth of the machine moves results by more than filesystems differ
    yield Finding("other load", idle, f"{load:.2f} on {cpus} CPUs", "an idle machine", "" if idle else "see top")
    virtual = host.virtualisation()
    yield Finding("virtual machine", True, virtual or "not known", "", "")


def _devices() -> Iterator[Finding]:
    """Disks with the word that --wipe wants; lsblk's view is for people, the guards look for themselves."""
    from dbbench import devices

    with contextlib.suppress(DbbenchError):
        for disk in devices.describe_all():
            shown = disk.shown
            mounts = [str(point) for point in shown.get("mountpoints") or () if point]
            parts = [size_text(disk.size_bytes), disk.model, shown.get("fstype") or "",
                     f"mounted at {', '.join(mounts)}" if mounts else ""]  # fmt: skip
            found = f"identity {disk.identity}; {', '.join(part for part in parts if part)}"
            yield Finding(f"device /dev/{disk.name}", True, found)


def _plan(file: str, options: Options, results: Path) -> Iterator[Finding]:
    from dbbench.commands.planning import asked

    wanted = asked(file, options.paths, None, None, False, None)
    for error in lacking(wanted.plan, wanted.expanded, results):
        yield Finding(f"{file}: {error.title}", False, error.evidence, "this plan", error.remedy or "")
