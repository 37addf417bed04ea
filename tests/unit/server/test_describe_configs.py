"""Which dynamic settings of all brokers are described, and that secrets are not."""

from __future__ import annotations

import pytest

from aiocontroller.server.describe_configs import _Entries
from aiocontroller.zookeeper.broker_configs import BrokerConfigs

SETTINGS = {"log.retention.ms": "77", "ssl.keystore.password": "very secret", "unclean.leader.election.enable": "true"}


@pytest.mark.parametrize(
    "keys, described",
    [
        (None, sorted(SETTINGS)),
        (frozenset({"log.retention.ms"}), ["log.retention.ms"]),
        (frozenset({"log.retention.bytes"}), []),
        (frozenset[str](), []),
    ],
)
@pytest.mark.parametrize("version", range(5))
def test_the_settings_of_all_brokers_that_are_asked_for(
    version: int, keys: frozenset[str] | None, described: list[str]
) -> None:
    entries = _Entries(version, BrokerConfigs(dynamic_default=SETTINGS), with_synonyms=True)
    found = entries.of_all_brokers(keys)
    assert [next(name for name in SETTINGS if name.encode() in entry) for entry in found] == described
    assert b"very secret" not in b"".join(found)
    assert (b"77" in b"".join(found)) == ("log.retention.ms" in described)
