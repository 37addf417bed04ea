"""From a filled request batch to bytes in the senders' queues.

Requests with very many partitions are cut: no encoding step holds the event loop for long, and no frame comes near
the brokers' limit of 100 MiB.  The cut pieces stay in order, so a broker sees what one request would have shown it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aiocontroller.controller.channel_manager import Body, ControllerChannelManager
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker
from aiocontroller.core.request_batch import (
    LeaderAndIsrRequest,
    Requests,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from aiocontroller.net.ports import Clock
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.leader_and_isr import encode_leader_and_isr
from aiocontroller.wire.stop_replica import encode_stop_replica
from aiocontroller.wire.topic_states import ControlRequestBody
from aiocontroller.wire.update_metadata import UpdateMetadataEncoder

PARTITIONS_PER_REQUEST = 50_000


class Acknowledgements:
    """Counts the requests of a batch that brokers have not answered yet; tells once when none is left."""

    def __init__(self) -> None:
        self._open = 0
        self._callback: Callable[[], None] | None = None

    def one(self) -> Callable[[], None]:
        self._open += 1
        return self._answered

    def when_all(self, callback: Callable[[], None]) -> None:
        """Call back when every request has been answered or given up; at once where there is none."""
        self._callback = callback
        self._tell()

    def _answered(self) -> None:
        self._open -= 1
        self._tell()

    def _tell(self) -> None:
        if self._open == 0 and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


class Sent(NamedTuple):
    """What of a batch brokers have not acknowledged yet."""

    control: Acknowledgements
    """LeaderAndIsr and StopReplica."""
    metadata: Acknowledgements
    """UpdateMetadata, after which a broker knows the leaders."""


class BrokerRequestSender:
    """Encodes for one term: the controller's id and epoch stand in every request."""

    def __init__(
        self,
        context: ControllerContext,
        channels: ControllerChannelManager,
        clock: Clock,
        controller_id: int,
        own_entry: Callable[[], Broker | None],
    ) -> None:
        self._context = context
        self._channels = channels
        self._clock = clock
        self._controller_id = controller_id
        self._own_entry = own_entry

    async def send(self, requests: Requests) -> Sent:
        """LeaderAndIsr, then UpdateMetadata, then StopReplica."""
        acknowledgements, metadata = Sent(Acknowledgements(), Acknowledgements())
        for leader_and_isr in requests.leader_and_isr:
            for pids in _pieces(leader_and_isr.pids):
                self._send_leader_and_isr(leader_and_isr, pids, acknowledgements)
                await self._clock.sleep(0)
        if requests.update_metadata is not None:
            for pids in _pieces(requests.update_metadata.pids) if requests.update_metadata.pids else [[]]:
                self._send_update_metadata(requests.update_metadata, pids, metadata)
                await self._clock.sleep(0)
        for stop_replica in requests.stop_replica:
            self._send_stop_replica(stop_replica, acknowledgements)
        return Sent(acknowledgements, metadata)

    def _send_leader_and_isr(
        self, request: LeaderAndIsrRequest, pids: Sequence[int], acknowledgements: Acknowledgements
    ) -> None:
        context = self._context

        def encode(version: int, broker_epoch: int) -> list[Body]:
            wanted = [pid for pid in pids if self._is_replica(pid, request.broker)]
            leaders = dict.fromkeys(context.table.leader[pid] for pid in wanted)
            body = encode_leader_and_isr(
                version,
                controller_id=self._controller_id,
                controller_epoch=context.epoch,
                broker_epoch=broker_epoch,
                table=context.table,
                pids=wanted,
                new=request.new,
                live_leaders=self._live_leaders(leaders),
            )
            return [(body,)] if wanted else []

        self._channels.send(request.broker, ApiKey.LEADER_AND_ISR, encode, pids, acknowledgements.one())

    def _send_update_metadata(
        self, request: UpdateMetadataRequest, pids: Sequence[int], acknowledgements: Acknowledgements
    ) -> None:
        context = self._context
        shared: dict[int, ControlRequestBody] = {}

        def encode(version: int, broker_epoch: int) -> list[Body]:
            if version not in shared:
                own = self._own_entry()
                shared[version] = UpdateMetadataEncoder(
                    version,
                    controller_id=self._controller_id,
                    controller_epoch=context.epoch,
                    table=context.table,
                    pids=[pid for pid in pids if context.table.topic_of[pid] >= 0],
                    live_brokers=[*context.brokers.values(), *([own] if own is not None else [])],
                    live=context.live,
                    offline_dirs=context.offline_dirs,
                ).body()
            return [shared[version].pieces_for_broker(broker_epoch)]

        for broker in request.brokers:
            self._channels.send(broker, ApiKey.UPDATE_METADATA, encode, pids, acknowledgements.one())

    def _send_stop_replica(self, request: StopReplicaRequest, acknowledgements: Acknowledgements) -> None:
        context = self._context

        def encode(version: int, broker_epoch: int) -> list[Body]:
            bodies = encode_stop_replica(
                version,
                controller_id=self._controller_id,
                controller_epoch=context.epoch,
                broker_epoch=broker_epoch,
                table=context.table,
                partitions=[p for p in request.partitions if context.table.topic_of[p[0]] >= 0],
            )
            return [(body,) for body in bodies]

        self._channels.send(
            request.broker,
            ApiKey.STOP_REPLICA,
            encode,
            [pid for pid, _, delete in request.partitions if delete],
            acknowledgements.one(),
        )

    def _is_replica(self, pid: int, broker: int) -> bool:
        """False where the topic went, or its row was used anew, while the request waited for a first connection."""
        return self._context.table.topic_of[pid] >= 0 and broker in self._context.table.replicas(pid)

    def _live_leaders(self, leaders: dict[int, None]) -> list[tuple[int, str, int]]:
        found = []
        for leader in sorted(leaders):
            broker = self._context.brokers.get(leader)
            endpoint = self._channels.endpoint_of(broker) if broker is not None else None
            if endpoint is not None:
                found.append((leader, endpoint.host, endpoint.port))
        return found


def _pieces(pids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (pids[i : i + PARTITIONS_PER_REQUEST] for i in range(0, len(pids), PARTITIONS_PER_REQUEST))
