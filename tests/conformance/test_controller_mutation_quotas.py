"""Kafka's ControllerMutationQuotaTest: how many partitions a client may have created and deleted in a while.

Each test is named after Kafka's and checks what that checks.  There the user decides; here it is the only user that a
listener without logins knows, and a client that is not throttled asks before the quota is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.core.mutation_quotas import UNBOUNDED, StrictQuota
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of, errors_of, gone_everywhere, topic_req
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.harness import idle, until

RATE = 2.0
SAMPLES = 10
TOPICS = ("topic-1", "topic-2")
USER = "User:ANONYMOUS"
BOTH = dict.fromkeys(TOPICS, E.NONE)


@asynccontextmanager
async def quotas(on: Setting) -> AsyncIterator[tuple[SimulatedCluster, Admin]]:
    settings = {"controller_quota_window_num": SAMPLES, "controller_quota_window_size_seconds": 1}
    async with on(1, **settings) as stage, admin_of(stage.service) as admin:
        yield stage, admin


async def define(
    stage: SimulatedCluster, admin: Admin, rate: float | None, user: str | None = "ANONYMOUS", **more: Any
) -> None:
    """Kafka's ``defineUserQuota``, and the controller has heard of it."""
    entity = [{"entity_type": "user", "entity_name": user}]
    entity += [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in more.items()]
    op = {"key": "controller_mutation_rate", "value": rate or 0.0, "remove": rate is None}
    entry = {"entity": entity, "ops": [op]}
    answer = await admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)
    assert [each.error_code for each in answer.entries] == [E.NONE]
    names = set(await stage.zk.get_all_config_changes(watch=False))
    await until(lambda: names <= stage.service.shell.config_changes_seen, "the change is heard of")
    await idle(stage.service)


async def rate_of(stage: SimulatedCluster, user: str = USER, client: str | None = "me") -> float | None:
    """None: no quota."""
    quota = await stage.service.shell.mutation_quotas.quota_for(user, client, strict=True)
    if quota is UNBOUNDED:
        return None
    assert isinstance(quota, StrictQuota)
    return quota._bucket.limit


def thirty(*names: str) -> list[dict[str, Any]]:
    return [topic_req(name, 30) for name in names or TOPICS]


def refused_one(answer: Any) -> str:
    found = errors_of(answer)
    assert sorted(found.values()) == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < answer.throttle_time.total_seconds() <= 5
    return next(name for name, code in found.items() if code)


async def after_the_wait(request: Any) -> None:
    """The connection is muted, so the next answer comes when the quota allows it; a bit of rounding is allowed."""

    async def granted() -> bool:
        answer = await request()
        return set(errors_of(answer).values()) == {E.NONE} and not answer.throttle_time

    await until(granted, "the throttled request succeeds")


async def test_set_unset_quota(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        assert await rate_of(stage, "User:User") is None
        await define(stage, admin, 1.5, "User")
        assert await rate_of(stage, "User:User") == 1.5
        await define(stage, admin, None, "User")
        assert await rate_of(stage, "User:User") is None


async def test_quota_metric(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE)

        def tokens() -> float | None:
            tags = {"user": "ANONYMOUS", "client-id": ""}
            gauge = stage.service.shell.metrics.get("kafka.server", "ControllerMutation", "tokens", tags=tags)
            return None if gauge is None else gauge.value  # type: ignore[union-attr]

        assert tokens() is None
        assert errors_of(await admin.create_topics(topic_req("topic"))) == {"topic": E.NONE}
        assert tokens() is not None
        await until(lambda: tokens() == RATE * SAMPLES, "the bucket is full again")
        await define(stage, admin, RATE * 2)
        assert await rate_of(stage) == RATE * 2
        await until(lambda: (tokens() or 0) > RATE * SAMPLES, "the bucket is larger")


async def test_strict_create_topics_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE)
        answer = await admin.create_topics(*thirty(), version=6)
        rejected = refused_one(answer)
        (refused,) = [topic for topic in answer.topics if topic.name == rejected]
        assert refused.error_message is None
        assert await stage.topic(rejected) is None
        await after_the_wait(lambda: admin.create_topics(*thirty(rejected), version=6))


async def test_permissive_create_topics_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE)
        answer = await admin.create_topics(*thirty(), version=5)
        assert errors_of(answer) == BOTH
        assert 0 < answer.throttle_time.total_seconds() <= 20
        muted = asyncio.create_task(admin.create_topics(topic_req("other"), version=5))
        async with admin_of(stage.service) as another:  # another connection is listened to
            assert errors_of(await another.delete_topics("unknown", version=4)) == {
                "unknown": E.UNKNOWN_TOPIC_OR_PARTITION
            }
        assert not muted.done()
        muted.cancel()


async def test_unbounded_create_topics_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE, "another")
        answer = await admin.create_topics(*thirty(), version=6)
        assert (errors_of(answer), answer.throttle_time.total_seconds()) == (BOTH, 0)


async def test_strict_delete_topics_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await admin.create_topics(*thirty())
        await define(stage, admin, RATE)
        answer = await admin.delete_topics(*TOPICS, version=5)
        rejected = refused_one(answer)
        assert await stage.topic(rejected) is not None
        await after_the_wait(lambda: admin.delete_topics(rejected, version=5))
        await gone_everywhere(stage, rejected)


async def test_permissive_delete_topics_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await admin.create_topics(*thirty())
        await define(stage, admin, RATE)
        answer = await admin.delete_topics(*TOPICS, version=4)
        assert errors_of(answer) == BOTH
        assert 0 < answer.throttle_time.total_seconds() <= 20


async def test_unbounded_delete_topics_request(on: Setting) -> None:
    async with quotas(on) as (_, admin):
        await admin.create_topics(*thirty())
        answer = await admin.delete_topics(*TOPICS, version=5)
        assert (errors_of(answer), answer.throttle_time.total_seconds()) == (BOTH, 0)


async def test_strict_create_partitions_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await admin.create_topics(*(topic_req(name) for name in TOPICS))
        await define(stage, admin, RATE)
        answer = await admin.create_partitions(dict.fromkeys(TOPICS, 31), version=3)
        rejected = refused_one(answer)
        found = await stage.topic(rejected)
        assert found is not None
        assert len(found.partitions) == 1
        await after_the_wait(lambda: admin.create_partitions({rejected: 30}, version=3))


async def test_permissive_create_partitions_request(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await admin.create_topics(*(topic_req(name) for name in TOPICS))
        await define(stage, admin, RATE)
        answer = await admin.create_partitions(dict.fromkeys(TOPICS, 31), version=2)
        assert errors_of(answer) == BOTH
        assert 0 < answer.throttle_time.total_seconds() <= 20


async def test_unbounded_create_partitions_request(on: Setting) -> None:
    async with quotas(on) as (_, admin):
        await admin.create_topics(*(topic_req(name) for name in TOPICS))
        answer = await admin.create_partitions(dict.fromkeys(TOPICS, 31), version=3)
        assert (errors_of(answer), answer.throttle_time.total_seconds()) == (BOTH, 0)


# -- what Kafka's test leaves out --------------------------------------------------------------------------------------


async def test_most_specific_quota_counts(on: Setting) -> None:
    """Kafka's order of precedence, from the least specific to the most."""
    async with quotas(on) as (stage, admin):
        assert await rate_of(stage) is None
        user_of_all: dict[str, Any] = {"user": None}
        for rate, entity in enumerate(
            (
                user_of_all,
                user_of_all | {"client_id": None},
                user_of_all | {"client_id": "me"},
                {},
                {"client_id": None},
                {"client_id": "me"},
            ),
            start=3,
        ):
            await define(stage, admin, rate, **entity)
            assert (entity, await rate_of(stage)) == (entity, rate)
        assert await rate_of(stage, "User:other") == 5
        assert await rate_of(stage, "User:other", "other") == 4
        assert await rate_of(stage, USER, "other") == 7
        await define(stage, admin, None, client_id="me")
        assert await rate_of(stage) == 7


async def test_quotas_of_clients_count_where_users_have_none(on: Setting) -> None:
    async with quotas(on) as (stage, admin):

        async def of_client(name: str | None, rate: float) -> None:
            op = {"key": "controller_mutation_rate", "value": rate, "remove": False}
            entry = {"entity": [{"entity_type": "client-id", "entity_name": name}], "ops": [op]}
            await admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False)

        await of_client(None, 1)
        await of_client("a b/c", 2)  # before the first request: they are read together
        assert await rate_of(stage) == 1
        assert await rate_of(stage, client="a b/c") == 2
        assert await rate_of(stage, client=None) == 1
        await define(stage, admin, 9)
        assert await rate_of(stage, client="a b/c") == 9


async def test_what_is_only_validated_or_refused_costs_nothing(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE)
        for _ in range(3):
            answer = await admin.create_topics(topic_req("t", 1000), validate_only=True)
            assert (errors_of(answer), answer.throttle_time.total_seconds()) == ({"t": E.NONE}, 0)
            answer = await admin.create_topics(topic_req("t", 1000, 7))
            assert errors_of(answer) == {"t": E.INVALID_REPLICATION_FACTOR}
        assert errors_of(await admin.create_topics(topic_req("t", 20))) == {"t": E.NONE}


async def test_another_term_reads_the_quotas_anew(on: Setting) -> None:
    async with quotas(on) as (stage, admin):
        await define(stage, admin, RATE)
        assert await rate_of(stage) == RATE
        await stage.client.delete("/config/users/ANONYMOUS")  # no notification says so
        assert await rate_of(stage) == RATE
        await stage.client.delete("/controller")
        await until(lambda: stage.service.shell.context.epoch == 2)
        assert await rate_of(stage) is None
