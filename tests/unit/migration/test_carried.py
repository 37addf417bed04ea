"""What is beside topics reads the same from ZooKeeper's znodes and from the answers of a node in KRaft mode."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker, _encode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.migration.asking import Asker
from aiocontroller.migration.carried import What, read_carried
from aiocontroller.migration.report import Bootstrap, examine, look
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.scram import ScramCredential
from aiocontroller.zookeeper.cluster_znodes import encode_config
from tests.unit.controller.virtual_cluster import Stage, stage
from tests.unit.migration.test_report import CLAIMED

CREDENTIAL = str(ScramCredential(b"salt", b"stored", b"server", 8192))
ACLS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"DescribeConfigs","host":"*"},'
    b'{"principal":"User:*","permissionType":"Deny","operation":"All","host":"10.0.0.1"}]}'
)
ANSWERS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.DESCRIBE_ACLS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "orders-",
                "pattern_type": 4,
                "acls": [
                    {"principal": "User:alice", "host": "*", "operation": 10, "permission_type": 3},
                    {"principal": "User:*", "host": "10.0.0.1", "operation": 2, "permission_type": 2},
                ],
            }
        ]
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
        "results": [{"user": "al ice", "credential_infos": [{"mechanism": 2, "iterations": 8192}]}]
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {
        "entries": [
            {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity], "values": [value]}
            for entity, value in (
                ((("user", "al ice"),), {"key": "request_percentage", "value": 12.5}),
                ((("client-id", "c"), ("user", None)), {"key": "producer_byte_rate", "value": 1048576.0}),
                ((("ip", None),), {"key": "connection_creation_rate", "value": 7.0}),
            )
        ]
    },
}


async def put(it: Stage, path: str, data: bytes = b"") -> None:
    """With the znodes above it."""
    await it.client.ensure_path(path.rpartition("/")[0])
    await it.create(path, data)


async def filled(it: Stage) -> None:
    await put(it, "/kafka-acl-extended/prefixed/Topic/orders-", ACLS)
    config = encode_config({"SCRAM-SHA-512": CREDENTIAL, "request_percentage": "12.5"})
    await put(it, "/config/users/al%20ice", config)
    of_both = b'{"version":1,"config":{"producer_byte_rate":"1048576"}}'
    await put(it, "/config/users/<default>/clients/c", of_both)
    await put(it, "/config/ips/<default>", b'{"version":1,"config":{"connection_creation_rate":"7"}}')
    await put(it, "/delegation_token/tokens/abc")


async def claimed(it: Stage) -> RecordingBroker:
    """Broker 1 is in KRaft mode, which this double shows by what it offers."""
    await it.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":52}')
    await it.create("/controller_epoch", b"7")
    await it.create("/migration", CLAIMED)
    broker = await it.add_broker(1)
    del broker.served[ApiKey.LEADER_AND_ISR]
    broker.served |= {api: SUPPORTED[api] for api in ANSWERS}
    return broker


def answering(broker: RecordingBroker, answers: dict[ApiKey, dict[str, Any]]) -> None:
    def respond(api: ApiKey, version: int, request: Any) -> bytes:
        if api in answers:
            return _encode(api, version, **answers[api])
        return RecordingBroker.respond(broker, api, version, request)

    broker.respond = respond  # type: ignore[method-assign]


@virtual_time
async def test_both_sides_say_the_same_of_the_same() -> None:
    async with stage() as it:
        await filled(it)
        answering(await claimed(it), ANSWERS)
        seen = await look(it.zk, Asker(it.world), Bootstrap())
        assert seen.stored == {
            What.ACLS: {
                "ALLOW User:alice DESCRIBE_CONFIGS on Topic:PREFIXED:orders-",
                "DENY User:* ALL on Topic:PREFIXED:orders- from 10.0.0.1",
            },
            What.SCRAM: {"al ice, SCRAM-SHA-512, 8192 iterations"},
            What.QUOTAS: {
                "user al ice: request_percentage 12.5",
                "client-id c, user <default>: producer_byte_rate 1048576",
                "ip <default>: connection_creation_rate 7",
            },
            What.TOKENS: {"abc"},
        }
        assert {**seen.reported, What.TOKENS: {"abc"}} == seen.stored
        found = {
            finding.kind for finding in (await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap())).findings
        }
        assert "carried-over" in found, "delegation tokens"
        assert "not-carried-over" not in found


@virtual_time
async def test_what_kraft_lacks_is_named() -> None:
    async with stage() as it:
        await filled(it)
        answering(await claimed(it), ANSWERS | {ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entries": []}})
        report = await examine(it.zk, Asker(it.world), it.world.clock, Bootstrap())
        [missing] = [finding for finding in report.findings if finding.kind == "not-carried-over"]
        assert "quota: user al ice: request_percentage 12.5" in missing.subjects
        assert (len(missing.subjects), missing.why) == (3, "it is only in ZooKeeper")


@pytest.mark.parametrize(
    "answer, why",
    [
        ({"error_code": KafkaErrorCode.SECURITY_DISABLED}, "it has no authorizer"),
        ({"error_code": KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED}, "it refuses (CLUSTER_AUTHORIZATION_FAILED)"),
        ({"error_code": KafkaErrorCode.UNKNOWN_SERVER_ERROR, "error_message": "no"}, "it answers no"),
        (
            {"resources": [{"resource_type": 99, "resource_name": "", "pattern_type": 3, "acls": [{}]}]},
            "it answers 99 is not a valid ResourceType, which this release does not know",
        ),
    ],
)
@virtual_time
async def test_what_is_not_told_is_left_to_the_operator(answer: dict[str, Any], why: str) -> None:
    async with stage() as it:
        await filled(it)
        broker = await claimed(it)
        del broker.served[ApiKey.DESCRIBE_CLIENT_QUOTAS]
        answering(broker, ANSWERS | {ApiKey.DESCRIBE_ACLS: answer})
        seen = await look(it.zk, Asker(it.world), Bootstrap())
        assert seen.reported[What.ACLS] == why
        assert seen.reported[What.QUOTAS] == "it does not offer DESCRIBE_CLIENT_QUOTAS"


@virtual_time
async def test_damaged_znodes_count_as_empty() -> None:
    async with stage() as it:
        await put(it, "/kafka-acl/Topic/orders", b"{")
        await it.create(
            "/config/users/bob", b'{"version":1,"config":{"SCRAM-SHA-256":"x","request_percentage":"much"}}'
        )
        stored = await read_carried(it.zk)
        assert stored == dict.fromkeys(What, frozenset()) | {What.SCRAM: {"bob, SCRAM-SHA-256, -1 iterations"}}


@virtual_time
async def test_a_controller_is_asked_for_acls_alone() -> None:
    """A controller of 3.9.1 offers DescribeUserScramCredentials and never answers it."""
    async with stage() as it:
        broker = await claimed(it)
        answering(broker, {ApiKey.DESCRIBE_ACLS: ANSWERS[ApiKey.DESCRIBE_ACLS]})
        node = (await look(it.zk, Asker(it.world), Bootstrap())).answers.brokers[1]
        reported = await Asker(it.world).carried(node, is_broker=False)
        assert len(reported[What.ACLS]) == 2
        silent = "no broker in KRaft mode was asked, and controllers do not report them"
        assert (reported[What.SCRAM], reported[What.QUOTAS]) == (silent, silent)
