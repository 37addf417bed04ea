"""Checks the invariants of a cluster's znodes at every change.

The checker sees each write in the order in which ZooKeeper applied it: the path, the data, the writer, and whether the
write carried the fence.

docs/chaos.md ("What is checked") has the invariants: I1 to I4, I8, alive, one leader, deleted.  Two need details.

 * I3: the ISR contains no broker that was never a replica.  Between the write that removes a replica and the one that
   removes it from the ISR, the ISR contains more than the replicas, as in Kafka.
 * I4: while unclean elections are off, a new leader was in the ISR or is eligible; or it has reported where its log
   ends, and either a live ISR member has too, while no live replica is known to have lost nothing, or the partition
   has waited for the ISR as long as ``Aggressive`` requires.

Requests to brokers and answers to them are compared with the same history (``received``, ``placed``, ``acknowledged``).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Container
from typing import NamedTuple

import msgspec

from aiocontroller.core.ids import NO_LEADER, NO_TOPIC_ID, LeaderAndIsr, TopicAssignment
from aiocontroller.lab.checkers.answers import Answers
from aiocontroller.lab.checkers.config_answers import ConfigAnswers
from aiocontroller.lab.checkers.records import DataChecker
from aiocontroller.lab.checkers.unclean_elections import UncleanElections
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.znode_json import topic_id_from_text

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_CONFIG = re.compile(r"/config/topics/([^/]+)")
_BROKER = re.compile(r"/brokers/ids/(\d+)")
_RECORD_OF_STARTS = "/aiocontroller_broker_starts"
_CONTROLLERS_OWN = (
    "/brokers/topics/",
    "/admin/",
    "/isr_change_notification/",
    "/log_dir_event_notification/",
    "/aiocontroller_ids",
    "/aiocontroller_debts",
    _RECORD_OF_STARTS,
)
"""Paths to which a deposed controller must not write."""

MOST_BROKERS = 8
NO_SESSION = -1
DEAD_FOR_S = 10.0
"""An active controller learns within this time that a broker's registration is gone."""

Partition = tuple[str, int]
Leadership = tuple[int, int, tuple[int, ...], int]
"""(leader, leader epoch, ISR, partition epoch)"""


class Violation(NamedTuple):
    invariant: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}: {self.detail}"


class Writer(NamedTuple):
    session: int
    fenced: bool = False
    controller: bool = False
    by_hand: bool = False
    """The writer is a foreign client; its writes may be wrong, but cannot be prevented."""
    broker: int = -1
    """The broker that owns the session; -1 for any other session."""


class MayLead(NamedTuple):
    """Which replicas that are not in sync may lead a partition."""

    complete: set[int]
    """Replicas that hold everything committed."""
    members: Collection[int]
    """ISR members instead of which a replica with a better log may lead; empty if none may."""
    uncleanly: bool
    """The new leader may lead although it is not in sync: unclean elections are allowed, or it has reported where its
    log ends, and the partition has waited for the ISR long enough."""
    by_order: bool
    """An operator ordered the new leader, whatever its log holds."""


class ZNodeHistory:
    """The history of all writes, and the violations found in it.

    ``exists`` returns whether a znode exists now; ``broker_epoch`` returns a broker's current epoch, 0 if it has none;
    ``now_s`` is ZooKeeper's clock.
    """

    tolerates_strays = False
    """Whether brokers may keep replicas that are no longer assigned to them."""

    _kraft_epoch = 0
    """The epoch that a KRaft controller, which holds the role in a migration, writes into states; 0: none does."""

    def __init__(
        self,
        exists: Callable[[str], bool] = lambda _: True,
        broker_epoch: Callable[[int], int] = lambda _: 0,
        now_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.violations: list[Violation] = []
        self.states: dict[Partition, LeaderAndIsr] = {}
        self.replicas: dict[Partition, frozenset[int]] = {}
        self.controller_epoch = 0
        self._began_with_epoch = 0
        """The highest controller epoch of the states that existed before the run."""
        self.writes = 0
        self.digest = hashlib.sha256()
        """The digest of everything that was written."""
        self.probes: Counter[str] = Counter()
        self.loads = 0
        """How often a controller has read the cluster, at a failover or a reload; each drops waiting requests."""
        self.deleted_in: dict[str, list[tuple[tuple[int, int], dict[int, int]]]] = {}
        """Topic -> the controller epoch, ``loads`` and the brokers' epochs at each deletion of its znode."""
        self._exists = exists
        self._broker_epoch = broker_epoch
        self._now_s = now_s
        self.assigned: dict[Partition, frozenset[int]] = {}
        """The current replicas."""
        self._replaced: set[str] = set()
        """Topics that a foreign client has recreated, and that have not been written since; membership only."""
        self._placed: dict[Partition, set[int]] = {}
        """All replicas so far, also those of earlier topics of the same name; membership only."""
        self.topic_ids: dict[str, str] = {}
        self._winners: dict[int, int] = {}
        """Session -> the last controller epoch that it won."""
        self._winner = NO_SESSION
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._known: dict[Partition, set[Leadership]] = {}
        self._asked: dict[Partition, set[tuple[int, tuple[int, ...], int]]] = {}
        self.unclean = UncleanElections(now_s)
        self._led_uncleanly: dict[Partition, int] = {}
        """The leader epoch of the last unclean election."""
        self.on_election: Callable[[Partition, int, int, Collection[int], bool], None] = lambda *_: None
        """Called when a leader is written, with its epoch, whether it is in the ISR or eligible, and whether an
        operator ordered it."""
        self.reported: Callable[[Partition, int], Collection[int] | None] = lambda *_: None
        """The brokers that reported their log ends before the election of this leader epoch; None if none was asked."""
        self._ordered: dict[Partition, int] = {}
        """Partition -> the broker that an operator ordered to lead, whatever its log holds."""
        self.must_ask: Callable[[Partition, int], bool] = lambda *_: False
        """Whether the controller must ask for logs: it knows that this broker has started uncleanly, and considers
        others online."""
        self.answers = Answers(now_s, self.complain)
        """Checks the answers to clients."""
        self.config_answers = ConfigAnswers(now_s, self.complain)
        self.registered: set[int] = set()  # membership only
        self._gone_s: dict[int, float] = {}
        """Broker -> when it was last registered."""
        self.deletion_forbidden = False
        """Brokers are configured to refuse the deletion of topics."""
        self.running: Callable[[], Collection[int]] = tuple
        """The brokers that any controller can reach and must consider live."""
        self.written_by_hand: dict[str, dict[str, int]] = {}
        """Topic -> znode -> the controller epoch of the first foreign write to it."""
        self.data = DataChecker(
            self.complain,
            self.probe,
            self.topic_ids,
            self.written_by_hand,
            lambda topic: self._exists(paths.delete_topics_topic(topic)),
        )
        """Checks what became of clients' records."""
        self.data.live = lambda: self.registered.intersection(self.running())

    # -- writes to ZooKeeper ---------------------------------------------------------------------------------------

    def changed(self, path: str, data: bytes | None, version: int, writer: Writer, times: int = 1) -> None:
        """Check the creation or change of a znode; its transaction has written it ``times`` times."""
        data = data or b""
        self.digest.update(b"%s %d " % (path.encode(), version) + data)
        self._check_deposed(path, writer)
        self.config_answers.changed(path, data)
        match = _STATE.fullmatch(path)
        if writer.by_hand:
            self._note_foreign_write(path)
        if match is not None and writer.by_hand:
            self._state_by_hand((match[1], int(match[2])), data, version)
        elif match is not None:
            self._state((match[1], int(match[2])), data, version, writer, times)
        elif path == paths.CONTROLLER_EPOCH:
            self._controller_epoch(int(data), writer.session if writer.controller else 0)
        elif path == paths.CONTROLLER:
            self._role_taken(data)
        elif (topic := _TOPIC.fullmatch(path)) is not None:
            self._topic(topic[1], data, writer)
        elif (config := _CONFIG.fullmatch(path)) is not None:
            self._configured(config[1], data)
        elif path == _RECORD_OF_STARTS:
            self.data.eligible.recorded()
        elif (broker := _BROKER.fullmatch(path)) is not None:
            self.registered.add(int(broker[1]))
            self.data.eligible.registered(int(broker[1]))
        else:
            self.answers.changed(path, data)

    def existed_before(self, path: str, data: bytes) -> None:
        """Record a znode that existed before the run; its writer is not checked."""
        match = _STATE.fullmatch(path)
        if match is not None:
            partition, state = (match[1], int(match[2])), znodes.decode_partition_state(path, data, 0)
            assert isinstance(state, LeaderAndIsr)
            self.digest.update(b"%s " % path.encode() + data)
            self._record_state(partition, state)
            self._began_with_epoch = max(self._began_with_epoch, state.controller_epoch)
            if state.leader >= 0:
                self._leaders[*partition, state.leader_epoch] = state.leader
        elif path == paths.CONTROLLER_EPOCH:
            self.controller_epoch = int(data)
        else:
            self.changed(path, data, 0, Writer(NO_SESSION))

    def deleted(self, path: str, writer: Writer) -> None:
        self.digest.update(b"- " + path.encode())
        self._check_deposed(path, writer)
        self.config_answers.changed(path, None)
        match = _STATE.fullmatch(path)
        if writer.by_hand:
            self._note_foreign_write(path)
        if match is not None:
            partition = (match[1], int(match[2]))
            if not writer.by_hand and self.deletion_forbidden:
                self.complain("I8", partition, "its state was deleted although brokers forbid it")
            elif not (writer.by_hand or self._exists(paths.delete_topics_topic(match[1]))):
                self.complain("I8", partition, "its state was deleted without a request")
            self.states.pop(partition, None)
            self.answers.state(partition, None)
            self._leaders = {k: v for k, v in self._leaders.items() if k[:2] != partition}
        elif (config := _CONFIG.fullmatch(path)) is not None:
            self._configured(config[1], None)
        elif (broker := _BROKER.fullmatch(path)) is not None:
            self.registered.discard(int(broker[1]))
            self._gone_s[int(broker[1])] = self._now_s()
        elif (topic := _TOPIC.fullmatch(path)) is not None:
            if not (writer.by_hand or self._exists(paths.delete_topics_topic(topic[1]))):
                self.complain("I8", topic[1], "the topic was deleted without a request")
            self.topic_ids.pop(topic[1], None)
            self.data.topic_gone(topic[1])
            self.answers.topic(topic[1], None)
            self.replicas = {p: r for p, r in self.replicas.items() if p[0] != topic[1]}
            brokers = {broker: self._broker_epoch(broker) for broker in range(1, MOST_BROKERS + 1)}
            self.deleted_in.setdefault(topic[1], []).append(((self.controller_epoch, self.loads), brokers))
            self.assigned = {p: r for p, r in self.assigned.items() if p[0] != topic[1]}
        else:
            self.answers.deleted(path)

    # -- requests of brokers and to brokers ------------------------------------------------------------------------

    def asked(self, partition: Partition, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Record that a leader has requested this ISR."""
        self._asked.setdefault(partition, set()).add((leader_epoch, isr, partition_epoch))

    def received(self, broker: int, partition: Partition, leadership: Leadership) -> None:
        """Check a leadership that a broker has received in LeaderAndIsr or UpdateMetadata."""
        if leadership not in self._known.get(partition, ()):
            self.complain("I5", partition, f"broker {broker} received {leadership}, which ZooKeeper never held")

    def placed(self, broker: int, partition: Partition, replicas: tuple[int, ...]) -> None:
        """Check replicas that a broker has received in LeaderAndIsr."""
        if not self._placed.get(partition, set()).issuperset(replicas):
            self.complain("I5", partition, f"broker {broker} received replicas {replicas}, ZooKeeper never held all")

    def acknowledged(self, broker: int, partition: Partition, leadership: Leadership) -> None:
        """Check a successful answer to a leader's AlterPartition."""
        if leadership not in self._known.get(partition, ()):
            self.complain("I3", partition, f"acknowledged to broker {broker} and never written: {leadership}")

    def replica_deleted(
        self, broker: int, partition: Partition, leader_epoch: int, topic_id: bytes = NO_TOPIC_ID
    ) -> None:
        """Check the deletion of a replica by a broker, which got a StopReplica with this leader epoch.

        An unclean election, which guarantees nothing about the new leader's log, may choose the broker while the
        request is under way.  A replica with another ``topic_id`` belongs to an earlier topic of that name.
        """
        present = self.topic_ids.get(partition[0], "")
        if topic_id != NO_TOPIC_ID and present and topic_id != topic_id_from_text(present):
            return
        self.data.eligible.lost(broker, partition)
        state = self.states.get(partition)
        asked_for = not self.deletion_forbidden and self._exists(paths.delete_topics_topic(partition[0]))
        in_sync = state is not None and broker in state.isr and broker in self.assigned.get(partition, ())
        chosen_later = leader_epoch < self._led_uncleanly.get(partition, leader_epoch)
        if in_sync and not (asked_for or chosen_later):
            self.complain("deleted", partition, f"broker {broker} has deleted a replica in sync: {state}")
        if asked_for:
            self.data.replica_gone(partition[0])  # for good, even if brokers forbid the rest of its deletion

    def ordered(self, partition: Partition, leader: int | None) -> None:
        """Record an operator's request for an election by the replicas' logs, or of this leader."""
        self.unclean.requested([partition])
        if leader is not None:
            self._ordered[partition] = leader

    def may_know_deleted_topic(self, topic: str, broker: int) -> bool:
        """Return whether a broker may still know a deleted topic, or an earlier topic of the same name.

        It may if, since a deletion, the broker has restarted, or the controller has changed or reloaded.
        """
        now = (self.controller_epoch, self.loads), self._broker_epoch(broker)
        return any((term, brokers[broker]) != now for term, brokers in self.deleted_in.get(topic, ()))

    def probe(self, name: str) -> None:
        self.probes[name] += 1

    def complain(self, invariant: str, partition: tuple[str, int] | str, detail: str) -> None:
        subject = partition if isinstance(partition, str) else f"{partition[0]}-{partition[1]}"
        self.violations.append(Violation(invariant, subject, detail))

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_deposed(self, path: str, writer: Writer) -> None:
        if writer.by_hand or writer.session == self._winner or writer.session not in self._winners:
            return
        if path.startswith(_CONTROLLERS_OWN):
            epoch = self._winners[writer.session]
            self.complain(
                "I1", path, f"written by the controller of epoch {epoch}, after {self.controller_epoch} was won"
            )

    def _controller_epoch(self, epoch: int, session: int) -> None:
        released = session == self._winner and not self._exists(paths.CONTROLLER)
        if released and epoch == self.controller_epoch:
            self._winner = NO_SESSION  # writing the same epoch again releases the role for good
            return
        # If an earlier controller's state has the same epoch, writing it again lets the next term begin above it.
        outranked = session == self._winner and epoch == self.controller_epoch == self._began_with_epoch
        if epoch <= self.controller_epoch and self.controller_epoch and not outranked:
            self.complain("I2", paths.CONTROLLER_EPOCH, f"{epoch} after {self.controller_epoch}")
        self.controller_epoch = max(epoch, self.controller_epoch)
        self.data.eligible.term(self.controller_epoch)
        self.answers.term(self.controller_epoch)
        if epoch:
            self._winner = session
            self._winners[session] = epoch

    def _role_taken(self, data: bytes) -> None:
        """After a KRaft controller, the next one must begin above all that it has written (KAFKA-20488)."""
        kraft_epoch = max(getattr(znodes.decode_controller(data), "kraft_controller_epoch", 0), 0)
        epoch, written = self.controller_epoch, [state.controller_epoch for state in self.states.values()]
        if self._kraft_epoch and not kraft_epoch and any(each >= epoch for each in written):
            detail = f"{epoch} after KRaft, which has written states of {max(written)}"
            self.complain("I2", paths.CONTROLLER_EPOCH, detail)
        self._kraft_epoch = kraft_epoch

    def _configured(self, topic: str, data: bytes | None) -> None:
        self.unclean.configured(topic, data)
        self.data.eligible.configured(topic, self.states.items())

    def _topic(self, topic: str, data: bytes, writer: Writer) -> None:
        if not isinstance(znodes.decode_topic(topic, data), TopicAssignment):
            if not writer.by_hand:  # otherwise it was damaged, and is repaired later
                self.complain("I2", topic, f"unreadable znode {data!r}")
            return
        decoded = msgspec.json.decode(data)
        numbers = {(topic, int(number)): replicas for number, replicas in decoded["partitions"].items()}
        # A conditional write meant for the earlier topic can succeed on its replacement, as versions start at 0 again;
        # and partitions that are added to a topic during its deletion are removed again.
        replaced = topic in self._replaced
        if not (writer.by_hand or replaced or self._exists(paths.delete_topics_topic(topic))):
            self._check_topic(topic, decoded.get("topic_id", ""), numbers)
        self._replaced.discard(topic)
        if writer.by_hand and decoded.get("topic_id", "") != self.topic_ids.get(topic):
            self._replaced.add(topic)
        self.topic_ids[topic] = decoded.get("topic_id", "")
        self.assigned = {p: r for p, r in self.assigned.items() if p[0] != topic}
        for partition, replicas in numbers.items():
            self.replicas[partition] = self.replicas.get(partition, frozenset()).union(replicas)
            self.assigned[partition] = frozenset(replicas)
            self._placed.setdefault(partition, set()).update(replicas)
        self.answers.topic(topic, data)

    def _check_topic(self, topic: str, topic_id: str, numbers: Container[Partition]) -> None:
        before = self.topic_ids.get(topic, "")
        if before and topic_id != before:
            self.complain("I2", topic, f"topic id {topic_id!r} after {before!r}")
        for partition in self.assigned:
            if partition[0] == topic and partition not in numbers:
                self.complain("I8", partition, "it vanished from its topic")

    def _note_foreign_write(self, path: str) -> None:
        topic = path.split("/")[3]
        self.written_by_hand.setdefault(topic, {}).setdefault(path, self.controller_epoch)

    def _state_by_hand(self, partition: Partition, data: bytes, version: int) -> None:
        """Record a foreign write; the controller must continue from it, whatever it is."""
        after = znodes.decode_partition_state("/".join(map(str, partition)), data, version)
        if isinstance(after, LeaderAndIsr):  # otherwise it was damaged, and is repaired later
            self._record_state(partition, after)
        self._leaders = {k: v for k, v in self._leaders.items() if k[:2] != partition}

    def _record_state(self, partition: Partition, state: LeaderAndIsr) -> None:
        self.states[partition] = state
        self.unclean.led(partition, state.leader)
        known = (state.leader, state.leader_epoch, state.isr, state.partition_epoch)
        self._known.setdefault(partition, set()).add(known)
        self.answers.state(partition, state)

    def cannot_be_repaired(self, topic: str) -> bool:
        """Return whether a znode of the topic had a foreign write under an earlier controller.

        The current controller cannot know what brokers were sent before its term.
        """
        return any(epoch != self.controller_epoch for epoch in self.written_by_hand.get(topic, {}).values())

    def _state(self, partition: Partition, data: bytes, version: int, writer: Writer, times: int) -> None:
        self.writes += 1
        after = znodes.decode_partition_state("/".join(map(str, partition)), data, version)
        if not isinstance(after, LeaderAndIsr):
            self.complain("I3", partition, f"unreadable state {data!r}")
            return
        before = self.states.get(partition)
        may_lead = self._may_lead(partition, before, after)
        if writer.broker >= 0:
            self._check_leaders_own(partition, before, after, writer.broker)
        else:
            self._check_controllers_own(partition, after, writer)
        self._record_state(partition, after)
        self._check_alone(partition, after)
        self._check_version(partition, before, version, times)
        if before is None or after.leader != before.leader:
            self._check_alive(partition, after.leader)
        if before is not None and after.leader not in (NO_LEADER, before.leader):
            asked = before.leader != NO_LEADER or self.reported(partition, after.leader_epoch) is not None
            unasked = not asked and self.must_ask(partition, after.leader)
            self.data.elected(partition, after.leader, after.leader_epoch, unasked=unasked)
            complete = may_lead.complete.union(before.isr)
            self._ordered.pop(partition, None)
            self.on_election(partition, after.leader, after.leader_epoch, complete, may_lead.by_order)
        self.data.eligible.written(partition, before, after, self.assigned.get(partition, ()))
        if before is not None:
            self._check_step(partition, before, after, may_lead)

    def _may_lead(self, partition: Partition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> MayLead:
        reported = self.reported(partition, after.leader_epoch)
        overdue = self.unclean.overdue(partition) and reported is not None and after.leader in reported
        by_order = self._ordered.get(partition) == after.leader
        return MayLead(
            set(self.data.eligible.complete(partition)),
            set() if by_order else self._unproven(partition, before, after),
            overdue or self.unclean.allowed(partition),
            by_order,
        )

    def _unproven(self, partition: Partition, before: LeaderAndIsr | None, after: LeaderAndIsr) -> set[int]:
        """Return the ISR members instead of which a replica with a better log may lead; empty if none may.

        They and the new leader have reported where their logs end, the controller must know that they have started
        since they were in sync, and there is no live replica that must be known to have lost nothing.
        """
        reported = self.reported(partition, after.leader_epoch)
        if before is None or before.leader != NO_LEADER or reported is None or after.leader not in reported:
            return set()
        eligible, members = self.data.eligible, set(reported).intersection(before.isr)
        steady_lives = not eligible.steady(partition).isdisjoint(self.data.live())
        return set() if steady_lives or not all(map(eligible.must_notice, members)) else members

    def _check_version(self, partition: Partition, before: LeaderAndIsr | None, version: int, times: int) -> None:
        expected = times + (-1 if before is None else before.partition_epoch)
        if version != expected:
            self.complain("I2", partition, f"version {version}, expected {expected}: a write is missing")

    def _check_alive(self, partition: Partition, leader: int) -> None:
        gone_s = self._now_s() - self._gone_s.get(leader, float("-inf"))
        if leader >= 0 and leader not in self.registered and gone_s > DEAD_FOR_S:
            self.complain("alive", partition, f"{leader} was elected, and has not been registered for {gone_s:.0f} s")

    def _check_controllers_own(self, partition: Partition, state: LeaderAndIsr, writer: Writer) -> None:
        if writer.session != self._winner:
            self.complain("I1", partition, f"session 0x{writer.session:x} wrote, 0x{self._winner:x} is active")
        if not writer.fenced:
            self.complain("I1", partition, "written without the fence")
        rules = self._kraft_epoch or self.controller_epoch
        if state.controller_epoch != rules:
            self.complain("I2", partition, f"controller epoch {state.controller_epoch}, {rules} rules")

    def _check_leaders_own(
        self, partition: Partition, before: LeaderAndIsr | None, after: LeaderAndIsr, broker: int
    ) -> None:
        """Check a leader's own write; ``_check_within_epoch`` checks its ISR, as for all writers."""
        self.probe("an ISR written by its leader")
        same = before is not None and (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        if not same or after.leader != broker:
            self.complain("I1", partition, f"broker {broker} wrote {after}, it was {before}")
        elif before is not None and before.controller_epoch != after.controller_epoch:
            self.complain("I2", partition, f"controller epoch {after.controller_epoch} after {before.controller_epoch}")

    def _check_alone(self, partition: Partition, state: LeaderAndIsr) -> None:
        if not state.isr:
            self.complain("I3", partition, f"ISR {state.isr}")
        if state.leader >= 0 and state.leader not in state.isr:
            self.complain("I3", partition, f"leader {state.leader} is not in the ISR {state.isr}")
        replicas = self.replicas.get(partition)
        recreated = partition[0] in self._replaced  # a state of the earlier topic may still be written
        if replicas is not None and not replicas.issuperset(state.isr) and not recreated:
            self.complain("I3", partition, f"ISR {state.isr} with others than the replicas {sorted(replicas)}")
        if state.leader >= 0:
            known = self._leaders.setdefault((*partition, state.leader_epoch), state.leader)
            if known != state.leader:
                self.complain(
                    "one leader", partition, f"{known} and {state.leader} both lead in epoch {state.leader_epoch}"
                )

    def _check_step(
        self,
        partition: Partition,
        before: LeaderAndIsr,
        after: LeaderAndIsr,
        may_lead: MayLead,
    ) -> None:
        by_hand = partition[0] in self.written_by_hand  # then it is not known which replicas are in sync
        raised = after.leader_epoch - before.leader_epoch
        if raised < 0 or (raised > 1 and not by_hand):
            self.complain("I2", partition, f"leader epoch {after.leader_epoch} after {before.leader_epoch}")
        elected = after.leader not in (NO_LEADER, before.leader)
        if after.leader in may_lead.complete:
            self.probe("an eligible replica leads")
            if after.isr != (after.leader,):
                self.complain("I3", partition, f"ISR {after.isr} of {after.leader}, which was not in sync before")
        elif elected and after.leader not in before.isr:
            self.probe("unclean election")
            if may_lead.members:
                self._led_uncleanly[partition] = after.leader_epoch
                self.data.elected_in_place_of(partition, after.leader_epoch, may_lead.members)
            elif not (by_hand or may_lead.uncleanly):
                self.complain("I4", partition, f"leader {after.leader} from outside the ISR {before.isr}")
                self.data.not_excused(partition, after.leader_epoch)
            else:
                self._led_uncleanly[partition] = after.leader_epoch
                self.data.elected_uncleanly(partition, after.leader_epoch)
        elif after.leader_epoch == before.leader_epoch:
            self._check_within_epoch(partition, before, after)
        elif set(after.isr) - set(before.isr):
            self.complain("I3", partition, f"ISR {after.isr} after {before.isr}, which no leader asked for")

    def _check_within_epoch(self, partition: Partition, before: LeaderAndIsr, after: LeaderAndIsr) -> None:
        if after.leader != before.leader:
            self.complain("one leader", partition, f"{after.leader} after {before.leader} in one leader epoch")
        question = (after.leader_epoch, after.isr, before.partition_epoch)
        if after.isr != before.isr and question not in self._asked.get(partition, ()):
            self.complain(
                "I3",
                partition,
                f"ISR {after.isr} after {before.isr} in one leader epoch, which its leader did not ask for",
            )
        self.probe("ISR shrinks" if len(after.isr) < len(before.isr) else "ISR grows")
