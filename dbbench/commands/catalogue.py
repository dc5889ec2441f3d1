"""Commands that list things without a name and show one of them with its name: `fs`, `workload`, `study`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from dbbench.commands.options import command_line, put_commands


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
        """Return the context of the command that shows, unless the first word is the name of another command."""
        if any(word in self.commands for word in args):
            return super().make_context(info_name, args, parent, **extra)
        return self.shown.make_context(info_name, args, parent, **extra)
