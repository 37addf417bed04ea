"""The modelled followers against those of a real ensemble: what clients of different servers see, and moved sessions.

A follower may lag, so each client synchronizes before it looks; between two looks everything must be alike.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import ZooKeeperEnsemble
from aiocontroller.lab.zookeeper.jute import buffer, string
from aiocontroller.lab.zookeeper.zookeeper_follower import Follower
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from tests.integration.lab.test_zookeeper_contract import (
    ACL,
    CLIENTS,
    CREATE,
    EXISTS,
    KINDS,
    RECURSIVE,
    SET,
    SYNC,
    Raw,
    Side,
    request,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.timeout(300)]

STEPS = 300
Ports = list[int]
"""The leader's, and those of the followers."""


class Spread(Side):
    """Each client has a server of its own."""

    def __init__(self, ports: Ports) -> None:
        super().__init__(ports[0])
        self._ports = ports

    async def connect(self, index: int) -> None:
        self.port = self._ports[index % len(self._ports)]
        await super().connect(index)


@pytest.fixture
def real_ports(tmp_path: Path) -> Iterator[Ports]:
    """An ensemble for each test, so that each begins with an empty tree."""
    ensemble = ZooKeeperEnsemble(tmp_path)
    ensemble.start()
    leader = ensemble.leader()
    assert leader is not None
    yield [leader.port, *(server.port for server in ensemble.servers if server is not leader)]
    ensemble.stop()


@pytest.fixture
async def modelled_ports(world: World) -> AsyncIterator[Ports]:
    model = ZooKeeperModel()
    servers = [ZooKeeperServer(world, model)]
    servers += [ZooKeeperServer(world, model, follower=Follower(model, world.clock, lambda: 0.01)) for _ in range(2)]
    for server in servers:
        await server.start()
    yield [server.port for server in servers]
    for server in servers:
        server.stop()
    await Raw.close_all()


async def begin(ports: Ports, top: str) -> Spread:
    side = Spread(ports)
    for index in range(CLIENTS):
        await side.connect(index)
    await exchange(side, 0, 1, CREATE, string(top) + buffer(None) + ACL + struct.pack(">i", 0))
    side.base = side.last_zxid
    return side


async def exchange(side: Side, client: int, xid: int, opcode: int, body: bytes) -> list[tuple[Any, ...]]:
    """Send, and gather what every client sees of it after it has caught up."""
    side.clients[client].send(struct.pack(">ii", xid, opcode) + body)
    seen = [side.comparable(frame, opcode) for frame in await side.clients[client].until(xid)]
    reached = seen[-1][1]
    for raw in side.clients:
        looks: list[tuple[Any, ...]] = []
        while not looks or looks[-1][1] < reached:  # the leader answers a sync of its own clients before it has applied
            looks.clear()
            for at, (kind, look) in enumerate(((SYNC, string("/")), (EXISTS, string("/t") + b"\0")), 1):
                raw.send(struct.pack(">ii", xid + at, kind) + look)
                for frame in await raw.until(xid + at):
                    answer = side.comparable(frame, kind)
                    (seen if answer[0] == "event" else looks).append(answer)
        seen.append(looks[-1])
    return seen


@pytest.mark.parametrize("seed", range(int(os.environ.get("CONTRACT_SEEDS", "1"))))
async def test_same_requests_same_answers_on_three_servers(real_ports: Ports, modelled_ports: Ports, seed: int) -> None:
    chance = random.Random(f"followers {seed}")
    sides = [await begin(real_ports, "/t"), await begin(modelled_ports, "/t")]
    events = 0
    for step in range(1, STEPS):
        client, xid = chance.randrange(CLIENTS), 4 * step
        back, state = chance.choice([0, 1, 2, 5]), chance.getstate()
        answers = []
        for side in sides:
            chance.setstate(state)
            opcode, body = request(chance, max(side.last_zxid - back, 1), KINDS + RECURSIVE)
            answers.append(await exchange(side, client, xid, opcode, body))
        assert answers[0] == answers[1], f"step {step}: client {client}, opcode {opcode}, {body!r}"
        events += sum(answer[0] == "event" for answer in answers[0])
    assert events > 30


async def test_the_old_connection_of_a_session_that_has_moved_reads_and_does_not_write(
    real_ports: Ports, modelled_ports: Ports
) -> None:
    """The other server does not know that the session has moved; the leader refuses the write, and it hangs up."""

    async def play(ports: Ports) -> list[Any]:
        side = await begin(ports, "/moved")
        old = side.clients[1]
        new = await Raw.open(ports[2], side.last_zxid, old.session_id, old.password)
        story: list[Any] = [new.session_id == old.session_id]
        old.send(struct.pack(">ii", 1, EXISTS) + string("/moved") + b"\0")
        story += [side.comparable(frame, EXISTS) for frame in await old.until(1)]
        old.send(struct.pack(">ii", 2, SET) + string("/moved") + buffer(b"x") + struct.pack(">i", -1))
        story.append(await old.until(2))
        for xid, (opcode, body) in enumerate(
            ((SYNC, string("/")), (EXISTS, string("/moved") + b"\0"), (SET, string("/moved") + buffer(b"y"))), 1
        ):
            more = struct.pack(">i", -1) if opcode == SET else b""
            new.send(struct.pack(">ii", xid, opcode) + body + more)
            story += [side.comparable(frame, opcode) for frame in await new.until(xid)]
        return story

    real, modelled = await play(real_ports), await play(modelled_ports)
    assert modelled == real
    assert real[2] == []
