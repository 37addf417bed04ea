"""The verbs of scenarios (``lab.scenarios.verbs``) on a cluster whose controller is compared with another.

Brokers are 1 to 5.  Each ``step_VERB`` returns what was answered, in plain values.  What a partition's leader does is
done by the broker that leads it when the line is played, and from the state that is in ZooKeeper then, so that one
scenario fits two controllers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.cluster.generations import Protocol
from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.scenarios.facts import EXPECT_WITHIN_S
from aiocontroller.lab.scenarios.fleet import Version
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import Line, method_of, parse_line
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.cluster_znodes import FeatureZNode, encode_feature
from aiocontroller.zookeeper.codec import Create, SetData
from tests.differential.observed_cluster import ObservedCluster, Step

_TIMEOUT_MS = 20_000
_DIE = ("kill-broker", "stop-broker", "bounce-broker")
_SLOW = ("allow-unclean", "alter-broker-configs")


def step(text: str) -> Step:
    """The step for a line of a scenario; StepArgumentError if the verb is not played here."""
    line = parse_line(text)
    play = getattr(sys.modules[__name__], method_of(line.verb), None)
    if play is None:
        raise StepArgumentError(f"{text}: found a verb that differential tests do not play (docs/scenarios.md)")
    brokers = tuple(line.given.get("brokers", [line.given["broker"]] if "broker" in line.given else ()))
    return Step(
        text,
        partial(_play, play, line),
        dies=brokers if line.verb in _DIE else (),
        wakes=brokers if line.verb == "wake-broker" else (),
        hangs=brokers if line.verb == "hang-broker" else (),
        slow=line.verb in _SLOW,
    )


async def _play(play: Any, line: Line, cluster: ObservedCluster) -> Any:
    return await play(cluster, line)


# -- brokers -----------------------------------------------------------------------------------------------------------


async def step_start_broker(cluster: ObservedCluster, line: Line) -> None:
    _become(cluster, line)
    await cluster.fleet.start(*line.given["brokers"])


async def step_kill_broker(cluster: ObservedCluster, line: Line) -> None:
    await cluster.fleet.die(*line.given["brokers"])


async def step_bounce_broker(cluster: ObservedCluster, line: Line) -> None:
    _become(cluster, line)
    await cluster.fleet.bounce(*line.given["brokers"])


async def step_controlled_shutdown(cluster: ObservedCluster, line: Line) -> Any:
    return await _controlled_shutdown(cluster, line.given)


async def _controlled_shutdown(cluster: ObservedCluster, given: Given) -> Any:
    broker = given["broker"]
    asking = cluster.fleet.all[broker]
    epoch = given.epoch("broker-epoch", asking.epoch)
    version = asking.protocol.controlled_shutdown
    answer = await cluster.ask(ApiKey.CONTROLLED_SHUTDOWN, version, broker_id=broker, broker_epoch=epoch)
    remaining = sorted(f"{cluster.plain(p.topic_name)}-{p.partition_index}" for p in answer.remaining_partitions)
    return {"error": error(answer.error_code), "remaining": remaining}


async def step_stop_broker(cluster: ObservedCluster, line: Line) -> Any:
    """What follows from the controlled shutdown is over before the registration goes."""
    answers = []
    for broker in line.given["brokers"]:
        answers.append(await _controlled_shutdown(cluster, Given(broker=broker)))
        await cluster.settle()
        await cluster.fleet.die(broker)
    return answers


async def step_fail_log_dir(cluster: ObservedCluster, line: Line) -> None:
    broker = line.given["broker"]
    for topic, number in line.given["partitions"]:
        named = cluster.named(topic), number
        cluster.fleet.all[broker].errors[named] = KafkaErrorCode.KAFKA_STORAGE_ERROR
    await cluster.zk.propagate_log_dir_event(broker)


async def step_modify_broker(cluster: ObservedCluster, line: Line) -> None:
    """``host=`` is that of its second listener."""
    changes = {name: value for name, value in line.given.items() if name != "broker"}
    await cluster.fleet.modify(line.given["broker"], **changes)


async def step_hang_broker(cluster: ObservedCluster, line: Line) -> None:
    cluster.fleet.hang(line.given["broker"])


async def step_wake_broker(cluster: ObservedCluster, line: Line) -> None:
    cluster.fleet.wake(line.given["broker"])


async def step_allocate_producer_ids(cluster: ObservedCluster, line: Line) -> Any:
    broker = line.given["broker"]
    epoch = line.given.epoch("broker-epoch", cluster.fleet.all[broker].epoch)
    answer = await cluster.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=broker, broker_epoch=epoch)
    return [error(answer.error_code), int(answer.producer_id_start), answer.producer_id_len]


# -- znodes ------------------------------------------------------------------------------------------------------------


async def step_damage_state(cluster: ObservedCluster, line: Line) -> None:
    path = paths.topic_partition_state(*_named(cluster, line.given["partition"]))
    await cluster.client.multi([SetData(path, " ".join(line.given["text"]).encode())])


async def step_damage_request(cluster: ObservedCluster, line: Line) -> None:
    await cluster.client.create(line.given["path"], " ".join(line.given["text"]).encode())


async def step_write_features(cluster: ObservedCluster, line: Line) -> None:
    """Without a controller, since brokers write it at their start only."""
    assert cluster.vacant
    levels = {name: int(level) for name, level in line.given.get("options", {}).items()}
    data = encode_feature(FeatureZNode(2, line.given["status"], levels))
    # Made anew it would have a lower version than brokers have seen, over which they exit.
    await cluster.client.set_data(paths.FEATURE, data)


# -- the role ----------------------------------------------------------------------------------------------------------


async def step_delete_controller_znode(cluster: ObservedCluster, line: Line) -> None:
    await cluster.fail_over()


async def step_end_term(cluster: ObservedCluster, line: Line) -> None:
    await cluster.end_term()


async def step_begin_term(cluster: ObservedCluster, line: Line) -> None:
    await cluster.begin_term()


# -- topics ------------------------------------------------------------------------------------------------------------


async def step_create_topic(cluster: ObservedCluster, line: Line) -> None:
    topic = line.given["topic"]
    assignment = {n: ReplicaAssignment(placed) for n, placed in enumerate(line.given["placed"])}
    data = znodes.encode_topic(TopicAssignment(cluster.named(topic), NO_TOPIC_ID, assignment))
    await cluster.client.create(paths.topic(cluster.named(topic)), data)


async def step_request_topics(cluster: ObservedCluster, line: Line) -> Any:
    placed = enumerate(line.given.get("placed", []))
    assignments = [{"partition_index": number, "broker_ids": replicas} for number, replicas in placed]
    wanted = {
        "name": cluster.named(line.given["topic"]),
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": (),
    }
    timeout_ms = line.given.get("timeout-ms", _TIMEOUT_MS)
    answer = await cluster.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout=timeout_ms, validate_only=False)
    return [error(t.error_code) for t in answer.topics]


async def step_add_partitions(cluster: ObservedCluster, line: Line) -> None:
    topic = line.given["topic"]
    found = await cluster.assignment(topic)
    added = dict(enumerate(map(ReplicaAssignment, line.given["placed"]), len(found.partitions)))
    grown = msgspec.structs.replace(found, partitions=found.partitions | added)
    await cluster.client.multi([SetData(paths.topic(cluster.named(topic)), znodes.encode_topic(grown))])


async def step_request_partitions(cluster: ObservedCluster, line: Line) -> Any:
    topic, placed = line.given["topic"], line.given["placed"]
    count = len((await cluster.assignment(topic)).partitions) + len(placed)
    assignments = [{"broker_ids": replicas} for replicas in placed]
    wanted = {"name": cluster.named(topic), "count": count, "assignments": assignments}
    answer = await cluster.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False)
    return [error(t.error_code) for t in answer.results]


async def step_delete_topic(cluster: ObservedCluster, line: Line) -> None:
    await cluster.client.create(paths.delete_topics_topic(cluster.named(line.given["topic"])))


async def step_request_deletion(cluster: ObservedCluster, line: Line) -> Any:
    wanted = {"name": cluster.named(line.given["topic"]), "topic_id": None}
    answer = await cluster.ask(ApiKey.DELETE_TOPICS, 6, topics=[wanted], timeout=_TIMEOUT_MS)
    return [error(t.error_code) for t in answer.responses]


async def step_allow_unclean(cluster: ObservedCluster, line: Line) -> None:
    change = {"unclean.leader.election.enable": line.given.get("value", "true")}
    await _change_configs(cluster, "topics", cluster.named(line.given["topic"]), change)


async def step_alter_broker_configs(cluster: ObservedCluster, line: Line) -> None:
    await _change_configs(cluster, "brokers", str(line.given["broker"]), dict([line.given["setting"]]))


async def _change_configs(cluster: ObservedCluster, kind: str, entity: str, config: Mapping[str, str]) -> None:
    """By the znode, and the notification that makes brokers look at it."""
    path = paths.config_entity(kind, entity)
    await cluster.client.write_many([Create(path)], fence=None)
    await cluster.client.multi([SetData(path, msgspec.json.encode({"version": 1, "config": config}))])
    await cluster.zk.create_config_change_notification(f"{kind}/{entity}")


# -- ISRs --------------------------------------------------------------------------------------------------------------


async def step_catch_up(cluster: ObservedCluster, line: Line) -> Any:
    """The leader asks for all live replicas."""
    partition = line.given["partition"]
    given = Given(by="leader", partition=partition, isr="live")
    answer = await step_alter_partition(cluster, Line(line.verb, given, line.text))
    if "until-leader" in line.given:
        await cluster.until_leader(partition, line.given["until-leader"])
    return answer


async def step_alter_partition(cluster: ObservedCluster, line: Line) -> Any:
    by, partition = line.given["by"], line.given["partition"]
    state = await cluster.state(partition)
    broker = state.leader if state is not None and by == "leader" else by if by != "leader" else -1
    if state is None or broker not in cluster.fleet.live:
        return {"partition": str(partition), "error": "no leader asks"}
    isr = await _isr(cluster, partition, state, line.given["isr"])
    if cluster.fleet.all[broker].alter_partition < 0:
        await _write_isr(cluster, partition, state, isr)
        return None
    return await _alter(cluster, partition, state, isr, broker, line.given)


async def _isr(
    cluster: ObservedCluster, partition: TopicPartition, state: LeaderAndIsr, wanted: str | tuple[int, ...]
) -> Sequence[int]:
    if wanted == "leader":
        return [state.leader]
    if isinstance(wanted, str):
        topic, number = partition
        found = (await cluster.assignment(topic)).partitions[number].replicas
        return [n for n in found if n in cluster.fleet.live]
    return wanted


async def _alter(
    cluster: ObservedCluster,
    partition: TopicPartition,
    state: LeaderAndIsr,
    isr: Sequence[int],
    by: int,
    given: Given,
) -> Any:
    topic, number = partition
    broker = cluster.fleet.all[by]
    topic_id = (await cluster.assignment(topic)).topic_id
    spoken = broker.alter_partition if topic_id != NO_TOPIC_ID else min(broker.alter_partition, 1)
    change = {  # no version has all of these fields
        "partition_index": number,
        "leader_epoch": given.epoch("leader-epoch", state.leader_epoch),
        "new_isr": tuple(isr),
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": cluster.fleet.all[n].epoch} for n in isr],
        "leader_recovery_state": given.get("recovery", 0),
        "partition_epoch": given.epoch("partition-epoch", state.partition_epoch),
    }
    answer = await cluster.ask(
        ApiKey.ALTER_PARTITION,
        spoken,
        broker_id=broker.id,
        broker_epoch=given.epoch("broker-epoch", broker.epoch),
        topics=[{"topic_name": cluster.named(topic), "topic_id": topic_id, "partitions": [change]}],
    )
    if answer.error_code:
        return {"error": error(answer.error_code)}
    (result,) = (p for t in answer.topics for p in t.partitions)
    asked = {"partition": str(partition), "version": spoken}
    if result.error_code:
        return {**asked, "error": error(result.error_code)}
    return {
        **asked,
        "leader": result.leader_id,
        "leader_epoch": result.leader_epoch,
        "isr": tuple(result.isr),
        "partition_epoch": result.partition_epoch,
        "recovering": bool(getattr(result, "leader_recovery_state", 0)),  # from version 1 on
    }


async def step_write_isr(cluster: ObservedCluster, line: Line) -> None:
    partition = line.given["partition"]
    state = await cluster.state(partition)
    if state is not None and state.leader in cluster.fleet.live:
        await _write_isr(cluster, partition, state, await _isr(cluster, partition, state, line.given["isr"]))


async def _write_isr(
    cluster: ObservedCluster, partition: TopicPartition, state: LeaderAndIsr, isr: Sequence[int]
) -> None:
    topic, number = partition
    (data,) = znodes.encode_partition_states([msgspec.structs.replace(state, isr=tuple(isr))])
    path = paths.topic_partition_state(cluster.named(topic), number)
    await cluster.client.multi([SetData(path, data, state.partition_epoch)])
    if not Protocol.of(cluster.subject.protocol).isr_by_alter_partition:
        # Leaders notify seconds later.  Controllers watch the state while the partition moves, and have seen it then;
        # at once, it would depend on the machine which of the two they hear first.
        await cluster.settle()
    await cluster.zk.propagate_isr_changes([TopicPartition(cluster.named(topic), number)])


# -- reassignments and elections ---------------------------------------------------------------------------------------


async def step_reassign(cluster: ObservedCluster, line: Line) -> Any:
    return await _reassign(cluster, dict(line.given["moves"]))


async def step_cancel_reassignment(cluster: ObservedCluster, line: Line) -> Any:
    return await _reassign(cluster, dict.fromkeys(line.given["partitions"]))


async def _reassign(cluster: ObservedCluster, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> Any:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, target in targets.items():
        topic, number = _named(cluster, partition)
        topics.setdefault(topic, []).append({"partition_index": number, "replicas": target})
    wanted = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    answer = await cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=wanted)
    found = ((t.name, p.partition_index, p.error_code) for t in answer.responses for p in t.partitions)
    return _codes(cluster, answer.error_code, found)


async def step_reassign_by_znode(cluster: ObservedCluster, line: Line) -> None:
    named = {_named(cluster, partition): to for partition, to in line.given["moves"]}
    await cluster.client.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignment(named))


async def step_list_reassignments(cluster: ObservedCluster, line: Line) -> Any:
    answer = await cluster.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=None)
    found = ((t.name, p) for t in answer.topics for p in t.partitions)
    return {
        f"{cluster.plain(topic)}-{p.partition_index}": [
            tuple(map(int, ids)) for ids in (p.replicas, p.adding_replicas, p.removing_replicas)
        ]
        for topic, p in found
    }


async def step_elect_preferred(cluster: ObservedCluster, line: Line) -> Any:
    return await _elect(cluster, 0, line.given["partitions"])


async def step_elect_unclean(cluster: ObservedCluster, line: Line) -> Any:
    return await _elect(cluster, 1, line.given["partitions"])


async def step_elect_by_znode(cluster: ObservedCluster, line: Line) -> None:
    named = [_named(cluster, partition) for partition in line.given["partitions"]]
    await cluster.client.create(paths.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions(named))


async def _elect(cluster: ObservedCluster, kind: int, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, number in (_named(cluster, partition) for partition in partitions):
        topics.setdefault(topic, []).append(number)
    wanted = [{"topic": topic, "partitions": tuple(numbers)} for topic, numbers in topics.items()]
    answer = await cluster.ask(
        ApiKey.ELECT_LEADERS, 2, election_type=kind, topic_partitions=wanted, timeout=_TIMEOUT_MS
    )
    results = answer.replica_election_results
    found = ((t.topic, p.partition_id, p.error_code) for t in results for p in t.partition_result)
    return _codes(cluster, answer.error_code, found)


def _codes(cluster: ObservedCluster, code: Any, found: Iterable[tuple[str, int, Any]]) -> Any:
    """The name of the error code of the whole request; where it is none, of each partition."""
    if code:
        return error(code)
    return {f"{cluster.plain(topic)}-{number}": error(each) for topic, number, each in sorted(found)}


# -- for the reader ----------------------------------------------------------------------------------------------------


async def step_expect(cluster: ObservedCluster, line: Line) -> None:
    """The scenario's last step has settled, but for what the controller does by itself, such as a rebalance."""
    await cluster.until_fact(line.given["fact"], EXPECT_WITHIN_S)


def _named(cluster: ObservedCluster, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(cluster.named(partition.topic), partition.partition)


def error(code: Any) -> str:
    return KafkaErrorCode(int(code)).name


def _become(cluster: ObservedCluster, line: Line) -> None:
    """With other binaries, or another protocol, than before."""
    if "release" in line.given:
        version = Version(line.given["release"], line.given["protocol"])
        cluster.fleet.become(dict.fromkeys(line.given["brokers"], version))
