"""Collects the live view's data: the controller's ``/status``, the events in its journal and, less often, the state in
ZooKeeper.

Observing must be cheap for the cluster: ZooKeeper is read again only after ten times the duration of the last reading,
or twice that duration after an event.  Nothing here fails: data that are unavailable are None or keep their last
values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from aiocontroller.cli.cluster_state import ClusterState, read_cluster_state
from aiocontroller.core.errors import AioControllerError
from aiocontroller.lab.cli.tail import JournalTail
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

STATUS_TIMEOUT_S = 1.0
REST_IDLE, REST_BUSY = 10, 2
"""Pause after a reading of ZooKeeper, in multiples of its duration."""
SHORTEST_PAUSE_S = 0.5


class Observation(msgspec.Struct, frozen=True):
    """One observation.  ``status`` is that of the active controller; None if there is none or it does not answer."""

    status: dict[str, Any] | None
    cluster: ClusterState | None
    new_events: list[dict[str, Any]]
    """Events that controllers have handled since the last observation, oldest first."""

    @property
    def controller(self) -> int | None:
        """The active controller according to ZooKeeper, even if it does not answer."""
        return None if self.cluster is None else self.cluster.controller.id

    @property
    def counts(self) -> dict[str, int]:
        return {} if self.cluster is None else self.cluster.counts()


class Observer:
    """``controllers`` returns the HTTP addresses of the running controllers, active or standing by."""

    def __init__(
        self, zookeeper: str, controllers: Callable[[], Sequence[str]], journal: JournalTail, world: World
    ) -> None:
        self._controllers = controllers
        self._journal = journal
        self._client = ZooKeeperClient(zookeeper, world=world)
        self._http: aiohttp.ClientSession | None = None
        self._cluster: ClusterState | None = None
        self._read_s = self._took_s = 0.0
        """Time and duration of the last reading of ZooKeeper."""

    async def start(self, timeout_s: float) -> None:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=STATUS_TIMEOUT_S))
        await self._client.start(timeout_s)

    async def close(self, within_s: float) -> None:
        if self._http is not None:
            await self._http.close()
        await self._client.close(within_s)

    async def look(self) -> Observation:
        answers = [await self._status(url) for url in self._controllers()]
        active = next((a for a in answers if a is not None and a.get("active")), None)
        events = self._journal.new_events()
        rest_s = self._took_s * (REST_BUSY if events else REST_IDLE)
        fresh = time.monotonic() >= self._read_s + max(SHORTEST_PAUSE_S, rest_s)
        return Observation(active, await self.cluster() if fresh else self._cluster, events)

    async def cluster(self) -> ClusterState | None:
        """Read and return the state now; return the last one if that fails."""
        started_s = time.monotonic()
        try:
            self._cluster = await read_cluster_state(KafkaZkClient(self._client))
        except (AioControllerError, OSError):
            pass  # no connection now
        self._read_s = time.monotonic()
        self._took_s = self._read_s - started_s
        return self._cluster

    async def _status(self, url: str) -> dict[str, Any] | None:
        assert self._http is not None
        try:
            async with self._http.get(f"{url}/status") as answer:
                found = msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
            return None
        return found if isinstance(found, dict) else None
