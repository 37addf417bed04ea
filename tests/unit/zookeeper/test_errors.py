"""ZooKeeper's error codes."""

from __future__ import annotations

from kazoo.exceptions import EXCEPTIONS

from aiocontroller.zookeeper.errors import Code

SPELT_OTHERWISE = {
    "ROLLEDBACK": "OK",
    "SYSTEMZOOKEEPER": "SYSTEM",
    "RECONFIGINPROCESS": "RECONFIGINPROGRESS",
    "NOTREADONLYCALL": "NOTREADONLY",
    "SESSIONCLOSEDREQUIRESASL": "SESSIONCLOSEDREQUIRESASLAUTH",
}


def test_error_codes_have_zookeepers_numbers() -> None:
    """As another client has them."""
    theirs = {error.__name__.upper().removesuffix("ERROR"): code for code, error in EXCEPTIONS.items()}
    theirs = {SPELT_OTHERWISE.get(name, name): code for name, code in theirs.items()}
    ours = {name.replace("_", "").removesuffix("ERROR"): int(code) for name, code in Code.__members__.items()}
    assert ours == theirs
