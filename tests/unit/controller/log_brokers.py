"""Brokers that tell where their logs end, for the tests of who asks them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from aiocontroller.config import Config
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.cluster.log_answers import answer_fetch, answer_list_offsets
from aiocontroller.lab.cluster.logs import Log
from aiocontroller.lab.scripted_peer import Peer, PeerConnection
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.frames import RequestHeader

MODERN = {ApiKey.LIST_OFFSETS: VersionRange(0, 9), ApiKey.FETCH: VersionRange(0, 17)}
BEFORE_2_7 = {ApiKey.LIST_OFFSETS: VersionRange(0, 5), ApiKey.FETCH: VersionRange(0, 11)}


def log_of(*epochs: tuple[int, int]) -> Log:
    """A log with ``(epoch, number of records)``; none for a leader that wrote nothing."""
    log = Log()
    for epoch, count in epochs:
        log.begin(epoch, 1)
        if count:
            log.append(epoch, 1, count)
    return log


class LogBroker:
    """Its peer answers as a broker with these logs does."""

    def __init__(self, world: World, number: int, logs: dict[tuple[str, int], Log], offers: Any = None) -> None:
        self.peer = Peer(world, MODERN if offers is None else offers)
        self.logs = logs
        self.number = number
        self.before_answering: Callable[[], object] = lambda: None
        self.missing = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER

    async def start(self) -> Broker:
        port = await self.peer.listen()
        self.peer.reactions = cast(Any, Always(self.answer))
        return Broker(self.number, self.number + 100, (Endpoint("PLAINTEXT", "127.0.0.1", port),))

    def answer(self, connection: PeerConnection, header: RequestHeader) -> None:
        self.before_answering()
        body = self.peer.arrived[-1].body
        of_api = answer_list_offsets if header.api_key == ApiKey.LIST_OFFSETS else answer_fetch
        connection.answer(header, of_api(header.api_version, body, self.find))

    def find(self, topic: str, partition: int) -> Log | KafkaErrorCode:
        return self.logs.get((topic, partition), self.missing)


class Always:
    """A deque of reactions that never ends."""

    def __init__(self, reaction: Any) -> None:
        self.reaction = reaction

    def popleft(self) -> Any:
        return self.reaction


def asking_shell(world: World | None = None) -> ControllerShell:
    """What asking brokers needs of a controller."""
    shell: Any = SimpleNamespace(
        world=world or simulated_world(SimulatedNetwork()),
        security=Security(Config()),
        endpoint_of=lambda broker: next(iter(broker.endpoints), None),
    )
    return cast(ControllerShell, shell)
