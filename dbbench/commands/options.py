"""The options that every command has, before and after its name, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Options:
    """-v -q --json --no-color --path, wherever they stood on the command line."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    no_color: bool = False
    paths: list[str] = field(default_factory=list)

    def coloured(self, stream: TextIO) -> bool:
        """Whether colours may be printed on `stream`: a terminal, and nobody said no."""
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
    """Add the options that every command has."""
    for option in (
        click.option("--path", "paths", metavar="DIR", multiple=True, expose_value=False, callback=_given("paths"),
                     help="Also look for fs_setups/ and workloads/ in DIR (and in DBBENCH_PATH)."),
        click.option("--no-color", is_flag=True, expose_value=False, callback=_given("no_color"),
                     help="No colours (also: NO_COLOR)."),
        click.option("--json", is_flag=True, expose_value=False, callback=_given("json"),
                     help="Print one JSON document instead of a table."),
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_given("quiet"),
                     help="No progress."),
        click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_given("verbose"),
                     help="Say more; tracebacks of errors."),
    ):  # fmt: skip
        function = option(function)
    return function


def command_line(**kwargs: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """`click.command` with the global options, and Options as the function's first argument."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 110})
        made: click.Command = click.command(**kwargs)(global_options(click.pass_obj(function)))
        return made

    return decorate


def options_of(ctx: click.Context) -> Options:
    """The command line's Options."""
    options = ctx.find_object(Options)
    if options is None:
        raise AssertionError("cli.run hands Options in")
    return options


results_option = click.option(
    "--results", default="results", metavar="DIR", show_default=True, help="The folder that runs lie in."
)
