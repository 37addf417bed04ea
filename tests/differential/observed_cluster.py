"""One cluster with its controller, on which scenarios are played, one after the other.

Every scenario begins alike: all brokers registered anew, no topics, a new term.  Between two of them there is no
controller: ``/controller`` names an id that does not exist, what the last scenario left is removed, ``/controller``
goes, and a standby wins.

A step is over when the controller has done all that follows from it.  One more broker, in which nothing ever happens,
holds one partition, the mark.  To ask whether the step is over, its state znode gets a new version and an ISR change
notification names it: the controller tells all brokers of that version.

 * Whatever was in ZooKeeper before has been handled by then, and what was sent because of it stands before the mark in
   each broker's queue.  Except that a mark may be seen too early, by an event that already waited: an event is born
   when a notification comes or goes while Kafka watches, and Kafka begins to watch twice in a failover, then once for
   each event.  So two such events wait at most, and after two marks that were too early the third is not.
 * A broker's answers have become events before the next request is sent to it, so before the mark is; and those are
   handled before the next mark.

So the step is over when, after one mark, two whole ones, each from its writing to the last broker's hearing of it, have
gone by without a word to a broker.  No time is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.cluster.asking import ask
from aiocontroller.lab.cluster.generations import NEWEST
from aiocontroller.lab.recording_brokers.recording_broker import Received
from aiocontroller.lab.scenarios.facts import Facts, judge
from aiocontroller.lab.scenarios.fleet import Version
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, Op, SetData
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.differential.fleet import MARK, Fleet
from tests.differential.sent import Receiver, Sent, sent_by
from tests.differential.subjects import Subject

BROKERS = (1, 2, 3, 4, 5)
"""Those of scenarios."""
WITNESS = 6
"""Holds the mark."""
EARLY_MARKS = 2
"""How many may be seen too early in a row."""
WITHIN_S = 60.0
NO_CONTROLLER = 999_999
"""Stands in ``/controller`` while there is no controller."""
_MARK_STATE = paths.topic_partition_state(MARK, 0)


class Step(NamedTuple):
    """``play`` returns what was answered, in plain values; ``dies`` are the brokers that it takes away."""

    text: str
    """The line of the scenario."""
    play: Callable[[ObservedCluster], Awaitable[Any]]
    dies: tuple[int, ...] = ()
    wakes: tuple[int, ...] = ()
    """Brokers that hung until then."""
    hangs: tuple[int, ...] = ()
    """Brokers that hang from then on."""
    slow: bool = False
    """Kafka hears of it on another thread than of what is in ZooKeeper otherwise, so no mark can tell."""


class Scenario(NamedTuple):
    name: str
    steps: list[Step]
    variant: str = ""
    """Of ``subjects.VARIANTS``."""
    versions: Sequence[Version] = ()
    """Of brokers 1 to 5 when it begins; those left out are of the newest release and the subjects' protocol."""


Live = tuple[int, str | None, tuple[tuple[str, str, int, int], ...]]
"""A live broker as others receive it: id, rack, (listener, host, port, security protocol); port 0 of the listener
that recording brokers take, which is another in each cluster."""


class Moment(msgspec.Struct):
    """What there was to see when a step was over."""

    step: Step
    vacant: bool
    """There is no controller."""
    answer: Any
    sent: dict[tuple[int, str], tuple[Sent, ...]]
    """(broker, partition) -> what it was sent in this step, in order."""
    live: dict[int, tuple[Live, ...]]
    """broker -> the live brokers by the last UpdateMetadata that it heard in this scenario, without the controllers."""
    znodes: dict[str, Any]
    """path -> content, without what the time or chance decides."""


class ObservedCluster:
    def __init__(self, world: World, zookeeper: str, subject: Subject) -> None:
        self.subject = subject
        self.client = ZooKeeperClient(zookeeper, world=world, session_timeout_s=30)
        self.zk = KafkaZkClient(self.client)
        self.fleet = Fleet(world, self.client, zookeeper, (*BROKERS, WITNESS), subject.listeners)
        self.vacant = False
        self._network = world.network
        self._prefix = ""
        self._first_term = 0
        self._live: dict[int, tuple[Live, ...]] = {}
        self._topic_ids: dict[str, bytes] = {}

    async def start(self) -> None:
        await self.client.start(30)
        await self.zk.create_top_level_paths()
        mark = TopicAssignment(MARK, NO_TOPIC_ID, {0: ReplicaAssignment((WITNESS,))})
        await self.client.create(paths.topic(MARK), znodes.encode_topic(mark))
        await self.fleet.start(*BROKERS, WITNESS)
        await self.subject.start()

        async def there() -> bool:
            return not (await self.client.exists_many([_MARK_STATE])).code[0]

        await self._until(there, "the mark to get a leader")
        await self.settle()

    async def stop(self) -> None:
        self.subject.stop()
        await self.fleet.stop()
        await self.client.close()

    # -- a scenario ----------------------------------------------------------------------------------------------------

    async def play(self, scenario: Scenario, number: int) -> list[Moment]:
        self._prefix = f"s{number}-"
        await self._begin(scenario)
        return [await self._moment(step) for step in scenario.steps]

    async def _begin(self, scenario: Scenario) -> None:
        await self.end_term()
        await self._clear()
        await self.fleet.begin_anew()
        own = Version(NEWEST, self.subject.protocol)
        self.fleet.become(dict.fromkeys(BROKERS, own) | dict(enumerate(scenario.versions, 1)))
        await self.fleet.bounce(*sorted(self.fleet.live - {WITNESS}))
        missing = sorted(set(BROKERS) - self.fleet.live)
        if missing:
            await self.fleet.start(*missing)
        await self.begin_term()
        await self.settle()
        self.fleet.take()
        self._live = {}
        self._topic_ids = {}
        self._first_term = await self._term()

    async def _clear(self) -> None:
        roots = (
            paths.TOPICS,
            paths.DELETE_TOPICS,
            paths.config_entities("topics"),
            paths.ISR_CHANGE_NOTIFICATION,
            paths.LOG_DIR_EVENT_NOTIFICATION,
        )
        for root, names in zip(roots, (await self.client.children_many(roots)).names, strict=True):
            for name in set(names or ()) - {MARK}:
                await self.client.delete_recursive(f"{root}/{name}")
        default = paths.config_entity("brokers", "<default>")
        for path in (paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION, default):
            await self.client.write_many([Delete(path)], fence=None)
        blocks = paths.LATEST_PRODUCER_ID_BLOCK
        await self.client.write_many([Delete(blocks)], fence=None)
        await self.client.write_many([Create(blocks, None)], fence=None)

    async def _moment(self, step: Step) -> Moment:
        answer = await step.play(self)
        if step.slow:
            await asyncio.sleep(0.4)
        await self.settle()
        for assignment in await self._assignments():
            self._topic_ids[assignment.topic] = assignment.topic_id
        heard = self.fleet.take()
        self._live = {n: live for n, live in self._live.items() if n in self.fleet.live}
        for n, received in heard.items():
            for request in received:
                if request.api is ApiKey.UPDATE_METADATA:
                    self._live[n] = self._live_brokers(request)
        return Moment(step, self.vacant, answer, self._sent(heard), dict(self._live), await self._znodes())

    def _sent(self, heard: dict[int, list[Received]]) -> dict[tuple[int, str], tuple[Sent, ...]]:
        sent: dict[tuple[int, str], tuple[Sent, ...]] = {}
        for n, received in heard.items():
            epoch = self.fleet.all[n].epoch
            receiver = Receiver(epoch, self._first_term, self.subject.ids, self._topic_ids, self.fleet.ports)
            for request in received:
                for partition, content in sent_by(request, receiver):
                    if partition.topic == MARK:
                        continue
                    key = n, self.plain(str(partition))
                    sent[key] = (*sent.get(key, ()), content)
        return sent

    def _live_brokers(self, received: Received) -> tuple[Live, ...]:
        found = []
        for broker in received.request.live_brokers:
            if broker.id_ not in self.subject.ids:
                endpoints = (
                    (e.listener, e.host, 0 if e.listener == "PLAINTEXT" else int(e.port), int(e.security_protocol))
                    for e in broker.endpoints
                )
                found.append((int(broker.id_), broker.rack or None, tuple(sorted(endpoints))))
        return tuple(sorted(found))

    # -- office --------------------------------------------------------------------------------------------------------

    async def controller(self) -> int:
        """The active controller; waits for one."""

        async def found() -> int | None:
            holder = await self.zk.get_controller(watch=False)
            return getattr(holder, "controller_id", None)

        return int(await self._until(found, "an active controller"))

    async def end_term(self) -> None:
        """There is no controller, and the last one knows it; as when a controller dies and its session goes on."""
        if self.vacant:
            return

        async def replaced() -> bool:
            _, version = await self.zk.get_controller_epoch() or (0, 0)
            ops: list[Op] = [
                SetData(paths.CONTROLLER_EPOCH, str(await self._term() + 1).encode(), version),
                Delete(paths.CONTROLLER),
                Create(paths.CONTROLLER, znodes.encode_controller(NO_CONTROLLER, 0, software=""), ephemeral=True),
            ]
            return not any(result.code for result in await self.client.multi(ops))

        await self._until(replaced, "/controller to be taken")
        self.vacant = True
        await asyncio.sleep(0.1)

    async def begin_term(self) -> None:
        if self.vacant:
            await self._until(self.subject.could_take_over, "a standby to be ready")
            await self.client.delete(paths.CONTROLLER)
            self.vacant = False
        await self.controller()

    async def fail_over(self) -> None:
        before = await self._term()
        await self._until(self.subject.could_take_over, "a standby to be ready")
        await self.client.delete(paths.CONTROLLER)

        async def next_term() -> bool:
            return await self._term() > before

        await self._until(next_term, "the next term")

    async def _term(self) -> int:
        return (await self.zk.get_controller_epoch() or (0, 0))[0]

    # -- the end of a step ---------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        if self.vacant:
            return
        await self._mark()
        quiet = 0
        while quiet < EARLY_MARKS:
            words = self.fleet.words
            await self._mark()
            quiet = quiet + 1 if words == self.fleet.words else 0
        await self._until(self._nothing_notified, "the notifications of ISR changes to be deleted")

    async def _nothing_notified(self) -> bool:
        (names,) = (await self.client.children_many([paths.ISR_CHANGE_NOTIFICATION])).names
        return not names

    async def _mark(self) -> None:
        """Write a mark and wait until every live broker has heard of it."""
        (state,) = (await self.client.get_many([_MARK_STATE])).data
        (written,) = await self.client.multi([SetData(_MARK_STATE, state)])
        assert not written.code
        await self.zk.propagate_isr_changes([TopicPartition(MARK, 0)])

        async def everywhere() -> bool:
            return self.fleet.have_the_mark(written.version)

        await self._until(everywhere, f"mark {written.version} to reach all brokers")

    async def _until(self, probe: Callable[[], Awaitable[Any]], what: str) -> Any:
        deadline = time.monotonic() + WITHIN_S
        while not (found := await probe()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.subject.name}: waited {WITHIN_S:.0f} s for {what}")
            await asyncio.sleep(0.003)
        return found

    # -- for steps -----------------------------------------------------------------------------------------------------

    def named(self, topic: str) -> str:
        """The topic's name in this cluster: names are not used twice."""
        return self._prefix + topic

    def plain(self, topic: str) -> str:
        return topic.removeprefix(self._prefix)

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        """One request to the active controller, on a connection of its own; the answer as kio's entity."""
        host, port = self.subject.address(await self.controller())
        return await ask(self._network, host, port, api, version, **fields)

    async def assignment(self, topic: str) -> TopicAssignment:
        (found,) = (await self.zk.get_topic_assignments([self.named(topic)], watch=False)).found
        return found

    async def state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        """None where there is none."""
        topic, number = partition
        (found,) = await self.zk.get_topic_partition_states([self.named(topic)], [number])
        return found if isinstance(found, LeaderAndIsr) else None

    async def until_leader(self, partition: TopicPartition, leader: int) -> None:
        async def leads() -> bool:
            found = await self.state(partition)
            return found is not None and found.leader == leader

        await self._until(leads, f"broker {leader} to lead {partition}")

    async def until_fact(self, words: Sequence[str], within_s: float) -> None:
        """Wait until ``expect WORDS`` holds; AssertionError with the difference if it does not."""
        deadline = time.monotonic() + within_s
        while (wrong := judge(words, await self._facts())) is not None:
            assert time.monotonic() < deadline, f"{self.subject.name}: {wrong}"
            await asyncio.sleep(0.05)

    async def _facts(self) -> Facts:
        """Of this scenario: its topics by their plain names, terms counted from its beginning."""
        found = await self._assignments()
        keys = [(t.topic, number) for t in found for number in sorted(t.partitions)]
        states = await self.zk.get_topic_partition_states([t for t, _ in keys], [n for _, n in keys])
        return Facts(
            controller=None if self.vacant else 1,
            controller_runs=not self.vacant,
            epoch=await self._term() - self._first_term + 1,
            brokers=frozenset(self.fleet.live - {WITNESS}),
            states={
                (self.plain(t), n): s for (t, n), s in zip(keys, states, strict=True) if isinstance(s, LeaderAndIsr)
            },
            topics=frozenset(self.plain(t.topic) for t in found),
            believed={},
        )

    async def _assignments(self) -> list[TopicAssignment]:
        names = [t for t in await self.zk.get_all_topics_in_cluster(watch=False) if t.startswith(self._prefix)]
        return (await self.zk.get_topic_assignments(sorted(names), watch=False)).found

    # -- ZooKeeper -----------------------------------------------------------------------------------------------------

    async def _znodes(self) -> dict[str, Any]:
        """What is in ZooKeeper, as plain values; without timestamps, ids, sequence numbers."""
        found: dict[str, Any] = {}
        for assignment in await self._assignments():
            found |= await self._topic(assignment)
        lists = (paths.DELETE_TOPICS, paths.config_entities("topics"), paths.LOG_DIR_EVENT_NOTIFICATION)
        for path, names in zip(lists, (await self.client.children_many(lists)).names, strict=True):
            found[path] = sorted(map(self.plain, names or ()))
        requests = (paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION)
        for path, data in zip(requests, (await self.client.get_many(requests)).data, strict=True):
            found[path] = self._partitions(data)
        found[paths.CONTROLLER_EPOCH] = await self._term() - self._first_term
        feature, _ = await self.zk.get_feature()
        found[paths.FEATURE] = feature
        return found

    async def _topic(self, assignment: TopicAssignment) -> dict[str, Any]:
        topic = self.plain(assignment.topic)
        found: dict[str, Any] = {f"{topic}: has an id": assignment.topic_id != NO_TOPIC_ID}
        for number, replicas in assignment.partitions.items():
            found[f"{topic}-{number} replicas"] = replicas._asdict()
            state = await self.state(TopicPartition(topic, number))
            plain = None if state is None else msgspec.structs.asdict(state)
            if plain is not None:
                plain["controller_epoch"] -= self._first_term
            found[f"{topic}-{number} state"] = plain
        return found

    def _partitions(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            entries = msgspec.json.decode(data).get("partitions", [])
        except (msgspec.DecodeError, AttributeError):
            return data
        return sorted((self.plain(e["topic"]), e["partition"], tuple(e.get("replicas", ()))) for e in entries)


def split(partition: str) -> TopicPartition:
    """``a-0`` -> (a, 0)."""
    topic, number = partition.rsplit("-", 1)
    return TopicPartition(topic, int(number))
