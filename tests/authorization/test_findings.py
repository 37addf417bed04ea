"""What clients gained through the controller once, tried again with real brokers (docs/known-bugs.md)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka.admin import AdminClient, NewTopic

from aiocontroller.lab.cluster.processes import Child
from aiocontroller.wire import cold, sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.scram import ScramClient
from tests.authorization.client import Side, Visit
from tests.authorization.principals import (
    ANONYMOUS,
    CERTIFICATE,
    NOTHING,
    PLAIN,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM,
    SSL,
    Way,
    password,
)
from tests.authorization.secured_cluster import LEADER, SecuredCluster, until

pytestmark = [
    pytest.mark.authorization,
    pytest.mark.kafka,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="package"),
]
CLUSTER_AUTHORIZATION_FAILED = 31
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
STRANGER = Way(ANONYMOUS, SSL, NOTHING)


async def asked(side: Side, way: Way, api: ApiKey, version: int, **fields: Any) -> Any:
    body = cold.encode_request(api, version, cold.request(api, version, **fields))
    outcome = await side.ask(way, api, version, body)
    assert outcome.what == "answered", f"{api.name} by {way}: {outcome.what} {outcome.detail}"
    return cold.decode_response(api, version, outcome.body)


def acl_of(principal: str) -> dict[str, Any]:
    """ALL on the cluster."""
    return {
        "resource_type": 4,
        "resource_name": "kafka-cluster",
        "resource_pattern_type": 3,
        "principal": principal,
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }


# -- finding 7: certificates -------------------------------------------------------------------------------------------


async def test_client_without_a_certificate_gets_no_acls(taken: SecuredCluster) -> None:
    for side in (taken.sides[LEADER], taken.ours):
        answer = await asked(side, STRANGER, ApiKey.CREATE_ACLS, 3, creations=[acl_of("User:ANONYMOUS")])
        assert [int(result.error_code) for result in answer.results] == [CLUSTER_AUTHORIZATION_FAILED], side.name
    seen = await asked(
        taken.ours,
        STRANGER,
        ApiKey.CREATE_TOPICS,
        7,
        topics=[
            {"name": "a-stranger's", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        ],
        timeout=5000,
        validate_only=False,
    )
    assert [int(topic.error_code) for topic in seen.topics] != [0]


async def test_client_without_a_certificate_shuts_no_broker_down(taken: SecuredCluster) -> None:
    epoch = taken.broker_epochs[LEADER]
    answer = await asked(taken.ours, STRANGER, ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=LEADER, broker_epoch=epoch)
    assert int(answer.error_code) == CLUSTER_AUTHORIZATION_FAILED


async def test_super_user_is_known_by_its_certificate_where_one_is_only_requested(taken: SecuredCluster) -> None:
    known = Way("super", SSL, CERTIFICATE)
    answer = await asked(taken.ours, known, ApiKey.CREATE_ACLS, 3, creations=[acl_of("User:unknown-user")])
    assert [int(result.error_code) for result in answer.results] == [0]


# -- finding 10: whose token, and whose client -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", [Way("super", SASL_SSL, SCRAM), Way("super", SSL, CERTIFICATE), Way("allow", SASL_PLAINTEXT, PLAIN)], ids=str
)
async def test_delegation_token_belongs_to_its_requester(taken: SecuredCluster, way: Way) -> None:
    answer = await asked(taken.ours, way, ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[], max_lifetime=-1)
    assert int(answer.error_code) == 0
    assert (answer.principal_type, answer.principal_name) == ("User", way.who)
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", way.who)


class WithToken(Visit):
    """A visitor that logs in with a delegation token."""

    def __init__(self, side: Side, token_id: str, hmac: bytes) -> None:
        super().__init__(side, Way("allow", SASL_PLAINTEXT, SCRAM))
        self._token_id, self._hmac = token_id, hmac

    async def _log_in(self) -> None:
        await self._exchange(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request(SCRAM))
        exchange = ScramClient(SCRAM, self._token_id, base64.b64encode(self._hmac).decode(), "nonce-of-a-test")
        exchange._bare += ",tokenauth=true"
        exchange.verify(await self._token(exchange.respond(await self._token(exchange.first()))))


async def test_client_with_a_delegation_token_is_its_owner_and_gets_no_other(taken: SecuredCluster) -> None:
    """Whichever node made the token: its login at the controller was refused."""
    way = Way("allow", SASL_PLAINTEXT, SCRAM)
    for maker in (taken.oracle, taken.ours):
        made = await asked(maker, way, ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[], max_lifetime=-1)
        for side in (taken.oracle, taken.ours):

            async def body(api: ApiKey, version: int, side: Side = side, made: Any = made, **fields: Any) -> Any:
                asks = cold.encode_request(api, version, cold.request(api, version, **fields))
                visit = WithToken(side, made.token_id, bytes(made.hmac))
                outcome = await visit.ask(api, version, asks, 10)
                visit.leave()
                assert outcome.what == "answered", f"{side.name}: {outcome}"
                return cold.decode_response(api, version, outcome.body)

            async def knows_the_token(body: Any = body) -> bool:
                try:
                    await body(ApiKey.API_VERSIONS, 0)
                except AssertionError:
                    return False
                return True

            await until(knows_the_token, f"a login at {side.name} with the token of {maker.name}")
            seen = await body(ApiKey.METADATA, 12, topics=None)
            assert "orders" in {topic.name for topic in seen.topics}, side.name
            assert "secret" not in {topic.name for topic in seen.topics}, side.name
            another = await body(ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[], max_lifetime=-1)
            assert int(another.error_code) == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, side.name


async def test_user_with_a_prefix_creates_topics_through_the_controller(taken: SecuredCluster) -> None:
    """librdkafka asks the controller's node for metadata as any other's."""
    client = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{taken.ours.ports[SASL_PLAINTEXT]}",
            "security.protocol": SASL_PLAINTEXT,
            "sasl.mechanism": SCRAM,
            "sasl.username": "prefix",
            "sasl.password": password("prefix"),
        }
    )
    made = client.create_topics([NewTopic("team-by-librdkafka", 1, 1)], request_timeout=20)["team-by-librdkafka"]
    assert await asyncio.to_thread(made.result, 30) is None
    listed = await asyncio.to_thread(client.list_topics, timeout=20)
    assert "team-a" in listed.topics
    assert "secret" not in listed.topics


# -- finding 8: a process that was refused, and a vacancy --------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="package")
async def brokers(tmp_path: Path, stage: SecuredCluster) -> AsyncIterator[SecuredCluster]:
    """A stage of its own, whose brokers may be killed; ``stage`` is for the reasons to skip."""
    own = SecuredCluster(tmp_path)
    try:
        await own.start()
        yield own
    finally:
        await own.stop()


async def test_process_without_an_authorizer_wins_no_vacancy_of_brokers_that_have_one(brokers: SecuredCluster) -> None:
    ours = brokers.launch_ours(without=("authorizer.class.name", "super.users"))

    async def refused() -> bool:
        return _says(brokers, ours, "brokers have an authorizer (kafka.security.authorizer.AclAuthorizer)")

    await until(refused, "the takeover is refused", lambda: ours.log_tail(40))
    before = brokers.our_log.stat().st_size
    for broker in brokers.brokers.values():
        broker.kill()

    async def vacant() -> bool:
        """Registrations have ended, and so has the term: a word about that comes after it."""
        holder, registered = await asyncio.to_thread(brokers.holder_and_brokers)
        return holder is None and not registered

    await until(vacant, "there is no controller, and no broker is registered", lambda: ours.log_tail(40))

    async def refused_again() -> bool:
        logged = brokers.our_log.read_text()[before:]
        return "Not taking the role" in logged or "cannot be the controller" in logged

    await until(refused_again, "the vacancy is refused", lambda: ours.log_tail(40))
    holder, _ = await asyncio.to_thread(brokers.holder_and_brokers)
    assert holder is None, "the office stays empty"


def _says(stage: SecuredCluster, ours: Child, words: str) -> bool:
    assert ours.running, ours.log_tail(40)
    return words in stage.our_log.read_text()
