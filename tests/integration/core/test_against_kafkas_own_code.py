"""The core against Kafka's own classes: random questions, the same answers from both.

``KafkasOwn.java`` puts them to ``AdminUtils``, ``Election``, ``ReplicaAssignment`` and ``ControllerContext`` of the
release's jars.  Needs a JDK (its compiler) and the jars; where one is missing the tests say so and are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from aiocontroller.core.election import Strategy, UncleanPolicy
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partition_state_machine import plan_elections
from aiocontroller.core.replica_placement import PlacementError, assign_replicas_to_brokers
from tests.builders import ctx, leadership, table
from tests.java import answers, java_program

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # the jars may have to be fetched first

CASES = 4000
IDS = (1, 2, 3, 4, 5)

Brokers = list[tuple[int, str | None]]


@pytest.fixture(scope="module")
def command() -> list[str]:
    return java_program(Path(__file__).with_name("KafkasOwn.java"))


def shown(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def parts(assignment: ReplicaAssignment) -> str:
    return " ".join(shown(part) for part in assignment)


def some(random: Random, pool: Iterable[int], least: int = 0, most: int = 4) -> list[int]:
    known = list(pool)
    return random.sample(known, random.randint(min(least, len(known)), min(most, len(known))))


def an_assignment(random: Random) -> ReplicaAssignment:
    plain = ReplicaAssignment(tuple(some(random, IDS, 1)))
    return plain.reassign_to(some(random, IDS, 1)) if random.random() < 0.5 else plain


def a_leadership(random: Random, assignment: ReplicaAssignment) -> LeaderAndIsr:
    isr = some(random, assignment.replicas, 1)
    return leadership(
        random.choice((-1, *isr)),
        isr,
        leader_epoch=random.randint(0, 9),
        partition_epoch=random.randint(0, 9),
        recovery_state=random.randint(0, 1),
    )


# -- placement ---------------------------------------------------------------------------------------------------------

REFUSALS = {
    "INVALID_PARTITIONS": "InvalidPartitionsException",
    "INVALID_REPLICATION_FACTOR": "InvalidReplicationFactorException",
    "INVALID_REPLICA_ASSIGNMENT": "AdminOperationException",
}


def a_topic(random: Random) -> tuple[Brokers, int, int, int, int]:
    """Brokers, partitions, replication factor, start index, first partition; a few of them impossible."""
    ids = sorted(random.sample(range(60), random.randint(1, 12)))
    zones = "abcde"[: random.randint(1, 5)]
    with_racks = random.random() < 0.7
    brokers: Brokers = [(i, random.choice(zones) if with_racks else None) for i in ids]
    if random.random() < 0.03:
        brokers[0] = (ids[0], None)
    partitions = 0 if random.random() < 0.01 else random.randint(1, 40)
    replication_factor = random.choice((0, len(ids) + 1)) if random.random() < 0.02 else random.randint(1, len(ids))
    return (
        brokers,
        partitions,
        replication_factor,
        random.randint(0, 30),
        random.choice((-1, 0, 0, random.randint(1, 50))),
    )


def placed(brokers: Brokers, partitions: int, replication_factor: int, start_index: int, first_partition: int) -> str:
    try:
        assignment = assign_replicas_to_brokers(
            brokers, partitions, replication_factor, start_index=start_index, first_partition=first_partition
        )
    except PlacementError as refused:
        return REFUSALS[refused.code.name]
    return " ".join(f"{partition}:{shown(replicas)}" for partition, replicas in assignment.items())


def test_replica_placement(command: list[str]) -> None:
    random = Random(1)
    topics = [a_topic(random) for _ in range(CASES)]
    questions = [
        f"place {partitions} {factor} {start} {first} " + " ".join(f"{i}:{rack or '-'}" for i, rack in brokers)
        for brokers, partitions, factor, start, first in topics
    ]
    assert [placed(*topic) for topic in topics] == answers(command, questions)


# -- elections ---------------------------------------------------------------------------------------------------------


def test_elections(command: list[str]) -> None:
    random, questions, ours = Random(2), [], []
    for _ in range(CASES):
        assignment = an_assignment(random)
        before = a_leadership(random, assignment)
        registered = some(random, IDS, 0, 5)
        shutting_down = some(random, registered, 0, 2)
        failed = some(random, assignment.replicas, 0, 2) if random.random() < 0.5 else []
        strategy, unclean, recovery = random.choice(list(Strategy)), random.random() < 0.5, random.random() < 0.5
        questions.append(
            f"{strategy.name} {int(unclean)} {int(recovery)} {shown(registered)} {shown(shutting_down)} "
            f"{shown(failed)} {parts(assignment)} {before.leader} "
            f"{before.leader_epoch} {shown(before.isr)} {before.recovery_state} {before.partition_epoch}"
        )
        context = ctx(registered, {"t": [assignment]}, shutting_down=shutting_down)
        context.table.set_leadership(0, before)
        for broker in failed:
            context.set_offline_dir_replicas(broker, [0], [])
        decisions, _ = plan_elections(context, [0], strategy, UncleanPolicy(unclean), recovery_supported=recovery)
        ours.append("none")
        for now, recipients in zip(decisions.leaderships, decisions.recipients, strict=True):
            if strategy is Strategy.REASSIGN:  # ours also tells replicas that a reassignment is to remove
                assert recipients == assignment.replicas
                recipients = assignment.target
            ours[-1] = (
                f"{now.leader} {now.leader_epoch} {shown(now.isr)} {now.recovery_state} {now.partition_epoch} "
                f"{shown(recipients)}"
            )
    assert ours == answers(command, questions)
    assert 1000 < sum(answer != "none" for answer in ours) < CASES


# -- assignments -------------------------------------------------------------------------------------------------------


def test_reassign_to(command: list[str]) -> None:
    random, questions, ours = Random(3), [], []
    for _ in range(CASES):
        before, target = an_assignment(random), some(random, IDS, 1)
        questions.append(f"reassign {parts(before)} {shown(target)}")
        after = before.reassign_to(target)
        ours.append(parts(after))
    assert ours == answers(command, questions)


def test_preferred_replica_imbalance(command: list[str]) -> None:
    """But where the first replica is being added and leads already: Kafka counts that as imbalanced, we do not."""
    random, questions, ours = Random(4), [], []
    for _ in range(CASES):
        assignment = an_assignment(random)
        known = a_leadership(random, assignment)
        if known.leader == assignment.replicas[0] and known.leader in assignment.adding:
            continue
        questions.append(f"imbalance {parts(assignment)} {known.leader} {shown(known.isr)}")
        made = table({"t": [assignment]})
        made.set_leadership(0, known)
        ours.append(str(made.preferred_replica_imbalance))
    assert ours == answers(command, questions)
