"""The table of commands, and the one place where an error becomes text and an exit code.

A command's module is imported when the command is asked for: `dbbench --help` imports none of them.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

import click

from dbbench import __version__
from dbbench.commands.options import Options, global_options
from dbbench.errors import EXIT_INTERRUPTED, EXIT_USAGE, DbbenchError, Interrupted, Terminated
from dbbench.units import inert

EXIT_PIPE: Final = 141  # what a shell shows of a program that died because its reader had gone

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # name: (module in dbbench.commands, what `--help` says)
    "doctor": ("doctor", "Tools, versions, root, free space, devices; what to install."),
    "init": ("init", "Write a commented plan.toml."),
    "plan": ("plan", "Dry run: trials in order, commands, time, disk and bytes written."),
    "rehearse": ("rehearse", "Try what this kernel lacks in a second one, at a small scale."),
    "run": ("run", "Drive a plan's trials, or resume them; print the verdict."),
    "durability": ("durability", "Power-cut lab: what of acknowledged commits is left."),
    "compare": ("compare", "Ratios, intervals and words of one or more runs."),
    "nightly": ("nightly", "Tonight's run beside its reference; a regression ends with 3."),
    "baseline": ("baseline", "Which run's level nights are held against."),
    "export": ("export", "A run as JUnit, OpenMetrics, GitHub Markdown or Bencher JSON."),
    "import": ("import_", "Merge runs of other machines, verified, each trial once."),
    "report": ("report", "Write the report page of one or more runs."),
    "list": ("list", "The runs of the results folder."),
    "show": ("show", "A run with its trials, or one trial."),
    "explain": ("explain", "What an error or a warning means."),
    "clean": ("clean", "Remove what runs have left: images, unfinished trials, golden copies."),
    "fleet": ("fleet", "One plan over many machines."),
    "fs": ("fs", "The catalogue of fs setups."),
    "workload": ("workload", "The catalogue of workloads."),
    "study": ("study", "Published comparisons, run here: then and now."),
}


class Commands(click.Group):
    """The group of all commands, by the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"dbbench.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            from dbbench.tomlfile import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dbbench", message="%(prog)s %(version)s")
@global_options
def group(**_given: Any) -> None:
    """Which filesystem should hold my database, by how much, and how sure are we?

    \b
    dbbench doctor              what is missing on this machine
    dbbench init                writes plan.toml
    dbbench run plan.toml       drives it; the same command resumes it
    """


def run(argv: Sequence[str]) -> int:
    """Run one command line; its exit code. Everything that a person reads of an error is printed here."""
    signal.signal(signal.SIGTERM, _terminated)
    options = Options()
    try:
        return _invoked(list(argv), options)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        tell(Interrupted("interrupted"), options)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _deafen(sys.stdout)
        return EXIT_PIPE
    except DbbenchError as error:
        tell(error, options)
        return error.exit_code
    except Exception as error:
        tell(_fault(error), options, error)
        return DbbenchError.exit_code


def _invoked(argv: list[str], options: Options) -> int:
    """The command's own exit code. Not by `group.main`, which turns a broken pipe into success."""
    with group.make_context("dbbench", argv, obj=options) as context:
        outcome = group.invoke(context)
    sys.stdout.flush()
    return outcome if isinstance(outcome, int) else 0


def _deafen(stream: TextIO) -> None:
    """Send what is still to be written nowhere, or Python complains about the pipe at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tell(error: DbbenchError, options: Options, cause: BaseException | None = None) -> None:
    """Print an error on stderr: what, evidence, where, effect, remedy; with -v also the traceback."""
    lines = [f"{error.id}: {error.evidence}"]
    lines += [f"  {line}" for line in (error.where or "").splitlines()]
    rest = " ".join(part for part in (error.effect, error.remedy) if part)
    lines += [f"  {line}" for line in rest.splitlines()]
    if options.verbose:
        import traceback

        lines.append("".join(traceback.format_exception(cause or error)).rstrip())
    word = click.style("error", fg="red", bold=True) if options.coloured(sys.stderr) else "error"
    try:
        print(f"{word} {inert(chr(10).join(lines))}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        _deafen(sys.stderr)


def _fault(error: Exception) -> DbbenchError:
    told = f"{type(error).__name__}: {error}"
    return DbbenchError(told, remedy="This is a fault of dbbench. With -v it prints where; please report it.")


def _terminated(_number: int, _frame: object) -> None:
    raise Terminated("terminated")
