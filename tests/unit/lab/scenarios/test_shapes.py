"""Words of scenarios: one shape for each verb, by which every place reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.scenarios.shapes import BROKER, NO_WORDS, PARTITION, SECONDS, TOPIC, Epoch, Given, each, words
from aiocontroller.lab.scenarios.verbs import VERBS, UnknownVerbError, parse_line


@pytest.mark.parametrize(
    "line, given",
    [
        ("heal", {}),
        ("create-topic t 1,2 -", {"topic": "t", "placed": [(1, 2), ()]}),
        ("create-topic t", {"topic": "t"}),
        ("reassign t-0 1,2 a-b-1 cancel", {"moves": [(("t", 0), (1, 2)), (("a-b", 1), None)]}),
        ("kill-broker 1 3", {"brokers": [1, 3]}),
        ("pause-controller active 0.5", {"controller": "active", "seconds": 0.5}),
        ("pause-controller 2", {"controller": 2}),
        ("allow-unclean t false", {"topic": "t", "value": "false"}),
        ("alter-topic-configs t a:1 b:", {"topic": "t", "settings": [("a", "1"), ("b", "")]}),
        ("alter-broker-configs <default> a:b:c", {"broker": "<default>", "setting": ("a", "b:c")}),
        ("trap-controller depose 1 before", {"fault": "depose", "write": 1, "when": "before"}),
        ("block 3 zookeeper", {"host": 3, "other": "zookeeper"}),
        ("catch-up t-0 until-leader=2", {"partition": ("t", 0), "until-leader": 2}),
        (
            "alter-partition leader t-0 isr=2,1 leader-epoch=-1 broker-epoch=7",
            {
                "by": "leader",
                "partition": ("t", 0),
                "isr": (2, 1),
                "leader-epoch": Epoch(-1, True),
                "broker-epoch": Epoch(7, False),
            },
        ),
        ("start-controller a.b=c d=", {"options": {"a.b": "c", "d": ""}}),
        ('damage-state t-0 {"leader": =}', {"partition": ("t", 0), "text": ['{"leader":', "=}"]}),
        ("damage-request /admin/x a=b", {"path": "/admin/x", "text": ["a=b"]}),
        ("expect leader t-0 none", {"fact": ["leader", "t-0", "none"]}),
    ],
)
def test_a_line_is_read_by_the_shape_of_its_verb(line: str, given: dict[str, Any]) -> None:
    assert parse_line(line).given == given


@pytest.mark.parametrize(
    "line, named",
    [
        ("heal all", "found 'all', expected nothing more"),
        ("kill-broker one", "found 'one', expected a number"),
        ("kill-broker -1", "found '-1', expected a number"),
        ("reassign t-0", "found 't-0', expected partition, replicas or `cancel`, …"),
        ("reassign t 1", "found 't', expected a partition such as orders-0"),
        ("allow-unclean t perhaps", "found 'perhaps', expected one of true, false"),
        ("trap-controller bite 1", "found 'bite', expected one of lose, kill, expire, freeze, depose"),
        ("pause-broker 1 nan", "found 'nan', expected a number of seconds"),
        ("catch-up t-0 until=2", "found 'until=2', expected until-leader="),
        ("alter-partition 1 t-0 isr=all", "found 'all', expected broker ids such as 1,2,3"),
        ("allocate-producer-ids 1 broker-epoch=+-1", "found '+-1', expected an epoch such as 7, +1 or -1"),
        ("rewrite-controller-epoch ٣x", "found '٣x', expected a number"),
    ],
)
def test_a_word_that_does_not_fit_is_named(line: str, named: str) -> None:
    with pytest.raises(StepArgumentError, match=re.escape(named)):
        parse_line(line)


@pytest.mark.parametrize("line", ["", "   ", "kill_broker 1", "KILL-BROKER 1"])
def test_what_is_no_verb_is_refused(line: str) -> None:
    with pytest.raises(UnknownVerbError):
        parse_line(line)


def test_words_are_left_out_from_the_end() -> None:
    shape = words(broker=BROKER, seconds=SECONDS)
    assert shape.read([]) == {}
    assert shape.read(["2"]) == {"broker": 2}
    with pytest.raises(StepArgumentError, match="found no seconds"):
        shape.read(["2"])["seconds"]


def test_a_value_is_taken_once() -> None:
    given = Given(broker=2, rack="r")
    assert (given.need("broker"), given.take("broker"), given.take("seconds", 1.0)) == (2, None, 1.0)
    with pytest.raises(StepArgumentError, match="found rack, which this verb does not take here"):
        given.refuse_rest()
    given.take("rack")
    given.refuse_rest()


@pytest.mark.parametrize("word, epoch", [("7", 7), ("+1", 11), ("-2", 8)])
def test_an_epoch_may_be_relative_to_the_true_one(word: str, epoch: int) -> None:
    given = VERBS["controlled-shutdown"].shape.read(["1", f"broker-epoch={word}"])
    assert given.epoch("broker-epoch", true=10) == epoch
    assert given.epoch("leader-epoch", true=10) == 10


def test_only_the_last_word_is_repeated() -> None:
    with pytest.raises(ValueError, match="repeated"):
        words(partitions=each(PARTITION), topic=TOPIC)


def test_a_shape_shows_what_it_takes() -> None:
    assert NO_WORDS.shown == ""
    assert VERBS["reassign"].shape.shown == "partition, replicas or `cancel`, …"
    assert VERBS["start-broker"].shape.shown == "broker, …; `rack=`, `release=`, `protocol=`"
    assert VERBS["start-controller"].shape.shown == "controller or `active` or `standby`; `kafka.property=value`"
