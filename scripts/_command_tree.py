"""Lists the program's commands, for the generated pages."""

from __future__ import annotations

from collections.abc import Iterator

import click


def commands_of(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its path; groups are left out, and their commands listed."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command
