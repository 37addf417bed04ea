"""The listeners for brokers and clients (Kafka's ``SocketServer``): their connections and shared resources.

The shared resources are bounded.
 * Places: ``connection_quotas``.  Memory for requests: ``memory_pool``.  Memory for unread answers: when there are too
   many, the connection whose answers have waited for longest is closed.
 * Time: in one turn of the loop, requests are started for at most ``TURN_S``, and at most ``TURN_REQUESTS`` of them.
   Connections with more requests take turns.  So they cannot starve the other tasks, whatever they send.
 * Every state of a connection has a deadline, and all deadlines are checked once a second.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

import anyio.abc

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.complaints import Complaints
from aiocontroller.property_values import is_ip_address
from aiocontroller.security import ListenerSecurity
from aiocontroller.server.admission import broker_of
from aiocontroller.server.connection_quotas import ConnectionQuotas
from aiocontroller.server.kafka_apis import KafkaApis
from aiocontroller.server.kafka_channel import KafkaChannel
from aiocontroller.server.memory_pool import MemoryPool
from aiocontroller.server.request_sizes import largest_request
from aiocontroller.server.sasl import SaslLogin, TokenCredential
from aiocontroller.wire.apis import api_name
from aiocontroller.wire.errors import UnsupportedApiError
from aiocontroller.wire.scram import (
    DIGESTS,
    MIN_ITERATIONS,
    ScramCredential,
    credential,
    made_up_credential,
    parse_credential,
    salt_password,
)
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.delegation_tokens import DelegationTokens, token_hmac
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.paths import sanitize

log = logging.getLogger(__name__)

PLAIN_ENDPOINT = Endpoint("PLAINTEXT", "", 0)
TURN_REQUESTS = 64
TURN_S = 0.001
SWEEP_S = 1.0
QUEUED_BYTES = 256 * 1024 * 1024
"""Default of ``queued.max.request.bytes``."""
MAX_USER_CHARACTERS = 1000
"""Longest user name in a login; longer ones are not looked up in ZooKeeper."""
MUCH_BYTES = 32 * 1024 * 1024
UNDER_PRESSURE_S = 5.0
"""How long a frame may take to arrive while other connections wait for its memory."""


class SocketServer:
    """Creates the protocol objects of connections; ``tasks`` own the tasks that they start.

    ``descriptors``: the number of connections that the operating system's limit allows.  ``return_memory`` is called
    when much memory was used for requests and is free again.
    """

    def __init__(
        self,
        shell: ControllerShell,
        tasks: anyio.abc.TaskGroup,
        descriptors: Callable[[], int] | None = None,
        return_memory: Callable[[], object] = lambda: None,
    ) -> None:
        self.shell = shell
        self.tasks = tasks
        self.apis = KafkaApis(shell, tasks)
        self.connections: dict[KafkaChannel, None] = {}
        """Open connections, in order of arrival."""
        config = shell.config
        self.max_bytes = config.socket_request_max_bytes
        self.login_max_bytes = min(config.sasl_server_max_receive_size, self.max_bytes)
        self.login_timeout_s = config.aiocontroller_login_timeout_ms / 1000
        self.idle_s = config.connections_max_idle_ms / 1000
        self.receive_timeout_s = config.aiocontroller_request_receive_timeout_ms / 1000
        self.send_timeout_s = config.aiocontroller_response_send_timeout_ms / 1000
        self.failed_login_delay_s = config.connection_failed_authentication_delay_ms / 1000
        queued = config.queued_max_request_bytes
        self.memory = MemoryPool(max(queued if queued > 0 else QUEUED_BYTES, self.max_bytes))
        self.login_memory = MemoryPool(max(config.aiocontroller_login_max_bytes, self.login_max_bytes))
        most = config.max_connections
        self.quotas = ConnectionQuotas(
            (lambda: most) if descriptors is None else lambda: min(most, descriptors()),
            config.max_connections_per_ip,
            {ip: most for ip, most in config.max_connections_per_ip_overrides.items() if is_ip_address(ip)},
            {
                at.listener: config.of_listener(at.listener, "max.connections")
                for at in config.listeners
                if (at.listener.lower(), "max.connections") in config.listener_overrides
            },
        )
        self._return_memory = return_memory
        self.complaints = Complaints(log, shell.world.clock)
        self.now = shell.world.clock.monotonic

        self._ready: deque[KafkaChannel] = deque()
        """Connections that have a request and wait for their turn."""
        self._turn = False
        self._left = 0
        self._turn_ends_s = 0.0
        self._sweeping = False
        self._unread: OrderedDict[KafkaChannel, int] = OrderedDict()
        """Bytes of unread answers by connection, the oldest first."""
        self._unread_bytes = 0
        self._max_unread_bytes = config.aiocontroller_queued_max_response_bytes
        self._secret = b""
        """Secret for the salts of nonexistent users; drawn when first needed."""
        self._count()

    # -- connections -----------------------------------------------------------------------------------------------

    def gate(self, at: Endpoint) -> ListenerGate:
        """The gate of our listener ``at``."""
        tags = {"listener": at.listener}
        gauge = self.shell.metrics.gauge
        gauge("kafka.server", "socket-server-metrics", "connection-count", lambda: self._at(at), tags=tags)
        return ListenerGate(self, at)

    def connection(
        self, at: Endpoint = PLAIN_ENDPOINT, address: str = "", abort: Callable[[], object] = lambda: None
    ) -> KafkaChannel:
        """The protocol object of a new connection to our listener ``at``."""
        channel = KafkaChannel(self, at, address, abort)
        self.connections[channel] = None
        self.quotas.enter(channel)
        if not self._sweeping:
            self._sweeping = True
            self.shell.world.clock.call_later(SWEEP_S, self._sweep)
        return channel

    async def look_up_hosts(self) -> None:
        """Resolve host names in ``max.connections.per.ip.overrides``; BadInputError for a host without an address.

        It is not a ConfigError, since another start may succeed once name servers are back.

        The limit applies to each address of a host separately; an override for an address wins over one for a name,
        and of two names with one address the last one, as in Kafka.
        """
        by_address = dict(self.quotas.overrides)
        for host, most in self.shell.config.max_connections_per_ip_overrides.items():
            if is_ip_address(host):
                continue
            try:
                found = await self.shell.world.network.addresses(host)
            except OSError as error:
                raise BadInputError(
                    f"max.connections.per.ip.overrides: found {host} ({error}), expected a host that has an address"
                ) from error
            self.quotas.overrides.update(dict.fromkeys(found, most))
        self.quotas.overrides.update(by_address)

    def refusal(self, address: str, listener: str = "") -> str | None:
        """Why a connection from this address is refused; None if it is not."""
        return self.quotas.refusal(address, listener)

    def refused(self, address: str, at: Endpoint, why: str) -> None:
        """Count and log a refused connection."""
        self._refused.inc()
        self.complaints.warn("connections refused", "Refused a connection to %s from %s: %s", at.listener, address, why)

    def forget(self, channel: KafkaChannel) -> None:
        """Forget a connection that is gone; idempotent."""
        self.connections.pop(channel, None)
        self.quotas.leave(channel)
        self.answers_read(channel)

    def close(self) -> None:
        """Close all connections after sending the answers already given."""
        for connection in list(self.connections):
            connection.close()

    def begin(self, channel: KafkaChannel) -> None:
        """A request has started."""
        self.quotas.begin(channel)

    def end(self, channel: KafkaChannel) -> None:
        """A request has been answered."""
        self.quotas.end(channel)

    def _at(self, at: Endpoint) -> int:
        return sum(channel.listener == at.listener for channel in self.connections)

    def _sweep(self) -> None:
        now_s = self.now()
        late = [channel for channel in self.connections if channel.deadline_s <= now_s]
        if self.memory.waiting or self.login_memory.waiting:
            slow_s = now_s - UNDER_PRESSURE_S
            late += [c for c in self.connections if c.is_receiving and c.since_s <= slow_s and c not in late]
        for channel in late:
            self._expired.inc()
            channel.deadline_passed()
        if self.memory.peak_bytes >= MUCH_BYTES and not self.memory.used_bytes:
            self.memory.peak_bytes = 0
            self._return_memory()
        if self.connections or self.memory.peak_bytes >= MUCH_BYTES:
            self.shell.world.clock.call_later(SWEEP_S, self._sweep)
        else:
            self._sweeping = False

    # -- turns -----------------------------------------------------------------------------------------------------

    def may_work(self) -> bool:
        """Whether one more request may start in this turn of the loop."""
        if not self._turn:
            self._begin_turn()
        elif self._left <= 0 or self.now() > self._turn_ends_s:
            self._left = 0
            return False
        self._left -= 1
        return True

    def queue(self, channel: KafkaChannel) -> None:
        """Queue the connection for its turn."""
        self._ready.append(channel)
        if not self._turn:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn, self._left, self._turn_ends_s = True, TURN_REQUESTS, self.now() + TURN_S
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = False
        if not self._ready:
            return
        self._begin_turn()
        for _ in range(len(self._ready)):
            if self._left <= 0:
                break
            self._ready.popleft().take_turn()

    # -- memory ----------------------------------------------------------------------------------------------------

    def answers_unread(self, channel: KafkaChannel, size_bytes: int) -> None:
        """Count answers that wait for the client to read them; close the oldest connections if they are too many."""
        self._unread[channel] = size_bytes
        self._unread_bytes += size_bytes
        while self._unread_bytes > self._max_unread_bytes:
            oldest = next(iter(self._unread))
            self.complaints.warn(
                "connections closed for unread answers",
                "Closing a connection from %s: answers that are not read take %d bytes, expected at most %d",
                oldest.address,
                self._unread_bytes,
                self._max_unread_bytes,
            )
            self.answers_read(oldest)
            oldest.evict()

    def answers_read(self, channel: KafkaChannel) -> None:
        """The client has read its answers: their bytes are free."""
        self._unread_bytes -= self._unread.pop(channel, 0)

    def largest_request(self, api: int, start: bytes) -> int:
        """The request's largest size in bytes, from its first bytes; UnsupportedApiError if the API is not served."""
        if api not in self.apis.offered():
            raise UnsupportedApiError(api, -1, f"{api_name(api)} is not served here")
        return min(
            self.max_bytes, largest_request(api, start, self._broker_of) if self.apis.answers(api) else self.max_bytes
        )

    def _broker_of(self, body: bytes) -> int | None:
        return broker_of(self.shell.context, body)

    # -- logins ----------------------------------------------------------------------------------------------------

    def login(self, security: ListenerSecurity, renews: SaslLogin | None = None) -> SaslLogin | None:
        """A login for a new connection, or to renew another; None if the listener has no SASL."""
        if not security.mechanisms:
            return None
        random = self.shell.world.random
        nonce = f"{random.randrange(1 << 128):x}"
        return SaslLogin(security, self._credential, self._token_credential, self._made_up_credential, nonce, renews)

    def login_succeeded(self, *, again: bool) -> None:
        """Count a login; ``again``: a renewal."""
        self._logins[again].inc()

    def session_has_ended(self) -> None:
        """Count a login that ended because it was not renewed."""
        self._ended_sessions.inc()

    def login_failed(self, peer: str, why: Exception, *, again: bool) -> None:
        """Count and log a refused login; ``again``: a renewal."""
        self._failed_logins[again].inc()
        self.complaints.warn("logins refused", "Login from %s refused: %s", peer, why)

    async def _credential(self, user: str, mechanism: str) -> ScramCredential | None:
        if len(user) > MAX_USER_CHARACTERS:
            return None
        try:
            configs = await AdminZkClient(self.shell.zk).get_entity_configs("users", sanitize(user))
            return parse_credential(configs[mechanism]) if mechanism in configs else None
        except (AioControllerError, exc.ZKError) as error:
            self._not_found(user, error)
            return None

    async def _token_credential(self, token_id: str, mechanism: str) -> TokenCredential | None:
        """The token's credential, derived as brokers do: the password is the HMAC in base64."""
        config = self.shell.config
        secret_key = config.delegation_token_secret_key or config.delegation_token_master_key
        if secret_key is None:
            return None
        try:
            token = await DelegationTokens(self.shell.zk).get(token_id)
        except (AioControllerError, exc.ZKError) as error:
            self._not_found(token_id, error)
            return None
        if token is None or token.has_expired(self.wall_time_ms()):
            return None
        password = base64.b64encode(token_hmac(token_id, secret_key.value)).decode()
        digest, salt = DIGESTS[mechanism], self._made_up_credential(token_id, mechanism).salt
        known = credential(digest, salt, salt_password(digest, password, salt, MIN_ITERATIONS), MIN_ITERATIONS)
        return TokenCredential(known, token.owner, token.expires_ms)

    def _not_found(self, user: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        self.complaints.warn("SCRAM credentials not found", "No SCRAM credential of %r: %s", user[:300], why)

    def wall_time_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.shell.world.clock.wall_time_us() // 1000

    def _made_up_credential(self, user: str, mechanism: str) -> ScramCredential:
        if not self._secret:
            self._secret = self.shell.world.random.randrange(1 << 256).to_bytes(32, "big")
        return made_up_credential(self._secret, mechanism, user)

    # -- metrics ---------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Register metrics, with Kafka's names where they exist."""
        metrics = self.shell.metrics
        self._refused = metrics.counter("aiocontroller", "SocketServer", "RefusedConnections")
        self._expired = metrics.counter("kafka.network", "SocketServer", "ExpiredConnectionsKilled")
        self._logins, self._failed_logins = (
            [
                metrics.counter("kafka.server", "socket-server-metrics", f"{how}-{what}")
                for what in ("authentication", "reauthentication")
            ]
            for how in ("successful", "failed")
        )
        self._ended_sessions = metrics.counter(
            "kafka.server", "socket-server-metrics", "expired-connections-killed-count"
        )
        for name, source in {
            "MemoryPoolUsed": lambda: self.memory.used_bytes,
            "MemoryPoolAvailable": lambda: self.memory.size_bytes - self.memory.used_bytes,
        }.items():
            metrics.gauge("kafka.network", "SocketServer", name, source)
        for name, source in {
            "EvictedConnections": lambda: self.quotas.evicted,
            "LoginMemoryUsed": lambda: self.login_memory.used_bytes,
            "UnreadResponseBytes": lambda: self._unread_bytes,
            "UnreadConnections": lambda: len(self._unread),
            "ConnectionsWaitingForMemory": lambda: self.memory.waiting + self.login_memory.waiting,
            "ConnectionsWaitingForTheirTurn": lambda: len(self._ready),
        }.items():
            metrics.gauge("aiocontroller", "SocketServer", name, source)


class ListenerGate:
    """Lets connections to one listener in (``net.ports.Gate``)."""

    def __init__(self, server: SocketServer, at: Endpoint) -> None:
        self._server = server
        self._endpoint = at

    def enter(self, address: str, abort: Callable[[], object]) -> KafkaChannel | None:
        """A channel for a new client; None if it is refused."""
        why = self._server.refusal(address, self._endpoint.listener)
        if why is not None:
            self._server.refused(address, self._endpoint, why)
            return None
        return self._server.connection(self._endpoint, address, abort)
