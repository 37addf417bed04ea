"""Debts: removed replicas that their brokers have yet to delete (``docs/debts.md``).

The step that removes a replica records the debt.  A debt ends when its broker has answered a StopReplica that deletes
the replica (*paid*), when the broker becomes a replica again (*cancelled*), or when an operator drops it (*dropped*).

Rules.
 * A broker owes each (topic name, partition) once at most: StopReplica knows names only, so one answer pays for all
   topics that ever had this name.  The first debt stays.
 * While a broker owes a partition of an earlier topic, the same partition of the present topic is not online there, and
   the broker gets no request about it: it would mistake one topic's log for the other's, or delete the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.partitions import Topic

Key = tuple[int, str]
"""(broker, topic name): identifies one znode."""


class Debt:
    """A removed replica that its broker has yet to delete.

    Compared by identity: an answer pays the debt that its request was for, not a later, equal one.
    """

    __slots__ = ("asked", "broker", "fenced", "partition", "topic", "topic_id")

    def __init__(self, broker: int, topic: str, topic_id: bytes, partition: int) -> None:
        self.broker = broker
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.asked = False
        """The StopReplica was sent, and the broker has not answered yet."""
        self.fenced = False
        """The broker already knows the leader epoch of the StopReplica."""

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


class Deletions(NamedTuple):
    """The deletions that one StopReplica asks for."""

    rows: Sequence[int] = ()
    topics: Sequence[Topic] = ()
    """Each row's topic at the time of the request: the row may belong to another topic when the answer comes."""
    debts: Sequence[Debt] = ()


class Ledger:
    """All debts as stored in the znodes, with the znodes' versions."""

    def __init__(self) -> None:
        self._debts: dict[int, dict[str, dict[int, Debt]]] = {}
        self._versions: dict[Key, int] = {}
        self.topics: dict[str, dict[int, None]] = {}
        """Topic name -> the brokers that owe partitions of it."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Debt]:
        for broker in self.brokers():
            yield from self.of_broker(broker)

    def brokers(self) -> list[int]:
        """The brokers that owe anything, ascending."""
        return sorted(self._debts)

    def of_broker(self, broker: int) -> list[Debt]:
        """By topic name and partition."""
        return [debt for _, own in sorted(self._debts.get(broker, {}).items()) for _, debt in sorted(own.items())]

    def of_topics(self, names: Iterable[str]) -> list[Debt]:
        """The debts of all brokers for these names, whichever topic had them."""
        brokers = [(broker, name) for name in names for broker in self.topics.get(name, ())]
        return [debt for key in brokers for debt in self.of(*key).values()]

    def of(self, broker: int, topic: str) -> Mapping[int, Debt]:
        """Partition -> debt."""
        return self._debts.get(broker, {}).get(topic, {})

    def get(self, broker: int, topic: str, partition: int) -> Debt | None:
        """The debt of a replica; None if there is none."""
        return self.of(broker, topic).get(partition)

    def version(self, broker: int, topic: str) -> int:
        """The znode's version, or -1 if there is none."""
        return self._versions.get((broker, topic), -1)

    def holds(self, debt: Debt) -> bool:
        """Whether this very debt is still owed; another for the same replica is another object."""
        return self.get(debt.broker, debt.topic, debt.partition) is debt

    def set(self, broker: int, topic: str, partitions: Mapping[int, bytes], version: int) -> None:
        """Record the znode's contents: partition -> topic id.  Debts that stay keep their objects.

        ``version`` is -1 if there is no znode; an empty or unreadable znode has a version.
        """
        before = self.of(broker, topic)
        after = {
            number: known
            if (known := before.get(number)) is not None and known.topic_id == topic_id
            else self._new_debt(broker, topic, topic_id, number)
            for number, topic_id in partitions.items()
        }
        self._count += len(after) - len(before)
        if version < 0:
            self._versions.pop((broker, topic), None)
        else:
            self._versions[broker, topic] = version
        if after:
            self._debts.setdefault(broker, {})[topic] = after
            self.topics.setdefault(topic, {})[broker] = None
            return
        if before:
            del self._debts[broker][topic]
            if not self._debts[broker]:
                del self._debts[broker]
            del self.topics[topic][broker]
            if not self.topics[topic]:
                del self.topics[topic]

    def _new_debt(self, broker: int, topic: str, topic_id: bytes, partition: int) -> Debt:
        return Debt(broker, topic, topic_id, partition)

    def give_up(self, debts: Iterable[Debt]) -> None:
        """Remove the debts, whatever the znodes hold."""
        for debt in filter(self.holds, list(debts)):
            key = (debt.broker, debt.topic)
            left = {number: other.topic_id for number, other in self.of(*key).items() if other is not debt}
            self.set(*key, left, self.version(*key))


class Changes:
    """Debts to add and to remove; the contents of the znodes are computed before each attempt to write."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._owed: dict[Key, dict[int, bytes]] = {}
        self._forgotten: dict[Key, list[Debt]] = {}

    def owe(self, broker: int, topic: str, topic_id: bytes, partition: int) -> None:
        """Add a debt; an older one for the same name stays as it is, and its payment pays this one too."""
        self._owed.setdefault((broker, topic), {})[partition] = topic_id

    def forget(self, debt: Debt) -> None:
        """Remove the debt, if it is still owed."""
        self._forgotten.setdefault((debt.broker, debt.topic), []).append(debt)

    def forgotten(self) -> list[Debt]:
        """The debts to remove."""
        return [debt for debts in self._forgotten.values() for debt in debts]

    def wanted(self, topic: str | None = None) -> dict[Key, dict[int, bytes]]:
        """The new contents of each znode that changes (partition -> topic id); for one topic, or for all."""
        found = {}
        for key in sorted({*self._owed, *self._forgotten}):
            if topic is not None and key[1] != topic:
                continue
            known = {number: debt.topic_id for number, debt in self._ledger.of(*key).items()}
            gone = {debt.partition for debt in self._forgotten.get(key, ()) if self._ledger.holds(debt)}
            after = self._owed.get(key, {}) | {n: topic_id for n, topic_id in known.items() if n not in gone}
            if after != known:
                found[key] = after
        return found

    def topics(self) -> set[str]:
        """The names of the topics whose debts change; for membership only."""
        return {topic for _, topic in (*self._owed, *self._forgotten)}
