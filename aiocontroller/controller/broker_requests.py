"""Encodes the requests of a batch, and queues them with the senders.

Requests with very many partitions are split: no encoding step blocks the event loop for long, and no frame comes near
the brokers' limit of 100 MiB.  Each piece is sent as LeaderAndIsr and then UpdateMetadata before the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

from aiocontroller.controller.channel_manager import ControllerChannelManager
from aiocontroller.controller.request_queue import Body
from aiocontroller.core.columns import in_range, take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Deletions
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_batch import (
    Acknowledgements,
    LeaderAndIsrRequest,
    Requests,
    Sent,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from aiocontroller.core.topic_deletion import waits_for_all
from aiocontroller.net.ports import Clock
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.leader_and_isr import EncodedValues, LeaderAndIsrEncoder, LiveLeader
from aiocontroller.wire.stop_replica import StopReplicaPartition, encode_stop_replica
from aiocontroller.wire.topic_states import ControlRequestBody, Cores
from aiocontroller.wire.update_metadata import UpdateMetadataEncoder

PARTITIONS_PER_REQUEST = 50_000


class BrokerRequestSender:
    """Encodes requests for one term: every request carries the controller's id and epoch."""

    def __init__(
        self,
        context: ControllerContext,
        channels: ControllerChannelManager,
        clock: Clock,
        controller_id: int,
        own_entry: Callable[[], Broker | None],
        endpoint_among_brokers: Callable[[Broker], Endpoint | None],
    ) -> None:
        self._context = context
        self._channels = channels
        self._clock = clock
        self._controller_id = controller_id
        self._own_entry = own_entry
        self._endpoint_among_brokers = endpoint_among_brokers
        self._kept = EncodedValues(context.table)
        self._cores: Cores | None = None
        """Encoded bodies of the current piece, shared by all its brokers; the table does not change meanwhile."""

    async def send(self, requests: Requests, sent: Sent | None = None) -> Sent:
        """Queue LeaderAndIsr, then UpdateMetadata, then StopReplica.  ``sent`` has the requests of earlier pieces."""
        sent = Sent(Acknowledgements(), Acknowledgements()) if sent is None else sent
        metadata = requests.update_metadata
        metadata_rows: Sequence[int] = () if metadata is None else metadata.rows
        for low, high in pairwise((-inf, *metadata_rows[PARTITIONS_PER_REQUEST::PARTITIONS_PER_REQUEST], inf)):
            piece = in_range(metadata_rows[bisect_left(metadata_rows, low) : bisect_left(metadata_rows, high)])
            self._cores = Cores(self._context.table.with_leadership(piece))
            for request in requests.leader_and_isr:
                rows = request.rows[bisect_left(request.rows, low) : bisect_left(request.rows, high)]
                if rows:
                    self._send_leader_and_isr(request, rows, sent.control)
                    await self._clock.sleep(0)
            if metadata is not None:
                self._send_update_metadata(metadata, piece, sent.metadata)
                await self._clock.sleep(0)
        self._cores = None
        for stop_replica in requests.stop_replica:
            self._send_stop_replica(stop_replica, sent.control)
        return sent

    def _send_leader_and_isr(
        self, request: LeaderAndIsrRequest, rows: Sequence[int], acknowledgements: Acknowledgements
    ) -> None:
        def encode(version: int, broker_epoch: int) -> Sequence[Body]:
            return self._leader_and_isr(rows, request.new, version, broker_epoch)

        def encode_current(rows: Sequence[int], new: frozenset[int], version: int, broker_epoch: int) -> Sequence[Body]:
            return self._leader_and_isr(self._rows_on_broker(rows, request.broker), new, version, broker_epoch)

        self._channels.send(
            request.broker,
            ApiKey.LEADER_AND_ISR,
            encode,
            rows,
            acknowledgements.one(request.broker),
            new=request.new.intersection(rows) if request.new else request.new,
            encode_current=encode_current,
        )

    def _leader_and_isr(
        self, rows: Sequence[int], new: frozenset[int], version: int, broker_epoch: int
    ) -> Sequence[Body]:
        context, table = self._context, self._context.table
        if not rows:
            return []
        body = LeaderAndIsrEncoder(
            version,
            controller_id=self._controller_id,
            controller_epoch=context.epoch,
            table=table,
            rows=rows,
            new=new,
            live_leaders=self._live_leaders(),
            kept=self._kept,
            cores=self._cores,
        ).body()
        return [body.pieces_for_broker(broker_epoch)]

    def _send_update_metadata(
        self, request: UpdateMetadataRequest, rows: Sequence[int], acknowledgements: Acknowledgements
    ) -> None:
        shared: dict[int, ControlRequestBody] = {}

        def encode(version: int, broker_epoch: int) -> list[Body]:
            if version not in shared:
                shared[version] = self._update_metadata(rows, version)
            return [shared[version].pieces_for_broker(broker_epoch)]

        def encode_current(rows: Sequence[int], new: frozenset[int], version: int, broker_epoch: int) -> list[Body]:
            return [self._update_metadata(rows, version).pieces_for_broker(broker_epoch)]

        deleting = self._any_topic_is_deleting(rows)
        for broker in request.brokers:
            self._channels.send(
                broker,
                ApiKey.UPDATE_METADATA,
                encode,
                rows,
                acknowledgements.one(broker),
                encode_current=None if deleting else encode_current,
            )

    def _update_metadata(self, rows: Sequence[int], version: int) -> ControlRequestBody:
        context, own = self._context, self._own_entry()
        return UpdateMetadataEncoder(
            version,
            controller_id=self._controller_id,
            controller_epoch=context.epoch,
            table=context.table,
            rows=self._existing_rows(rows),
            live_brokers=[*context.listed(), *([own] if own is not None else [])],
            live=context.live,
            offline_dirs=context.offline_dirs,
            kept=self._kept,
            cores=self._cores,
        ).body()

    def _any_topic_is_deleting(self, rows: Sequence[int]) -> bool:
        """Whether any of the partitions' topics is being deleted.

        Such an UpdateMetadata is never merged: brokers must learn of the deletion, and the rows may be gone by the time
        a merged request is encoded.
        """
        table = self._context.table
        if not table.topics_deleting:
            return False
        topics = table.topics
        return any((topic := topics[n]) is None or topic.deleting for n in set(take(rows, table.topic_of)[0]))

    def _send_stop_replica(self, request: StopReplicaRequest, acknowledgements: Acknowledgements) -> None:
        """Queue a StopReplica.  It names partitions, not rows: a row may be reused before it is sent."""
        context, table = self._context, self._context.table
        named = [
            *(
                StopReplicaPartition(table.topic(row).name, table.index_of[row], epoch, delete)
                for row, epoch, delete in request.partitions
            ),
            *(StopReplicaPartition(debt.topic, debt.partition, epoch, True) for debt, epoch in request.debts),
        ]

        def encode(version: int, broker_epoch: int) -> list[Body]:
            bodies = encode_stop_replica(
                version,
                controller_id=self._controller_id,
                controller_epoch=context.epoch,
                broker_epoch=broker_epoch,
                partitions=named,
            )
            return [(body,) for body in bodies]

        deleted = [row for row, _, delete in request.partitions if delete]
        topics = [table.topic(row) for row in deleted]
        self._channels.send(
            request.broker,
            ApiKey.STOP_REPLICA,
            encode,
            deleted,
            acknowledgements.one(request.broker),
            asked=Deletions(deleted, topics, tuple(debt for debt, _ in request.debts)),
            may_be_given_up=len(deleted) == len(request.partitions)
            and not any(waits_for_all(context, t) for t in topics),
        )

    def _existing_rows(self, rows: Sequence[int]) -> Sequence[int]:
        """``rows`` without those that are no longer in use."""
        topics = take(rows, self._context.table.topic_of)[0]
        return rows if min(topics, default=0) >= 0 else [p for p, t in zip(rows, topics, strict=True) if t >= 0]

    def _rows_on_broker(self, rows: Sequence[int], broker: int) -> Sequence[int]:
        """The rows that are still the broker's: others were freed, reused or held back while the request was queued."""
        table, held = self._context.table, self._context.held_back.get(broker)
        if held:
            rows = [row for row in rows if row not in held]
        topics, assignments, isrs = take(rows, table.topic_of, table.assignment_of, table.isr_of)
        elsewhere = {a for a in set(assignments) if broker not in table.assignments.values[a].replicas}
        if not elsewhere and min(topics, default=0) >= 0 and NO_ISR not in isrs:
            return rows
        states = zip(rows, topics, assignments, isrs, strict=True)
        return [row for row, topic, a, isr in states if topic >= 0 and a not in elsewhere and isr != NO_ISR]

    def _live_leaders(self) -> list[LiveLeader]:
        """The endpoints that followers fetch from: inter-broker listeners, not those of a separate control plane."""
        found = []
        for number, broker in sorted(self._context.brokers.items()):
            endpoint = self._endpoint_among_brokers(broker)
            if endpoint is not None:
                found.append((number, endpoint.host, endpoint.port))
        return found
