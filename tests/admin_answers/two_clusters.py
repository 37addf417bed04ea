"""Two clusters alike, but for the controller: in one a broker, in the other aiocontroller.

Each has two real brokers, 1 and 2, and one that only listens, 3: what moves there never catches up, so a reassignment
stays under way for as long as a test wants.  Broker 99 is nowhere.  Where Kafka's own controller is active that is
broker 2, which is asked; on the other side aiocontroller, in the office that it has taken from broker 2.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, free_port
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, RealKafkaBroker
from aiocontroller.net.real import real_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from aiocontroller.wire.envelope import ForwardedPrincipal, encode_envelope_request, encode_principal
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from tests.authorization.client import CLIENT_ID, Outcome, Side
from tests.authorization.principals import ANONYMOUS, NOTHING, PLAIN, PLAINTEXT, SASL_PLAINTEXT, Way, password
from tests.authorization.secured_cluster import Failed, escaped, registration_epochs, until, zookeeper
from tests.conftest import create_znode
from tests.differential.fleet import Fleet

OUR_ID = 1_000_001
FORWARDED = 77
"""The correlation id of what is in an envelope."""
FIRST, CONTROLLER, LISTENING, NOWHERE = 1, 2, 3, 99
STARTED_WITHIN_S = 120.0
LISTENERS = (PLAINTEXT, SASL_PLAINTEXT)
USERS = ("alice", "bob")
WITHOUT_RIGHTS = "carol"
"""A user without rights."""
THROTTLED = {
    (api, version): f"throttled-{api:d}-{version}"
    for api in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
    for version in range(SUPPORTED[api].max + 1)
}
"""A user for each version of what is throttled: what one has used up would be missing in the next."""
ADMIN = Way(ANONYMOUS, PLAINTEXT, NOTHING)
ALICE, BOB = (Way(user, SASL_PLAINTEXT, PLAIN) for user in USERS)
CAROL = Way(WITHOUT_RIGHTS, SASL_PLAINTEXT, PLAIN)


RELEASES = (DEFAULT_VERSION, "3.7.2", "3.3.2", "3.0.2", "2.8.2", "2.4.1", "2.2.2")
"""From Kafka's newest with ZooKeeper to the oldest that is supported."""
SINCE_2_7 = RELEASES[:5]
"""Controller mutation quotas (KIP-599) came with 2.7."""


def throttled(api: ApiKey, version: int) -> Way:
    return Way(THROTTLED[api, version], SASL_PLAINTEXT, PLAIN)


def properties(version: str, ports: Mapping[str, int]) -> dict[str, str]:
    """Of brokers and of the controller."""
    all_users = (*USERS, WITHOUT_RIGHTS, *THROTTLED.values())
    users = " ".join(f'user_{user}="{password(user)}"' for user in all_users)
    is_3 = version.startswith("3")
    authorizer = "security.auth.SimpleAclAuthorizer" if version < "2.4" else "security.authorizer.AclAuthorizer"
    return {
        "listeners": ",".join(f"{listener}://127.0.0.1:{ports[listener]}" for listener in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in LISTENERS),
        "inter.broker.listener.name": PLAINTEXT,
        "sasl.enabled.mechanisms": PLAIN,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "authorizer.class.name": f"kafka.{authorizer}",
        "super.users": ";".join(f"User:{user}" for user in ("ANONYMOUS", *USERS, *THROTTLED.values())),
        "controller.quota.window.num": "2",  # with seconds of a second: a rate of 1 allows 2 partitions at once
        f"delegation.token.{'secret' if is_3 else 'master'}.key": "a secret of the stage",
        "auto.leader.rebalance.enable": "false",  # elections are the scenarios'
        "auto.create.topics.enable": "false",
        "replica.lag.time.max.ms": "3600000",  # broker 3 never fetches, and is not to leave ISRs for it
        "zookeeper.session.timeout.ms": "30000",  # a busy machine must not cost a failover
        "reserved.broker.max.id": "1000",
    }


class NotOfferedError(Exception):
    """The release does not know a request that a scenario needs."""


class Cluster:
    """One of the two.  ``side`` is the node that is asked."""

    def __init__(
        self,
        name: str,
        zk: EmbeddedZooKeeper,
        folder: Path,
        version: str,
        members: Sequence[int],
        more: Mapping[str, str],
    ) -> None:
        self.name = name
        self._members = members
        self.version = version
        self.folder = folder / name
        self.zookeeper = f"{zk.address}/{name}"
        self._zk = zk
        self.ports = {broker: {listener: free_port() for listener in LISTENERS} for broker in (FIRST, CONTROLLER)}
        self.brokers = {
            broker: RealKafkaBroker(
                broker,
                self.zookeeper,
                self.folder / f"broker-{broker}",
                version=version,
                port=ports[PLAINTEXT],
                overrides={**properties(version, ports), **more},
            )
            for broker, ports in self.ports.items()
        }
        self.side = Side(f"broker {CONTROLLER}", CONTROLLER, self.ports[CONTROLLER], folder)
        self.offered: dict[int, VersionRange] = {}
        """By this side."""
        self.common: dict[int, VersionRange] = {}
        """By both sides."""
        self.broker_epochs: dict[int, int] = {}
        self.topic_ids: dict[bytes, str] = {}
        self.cluster_id = ""
        world = real_world()
        self._client = ZooKeeperClient(self.zookeeper, world=world, session_timeout_s=60)
        self._listening = Fleet(world, self._client, self.zookeeper, [LISTENING])
        self._listening.all[LISTENING].rack = None  # the real ones have none: placement needs all, or none

    async def start_brokers(self) -> None:
        create_znode(self._zk.port, f"/{self.name}")
        for broker in (CONTROLLER, FIRST):
            await self.brokers[broker].start_async(STARTED_WITHIN_S)

    async def start(self) -> None:
        await self.take_role()
        await self._client.start(30)
        if LISTENING in self._members:
            await self._listening.start(LISTENING)
        await until(self._all_are_known, f"all brokers in the metadata of {self.name}", within_s=STARTED_WITHIN_S)
        self.broker_epochs = await asyncio.to_thread(registration_epochs, self.zookeeper, self._members)
        answer = await self.ask(ApiKey.API_VERSIONS, 0)
        self.offered = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}

    async def take_role(self) -> None:
        """Broker 2 has it."""

    async def stop(self) -> None:
        await self.side.close()
        await self._listening.stop()
        await self._client.close()
        for broker in self.brokers.values():
            broker.kill()

    async def ask(self, api: ApiKey, version: int, way: Way = ADMIN, side: Side | None = None, **fields: Any) -> Any:
        """The answer as kio's entity; Failed when there is none."""
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        outcome = await (side or self.side).ask(way, api, version, body, timeout_s=60)
        if outcome.what != "answered":
            raise Failed(f"{self.name}: {api.name} version {version}: {outcome.what} {outcome.detail}")
        return cold.decode_response(api, version, outcome.body)

    async def forward(self, way: Way, api: int, version: int, body: bytes, timeout_s: float) -> Outcome:
        """As ``Side.ask``; by a broker, where that is possible."""
        return await self.side.ask(way, api, version, body, timeout_s)

    def visit(self) -> Side:
        """Connections of their own to the node that is asked; to be closed."""
        return Side(self.side.name, self.side.node_id, self.side.ports, self.folder)

    async def leadership(self, topic: str) -> tuple[int, list[int]]:
        """Leader epoch and ISR of the first partition, as ZooKeeper has them."""
        (state,) = (await self._client.get_many([paths.topic_partition_state(topic, 0)])).data
        assert state is not None
        found = msgspec.json.decode(state)
        return found["leader_epoch"], found["isr"]

    @property
    def listening_port(self) -> int:
        return self._listening.all[LISTENING].port

    def highest(self, api: ApiKey) -> int:
        """The highest version that both sides offer; NotOfferedError without one."""
        if api not in self.common:
            raise NotOfferedError(f"{self.name}: {api.name}")
        return self.common[api].max

    async def _all_are_known(self) -> bool:
        for broker in (FIRST, CONTROLLER):
            side = Side(f"broker {broker}", broker, self.ports[broker], self.folder)
            try:
                seen = await self.ask(ApiKey.METADATA, 5, side=side, topics=[])
            except Failed:
                return False
            finally:
                await side.close()
            if not set(self._members) <= {each.node_id for each in seen.brokers}:
                return False
            if seen.controller_id != self.side.node_id:
                return False
            self.cluster_id = seen.cluster_id
        return True


class OurCluster(Cluster):
    """With aiocontroller active."""

    _child: Child | None = None

    async def take_role(self) -> None:
        self.ports[OUR_ID] = {listener: free_port() for listener in LISTENERS}
        self.side = Side("aiocontroller", OUR_ID, self.ports[OUR_ID], self.folder.parent)
        folder = self.folder / "aiocontroller"
        folder.mkdir(parents=True)
        # all that broker 2 has, as an operator would hand it over
        settings = self.brokers[CONTROLLER].properties() | properties(self.version, self.ports[OUR_ID])
        settings |= {
            "log.dirs": str(folder / "no-logs"),
            "aiocontroller.id": str(OUR_ID),
            "aiocontroller.takeover.policy": "takeover",
        }
        del settings["broker.id"]
        config = folder / "server.properties"
        config.write_text("".join(f"{key}={escaped(value)}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "aiocontroller", "run", "--config", config, "--data", folder]
        self._child = Child("aiocontroller", [str(part) for part in command], log=folder / "log")

        async def is_active() -> bool:
            if not self.running:
                raise Failed(f"aiocontroller ended:\n{self.end_of_log}")
            return await asyncio.to_thread(self._controller) == OUR_ID

        await until(is_active, "aiocontroller to take over", lambda: self.end_of_log, within_s=STARTED_WITHIN_S)

    async def forward(self, way: Way, api: int, version: int, body: bytes, timeout_s: float) -> Outcome:
        request = encode_request_header(ApiKey(api), version, FORWARDED, CLIENT_ID) + body
        principal = encode_principal(ForwardedPrincipal("User", way.who))
        envelope = encode_envelope_request(request, principal, bytes([127, 0, 0, 1]))
        outcome = await self.side.ask(ADMIN, ApiKey.ENVELOPE, 0, envelope, timeout_s)
        if outcome.what != "answered":
            return outcome
        answer = cold.decode_response(ApiKey.ENVELOPE, 0, outcome.body)
        if answer.error_code:
            return Outcome(f"envelope refused: {answer.error_code}")
        correlation_id, inner = decode_response_header(ApiKey(api), version, answer.response_data)
        assert correlation_id == FORWARDED
        return Outcome("answered", bytes(inner))

    def _controller(self) -> int | None:
        with zookeeper(self.zookeeper) as client:
            import json

            return json.loads(client.get("/controller")[0])["brokerid"] if client.exists("/controller") else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def end_of_log(self) -> str:
        return self._child.log_tail(40) if self._child is not None else ""

    async def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
        await super().stop()


class TwoClusters:
    """``members`` are the brokers; clients that ask any of them, as Kafka's do, want no LISTENING among them.

    ``more`` are properties of all brokers and of ours.
    """

    def __init__(
        self,
        folder: Path,
        version: str,
        members: Sequence[int] = (FIRST, CONTROLLER, LISTENING),
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self.more = more or {}
        self._members = members
        self._zk = EmbeddedZooKeeper(folder / "zookeeper")
        self._folder = folder
        self.kafka: Cluster
        self.ours: OurCluster

    async def start(self) -> None:
        await self._zk.start_async()
        self.kafka = Cluster("kafka", self._zk, self._folder, self.version, self._members, self.more)
        self.ours = OurCluster("ours", self._zk, self._folder, self.version, self._members, self.more)
        await asyncio.gather(self.kafka.start_brokers(), self.ours.start_brokers())
        await asyncio.gather(self.kafka.start(), self.ours.start())
        common = {}
        for api, known in SUPPORTED.items():
            ranges = [known, self.kafka.offered.get(api), self.ours.offered.get(api)]
            if None not in ranges:
                common[int(api)] = VersionRange(max(each.min for each in ranges), min(each.max for each in ranges))
        self.kafka.common = self.ours.common = common

    async def stop(self) -> None:
        for cluster in (getattr(self, "kafka", None), getattr(self, "ours", None)):
            if cluster is not None:
                await cluster.stop()
        self._zk.kill()
