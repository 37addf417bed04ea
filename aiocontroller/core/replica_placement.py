"""Chooses brokers for a new topic's or new partitions' replicas, as Kafka's ``AdminUtils`` does (3.9, server-common).

Rules.
 * Leaders go round-robin over the broker list from ``start_index``; followers are at an offset from their leader, which
   grows each time the leaders have gone once round, so that a broker's followers are spread over all the others.
 * When brokers have racks, the list first alternates between racks, and a follower takes the next broker in a rack
   that has no replica yet; once every rack has one, it takes the next broker that has no replica yet.
 * The same arguments give the same result as Kafka's.  Kafka draws the start index and the shift itself if none are
   given; here the caller draws both, since ``core`` leaves nothing to chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiocontroller.core.errors import BadInputError, KafkaErrorCode


class PlacementError(BadInputError):
    """The request allows no assignment; ``code`` is the error code for the client."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def assign_replicas_to_brokers(
    brokers: Sequence[tuple[int, str | None]],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    first_partition: int = 0,
    start_shift: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Replicas, preferred leader first, of partitions ``first_partition`` to ``first_partition + partitions - 1``.

    ``brokers`` are (id, rack) pairs in the order of the round-robin (Kafka passes them by ascending id).
    ``start_index`` is where partition 0's leader stands in that order, ``start_shift`` how far behind it the first
    follower begins; without one it equals ``start_index``, as with Kafka's fixed start index.

    Raises ``PlacementError`` when fewer than one partition or replica is asked for, when there are fewer brokers than
    replicas, when an id appears twice, or when some brokers but not all have a rack.
    """
    assert start_index >= 0 and (start_shift is None or start_shift >= 0), (start_index, start_shift)
    racks = _checked_racks(brokers, partitions, replication_factor)
    order = rack_alternated(racks) if racks else [broker for broker, _ in brokers]
    number_of_racks = len(set(racks.values()))
    shift = start_index if start_shift is None else start_shift
    first = max(0, first_partition)
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first, first + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader = (partition + start_index) % len(order)
        if racks:
            assigned[partition] = _spread_over_racks(order, racks, number_of_racks, leader, shift, replication_factor)
        else:
            followers = (order[_follower(leader, shift, n, len(order))] for n in range(replication_factor - 1))
            assigned[partition] = (order[leader], *followers)
    return assigned


def start_index_of_new_partitions(brokers: Sequence[tuple[int, str | None]], first_replica: int) -> int:
    """The ``start_index`` with which Kafka adds partitions to a topic whose partition 0 prefers ``first_replica``.

    It is the place of that broker, or of the next higher id when it is gone, or 0 (``AdminZkClient``'s
    ``createNewPartitionsAssignment``, which passes the number of existing partitions as ``first_partition``).
    """
    return next((index for index, (broker, _) in enumerate(brokers) if broker >= first_replica), 0)


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Broker ids taken from one rack after the other (racks by name, brokers by id) until all are used."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    longest = max(map(len, by_rack.values()), default=0)
    in_order = [by_rack[rack] for rack in sorted(by_rack)]
    return [brokers[turn] for turn in range(longest) for brokers in in_order if turn < len(brokers)]


def _checked_racks(
    brokers: Sequence[tuple[int, str | None]], partitions: int, replication_factor: int
) -> dict[int, str]:
    """Each broker's rack, or an empty dict if no broker has one."""
    if partitions <= 0:
        raise PlacementError(KafkaErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0.",
        )
    if replication_factor > len(brokers):
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    if len({broker for broker, _ in brokers}) != len(brokers):
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"brokers: found {[broker for broker, _ in brokers]}, expected each id once",
        )
    racks = {broker: rack for broker, rack in brokers if rack is not None}
    if racks and len(racks) < len(brokers):
        without = [broker for broker, rack in brokers if rack is None]
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"racks: brokers {without} have none while {list(racks)} have one, expected all brokers or none",
        )
    return racks


def _follower(leader: int, shift: int, number: int, brokers: int) -> int:
    """The index of follower ``number``: never the leader's, and a permutation of the others over ``brokers - 1``."""
    return (leader + 1 + (shift + number) % (brokers - 1)) % brokers


def _spread_over_racks(
    order: Sequence[int],
    racks: Mapping[int, str],
    number_of_racks: int,
    leader: int,
    shift: int,
    replication_factor: int,
) -> tuple[int, ...]:
    """The replicas of one partition, in as many racks as possible.

    Terminates: the offsets visit every other broker, and an acceptable one exists while replicas are missing.
    """
    chosen = [order[leader]]
    used_racks = {racks[order[leader]]}
    offset = 0
    while len(chosen) < replication_factor:
        broker = order[_follower(leader, shift * number_of_racks, offset, len(order))]
        offset += 1
        if broker in chosen or (racks[broker] in used_racks and len(used_racks) < number_of_racks):
            continue
        chosen.append(broker)
        used_racks.add(racks[broker])
    return tuple(chosen)
