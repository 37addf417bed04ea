"""What is foretold is what a controller then does, on the same cluster."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import msgspec
import pytest

from aiocontroller.check.what_if import Leadership, WhatIf, outcome
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.events import ControlledShutdown
from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr, TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.cluster_tree import ClusterTree, read_cluster_tree
from tests.unit.check.test_rules import tree
from tests.unit.controller.virtual_cluster import Stage, ask, is_active, stage

BROKERS = (1, 2, 3, 4, 5)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


async def random_cluster(it: Stage, chance: random.Random) -> None:
    """Topics whose partitions are on drawn brokers, some of them not in sync, some that allow unclean elections."""
    for number in BROKERS:
        await it.add_broker(number)
    await it.create("/controller_epoch", b"7")
    for name in "abcdef":
        replicas = {str(n): chance.sample(BROKERS, chance.randint(1, 4)) for n in range(8)}
        if chance.random() < 0.4:
            await it.create(
                f"/config/topics/{name}", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
            )
        await it.create(
            f"/brokers/topics/{name}", b'{"version":2,"partitions":%s}' % str(replicas).replace("'", '"').encode()
        )
        await it.create(f"/brokers/topics/{name}/partitions", b"")
        for number, own in replicas.items():
            isr = chance.sample(own, chance.randint(1, len(own)))
            await it.create(f"/brokers/topics/{name}/partitions/{number}", b"")
            await it.create(
                f"/brokers/topics/{name}/partitions/{number}/state",
                b'{"controller_epoch":7,"leader":%d,"version":1,"leader_epoch":3,"isr":%s}'
                % (isr[0], str(isr).encode()),
            )


def states(tree: ClusterTree, alive: frozenset[int]) -> dict[TopicPartition, tuple[int, frozenset[int]]]:
    """Leader, if it lives, and the ISR as a set, for which no order is promised."""
    found = {}
    for name, _, state in tree.partitions:
        if name.topic in tree.deletions:
            continue
        found[name] = NO_LEADER, frozenset[int]()
        if isinstance(state, LeaderAndIsr):
            found[name] = (state.leader if state.leader in alive else NO_LEADER, frozenset(state.isr))
    return found


def foretold(found: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, tuple[int, frozenset[int]]]:
    return {name: (each.leader, frozenset(each.isr)) for name, each in found.items()}


@pytest.mark.parametrize("seed", range(30))
@virtual_time
async def test_deaths_and_shutdowns_end_as_foretold(seed: int) -> None:
    chance = random.Random(seed)
    async with stage() as it:
        await random_cluster(it, chance)
        active = await it.add_controller()
        await it.until(lambda: is_active(active))
        await it.sleep(5)
        tried = WhatIf(await read_cluster_tree(it.zk))
        first, *others = chance.sample(BROKERS, chance.randint(1, 3))
        if chance.random() < 0.5:
            tried.shut_down(first)
            await ask(active, ControlledShutdown, broker=first, broker_epoch=-1)
            await it.kill_broker(first)
        else:
            tried.kill((first,))
            await it.kill_broker(first)
        await it.sleep(5)
        for broker in others:
            tried.kill((broker,))
            await it.kill_broker(broker)
            await it.sleep(5)
        after = await read_cluster_tree(it.zk)
        assert tried.brokers == after.live
        assert foretold(tried.leaderships()) == states(after, after.live)


DEAD = (6, 7)


async def damaged_cluster(it: Stage, chance: random.Random) -> None:
    """With dead brokers, moves that cannot end, topics being deleted, partitions without a state, strangers in ISRs."""
    for number in BROKERS:
        await it.add_broker(number)
    await it.create("/controller_epoch", b"7")
    everybody = (*BROKERS, *DEAD)
    for name in "abcdefgh":
        replicas = {str(n): chance.sample(everybody, chance.randint(1, 4)) for n in range(6)}
        adding = {}
        for number, own in replicas.items():
            if DEAD[0] not in own and chance.random() < 0.3:
                own.insert(0, DEAD[0])
                adding[number] = [DEAD[0]]
        if chance.random() < 0.4:
            await it.create(
                f"/config/topics/{name}", b'{"version":1,"config":{"unclean.leader.election.enable":" True"}}'
            )
        znode = {"version": 3, "partitions": replicas, "adding_replicas": adding, "removing_replicas": {}}
        await it.create(f"/brokers/topics/{name}", json.dumps(znode).encode())
        await it.create(f"/brokers/topics/{name}/partitions", b"")
        for number, own in replicas.items():
            if chance.random() < 0.2:
                continue
            isr = chance.sample(own, chance.randint(1, len(own)))
            if chance.random() < 0.2:
                isr.append(chance.choice([broker for broker in everybody if broker not in own]))
            leader = chance.choice([isr[0], -1, chance.choice(own)])
            state = {"controller_epoch": 7, "leader": leader, "version": 1, "leader_epoch": 3, "isr": isr}
            await it.create(f"/brokers/topics/{name}/partitions/{number}", b"")
            await it.create(f"/brokers/topics/{name}/partitions/{number}/state", json.dumps(state).encode())
        if chance.random() < 0.2:
            await it.create(f"/admin/delete_topics/{name}", b"")


@pytest.mark.parametrize("seed", range(30))
@virtual_time
async def test_a_damaged_cluster_ends_as_foretold(seed: int) -> None:
    chance = random.Random(seed)
    async with stage() as it:
        await damaged_cluster(it, chance)
        active = await it.add_controller()
        await it.until(lambda: is_active(active))
        await it.sleep(5)
        tried = WhatIf(await read_cluster_tree(it.zk))
        for broker in chance.sample(BROKERS, chance.randint(1, 4)):
            if chance.random() < 0.5:
                tried.shut_down(broker)
                await ask(active, ControlledShutdown, broker=broker, broker_epoch=-1)
            else:
                tried.kill((broker,))
            await it.kill_broker(broker)
            await it.sleep(5)
        after = await read_cluster_tree(it.zk)
        assert tried.brokers == after.live
        assert foretold(tried.leaderships()) == states(after, after.live)


def test_topics_being_deleted_and_unreadable_states_are_left_out() -> None:
    changed = msgspec.structs.replace(tree(), deletions=["a", "gone"])
    tried = WhatIf(changed)
    tried.kill((2,))
    assert list(tried.leaderships()) == [B0]
    whole = tree()
    unread = msgspec.structs.replace(
        whole, partitions=[each._replace(state=None) if each.name == A0 else each for each in whole.partitions]
    )
    tried = WhatIf(unread)
    tried.kill((2,))
    assert list(tried.leaderships()) == [A1, B0]


def test_a_move_never_ends_where_there_is_no_leader_to_copy_from() -> None:
    tried = WhatIf(tree())
    tried.kill((2, 3))
    tried.move({B0: (1,)})
    assert tried.leaderships()[B0] == Leadership(NO_LEADER, (2, 3), (1, 2, 3))


@pytest.mark.parametrize(
    "target, partition", [((2**40,), A0), ((-1,), A0), ((), A0), ((1, 1), A0), ((1,), TopicPartition("a", 10**30))]
)
def test_a_hostile_plan_is_refused(target: tuple[int, ...], partition: TopicPartition) -> None:
    with pytest.raises(BadInputError, match=str(partition)):
        WhatIf(tree()).move({partition: target})


def test_the_outcome_names_what_hurts() -> None:
    tried = WhatIf(tree(), {"min.insync.replicas": "2"})
    before, alive = tried.leaderships(), tried.brokers
    tried.kill((2,))
    found = outcome(tried, before, alive)
    assert not found.offline
    assert list(found.under_min_isr) == [A0, A1]  # topic b has a setting of its own
    assert list(found.last_replica) == [A0, A1, B0]
    assert {name: now.leader for name, (_, now) in found.new_leader.items()} == {A1: 1, B0: 3}
    assert found.leaders == {1: (1, 2), 2: (2, 0), 3: (0, 1)}
    assert found.replicas == {1: (2, 2), 2: (3, 3), 3: (1, 1)}
    assert found.written == 3


def test_the_last_replica_takes_its_partition_along() -> None:
    tried = WhatIf(tree())
    before, alive = tried.leaderships(), tried.brokers
    tried.kill((2, 3))
    assert list(outcome(tried, before, alive).offline) == [B0]


def test_an_unclean_election_is_named() -> None:
    tried = WhatIf(tree(), {"unclean.leader.election.enable": "true"})
    before, alive = tried.leaderships(), tried.brokers
    tried.kill((2,))
    tried.kill((1,))
    assert not outcome(tried, before, alive).unclean  # nobody is left who could lead
    tried = WhatIf(tree(), {"unclean.leader.election.enable": "true"})
    before = tried.leaderships()
    tried.kill((3,))
    tried.move({B0: (2, 1)})
    found = outcome(tried, before, alive)
    assert found.replicas[1] == (2, 3)
    assert tried.leaderships()[B0] == Leadership(2, (2, 1), (2, 1))


def test_a_plan_moves_leaders_off_brokers_that_lose_the_replica() -> None:
    tried = WhatIf(tree())
    tried.move({A0: (3, 2)})
    assert tried.leaderships()[A0] == Leadership(3, (3, 2), (3, 2))


def test_unknown_brokers_and_impossible_plans_are_named() -> None:
    tried = WhatIf(tree())
    with pytest.raises(BadInputError, match="found broker 9, expected one that is registered: 1, 2, 3"):
        tried.kill((9,))
    with pytest.raises(BadInputError, match="a-0"):
        tried.move({A0: (9,)})
