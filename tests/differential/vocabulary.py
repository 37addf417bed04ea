"""The words of scenarios.  A topic is a name, a partition is ``topic-number``, a broker is its id (1 to 5).

What a partition's leader does (``alter_partition``, ``notify_of_isr``) is done by the broker that leads it when the
step is played, and from the state that is in ZooKeeper then, so that one script fits two controllers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.codec import Create, SetData
from tests.differential.stage import Stage, Step, split

Way = Literal["znode", "api"]
Replicas = Sequence[Sequence[int]]
_TIMEOUT_MS = 20_000


# -- brokers -----------------------------------------------------------------------------------------------------------


def start(*brokers: int) -> Step:
    return Step(f"{_brokers(brokers)} start{_s(brokers)}", lambda stage: stage.fleet.start(*brokers))


def die(*brokers: int) -> Step:
    return Step(f"{_brokers(brokers)} die{_s(brokers)}", lambda stage: stage.fleet.die(*brokers), brokers)


def bounce(*brokers: int) -> Step:
    """Back before the controller has seen that it was away."""
    return Step(f"{_brokers(brokers)} bounce{_s(brokers)}", lambda stage: stage.fleet.bounce(*brokers), brokers)


def shut_down(broker: int) -> Step:
    """Asks for a controlled shutdown; stays up until it dies."""

    async def play(stage: Stage) -> Any:
        epoch = stage.fleet.all[broker].epoch
        answer = await stage.ask(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=broker, broker_epoch=epoch)
        remaining = sorted(f"{stage.plain(p.topic_name)}-{p.partition_index}" for p in answer.remaining_partitions)
        return {"error": error(answer.error_code), "remaining": remaining}

    return Step(f"broker {broker} asks for a controlled shutdown", play)


def log_dir_fails(broker: int, *partitions: str) -> Step:
    """The directory that holds these partitions; what the broker says of them from now on is KAFKA_STORAGE_ERROR."""

    async def play(stage: Stage) -> None:
        for partition in partitions:
            topic, number = split(partition)
            stage.fleet.all[broker].errors[stage.named(topic), number] = KafkaErrorCode.KAFKA_STORAGE_ERROR
        await stage.zk.propagate_log_dir_event(broker)

    return Step(f"broker {broker} loses the log directory of {', '.join(partitions)}", play)


# -- the role ----------------------------------------------------------------------------------------------------------


def fail_over() -> Step:
    return Step("/controller is deleted", lambda stage: stage.fail_over())


def leave_office() -> Step:
    return Step("nobody is in office", lambda stage: stage.leave_office())


def fill_office() -> Step:
    return Step("a controller is elected", lambda stage: stage.fill_office())


# -- topics ------------------------------------------------------------------------------------------------------------


def create(topic: str, replicas: Replicas, by: Way = "znode", *, timeout_ms: int = _TIMEOUT_MS) -> Step:
    """``timeout_ms`` is how long the API waits for leaders."""

    async def play(stage: Stage) -> Any:
        if by == "api":
            assignments = [{"partition_index": n, "broker_ids": tuple(r)} for n, r in enumerate(replicas)]
            wanted = {
                "name": stage.named(topic),
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": assignments,
                "configs": (),
            }
            answer = await stage.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout=timeout_ms, validate_only=False)
            return [error(t.error_code) for t in answer.topics]
        assignment = {n: ReplicaAssignment(tuple(r)) for n, r in enumerate(replicas)}
        data = znodes.encode_topic(TopicAssignment(stage.named(topic), NO_TOPIC_ID, assignment))
        await stage.client.create(paths.topic(stage.named(topic)), data)
        return None

    return Step(f"topic {topic} is created by {by}: {_replicas(replicas)}", play)


def expand(topic: str, replicas: Replicas, by: Way = "znode") -> Step:
    """``replicas`` are those of the new partitions."""

    async def play(stage: Stage) -> Any:
        found = await stage.assignment(topic)
        count = len(found.partitions) + len(replicas)
        if by == "api":
            assignments = [{"broker_ids": tuple(r)} for r in replicas]
            wanted = {"name": stage.named(topic), "count": count, "assignments": assignments}
            answer = await stage.ask(
                ApiKey.CREATE_PARTITIONS, 3, topics=[wanted], timeout=_TIMEOUT_MS, validate_only=False
            )
            return [error(t.error_code) for t in answer.results]
        added = {len(found.partitions) + i: ReplicaAssignment(tuple(r)) for i, r in enumerate(replicas)}
        grown = msgspec.structs.replace(found, partitions=found.partitions | added)
        await stage.client.multi([SetData(paths.topic(stage.named(topic)), znodes.encode_topic(grown))])
        return None

    return Step(f"topic {topic} grows by {by}: {_replicas(replicas)}", play)


def delete(topic: str, by: Way = "znode") -> Step:
    async def play(stage: Stage) -> Any:
        if by == "api":
            wanted = {"name": stage.named(topic), "topic_id": None}
            answer = await stage.ask(ApiKey.DELETE_TOPICS, 6, topics=[wanted], timeout=_TIMEOUT_MS)
            return [error(t.error_code) for t in answer.responses]
        await stage.client.create(paths.delete_topics_topic(stage.named(topic)))
        return None

    return Step(f"topic {topic} is deleted by {by}", play)


def allow_unclean_elections(topic: str) -> Step:
    """By the topic's configuration, and the notification that makes brokers look at it."""

    async def play(stage: Stage) -> None:
        config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
        path = paths.config_entity("topics", stage.named(topic))
        await stage.client.write_many([Create(path)], fence=None)
        await stage.client.multi([SetData(path, msgspec.json.encode(config))])
        await stage.zk.create_config_change_notification(f"topics/{stage.named(topic)}")

    return Step(f"topic {topic} allows unclean elections", play, slow=True)


# -- ISRs --------------------------------------------------------------------------------------------------------------


def alter_partition(
    partition: str,
    isr: Sequence[int] | Literal["everybody", "the leader"],
    *,
    by: int | None = None,
    epoch: int = 0,
    version: int = 0,
    recovering: bool = False,
    broker_epoch: int = 0,
) -> Step:
    """The leader (or broker ``by``) asks for an ISR; ``epoch``, ``version`` and ``broker_epoch`` are added to the true.

    ``everybody`` is every live replica, in the order of the assignment; ``the leader`` is the leader alone.
    """

    async def play(stage: Stage) -> Any:
        state = await stage.state(partition)
        if state is None or (by or state.leader) not in stage.fleet.live:
            return {"partition": partition, "error": "nobody asks"}
        wanted: Sequence[int] = [state.leader]
        if isr == "everybody":
            wanted = await _everybody(stage, partition)
        elif isr != "the leader":
            wanted = isr
        return await _alter(stage, partition, state, wanted, by, epoch, version, recovering, broker_epoch)

    changes = {"by": by, "epoch": epoch, "version": version, "recovering": recovering, "broker_epoch": broker_epoch}
    told = "".join(f", {key} {value}" for key, value in changes.items() if value)
    return Step(f"AlterPartition of {partition} to {isr if isinstance(isr, str) else list(isr)}{told}", play)


async def _alter(
    stage: Stage,
    partition: str,
    state: LeaderAndIsr,
    isr: Sequence[int],
    by: int | None,
    epoch: int,
    version: int,
    recovering: bool,
    broker_epoch: int,
) -> Any:
    topic, number = split(partition)
    broker = by or state.leader
    change = {
        "partition_index": number,
        "leader_epoch": state.leader_epoch + epoch,
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": stage.fleet.all[n].epoch} for n in isr],
        "leader_recovery_state": int(recovering),
        "partition_epoch": state.partition_epoch + version,
    }
    topic_id = (await stage.assignment(topic)).topic_id
    answer = await stage.ask(
        ApiKey.ALTER_PARTITION,
        3,
        broker_id=broker,
        broker_epoch=stage.fleet.all[broker].epoch + broker_epoch,
        topics=[{"topic_id": topic_id, "partitions": [change]}],
    )
    if answer.error_code:
        return {"error": error(answer.error_code)}
    (result,) = (p for t in answer.topics for p in t.partitions)
    if result.error_code:
        return {"partition": partition, "error": error(result.error_code)}
    return {
        "partition": partition,
        "leader": result.leader_id,
        "leader_epoch": result.leader_epoch,
        "isr": tuple(result.isr),
        "partition_epoch": result.partition_epoch,
        "recovering": bool(result.leader_recovery_state),
    }


async def _everybody(stage: Stage, partition: str) -> list[int]:
    topic, number = split(partition)
    replicas = (await stage.assignment(topic)).partitions[number].replicas
    return [n for n in replicas if n in stage.fleet.live]


def notify_of_isr(partition: str, isr: Sequence[int] | Literal["the leader"]) -> Step:
    """As leaders do where inter.broker.protocol.version is below 2.7: they write the state, then a notification."""

    async def play(stage: Stage) -> None:
        state = await stage.state(partition)
        if state is None or state.leader not in stage.fleet.live:
            return
        topic, number = split(partition)
        members = (state.leader,) if isinstance(isr, str) else tuple(isr)
        (data,) = znodes.encode_partition_states([msgspec.structs.replace(state, isr=members)])
        path = paths.topic_partition_state(stage.named(topic), number)
        await stage.client.multi([SetData(path, data, state.partition_epoch)])
        await stage.zk.propagate_isr_changes([TopicPartition(stage.named(topic), number)])

    return Step(
        f"the leader of {partition} writes ISR {isr if isinstance(isr, str) else list(isr)} and a notification", play
    )


# -- reassignments and elections ---------------------------------------------------------------------------------------


def reassign(targets: Mapping[str, Sequence[int] | None], by: Way = "api") -> Step:
    """None cancels, which only the API can."""

    async def play(stage: Stage) -> Any:
        if by == "znode":
            named = {_named(stage, p): tuple(target or ()) for p, target in targets.items()}
            await stage.client.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignment(named))
            return None
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition, target in targets.items():
            topic, number = _named(stage, partition)
            replicas = None if target is None else tuple(target)
            topics.setdefault(topic, []).append({"partition_index": number, "replicas": replicas})
        wanted = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        answer = await stage.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=wanted)
        if answer.error_code:
            return error(answer.error_code)
        found = {(t.name, p.partition_index): p.error_code for t in answer.responses for p in t.partitions}
        return {f"{stage.plain(topic)}-{number}": error(code) for (topic, number), code in sorted(found.items())}

    moves = ", ".join(f"{p} to {'where it was' if t is None else list(t)}" for p, t in targets.items())
    return Step(f"reassignment by {by}: {moves}", play)


def list_reassignments() -> Step:
    async def play(stage: Stage) -> Any:
        answer = await stage.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=None)
        found = ((t.name, p) for t in answer.topics for p in t.partitions)
        return {
            f"{stage.plain(topic)}-{p.partition_index}": [
                tuple(map(int, ids)) for ids in (p.replicas, p.adding_replicas, p.removing_replicas)
            ]
            for topic, p in found
        }

    return Step("the reassignments are listed", play)


def elect(kind: Literal["preferred", "unclean"], *partitions: str, by: Way = "api") -> Step:
    async def play(stage: Stage) -> Any:
        named = [_named(stage, p) for p in partitions]
        if by == "znode":
            await stage.client.create(paths.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions(named))
            return None
        topics: dict[str, list[int]] = {}
        for topic, number in named:
            topics.setdefault(topic, []).append(number)
        wanted = [{"topic": topic, "partitions": tuple(numbers)} for topic, numbers in topics.items()]
        answer = await stage.ask(
            ApiKey.ELECT_LEADERS, 2, election_type=int(kind == "unclean"), topic_partitions=wanted, timeout=_TIMEOUT_MS
        )
        found = {
            f"{stage.plain(t.topic)}-{p.partition_id}": error(p.error_code)
            for t in answer.replica_election_results
            for p in t.partition_result
        }
        return error(answer.error_code) if answer.error_code else dict(sorted(found.items()))

    assert by == "api" or kind == "preferred"
    return Step(f"{kind} election of {', '.join(partitions)} by {by}", play)


def _named(stage: Stage, partition: str) -> TopicPartition:
    topic, number = split(partition)
    return TopicPartition(stage.named(topic), number)


def error(code: Any) -> str:
    return KafkaErrorCode(int(code)).name


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'' if len(brokers) == 1 else 's'} {' and '.join(map(str, brokers))}"


def _s(brokers: Sequence[int]) -> str:
    return "s" if len(brokers) == 1 else ""


def _replicas(replicas: Replicas) -> str:
    return " ".join(str(list(r)) for r in replicas)
