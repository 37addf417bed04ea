"""``aiocontroller completion``: prints the script with which a shell completes our commands, options and values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from aiocontroller.cli.output import say

PROGRAM = "aiocontroller"
VARIABLE = "_AIOCONTROLLER_COMPLETE"
"""The environment variable in which the script asks the program; click derives the same from the program's name."""
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete this program's commands, options and values.

    \b
    bash:  aiocontroller completion bash > ~/.local/share/bash-completion/completions/aiocontroller
    zsh:   aiocontroller completion zsh > DIR/_aiocontroller     # DIR is one of $fpath
    fish:  aiocontroller completion fish > ~/.config/fish/completions/aiocontroller.fish

    An installation into /usr or /usr/local has put these files there already. bash has to be 4.4 or newer.
    """
    say(script(shell))


def script(shell: str) -> str:
    """The text of the file for one of ``SHELLS``."""
    made = get_completion_class(shell)
    assert made is not None
    return made(click.Group(), {}, PROGRAM, VARIABLE).source().strip()
