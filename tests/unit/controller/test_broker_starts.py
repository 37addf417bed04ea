"""Unclean starts and eligible replicas through the handlers: across terms, other controllers, bounces and settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from aiocontroller.config import Config
from aiocontroller.controller import broker_starts
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.obeyed_settings import MIN_ISR, SESSION_TIMEOUT, ReportedSettings
from aiocontroller.core import events as ev
from aiocontroller.core.apply import apply
from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.context_changes import StartsRecorded
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.metrics import Metrics
from aiocontroller.zookeeper.from_aiozk import exc
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def it() -> PureCluster:
    """Broker 1 leads alone; broker 2 is eligible, since it left an ISR that was too small then; 3 left before."""
    it = cluster(1, 2, 3, t=[[1, 2, 3]])
    it.znodes.configs["t"] = {"min.insync.replicas": "2"}
    shrink(it, 1, 2)
    shrink(it, 1)
    assert eligible(it) == [2]
    return it


def shrink(it: PureCluster, *isr: int) -> None:
    state = it.znodes.states[T0]
    change = AlterPartition("t", 0, state.leader_epoch, isr, state.partition_epoch, 0)
    epoch = it.znodes.brokers[state.leader].epoch
    answer = it.ask(ev.AlterPartitionReceived, broker=state.leader, broker_epoch=epoch, version=3, partitions=(change,))
    assert [result.error_code for result in answer] == [0]


def eligible(it: PureCluster) -> list[int]:
    found = it.znodes.states[T0].eligible
    return [] if found is None else [replica for replica, _ in found.replicas]


def led_by(it: PureCluster) -> tuple[int, tuple[int, ...]]:
    return it.znodes.states[T0].leader, it.znodes.states[T0].isr


def change(it: PureCluster, *, gone: tuple[int, ...] = (), started: tuple[int, ...] = ()) -> None:
    for broker in gone:
        it.unregister(broker)
    for broker in started:
        it.register(broker)
    it.queue.append(ev.BrokerChange())
    it.step()


def stop(it: PureCluster, broker: int) -> None:
    it.ask(ev.ControlledShutdown, broker=broker, broker_epoch=it.znodes.brokers[broker].epoch)


def clean_restart(it: PureCluster, broker: int) -> None:
    stop(it, broker)
    change(it, gone=(broker,))
    change(it, started=(broker,))


def test_an_eligible_replica_leads_when_the_last_isr_member_dies(it: PureCluster) -> None:
    change(it, gone=(1,))
    assert led_by(it) == (2, (2,))
    assert eligible(it) == [1]


def test_one_that_bounces_uncleanly_does_not(it: PureCluster) -> None:
    change(it, started=(2,))
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_one_that_restarts_cleanly_does(it: PureCluster) -> None:
    clean_restart(it, 2)
    change(it, gone=(1,))
    assert led_by(it) == (2, (2,))


@pytest.mark.parametrize(
    "ago_s, reported_ms, granted_s, leader",
    [
        (8.9, "18000", 18.0, 2),
        (9.1, "18000", 18.0, -1),
        (2.9, None, 18.0, 2),
        (3.1, None, 18.0, -1),
        (4.9, "18000", 10.0, 2),
        (5.1, "18000", 10.0, -1),
        (2.1, "4000", 18.0, -1),
        (2.9, "-1", 18.0, 2),
    ],
)
def test_one_whose_session_may_have_expired_after_its_controlled_shutdown_does_not(
    it: PureCluster, ago_s: float, reported_ms: str | None, granted_s: float, leader: int
) -> None:
    """It may have lost power before its logs were flushed; its session then lasts two thirds of its timeout."""
    if reported_ms is not None:
        it.shell.settings.heard({2: ReportedSettings({SESSION_TIMEOUT: reported_ms})}, no_brokers=False)
    it.znodes.client.session_timeout_s = granted_s
    stop(it, 2)
    it.views[2].alive_s = -ago_s
    change(it, gone=(2,))
    change(it, started=(2,))
    change(it, gone=(1,))
    assert led_by(it)[0] == leader


def test_session_timeout_of_a_broker_counts_when_it_is_gone_and_only_its_own(it: PureCluster) -> None:
    """The guard may have seen that it is gone before the consumer has."""
    reported = {
        broker: ReportedSettings({SESSION_TIMEOUT: reported_ms}) for broker, reported_ms in ((2, "4000"), (3, "18000"))
    }
    it.shell.settings.heard(reported, no_brokers=False)
    for broker in (2, 3):
        stop(it, broker)
        it.views[broker].alive_s = -2.1
    it.shell.settings.heard({1: ReportedSettings({SESSION_TIMEOUT: "18000"})}, no_brokers=False)
    change(it, gone=(2, 3))
    starts = it.shell.context.starts
    assert starts is not None
    assert [starts.brokers[broker].stopping for broker in (2, 3)] == [False, True]


def test_a_shutdown_asked_for_by_a_later_incarnation_says_nothing_of_one_that_crashed(it: PureCluster) -> None:
    """It may ask before its registration has been looked at."""
    it.register(2)
    stop(it, 2)
    change(it)
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_one_that_starts_uncleanly_when_the_leader_dies(it: PureCluster) -> None:
    change(it, gone=(1,), started=(2,))
    assert led_by(it) == (-1, (1,))


def test_a_leader_that_bounces_uncleanly_follows_the_eligible_replica(it: PureCluster) -> None:
    change(it, started=(1,))
    assert led_by(it) == (2, (2,))
    assert eligible(it) == []


def test_a_leader_that_stops_cleanly_hands_over_to_the_eligible_replica(it: PureCluster) -> None:
    stop(it, 1)
    assert led_by(it) == (2, (2,))
    assert eligible(it) == [1]
    change(it, gone=(1,))
    change(it, gone=(2,), started=(1,))
    assert led_by(it) == (1, (1,))


@pytest.mark.parametrize("reload", [False, True])
def test_the_next_term_knows_of_an_eligible_replica(it: PureCluster, reload: bool) -> None:
    it.reload() if reload else it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == (2, (2,))


def test_a_leader_that_restarted_uncleanly_between_two_terms_does_not_lead_on(it: PureCluster) -> None:
    it.register(1)
    it.failover()
    assert led_by(it) == (2, (2,))
    it.step()
    assert 1 in it.shell.context.live
    assert led_by(it) == (2, (2,))


def test_an_eligible_replica_that_restarted_uncleanly_between_two_terms(it: PureCluster) -> None:
    it.register(2)
    it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_one_that_was_known_to_be_dead_and_started_uncleanly_between_two_terms(it: PureCluster) -> None:
    change(it, gone=(2,))
    it.register(2)
    it.failover()
    assert 2 in it.shell.context.live
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_one_that_was_dead_and_one_that_bounced_between_two_terms(it: PureCluster) -> None:
    """What is left out for now must not hide what the others' starts have cost."""
    change(it, gone=(2,))
    it.register(2)
    it.register(1)
    it.failover()
    assert led_by(it) == (-1, (1,))
    it.step()
    assert led_by(it) == (1, (1,))


@pytest.mark.parametrize("seen", [True, False])
def test_one_that_restarted_cleanly_and_then_the_controller_changes(it: PureCluster, seen: bool) -> None:
    """It counts if some controller has seen it gone soon enough; the next one does not know when it stopped."""
    stop(it, 2)
    it.unregister(2)
    if seen:
        change(it)
    it.register(2)
    it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == ((2, (2,)) if seen else (-1, (1,)))


def test_a_term_that_ends_before_its_brokers_are_dealt_with_leaves_that_to_the_next(it: PureCluster) -> None:
    """At any write: the leader must not lead on with what its log has left."""
    for writes in range(1, 12):
        it = cluster(1, 2, 3, t=[[1, 2, 3]])
        it.znodes.configs["t"] = {"min.insync.replicas": "2"}
        shrink(it, 1, 2)
        shrink(it, 1)
        it.register(1)
        it.znodes.crash_after = writes
        it.failover()
        it.step()
        assert led_by(it) == (2, (2,)), writes


def test_a_term_that_ends_before_a_death_is_dealt_with_leaves_that_to_the_next(it: PureCluster) -> None:
    """At any write: the leader dies between two terms, and comes back after the second, which has not got far."""
    for writes in range(1, 12):
        it = cluster(1, 2, 3, t=[[1, 2, 3]])
        it.znodes.configs["t"] = {"min.insync.replicas": "2"}
        shrink(it, 1, 2)
        shrink(it, 1)
        it.unregister(1)
        it.znodes.crash_after = writes
        it.znodes.on_crash = lambda it=it: it.register(1)
        it.failover()
        it.step()
        assert led_by(it) == (2, (2,)), writes
        assert it.znodes.starts == it.shell.context.starts


@pytest.mark.parametrize("ends", ["before", "after"])
def test_settings_heard_meanwhile_do_not_record_what_has_not_been_dealt_with(ends: str) -> None:
    """At any write: the leader bounces, or dies and comes back in the next term."""
    for writes in range(4):
        it = cluster(1, 2, 3, t=[[1, 2, 3]])
        it.znodes.configs["t"] = {"min.insync.replicas": "2"}
        shrink(it, 1, 2)
        shrink(it, 1)
        it.shell.settings.heard({3: ReportedSettings({MIN_ISR: "2"})}, no_brokers=False)
        it.znodes.crash_after = writes
        if ends == "before":
            change(it, started=(1,))
        else:
            it.znodes.on_crash = lambda it=it: it.register(1)
            change(it, gone=(1,))
        assert led_by(it) == (2, (2,)), writes
        assert it.znodes.starts == it.shell.context.starts
        assert it.znodes.starts.min_isr == 2


def test_a_death_is_recorded_once_it_has_been_dealt_with(it: PureCluster) -> None:
    """So the next term does not take the broker out again when it has started meanwhile."""
    it.unregister(1)
    it.failover()
    it.step()
    assert it.znodes.starts is not None
    assert it.znodes.starts.brokers[1].gone
    it.register(1)
    it.failover()
    assert 1 in it.shell.context.live


def test_a_term_that_ends_before_its_first_write_might_have_been_of_any_controller(it: PureCluster) -> None:
    it.znodes.crash_after = 0
    it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_another_kind_of_controller_in_between_ends_all_eligibility(it: PureCluster) -> None:
    it.znodes.epoch += 1
    it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_a_state_that_another_controller_left_alone_does_not_count_for_later_terms(it: PureCluster) -> None:
    it.znodes.epoch += 1
    it.failover()
    it.failover()
    it.step()
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_a_broker_is_proven_by_its_start_unless_an_isr_without_a_leader_has_it(it: PureCluster) -> None:
    change(it, started=(2,))
    change(it, gone=(3,))
    change(it, started=(3,))
    assert unproven(it) == set()
    it.failover()
    assert unproven(it) == set()


def test_a_record_that_does_not_know_what_proven_is_proves_brokers_as_the_cluster_is_loaded(it: PureCluster) -> None:
    """An earlier release has written it."""
    change(it, started=(2,))
    starts = it.znodes.starts
    assert starts is not None
    known = {broker: each._replace(proven=False) for broker, each in starts.brokers.items()}
    it.znodes.starts = replace(starts, brokers=known)
    it.failover()
    assert unproven(it) == set()


def unproven(it: PureCluster) -> set[int]:
    assert it.znodes.starts == it.shell.context.starts
    return set(it.shell.context.unproven_brokers())


def test_a_change_of_the_topics_settings_ends_it(it: PureCluster) -> None:
    it.znodes.config_zxids["t"] = 500
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_settings_that_changed_before_the_isr_shrank_do_not(it: PureCluster) -> None:
    """The controller remembers what it read; what has changed since shows at the election."""
    it.znodes.config_zxids["t"] = 500
    shrink(it, 1, 2)
    shrink(it, 1)
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_a_failed_disk_ends_it(it: PureCluster) -> None:
    it.views[2].failed_dirs.add(T0)
    row = it.shell.context.table.row("t", 0)
    topic_id = it.znodes.topics["t"].topic_id
    it.queue.append(ev.LeaderAndIsrResponseReceived(2, it.znodes.brokers[2].epoch, 0, ((topic_id, 0, 56),), (row,)))
    it.step()
    clean_restart(it, 2)
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


def test_min_isr_of_brokers_counts_for_topics_without_their_own(it: PureCluster) -> None:
    assert it.shell.context.starts is not None
    assert it.shell.context.starts.min_isr == 1
    del it.znodes.configs["t"]
    it.shell.min_isrs.clear()
    change(it, gone=(1,))
    assert led_by(it) == (-1, (1,))


@pytest.mark.parametrize("entity", ["<default>", "2", None])
def test_a_default_of_brokers_that_was_lowered_a_moment_ago_counts_at_once(entity: str | None) -> None:
    it = cluster(1, 2, 3, t=[[1, 2, 3]])
    starts = it.shell.context.starts
    assert starts is not None
    apply(it.shell.context, StartsRecorded(replace(starts, min_isr=2)))
    shrink(it, 1)
    assert eligible(it) == [2, 3]
    if entity is not None:
        it.znodes.broker_configs[entity] = {"min.insync.replicas": "1"}
    change(it, gone=(1,))
    assert led_by(it) == ((2, (2,)) if entity is None else (-1, (1,)))


def test_without_the_setting_and_with_old_brokers_nothing_is_kept(it: PureCluster) -> None:
    for config in (Config(aiocontroller_eligible_leader_replicas=False), Config(inter_broker_protocol_version="3.6")):
        it.shell.settings = ClusterSettings(config, Metrics())
        it.shell.policy = it.shell.settings.policy
        it.znodes.starts = None
        it.failover()
        assert it.shell.context.starts is None
        assert it.znodes.starts is None
        change(it, gone=(1,))
        assert led_by(it) == (-1, (1,))
        change(it, started=(1,))
        assert led_by(it) == (1, (1,))
        assert eligible(it) == []


@pytest.mark.parametrize("min_isr", ["99999999999", "9" * 5000, "-2", "two"])
def test_min_isr_that_brokers_cannot_read_makes_nobody_eligible(it: PureCluster, min_isr: str) -> None:
    """They may go on with 1, and commit alone."""
    it.znodes.configs["t"] = {"min.insync.replicas": min_isr}
    it.shell.min_isrs.clear()
    shrink(it, 1, 2)
    shrink(it, 1)
    assert eligible(it) == []


def test_a_write_that_is_denied_in_the_middle_of_a_change_ends_the_record(it: PureCluster) -> None:
    """An operator may take our rights away at any time."""
    it.shell.settings.heard({3: ReportedSettings({MIN_ISR: "2"})}, no_brokers=False)

    async def deny(starts: BrokerStarts, *, fence: int) -> None:
        raise exc.NoAuth

    it.znodes.set_broker_starts = deny  # type: ignore[method-assign]
    change(it, gone=(3,))
    assert it.shell.context.starts is None


def test_a_record_that_cannot_be_read_begins_anew(it: PureCluster) -> None:
    it.znodes.starts = None
    it.failover()
    starts = it.shell.context.starts
    assert starts is not None
    assert starts.valid_from == it.znodes.epoch
    assert it.znodes.starts == starts


def test_a_reassignment_takes_eligible_replicas_with_it(it: PureCluster) -> None:
    it.register(4)
    change(it)
    it.ask(ev.ApiPartitionReassignment, targets={T0: (1, 3, 4)})
    shrink(it, 1, 3, 4)
    it.step()
    assert it.znodes.topics["t"].partitions[0].replicas == (1, 3, 4)
    assert eligible(it) == []


def test_states_keep_what_is_written_when_only_their_epoch_rises(it: PureCluster) -> None:
    state = it.znodes.states[T0]
    it.znodes.election = [T0]
    it.queue.append(ev.ZkPreferredReplicaElection())
    it.step()
    assert it.znodes.states[T0].eligible == state.eligible
    assert msgspec.structs.replace(it.znodes.states[T0], eligible=None) != state


@pytest.mark.parametrize("kept_by, written", [(2, [3]), (1, []), (3, [])])
async def test_a_term_that_never_began_passes_on_what_its_predecessor_kept(kept_by: int, written: list[int]) -> None:
    """An earlier controller's record says nothing about the terms since."""
    found: list[int] = []

    class Zk:
        async def get_broker_starts(self) -> BrokerStarts:
            return BrokerStarts(kept_by, 0, 0, 1, {})

        async def set_broker_starts(self, starts: BrokerStarts, *, fence: int) -> None:
            assert fence == 7
            found.append(starts.controller_epoch)

    shell = SimpleNamespace(zk=Zk(), policy=SimpleNamespace(eligible_leader_replicas=True))
    await broker_starts.pass_on(cast(Any, shell), 3, 7)
    assert found == written
