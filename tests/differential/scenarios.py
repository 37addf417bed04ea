"""The scenarios that have a name."""

from __future__ import annotations

from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.scenarios.fleet import Version, knows
from tests.differential.stage import BROKERS, Scenario
from tests.differential.subjects import CONTROL_PLANE, OLD_PROTOCOL, OLDER_PROTOCOLS, RESTLESS, protocol_of
from tests.differential.vocabulary import (
    allow_unclean_elections,
    allow_unclean_elections_by_default,
    alter_partition,
    begin_term,
    bounce,
    catch_up_and_go_home,
    create,
    damage,
    damaged_request,
    delete,
    die,
    elect,
    end_term,
    expand,
    fail_over,
    features,
    hang,
    list_reassignments,
    log_dir_fails,
    modify,
    notify_of_isr,
    reassign,
    shut_down,
    start,
    take_producer_ids,
    wake,
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
        [die(1), create("a", [[1, 2], [2, 1], [1]]), start(1), alter_partition("a-0", "all live")],
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
        [create("a", SPREAD), end_term(), die(1), create("b", [[1, 2], [2, 1]]), begin_term(), start(1)],
    ),
    Scenario(
        "failover to a new topic, a grown topic and a deleted topic",
        [
            *(create(t, [[1, 2], [2, 3]]) for t in "ab"),
            end_term(),
            create("c", [[4, 5]]),
            expand("a", [[5, 4]]),
            delete("b"),
            begin_term(),
        ],
    ),
    Scenario("broker death", [create("a", SPREAD), die(1)]),
    Scenario("broker death and return", [create("a", SPREAD), die(1), start(1), alter_partition("a-0", "all live")]),
    Scenario("the whole ISR dies, one by one", [create("a", [[1, 2]]), die(1), die(2), start(1), start(2)]),
    Scenario("two brokers die at once", [create("a", SPREAD), die(1, 2), alter_partition("a-2", [3]), start(1, 2)]),
    Scenario("the whole ISR dies at once", [create("a", [[1, 2], [3, 4]]), die(1, 2)]),
    Scenario(
        "brokers die between controllers",
        [create("a", SPREAD), end_term(), die(1), die(2), begin_term()],
    ),
    Scenario("bounce inside a session", [create("a", SPREAD), bounce(1)]),
    Scenario("bounce of a follower", [create("a", [[1, 2, 3]]), bounce(3), alter_partition("a-0", "all live")]),
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
        "reassignment by the API",
        [
            create("a", [[1, 2, 3]]),
            reassign({"a-0": [4, 5, 1]}),
            list_reassignments(),
            alter_partition("a-0", "all live"),
        ],
    ),
    Scenario(
        "reassignment by znode",
        [
            create("a", [[1, 2], [2, 1]]),
            reassign({"a-0": [3, 4], "a-1": [2, 5]}, "znode"),
            alter_partition("a-0", "all live"),
            alter_partition("a-1", "all live"),
        ],
    ),
    Scenario(
        "deletion of a topic that is being reassigned",
        [
            *(create(topic, [[1, 2], [2, 3]]) for topic in "ab"),
            reassign({"a-0": [3, 4]}),
            delete("a"),
            alter_partition("a-0", "all live"),
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
            alter_partition("a-0", "all live"),
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
        [create("a", [[1, 2]]), reassign({"a-0": [3, 4]}), fail_over(), alter_partition("a-0", "all live")],
    ),
    Scenario(
        "reassignment to a broker that dies and returns",
        [create("a", [[1, 2]]), reassign({"a-0": [3, 4]}), die(4), start(4), alter_partition("a-0", "all live")],
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
            alter_partition("a-0", "all live"),
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
            alter_partition("a-0", "all live"),
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
            alter_partition("a-0", "all live", recovering=True),
            alter_partition("a-0", [2]),
            alter_partition("a-0", "all live"),
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
    Scenario(
        "a broker changes its second listener",
        [create("a", SPREAD), modify(2, host="moved"), modify(2, host="again", rack="other"), fail_over(), bounce(2)],
    ),
    Scenario(
        "followers fetch from another listener than the controller's",
        [create("a", SPREAD), modify(2, host="moved"), die(3), start(3), reassign({"a-1": [4, 2]}), fail_over()],
        CONTROL_PLANE,
    ),
    Scenario(
        "producer ids over a failover",
        [
            take_producer_ids(1),
            take_producer_ids(2),
            take_producer_ids(1),
            fail_over(),
            take_producer_ids(3),
            take_producer_ids(1, broker_epoch=-1),
            die(5),
            take_producer_ids(5),
        ],
    ),
    Scenario(
        "features of another writer",
        # Levels that are enabled and that brokers do not support would make them exit.
        [
            end_term(),
            features(0, f=3),
            begin_term(),
            end_term(),
            features(1),
            begin_term(),
            fail_over(),
        ],
    ),
    Scenario(
        "a follower hangs",
        [
            create("a", SPREAD),
            hang(3),
            die(1),
            create("b", [[2, 3], [3, 4]]),
            alter_partition("a-0", [2]),
            wake(3),
            alter_partition("a-0", "all live"),
            start(1),
        ],
    ),
    Scenario("a broker hangs and dies", [create("a", SPREAD), hang(3), delete("a"), die(3), start(3)]),
    Scenario(
        "a broker hangs over a failover",
        [create("a", SPREAD), hang(2), die(1), fail_over(), start(1), wake(2), bounce(2)],
    ),
    Scenario(
        "a topic forbids unclean elections that are allowed by default",
        [
            create("a", [[1, 2]]),
            create("b", [[1, 2]]),
            allow_unclean_elections("a", "false"),
            allow_unclean_elections_by_default(),
            die(2),
            start(2),
            die(1),
            start(1),
            allow_unclean_elections_by_default("false"),
        ],
    ),
    Scenario("a damaged state", [create("a", [[1, 2], [2, 1]]), damage("a-0"), die(1), start(1), fail_over(), die(2)]),
    Scenario(
        "damaged requests",
        [
            create("a", [[1, 2]]),
            damaged_request("/admin/reassign_partitions"),
            damaged_request("/admin/preferred_replica_election"),
            elect("preferred", "a-0"),
        ],
    ),
    Scenario(
        "an old protocol: life and death",
        [
            create("a", SPREAD),
            expand("a", [[2, 3]]),
            die(1),
            start(1),
            alter_partition("a-0", "all live"),
            elect("preferred", "a-0"),
            shut_down(2),
            bounce(2),
            fail_over(),
            delete("a"),
            create("a", [[1, 2]], "api"),
        ],
        OLD_PROTOCOL,
    ),
    Scenario(
        "an old protocol: reassignment",
        [
            create("a", [[1, 2]]),
            reassign({"a-0": [3, 4]}),
            alter_partition("a-0", [1, 2, 3]),
            reassign({"a-0": [3, 5]}, "znode"),
            list_reassignments(),
            alter_partition("a-0", "all live"),
            reassign({"a-0": [1]}),
            reassign({"a-0": None}),
        ],
        OLD_PROTOCOL,
    ),
    Scenario(
        "an old protocol: expansion of a topic whose deletion waits for a broker",
        [create("a", [[1, 2]]), die(1), delete("a"), expand("a", [[2, 3]]), fail_over(), start(1)],
        OLD_PROTOCOL,
    ),
    Scenario(
        "an old protocol: features",
        [end_term(), features(1, f=3), begin_term(), fail_over()],
        OLD_PROTOCOL,
    ),
    Scenario(
        "an old protocol: unclean election and a failed log directory",
        [
            create("a", [[1, 2], [2, 1]]),
            die(2),
            start(2),
            die(1),
            elect("unclean", "a-0"),
            start(1),
            alter_partition("a-0", "all live"),
            log_dir_fails(1, "a-0", "a-1"),
        ],
        OLD_PROTOCOL,
    ),
    Scenario(
        "an old leader asks for a broker that is shutting down",
        [
            create("a", [[1, 2]]),
            create("b", [[3, 4]]),
            shut_down(2),
            alter_partition("a-0", [1, 2]),
            alter_partition("b-0", [3, 4]),
            bounce(2),
        ],
        "protocol 3.0",
        [Version("3.0", "3.0")] * len(BROKERS),
    ),
    Scenario(
        "leaders go home by themselves",
        [create("a", [[1, 2, 3]]), die(1), start(1), catch_up_and_go_home("a-0"), shut_down(1), die(1)],
        RESTLESS,
    ),
    Scenario(
        "deletion is disabled",
        [
            create("a", [[1, 2]]),
            delete("a"),
            delete("a", "api"),
            fail_over(),
            end_term(),
            delete("a"),
            begin_term(),
        ],
        RESTLESS,
    ),
]


def in_all_releases(variant: str) -> Scenario:
    """Everything that brokers are told, to those of the oldest releases that know the controllers' protocol; two of
    them are rolled."""
    protocol = protocol_of(variant)
    releases = [release for release in GENERATIONS if knows(release, protocol)]
    versions = [Version(releases[n % len(releases)], protocol) for n in range(len(BROKERS))]
    newest = Version(releases[-1], protocol)
    return Scenario(
        f"what brokers of all releases are told, {variant or 'the newest protocol'}",
        [
            create("a", SPREAD, "api"),
            expand("a", [[2, 3]]),
            reassign({"a-0": [4, 5]}),
            alter_partition("a-0", [1, 2, 3, 4]),
            reassign({"a-0": None}),
            reassign({"a-3": [2, 1]}),
            alter_partition("a-3", "all live"),
            die(1),
            start(1, version=newest),
            alter_partition("a-0", "all live"),
            alter_partition("a-1", "all live"),
            elect("preferred", "a-0"),
            shut_down(2),
            bounce(2, version=newest),
            take_producer_ids(1),
            fail_over(),
            delete("a", "api"),
            create("b", [[1, 2], [5, 4]]),
            log_dir_fails(1, "b-0"),
        ],
        variant,
        versions,
    )


IN_ALL_RELEASES = {variant: in_all_releases(variant) for variant in ["", *OLDER_PROTOCOLS]}
