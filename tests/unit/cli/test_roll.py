"""The command's template becomes words, and what a broker registers stays one of them."""

from __future__ import annotations

import click
import pytest

from aiocontroller.cli.roll import words
from aiocontroller.core.errors import BadInputError


def test_each_broker_has_its_own_command() -> None:
    template = "ssh {host} 'systemctl restart kafka-{id}' {port}"
    assert words(template, 3, "k3", 9092) == ["ssh", "k3", "systemctl restart kafka-3", "9092"]
    assert words("ssh {host}", 3, "fe80::1", 9092) == ["ssh", "fe80::1"]


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a; rm -rf /", "a b", "$(x)", "a\nb", "ä"])
def test_a_registration_chooses_no_command(host: str) -> None:
    with pytest.raises(BadInputError, match=r"broker 3: found the host .*, expected a name or an address"):
        words("ssh {host} x", 3, host, 1)


@pytest.mark.parametrize(
    "template",
    [
        *("", "  ", "restart {broker}", "restart {host.__class__}", "restart {0}", "restart {", "restart 'x"),
        *("restart {id!r}", "restart {id!x}", "restart {id:>999999999}", "restart {id:{port}}", "restart {host:d}"),
    ],
)
def test_a_template_that_is_none_is_named(template: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected a command with \{id\}, \{host\} or \{port\}"):
        words(template, 1, "h", 1)
