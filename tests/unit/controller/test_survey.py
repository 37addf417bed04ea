"""The survey asks each registration once, until it is answered, and says why a broker has not answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.survey import ANSWER_WITHIN_S, MAX_ASK_AGAIN_S, BrokerSurvey
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


class Surveyed:
    """A survey, brokers that answer it, and how often it has reported a change."""

    def __init__(self, tasks: anyio.abc.TaskGroup, authorizer: str | None) -> None:
        self.world = simulated_world(SimulatedNetwork())
        self.changes = 0
        self.brokers: dict[int, RecordingBroker] = {}
        config: Any = SimpleNamespace(authorizer_class_name=authorizer)
        shell: Any = SimpleNamespace(
            world=self.world,
            security=Security(Config()),
            config=config,
            endpoint_of=lambda broker: broker.endpoints[0],
            own_endpoints=lambda: (Endpoint("PLAINTEXT", "controller", 9999),),
        )
        self.survey = BrokerSurvey(shell, self._changed)
        self.survey.start(tasks)

    def _changed(self) -> None:
        self.changes += 1

    async def broker(self, number: int, **settings: str | None) -> RecordingBroker:
        broker = self.brokers[number] = RecordingBroker(self.world, "nowhere:1", number, settings=settings)
        await broker.listen()
        return broker

    def registered(self, number: int, epoch: int = 7) -> Broker:
        return Broker(number, epoch, (Endpoint("PLAINTEXT", "127.0.0.1", self.brokers[number].port),))

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)


@asynccontextmanager
async def surveyed(authorizer: str | None = None) -> AsyncIterator[Surveyed]:
    async with anyio.create_task_group() as tasks:
        yield Surveyed(tasks, authorizer)
        tasks.cancel_scope.cancel()


@virtual_time
async def test_a_registration_is_asked_once() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        for _ in range(3):
            it.survey.see([it.registered(1)])
            await it.sleep(10)
        assert (broker.connections, it.changes) == (1, 1)
        answer = it.survey.known.answers[1]
        assert (answer.epoch, answer.settings) == (7, {"authorizer.class.name": ""})
        assert answer.leader_and_isr is not None
        assert it.survey.unanswered == []


@virtual_time
async def test_the_next_incarnation_is_asked_anew() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        it.survey.see([it.registered(1)])
        await it.sleep(1)
        broker.settings["authorizer.class.name"] = AUTHORIZER
        it.survey.see([it.registered(1, epoch=8)])
        assert it.survey.unanswered == [1], "the earlier answer is another process's"
        await it.sleep(1)
        answer = it.survey.known.answers[1]
        assert (answer.epoch, answer.settings) == (8, {"authorizer.class.name": AUTHORIZER})


@virtual_time
async def test_a_broker_that_does_not_listen_yet_is_asked_until_it_does() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        port = broker.port
        registered = it.registered(1)
        broker.deafen()
        it.survey.see([registered])
        await it.sleep(1)
        assert it.survey.known.why_unanswered[1].startswith("it does not answer")
        assert it.changes == 1
        await it.sleep(20)
        assert it.changes == 1, "the reason is the same"
        await broker.listen(port)
        await it.sleep(MAX_ASK_AGAIN_S + 0.1)
        assert it.survey.unanswered == []
        assert it.survey.known.why_unanswered == {}
        assert it.changes == 2


@virtual_time
async def test_a_broker_that_goes_is_asked_no_longer() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        registered = it.registered(1)
        broker.deafen()
        it.survey.see([registered])
        await it.sleep(1)
        it.survey.see([])
        assert it.survey.known.why_unanswered == {}
        await it.sleep(20)
        assert (it.survey.known.why_unanswered, it.changes) == ({}, 1)


@virtual_time
async def test_a_silent_broker_is_one_that_does_not_answer() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        broker.unanswered.add(ApiKey.DESCRIBE_CONFIGS)
        it.survey.see([it.registered(1)])
        began_s = it.world.clock.monotonic()
        await it.survey.settled(60)
        assert it.world.clock.monotonic() - began_s == pytest.approx(ANSWER_WITHIN_S, abs=0.2)
        assert it.survey.known.why_unanswered[1].startswith("it does not answer: nothing received within")


@virtual_time
async def test_waiting_has_an_end() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        broker.unanswered.add(ApiKey.API_VERSIONS)
        it.survey.see([it.registered(1)])
        began_s = it.world.clock.monotonic()
        await it.survey.settled(1.0)
        assert it.world.clock.monotonic() - began_s == pytest.approx(1.0, abs=0.1)
        assert it.survey.unanswered == [1]


REFUSED = KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "code, why",
    [
        (int(REFUSED), "it refuses DescribeConfigs (CLUSTER_AUTHORIZATION_FAILED), so it has an authorizer"),
        (41, "it answers DescribeConfigs with error 41"),
    ],
)
@virtual_time
async def test_a_broker_that_refuses_to_tell_its_settings_says_why(code: int, why: str) -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        broker.settings_error = code
        it.survey.see([it.registered(1)])
        await it.sleep(1)
        assert it.survey.known.why_unanswered == {1: why}


@virtual_time
async def test_with_an_authorizer_of_our_own_a_refusal_is_an_answer() -> None:
    """Brokers need no right to describe each other, and we have their principal."""
    async with surveyed(AUTHORIZER) as it:
        broker = await it.broker(1)
        broker.settings_error = int(REFUSED)
        it.survey.see([it.registered(1)])
        await it.sleep(1)
        answer = it.survey.known.answers[1]
        assert (answer.settings, answer.reported) == (None, None)


@virtual_time
async def test_a_broker_without_describe_configs_is_too_old() -> None:
    async with surveyed() as it:
        broker = await it.broker(1)
        del broker.served[ApiKey.DESCRIBE_CONFIGS]
        it.survey.see([it.registered(1)])
        await it.sleep(1)
        assert it.survey.known.why_unanswered == {1: "it does not offer DescribeConfigs"}
