"""Options and arguments that several commands share; runs by name: a run's name in the results folder, or the path of
its folder; and commands that list things without a name and show one of them with its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem

from dbbench import results
from dbbench.errors import DbbenchError, ResultDamaged, RunMissing
from dbbench.plan.tomlfile import did_you_mean
from dbbench.results import LoadedRun

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Options:
    """The values of -v -q --json --no-color --path, given anywhere on the command line."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    no_color: bool = False
    paths: list[str] = field(default_factory=list)
    passed_over: list[DbbenchError] = field(default_factory=list)  # errors of what was left out of the output

    def coloured(self, stream: TextIO) -> bool:
        """Return whether colours may be printed on `stream`: on a terminal, unless --no-color or NO_COLOR is given."""
        return stream.isatty() and not self.no_color and not os.environ.get("NO_COLOR")


def _given(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that adds what was given to the one Options of the command line."""

    def take(ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        options = options_of(ctx)
        if name == "paths":
            options.paths = [*value, *options.paths]  # what stands later on the line was meant nearer
        elif value:
            setattr(options, name, True)
        return value

    return take


def global_options(function: Function) -> Function:
    """Add the options that every command accepts."""
    for option in (
        click.option("--path", "paths", metavar="DIR", multiple=True, expose_value=False, callback=_given("paths"),
                     help="Also search DIR (and DBBENCH_PATH) for fs_setups/ and workloads/."),
        click.option("--no-color", is_flag=True, expose_value=False, callback=_given("no_color"),
                     help="Disable colours (as NO_COLOR does)."),
        click.option("--json", is_flag=True, expose_value=False, callback=_given("json"),
                     help="Print one JSON document instead of a table."),
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_given("quiet"),
                     help="Hide progress."),
        click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_given("verbose"),
                     help="Print tracebacks of errors."),
    ):  # fmt: skip
        function = option(function)
    return function


def command_line(**kwargs: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return `click.command` with the global options, and Options as the function's first argument."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        kwargs.setdefault("context_settings", CONTEXT)
        made: click.Command = click.command(**kwargs)(global_options(click.pass_obj(function)))
        return made

    return decorate


class Commands(click.Group):
    """A group of commands whose help lists them in their order, with whole sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        put_commands(formatter, self.commands.values())


def put_commands(formatter: click.HelpFormatter, commands: Iterable[click.Command]) -> None:
    """Write the section "Commands" of a help text."""
    with formatter.section("Commands"):
        formatter.write_dl([(str(each.name), each.get_short_help_str(limit=200)) for each in commands])


def command_group() -> Callable[[Callable[..., Any]], Commands]:
    """Return `click.group` with the global options."""

    def decorate(function: Callable[..., Any]) -> Commands:
        made: Commands = click.group(cls=Commands, context_settings=CONTEXT)(global_options(function))
        return made

    return decorate


def options_of(ctx: click.Context) -> Options:
    """Return the command line's Options."""
    options = ctx.find_object(Options)
    if options is None:
        raise AssertionError("cli.run hands Options in")
    return options


results_option = click.option(
    "--results",
    "results_folder",
    default="results",
    metavar="DIR",
    show_default=True,
    help="Results folder.",
)
progress_option = click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "json", "none"]),
    default="auto",
    show_default=True,
    help="Format of the progress on stderr.",
)


def _files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


plan_argument = click.argument("plan_file", metavar="PLAN", shell_complete=_files)


Item = TypeVar("Item")


def _completed(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    folder = Path(ctx.params.get("results_folder") or "results")
    names = [path.name for path in results.runs(folder)] if folder.is_dir() else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)] or [
        CompletionItem(incomplete, type="dir")
    ]


def run_argument(required: bool = True) -> Callable[[Function], Function]:
    """Return the argument RUN, which the shell completes from the runs of the results folder."""
    return click.argument("run", metavar="RUN" if required else "[RUN]", required=required, shell_complete=_completed)


runs_argument = click.argument("runs", nargs=-1, required=True, metavar="RUN..", shell_complete=_completed)


def folder_of(results_folder: Path, name: str) -> Path:
    """Return the folder of a run. Raises RunMissing, with the name that may have been meant."""
    if os.path.lexists(results_folder / name / "run.json"):
        return results_folder / name
    if os.path.lexists(Path(name, "run.json")):
        return Path(name).resolve()  # what is named may be a link; from there on none is followed
    names = [path.name for path in results.runs(results_folder)] if results_folder.is_dir() else []
    hint = did_you_mean(name, names) if names else f"; {results_folder} holds no run"
    raise RunMissing(f'no run "{name}"{hint}', remedy="dbbench show")


def loaded(options: Options, results_folder: Path, names: tuple[str, ...]) -> list[LoadedRun]:
    """The runs of those names without their damaged trials; what was left out, and why, is told at the end. RunMissing;
    ResultDamaged where nothing is left."""
    loaded_runs: list[LoadedRun] = []
    damaged: list[ResultDamaged] = []
    for path in [folder_of(results_folder, name) for name in names]:
        try:
            run = results.load_whole(path)
        except ResultDamaged as error:
            damaged.append(error)
            continue
        damaged += [results.all_of(run)] if run.damaged else []
        loaded_runs += [run] if run.trials or not run.damaged else []
    return kept(options, loaded_runs, damaged)


def kept(options: Options, found: list[Item], damaged: Sequence[DbbenchError]) -> list[Item]:
    """What could be read; the errors of what could not are told at the end. The last of them is raised where nothing is
    left."""
    for error in damaged if found else damaged[:-1]:
        options.passed_over.append(error)
    if damaged and not found:
        raise damaged[-1]
    return found


def report_of(folder: Path) -> Path:
    """Return the path of a run's report page."""
    return folder / "report.html"


def catalogue(names: Callable[[], Iterable[str]], *commands: click.Command) -> Callable[[Callable[..., Any]], Any]:
    """Decorate `function(options, name, ...)`: `name` is None to list. `names` are completed by the shell."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
            words = [*names(), *(command.name or "" for command in commands)]
            return [CompletionItem(word) for word in words if word.startswith(incomplete)]

        argument = click.argument("name", required=False, metavar="[NAME]", shell_complete=complete)
        if not commands:
            return command_line()(argument(function))
        shown = command_line(cls=_Shown)(argument(function))
        assert isinstance(shown, _Shown)
        return Chooser(shown, commands)

    return decorate


class _Shown(click.Command):
    """The command without a further word. Its help lists the further commands."""

    others: tuple[click.Command, ...] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        put_commands(formatter, self.others)


class Chooser(click.Group):
    """Chooses between `dbbench NOUN [NAME]` and `dbbench NOUN COMMAND ...`."""

    def __init__(self, shown: _Shown, commands: tuple[click.Command, ...]) -> None:
        super().__init__(commands=commands)
        shown.others = commands
        self.shown = shown

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """That of the command which shows, unless one of the others is named."""
        if any(word in self.commands for word in args):
            return super().make_context(info_name, args, parent, **extra)
        return self.shown.make_context(info_name, args, parent, **extra)
