"""The ZooKeeper client's metrics, under the names that Kafka's own client gives them.

The meters of ``SessionExpireListener`` count the session's events; ``ZooKeeperRequestLatencyMs`` times requests (a
request of ours may have hundreds of operations).  The gauges of ``ZooKeeperClientMetrics`` are ours: requests and bytes
in flight, total bytes, waiting calls, watches, and connection attempts that failed or timed out.
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
        """Register a gauge of the client, read on demand."""
        self._registry.gauge(GROUP, CLIENT, name, source)
