"""Options ``KEY=VALUE``; ``--property`` of commands that run controllers."""

from __future__ import annotations

from collections.abc import Sequence

import click


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` texts; BadParameter, which names ``option``, for an invalid one."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"found {text!r}, expected KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found


def _parsed(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    return key_values(texts, "--property")


KEEP_OURS = click.option(
    "--keep-ours",
    "keep_ours",
    multiple=True,
    metavar="NAME",
    help="Use our value of this setting, whatever the brokers have; may be repeated; 'all' for every setting "
    "(aiocontroller.keep.ours).",
)
PROPERTIES = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parsed,
    help="Any property of the controller; may be repeated.",
)
