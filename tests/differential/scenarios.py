"""The scenarios that have a name."""

from __future__ import annotations

from tests.differential.stage import Scenario
from tests.differential.vocabulary import (
    allow_unclean_elections,
    alter_partition,
    bounce,
    create,
    delete,
    die,
    elect,
    expand,
    fail_over,
    fill_office,
    leave_office,
    list_reassignments,
    log_dir_fails,
    notify_of_isr,
    reassign,
    shut_down,
    start,
)

SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [4, 5, 1]]

NAMED = [
    Scenario("creation by znode", [create("a", SPREAD), create("b", [[5], [1, 5]])]),
    Scenario(
        "creation by the API for brokers that are not there",
        [die(1), create("a", [[1, 2]], "api"), create("b", [[9]], "api", timeout_ms=500), start(1)],
    ),
    Scenario("creation by the API", [create("a", SPREAD, "api"), create("a", [[1]], "api")]),
    Scenario(
        "creation with dead replicas",
        [die(1), create("a", [[1, 2], [2, 1], [1]]), start(1), alter_partition("a-0", "everybody")],
    ),
    Scenario("expansion by znode", [create("a", [[1, 2]]), expand("a", [[2, 3], [3, 1]])]),
    Scenario(
        "expansion by the API",
        [create("a", [[1, 2]], "api"), expand("a", [[2, 3], [3, 1]], "api"), expand("a", [[1, 1]], "api")],
    ),
    Scenario("failover", [create("a", SPREAD), fail_over()]),
    Scenario(
        "a replica that was not in the ISR goes in another term",
        [create("a", [[1, 2]]), alter_partition("a-0", [1]), fail_over(), die(2), start(2)],
    ),
    Scenario(
        "failover to a changed cluster",
        [create("a", SPREAD), leave_office(), die(1), create("b", [[1, 2], [2, 1]]), fill_office(), start(1)],
    ),
    Scenario(
        "failover to a new topic, a grown topic and a deleted topic",
        [
            *(create(t, [[1, 2], [2, 3]]) for t in "ab"),
            leave_office(),
            create("c", [[4, 5]]),
            expand("a", [[5, 4]]),
            delete("b"),
            fill_office(),
        ],
    ),
    Scenario("broker death", [create("a", SPREAD), die(1)]),
    Scenario("broker death and return", [create("a", SPREAD), die(1), start(1), alter_partition("a-0", "everybody")]),
    Scenario("the whole ISR dies, one by one", [create("a", [[1, 2]]), die(1), die(2), start(1), start(2)]),
    Scenario("two brokers die at once", [create("a", SPREAD), die(1, 2), alter_partition("a-2", [3]), start(1, 2)]),
    Scenario("the whole ISR dies at once", [create("a", [[1, 2], [3, 4]]), die(1, 2)]),
    Scenario("brokers die between controllers", [create("a", SPREAD), leave_office(), die(1), die(2), fill_office()]),
    Scenario("bounce inside a session", [create("a", SPREAD), bounce(1)]),
    Scenario("bounce of a follower", [create("a", [[1, 2, 3]]), bounce(3), alter_partition("a-0", "everybody")]),
    Scenario("startup of two brokers at once", [create("a", SPREAD), die(1), die(2), start(1, 2)]),
    Scenario("controlled shutdown", [create("a", SPREAD), shut_down(1), die(1), start(1)]),
    Scenario(
        "controlled shutdown of the last in sync",
        [create("a", [[1, 2], [2, 1]]), die(2), shut_down(1), die(1), start(2), start(1)],
    ),
    Scenario(
        "controlled shutdowns, one after the other",
        [create("a", SPREAD), shut_down(1), shut_down(2), die(1), start(1), shut_down(3), bounce(2)],
    ),
    Scenario("deletion by znode", [create("a", SPREAD), delete("a"), create("a", [[2, 3]])]),
    Scenario("deletion by the API", [create("a", SPREAD), delete("a", "api"), delete("a", "api")]),
    Scenario("deletion of a topic that is none", [delete("a")]),
    Scenario("deletion with a dead broker and its return", [create("a", SPREAD), die(1), delete("a"), start(1)]),
    Scenario(
        "broker dies, then failover, with a deletion", [create("a", SPREAD), die(1), delete("a"), fail_over(), start(1)]
    ),
    Scenario(
        "expansion of a topic that is being deleted",
        [create("a", [[1, 2]]), die(1), delete("a"), expand("a", [[2, 3]]), start(1)],
    ),
    Scenario(
        "reassignment by the API",
        [
            create("a", [[1, 2, 3]]),
            reassign({"a-0": [4, 5, 1]}),
            list_reassignments(),
            alter_partition("a-0", "everybody"),
        ],
    ),
    Scenario(
        "reassignment by znode",
        [
            create("a", [[1, 2], [2, 1]]),
            reassign({"a-0": [3, 4], "a-1": [2, 5]}, "znode"),
            alter_partition("a-0", "everybody"),
            alter_partition("a-1", "everybody"),
        ],
    ),
    Scenario(
        "deletion of a topic that is being reassigned",
        [
            *(create(topic, [[1, 2], [2, 3]]) for topic in "ab"),
            reassign({"a-0": [3, 4]}),
            delete("a"),
            alter_partition("a-0", "everybody"),
            die(1),
        ],
    ),
    Scenario(
        "reassignment with an override",
        [
            create("a", [[1, 2]]),
            reassign({"a-0": [3, 4]}),
            alter_partition("a-0", [1, 2, 3]),
            reassign({"a-0": [3, 5]}),
            alter_partition("a-0", "everybody"),
        ],
    ),
    Scenario(
        "reassignment that is cancelled",
        [
            create("a", [[1, 2]]),
            reassign({"a-0": [3, 4]}),
            alter_partition("a-0", [1, 2, 3]),
            reassign({"a-0": None}),
            reassign({"a-0": None}),
            list_reassignments(),
        ],
    ),
    Scenario(
        "reassignment to the same replicas in another order", [create("a", [[1, 2, 3]]), reassign({"a-0": [3, 2, 1]})]
    ),
    Scenario(
        "reassignments that are refused",
        [
            create("a", [[1, 2]]),
            die(5),
            reassign({"a-0": [5, 1]}),
            reassign({"a-0": [1, 1]}),
            reassign({"a-0": []}),
            reassign({"b-0": [1], "a-7": [2], "a-0": [-1, 2]}),
            reassign({"b-0": [5], "a-7": None}),
        ],
    ),
    Scenario(
        "reassignment over a failover",
        [create("a", [[1, 2]]), reassign({"a-0": [3, 4]}), fail_over(), alter_partition("a-0", "everybody")],
    ),
    Scenario(
        "reassignment to a broker that dies and returns",
        [create("a", [[1, 2]]), reassign({"a-0": [3, 4]}), die(4), start(4), alter_partition("a-0", "everybody")],
    ),
    Scenario(
        "reassignment of the leader away",
        [create("a", [[1, 2, 3]]), reassign({"a-0": [2, 3]}), reassign({"a-0": [3]})],
    ),
    Scenario(
        "preferred election by the API",
        [
            create("a", SPREAD),
            die(1),
            start(1),
            elect("preferred", "a-0"),
            alter_partition("a-0", "everybody"),
            elect("preferred", "a-0", "a-1"),
            elect("preferred", "a-9"),
        ],
    ),
    Scenario(
        "preferred election by znode",
        [
            create("a", SPREAD),
            die(1),
            start(1),
            alter_partition("a-0", "everybody"),
            elect("preferred", "a-0", "a-1", by="znode"),
        ],
    ),
    Scenario(
        "unclean election by the API",
        [
            create("a", [[1, 2]]),
            die(2),
            start(2),
            die(1),
            elect("preferred", "a-0"),
            elect("unclean", "a-0"),
            elect("unclean", "a-0"),
            start(1),
            alter_partition("a-0", "everybody", recovering=True),
            alter_partition("a-0", [2]),
            alter_partition("a-0", "everybody"),
        ],
    ),
    Scenario(
        "unclean election by configuration",
        [create("a", [[1, 2]]), die(2), start(2), die(1), allow_unclean_elections("a"), start(1)],
    ),
    Scenario(
        "unclean election allowed beforehand",
        [create("a", [[1, 2]]), allow_unclean_elections("a"), die(2), start(2), die(1), start(1)],
    ),
    Scenario(
        "log dir failure", [create("a", [[1, 2, 3], [2, 1, 3], [1]]), log_dir_fails(1, "a-0", "a-1", "a-2"), bounce(1)]
    ),
    Scenario(
        "ISR notification", [create("a", [[1, 2, 3]]), notify_of_isr("a-0", [1, 3]), notify_of_isr("a-0", [1, 2, 3])]
    ),
    Scenario(
        "ISR notification ends a reassignment",
        [create("a", [[1, 2]]), reassign({"a-0": [3, 4]}), notify_of_isr("a-0", [1, 2, 3, 4])],
    ),
    Scenario(
        "AlterPartition",
        [
            create("a", [[1, 2, 3]]),
            alter_partition("a-0", [1, 3]),
            alter_partition("a-0", [1]),
            alter_partition("a-0", [1, 2, 3]),
        ],
    ),
    Scenario(
        "AlterPartition that is refused",
        [
            create("a", [[1, 2, 3]]),
            die(3),
            start(3),
            alter_partition("a-0", [1, 2, 3], epoch=1),
            alter_partition("a-0", [1, 2, 3], epoch=-1),
            alter_partition("a-0", [1, 2, 3], version=1),
            alter_partition("a-0", [1, 2, 3], version=-1),
            alter_partition("a-0", [1, 2, 3], broker_epoch=-1),
            alter_partition("a-0", [1, 2, 3], broker_epoch=1),
            alter_partition("a-0", [1, 2], version=-1),
            alter_partition("a-0", [1, 2, 3], recovering=True),
            alter_partition("a-0", [1], recovering=True),
            die(3),
            alter_partition("a-0", [1, 2, 3]),
            shut_down(2),
            alter_partition("a-0", [1, 2]),
        ],
    ),
]
