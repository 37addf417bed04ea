"""Sends requests to the active controller: ZooKeeper lists brokers, and a broker's Metadata names the controller.

It is minimal: one connection, one request at a time.  The role may move while a command runs, and brokers learn of a
new controller a little later, so NOT_CONTROLLER and broken connections are retried until the deadline.

Listener settings come from the environment, as for a controller (``AIOCONTROLLER_INTER_BROKER_LISTENER_NAME``,
``AIOCONTROLLER_SASL_JAAS_CONFIG``, …).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from aiocontroller.config import load_config
from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.core.errors import AioControllerError, BadInputError, KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire import messages
from aiocontroller.wire.apis import ApiKey, VersionRange, negotiate_api
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.frames import decode_response_header, request_frame
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

T = TypeVar("T")

CLIENT_ID = "aiocontroller"
WITHIN_S = 15.0
RETRY_S = 0.2
CONNECT_TIMEOUT_S = 3.0


class ControllerNotFoundError(AioControllerError):
    """The controller could not be located, or did not answer; the message says what was tried last."""


class _Client:
    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._correlation_id = 0

    async def request(self, api: ApiKey, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        # ``BrokerConnection`` puts the length before the frame by itself.
        prefixed, *rest = request_frame(api, version, self._correlation_id, CLIENT_ID, body)
        frame = await self._connection.request([prefixed[4:], *rest])
        correlation_id, answer = decode_response_header(api, version, frame)
        if correlation_id != self._correlation_id:
            raise FrameError(f"{api.name}: found correlation id {correlation_id}, expected {self._correlation_id}")
        return bytes(answer)

    async def offered(self) -> dict[int, VersionRange]:
        body = messages.encode_api_versions_request(0, CLIENT_ID, "0")
        return messages.decode_api_versions_response(0, await self.request(ApiKey.API_VERSIONS, 0, body)).versions

    def close(self) -> None:
        self._connection.close()


async def ask_controller(
    world: World,
    zk: KafkaZkClient,
    api: ApiKey,
    encode: Callable[[int], bytes],
    decode: Callable[[int, bytes], T],
    refused: Callable[[T], bool],
) -> T:
    """The controller's answer; ``refused`` says whether an answer came from a node that is not the controller.

    ControllerNotFoundError when there is no answer in time, BadInputError when the controller does not serve the API.
    """
    config, _ = load_config(None, os.environ)
    security = Security(config)
    deadline = world.clock.monotonic() + WITHIN_S
    problem = "no broker is registered"
    while True:
        brokers = await _brokers(zk)
        listener = inter_broker_listener(config, brokers)
        for bootstrap in brokers:
            try:
                at = await _find_controller(world, security, listener, bootstrap)
                answer = await ask_node(world, security, at, api, encode, decode)
            except UnsupportedApiError as error:
                raise BadInputError(f"the active controller is a broker of an old release: {error}") from None
            except (OSError, FrameError) as error:
                problem = str(error)
                continue
            if not refused(answer):
                return answer
            problem = f"{at.host}:{at.port} is not the controller"
        if world.clock.monotonic() > deadline:
            raise ControllerNotFoundError(f"the controller did not answer within {WITHIN_S:.0f} s: {problem}")
        await world.clock.sleep(RETRY_S)


async def _brokers(zk: KafkaZkClient) -> list[Broker]:
    found, _bad = await zk.get_all_brokers_in_cluster(watch=False)
    return [broker for broker in found if broker.endpoints]


async def _connect(world: World, security: Security, at: Endpoint) -> _Client:
    return _Client(await connect_to_broker(world, security, at, timeout_s=CONNECT_TIMEOUT_S))


async def _find_controller(world: World, security: Security, listener: str, bootstrap: Broker) -> Endpoint:
    """The controller's endpoint on the inter-broker listener: on others a broker may stand in for it."""
    at = bootstrap.endpoint(listener) or bootstrap.endpoints[0]
    client = await _connect(world, security, at)
    try:
        version = negotiate_api(ApiKey.METADATA, await client.offered())
        body = messages.encode_metadata_request(version, ())
        answer = messages.decode_metadata_response(version, await client.request(ApiKey.METADATA, version, body))
    finally:
        client.close()
    for node in answer.brokers:
        if node.id == answer.controller_id:
            return Endpoint(at.listener, node.host, node.port, at.security_protocol)
    raise ConnectionError(f"broker {bootstrap.id} knows of no controller")


async def ask_node(
    world: World,
    security: Security,
    at: Endpoint,
    api: ApiKey,
    encode: Callable[[int], bytes],
    decode: Callable[[int, bytes], T],
) -> T:
    """The answer of the node at this address, in the newest version that both know.

    OSError when it cannot be reached, FrameError when it does not offer the API or sends something else.
    """
    client = await _connect(world, security, at)
    try:
        version = negotiate_api(api, await client.offered())
        return decode(version, await client.request(api, version, encode(version)))
    finally:
        client.close()


def code_name(code: int) -> str:
    """Kafka's name of an error code; the number if the code is unknown."""
    return KafkaErrorCode(code).name if code in KafkaErrorCode._value2member_map_ else f"error {code}"
