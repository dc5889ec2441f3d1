"""`dbbench init`: write a commented plan.toml for the installed engines, an example plan, or the
systemd units.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dbbench.commands.options import OneOf, Options, Time, command_line, refuse_existing, write_new
from dbbench.engines import SERVERS
from dbbench.errors import DbbenchError, LiveServerUnreadable, UsageInvalid
from dbbench.machine import host
from dbbench.model.base import data_folder
from dbbench.report.text import put, put_paragraph
from dbbench.storage.devices.directory import check_directory
from dbbench.units import group_by

if TYPE_CHECKING:
    from dbbench.plan.proposal import Proposal

_USUAL_MIN: Final = 60  # the time that a person is offered, in minutes
_EXAMPLES: Final = ("demo", "tiny", "power-loss-mysql", "power-loss-mariadb")
# the path in the units of the checkout, which is replaced
_PROGRAM: Final = "/usr/local/bin/dbbench"


@command_line(
    "dbbench init --dirs /mnt/a,/mnt/b --engine postgres",
    "dbbench init --fs ext4,xfs --budget 8h",
)
@click.option(
    "--dirs",
    metavar="A,B",
    help="Compare these existing directories: no root, nothing is formatted.",
)
@click.option(
    "--fs",
    metavar="A,B",
    help="Compare these setups, for example ext4,ext4:commit=60 [default: ext4,xfs,btrfs].",
)
@click.option(
    "--device",
    metavar="DISK",
    help="Compare them on this disk, which will be erased [default: on a file].",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    type=OneOf(SERVERS),
    help="Engine to include [default: all that are installed].",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NAME",
    help="Workload [default: one per engine].",
)
@click.option(
    "--budget",
    type=Time(),
    help="Time for the whole run, for example 8h.",
)
@click.option(
    "-o",
    "--output",
    default="plan.toml",
    metavar="FILE",
    show_default=True,
    help="File to write.",
)
@click.option(
    "--from-running",
    is_flag=True,
    help="Take settings, sizes and filesystem from a running server, which is only read.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="Socket of that server [default: where packages put it].",
)
@click.option("--user", help="User to connect as [default: this account's name].")
@click.option("--database", help="Database to read the sizes of.")
@click.option(
    "--example",
    type=OneOf(_EXAMPLES),
    help="Write this example plan instead.",
)
@click.option(
    "--units",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the systemd units of nightly runs to DIR instead.",
)
def command(
    options: Options,
    output: str,
    from_running: bool,
    socket: Path | None,
    user: str | None,
    database: str | None,
    example: str | None,
    units: Path | None,
    **answers: Any,
) -> None:
    """Write a commented plan.toml. An existing file is not overwritten.

    On a terminal and without options it asks five questions.
    """
    from dbbench.plan.catalog import catalog

    # Options that contradict each other.
    path = Path(output)
    given = any(answers.values())
    if not from_running and (socket or user or database):
        raise click.UsageError("--socket, --user and --database require --from-running")
    if bool(example) + bool(units) + from_running + given > 1:
        raise click.UsageError(
            "--example, --units, --from-running and the options of a new plan cannot be combined"
        )
    if answers["dirs"] and (answers["fs"] or answers["device"]):
        raise click.UsageError(
            "--dirs cannot be combined with --fs or --device: existing directories are not "
            "formatted"
        )

    # The files of systemd instead of a plan.
    if units:
        _write_units(options, units)
        return

    # The plan: an example, of a running server, or from the answers.
    chosen: tuple[str, ...] = ()
    if example:
        text = (data_folder() / "plans" / f"{example}.toml").read_text(encoding="utf-8")
    elif from_running:
        chosen, text = _running(options, path, socket, user, database)
    else:
        if not given and not options.json and sys.stdin.isatty() and sys.stdout.isatty():
            refuse_existing([path])  # before the questions
            answers = _ask()
        proposal = _proposal(options, **answers)
        chosen = proposal.engines
        text = proposal.text(path, catalog(options.paths))
    # The next command, ready to be copied.
    write_new({path: text})
    name = "" if path == Path("plan.toml") else f" {shlex.quote(str(path))}"
    notes = list(_notes(options, path) if answers["dirs"] else _shortages(options, path))
    if not options.json:
        for note in notes:
            put_paragraph(note)
    options.put(
        {"path": str(path), "engines": list(chosen), "notes": notes},
        f"Wrote {path}{' for ' if chosen else ''}{', '.join(chosen)}. Review it, then run:  "
        f"dbbench plan{name}",
    )


def _notes(options: Options, path: Path) -> Iterator[str]:
    """Yield what is wrong with the directories of a plan that was written: too few, on one
    filesystem, or why a run would be refused.
    """
    from dbbench.plan.request import able, load_request
    from dbbench.run.preflight import refusals

    request = able(load_request(str(path), options.paths), options.paths)
    folders = [Path(folder) for folder in request.plan.device.directories.values()]
    if len(folders) == 1:
        yield f"{folders[0]} is the only directory, so nothing is compared. Name a second one."
    for group in group_by(folders, lambda folder: folder.stat().st_dev).values():
        if len(group) > 1:
            names = " and ".join(map(str, group))
            yield f"{names} are on the same filesystem, so they cannot differ."
    for error in refusals(request, options.results_folder):
        yield f"{error.id} {error.title}: {error.evidence}"


def _shortages(options: Options, path: Path) -> list[str]:
    """Return what does not fit of a plan that was written; `plan` reports all else. Raises
    DiskTooSmall, and removes the plan, if its data do not fit on its disk.
    """
    from dbbench.plan.request import load_request
    from dbbench.run.disk_space import fits, shortages

    too_small = list[DbbenchError]()
    texts = []
    with suppress(DbbenchError):
        request = load_request(str(path), options.paths)
        if request.plan.device.kind == "block":
            too_small += fits(request.plan, request.expanded)
        for error in shortages(request, options.results_folder):
            texts.append(f"{error.id} {error.title}: {error.evidence}. {error.remedy}")
    if too_small:
        path.unlink()
        raise too_small[0]
    return texts


def _image_gib(options: Options, engines: Sequence[str]) -> int:
    from dbbench.plan.proposal import fitting_gib
    from dbbench.run.disk_space import free_bytes

    return fitting_gib(free_bytes(options.results_folder), engines)


def _proposal(
    options: Options,
    dirs: str | None,
    fs: str | None,
    device: str | None,
    engines: Sequence[str],
    workloads: Sequence[str],
    budget: str | None,
) -> Proposal:
    from dbbench.plan.proposal import Proposal, installed_engines

    chosen = tuple(name for name in SERVERS if name in engines) or installed_engines()
    disk = str(Path(device).absolute()) if device else None
    directories = tuple(Path(path).absolute() for path in _words(dirs))
    return Proposal(
        chosen,
        directories,
        tuple(_words(fs)),
        disk,
        tuple(workloads),
        budget,
        _image_gib(options, chosen),
    )


def _ask() -> dict[str, Any]:
    from dbbench.plan.proposal import installed_engines, least_minutes

    put("Press Enter for the answer in brackets.")
    # One answer decides between directories, a disk and a file.
    place = click.prompt(
        "Directories to compare (/mnt/a,/mnt/b), a disk to ERASE (/dev/...), or a file",
        "file",
        value_proc=_place,
    )
    paths = [] if place == "file" else _words(place)
    disk = place if len(paths) == 1 and place.startswith("/dev/") else None
    dirs = place if paths and not disk else None
    # Existing directories already have a filesystem.
    fs = None if dirs else click.prompt("Filesystems (dbbench fs lists them)", "ext4,xfs,btrfs")
    installed = ",".join(installed_engines())
    engines = click.prompt("Engines", installed, value_proc=_engines)
    workload = click.prompt(
        "Workload (dbbench workload lists them) [the usual one of each engine]",
        "",
        show_default=False,
    )
    setups = len(paths if dirs else _words(fs))
    usual = max(_USUAL_MIN, least_minutes(setups, len(engines)))
    budget = click.prompt("Time for the whole run", f"{usual}min", type=Time())
    return {
        "dirs": dirs,
        "fs": fs,
        "device": disk,
        "engines": engines,
        "workloads": _words(workload),
        "budget": budget,
    }


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _place(text: str) -> str:
    try:
        for path in _words(text):
            if text != "file" and not path.startswith("/dev/"):
                check_directory(Path(path))
    except DbbenchError as error:
        raise click.BadParameter(error.evidence) from None
    return text


def _engines(text: str) -> list[str]:
    for name in _words(text):
        if name not in SERVERS:
            raise click.BadParameter(f"{name} is not one of {', '.join(SERVERS)}")
    return _words(text)


def _write_units(options: Options, folder: Path) -> None:
    started = shutil.which(sys.argv[0]) or shutil.which("dbbench")
    program = str(Path(started).absolute()) if started else _PROGRAM
    word = _unit_word(program)
    texts = {
        folder / file.name: file.read_text(encoding="utf-8")
        for file in sorted((data_folder() / "systemd").iterdir())
    }
    with suppress(OSError):  # reported with the first file
        folder.mkdir(parents=True, exist_ok=True)
    write_new({path: text.replace(_PROGRAM, word) for path, text in texts.items()})
    paths = [str(path) for path in texts]
    options.put(
        {"paths": paths, "program": program},
        *(f"Wrote {path}" for path in paths),
        "Next:  systemctl daemon-reload",
    )


def _unit_word(program: str) -> str:
    """Return a path as the first words of ExecStart=; see "Quoting" in systemd.syntax(7), and % in
    systemd.service(5). Raises UsageInvalid for control characters and what is not UTF-8.
    """
    if re.fullmatch(r"[\w/.+@-]+", program):
        return program
    if not program.isprintable():
        raise UsageInvalid(f"{program!r} has characters that a unit cannot contain")
    quoted = re.sub(r"""(["'\\])""", r"\\\1", program).replace("%", "%%")
    # systemd itself executes no file with such a name.
    if re.search(r"""["'\\]""", program):
        return f'/usr/bin/env "{quoted.replace("$", "$$")}"'
    return f'"{quoted}"'


def _running(
    options: Options,
    path: Path,
    socket: Path | None,
    user: str | None,
    database: str | None,
) -> tuple[tuple[str, ...], str]:
    from dbbench.introspect import server as live
    from dbbench.plan.catalog import catalog

    paths = [socket] if socket else live.sockets()
    if len(paths) != 1:
        raise LiveServerUnreadable(
            f"found {len(paths)} server sockets in the usual places: "
            f"{', '.join(map(str, paths)) or 'none'}",
            remedy="Name one:  dbbench init --from-running --socket /run/postgresql",
        )
    with live.reading(paths[0], user, database) as server:
        memory = host.facts().get("memory_bytes")
        facts = server.facts(memory)
        text = facts.text(
            path, catalog(options.paths), memory, _image_gib(options, [server.engine])
        )
        return (server.engine,), text
