"""The ZooKeeper client's metrics, under the names that Kafka's own client gives them.

Meters of ``SessionExpireListener`` count what happened to the session, ``ZooKeeperRequestLatencyMs`` times requests (a
request of ours may carry hundreds of operations).  The gauges of ``ZooKeeperClientMetrics`` are ours: requests and
bytes in flight, bytes in all, calls that wait, watches, and attempts to connect that failed or timed out.
"""

from __future__ import annotations

from collections.abc import Callable

from aiocontroller.metrics import Metrics

GROUP = "kafka.server"
LISTENER = "SessionExpireListener"
CLIENT = "ZooKeeperClientMetrics"


class SessionMetrics:
    """Hooks for a session; without a registry they count into a private one."""

    def __init__(self, metrics: Metrics | None) -> None:
        registry = metrics if metrics is not None else Metrics()
        self._registry = registry
        self.disconnects = registry.meter(GROUP, LISTENER, "ZooKeeperDisconnectsPerSec")
        self.connects = registry.meter(GROUP, LISTENER, "ZooKeeperSyncConnectsPerSec")
        self.auth_failures = registry.meter(GROUP, LISTENER, "ZooKeeperAuthFailuresPerSec")
        self.sasl_authentications = registry.meter(GROUP, LISTENER, "ZooKeeperSaslAuthenticationsPerSec")
        self.read_only_connects = registry.meter(GROUP, LISTENER, "ZooKeeperReadOnlyConnectsPerSec")
        self.expires = registry.meter(GROUP, LISTENER, "ZooKeeperExpiresPerSec")
        self.request_latency_ms = registry.histogram(GROUP, CLIENT, "ZooKeeperRequestLatencyMs")

    def watch(self, name: str, source: Callable[[], float]) -> None:
        """A gauge of the client's, read when asked for."""
        self._registry.gauge(GROUP, CLIENT, name, source)
