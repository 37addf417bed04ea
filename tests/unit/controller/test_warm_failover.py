"""A standby with a copy of the cluster takes over: same cluster as after a cold failover, less to read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from aiocontroller.controller import warm_failover, warm_failover_sending
from aiocontroller.controller.warm_failover import FRESH_S
from aiocontroller.core import mirror as mirrored
from aiocontroller.core import reassignment_phases as phases
from aiocontroller.core import warm_failover_sending as slices
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.events import FailoverStep
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.states import PartitionState
from aiocontroller.core.steps import Steps
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import changes, paths
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from tests.unit.controller.test_mirror import FIRST, SECOND, copy_of, create_topic, pair, warm
from tests.unit.controller.virtual_cluster import is_active, stage, terms
from tests.unit.controller.warm_standbys import content, equals_a_reload, sent, settle, steps, take_over, was_warm

STATE_OF_THREE = b'{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":1,"isr":[3,1,2]}'
STATE = b'{"controller_epoch":%d,"leader":%d,"version":1,"leader_epoch":%d,"isr":[%d]}'


def unwatched(service: Service) -> set[str]:
    """The znodes of ``zookeeper.changes``, besides brokers' and topics' own, of whose change nothing would tell."""
    registry = service.zk.client.session.registry
    return {*changes._PARENTS, *changes._NODES, paths.CONTROLLER} - {*registry.data, *registry.exist, *registry.child}


@virtual_time
async def test_after_both_kinds_of_failover_a_watch_is_armed_on_each_znode_that_others_change() -> None:
    """A handler arms it again by reading, but only a step of the failover can read first."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        assert unwatched(active) == set()
        await take_over(it, active, standby)
        assert was_warm(standby)
        await settle(it, standby)
        assert unwatched(standby) == set()


@virtual_time
async def test_successor_reads_only_what_has_changed() -> None:
    async with pair() as (it, active, standby):
        await create_topic(it, "u", 5)
        await it.sleep(1)
        await warm(it, standby)
        read: list[int] = []
        reads = standby.zk.each_topic_partition_states

        async def counting(topics: Any, partitions: Any, take: Any) -> None:
            read.append(len(topics))
            await reads(topics, partitions, take)

        standby.zk.each_topic_partition_states = counting  # type: ignore[method-assign]
        await take_over(it, active, standby)
        assert was_warm(standby)
        assert sum(read) == 0
        assert len(content(standby)) == 8
        await equals_a_reload(it, standby)


@virtual_time
@pytest.mark.parametrize("earlier", [1, 2, 40])
async def test_epochs_of_earlier_controllers_are_outranked(earlier: int) -> None:
    """``/controller_epoch`` may have been set back by hand: brokers would refuse every request of a lower epoch."""
    async with pair() as (it, active, standby):
        await it.client.set("/brokers/topics/t/partitions/0/state", STATE % (earlier, 1, 9, 1), -1)
        await it.sleep(1)
        await warm(it, standby)
        await take_over(it, active, standby)
        assert was_warm(standby)
        assert standby.shell.context.epoch == max(2, earlier + 1)
        await equals_a_reload(it, standby)


@virtual_time
async def test_brokers_hear_the_epoch_first_and_everything_in_the_end() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        broker = it.brokers[1]
        before = len(broker.received)
        await take_over(it, active, standby)
        await settle(it, standby)
        first = broker.received[before]
        assert first.api is ApiKey.UPDATE_METADATA
        assert first.request.controller_epoch == 2
        for api in (ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR):
            assert sent(it, 1, api, before) == {"t-0", "t-1", "t-2"}
        assert steps(standby)[-1] == warm_failover_sending.FULL_METADATA
        assert standby.controller.status()["unsent_partitions"] == 0
        await it.until(lambda: not standby.client.session.registry.recursive)
        topics = {path for path in standby.client.session.registry.data if path.startswith("/brokers/topics/")}
        assert topics == {"/brokers/topics/t"}
        assert "/brokers/topics" in standby.client.session.registry.child


@virtual_time
async def test_partitions_of_a_broker_that_died_with_the_controller_get_leaders_first() -> None:
    async with stage() as it:
        for number in (1, 2):
            await it.add_broker(number)
        active = await it.add_controller(aiocontroller_id=FIRST, aiocontroller_standby="warm")
        await it.until(lambda: is_active(active))
        await it.create("/brokers/topics/t", b'{"version":2,"partitions":{"0":[1,2],"1":[2,1],"2":[1]}}')
        await it.sleep(1)
        standby = await it.add_controller(aiocontroller_id=SECOND, aiocontroller_standby="warm")
        await warm(it, standby)
        await it.kill_broker(1)
        await take_over(it, active, standby)
        await it.until(lambda: 1 not in standby.shell.context.brokers)
        await settle(it, standby)
        found = content(standby)
        assert [found[f"t-{n}"][2].leader for n in range(3)] == [2, 2, -1]
        assert [found[f"t-{n}"][2].isr for n in range(3)] == [(2,), (2,), (1,)]
        assert found["t-2"][3] is PartitionState.OfflinePartition
        await equals_a_reload(it, standby)


@virtual_time
async def test_first_leaders_of_a_dead_broker_do_not_wait_for_all_of_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("ROWS_FIRST", 1), ("ROWS_AT_ONCE", 1), ("AWAY_FIRST", 2), ("AWAY_AT_ONCE", 5)):
        monkeypatch.setattr(mirrored, name, value)
    async with stage() as it:
        for number in (1, 2):
            await it.add_broker(number)
        await it.sleep(FRESH_S)
        active = await it.add_controller(aiocontroller_id=FIRST, aiocontroller_standby="warm")
        await it.until(lambda: is_active(active))
        partitions = ",".join(f'"{n}":[{1 + n % 2},{2 - n % 2}]' for n in range(12))
        await it.create("/brokers/topics/t", b'{"version":2,"partitions":{%s}}' % partitions.encode())
        await it.sleep(1)
        standby = await it.add_controller(aiocontroller_id=SECOND, aiocontroller_standby="warm")
        await warm(it, standby)
        write, offline = standby.zk.set_topic_partition_states, []

        async def observed(topics: Any, partitions: Any, *args: Any, **fence: Any) -> Any:
            table = standby.shell.context.table
            offline.append((len(table.not_online), sorted(partitions)))
            return await write(topics, partitions, *args, **fence)

        standby.zk.set_topic_partition_states = observed  # type: ignore[method-assign]
        await it.kill_broker(1)
        await take_over(it, active, standby)
        assert offline == [(1, [0, 1]), (3, [2, 3, 4, 5, 6]), (2, [7, 8, 9, 10, 11])]
        found = content(standby)
        assert all(found[f"t-{n}"][2].leader == 2 and found[f"t-{n}"][2].isr == (2,) for n in range(12))
        heard = [r.request for r in it.brokers[2].received if r.api is ApiKey.LEADER_AND_ISR]
        first = next(r for r in heard if r.controller_epoch == 2)
        assert [p.partition_index for t in first.topic_states for p in t.partition_states] == [0, 1]
        await equals_a_reload(it, standby)


@virtual_time
async def test_changes_that_the_copy_has_not_read_yet_are_read() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        mirror = copy_of(standby)
        cluster = mirror._cluster
        assert cluster is not None
        mirror._woken.set = lambda: None  # type: ignore[method-assign]  # it hears and does not read any more
        it.crash(active)
        await it.client.multi([SetData("/brokers/topics/t/partitions/1/state", STATE % (1, 1, 8, 1), -1)])
        await create_topic(it, "u", 2)
        await it.create("/brokers/topics/bad", b"no JSON")
        await it.until(lambda: is_active(standby) and "schedule periodic work" in steps(standby))
        assert was_warm(standby)
        found = content(standby)
        assert found["t-1"][2].leader_epoch >= 8
        assert found["u-1"][3] is PartitionState.OnlinePartition
        assert "/brokers/topics/bad" in standby.shell.bad_paths()


@virtual_time
async def test_topics_without_an_id_get_one_and_controllers_no_replicas() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        await it.create("/brokers/topics/u", b'{"version":1,"partitions":{"0":[1],"1":[%d]}}' % FIRST)
        await it.sleep(0.5)
        await it.until(lambda: is_active(standby) and "schedule periodic work" in steps(standby))
        assert was_warm(standby)
        topic = standby.shell.context.table.topic_by_name["u"]
        assert topic.id != bytes(16)
        assert content(standby)["u-1"][1].replicas == (1,)


@virtual_time
async def test_isr_changes_are_read_that_were_notified_between_the_election_and_the_end_of_notifications() -> None:
    """Found by the differential oracle: a cold failover reads all states after it has deleted notifications."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        names = standby.zk.get_all_isr_change_notifications

        async def late(*, watch: bool = True) -> list[str]:
            await it.client.set("/brokers/topics/t/partitions/1/state", STATE % (1, 1, 8, 1), -1)
            await it.zk.propagate_isr_changes([TopicPartition("t", 1), TopicPartition("unknown", 0)])
            standby.zk.get_all_isr_change_notifications = names  # type: ignore[method-assign]
            return await names(watch=watch)

        standby.zk.get_all_isr_change_notifications = late  # type: ignore[method-assign]
        await take_over(it, active, standby)
        await settle(it, standby)
        assert content(standby)["t-1"][2].leader_epoch == 8
        assert await it.zk.get_all_isr_change_notifications(watch=False) == []


@virtual_time
async def test_failed_disks_are_noted_that_were_announced_before_the_term() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        await it.zk.propagate_log_dir_event(1)
        await it.until(lambda: is_active(standby) and "schedule periodic work" in steps(standby))
        assert was_warm(standby)
        assert standby.shell.context.starts is not None
        known = standby.shell.context.starts.brokers[1]
        assert known.clean_from > known.epoch
        assert await it.zk.get_all_log_dir_event_notifications(watch=False) == []


@virtual_time
async def test_brokers_prove_themselves_before_leaders_are_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier release records who has started uncleanly, but not who is proven."""
    unproven: list[frozenset[int]] = []
    elect = warm_failover.mirror.start_state_machines
    monkeypatch.setattr(
        warm_failover.mirror,
        "start_state_machines",
        lambda context: unproven.append(context.unproven_brokers()) or elect(context),
    )
    async with pair() as (it, active, standby):
        await warm(it, standby)
        shell = active.shell
        starts = shell.context.starts
        assert starts is not None
        known = {broker: each._replace(clean_from=each.epoch) for broker, each in starts.brokers.items()}
        await shell.zk.set_broker_starts(replace(starts, brokers=known), fence=shell.context.epoch_zk_version)
        await take_over(it, active, standby)
        assert was_warm(standby)
        assert standby.shell.context.started_uncleanly()
        assert unproven == [frozenset()]


@virtual_time
async def test_brokers_that_are_no_replicas_leave_isrs_before_reassignments_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a cold failover: an assignment that is written meanwhile would be ahead of the states that were read."""
    async with pair() as (it, active, standby):
        await it.add_broker(2)
        await warm(it, standby)
        it.crash(active)
        in_sync = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
        await it.client.set("/brokers/topics/t/partitions/1/state", in_sync, -1)
        await it.sleep(0.5)
        resume, found = phases.resume_reassignments, []

        def observed(context: ControllerContext) -> Steps[None]:
            found.append(content(standby)["t-1"][2].isr)
            yield from resume(context)

        monkeypatch.setattr(phases, "resume_reassignments", observed)
        await it.until(lambda: is_active(standby) and "schedule periodic work" in steps(standby))
        assert was_warm(standby)
        assert found == [(1,)]


@virtual_time
@pytest.mark.parametrize("left", ["nothing", "the state", "the topic"])
async def test_states_of_a_later_epoch_are_outranked(left: str) -> None:
    """A restored backup leaves such states: in the copy, among its leftovers, or in a topic among them."""
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        if left != "nothing":
            copy_of(standby)._woken.set = lambda: None  # type: ignore[method-assign]
        await it.client.set("/brokers/topics/t/partitions/1/state", STATE % (50, 1, 8, 1), -1)
        if left == "the topic":
            await it.client.set("/brokers/topics/t", await it.client.get_data("/brokers/topics/t"), -1)
        await it.until(lambda: is_active(standby) and standby.shell.context.epoch > 50)
        await it.until(lambda: "schedule periodic work" in steps(standby))
        assert was_warm(standby)
        assert content(standby)["t-1"][2].leader_epoch >= 8


@virtual_time
async def test_changes_in_the_term_before_watches_are_armed_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(shell: Any) -> None:
        pass

    async with pair() as (it, active, standby):
        await warm(it, standby)
        with monkeypatch.context() as patched:
            patched.setattr(warm_failover_sending, "go_on", never)
            await take_over(it, active, standby)
            assert not [path for path in standby.client.session.registry.data if "/topics/" in path]
            await create_topic(it, "u", 1)
            topic = b'{"version":2,"partitions":{"0":[1],"1":[1],"2":[1],"3":[1]}}'
            await it.client.set("/brokers/topics/t", topic, -1)
            await it.until(lambda: {"u-0", "t-3"} <= content(standby).keys())
            await it.client.delete_all_recursive(["/brokers/topics/u"])
            await it.until(lambda: "u-0" not in content(standby))
            states = [f"/brokers/topics/t/partitions/{n}/state" for n in range(3)]
            await it.client.multi([SetData(path, STATE % (2, 1, 9, 1), -1) for path in states])
            await it.sleep(0.5)
            assert len(standby.queue) == 0
        standby.queue.append(FailoverStep(warm_failover_sending.FULL_METADATA))
        await equals_a_reload(it, standby)


@virtual_time
async def test_lost_connection_before_watches_are_armed_costs_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(shell: Any) -> None:
        pass

    monkeypatch.setattr(warm_failover_sending, "go_on", never)
    async with pair() as (it, active, standby):
        await warm(it, standby)
        await take_over(it, active, standby)
        assert standby.shell.copy is not None
        it.network.cut_host(it.hosts[standby].name)
        await it.until(lambda: standby.shell.reloaded and standby.shell.copy is None)
        assert terms(standby) == 1
        await it.until(lambda: not standby.client.session.registry.recursive)
        it.network.cut_host(it.hosts[standby].name)
        await it.sleep(3)
        reloads = [record for record in standby.journal.of_kind("reload") if record.event == "read debts"]
        assert len(reloads) == 1, "its own watches need none"


@virtual_time
async def test_bug_in_a_warm_failover_costs_a_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(shell: Any) -> None:
        raise ZeroDivisionError

    wrong = tuple(
        (name, broken if name == "read what has changed" else step) for name, step in warm_failover.WARM_FAILOVER
    )
    monkeypatch.setattr("aiocontroller.controller.warm_failover.WARM_FAILOVER", wrong)
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        await it.until(lambda: standby.shell.reloaded and len(content(standby)) == 3)
        await it.until(lambda: "schedule periodic work" in [r.event for r in standby.journal.of_kind("reload")])
        assert is_active(standby)
        assert terms(standby) == 1
        assert standby.controller.election.failure == ""


@virtual_time
async def test_full_metadata_goes_out_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "ROWS", 2)
    monkeypatch.setattr(slices, "METADATA_ROWS", 4)
    monkeypatch.setattr(slices, "TOPICS", 1)
    async with pair() as (it, active, standby):
        for name in "abcd":
            await create_topic(it, name, 4)
        await it.sleep(1)
        await warm(it, standby)
        before = len(it.brokers[1].received)
        await take_over(it, active, standby)
        await create_topic(it, "urgent", 1)
        await settle(it, standby)
        taken = [record.event for record in standby.journal.of_kind("event")]
        assert taken.count("FailoverStep") == 10, "19 partitions, two at a time"
        for api in (ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR):
            everything = {f"{name}-{n}" for name in "abcd" for n in range(4)} | {"t-0", "t-1", "t-2", "urgent-0"}
            assert sent(it, 1, api, before) == everything
        await equals_a_reload(it, standby)


@virtual_time
async def test_what_changed_last_is_sent_before_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller before may have written it and sent it to none."""
    monkeypatch.setattr(slices, "ROWS", 1)
    async with pair() as (it, active, standby):
        await warm(it, standby)
        await it.client.set("/brokers/topics/t/partitions/2/state", STATE % (1, 1, 9, 1), -1)
        await warm(it, standby)
        before = len(it.brokers[1].received)
        await take_over(it, active, standby)
        await settle(it, standby)
        for api in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
            requests = [
                {f"{t.topic_name}-{p.partition_index}" for t in each.request.topic_states for p in t.partition_states}
                for each in it.brokers[1].received[before:]
                if each.api is api
            ]
            first, *rest = [names for names in requests if names]
            assert first == {"t-2"}
            assert set().union(*rest) == {"t-0", "t-1", "t-2"}


@virtual_time
async def test_silent_broker_holds_up_no_step_for_long_and_events_come_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "ROWS", 1)
    async with pair() as (it, active, standby):
        await create_topic(it, "u", 10)
        await it.sleep(1)
        await warm(it, standby)
        it.brokers[1].unanswered.add(ApiKey.LEADER_AND_ISR)
        await take_over(it, active, standby)
        await it.sleep(0.25)
        await create_topic(it, "urgent", 1)
        await it.until(lambda: standby.shell.full_metadata is None)
        taken = [record.event for record in standby.journal.of_kind("event")]
        last = len(taken) - 1 - taken[::-1].index("TopicChange")
        assert 2 <= taken[:last].count("FailoverStep") <= 4
        assert taken.count("FailoverStep") == 13


@virtual_time
async def test_requests_given_up_at_the_end_of_a_term_set_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 493: the senders' end counted as the acknowledgement of the last step."""
    monkeypatch.setattr(slices, "ROWS", 1)
    async with pair() as (it, active, standby):
        await create_topic(it, "u", 10)
        await it.sleep(1)
        await warm(it, standby)
        it.brokers[1].unanswered.add(ApiKey.LEADER_AND_ISR)
        await take_over(it, active, standby)
        await it.sleep(0.2)
        assert standby.shell.full_metadata is not None
        late: list[str] = []
        schedule = standby.queue.schedule

        def observed(tag: str, delay_s: float, event: Any) -> None:
            if standby.journal.of_kind("resigned"):
                late.append(tag)
            schedule(tag, delay_s, event)

        monkeypatch.setattr(standby.queue, "schedule", observed)
        found = b'{"version":1,"brokerid":1,"timestamp":"0"}'
        await it.client.multi([Delete("/controller"), Create("/controller", found, ephemeral=True)])
        await it.until(lambda: not is_active(standby))
        await it.sleep(1)
        assert late == []


@virtual_time
async def test_topic_deleted_before_it_was_sent_stays_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        it.crash(active)
        await it.create("/admin/delete_topics/t")
        before = len(it.brokers[1].received)
        await it.until(lambda: is_active(standby) and not content(standby))
        await settle(it, standby)
        assert sent(it, 1, ApiKey.LEADER_AND_ISR, before) == set(), "it would make the replicas again"


@virtual_time
async def test_resigned_controller_is_warm_again() -> None:
    async with pair() as (it, active, standby):
        await warm(it, standby)
        await it.delete("/controller")
        await it.until(lambda: terms(active) + terms(standby) == 2)
        other = active if is_active(standby) else standby
        await warm(it, other)
        await it.delete("/controller")
        await it.until(lambda: terms(active) + terms(standby) == 3)
        leader = active if is_active(active) else standby
        await it.until(lambda: was_warm(leader))
        await equals_a_reload(it, leader)


@virtual_time
@pytest.mark.parametrize("since_s", [0.0, warm_failover.FRESH_S - 10, warm_failover.FRESH_S + 10])
async def test_first_leader_and_isr_of_a_broker_that_has_just_started_is_whole(
    since_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Kafka broker would lose the high watermarks of all partitions that the first one does not name."""
    monkeypatch.setattr(slices, "ROWS", 1)
    async with pair() as (it, active, standby):
        await it.add_broker(2)
        await create_topic(it, "u", 10)
        await it.create("/brokers/topics/w", b'{"version":2,"partitions":{"0":[2,1],"1":[1,2]}}')
        await it.sleep(1)
        await warm(it, standby)
        broker = await it.restart_broker(1)
        await it.sleep(since_s)
        await it.client.set("/brokers/topics/u/partitions/3/state", STATE % (1, 1, 9, 1), -1)
        await warm(it, standby)
        before = len(broker.received)
        await take_over(it, active, standby)
        await settle(it, standby)
        assert was_warm(standby)
        requests = [each for each in broker.received[before:] if each.api is ApiKey.LEADER_AND_ISR]
        sent_first = {
            f"{t.topic_name}-{p.partition_index}" for t in requests[0].request.topic_states for p in t.partition_states
        }
        assert (len(sent_first) == 15) == (since_s < warm_failover.FRESH_S)
        await equals_a_reload(it, standby)


@virtual_time
async def test_survivors_do_not_wait_for_a_leader_that_died_with_the_controller() -> None:
    """What the successor tells first is about the dead leader, too, which does not answer for half a second."""
    early = {"aiocontroller_early_broker_detection": "full", "aiocontroller_early_controller_detection": "full"}
    async with stage() as it:
        for number in (1, 2, 3):
            await it.add_broker(number)
        active = await it.add_controller(aiocontroller_id=FIRST, **early)
        await it.until(lambda: is_active(active))
        await it.create("/brokers/topics/t", b'{"version":2,"partitions":{"0":[1,2,3],"1":[2,3,1],"2":[3,1,2]}}')
        await it.sleep(FRESH_S + 1)
        standby = await it.add_controller(aiocontroller_id=SECOND, **early)
        await warm(it, standby)
        await it.client.set("/brokers/topics/t/partitions/2/state", STATE_OF_THREE, -1)
        await it.sleep(5)
        await warm(it, standby)
        for broker in it.brokers.values():
            broker.received.clear()
        it.brokers[3].deafen()
        it.crash(active)
        await it.until(lambda: all("t-2" in sent(it, number, ApiKey.LEADER_AND_ISR) for number in (1, 2)), 0.4)
        await it.until(lambda: content(standby)["t-2"][2].leader == 1, 0.1)
