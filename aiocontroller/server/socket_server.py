"""Where brokers and clients find the controller (Kafka's ``SocketServer``): its connections, and what they share."""

from __future__ import annotations

import logging

import anyio.abc

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.ids import Endpoint
from aiocontroller.security import ListenerSecurity
from aiocontroller.server.kafka_apis import KafkaApis
from aiocontroller.server.kafka_channel import KafkaChannel
from aiocontroller.server.sasl import SaslLogin
from aiocontroller.wire.scram import ScramCredential, parse_credential
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.paths import sanitize

log = logging.getLogger(__name__)

PLAIN_ENDPOINT = Endpoint("PLAINTEXT", "", 0)


class SocketServer:
    """Makes the protocol objects of its connections; ``tasks`` own what they start."""

    def __init__(self, shell: ControllerShell, tasks: anyio.abc.TaskGroup) -> None:
        self.shell = shell
        self.tasks = tasks
        self.apis = KafkaApis(shell, tasks)
        self.connections: dict[KafkaChannel, None] = {}
        """Those that are open, in the order in which they came."""

    def connection(self, at: Endpoint = PLAIN_ENDPOINT) -> KafkaChannel:
        """For one that comes to our listener ``at``."""
        return KafkaChannel(self, at)

    def close(self) -> None:
        """End the connections that exist; what was answered still leaves."""
        for connection in list(self.connections):
            connection.close()

    def login(self, security: ListenerSecurity) -> SaslLogin | None:
        if not security.mechanisms:
            return None
        return SaslLogin(security, self._credential, f"{self.shell.world.random.randrange(1 << 128):x}")

    async def _credential(self, user: str, mechanism: str) -> ScramCredential | None:
        try:
            configs = await AdminZkClient(self.shell.zk).get_entity_configs("users", sanitize(user))
            return parse_credential(configs[mechanism]) if mechanism in configs else None
        except AioControllerError as error:
            log.warning("No SCRAM credential of user %r: %s", user, error)
            return None

    def upstream(self, at: Endpoint) -> Endpoint | None:
        """A live broker under the same listener (its answers name addresses for it), another one each time."""
        context = self.shell.context
        brokers = [b for b in context.brokers.values() if b.id in context.live]
        if self.shell.channels is None:
            brokers = self.shell.last_brokers
        if not brokers:
            return None
        broker = brokers[self.shell.world.random.randrange(len(brokers))]
        return broker.endpoint(at.listener) or self.shell.endpoint_of(broker)
