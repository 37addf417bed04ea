"""What the live view says that events did, from journals of simulated clusters."""

from __future__ import annotations

import re

import pytest

from aiocontroller.journal.records import Record
from aiocontroller.lab.cli.happenings import Happenings
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run

IN = re.compile(r", in [\d.]+ (µs|ms|s)$")


def happened(scenario: str) -> list[str]:
    """The sentences of all controllers, without their durations."""
    simulation = Simulation(parse_scenario(scenario))
    assert run(simulation.run()).violations == []
    sentences = []
    for journal in simulation.journals:
        happenings = Happenings()
        for record in journal.records:
            text = happenings.take(record)
            if text:
                assert IN.search(text), text
                sentences.append(IN.sub("", text))
    return sentences


def test_life_of_a_cluster() -> None:
    sentences = happened(
        "cluster brokers=4 controllers=1 seed=1\n"
        "create-topic orders 1,2,3 2,3,1 1,3,2 then=5\n"
        "kill-broker 1 then=5\n"
        "start-broker 1 then=9\n"
        "reassign orders-1 2,3,4 then=9\n"
        "delete-topic orders then=9\n"
    )
    wanted = [
        "controller 1000001 took the role, epoch 1: loaded 0 topics with 0 partitions",
        "topic orders created with 3 partitions",
        "broker 1 died: 2 leaders moved",
        "broker 1 started",
        "orders-1 reassigned to 2,3,4, ISR of orders-1 is 2,3,1,4",
        "2 leaders moved to preferred replicas",
        "topic orders deleted",
    ]
    assert [text for text in sentences if text in wanted] == wanted, sentences
    assert any(re.fullmatch(r"3 ISRs changed|ISR of orders-\d is [123],[123],1", text) for text in sentences), sentences


def test_cancelled_reassignment_does_not_read_like_a_finished_one() -> None:
    sentences = happened(
        "cluster brokers=4 controllers=1 seed=1\ncreate-topic orders 1,2,3 then=5\n"
        "pause-broker 4 4 then=0.5\nreassign orders-0 1,2,4 then=1\ncancel-reassignment orders-0 then=9\n"
        "reassign orders-0 1,2,3 then=5\nreassign orders-0 2,1,4 then=9\n"
    )
    assert [re.sub(", ISR of .*| moved.*", "", text) for text in sentences if "reassign" in text] == [
        "reassignment of orders-0 cancelled: replicas are 1,2,3",
        "orders-0 reassigned to 1,2,3",
        "orders-0 reassigned to 2,1,4",
    ]


def test_partitions_without_a_live_replica_are_offline() -> None:
    sentences = happened(
        "cluster brokers=3 controllers=1 seed=1\ncreate-topic orders 1 2 then=5\nkill-broker 1 then=5\n"
        "start-broker 1 then=5\n"
    )
    assert "broker 1 died: 1 partition offline" in sentences, sentences
    assert any(text.startswith("broker 1 started: 1 leader moved") for text in sentences), sentences


def test_suspected_broker() -> None:
    sentences = happened(
        "cluster brokers=3 controllers=1 seed=1 broker-detection=refused\ncreate-topic orders 1,2,3 then=5\n"
        "kill-broker 1 then=6\n"
    )
    assert "broker 1 seems to be dead (refused): 1 leader moved" in sentences, sentences
    assert "broker 1 died" in sentences, sentences


def test_change_of_the_controller() -> None:
    sentences = happened(
        "cluster brokers=3 controllers=2 seed=1\ncreate-topic t 1,2 then=5\nexpire-controller active then=9\n"
    )
    (lost,) = (text.split()[1] for text in sentences if "lost the role, epoch 1" in text)
    (took,) = (
        text.split()[1] for text in sentences if "took the role, epoch 2: loaded 1 topic with 1 partition" in text
    )
    assert {lost, took} == {"1000001", "1000002"}


def test_event_that_does_nothing_says_nothing() -> None:
    happenings = Happenings()
    assert happenings.take(Record(1, 1, 1, 7, 1, "write", partitions=1)) is None
    assert happenings.take(Record(1, 2, 1, 7, 1, "event", event="GuardChange", processing_us=9)) == ""


def test_many_topics_are_one_sentence() -> None:
    happenings = Happenings()
    for topic in ("a", "b"):
        new = {"topic": topic, "partition": 0, "from_state": "NewPartition", "to_state": "OnlinePartition"}
        happenings.take(Record(1, 1, 1, 7, 1, "partition", leader=1, **new))  # type: ignore[arg-type]
    done = Record(1, 2, 1, 7, 1, "event", event="TopicChange", processing_us=1500)
    assert happenings.take(done) == "2 topics created with 2 partitions, in 1.5 ms"


@pytest.mark.parametrize("kind", ["setting", "finding", "fault", "resigned", "elected", "loaded", "reassigned"])
def test_records_without_their_fields_are_no_error(kind: str) -> None:
    """A later version may leave some out."""
    happenings = Happenings()
    assert happenings.take(Record(1, 1, 1, 7, 1, kind)) is None
    assert happenings.take(Record(1, 2, 1, 7, 1, "event"))
