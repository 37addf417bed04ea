"""Made-up histories of who writes, of deletions, of what brokers receive, and of records."""

from __future__ import annotations

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import ElectionType, TopicResult
from aiocontroller.lab.checkers.config_answers import Wanted
from aiocontroller.lab.checkers.records import Records
from aiocontroller.lab.cluster.logs import Run, deleted
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znode_json import topic_id_to_text
from tests.unit.lab.checkers.history_story import STATE, UNCLEAN, Story, case

# -- who writes --------------------------------------------------------------------------------------------------------


@case("I1")
def the_deposed_write_a_topic(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)


@case("I1")
def the_deposed_delete(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.delete("/admin/reassign_partitions")


@case()
def the_deposed_write_elsewhere(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.change("/config/users/u", b"{}")


@case()
def the_new_controller_and_others_write(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    for session in (8, 99):
        s.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=s.writer(session))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=s.writer(7, by_hand=True))


@case()
def a_leader_writes_its_isr(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), writer=s.writer(55, broker=1))
    assert s.history.probes == {"an ISR written by its leader": 1, "ISR shrinks": 1}


@case("I1")
def a_follower_writes_an_isr(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), writer=s.writer(55, broker=2))


@case("I1 I3")
def a_leader_writes_its_epoch(s: Story) -> None:
    s.state(1, 1, (1, 2, 3), writer=s.writer(55, broker=1))


@case("I1")
def a_broker_makes_itself_leader(s: Story) -> None:
    s.state(2, 1, (2,), writer=s.writer(55, broker=2))


@case("I1")
def a_leader_writes_the_first_state(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.state(1, 0, (1,), version=0, of="u-0", writer=s.writer(55, broker=1))


@case("I2")
def a_leader_writes_the_controller_epoch(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), controller_epoch=2, writer=s.writer(55, broker=1))


@case("I3")
def a_broker_0_writes_what_it_did_not_ask_for(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}", writer=s.writer(50))
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")
    s.state(0, 0, (0,), of="u-0", writer=s.writer(55, broker=0))


# -- writes by hand ----------------------------------------------------------------------------------------------------


@case()
def after_a_write_by_hand_everything_is_uncertain(s: Story) -> None:
    s.state(2, 5, (2,), version=1, writer=s.writer(0, by_hand=True))
    assert s.history.states["t", 0].leader == 2
    s.received(1, ("t", 0), (2, 5, (2,), 1))
    s.state(1, 6, (1,), version=2)
    assert s.history.written_by_hand == {"t": {STATE: 1}}
    assert not s.history.cannot_be_repaired("t")
    assert not s.history.cannot_be_repaired("u")
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    assert s.history.cannot_be_repaired("t")
    s.state(2, 6, (2,), version=2, writer=s.writer(0, by_hand=True))
    assert s.history.cannot_be_repaired("t"), "the first one is as unknown to this controller as before"


@case()
def a_leader_written_by_hand_may_lead_in_an_epoch_of_another(s: Story) -> None:
    s.state(2, 0, (1, 2), writer=s.writer(0, by_hand=True))
    s.asked(("t", 0), 0, (2,), 1)
    s.state(2, 0, (2,), version=2)


@case("one-leader one-leader I8")
def another_leader_of_an_epoch_beside_a_write_by_hand(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [2, 1]}, topic_id="A" * 22)
    s.state(2, 0, (2, 1), version=0, of="t-1")
    s.state(2, 0, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 0, (2, 1), of="t-1")
    s.delete(STATE)


@case()
def what_is_deleted_by_hand(s: Story) -> None:
    s.delete(STATE, s.writer(0, by_hand=True))
    s.delete(paths.topic("t"), s.writer(0, by_hand=True))
    assert set(s.history.written_by_hand["t"]) == {STATE, paths.topic("t")}
    s.state(2, 0, (2,), version=0)


# -- deletions ---------------------------------------------------------------------------------------------------------


@case("I8 I8")
def a_topic_that_was_not_to_be_deleted(s: Story) -> None:
    s.delete(STATE)
    s.delete(paths.topic("t"))


@case("I8")
def a_state_where_brokers_forbid_deletion(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.deletion_forbidden = True
    s.delete(STATE)


@case()
def a_state_deleted_by_hand_where_brokers_forbid_it(s: Story) -> None:
    s.history.deletion_forbidden = True
    s.delete(STATE, s.writer(0, by_hand=True))


@case()
def a_topic_is_deleted_and_brokers_may_not_know(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.there |= {paths.delete_topics_topic("t")}
    s.delete(STATE)
    assert ("t", 0) not in s.history.states
    s.delete(paths.topic("t"))
    assert not any(p[0] == "t" for p in (*s.history.replicas, *s.history.assigned))
    assert ("u", 0) in s.history.replicas
    assert ("u", 0) in s.history.assigned
    assert not s.history.may_know_deleted_topic("t", 1)
    assert not s.history.may_know_deleted_topic("t", 8)
    assert not s.history.may_know_deleted_topic("u", 1)
    s.epochs[1] = 11
    assert s.history.may_know_deleted_topic("t", 1)
    assert not s.history.may_know_deleted_topic("t", 2)
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    assert s.history.may_know_deleted_topic("t", 2)


@case()
def the_controller_reloads_after_a_topic_was_deleted(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.delete(STATE)
    s.delete(paths.topic("t"))
    assert s.history.loads == 0
    s.history.loads += 1
    assert s.history.may_know_deleted_topic("t", 1)


@case("deleted")
def a_replica_in_sync_is_deleted(s: Story) -> None:
    s.history.replica_deleted(2, ("t", 0), 0)


THIS = topic_id_to_text(b"T" * 16)


@case("deleted")
def a_replica_in_sync_of_this_topic_is_deleted(s: Story) -> None:
    s.history.topic_ids["t"] = THIS
    s.history.replica_deleted(2, ("t", 0), 0, b"T" * 16)


@case("deleted")
def a_replica_without_a_topic_id_is_deleted(s: Story) -> None:
    s.history.topic_ids["t"] = THIS
    s.history.replica_deleted(2, ("t", 0), 0)


@case("deleted")
def a_replica_with_a_topic_id_is_deleted_of_a_topic_that_has_none(s: Story) -> None:
    s.history.topic_ids["t"] = ""
    s.history.replica_deleted(2, ("t", 0), 0, b"T" * 16)


@case()
def a_replica_of_an_earlier_topic_is_deleted(s: Story) -> None:
    """Seed 900047: the request was on its way when another topic of that name got its first leader."""
    s.history.topic_ids["t"] = THIS
    s.history.replica_deleted(2, ("t", 0), 0, b"B" * 16)


@case()
def a_replica_is_deleted_that_was_elected_uncleanly_meanwhile(s: Story) -> None:
    """Seed 611."""
    s.settings('"unclean.leader.election.enable":"true"')
    s.state(3, 1, (3,))
    s.history.replica_deleted(3, ("t", 0), 0)


@case("deleted")
def a_replica_is_deleted_that_was_elected_uncleanly_before(s: Story) -> None:
    s.settings('"unclean.leader.election.enable":"true"')
    s.state(3, 1, (3,))
    s.history.replica_deleted(3, ("t", 0), 1)


@case()
def a_replica_out_of_sync_is_deleted(s: Story) -> None:
    s.history.replica_deleted(3, ("t", 0), 0)
    s.history.replica_deleted(1, ("u", 0), 0)


@case()
def a_replica_that_was_taken_away_is_deleted(s: Story) -> None:
    s.topic({0: [1, 3]}, topic_id="A" * 22)
    s.history.replica_deleted(2, ("t", 0), 0)


@case()
def a_replica_of_a_topic_to_be_deleted(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.replica_deleted(1, ("t", 0), 0)


@case("deleted")
def a_replica_of_a_topic_that_must_not_be_deleted(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.deletion_forbidden = True
    s.history.replica_deleted(1, ("t", 0), 0)


# -- what brokers hear -------------------------------------------------------------------------------------------------


@case()
def brokers_receive_what_zookeeper_held(s: Story) -> None:
    s.received(1, ("t", 0), (1, 0, (1, 2), 0))
    s.history.acknowledged(1, ("t", 0), (1, 0, (1, 2), 0))
    s.state(2, 1, (2,))
    s.received(1, ("t", 0), (1, 0, (1, 2), 0))
    s.received(1, ("t", 0), (2, 1, (2,), 1))


@case("I5 I5 I5 I5 I5")
def brokers_receive_what_zookeeper_never_held(s: Story) -> None:
    for state in ((2, 0, (1, 2), 0), (1, 1, (1, 2), 0), (1, 0, (1,), 0), (1, 0, (1, 2), 1)):
        s.received(1, ("t", 0), state)
    s.received(1, ("u", 0), (1, 0, (1, 2), 0))


@case()
def brokers_receive_replicas_that_zookeeper_held(s: Story) -> None:
    """The late request is about the topic before, which has been deleted."""
    s.history.placed(1, ("t", 0), (3, 2, 1))
    s.history.placed(2, ("t", 0), (1, 2))
    s.topic({0: [4, 2]}, topic_id="A" * 22)
    s.history.placed(2, ("t", 0), (4, 2, 1, 3))
    s.there.add(paths.delete_topics_topic("t"))
    s.delete(paths.topic("t"))
    s.history.placed(2, ("t", 0), (4, 2))


@case("I5 I5 I5")
def brokers_receive_replicas_that_zookeeper_never_held(s: Story) -> None:
    s.history.placed(1, ("t", 0), (1, 2, 4))
    s.history.placed(1, ("t", 1), (1,))
    s.history.placed(1, ("u", 0), (1, 2))


@case()
def a_controller_gives_the_role_back_by_writing_its_epoch_again(s: Story) -> None:
    s.change("/controller_epoch", b"1", 2)
    s.change("/controller_epoch", b"2", 3, s.writer(8, controller=True))
    s.state(1, 1, (1, 2), controller_epoch=2, writer=s.writer(8, fenced=True, controller=True))


@case("I1 I1")
def a_controller_writes_after_it_has_given_the_role_back(s: Story) -> None:
    s.change("/controller_epoch", b"1", 2)
    s.state(1, 1, (1, 2))


@case("I2")
def a_foreign_client_writes_the_epoch_that_was_given_back(s: Story) -> None:
    s.change("/controller_epoch", b"1", 2)
    s.change("/controller_epoch", b"1", 3, s.writer(8))


@case()
def a_foreign_client_damages_a_topic_and_mends_it(s: Story) -> None:
    s.change(paths.topic("t"), b"{", 1, s.writer(8, by_hand=True))
    assert s.history.assigned["t", 0] == {1, 2, 3}
    s.change(paths.topic_partition_state("t", 0), b"{", 1, s.writer(8, by_hand=True))
    assert s.history.states["t", 0].isr == (1, 2)


def make_anew(s: Story, topic_id: str, version: int = 0) -> None:
    s.change(
        paths.topic("t"),
        f'{{"version":3,"topic_id":"{topic_id}","partitions":{{"0":[1]}}}}'.encode(),
        version,
        s.writer(8, by_hand=True),
    )


@case()
def a_write_for_the_topic_before_passes_since_versions_begin_anew(s: Story) -> None:
    make_anew(s, "B" * 22)
    s.topic({0: [1, 2], 1: [2]}, topic_id="A" * 22)


def state_for_the_topic_before(s: Story) -> None:
    for path in (paths.topic_partition_state("t", 0), paths.topic("t")):
        s.delete(path, s.writer(8, by_hand=True))
    make_anew(s, "B" * 22)
    s.state(1, 0, (1, 4), version=0)


@case()
def a_state_for_the_topic_before_may_still_come(s: Story) -> None:
    """Seed 70121."""
    state_for_the_topic_before(s)
    s.topic({0: [1]}, topic_id="B" * 22)


@case("I3")
def a_state_for_the_topic_before_comes_later(s: Story) -> None:
    state_for_the_topic_before(s)
    s.topic({0: [1]}, topic_id="B" * 22)
    s.state(1, 1, (1, 4))


@case("I2")
def only_the_next_write_may_be_for_the_topic_before(s: Story) -> None:
    make_anew(s, "B" * 22)
    s.topic({0: [1, 2], 1: [2]}, topic_id="A" * 22)
    s.topic({0: [1, 2], 1: [2]}, topic_id="B" * 22)


@case("I8")
def a_topic_that_is_only_written_by_hand_keeps_its_partitions(s: Story) -> None:
    s.topic({0: [1, 2], 1: [2]}, topic_id="A" * 22)
    s.change(
        paths.topic("t"),
        f'{{"version":3,"topic_id":"{"A" * 22}","partitions":{{"0":[1],"1":[1]}}}}'.encode(),
        3,
        s.writer(8, by_hand=True),
    )
    s.topic({0: [1, 2]}, topic_id="A" * 22)


@case("I2")
def a_controller_damages_a_topic(s: Story) -> None:
    s.change(paths.topic("t"), b"{", 1)


@case("answers answers")
def settings_are_not_as_clients_were_answered(s: Story) -> None:
    wanted = Wanted("/config/topics/t", "a", "2")
    s.history.config_answers.answered(s.now_s, wanted, 0)
    s.later(1)
    s.settings('"a":"2"')
    s.history.config_answers.answered(s.now_s, wanted, 0)
    s.delete("/config/topics/t")
    s.later(1)
    s.history.config_answers.answered(s.now_s, wanted, 0)


@case("I2")
def another_controller_writes_the_same_epoch_again(s: Story) -> None:
    s.change("/controller_epoch", b"1", 2, s.writer(8, controller=True))


@case("I2")
def a_foreign_client_writes_the_same_epoch_again(s: Story) -> None:
    s.change("/controller_epoch", b"1", 2, s.writer(8))


@case("I3 I3")
def leaders_receive_an_isr_that_was_not_written(s: Story) -> None:
    s.history.acknowledged(1, ("t", 0), (1, 0, (1,), 1))
    s.history.acknowledged(1, ("u", 0), (1, 0, (1, 2), 0))


@case()
def defaults(s: Story) -> None:
    assert s.writer(1) == (1, False, False, False, -1)
    assert not s.history.tolerates_strays
    assert not s.history.deletion_forbidden


@case()
def a_broker_0_may_lead(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")


@case("alive")
def a_broker_0_that_was_never_there(s: Story) -> None:
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")


@case("I3")
def a_broker_0_that_leads_from_outside_its_isr(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (1,), version=0, of="u-0")


@case("one-leader one-leader")
def a_broker_0_that_leads_beside_another(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")
    s.state(1, 0, (0, 1), of="u-0")


@case()
def an_isr_that_keeps_its_size(s: Story) -> None:
    s.asked(("t", 0), 0, (1, 3), 0)
    s.state(1, 0, (1, 3))
    assert s.history.probes == {"ISR grows": 1}


@case("I2")
def a_leader_epoch_that_stays_behind_a_write_by_hand(s: Story) -> None:
    s.state(1, 3, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 0, (1, 2), version=2)


@case("answers answers answers answers answers")
def clients_are_answered_what_was_deleted(s: Story) -> None:
    """The history passes on everything that answers are judged by."""
    s.there |= {paths.delete_topics_topic("t")}
    tp = TopicPartition("t", 0)
    answers, elected = s.history.answers, {tp: (0, "")}
    s.later(1)
    answers.elected(ElectionType.PREFERRED, s.now_s, elected, ())
    answers.removed(s.now_s, {"t": TopicResult(0)})  # 1
    s.change(paths.delete_topics_topic("t"), None)
    answers.removed(s.now_s, {"t": TopicResult(7)})
    s.delete(STATE)
    s.delete(paths.topic("t"))
    answers.removed(s.now_s, {"t": TopicResult(0)})
    s.delete(paths.delete_topics_topic("t"))
    s.later(16)
    answers.removed(s.now_s, {"t": TopicResult(0)})
    s.topic({0: [1, 2, 3]}, topic_id="B" * 22)
    answers.elected(ElectionType.PREFERRED, s.now_s + 16, elected, ())  # 2: it has no leader
    s.state(2, 0, (1, 2), version=0)
    answers.elected(ElectionType.PREFERRED, s.now_s + 16, elected, ())  # 3: not the preferred one
    s.later(16)
    answers.removed(s.now_s, {"t": TopicResult(0)})  # 4
    answers.removed(s.now_s, {"t": TopicResult(7)})  # 5


@case()
def every_write_counts_for_the_digest(s: Story) -> None:
    seen = {s.history.digest.hexdigest()}
    s.change("/a", b"1")
    seen.add(s.history.digest.hexdigest())
    s.delete("/a")
    seen.add(s.history.digest.hexdigest())
    assert len(seen) == 3


# -- records (more in made_up_records and made_up_losses) --------------------------------------------------------------


def led(s: Story, broker: int, epoch: int, *runs: Run) -> None:
    s.history.data.led(broker, ("t", 0), epoch, list(runs), "A" * 22)


def acknowledge(s: Story) -> None:
    led(s, 1, 0)
    s.history.data.acknowledged(("t", 0), Records(0, 1, 0, 3), "A" * 22)


@case("I13")
def a_record_is_lost(s: Story) -> None:
    acknowledge(s)
    s.state(2, 1, (2,))
    led(s, 2, 1)


@case()
def a_record_is_given_up_by_an_unclean_election(s: Story) -> None:
    acknowledge(s)
    s.settings(UNCLEAN.format("true"))
    s.state(3, 1, (3,))
    led(s, 3, 1)
    assert s.history.probes["I13 excused: an unclean election"] == 1


@case("I4 I13")
def a_record_is_lost_by_an_unclean_election_that_is_forbidden(s: Story) -> None:
    acknowledge(s)
    s.state(3, 1, (3,))
    led(s, 3, 1)


@case("I4 I13")
def a_damaged_log_does_not_excuse_a_forbidden_election(s: Story) -> None:
    acknowledge(s)
    s.history.data.damaged(3, ("t", 0), 0, 3)
    s.state(3, 1, (3,))
    led(s, 3, 1)


@case()
def a_record_goes_with_its_topic(s: Story) -> None:
    acknowledge(s)
    s.there.add(paths.delete_topics_topic("t"))
    led(s, 1, 0)
    s.delete(STATE)
    s.delete(paths.topic("t"))
    s.there.clear()
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)
    led(s, 1, 0)


@case()
def a_record_goes_with_a_deletion_that_brokers_forbid_half_way(s: Story) -> None:
    """Seed 30761."""
    acknowledge(s)
    s.there.add(paths.delete_topics_topic("t"))
    s.history.replica_deleted(1, ("t", 0), 0)
    s.there.clear()
    led(s, 1, 0)


@case()
def the_other_log_still_begins_where_it_did(s: Story) -> None:
    """Seed 1796000000457: retention had deleted the beginning before the deletion of the topic."""
    s.history.data.deleted_old(("t", 0), 3, "A" * 22)
    s.there.add(paths.delete_topics_topic("t"))
    s.history.replica_deleted(1, ("t", 0), 0)
    s.there.clear()
    s.history.data.led(2, ("t", 0), 0, [deleted(3)], "A" * 22)


@case("I13")
def a_record_goes_with_a_replica_out_of_sync(s: Story) -> None:
    acknowledge(s)
    s.history.replica_deleted(3, ("t", 0), 0)
    led(s, 1, 0)


@case()
def a_verdict_of_sickness_counts_in_the_term_that_gave_it(s: Story) -> None:
    s.state(2, 1, (1, 2))
    s.later(60)
    s.history.answers.sick(1, 1)
    s.history.answers.elected(ElectionType.PREFERRED, s.now_s, {TopicPartition("t", 0): (84, "")}, ())
