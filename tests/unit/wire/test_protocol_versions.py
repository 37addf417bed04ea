"""The table of Kafka 3.9's AbstractControllerBrokerRequestBatch."""

from __future__ import annotations

import pytest

from aiocontroller.property_values import parse_protocol_version
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.protocol_versions import control_request_versions


@pytest.mark.parametrize(
    "protocol,leader_and_isr,update_metadata,stop_replica",
    [
        ("1.0", 2, 5, 1),
        ("2.2", 2, 5, 1),
        ("2.3-IV1", 2, 5, 1),
        ("2.4-IV0", 3, 5, 1),
        ("2.4-IV1", 4, 6, 2),
        ("2.4", 4, 6, 2),
        ("2.5", 4, 6, 2),
        ("2.6-IV0", 4, 6, 3),
        ("2.7", 4, 6, 3),
        ("2.8-IV0", 4, 6, 3),
        ("2.8-IV1", 5, 7, 3),
        ("3.0", 5, 7, 3),
        ("3.2-IV0", 6, 7, 3),
        ("3.3", 6, 7, 3),
        ("3.4-IV0", 7, 8, 4),
        ("3.9", 7, 8, 4),
    ],
)
def test_versions_of_a_protocol(protocol: str, leader_and_isr: int, update_metadata: int, stop_replica: int) -> None:
    assert control_request_versions(parse_protocol_version(protocol)) == {
        ApiKey.LEADER_AND_ISR: leader_and_isr,
        ApiKey.UPDATE_METADATA: update_metadata,
        ApiKey.STOP_REPLICA: stop_replica,
    }
