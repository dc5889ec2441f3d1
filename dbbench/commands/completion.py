"""`dbbench completion SHELL`: the script with which a shell completes dbbench's command lines."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from dbbench.commands.options import OneOf, Options, command_line
from dbbench.report.text import put

VARIABLE: Final = "_DBBENCH_COMPLETE"  # the script sets this when it requests completions


@command_line()
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def command(_options: Options, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: dbbench completion bash > /etc/bash_completion.d/dbbench
    zsh:  dbbench completion zsh > ~/.zfunc/_dbbench     (a directory in fpath)
    fish: dbbench completion fish > ~/.config/fish/completions/dbbench.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    # The subclass for bash would start bash to check its version.
    script = ShellComplete.source(kind(click.Group(), {}, "dbbench", VARIABLE))
    put(script.strip("\n"))
