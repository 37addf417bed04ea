"""A whole cluster on virtual time that plays the lines of a scenario and tells in words what came of each.

The controllers are the real program; ZooKeeper and the network are those in memory, the brokers record what they
receive.  After every line the world runs on for a while; then the cluster says, in this order: what was answered, what
brokers received (brokers that received the same stand in one line), and what changed in ZooKeeper.

Verbs are those of ``lab.scenarios.verbs``, here the methods ``step_VERB``.  ``start-broker`` takes ``rack=``, and
``start-controller`` settings of Kafka, as ``kafka.property=value``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.lab.cluster.asking import ask
from aiocontroller.lab.recording_brokers.recording_broker import Received
from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.scenarios.facts import Facts, judge
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import Line, method_of, parse_line
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.controller.harness import Cluster

SETTLE_S = 1.0
REQUEST_TIMEOUT_MS = 15_000


def ids(values: Any) -> str:
    return ",".join(map(str, values)) or "-"


class RecordedCluster:
    def __init__(self) -> None:
        world = simulated_world(SimulatedNetwork(), seed=1)
        self._server = ZooKeeperServer(world)
        self._world = world
        self._shown: dict[str, str] = {}

    async def __aenter__(self) -> RecordedCluster:
        await self._server.start()
        self.cluster = Cluster(self._world, self._server.address)
        await self.cluster.start()
        self.admin = AdminZkClient(self.cluster.zk)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.close()
        self._server.stop()

    async def play(self, text: str) -> list[str]:
        """Play one line; returns what there is to tell."""
        line = parse_line(text)
        method = getattr(self, method_of(line.verb), None)
        if method is None:
            raise StepArgumentError(f"{text}: found a verb that transcripts do not play (docs/scenarios.md)")
        answered: list[str] = await method(line) or []
        await asyncio.sleep(SETTLE_S)
        return [*answered, *self._heard(), *await self._changes(), *self._violations()]

    def _violations(self) -> list[str]:
        """Of the core's invariants; a transcript holds none."""
        active = [s for s in self.cluster.services if s.controller.election.active]
        return [f"VIOLATION {found}" for service in active for found in violations(service.shell.context)]

    # -- brokers and controllers -----------------------------------------------------------------------------------

    async def step_start_broker(self, line: Line) -> None:
        options = {name: value for name, value in line.given.items() if name != "brokers"}
        for broker in line.given["brokers"]:
            await self.cluster.add_broker(broker, **options)

    async def step_kill_broker(self, line: Line) -> None:
        for broker in line.given["brokers"]:
            await self.cluster.kill_broker(broker)

    async def step_stop_broker(self, line: Line) -> list[str]:
        answers = []
        for broker in line.given["brokers"]:
            answers += await self._controlled_shutdown(Given(broker=broker))
        await self.step_kill_broker(line)
        return answers

    async def step_bounce_broker(self, line: Line) -> None:
        await self.step_kill_broker(line)
        await self.step_start_broker(line)

    async def step_fail_log_dir(self, line: Line) -> None:
        broker = line.given["broker"]
        for partition in line.given["partitions"]:
            self.cluster.brokers[broker].errors[partition] = KafkaErrorCode.KAFKA_STORAGE_ERROR
        await self.cluster.zk.propagate_log_dir_event(broker)

    async def step_start_controller(self, line: Line) -> None:
        changes: dict[str, Any] = {"auto_leader_rebalance_enable": False}
        for key, value in line.given.get("options", {}).items():
            changes[key.replace(".", "_")] = value == "true" if value in ("true", "false") else _number_or_text(value)
        await self.cluster.add_controller(**changes)

    def _active(self) -> Service:
        return next(s for s in self.cluster.services if s.controller.election.active)

    async def step_stop_controller(self, line: Line) -> None:
        active = self._active()
        await self.cluster.stop_controller(active)
        self.cluster.services.remove(active)

    async def step_expire_controller(self, line: Line) -> None:
        await expire_session(self._active().client)

    async def step_delete_controller_znode(self, line: Line) -> None:
        await self.cluster.client.delete(paths.CONTROLLER)

    async def step_rewrite_controller_epoch(self, line: Line) -> None:
        epoch = await self.cluster.zk.get_controller_epoch()
        assert epoch is not None
        value = line.given.get("number", epoch[0] + 1)
        await self.cluster.client.set(paths.CONTROLLER_EPOCH, str(value).encode(), epoch[1])

    async def step_status(self, line: Line) -> list[str]:
        status = self._active().controller.status()
        shown = ("live_brokers", "topics", "partitions", "offline_partitions", "preferred_replica_imbalance")
        return [f"{key}: {status[key]}" for key in shown]

    async def step_wait(self, line: Line) -> None:
        await asyncio.sleep(line.given["seconds"] - SETTLE_S)

    async def step_expect(self, line: Line) -> list[str]:
        """The world has settled, so the fact holds now or not at all."""
        wrong = judge(line.given["fact"], await self._facts())
        return [] if wrong is None else [f"VIOLATION {wrong}"]

    # -- topics ----------------------------------------------------------------------------------------------------

    async def step_create_topic(self, line: Line) -> None:
        await self.admin.create_topic(line.given["topic"], dict(enumerate(line.given["placed"])))

    async def step_add_partitions(self, line: Line) -> None:
        name = line.given["topic"]
        (present,) = (await self.cluster.zk.get_topic_assignments([name], watch=False)).found
        first = len(present.partitions)
        await self.admin.add_partitions(name, dict(enumerate(line.given["placed"], first)))

    async def step_delete_topic(self, line: Line) -> None:
        await self.admin.delete_topic(line.given["topic"])

    async def step_allow_unclean(self, line: Line) -> None:
        change = {"unclean.leader.election.enable": line.given.get("value", "true")}
        await self.admin.change_topic_configs(line.given["topic"], change)

    async def step_alter_topic_configs(self, line: Line) -> None:
        await self.admin.change_topic_configs(line.given["topic"], dict(line.given["settings"]))

    async def step_reassign(self, line: Line) -> list[str]:
        return await self._reassign(dict(line.given["moves"]))

    async def step_cancel_reassignment(self, line: Line) -> list[str]:
        return await self._reassign(dict.fromkeys(line.given["partitions"]))

    async def _reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> list[str]:
        topics = [
            {"name": tp.topic, "partitions": [{"partition_index": tp.partition, "replicas": to}]}
            for tp, to in targets.items()
        ]
        asked = {"timeout": REQUEST_TIMEOUT_MS, "topics": topics}
        answer = await self._ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, **asked)
        codes = ((f"{t.name}-{p.partition_index}", p.error_code) for t in answer.responses for p in t.partitions)
        return _refusals(answer.error_code, codes)

    async def step_reassign_by_znode(self, line: Line) -> None:
        moves = line.given["moves"]
        entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": to} for tp, to in moves]
        await self._create("/admin/reassign_partitions", {"version": 1, "partitions": entries})

    async def step_elect_preferred(self, line: Line) -> list[str]:
        return await self._elect(0, line)

    async def step_elect_unclean(self, line: Line) -> list[str]:
        return await self._elect(1, line)

    async def _elect(self, kind: int, line: Line) -> list[str]:
        topics = [{"topic": tp.topic, "partitions": (tp.partition,)} for tp in line.given["partitions"]]
        asked = {"election_type": kind, "topic_partitions": topics, "timeout": REQUEST_TIMEOUT_MS}
        answer = await self._ask(ApiKey.ELECT_LEADERS, 2, **asked)
        results = answer.replica_election_results
        codes = ((f"{t.topic}-{p.partition_id}", p.error_code) for t in results for p in t.partition_result)
        return _refusals(answer.error_code, codes)

    async def step_elect_by_znode(self, line: Line) -> None:
        entries = [partition._asdict() for partition in line.given["partitions"]]
        await self._create("/admin/preferred_replica_election", {"version": 1, "partitions": entries})

    async def step_damage_state(self, line: Line) -> None:
        text = " ".join(line.given["text"])
        await self.cluster.client.set(_state_path(line.given["partition"]), text.encode(), -1)

    async def _create(self, path: str, content: object) -> None:
        await self.cluster.client.create(path, data=msgspec.json.encode(content))

    # -- requests of brokers ---------------------------------------------------------------------------------------

    async def step_catch_up(self, line: Line) -> list[str]:
        """The leader asks for an ISR of all live replicas."""
        if "until-leader" in line.given:
            raise StepArgumentError(f"{line.text}: found until-leader=, which transcripts do not wait for")
        given = Given(by="leader", partition=line.given["partition"], isr="live")
        return await self.step_alter_partition(Line(line.verb, given, line.text))

    async def step_alter_partition(self, line: Line) -> list[str]:
        given = line.given
        by, tp = given["by"], given["partition"]
        (now,) = await self.cluster.zk.get_topic_partition_states([tp.topic], [tp.partition])
        assert isinstance(now, LeaderAndIsr)
        topic = (await self.cluster.zk.get_topic_assignments([tp.topic], watch=False)).found[0]
        broker = now.leader if by == "leader" else by
        live = [number for number in topic.partitions[tp.partition].replicas if number in self.cluster.brokers]
        isr = {"live": live, "leader": [now.leader]}.get(given["isr"]) or given["isr"]
        asked = {
            "partition_index": tp.partition,
            "leader_epoch": given.epoch("leader-epoch", now.leader_epoch),
            "new_isr_with_epochs": [{"broker_id": b, "broker_epoch": -1} for b in isr],
            "leader_recovery_state": given.get("recovery", 0),
            "partition_epoch": given.epoch("partition-epoch", now.partition_epoch),
        }
        answer = await self._ask(
            ApiKey.ALTER_PARTITION,
            3,
            broker_id=broker,
            broker_epoch=self._broker_epoch(broker, given),
            topics=[{"topic_id": UUID(bytes=topic.topic_id), "partitions": [asked]}],
        )
        if answer.error_code:
            return [f"answer: {KafkaErrorCode(answer.error_code).name}"]
        (result,) = answer.topics[0].partitions
        if result.error_code:
            return [f"answer: {tp} {KafkaErrorCode(result.error_code).name}"]
        return [
            f"answer: {tp} leader {result.leader_id} epoch {result.leader_epoch} isr {ids(result.isr)} "
            f"version {result.partition_epoch}"
        ]

    async def step_controlled_shutdown(self, line: Line) -> list[str]:
        return await self._controlled_shutdown(line.given)

    async def _controlled_shutdown(self, given: Given) -> list[str]:
        broker = given["broker"]
        epoch = self._broker_epoch(broker, given)
        answer = await self._ask(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=broker, broker_epoch=epoch)
        if answer.error_code:
            return [f"answer: {KafkaErrorCode(answer.error_code).name}"]
        remaining = [f"{p.topic_name}-{p.partition_index}" for p in answer.remaining_partitions]
        return [f"answer: still leads {' '.join(remaining) or 'nothing'}"]

    def _broker_epoch(self, broker: int, given: Given) -> int:
        known = self.cluster.brokers.get(broker)
        return given.epoch("broker-epoch", known.epoch if known is not None else 0)

    async def _ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """One request to the active controller's listener, and its answer."""
        endpoint = self._active().endpoints[0]
        return await ask(self._world.network, endpoint.host, endpoint.port, api, version, **fields)

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

    async def _facts(self) -> Facts:
        zk = self.cluster.zk
        names = await zk.get_all_topics_in_cluster(watch=False)
        topics = (await zk.get_topic_assignments(names, watch=False)).found
        keys = [(topic.topic, number) for topic in topics for number in sorted(topic.partitions)]
        states = await zk.get_topic_partition_states([name for name, _ in keys], [number for _, number in keys])
        numbers = [n for n, s in enumerate(self.cluster.services, 1) if s.controller.election.active]
        return Facts(
            controller=numbers[0] if numbers else None,
            controller_runs=bool(numbers),
            epoch=(await zk.get_controller_epoch() or (0, 0))[0],
            brokers=frozenset(broker.id for broker in (await zk.get_all_brokers_in_cluster(watch=False))[0]),
            states={key: s for key, s in zip(keys, states, strict=True) if isinstance(s, LeaderAndIsr)},
            topics=frozenset(names),
            believed={},
        )

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
            for number, placed in sorted(a.partitions.items()):
                (state,) = await zk.get_topic_partition_states([a.topic], [number])
                moving = f" adding {ids(placed.adding)} removing {ids(placed.removing)}"
                found[f"{a.topic}-{number}"] = (
                    f"replicas {ids(placed.replicas)}{moving if placed.being_reassigned else ''}, {_state(state)}"
                )
        return found


def _refusals(code: int, found: Iterable[tuple[str, int]]) -> list[str]:
    refused = [f"answer: {name} {KafkaErrorCode(each).name}" for name, each in found if each]
    return [f"answer: {KafkaErrorCode(code).name}"] if code else refused


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
            states = [_leadership(t.topic_name, p) for t in request.topic_states for p in t.partition_states]
            return f"LeaderAndIsr {epoch}: {'; '.join(states)}"
        case ApiKey.UPDATE_METADATA:
            states = [_metadata(t.topic_name, p) for t in request.topic_states for p in t.partition_states]
            live = [b.id_ for b in request.live_brokers if b.id_ != request.controller_id]
            return f"UpdateMetadata {epoch}, live {ids(live)}: {'; '.join(states) or 'no partitions'}"
        case _:
            states = [
                f"{t.topic_name}-{p.partition_index} epoch {p.leader_epoch}{' delete' if p.delete_partition else ''}"
                for t in request.topic_states
                for p in t.partition_states
            ]
            return f"StopReplica {epoch}: {'; '.join(states)}"


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
