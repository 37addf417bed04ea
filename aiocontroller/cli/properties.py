"""The option ``--property KEY=VALUE`` of commands that run controllers."""

from __future__ import annotations

import click


def _parsed(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"found {text!r}, expected KEY=VALUE", param_hint="--property")
        found[key.strip()] = value.strip()
    return found


PROPERTIES = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parsed,
    help="Any property of the controller; may be repeated.",
)
