"""A whole cluster on virtual time that obeys written commands and tells in words what came of each.

The controllers are the real program; ZooKeeper and the network are those in memory, the brokers record what they are
told.  After every command the world runs on for a while; then the stage says, in this order: what the command itself
answered, what brokers were told (brokers that were told the same stand in one line), and what changed in ZooKeeper.

Commands; brokers are numbers, partitions ``t-0``, lists ``1,2,3``:
    brokers 1 2 3 [rack=r]            register; a second time under the same id is another incarnation
    stop-broker 2                     gone at once, with its registration
    bounce-broker 2                   gone and back before the controller has looked
    fail-log-dir 2 t-0                from now on broker 2 answers KAFKA_STORAGE_ERROR for it, and says so in ZooKeeper
    controller [kafka.property=value]
    stop-controller                   the active one hands over
    expire-session                    the active one's
    usurp                             another process raises /controller_epoch
    topic t 1,2,3 2,3,1               one replica list for each partition; partitions to add if the topic exists
    delete-topic t
    topic-config t key=value
    alter-partition 1 t-0 isr=1,2 [leader-epoch=…] [partition-epoch=…] [broker-epoch=…] [recovery=1]
    controlled-shutdown 2 [broker-epoch=…]
    reassign t-0 4,5                  by /admin/reassign_partitions
    prefer t-0                        by /admin/preferred_replica_election
    damage t-0 text                   writes the text into its state znode
    wait 10                           seconds
    status                            of the active controller
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.simulated import SimulatedNetwork, simulated_world
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameReader, decode_response_header, request_frame
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.errors import ZooKeeperError
from tests.integration.controller.harness import Cluster
from tests.recording_broker import Received

SETTLE_S = 1.0
ANSWER_WITHIN_S = 30.0


def listed(word: str) -> list[int]:
    return [int(part) for part in word.split(",")] if word not in ("", "-") else []


def named(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition("-")
    return TopicPartition(topic, int(partition))


def ids(values: Any) -> str:
    return ",".join(map(str, values)) or "-"


def split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Plain words, and those of the form key=value."""
    return [w for w in words if "=" not in w], dict(w.split("=", 1) for w in words if "=" in w)


class Stage:
    def __init__(self) -> None:
        world = simulated_world(SimulatedNetwork(), seed=1)
        self._server = ZooKeeperServer(world)
        self._world = world
        self._shown: dict[str, str] = {}
        self._commands: dict[str, Callable[[list[str]], Awaitable[list[str]]]] = {
            name.removeprefix("do_").replace("_", "-"): getattr(self, name) for name in dir(self) if name[:3] == "do_"
        }

    async def __aenter__(self) -> Stage:
        await self._server.start()
        self.cluster = Cluster(self._world, self._server.address)
        await self.cluster.start()
        self.admin = AdminZkClient(self.cluster.zk)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.close()
        self._server.stop()

    async def obey(self, command: str) -> list[str]:
        """Carry out one command; returns what there is to tell."""
        name, *words = command.split()
        told = await self._commands[name](words)
        await asyncio.sleep(SETTLE_S)
        return [*told, *self._heard(), *await self._changes(), *self._violations()]

    def _violations(self) -> list[str]:
        """Of the core's invariants; a transcript holds none."""
        active = [s for s in self.cluster.services if s.controller.election.active]
        return [f"VIOLATION {found}" for service in active for found in violations(service.shell.context)]

    # -- brokers and controllers -----------------------------------------------------------------------------------

    async def do_brokers(self, words: list[str]) -> list[str]:
        names, options = split(words)
        for name in names:
            await self.cluster.add_broker(int(name), **options)
        return []

    async def do_stop_broker(self, words: list[str]) -> list[str]:
        for name in words:
            await self.cluster.stop_broker(int(name))
        return []

    async def do_bounce_broker(self, words: list[str]) -> list[str]:
        await self.do_stop_broker(words)
        return await self.do_brokers(words)

    async def do_fail_log_dir(self, words: list[str]) -> list[str]:
        broker = int(words[0])
        for name in words[1:]:
            self.cluster.brokers[broker].errors[named(name)] = KafkaErrorCode.KAFKA_STORAGE_ERROR
        await self.cluster.zk.propagate_log_dir_event(broker)
        return []

    async def do_controller(self, words: list[str]) -> list[str]:
        _, options = split(words)
        changes: dict[str, Any] = {"auto_leader_rebalance_enable": False}
        for key, value in options.items():
            changes[key.replace(".", "_")] = value == "true" if value in ("true", "false") else _number_or_text(value)
        await self.cluster.add_controller(**changes)
        return []

    def _active(self) -> Service:
        return next(s for s in self.cluster.services if s.controller.election.active)

    async def do_stop_controller(self, words: list[str]) -> list[str]:
        active = self._active()
        await self.cluster.stop_controller(active)
        self.cluster.services.remove(active)
        return []

    async def do_expire_session(self, words: list[str]) -> list[str]:
        await self._active().client.expire_session_for_test()
        return []

    async def do_usurp(self, words: list[str]) -> list[str]:
        epoch = await self.cluster.zk.get_controller_epoch()
        assert epoch is not None
        await self.cluster.client.set("/controller_epoch", str(epoch[0] + 1).encode(), epoch[1])
        return []

    async def do_status(self, words: list[str]) -> list[str]:
        status = self._active().controller.status()
        shown = ("live_brokers", "topics", "partitions", "offline_partitions", "preferred_replica_imbalance")
        return [f"{key}: {status[key]}" for key in shown]

    async def do_wait(self, words: list[str]) -> list[str]:
        await asyncio.sleep(float(words[0]) - SETTLE_S)
        return []

    # -- topics ----------------------------------------------------------------------------------------------------

    async def do_topic(self, words: list[str]) -> list[str]:
        name, *lists = words
        present = (await self.cluster.zk.get_topic_assignments([name], watch=False)).found
        if present:
            first = len(present[0].partitions)
            await self.admin.add_partitions(name, {first + n: listed(word) for n, word in enumerate(lists)})
        else:
            await self.admin.create_topic(name, {n: listed(word) for n, word in enumerate(lists)})
        return []

    async def do_delete_topic(self, words: list[str]) -> list[str]:
        await self.admin.delete_topic(words[0])
        return []

    async def do_topic_config(self, words: list[str]) -> list[str]:
        (name,), configs = split(words)
        await self.admin.change_topic_configs(name, configs)
        return []

    async def do_reassign(self, words: list[str]) -> list[str]:
        moves = {named(name): listed(target) for name, target in zip(words[::2], words[1::2], strict=True)}
        entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": r} for tp, r in moves.items()]
        await self._create("/admin/reassign_partitions", {"version": 1, "partitions": entries})
        return []

    async def do_prefer(self, words: list[str]) -> list[str]:
        entries = [named(name)._asdict() for name in words]
        await self._create("/admin/preferred_replica_election", {"version": 1, "partitions": entries})
        return []

    async def do_damage(self, words: list[str]) -> list[str]:
        tp = named(words[0])
        await self.cluster.client.set(_state_path(tp), " ".join(words[1:]).encode(), -1)
        return []

    async def _create(self, path: str, content: object) -> None:
        await self.cluster.client.create(path, data=msgspec.json.encode(content))

    # -- requests --------------------------------------------------------------------------------------------------

    async def do_alter_partition(self, words: list[str]) -> list[str]:
        (broker, name), options = split(words)
        tp = named(name)
        (now,) = await self.cluster.zk.get_topic_partition_states([tp.topic], [tp.partition])
        assert isinstance(now, LeaderAndIsr)
        topic = (await self.cluster.zk.get_topic_assignments([tp.topic], watch=False)).found[0]
        asked = {
            "partition_index": tp.partition,
            "leader_epoch": int(options.get("leader-epoch", now.leader_epoch)),
            "new_isr_with_epochs": [{"broker_id": b, "broker_epoch": -1} for b in listed(options["isr"])],
            "leader_recovery_state": int(options.get("recovery", 0)),
            "partition_epoch": int(options.get("partition-epoch", now.partition_epoch)),
        }
        answer = await self._ask(
            ApiKey.ALTER_PARTITION,
            3,
            broker_id=int(broker),
            broker_epoch=self._broker_epoch(int(broker), options),
            topics=[{"topic_id": UUID(bytes=topic.topic_id), "partitions": [asked]}],
        )
        if answer.error_code:
            return [f"answer: {KafkaErrorCode(answer.error_code).name}"]
        (result,) = answer.topics[0].partitions
        if result.error_code:
            return [f"answer: {name} {KafkaErrorCode(result.error_code).name}"]
        return [
            f"answer: {name} leader {result.leader_id} epoch {result.leader_epoch} isr {ids(result.isr)} "
            f"version {result.partition_epoch}"
        ]

    async def do_controlled_shutdown(self, words: list[str]) -> list[str]:
        (broker,), options = split(words)
        epoch = self._broker_epoch(int(broker), options)
        answer = await self._ask(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=int(broker), broker_epoch=epoch)
        if answer.error_code:
            return [f"answer: {KafkaErrorCode(answer.error_code).name}"]
        remaining = [f"{p.topic_name}-{p.partition_index}" for p in answer.remaining_partitions]
        return [f"answer: still leads {' '.join(remaining) or 'nothing'}"]

    def _broker_epoch(self, broker: int, options: dict[str, str]) -> int:
        known = self.cluster.brokers.get(broker)
        return int(options.get("broker-epoch", known.epoch if known is not None else 0))

    async def _ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """One request to the active controller's listener, and its answer."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        endpoint = self._active().endpoints[0]
        transport, _ = await self._world.network.connect(
            lambda: _Asking(answered), endpoint.host, endpoint.port, timeout_s=ANSWER_WITHIN_S
        )
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        transport.writelines(request_frame(api, version, 1, "stage", body))
        frame = await asyncio.wait_for(answered, ANSWER_WITHIN_S)
        transport.close()
        _, answer = decode_response_header(api, version, frame)
        return cold.decode_response(api, version, answer)

    # -- what came of it -------------------------------------------------------------------------------------------

    def _heard(self) -> list[str]:
        by_text: dict[tuple[str, ...], list[int]] = {}
        for number, broker in sorted(self.cluster.brokers.items()):
            heard = tuple(_request(received) for received in broker.take())
            by_text.setdefault(heard, []).append(number)
        return [f"{ids(brokers)} < {line}" for heard, brokers in by_text.items() for line in heard]

    async def _changes(self) -> list[str]:
        now = await self._zookeeper()
        changed = [f"zk {key}: {value}" for key, value in now.items() if self._shown.get(key) != value]
        gone = [f"zk {key}: gone" for key in self._shown if key not in now]
        self._shown = now
        return changed + gone

    async def _zookeeper(self) -> dict[str, str]:
        found: dict[str, str] = {}
        zk, read = self.cluster.zk, self.cluster.client.get_many
        epoch = await zk.get_controller_epoch()
        if epoch is not None:
            found["controller epoch"] = str(epoch[0])
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            (data,) = (await read([path])).data
            if data is not None:
                found[path] = data.decode()
        for topic in await zk.get_topic_deletions(watch=False):
            found[f"/admin/delete_topics/{topic}"] = "queued"
        for a in (await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)).found:
            for number, replicas in sorted(a.partitions.items()):
                (state,) = await zk.get_topic_partition_states([a.topic], [number])
                moving = f" adding {ids(replicas.adding)} removing {ids(replicas.removing)}"
                found[f"{a.topic}-{number}"] = (
                    f"replicas {ids(replicas.replicas)}{moving if replicas.being_reassigned else ''}, {_state(state)}"
                )
        return found


class _Asking(asyncio.Protocol):
    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered
        self._reader = FrameReader()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self._answered.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(ZooKeeperError("the controller closed the connection"))


def _number_or_text(value: str) -> int | str:
    return int(value) if value.lstrip("-").isdecimal() else value


def _state_path(tp: TopicPartition) -> str:
    return f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"


def _state(state: Any) -> str:
    if state is None:
        return "never led"
    if not isinstance(state, LeaderAndIsr):
        return "damaged"
    recovering = " recovering" if state.recovery_state else ""
    return (
        f"leader {state.leader} epoch {state.leader_epoch} isr {ids(state.isr)}{recovering} "
        f"(controller epoch {state.controller_epoch}, version {state.partition_epoch})"
    )


def _request(received: Received) -> str:
    """One line; what is the same in every request (controller, broker epochs, endpoints) is left out."""
    request, epoch = received.request, f"by {received.request.controller_epoch}"
    match received.api:
        case ApiKey.LEADER_AND_ISR:
            told = [_leadership(t.topic_name, p) for t in request.topic_states for p in t.partition_states]
            return f"LeaderAndIsr {epoch}: {'; '.join(told)}"
        case ApiKey.UPDATE_METADATA:
            told = [_metadata(t.topic_name, p) for t in request.topic_states for p in t.partition_states]
            live = [b.id_ for b in request.live_brokers if b.id_ != request.controller_id]
            return f"UpdateMetadata {epoch}, live {ids(live)}: {'; '.join(told) or 'no partitions'}"
        case _:
            told = [
                f"{t.topic_name}-{p.partition_index} epoch {p.leader_epoch}{' delete' if p.delete_partition else ''}"
                for t in request.topic_states
                for p in t.partition_states
            ]
            return f"StopReplica {epoch}: {'; '.join(told)}"


def _leadership(topic: str, p: Any) -> str:
    recovering = " recovering" if p.leader_recovery_state else ""
    moving = f" adding {ids(p.adding_replicas)} removing {ids(p.removing_replicas)}"
    return (
        f"{topic}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch} isr {ids(p.isr)}{recovering}"
        f"{moving if p.adding_replicas or p.removing_replicas else ''}{' new' if p.is_new else ''}"
    )


def _metadata(topic: str, p: Any) -> str:
    offline = f" offline {ids(p.offline_replicas)}" if p.offline_replicas else ""
    return f"{topic}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch} isr {ids(p.isr)}{offline}"
