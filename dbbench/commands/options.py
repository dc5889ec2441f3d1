"""Options and arguments that several commands share.

The file is long because click's classes for help, groups and types, and the options that use them,
are read together when a command is written.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from dbbench import packages
from dbbench.errors import EXIT_USAGE, DbbenchError, NotWritable
from dbbench.errors.similar_names import did_you_mean
from dbbench.units import seconds_of, share_of

CONTEXT: Final = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 200,
}
# options of every command
GLOBAL: Final = {"--path", "--no-color", "--json", "--quiet", "--verbose", "--help"}
STATUSES: Final = {
    0: "success",
    1: "a trial failed, or a result is damaged",
    2: "error in the command line, the plan or the machine; nothing was changed",
    3: "regression",
    4: "inconclusive",
    5: "refused, because data could be lost; nothing was changed",
    130: "interrupted; the same command resumes a run",
    143: "terminated; the same command resumes a run",
}
Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass
class Options:
    """The values of -v -q --json --no-color --path, given anywhere, and of options that several
    commands have.
    """

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    no_color: bool = False
    paths: list[str] = field(default_factory=list)
    # errors of runs that the output does not contain
    passed_over: list[DbbenchError] = field(default_factory=list)
    results_folder: Path = Path("results")  # value of --results, for commands that have it
    progress: str = "auto"  # value of --progress
    argv: tuple[str, ...] = ()  # the command line without the program

    def has_colour(self, stream: TextIO) -> bool:
        return stream.isatty() and not self.no_color and not os.environ.get("NO_COLOR")

    def put(self, document: Any, *lines: str) -> None:
        """Print the result: the document with --json, otherwise the lines."""
        from dbbench.report import text  # imported here, because help does not need it

        if self.json:
            text.put_json(document)
            return
        for line in lines:
            text.put(line)

    def shown(self, renderer: Callable[..., T]) -> T:
        """Return the renderer's block that shows progress on stderr, as --progress, --quiet and
        --no-color demand.
        """
        kind = "none" if self.quiet and self.progress == "auto" else self.progress
        return renderer(kind, sys.stderr, color=not self.no_color)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    options = options_of(ctx)
    if param.name == "paths":
        options.paths = [*value, *options.paths]  # later paths on the command line take precedence
    elif value:  # a flag may have been given before the command's name
        setattr(options, str(param.name), value)


def kept_option(*names: str, **kwargs: Any) -> Callable[[Function], Function]:
    """Return an option whose value is kept in Options and not passed to the command."""
    return click.option(
        *names,
        expose_value=False,
        callback=_keep,
        **kwargs,
    )


def with_options(function: Function, *options: Callable[[Function], Function]) -> Function:
    """Add the options in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def global_options(function: Function) -> Function:
    """Add the options that every command accepts."""
    return with_options(
        function,
        kept_option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Print details: tracebacks of errors, and how intervals are calculated.",
        ),
        kept_option(
            "-q",
            "--quiet",
            is_flag=True,
            help="Hide progress.",
        ),
        kept_option(
            "--json",
            is_flag=True,
            help="Print one JSON document instead of a table.",
        ),
        kept_option(
            "--no-color",
            is_flag=True,
            help="Disable colours (as NO_COLOR does).",
        ),
        kept_option(
            "--path",
            "paths",
            metavar="DIR",
            multiple=True,
            help="Also search DIR (and DBBENCH_PATH) for fs_setups/ and workloads/.",
        ),
    )


class Command(click.Command):
    """A command whose help has its own options first, then those of all commands, examples and exit
    statuses.
    """

    examples: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (0, 2)
    others: tuple[click.Command, ...] = ()  # commands after the same noun

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an argument too many; a group hands its arguments on to a command."""
        if ctx.allow_extra_args:
            return super().parse_args(ctx, args)
        words = list(args)
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            ctx.fail(_too_many(ctx, self, words, rest))
        return rest

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        if self.others:
            put_commands(formatter, self.others)
        # Options of every command come last, because they are the same everywhere.
        sections: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            "Global options": [],
        }
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                title = "Options" if GLOBAL.isdisjoint(param.opts) else "Global options"
                sections[title].append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{' ' * formatter.current_indent}{line}\n")
        with formatter.section("Exit status"):
            formatter.write_dl([(str(status), STATUSES[status]) for status in self.statuses])


def _too_many(
    ctx: click.Context,
    command: click.Command,
    words: Sequence[str],
    rest: Sequence[str],
) -> str:
    """Return why an argument is too many: a list with a space in it, a second plan."""
    lists = [
        name
        for param in command.params
        if isinstance(param, click.Option) and "," in (param.metavar or "")
        for name in param.opts
    ]
    # A space in a list makes two arguments of it.
    place = words.index(rest[0])
    before = ["", "", *words[:place]]
    if before[-1].endswith(",") or rest[0].startswith(",") or before[-2] in lists:
        joined = f"{before[-1].rstrip(',')},{rest[0].lstrip(',')}"
        return f"a list has commas and no spaces: {joined}"
    takes = [
        param.make_metavar(ctx) for param in command.params if param.param_type_name == "argument"
    ]
    only = f"only {' '.join(takes)}" if takes else "no arguments, only options"
    return f'unexpected argument "{rest[0]}": `{ctx.command_path}` takes {only}'


def command_line(
    *examples: str, statuses: tuple[int, ...] = (0, 2), **kwargs: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Return `click.command` with the global options, and Options as the function's first argument."""

    def decorate(function: Callable[..., Any]) -> Command:
        made = click.command(
            cls=Command,
            context_settings=CONTEXT,
            **kwargs,
        )(global_options(click.pass_obj(function)))
        made.examples = examples
        made.statuses = statuses
        return made

    return decorate


class Commands(Command, click.Group):
    """A group of commands whose help lists them in their order, with whole sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not ctx.resilient_parsing:
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        put_commands(formatter, self.commands.values())


# Choice has a type argument only from click 8.2 on.
class OneOf(click.Choice):  # type: ignore[type-arg]
    """A choice, without regard to case; another word is answered with the one that was meant."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        choice_of = {str(choice).lower(): choice for choice in self.choices}
        if (word := str(value).lower()) in choice_of:
            return choice_of[word]

        names = ", ".join(choice_of.values())
        hint = did_you_mean(word, choice_of.values()).partition("; known")[0]
        return self.fail(f'"{value}" is not one of {names}{hint}', param, ctx)


class Whole(click.IntRange):
    """A whole number within limits."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        least = int(self.min or 0)
        expected = f"a whole number of {least} or more"
        if self.max is not None:
            expected = f"a whole number from {least} to {self.max}"
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or number < least or number > (self.max or number):
            self.fail(f"expected {expected}, not {value}", param, ctx)
        return number


# ParamType has type arguments only in the newest versions of click.
class Time(click.ParamType):  # type: ignore[type-arg]
    """A time with its unit. The value is the text."""

    name = "time"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        text = str(value).strip()
        try:
            seconds = seconds_of(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"expected more than 0 s, not {text}", param, ctx)
        if text[-1].isdigit():
            self.fail(f"requires a unit: write {text}ms, {text}s or {text}min", param, ctx)
        return text


def put_commands(formatter: click.HelpFormatter, commands: Iterable[click.Command]) -> None:
    """Write the section "Commands" of a help text."""
    with formatter.section("Commands"):
        formatter.write_dl(
            [(str(each.name), each.get_short_help_str(limit=200)) for each in commands]
        )


def command_group(function: Callable[..., Any]) -> Commands:
    """Return the function as a `click.group` with the global options."""
    group: Commands = click.group(cls=Commands, context_settings=CONTEXT)(global_options(function))
    return group


def options_of(ctx: click.Context) -> Options:
    """Return the command line's Options."""
    options = ctx.find_object(Options)
    if options is None:
        raise AssertionError("cli.run hands Options in")
    return options


def write_new(files: Mapping[Path, str | bytes]) -> None:
    """Write all files, or none if one of them exists. Raises NotWritable."""
    refuse_existing(files)
    try:
        for path, content in files.items():
            with path.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        from dbbench.results.fileio import unwritable

        named = unwritable(error, path)
        if not any(map(os.path.lexists, files)):
            named.effect = "Nothing was written."
            named.remedy = "Choose another place with -o FILE."
        raise named from None


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise NotWritable if one of them exists."""
    if taken := [str(path) for path in paths if os.path.lexists(path)]:
        text = ", ".join(taken[:3])
        raise NotWritable(
            f"{text} exists",
            effect="Nothing was written.",
            remedy="Choose another with -o FILE.",
        )


def program_of_notify(
    _ctx: click.Context,
    _param: click.Parameter,
    value: str | None,
) -> str | None:
    """Return the command with an absolute path: it starts in another directory, hours later."""
    if value is None:
        return None
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise click.BadParameter(f"{value}: {error}") from None
    program = packages.find(words[0]) if words else None
    if program is None:
        raise click.BadParameter(f'"{value}" does not begin with a program that can be started')
    return shlex.join([str(Path(program).absolute()), *words[1:]])


results_option = kept_option(
    "--results",
    "results_folder",
    default="results",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    show_default=True,
    help="Results folder.",
)
progress_option = kept_option(
    "--progress",
    type=OneOf(["auto", "plain", "json", "none"]),
    default="auto",
    show_default=True,
    help="Format of the progress on stderr.",
)


def _plan_file(
    _ctx: click.Context,
    _param: click.Parameter,
    value: str,
) -> str:
    if value in ("", "-", "/dev/stdin"):
        raise click.UsageError(
            "a plan is read from a file, because its name and relative paths belong to it: "
            "write it to a file and name that"
        )
    return value


plan_argument = click.argument(
    "plan_file",
    metavar="[PLAN]",
    default="plan.toml",
    type=click.Path(readable=False),  # the shell completes files
    callback=_plan_file,
)


fs_option = click.option(
    "--fs",
    metavar="A,B",
    help="Use only these of the plan's fs_setups; ext4:commit=60 adds mount options.",
    callback=lambda _ctx, _param, labels: tuple(
        filter(None, map(str.strip, (labels or "").split(",")))
    ),
)


def plan_options(function: Function) -> Function:
    """Add the options --fs, --only, --blocks, --budget, --quick and --seed: the fields of a
    Narrowing.
    """
    return with_options(
        function,
        fs_option,
        click.option(
            "--only",
            multiple=True,
            metavar="CELL",
            help="Use only this cell, for example xfs.postgres.scan; * matches any text. "
            "Repeatable.",
        ),
        click.option(
            "--blocks",
            type=int,
            metavar="N",
            help="Override the number of blocks.",
        ),
        click.option(
            "--budget",
            type=Time(),
            help="Run as many blocks as fit in this time, for example 8h.",
        ),
        click.option(
            "--quick",
            is_flag=True,
            help="Run one block with the shortest windows (smoke test).",
        ),
        click.option(
            "--seed",
            type=int,
            metavar="N",
            help="Override the seed of the trials' order.",
        ),
    )


def _parse_share(
    _ctx: click.Context,
    _param: click.Parameter,
    value: str | None,
) -> float | None:
    """Convert "2%" or "0.02" to 0.02."""
    try:
        return None if value is None else share_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


precision_option = click.option(
    "--until-precision",
    "precision",
    metavar="2%",
    callback=_parse_share,
    help="Add blocks (up to 15) until each interval is this narrow; setups that are decided stop "
    "early.",
)


def completing(
    names: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes the value of an argument or option with these names."""

    def complete(
        _ctx: click.Context,
        _param: click.Parameter,
        incomplete: str,
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in names() if word.startswith(incomplete)]

    return complete


def catalogue(
    names: Callable[[], Iterable[str]],
    put_all: Callable[[Options], None],
    *commands: click.Command,
    examples: tuple[str, ...],
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate `function(options, name, ...)`, which shows one of the `names`; without a name,
    `put_all` lists them.
    """

    def decorate(show: Callable[..., Any]) -> click.Command:
        @functools.wraps(show)
        def function(options: Options, name: str | None, **given: Any) -> None:
            if name is None:
                put_all(options)
            else:
                show(options, name, **given)

        # A noun is completed with its entries and its commands.
        complete = completing(lambda: [*names(), *(command.name or "" for command in commands)])
        argument = click.argument(
            "name",
            required=False,
            metavar="[NAME]",
            shell_complete=complete,
        )
        shown = command_line(*examples)(argument(function))
        shown.others = commands
        return Chooser(shown, commands) if commands else shown

    return decorate


class Chooser(click.Group):
    """Chooses between `dbbench NOUN [NAME]` and `dbbench NOUN COMMAND ...`."""

    def __init__(self, shown: Command, commands: tuple[click.Command, ...]) -> None:
        super().__init__(commands=commands)
        self.shown = shown

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if any(word in self.commands for word in args):
            return super().make_context(info_name, args, parent, **extra)
        return self.shown.make_context(info_name, args, parent, **extra)
