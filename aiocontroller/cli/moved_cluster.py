"""The cluster as ``aiocontroller move`` sees it: ZooKeeper, the active controller, and every broker.

Throttles are written to ZooKeeper, as brokers do in this mode.  So they can be removed from a dead broker, too, before
it returns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from aiocontroller.cli.broker_client import ask_sizes
from aiocontroller.cli.controller_client import ask_controller, ask_node, code_name
from aiocontroller.cli.reassign import in_parts
from aiocontroller.config import load_config
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.ids import NO_LEADER, Broker, TopicPartition
from aiocontroller.core.moving import MoveView, Now
from aiocontroller.core.throttles import NAMES, Entity
from aiocontroller.moves.mover import MoverChange
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire import elect_leaders, messages, reassignments
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_tree import ClusterTree, read_cluster_tree
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

SILENCE_S = 5.0
"""How long an answer is waited for; a broker that does not answer counts as taking this long."""
FINE = frozenset({KafkaErrorCode.NONE, KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, KafkaErrorCode.ELECTION_NOT_NEEDED})

Outcomes = Mapping[TopicPartition, tuple[int, str]]


class MovedCluster:
    """See ``moves.mover.Cluster``."""

    def __init__(self, world: World, zk: KafkaZkClient) -> None:
        self._world, self._zk = world, zk
        self._admin = AdminZkClient(zk)
        self._brokers: list[Broker] = []
        config, _ = load_config(None, os.environ)
        self._config, self._security = config, Security(config)

    async def look(self) -> MoveView:
        """Read the cluster, and ask each broker something small to see how busy it is; BadInputError in a migration."""
        tree = await read_cluster_tree(self._zk)
        if tree.migration is not None and tree.migration.controller_id >= 0:
            raise BadInputError(f"{paths.MIGRATION}: the cluster is being migrated to KRaft: move replicas afterwards")
        self._brokers = list(tree.brokers.values())
        return view_of(tree, await self._slowest_answer_ms())

    async def _slowest_answer_ms(self) -> float:
        listener = inter_broker_listener(self._config, self._brokers)
        async with asyncio.TaskGroup() as tasks:
            asking = [
                tasks.create_task(self._answer_ms(broker, listener)) for broker in self._brokers if broker.endpoints
            ]
        return max((task.result() for task in asking), default=0.0)

    async def _answer_ms(self, broker: Broker, listener: str) -> float:
        at = broker.endpoint(listener) or broker.endpoints[0]
        began = self._world.clock.monotonic()
        try:
            async with asyncio.timeout(SILENCE_S):
                await ask_node(
                    self._world,
                    self._security,
                    at,
                    ApiKey.METADATA,
                    lambda version: messages.encode_metadata_request(version, ()),
                    messages.decode_metadata_response,
                )
        except (OSError, FrameError, TimeoutError):
            return SILENCE_S * 1000
        return (self._world.clock.monotonic() - began) * 1000

    async def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[int, Mapping[TopicPartition, int]]:
        """Ask brokers by DescribeLogDirs."""
        return (await ask_sizes(self._world, self._brokers, partitions)).of

    async def check_controller(self) -> None:
        """Send ListPartitionReassignments, which came in the same release, for no partition."""
        await ask_controller(
            self._world,
            self._zk,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda version: reassignments.encode_list_partition_reassignments_request(version, ()),
            reassignments.decode_list_partition_reassignments_response,
            lambda answer: answer.error_code == KafkaErrorCode.NOT_CONTROLLER,
        )

    async def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, str]:
        """Send AlterPartitionReassignments to the controller."""
        refused: dict[TopicPartition, str] = {}
        for part in in_parts(targets):
            answer = await ask_controller(
                self._world,
                self._zk,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                lambda version, part=part: reassignments.encode_alter_partition_reassignments_request(version, part),  # type: ignore[misc]
                reassignments.decode_alter_partition_reassignments_response,
                lambda answer: answer.error_code == KafkaErrorCode.NOT_CONTROLLER,
            )
            refused |= _refused(part, answer.error_code, answer.results)
        return refused

    async def elect(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Send ElectLeaders to the controller."""
        answer = await ask_controller(
            self._world,
            self._zk,
            ApiKey.ELECT_LEADERS,
            lambda version: elect_leaders.encode_elect_leaders_request(version, partitions, 0),
            elect_leaders.decode_elect_leaders_response,
            lambda answer: (
                KafkaErrorCode.NOT_CONTROLLER in (answer.error_code, *(code for code, _ in answer.results.values()))
            ),
        )
        return _refused(partitions, answer.error_code, answer.results)

    async def change(self, entity: Entity, change: MoverChange) -> None:
        """Change the configs in ZooKeeper, and notify the brokers; a topic that is gone is left out."""
        kind, name = entity
        if kind == "topics" and (await self._zk.client.exists_many([paths.topic(name)])).code[0]:
            return

        def changed(present: dict[str, str]) -> dict[str, str]:
            return {key: value for key, value in {**present, **change(present)}.items() if value is not None}

        await self._admin.update_entity_configs(kind, name, changed)


async def cluster_id(zk: KafkaZkClient) -> str | None:
    """The cluster id; None if the cluster has none, or if it cannot be read."""
    try:
        found = await zk.get_cluster_id()
    except exc.NoAuth:
        return None
    return found if isinstance(found, str) else None


def _refused(
    asked: Sequence[TopicPartition] | Mapping[TopicPartition, object], code: int, results: Outcomes
) -> dict[TopicPartition, str]:
    if code:
        return dict.fromkeys(asked, code_name(code))
    return {tp: f"{code_name(code)} {message}".rstrip() for tp, (code, message) in results.items() if code not in FINE}


def view_of(tree: ClusterTree, answer_ms: float) -> MoveView:
    """The view of this tree; topics that are being deleted count as gone."""
    deleting = frozenset(tree.deletions)
    partitions = {}
    for tp, assignment, state in tree.partitions:
        if tp.topic not in deleting:
            leader = NO_LEADER if state is None or state.leader not in tree.live else state.leader
            partitions[tp] = Now(assignment, leader, () if state is None else state.isr)
    throttled: dict[Entity, dict[str, str]] = {}
    for kind, configs in (("topics", tree.topic_configs), ("brokers", tree.broker_configs)):
        for name, settings in configs.items():
            if own := {each: settings[each] for each in NAMES if each in settings}:
                throttled[kind, name] = own
    return MoveView(partitions, tree.live, answer_ms, throttled)
