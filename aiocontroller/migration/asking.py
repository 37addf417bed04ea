"""Asks brokers and KRaft controllers about themselves: ApiVersions, DescribeConfigs, Metadata, DescribeQuorum."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from aiocontroller.config import ConfigError, load_config
from aiocontroller.controller.broker_client import BrokerClient, asking_at
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.controller.survey import SettingsRefusedError, describe_broker
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.migration.answers import SETTINGS_ASKED, MigrationAnswers, Node, protocol_of
from aiocontroller.migration.carried import Reported, What, ask_carried
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, negotiate
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.messages import ApiVersions, MetadataResponse, decode_metadata_response, encode_metadata_request
from aiocontroller.wire.quorum import DescribedQuorum, decode_describe_quorum_response, encode_describe_quorum_request

WITHIN_S = 5.0
AT_ONCE = 20
MOST_METADATA = 10
"""How many brokers are asked for their Metadata, at most: each answer contains every partition."""
_UNKNOWN = -1
_CONTROLLERS = 2
"""``EndpointType`` of DescribeCluster (KIP-919)."""
T = TypeVar("T")


class Asker:
    """Keeps no connection.  Security comes from the environment, as for a controller (``AIOCONTROLLER_…``)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._config, _ = load_config(None, os.environ)
        self._security = Security(self._config)
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def ask(
        self,
        registered: Sequence[Broker],
        not_brokers: Iterable[int],
        *,
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        bootstrap_controllers: Sequence[tuple[str, int]] = (),
    ) -> MigrationAnswers:
        """Ask the registered brokers, the brokers in their Metadata, and the KRaft controllers in their configuration.

        ``not_brokers``: ids in their Metadata that are controllers.  Nodes that do not answer are in the result.
        """
        silent: dict[str, str] = {}
        listener = inter_broker_listener(self._config, registered)
        where = {b.id: b.endpoint(listener) or b.endpoints[0] for b in registered if b.endpoints}
        protocol = next((at.security_protocol for at in where.values()), "PLAINTEXT")
        brokers = await self._ask_all(where, silent, metadata=True)
        given = [Endpoint(listener, host, port, protocol) for host, port in bootstrap_servers]
        for at, node in zip(given, await asyncio.gather(*map(self._first, given)), strict=True):
            if isinstance(node, Node):
                brokers |= {} if node.id < 0 or node.id in brokers else {node.id: node}
            else:
                silent[f"bootstrap server {at.host}:{at.port}"] = node
        known = {
            other.id: Endpoint(listener, other.host, other.port, protocol)
            for node in brokers.values()
            for other in (node.metadata.brokers if node.metadata is not None else ())
            if other.id not in not_brokers and other.id not in where and other.id not in brokers
        }
        brokers |= await self._ask_all(known, silent, metadata=True)
        controllers = await self._controllers(brokers, bootstrap_controllers, silent)
        return MigrationAnswers(brokers, controllers, silent)

    async def carried(self, node: Node, *, is_broker: bool) -> Reported:
        """Ask this node for what a migration carries over beside topics."""
        answer = await self._within(node.at, lambda client: ask_carried(client, node.versions, is_broker=is_broker))
        return dict.fromkeys(What, answer) if isinstance(answer, str) else answer

    async def _controllers(
        self, brokers: dict[int, Node], given: Sequence[tuple[str, int]], silent: dict[str, str]
    ) -> dict[int, Node]:
        settings = next((node.settings for node in brokers.values() if node.voters), {})
        name = (settings.get("controller.listener.names") or "CONTROLLER").split(",")[0].strip()
        protocol = protocol_of(name, settings.get("listener.security.protocol.map"))
        voters = {number: at for node in brokers.values() for number, at in node.voters.items()}
        for host, port in given:
            answer = await self._quorums_controllers(Endpoint(name, host, port, protocol))
            if isinstance(answer, str):
                silent[f"bootstrap controller {host}:{port}"] = answer
            else:
                voters = answer | voters
        where = {number: Endpoint(name, host, port, protocol) for number, (host, port) in sorted(voters.items())}
        return await self._ask_all(where, silent, metadata=False, of="controller")

    async def _quorums_controllers(self, at: Endpoint) -> dict[int, tuple[str, int]] | str:
        """Return the controllers that this one knows, itself included: id -> (host, port); or why it named none."""
        api, version = ApiKey.DESCRIBE_CLUSTER, 1
        body = cold.encode_request(api, version, cold.request(api, version, endpoint_type=_CONTROLLERS))
        answer = await self._within(at, lambda client: client.request(api, version, body))
        if isinstance(answer, str):
            return answer
        found = cold.decode_response(api, version, answer)
        if found.error_code:
            return f"{at.host}:{at.port} is no KRaft controller: {found.error_message or int(found.error_code)}"
        return {each.broker_id: (each.host, each.port) for each in found.brokers}

    async def _first(self, at: Endpoint) -> Node | str:
        """Ask a node whose id is not known yet."""
        return await self._asked(_UNKNOWN, at, metadata=True)

    async def _ask_all(
        self, where: dict[int, Endpoint], silent: dict[str, str], *, metadata: bool, of: str = "broker"
    ) -> dict[int, Node]:
        compared = sorted(where)[:MOST_METADATA] if metadata else []
        asked = [self._asked(number, at, metadata=number in compared) for number, at in where.items()]
        found = dict(zip(where, await asyncio.gather(*asked), strict=True))
        silent |= {f"{of} {number}": why for number, why in found.items() if isinstance(why, str)}
        return {number: node for number, node in found.items() if isinstance(node, Node)}

    async def _asked(self, number: int, at: Endpoint, *, metadata: bool) -> Node | str:
        return await self._within(at, lambda client: self._node(number, at, client, metadata=metadata))

    async def _within(self, at: Endpoint, asking: Callable[[BrokerClient], Awaitable[T]]) -> T | str:
        """Return the result of ``asking`` on a new connection, or why there is none."""
        try:
            async with self._limit, asking_at(self._world, self._security, at, WITHIN_S) as client:
                return await asking(client)
        except (OSError, FrameError, ConfigError) as error:
            return f"{at.host}:{at.port}: {error or type(error).__name__}"

    async def _node(self, number: int, at: Endpoint, client: BrokerClient, *, metadata: bool) -> Node:
        offered = await client.api_versions()
        answer = None
        version = negotiate(SUPPORTED[ApiKey.METADATA], offered.versions.get(ApiKey.METADATA))
        if metadata and version is not None:
            answer = await self._metadata(client, version)
        if number == _UNKNOWN and answer is not None:
            named = (broker.id for broker in answer.brokers if (broker.host, broker.port) == (at.host, at.port))
            number = next(named, _UNKNOWN)
        return Node(
            id=number,
            at=at,
            versions=offered.versions,
            ready=offered.zk_migration_ready,
            features=dict(offered.finalized_features),
            settings=await self._settings(client, offered, number),
            metadata=answer,
            quorum=await self._quorum(
                client, negotiate(SUPPORTED[ApiKey.DESCRIBE_QUORUM], offered.versions.get(ApiKey.DESCRIBE_QUORUM))
            ),
        )

    async def _quorum(self, client: BrokerClient, version: int | None) -> DescribedQuorum | None:
        if version is None:
            return None
        body = encode_describe_quorum_request(version)
        found = decode_describe_quorum_response(version, await client.request(ApiKey.DESCRIBE_QUORUM, version, body))
        return None if found.error_code else found

    async def _metadata(self, client: BrokerClient, version: int) -> MetadataResponse:
        body = encode_metadata_request(version, None)
        return decode_metadata_response(version, await client.request(ApiKey.METADATA, version, body))

    async def _settings(self, client: BrokerClient, offered: ApiVersions, number: int) -> dict[str, str | None]:
        """Return the node's settings; empty if it refuses."""
        try:
            described = await describe_broker(client, offered, number, SETTINGS_ASKED)
        except SettingsRefusedError:
            return {}
        return {setting.name: setting.value for setting in described}


def parse_servers(option: str, text: str | None) -> list[tuple[str, int]]:
    """Parse ``host:port,…``; BadInputError naming the option if it is not of that form."""
    found = []
    for each in (text or "").split(",") if text else ():
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadInputError(f"{option}: found {each.strip()!r}, expected HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found
