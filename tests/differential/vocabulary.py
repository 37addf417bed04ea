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
from aiocontroller.lab.cluster.generations import Protocol
from aiocontroller.lab.scenarios.fleet import Version
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.cluster_znodes import FeatureZNode, encode_feature
from aiocontroller.zookeeper.codec import Create, SetData
from tests.differential.stage import Stage, Step, split

Way = Literal["znode", "api"]
Replicas = Sequence[Sequence[int]]
_TIMEOUT_MS = 20_000


# -- brokers -----------------------------------------------------------------------------------------------------------


def start(*brokers: int, version: Version | None = None) -> Step:
    """``version``: with other binaries, or another protocol, than before."""

    async def play(stage: Stage) -> None:
        _become(stage, brokers, version)
        await stage.fleet.start(*brokers)

    return Step(f"{_brokers(brokers)} start{_s(brokers)}{_as(version)}", play)


def die(*brokers: int) -> Step:
    return Step(f"{_brokers(brokers)} die{_s(brokers)}", lambda stage: stage.fleet.die(*brokers), brokers)


def bounce(*brokers: int, version: Version | None = None) -> Step:
    """Back before the controller has seen that it was away."""

    async def play(stage: Stage) -> None:
        _become(stage, brokers, version)
        await stage.fleet.bounce(*brokers)

    return Step(f"{_brokers(brokers)} bounce{_s(brokers)}{_as(version)}", play, brokers)


def shut_down(broker: int) -> Step:
    """Asks for a controlled shutdown; stays up until it dies."""

    async def play(stage: Stage) -> Any:
        asking = stage.fleet.all[broker]
        version = asking.protocol.controlled_shutdown
        answer = await stage.ask(ApiKey.CONTROLLED_SHUTDOWN, version, broker_id=broker, broker_epoch=asking.epoch)
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


def modify(broker: int, **changes: str) -> Step:
    """``host`` of its second listener, or ``rack``: the registration is written anew, in the same session."""
    told = ", ".join(f"{name} {value}" for name, value in changes.items())
    return Step(
        f"broker {broker} changes its registration: {told}", lambda stage: stage.fleet.modify(broker, **changes)
    )


def hang(broker: int) -> Step:
    """It takes requests and does not answer them."""

    async def play(stage: Stage) -> None:
        stage.fleet.hang(broker)

    return Step(f"broker {broker} hangs", play, hangs=(broker,))


def wake(broker: int) -> Step:
    async def play(stage: Stage) -> None:
        stage.fleet.wake(broker)

    return Step(f"broker {broker} goes on, and its connections break", play, wakes=(broker,))


def take_producer_ids(broker: int, *, broker_epoch: int = 0) -> Step:
    """``broker_epoch`` is added to the true one."""

    async def play(stage: Stage) -> Any:
        epoch = stage.fleet.all[broker].epoch + broker_epoch
        answer = await stage.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=broker, broker_epoch=epoch)
        return [error(answer.error_code), int(answer.producer_id_start), answer.producer_id_len]

    return Step(f"broker {broker} asks for producer ids{f', epoch {broker_epoch:+}' if broker_epoch else ''}", play)


# -- znodes ------------------------------------------------------------------------------------------------------------


def damage(partition: str, data: bytes = b"{") -> Step:
    """Its state is written over by something that no controller writes."""

    async def play(stage: Stage) -> None:
        topic, number = split(partition)
        await stage.client.multi([SetData(paths.topic_partition_state(stage.named(topic), number), data)])

    return Step(f"the state of {partition} becomes {data!r}", play)


def damaged_request(path: str, data: bytes = b"{") -> Step:
    """One of the requests in ``/admin``."""

    async def play(stage: Stage) -> None:
        await stage.client.create(path, data)

    return Step(f"{path} is created: {data!r}", play)


def features(status: int, **levels: int) -> Step:
    """``/feature`` as another writer left it; without a controller, since brokers write it at their start only."""

    async def play(stage: Stage) -> None:
        assert stage.vacant
        data = encode_feature(FeatureZNode(2, status, levels))
        # Made anew it would have a lower version than brokers have seen, over which they exit.
        await stage.client.set_data(paths.FEATURE, data)

    return Step(f"/feature has the status {status} and the levels {levels}", play)


# -- the role ----------------------------------------------------------------------------------------------------------


def fail_over() -> Step:
    return Step("/controller is deleted", lambda stage: stage.fail_over())


def end_term() -> Step:
    return Step("the controller is removed", lambda stage: stage.end_term())


def begin_term() -> Step:
    return Step("a controller is elected", lambda stage: stage.begin_term())


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


def allow_unclean_elections(topic: str, value: str = "true") -> Step:
    """By the topic's configuration, and the notification that makes brokers look at it."""

    async def play(stage: Stage) -> None:
        config = {"version": 1, "config": {"unclean.leader.election.enable": value}}
        path = paths.config_entity("topics", stage.named(topic))
        await stage.client.write_many([Create(path)], fence=None)
        await stage.client.multi([SetData(path, msgspec.json.encode(config))])
        await stage.zk.create_config_change_notification(f"topics/{stage.named(topic)}")

    return Step(f"topic {topic} says of unclean elections: {value}", play, slow=True)


def allow_unclean_elections_by_default(value: str = "true") -> Step:
    """By the brokers' dynamic default, as ``kafka-configs.sh --entity-default`` writes it."""

    async def play(stage: Stage) -> None:
        config = {"version": 1, "config": {"unclean.leader.election.enable": value}}
        path = paths.config_entity("brokers", "<default>")
        await stage.client.write_many([Create(path)], fence=None)
        await stage.client.multi([SetData(path, msgspec.json.encode(config))])
        await stage.zk.create_config_change_notification("brokers/<default>")

    return Step(f"the default of unclean elections becomes {value}", play, slow=True)


# -- ISRs --------------------------------------------------------------------------------------------------------------


def alter_partition(
    partition: str,
    isr: Sequence[int] | Literal["all live", "the leader"],
    *,
    by: int | None = None,
    epoch: int = 0,
    version: int = 0,
    recovering: bool = False,
    broker_epoch: int = 0,
) -> Step:
    """The leader (or broker ``by``) asks for an ISR; ``epoch``, ``version`` and ``broker_epoch`` are added to the true.

    ``all live`` is every live replica, in the order of the assignment; ``the leader`` is the leader alone.
    """

    async def play(stage: Stage) -> Any:
        state = await stage.state(partition)
        if state is None or (by or state.leader) not in stage.fleet.live:
            return {"partition": partition, "error": "no leader asks"}
        if stage.fleet.all[by or state.leader].alter_partition < 0:
            await _write_isr(
                stage, partition, state, await _live_replicas(stage, partition) if isr == "all live" else isr
            )
            return None
        wanted: Sequence[int] = [state.leader]
        if isr == "all live":
            wanted = await _live_replicas(stage, partition)
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
    broker = stage.fleet.all[by or state.leader]
    topic_id = (await stage.assignment(topic)).topic_id
    spoken = broker.alter_partition if topic_id != NO_TOPIC_ID else min(broker.alter_partition, 1)
    change = {  # no version has all of these fields
        "partition_index": number,
        "leader_epoch": state.leader_epoch + epoch,
        "new_isr": tuple(isr),
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": stage.fleet.all[n].epoch} for n in isr],
        "leader_recovery_state": int(recovering),
        "partition_epoch": state.partition_epoch + version,
    }
    answer = await stage.ask(
        ApiKey.ALTER_PARTITION,
        spoken,
        broker_id=broker.id,
        broker_epoch=broker.epoch + broker_epoch,
        topics=[{"topic_name": stage.named(topic), "topic_id": topic_id, "partitions": [change]}],
    )
    if answer.error_code:
        return {"error": error(answer.error_code)}
    (result,) = (p for t in answer.topics for p in t.partitions)
    asked = {"partition": partition, "version": spoken}
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


async def _live_replicas(stage: Stage, partition: str) -> list[int]:
    topic, number = split(partition)
    replicas = (await stage.assignment(topic)).partitions[number].replicas
    return [n for n in replicas if n in stage.fleet.live]


def notify_of_isr(partition: str, isr: Sequence[int] | Literal["the leader"]) -> Step:
    """As leaders do where inter.broker.protocol.version is below 2.7: they write the state, then a notification."""

    async def play(stage: Stage) -> None:
        state = await stage.state(partition)
        if state is None or state.leader not in stage.fleet.live:
            return
        await _write_isr(stage, partition, state, isr)

    return Step(
        f"the leader of {partition} writes ISR {isr if isinstance(isr, str) else list(isr)} and a notification", play
    )


async def _write_isr(stage: Stage, partition: str, state: LeaderAndIsr, isr: Sequence[int] | str) -> None:
    topic, number = split(partition)
    members = (state.leader,) if isinstance(isr, str) else tuple(isr)
    (data,) = znodes.encode_partition_states([msgspec.structs.replace(state, isr=members)])
    path = paths.topic_partition_state(stage.named(topic), number)
    await stage.client.multi([SetData(path, data, state.partition_epoch)])
    if not Protocol.of(stage.subject.protocol).isr_by_alter_partition:
        # Leaders notify seconds later.  Controllers watch the state while the partition moves, and have seen it then;
        # at once, it would depend on the machine which of the two they hear first.
        await stage.settle()
    await stage.zk.propagate_isr_changes([TopicPartition(stage.named(topic), number)])


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


def catch_up_and_go_home(partition: str) -> Step:
    """All replicas are in sync again, and the controller moves the leader back by itself."""
    catch_up = alter_partition(partition, "all live")

    async def play(stage: Stage) -> Any:
        answer = await catch_up.play(stage)
        topic, number = split(partition)
        preferred = (await stage.assignment(topic)).partitions[number].replicas[0]
        await stage.until_leader(partition, preferred)
        return answer

    return Step(f"all replicas of {partition} catch up, and its leader goes home", play)


def _named(stage: Stage, partition: str) -> TopicPartition:
    topic, number = split(partition)
    return TopicPartition(stage.named(topic), number)


def error(code: Any) -> str:
    return KafkaErrorCode(int(code)).name


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'' if len(brokers) == 1 else 's'} {' and '.join(map(str, brokers))}"


def _s(brokers: Sequence[int]) -> str:
    return "s" if len(brokers) == 1 else ""


def _become(stage: Stage, brokers: Sequence[int], version: Version | None) -> None:
    if version is not None:
        stage.fleet.become(dict.fromkeys(brokers, version))


def _as(version: Version | None) -> str:
    return "" if version is None else f" with release {version.release} and protocol {version.protocol}"


def _replicas(replicas: Replicas) -> str:
    return " ".join(str(list(r)) for r in replicas)
