"""Plays a controller's conversation with a broker of some release, and records it, so that brokers can be compared.

The broker has id 1, a plaintext listener on loopback, and obeys a hand-made controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiocontroller.core.ids import Broker, LeaderAndIsr
from aiocontroller.lab.cluster.generations import Generation, TopicIds
from aiocontroller.lab.cluster.generations import Protocol as KafkaProtocol
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import encode_partition_states
from tests.integration.lab.cluster.by_hand import CONTROLLER_ID, ControllerByHand, eventually, new_isr

T, U, W = b"T" * 16, b"U" * 16, b"W" * 16
NONE = bytes(16)
Answers = list[tuple[str, Any]]
WITHIN_S = 60.0
SETTINGS = (
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "control.plane.listener.name",
    "create.topic.policy.class.name",
    "default.replication.factor",
    "delete.topic.enable",
    "inter.broker.listener.name",
    "inter.broker.protocol.version",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
    "min.insync.replicas",
    "principal.builder.class",
    "security.inter.broker.protocol",
    "ssl.principal.mapping.rules",
    "unclean.leader.election.enable",
    "there.is.no.such.setting",
)


class Subject(Protocol):
    """The broker, as a process or simulated in this one."""

    async def start(self) -> None: ...

    def directories(self) -> list[str]:
        """Return the partitions for which it has a directory: ``t-0``."""

    async def lose_directory_of(self, topic: str, partition: int) -> None:
        """Let its log directory fail; return when the broker has noticed it."""

    async def stop(self) -> None:
        """Do a controlled shutdown; return when the broker has ended."""

    async def kill(self) -> None: ...


class Conversation:
    """Sends requests to the broker, and records its answers."""

    def __init__(self, controller: ControllerByHand, broker: Broker, subject: Subject, client: ZooKeeperClient) -> None:
        self.controller, self.broker, self.subject, self.client = controller, broker, subject, client
        self.zk = KafkaZkClient(client)
        self.answers = Answers()
        self.epoch = 3

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        return cold.decode_response(api, version, await self.controller.send(api, version, self.broker, body))

    def note(self, what: str, answer: Any) -> None:
        self.answers.append((what, answer))

    async def note_refused(self, what: str, asking: Awaitable[Any]) -> None:
        """Await an answer, and record that the broker closes the connection instead."""
        try:
            await asking
        except OSError:
            self.note(what, "connection closed")

    def head(self, incarnation: int = 0) -> dict[str, Any]:
        """Return a request's common fields; ``incarnation`` is added to the broker's own broker epoch."""
        epoch = self.broker.epoch + incarnation
        return {"controller_id": CONTROLLER_ID, "controller_epoch": self.epoch, "broker_epoch": epoch}

    async def update_metadata(self, what: str, version: int, *states: dict[str, Any], **head: Any) -> None:
        endpoint, port = self.broker.endpoints[0], self.controller.port
        me = {"id_": 1, "v0_host": endpoint.host, "v0_port": endpoint.port, "endpoints": [_endpoint(endpoint.port)]}
        ours = {"id_": CONTROLLER_ID, "v0_host": "127.0.0.1", "v0_port": port, "endpoints": [_endpoint(port)]}
        named = [{("zk_version" if k == "partition_epoch" else k): v for k, v in each.items()} for each in states]
        partitions = [{"topic_name": "t", **each} for each in named]
        grouped = [{"topic_name": "t", "topic_id": T, "partition_states": named}] if states else []
        where = {"topic_states": grouped} if version >= 5 else {"ungrouped_partition_states": partitions}
        answer = await self.ask(ApiKey.UPDATE_METADATA, version, **self.head(**head), live_brokers=[me, ours], **where)
        self.note(f"update metadata {version}: {what}", int(answer.error_code))

    async def leader_and_isr(
        self, what: str, version: int, topics: list[tuple[str, bytes, list[dict[str, Any]]]], **head: Any
    ) -> None:
        if version < 2:
            where = {"ungrouped_partition_states": [{"topic_name": t, **s} for t, _, states in topics for s in states]}
        else:
            where = {"topic_states": [{"topic_name": t, "topic_id": i, "partition_states": s} for t, i, s in topics]}
        answer = await self.ask(ApiKey.LEADER_AND_ISR, version, **self.head(**head), **where)
        if version >= 5:
            codes = sorted(
                (each.topic_id.bytes if each.topic_id else NONE, p.partition_index, int(p.error_code))
                for each in answer.topics
                for p in each.partition_errors
            )
        else:
            codes = sorted((p.topic_name, p.partition_index, int(p.error_code)) for p in answer.partition_errors)
        self.note(f"leader and isr {version}: {what}", (int(answer.error_code), codes))

    async def stop_replica(
        self, what: str, version: int, epoch: int, delete: bool, topic: str = "t", **head: Any
    ) -> None:
        where: dict[str, Any]
        if version == 0:
            where = {"ungrouped_partitions": [{"topic_name": topic, "partition_index": 0}]}
        elif version <= 2:
            where = {"topics": [{"name": topic, "partition_indexes": (0,)}]}
        else:
            state = {"partition_index": 0, "leader_epoch": epoch, "delete_partition": delete}
            where = {"topic_states": [{"topic_name": topic, "partition_states": [state]}]}
        if version <= 2:
            where["delete_partitions"] = delete
        answer = await self.ask(ApiKey.STOP_REPLICA, version, **self.head(**head), **where)
        codes = [(p.topic_name, p.partition_index, int(p.error_code)) for p in answer.partition_errors]
        self.note(f"stop replica {version}: {what}", (int(answer.error_code), codes, self.subject.directories()))

    async def metadata(self, what: str, version: int, **fields: Any) -> None:
        answer = await self.ask(ApiKey.METADATA, version, allow_auto_topic_creation=False, **fields)
        brokers = sorted((b.node_id, b.host, getattr(b, "rack", None)) for b in answer.brokers)
        topics = sorted(
            (
                int(t.error_code),
                t.name,
                t.topic_id.bytes if getattr(t, "topic_id", None) else NONE,
                sorted(
                    (
                        int(p.error_code),
                        p.partition_index,
                        p.leader_id,
                        getattr(p, "leader_epoch", None),
                        p.replica_nodes,
                        p.isr_nodes,
                        getattr(p, "offline_replicas", None),
                    )
                    for p in t.partitions
                ),
            )
            for t in answer.topics
        )
        self.note(f"metadata {version}: {what}", (brokers, getattr(answer, "controller_id", None), topics))

    async def settings(self, version: int) -> None:
        asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": SETTINGS}
        answer = await self.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[asked])
        (result,) = answer.results
        configs = {c.name: (c.value, getattr(c, "config_source", None)) for c in result.configs}
        self.note(f"describe configs {version}", (int(result.error_code), configs))


def _endpoint(port: int) -> dict[str, Any]:
    return {"port": port, "host": "127.0.0.1", "listener": "PLAINTEXT", "security_protocol": 0}


def state(
    leader: int, epoch: int, *, replicas: tuple[int, ...] = (1, 2), partition: int = 0, version: int = 0
) -> dict[str, Any]:
    """Return a partition's state; ``version`` is the partition epoch."""
    return {
        "partition_index": partition,
        "controller_epoch": 3,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": replicas,
        "replicas": replicas,
        "partition_epoch": version,
    }


async def hold(c: Conversation, generation: Generation) -> None:
    """Play everything, except what depends on the inter-broker protocol."""
    c.note("registration", registration(await c.client.get_many([paths.broker_id(1)])))
    await ask_what_it_offers(c, generation)
    await send_leaders(c, generation)
    await send_metadata(c, generation)
    await stop_replicas(c, generation)


def registration(reads: Any) -> Any:
    import json

    znode = json.loads(reads.data[0])
    return {key: value for key, value in znode.items() if key not in ("timestamp", "port", "endpoints")}


async def ask_what_it_offers(c: Conversation, g: Generation) -> None:
    newest = g.offered[ApiKey.API_VERSIONS].max
    for version in range(newest + 2):
        written = min(version, cold.SUPPORTED[ApiKey.API_VERSIONS].max)
        asked = cold.request(ApiKey.API_VERSIONS, written, client_software_name="t", client_software_version="1")
        body = cold.encode_request(ApiKey.API_VERSIONS, written, asked)
        spoken = version if version <= newest else 0
        answer = await c.controller.send_as(ApiKey.API_VERSIONS, version, c.broker, body, answered_in=spoken)
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        c.note(f"api versions {version}", (int(answer.error_code), [offered.get(int(key)) for key in g.offered]))
    for version in range(g.offered[ApiKey.DESCRIBE_CONFIGS].max + 1):
        await c.settings(version)
    for api in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA):
        if g.offered[api].max < cold.SUPPORTED[api].max:
            await c.note_refused(f"{api.name} of a later release", c.ask(api, g.offered[api].max + 1, **c.head()))


async def send_leaders(c: Conversation, g: Generation) -> None:
    top = g.offered[ApiKey.LEADER_AND_ISR].max
    newest_metadata = g.offered[ApiKey.UPDATE_METADATA].max
    await c.update_metadata("of an older incarnation", newest_metadata, incarnation=-1)
    await c.update_metadata("of a later incarnation", newest_metadata, incarnation=1)
    for version in range(newest_metadata + 1):
        await c.update_metadata("nothing but brokers", version)
    await c.leader_and_isr("of an older incarnation", top, [("t", T, [state(1, 5)])], incarnation=-1)
    await c.leader_and_isr("of a later incarnation", top, [("t", T, [state(1, 5)])], incarnation=1)
    await c.leader_and_isr("first", top, [("t", T, [state(1, 5)])])
    await c.leader_and_isr("not its own", top, [("w", W, [state(2, 5, replicas=(2, 3))])])
    await c.leader_and_isr("not its own, again", top, [("w", W, [state(2, 6, replicas=(2, 3))])])
    await c.leader_and_isr("its own after all", top, [("w", W, [state(1, 7)])])
    for version in range(top + 1):
        await c.leader_and_isr("equal", version, [("t", T, [state(1, 5 + version)])])
        await c.leader_and_isr("older", version, [("t", T, [state(1, 4)])])
        await c.leader_and_isr("newer", version, [("t", T, [state(1, 6 + version)])])
    await c.leader_and_isr("another id", top, [("t", U, [state(1, 20)])])
    await c.leader_and_isr("another id, older", top, [("t", U, [state(1, 2)])])
    await c.leader_and_isr("no id, newer", top, [("t", NONE, [state(1, 30)])])
    await c.leader_and_isr("no id, equal", top, [("t", NONE, [state(1, 30)])])
    await c.leader_and_isr("id again", top, [("t", T, [state(1, 30)])])
    await c.leader_and_isr("follows, equal", top, [("t", T, [state(2, 30)])])
    await c.leader_and_isr("follows without an id, equal", top, [("t", NONE, [state(2, 30)])])
    named = min(4, top)
    await c.leader_and_isr("u without an id", named, [("u", NONE, [state(1, 1)])])
    await c.leader_and_isr("u gets its id from an older one", top, [("u", U, [state(1, 0)])])
    await c.leader_and_isr("u gets another id", top, [("u", W, [state(1, 1)])])
    await c.leader_and_isr("u gets its id", top, [("u", U, [state(1, 1)])])
    await c.leader_and_isr("u has its id", top, [("u", U, [state(1, 1)])])
    await c.leader_and_isr("follower of a dead broker", top, [("t", T, [state(2, 31)])])
    await c.leader_and_isr("follower of a dead broker, again", top, [("t", T, [state(2, 31)])])
    await c.leader_and_isr("no leader", top, [("t", T, [state(-1, 32)])])
    await c.leader_and_isr("no leader before", top, [("t", T, [state(1, 31)])])
    if g.topic_ids is not TopicIds.IN_PASSING:  # 2.8 never answers this one
        await c.leader_and_isr("a topic twice", top, [("t", T, [state(1, 33)]), ("t", T, [state(1, 33, partition=1)])])
    await c.leader_and_isr("two partitions", top, [("t", T, [state(1, 34), state(1, 34, partition=1)])])
    await c.leader_and_isr("version 5", top, [("t", T, [state(1, 35, version=5)])])
    await c.leader_and_isr("version 4 in a later epoch", top, [("t", T, [state(1, 36, version=4)])])
    await c.leader_and_isr("was that taken", top, [("t", T, [state(1, 36, version=5)])])
    c.note("directories", c.subject.directories())


async def send_metadata(c: Conversation, g: Generation) -> None:
    top, newest = g.offered[ApiKey.METADATA].max, g.offered[ApiKey.UPDATE_METADATA].max
    deleted = {**state(-2, 0, partition=1)}
    await c.update_metadata("two partitions", newest, state(1, 34), state(2, 34, partition=1))
    for version in range(top + 1):
        await c.metadata("one led by a dead broker", version, topics=None if version else [])
    await c.metadata("named", min(9, top), topics=[{"name": "t"}, {"name": "no"}])
    if top >= 12:
        await c.metadata("by id", 12, topics=[{"topic_id": T, "name": None}, {"topic_id": b"N" * 16, "name": None}])
    await c.metadata("none", top, topics=[])
    await c.update_metadata("an older version, without topic ids", min(newest, 6), state(1, 35))
    await c.metadata("has it its id", top, topics=[{"name": "t"}])
    await c.update_metadata("deletes one", newest, deleted)
    await c.metadata("one left", top, topics=[{"name": "t"}])


async def stop_replicas(c: Conversation, g: Generation) -> None:
    top, leading = g.offered[ApiKey.STOP_REPLICA].max, g.offered[ApiKey.LEADER_AND_ISR].max
    c.epoch = 2
    await c.update_metadata("of an older controller", g.offered[ApiKey.UPDATE_METADATA].max)
    await c.leader_and_isr("of an older controller", leading, [("t", T, [state(1, 50)])])
    await c.leader_and_isr("of an older controller", min(4, leading), [("t", T, [state(1, 50)])])
    await c.stop_replica("of an older controller", top, 50, True)
    c.epoch = 3
    await c.leader_and_isr("at 60", leading, [("t", T, [state(1, 60, version=9)])])
    await c.stop_replica("of an older incarnation", top, 60, True, incarnation=-1)
    await c.stop_replica("of a later incarnation", top, 60, False, incarnation=1)
    for delete in (False, True):
        await c.stop_replica(f"older leader epoch, delete {delete}", top, 59, delete)
        await c.stop_replica(f"equal, delete {delete}", top, 60, delete)
        await c.leader_and_isr("is it there", leading, [("t", T, [state(1, 60, version=9)])])
        await c.stop_replica(f"above, delete {delete}", top, 61, delete)
        await c.leader_and_isr("is it there", leading, [("t", T, [state(1, 60, version=9)])])
    await c.stop_replica("unknown", top, 3, True, topic="unknown")
    for version in range(top + 1):
        await c.stop_replica("delete", version, -2, True)
        await c.leader_and_isr(f"after deletion {version}", leading, [("t", T, [state(1, version, version=version)])])


async def change_isrs(c: Conversation, generation: Generation, protocol: KafkaProtocol) -> None:
    """Let a leader whose follower never fetches shrink the ISR, by request or by ZooKeeper."""
    top = (
        generation.offered[ApiKey.LEADER_AND_ISR].max
        if protocol.topic_ids
        else min(4, generation.offered[ApiKey.LEADER_AND_ISR].max)
    )
    newest = generation.offered[ApiKey.UPDATE_METADATA].max
    await c.update_metadata("brokers", newest)
    topic_id = T if protocol.topic_ids else NONE

    async def lead(partition: int, version: int = 0) -> None:
        await c.leader_and_isr("leads", top, [("t", topic_id, [state(1, 5, partition=partition, version=version)])])

    if protocol.isr_by_alter_partition:
        await shrink_by_request(c, lead)
        return
    await shrink_by_zookeeper(c, lead)


REFUSALS = {1: 55, 2: 107, 3: 3, 4: 95}
"""Partition -> OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA, UNKNOWN_TOPIC_OR_PARTITION, INVALID_UPDATE_VERSION."""


async def shrink_by_request(c: Conversation, lead: Callable[..., Awaitable[None]]) -> None:
    """Record whether a refused broker asks again or waits for another request, once partition 6 has asked."""
    c.controller.refused = REFUSALS

    def asked() -> list[Any]:
        return [asked for each in c.controller.asked for asked in altered(*each)]

    async def until_asked(partition: int) -> None:
        await eventually(lambda: partition in {each[2] for each in asked()}, WITHIN_S)

    for partition in (0, *REFUSALS, 5, 6):  # one per request: 2.8 ignores what follows some refusals in an answer
        await lead(partition)
        await until_asked(partition)
    c.note("asked", sorted(set(asked())))
    c.note("asked again", sorted({each[2] for each in asked() if asked().count(each) > 1}))


def altered(api: ApiKey, version: int, request: Any) -> list[Any]:
    """Return (version, topic, partition, leader epoch, ISR, partition epoch, recovery state) of each partition."""
    if api is not ApiKey.ALTER_PARTITION:
        return []
    return [
        (
            version,
            topic.topic_id.bytes if version >= 2 else topic.topic_name,
            p.partition_index,
            p.leader_epoch,
            new_isr(version, p),
            p.partition_epoch,
            getattr(p, "leader_recovery_state", None),
            request.broker_id,
        )
        for topic in request.topics
        for p in topic.partitions
    ]


async def shrink_by_zookeeper(c: Conversation, lead: Callable[..., Awaitable[None]]) -> None:
    """Give partition 1's znode another version than its leader is told.  Later it gets that version: a leader that
    retries succeeds then."""
    full = LeaderAndIsr(1, 5, (1, 2), 2, 0)
    for partition in range(4):
        path = paths.topic_partition_state("t", partition)
        await c.client.ensure_path(path)
        await c.client.set_many([path], encode_partition_states([full]), [-1])

    async def states() -> list[Any]:
        return await c.zk.get_topic_partition_states(["t"] * 4, list(range(4)))

    async def shrunk(partition: int) -> bool:
        return len((await states())[partition].isr) == 1

    async def until_shrunk(partition: int) -> None:
        await eventually(lambda: shrunk(partition), WITHIN_S)

    await lead(1, version=7)
    await lead(0, version=1)
    await until_shrunk(0)
    await lead(2, version=1)  # at least a round later, so that partition 1 has been tried
    await until_shrunk(2)
    path = paths.topic_partition_state("t", 1)
    for _ in range(6):
        await c.client.set_many([path], encode_partition_states([full]), [-1])
    await lead(3, version=1)
    await until_shrunk(3)
    c.note("states", [(s.leader, s.leader_epoch, s.isr, s.controller_epoch, s.partition_epoch) for s in await states()])

    async def notified() -> set[int]:
        names = await c.zk.get_all_isr_change_notifications(watch=False)
        partitions, bad = await c.zk.get_partitions_from_isr_change_notifications(names)
        assert not bad
        return {each.partition for each in partitions}

    shrank = {n for n, each in enumerate(await states()) if len(each.isr) == 1}

    async def all_notified() -> bool:
        return await notified() >= shrank

    await eventually(all_notified, WITHIN_S)
    c.note("notified", sorted(await notified()))


async def lose_a_directory(c: Conversation, generation: Generation) -> None:
    """Lose a directory: the controller learns that by ZooKeeper, and the partitions by the answers to its requests."""
    leading, stopping = generation.offered[ApiKey.LEADER_AND_ISR].max, generation.offered[ApiKey.STOP_REPLICA].max
    await c.update_metadata("brokers", generation.offered[ApiKey.UPDATE_METADATA].max)
    await c.leader_and_isr("d", leading, [("d", U, [state(1, 5)])])
    await c.subject.lose_directory_of("d", 0)
    names = await c.zk.get_all_log_dir_event_notifications(watch=False)
    c.note("told by", await c.zk.get_brokers_from_log_dir_event_notifications(names))
    await c.leader_and_isr("d again", leading, [("d", U, [state(1, 5)])])
    await c.leader_and_isr("d later", leading, [("d", U, [state(1, 6)])])
    answer = await c.ask(
        ApiKey.STOP_REPLICA,
        stopping,
        **c.head(),
        ungrouped_partitions=[{"topic_name": "d", "partition_index": 0}],
        topics=[{"name": "d", "partition_indexes": (0,)}],
        topic_states=[
            {
                "topic_name": "d",
                "partition_states": [{"partition_index": 0, "leader_epoch": -2, "delete_partition": True}],
            }
        ],
        delete_partitions=True,
    )
    codes = [(p.topic_name, p.partition_index, int(p.error_code)) for p in answer.partition_errors]
    c.note("stop replica on a lost directory", (int(answer.error_code), codes))


async def end(c: Conversation) -> None:
    """Stop the broker, and record whether it finds a controller to ask for a controlled shutdown."""
    await c.subject.stop()
    asked = [(version, r.broker_id) for api, version, r in c.controller.asked if api is ApiKey.CONTROLLED_SHUTDOWN]
    c.note("controlled shutdown", asked)
