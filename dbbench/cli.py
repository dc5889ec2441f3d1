"""The table of commands, and the one place where an error becomes text and an exit status. A
command's module is imported when it is used: `dbbench --help` imports none.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pwd
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, shell_complete

from dbbench import __version__
from dbbench.commands.options import CONTEXT, STATUSES, Commands, Options, global_options
from dbbench.errors import (
    EXIT_INTERRUPTED,
    EXIT_TRIAL_FAILED,
    EXIT_USAGE,
    DbbenchError,
    FileUnreadable,
    Interrupted,
    MachineTooSmall,
    NotWritable,
    Terminated,
    UsageInvalid,
    error_kinds,
)
from dbbench.units import on_terminal, size_text

# Limits and the smallest values with which commands and trials work, twice what was measured.
LEAST: Final = (
    (resource.RLIMIT_AS, "address space", "-v", 2**29),
    (resource.RLIMIT_STACK, "stack", "-s", 2**18),
)
EXIT_PIPE: Final = 141  # a shell reports this for a program that was killed by SIGPIPE

# heading in `--help` -> name of the command -> (module in dbbench.commands, text in `--help`)
GROUPS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Measure": {
        "init": ("init", "Write a commented plan.toml."),
        "doctor": (
            "doctor",
            "Check tools, permissions, disk space and devices; list what to install.",
        ),
        "probe": ("probe", "Measure how fast a disk can commit: one minute, no root, no server."),
        "plan": (
            "plan",
            "Show what a run would do, how long it takes and how much it writes (dry run).",
        ),
        "run": ("run", "Run a plan, or resume it, and print the verdict."),
        "size": ("size", "Find the smallest volume that keeps a rate of transactions."),
    },
    "Read": {
        "show": ("show", "List runs, or show a run or a trial."),
        "compare": ("compare", "Compare the filesystems of one or more runs; export the result."),
        "report": ("report", "Write the report page."),
    },
    "Every night": {"nightly": ("nightly", "Run a plan every night and detect regressions.")},
    "Many machines": {
        "fleet": ("fleet", "Run a plan on several machines."),
        "import": ("import_", "Merge runs from other machines."),
    },
    "Catalogues": {
        "fs": ("fs", "List filesystem setups, or show one."),
        "workload": ("workload", "List workloads, show one, or make one from recorded statements."),
        "study": ("study", "List published benchmarks, show one, or run it on this machine."),
    },
    "Labs": {
        "powercut": ("powercut", "Power-loss test: do acknowledged commits survive?"),
    },
    "Housekeeping": {
        "clean": ("clean", "Remove what interrupted runs left behind."),
        "explain": ("explain", "Explain an error or a warning."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
COMMANDS: Final = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class AllCommands(Commands):
    """The group of all commands, loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"dbbench.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def shell_complete(
        self,
        ctx: click.Context,
        incomplete: str,
    ) -> list[CompletionItem]:
        named = [
            CompletionItem(name, help=COMMANDS[name][1])
            for name in COMMANDS
            if name.startswith(incomplete)
        ]
        if incomplete[:1] != "-":
            return named
        return super().shell_complete(ctx, incomplete)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        width = max(len(name) for name in COMMANDS)
        for heading, entries in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, (_, text) in entries.items()]
                )


# `make dist` writes "8511515 2026-11-23" or "" into this file of the package
BAKED: Final = "commit.txt"
_GIT_S: Final = 10.0


def _print_version(
    ctx: click.Context,
    _param: click.Parameter,
    given: bool,
) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(f"dbbench {__version__} ({version_text(Path(__file__).parent)})")
        ctx.exit()


version_option = click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and the commit, and exit.",
)


def version_text(package: Path) -> str:
    """Return "commit 8511515 of 2026-11-23" or "commit unknown": from a file in a wheel or .deb, or
    from git.
    """
    try:
        words = (package / BAKED).read_text(encoding="utf-8").strip().split(maxsplit=2)
    except OSError:
        words = of_checkout(package.parent).split(maxsplit=2)
    if len(words) < 2:
        return "commit unknown"
    return f"commit {words[0]} of {words[1]}" + (f", {words[2]}" if words[2:] else "")


def of_checkout(folder: Path) -> str:
    """Return "COMMIT DATE" of a checkout, with "with local changes" where tracked files differ; ""
    without git.
    """
    from dbbench import process

    if not (folder / ".git").exists() or not process.find("git"):
        return ""
    git: list[str | Path] = ["git", "-c", f"safe.directory={folder}", "-C", folder]
    try:
        line = process.run(
            [*git, "log", "-1", "--format=%h %cs"],
            timeout_s=_GIT_S,
            note=False,
        ).stdout.strip()
        changed = process.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            timeout_s=_GIT_S,
            note=False,
        )
    except DbbenchError:
        return ""
    if changed.stdout.strip():
        return f"{line} with local changes"
    return line


@click.group(cls=AllCommands, context_settings=CONTEXT)
@version_option
@global_options
def group(**_given: Any) -> None:
    """Which filesystem should hold my database, by how much, and how sure are we?"""


group.statuses = tuple(STATUSES)
group.examples = (
    "dbbench doctor              check this machine",
    "dbbench init                write plan.toml",
    "dbbench plan                show what a run would do",
    "dbbench run                 run it; the same command resumes it",
)


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit status. This is the only place that prints errors."""
    signal.signal(signal.SIGTERM, _terminate)
    # others must not be able to write results; a stricter umask is kept
    os.umask(os.umask(0o022) | 0o022)
    # Children and this process must find the same files. A system unit has no HOME, or "/".
    if os.environ.get("HOME") in (None, "", "/"):
        os.environ["HOME"] = _home_of_account()
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        _resolve_folders()
    # Errors before the options are read are JSON, too.
    options = Options(json="--json" in argv, argv=tuple(argv))
    status = _status(list(argv), options)
    for stream in (sys.stdout, sys.stderr):  # what is left in them would fail when Python exits
        with contextlib.suppress(OSError):
            stream.flush()
            continue
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return status


def _resolve_folders() -> None:
    """Make the folders in the environment absolute: children have another working directory."""
    if cache := os.environ.get("DBBENCH_CACHE"):
        os.environ["DBBENCH_CACHE"] = str(Path(cache).absolute())
    if folders := os.environ.get("DBBENCH_PATH"):
        parts = (str(Path(part).absolute()) for part in folders.split(":") if part)
        os.environ["DBBENCH_PATH"] = ":".join(parts)


def _home_of_account() -> str:
    """Return the home directory in passwd(5); "/" for an account that is not listed there."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir or "/"
    except KeyError:  # as in some containers
        return "/"


def _status(argv: list[str], options: Options) -> int:
    try:
        _open_streams()
        _check_limits()
        # A shell that completes a word asks through this variable.
        if "_DBBENCH_COMPLETE" in os.environ:
            instruction = os.environ["_DBBENCH_COMPLETE"]
            return shell_complete(
                group,
                {"obj": options},
                "dbbench",
                "_DBBENCH_COMPLETE",
                instruction,
            )
        _refuse_empty(argv)
        return _invoke(argv, options)
    # From here on: each way to end has its exit status, and its text is printed once.
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        path = "dbbench"
        if argv and argv[0] in COMMANDS:
            path += f" {argv[0]}"
        if isinstance(error, click.UsageError) and error.ctx:
            path = error.ctx.command_path
        # click lists choices on lines of their own.
        text = error.format_message().replace("\n\t", " ").rstrip(".")
        tell(UsageInvalid(text, remedy=f"See:  {path} --help"), options)
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        tell(Interrupted("interrupted"), options)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_PIPE
    except Exception as error:
        named = error if isinstance(error, DbbenchError) else _translate(error)
        tell(named, options, error)
        return named.exit_code


def _refuse_empty(argv: Sequence[str]) -> None:
    """Raise UsageError for an empty word, such as "$RESULTS" in a shell where it is not set."""
    for before, word in zip(("dbbench", *argv), argv, strict=False):
        if not word:
            raise click.UsageError(f"the word after {before} is empty: is a variable not set?")


def _open_streams() -> None:
    """Open /dev/null for closed streams, or a results file gets their number. Raises NotWritable
    for stdout.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # in the order of their numbers
        fd = os.open(os.devnull, os.O_RDWR)
        setattr(sys, name, os.fdopen(fd, "r+", encoding="utf-8"))
    if "stdout" in closed:
        remedy = "Redirect it to a file, or to /dev/null if the result is not needed."
        raise NotWritable("standard output is closed", remedy=remedy)


def _check_limits() -> None:
    """Raise MachineTooSmall if a limit of this process would let libraries end it without a
    message.
    """
    for kind, what, option, least in LEAST:
        soft, _hard = resource.getrlimit(kind)
        if 0 <= soft < least:
            raise MachineTooSmall(
                f"the {what} is limited to {size_text(soft)} (ulimit {option}), but dbbench "
                f"needs {size_text(least)}",
                remedy=f"Raise the limit:  ulimit {option} unlimited",
            )


def _invoke(argv: list[str], options: Options) -> int:
    """Return the command's exit status, or 1 if it skipped something. `group.main` hides a broken
    pipe.
    """
    try:
        with group.make_context("dbbench", argv, obj=options) as context:
            outcome = group.invoke(context)
        sys.stdout.flush()
    finally:
        for error in options.passed_over:
            tell(error, options)
    if options.passed_over:
        return EXIT_TRIAL_FAILED
    return outcome if isinstance(outcome, int) else 0


def tell(
    error: DbbenchError,
    options: Options,
    cause: BaseException | None = None,
) -> None:
    """Print an error on stderr: what, evidence, where, effect, remedy; with -v the traceback; as
    JSON with --json.
    """
    # The table of errors has what the error itself does not say.
    kind = error_kinds()[error.id]
    remedy = error.remedy or kind.remedy
    trace = ""
    if options.verbose:
        import traceback

        trace = "".join(traceback.format_exception(cause or error)).rstrip()
    # Programs get the same on stderr, without wrapping.
    if options.json:
        from dbbench.report.text import put_json

        content = {
            "id": error.id,
            "title": kind.title,
            "evidence": error.evidence,
            "where": error.where,
            "effect": error.effect or None,
            "remedy": remedy,
            "exit_status": error.exit_code,
            "traceback": trace or None,
        }
        with contextlib.suppress(OSError):
            put_json({"error": content}, err=True)
        return

    from dbbench.report.text import columns, wrap

    # A request to stop is not a fault.
    word = "error"
    colour = "red"
    if isinstance(error, Interrupted | Terminated):
        word = "stopped"
        colour = "yellow"

    # The evidence and the remedy wrap; where and the traceback keep their lines.
    width = columns(sys.stderr) or sys.maxsize
    lines = []
    for line in f"{word} {error.id}: {error.evidence}".splitlines():
        lines += wrap(line, width)
    lines += [f"  {line}" for line in (error.where or "").splitlines()]
    for line in " ".join(filter(None, (error.effect, remedy))).splitlines():
        lines += wrap(f"  {line}", width)
    if trace:
        lines.append(trace)
    # Only the first word has a colour, so that the text can be copied.
    text = on_terminal("\n".join(lines)).removeprefix(word)
    if options.has_colour(sys.stderr):
        word = click.style(word, fg=colour, bold=True)
    with contextlib.suppress(OSError):
        print(f"{word}{text}", file=sys.stderr, flush=True)


def _translate(error: Exception) -> DbbenchError:
    from dbbench.results.fileio import FULL, unwritable

    if isinstance(error, OSError):
        if error.errno in FULL or (error.errno == errno.EIO and error.filename is None):
            return unwritable(error, error.filename or "standard output")
        if error.filename is not None:
            return FileUnreadable(f"{os.fsdecode(error.filename)}: {error.strerror}")
        if not Path("/proc/self/cwd").readlink().exists():
            return FileUnreadable(
                "the current directory was deleted", remedy="Change to a directory that exists."
            )
    text = f"{type(error).__name__}: {error}"
    return DbbenchError(
        text, remedy="This is a fault of dbbench. With -v it prints where; please report it."
    )


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated("terminated")
