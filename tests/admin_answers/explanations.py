"""Where the two may differ, line by line, each with its reason.  Nothing else is forgiven.

docs/admin-answers.md lists those of the newest release.  One that explains nothing, although all its releases were
played, fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from tests.admin_answers.table import Found
from tests.admin_answers.two_clusters import RELEASES


class Explanation(NamedTuple):
    """Patterns must match the whole: ``place`` as ``CREATE_TOPICS (twice) v7``, ``field`` as ``topics[].errorCode``.

    A ``field`` may name the elements of arrays too: ``apiKeys[8].minVersion``.
    """

    place: str
    field: str
    reason: str
    kafka: str = ".*"
    ours: str = ".*"
    releases: tuple[str, ...] | None = None
    """Those that it explains; None: all, and the newest by itself has such a difference."""
    only_in_full: bool = False
    """The short form may have no cell for it."""
    by_chance: bool = False
    """A run may have no difference that it explains."""

    def is_expected(self, played: Collection[str], *, short: bool) -> bool:
        """Whether a table of these releases has a difference that it explains."""
        if self.by_chance or (short and self.only_in_full):
            return False
        return set(self.releases or RELEASES[:1]) <= set(played)

    def explains(self, found: Found) -> bool:
        return (
            (self.releases is None or found.release in self.releases)
            and re.fullmatch(self.place, found.answer.place) is not None
            and any(re.fullmatch(self.field, it) for it in (found.difference.kind, found.difference.field))
            and re.fullmatch(self.kafka, found.difference.kafka, re.DOTALL) is not None
            and re.fullmatch(self.ours, found.difference.ours, re.DOTALL) is not None
        )


_MISSING = r"\(missing\)"
_SILENT = r"\(silent\)"
OLDER = RELEASES[1:]
OLDEST = ("2.4.1", "2.2.2")
BEFORE_3_2 = ("3.0.2", "2.8.2", *OLDEST)
"""Since then alterations of settings are looked at by ``ConfigAdminManager``."""
_ONE_OF_TWO = r"-?1|0|17|None|.* collides with existing topics: .*|\(missing\)|\{.*\}"
"""The fields of a topic that was created, or of one that was refused because its name collides."""
_NO_TEXT = "older releases send a code only"
_LESS_CLOSELY = "this node refuses what Kafka 3.9 refuses; older releases check less"
_ORDER = "older releases check other things first, and refuse for another reason"
_FAILS = "a handler of older releases fails, or closes the connection, where later ones refuse"
_ONCE = "older releases answer once what a request names twice"
_UNKNOWN_TYPE = "older releases leave out resources of an unknown type"
_LOGGED = r"\{'errorCode': 42, .*'resourceType': (0|8|16|99), .*"

EXPLANATIONS: tuple[Explanation, ...] = (
    Explanation(
        ".*",
        r"(.*\.)?(errorMessage|topicConfigErrorMessage)",
        "each words its messages itself",
        kafka=r"(?!None$).+",
        ours=r"(?!None$).+",
    ),
    # -- a controller is no broker
    Explanation(
        ".*",
        r"brokers\[\]",
        "the controller is a node beside the brokers",
        kafka=_MISSING,
        ours=".*'(nodeId|brokerId)': 1000001,.*",
    ),
    Explanation(
        ".*",
        "controllerId",
        "the controller has an id of its own",
        kafka="2",
        ours="1000001",
    ),
    Explanation(
        "API_VERSIONS.*",
        r"apiKeys\[\]",
        "only brokers take LeaderAndIsr, StopReplica and UpdateMetadata; consumer groups of the new protocol need "
        "KRaft",
        kafka=r"\{'apiKey': (4|5|6|68|69),.*",
        ours=_MISSING,
    ),
    Explanation(
        "API_VERSIONS.*",
        r"apiKeys\[(8|9|17)\]\.minVersion",
        "version 0 of OffsetCommit and OffsetFetch keeps offsets in ZooKeeper, and SaslHandshake 0 is followed by "
        "tokens without headers: no client since Kafka 1.0 uses them",
        kafka="0",
        ours="1",
    ),
    Explanation(
        "API_VERSIONS.*",
        "finalizedFeaturesEpoch",
        "it finalizes no features",
        kafka="0",
        ours=r"\(absent\)|-1",
    ),
    Explanation(
        r"DESCRIBE_CONFIGS \(own broker\).*",
        r"results\[\]\.configs\[\]",
        "it has none of a broker's settings",
        ours=_MISSING,
    ),
    Explanation(
        r"DESCRIBE_CONFIGS \(documented\).*",
        r"results\[\]\.configs\[\]\.documentation",
        "the texts are Kafka's",
        ours="None",
    ),
    # -- where a broker's handler fails
    Explanation(
        r"ALTER_CONFIGS \(the same topic twice\).*",
        "",
        "a broker's handler fails over the same resource twice, and never answers",
        kafka=_SILENT,
    ),
    Explanation(
        r"ELECT_LEADERS \((no replica alive|unclean, none alive)\).*",
        "",
        "a broker's handler fails over a partition that never had a leader, and never answers",
        kafka=_SILENT,
    ),
    Explanation(
        r"INCREMENTAL_ALTER_CONFIGS \(lists\).*, (append an unknown setting|an unknown operation)",
        r"responses\[\]\.(errorCode|errorMessage)",
        "a broker's handler fails over an unknown operation, or a list operation on an unknown setting; here the "
        "request is invalid",
        kafka="-1|None",
    ),
    Explanation(
        r"(ALTER|DESCRIBE)_CLIENT_QUOTAS \((a password|by an unknown match|by no name)\).*",
        r"(entries\[\]\.)?(errorCode|errorMessage)",
        "a broker's handler fails over quotas that are passwords and over filters that mean nothing",
        kafka="-1|None",
    ),
    Explanation(
        r"CREATE_PARTITIONS \(a bad name\).*",
        r"results\[\]\.(errorCode|errorMessage)",
        "a broker's handler fails over an invalid topic name; here the name is refused",
        kafka="-1|None",
    ),
    Explanation(
        r"ALTER_USER_SCRAM_CREDENTIALS \((a name of dots|an empty password)\).*",
        r"results\[\]\.(errorCode|errorMessage)",
        "a broker's handler fails over a user's name of dots, which no znode can have, and over an empty password; "
        "here these are refused",
        kafka="-1|None",
    ),
    Explanation(
        r"CREATE_PARTITIONS \(the least number\).*",
        r"results\[\]\.errorCode",
        "a broker's sum overflows; here the number is refused as any that is too small",
        kafka="39",
        ours="37",
    ),
    Explanation(
        r"CREATE_ACLS \(of a name that no znode can have\).*",
        r"results\[\]\.(errorCode|errorMessage)",
        "a broker's handler fails over names that no znode can have; here they are refused as those with a slash are",
        kafka="-1|None",
        ours="42|Failed to create ACL",
    ),
    Explanation(
        r"(DESCRIBE_USER_SCRAM_CREDENTIALS|(ALTER|DESCRIBE)_CLIENT_QUOTAS) \((removed, of |by )?a name of dots\).*",
        r"(results\[\]\.|entries\[\]\.)?(errorCode|errorMessage)|entries",
        "a broker's handler fails over names of dots; here they have no quotas and no credentials",
        kafka="-1|None",
        ours=r"0|91||There is no credential of .*|\[\]",
    ),
    Explanation(
        r"CONTROLLED_SHUTDOWN \(of an unknown broker.*",
        "errorCode",
        "a broker answers UNKNOWN_SERVER_ERROR; here the answer names what is wrong",
        kafka="-1",
        ours="8",
    ),
    # -- departures
    Explanation(
        r"ALTER_CLIENT_QUOTAS \(not a number\).*",
        r"entries\[\]\.(errorCode|errorMessage)",
        "a typing error must not stop a client",
        kafka="0|None",
    ),
    Explanation(
        r"METADATA \(of a topic whose brokers are nowhere\).*",
        r"topics\[\]\.(errorCode|topicAuthorizedOperations)",
        "the controller knows that the topic exists before brokers do",
        kafka="3|3576",
        ours="5|-2147483648",
    ),
    Explanation(
        r"ALTER_PARTITION \((by another than the leader|of nothing|without the leader|with no replica)\).*",
        r"topics\[\]\.partitions\[\](\.(errorCode|leaderId|partitionEpoch|isr|leaderEpoch))?",
        "only the leader may alter the ISR, which holds itself and replicas; Kafka writes anything",
    ),
    Explanation(
        r"CREATE_TOPICS \(names that collide with each other, validate only\).*",
        r"topics\[\](\..*)?",
        "only the first of the topics can be created, so validation refuses the others",
    ),
    Explanation(
        r"CREATE_TOPICS \(names that collide with each other\).*",
        r"topics\[\]\..*",
        "a broker creates the one that its hash table names first; here it is the first in the request",
        kafka=_ONE_OF_TWO,
        ours=_ONE_OF_TWO,
        by_chance=True,
    ),
    Explanation(
        r"CREATE_TOPICS \(assignment to (no broker|a negative broker)\).*",
        r"topics\[\](\..*)?",
        "Kafka creates the topic, which never gets a leader",
        ours=r"39|-1|.*(replication factor of 0|impossible broker).*|\(missing\)|0{8}-0000-.*",
    ),
    Explanation(
        r".*\(while it is deleted\).*",
        r"(topics|results|responses|replicaElectionResults)\[\].*",
        "a dead broker does not delay a deletion; with Kafka the topic stays marked for deletion",
    ),
    Explanation(
        r"ALTER_PARTITION \(with a broker that is gone\) v0",
        r"topics\[\]\.partitions\[\](\..*)?",
        "version 0 comes from brokers of 2.7 to 3.0, whose own controllers accept a broker that is shutting down, and "
        "which take a refusal for final",
        kafka=r"55|0|\[\]",
        ours=r"0|1|\[1, 99\]",
        only_in_full=True,
    ),
    Explanation(
        r"ALTER_CLIENT_QUOTAS v.*",
        "throttleTimeMs",
        "brokers throttle clients by their share of threads; this node has no such quotas",
        kafka=r"\(given\)",
        ours=r"\(none\)",
        only_in_full=True,
        by_chance=True,
    ),
    # -- older releases
    Explanation(
        "API_VERSIONS.*",
        r"apiKeys\[\]",
        "this node offers the versions of Kafka 3.9",
        kafka=_MISSING,
        releases=OLDER,
    ),
    Explanation(
        "API_VERSIONS.*",
        r"apiKeys\[\]\.maxVersion",
        "this node offers the versions of Kafka 3.9",
        releases=OLDER,
    ),
    Explanation(
        "ALTER_USER_SCRAM_CREDENTIALS.*: DESCRIBE_USER_SCRAM_CREDENTIALS, (all|none named)",
        r"results\[\]",
        "older releases return users' names as the znodes encode them",
        releases=OLDER,
    ),
    Explanation(
        r"CREATE_TOPICS \(the metadata topic\).*",
        r"topics\[\].*",
        "the topic is refused; older releases refuse it as if for missing rights, the oldest do not know it",
        releases=OLDER,
    ),
    Explanation(
        ".*",
        r"(.*\.)?errorMessage",
        "without an error the oldest releases send no text, later ones an empty one, or NONE",
        kafka="None",
        ours="|NONE",
        releases=OLDEST,
    ),
    Explanation(
        r"CREATE_TOPICS \(forwarded, for a user without rights\).*",
        r"topics\[\]\.errorMessage",
        _NO_TEXT,
        kafka="None",
        releases=("2.2.2",),
    ),
    Explanation(
        ".*",
        r"(topics\[\]\.topic|cluster)AuthorizedOperations",
        "2.4 has another number for operations that the client did not ask for",
        kafka="0",
        ours="-2147483648",
        releases=("2.4.1",),
    ),
    Explanation(
        r"(INCREMENTAL_)?ALTER_CONFIGS \(forwarded, for a user without rights\).*",
        r"responses\[\]\.(errorCode|errorMessage)",
        _ORDER,
        kafka="31|None",
        ours="42|Unexpected broker id.*",
        releases=OLDER,
    ),
    Explanation(
        r"ALTER_CONFIGS \(a bad name\).*|INCREMENTAL_ALTER_CONFIGS \(a bad name\).*",
        r"responses\[\]\.errorCode",
        _ORDER,
        kafka="3|17",
        ours="3|42",
        releases=OLDER,
    ),
    Explanation(
        r"(INCREMENTAL_)?ALTER_CONFIGS \(an unknown type\).*",
        r"responses\[\]\.errorCode",
        _ORDER,
        kafka="42",
        ours="3",
        releases=BEFORE_3_2,
    ),
    Explanation(
        r"CREATE_TOPICS \(exists, and wrong\).*",
        r"topics\[\]\.errorCode",
        _ORDER,
        kafka="37",
        ours="36",
        releases=("2.2.2",),
    ),
    Explanation(
        r"(INCREMENTAL_)?ALTER_CONFIGS \((unknown topic|unknown topic, nothing|some|forwarded)\).*",
        r"responses\[\]\.errorCode",
        _FAILS,
        kafka="-1",
        ours="3",
        releases=OLDEST,
    ),
    Explanation(
        r"CREATE_TOPICS \(no value\).*|"
        r"(INCREMENTAL_)?ALTER_CONFIGS \((no value|every broker, an unknown operation)\).*|"
        r"INCREMENTAL_ALTER_CONFIGS \(no value, of a name that no znode can have\).*|"
        r"INCREMENTAL_ALTER_CONFIGS \(lists\).*, append (what is wrong|nothing)|"
        r"CREATE_ACLS \(of (any operation|any type|any permission|a pattern to match)\).*|"
        r"FIND_COORDINATOR \(of something else\).*",
        r"((topics|responses)\[\]\.)?(errorCode|errorMessage)|",
        _FAILS,
        kafka=r"-1|None|\(closed\)",
        ours=r"42|Null value .*|Unknown operation 9|\{.*'errorCode': (-1|42), .*",
        releases=BEFORE_3_2,
    ),
    Explanation(
        r"CREATE_ACLS \(of a bad principal\).*",
        r"results\[\]\.(errorCode|errorMessage)",
        "the code and the text changed",
        kafka="42|.*expected a string in format principalType:principalName.*",
        ours="-1|None",
        releases=OLDEST,
    ),
    Explanation(
        r"INCREMENTAL_ALTER_CONFIGS \(lists\).*, (append|append again|subtract|subtract what is not there)",
        r"responses\[\]\.(errorCode|errorMessage)",
        "2.4 cannot change a list that the topic does not have yet",
        kafka="-1|Cannot invoke .*",
        ours="0|None",
        releases=("2.4.1",),
    ),
    Explanation(
        r"INCREMENTAL_ALTER_CONFIGS \(lists\).*: DESCRIBE_CONFIGS'*",
        r"results\[\]\.configs\[\](\.(value|configSource|synonyms\[\]))?",
        "2.4 cannot change a list that the topic does not have yet",
        kafka=r"delete|5|\(missing\)",
        ours=r"delete,compact|compact|1|\{'name': 'cleanup\.policy', .*",
        releases=("2.4.1",),
    ),
    Explanation(
        r"INCREMENTAL_ALTER_CONFIGS \(lists\).*: DESCRIBE_CONFIGS'*",
        r"results\[\]\.configs\[\](\.synonyms\[\])?\.value",
        "older releases append a value that the list has already",
        kafka=".*compact,compact",
        ours=".*compact",
        releases=("3.0.2", "2.8.2"),
    ),
    Explanation(
        r"ALTER_CONFIGS \(the same (key|topic) twice\).*|INCREMENTAL_ALTER_CONFIGS \(the same topic twice\).*|"
        r"CREATE_TOPICS \(assignment (with a gap|of negative partitions)\).*",
        r"(responses|topics)\[\]\.(errorCode|errorMessage)",
        _LESS_CLOSELY,
        kafka="0|None",
        ours="39|42|Error due to duplicate.*|Each resource must.*|partitions should be.*",
        releases=OLDER,
    ),
    Explanation(
        r"ALTER_PARTITION \((of an? (new|old) (leader|partition) epoch|with a broker that is gone)\).*",
        ".*",
        _LESS_CLOSELY,
        releases=OLDER,
    ),
    Explanation(
        r"METADATA \(of a bad name\).*",
        r"topics\[\]\.errorCode",
        _LESS_CLOSELY,
        kafka="3",
        ours="17",
        releases=OLDEST,
    ),
    Explanation(
        r"ALTER_CONFIGS \(the same topic twice\).*|INCREMENTAL_ALTER_CONFIGS \(the same topic twice\).*|"
        r"(DESCRIBE_CONFIGS|CREATE_TOPICS|DELETE_TOPICS) \(twice( and wrong)?\).*",
        r"(responses|results|topics)\[\]",
        _ONCE,
        kafka=_MISSING,
        releases=BEFORE_3_2,
    ),
    Explanation(
        r"(DESCRIBE_|ALTER_)CONFIGS \((client metrics|an unknown type, by number|loggers|loggers of (no broker|another "
        r"broker))\).*",
        r"(responses|results)\[\]",
        _UNKNOWN_TYPE,
        kafka=rf"{_MISSING}|{_LOGGED}",
        ours=rf"{_MISSING}|{_LOGGED}",
        releases=OLDEST,
    ),
    Explanation(
        r"DESCRIBE_CONFIGS \(no keys\).*",
        r"results\[\]\.configs\[\]",
        "an empty list of names means all settings; to the oldest releases, none",
        kafka=_MISSING,
        releases=OLDEST,
    ),
    Explanation(
        r"ELECT_LEADERS \((an unknown kind|a kind below zero)\).*",
        r".*\.errorMessage",
        "2.4 has a text for an unknown kind of election",
        kafka="Value (9|-1) must be one of .*",
        ours="None",
        releases=("2.4.1",),
    ),
    Explanation(
        r"CREATE_TOPICS \((by default, before there was one|partitions by default|replicas by default)\).*",
        r"topics\[\]\.(errorCode|errorMessage)",
        "2.2 refuses the cluster's default numbers of partitions and replicas (KIP-464)",
        kafka="37|38|.* must be larger than 0.",
        ours="0|None",
        releases=("2.2.2",),
    ),
)


def explain(found: Found) -> Explanation | None:
    """The first that does."""
    return next((each for each in EXPLANATIONS if each.explains(found)), None)
