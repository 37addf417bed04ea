"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, of topics and of brokers."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.topic_configs import TOPIC_CONFIGS
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one, scenario
from tests.admin_answers.two_clusters import SINCE_2_7

DESCRIBE, ALTER, INCREMENT = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
UNKNOWN, TOPIC, BROKER, LOGGER, METRICS = 0, 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
ANOTHER_BROKER = "1"
NO_ZNODE_NAMES = (".", "..", "/", "a//b", "a/", "a/../b", "\0", "\x7f", "\ue000", "\U0001f600")
Change = tuple[str, str | None] | tuple[str, str | None, int]


def described(*resources: tuple[int, str], keys: Sequence[str] | None = None, documented: bool = False) -> Fields:
    asked = [{"resource_type": t, "resource_name": name, "configuration_keys": keys} for t, name in resources]
    return {"resources": asked, "include_synonyms": True, "include_documentation": documented}


def altered(
    p: Player, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False, api: ApiKey | None = None
) -> Fields:
    """For both ways; the legacy one knows no operations."""
    legacy = (api or p.scenario.api) is ALTER
    found = []
    for kind, name, changes in resources:
        configs = [
            {"name": change[0], "value": change[1]}
            | ({} if legacy else {"config_operation": change[2] if len(change) > 2 else SET})
            for change in changes
        ]
        found.append({"resource_type": kind, "resource_name": name, "configs": configs})
    return {"resources": found, "validate_only": validate_only}


def own(p: Player) -> str:
    return str(p.cluster.side.node_id)


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------

one(DESCRIBE, "topics", lambda p: described((TOPIC, p.topic("a")), (TOPIC, p.topic("b"))), topics={"a": [[1]]})
one(
    DESCRIBE,
    "some keys",
    lambda p: described((TOPIC, p.topic("a")), keys=["retention.ms", "no.such"]),
    topics={"a": [[1]]},
)
one(DESCRIBE, "no keys", lambda p: described((TOPIC, p.topic("a")), keys=[]), topics={"a": [[1]]})
one(
    DESCRIBE,
    "documented",
    lambda p: described((TOPIC, p.topic("a")), keys=["retention.ms"], documented=True),
    topics={"a": [[1]]},
    since=3,
)
one(DESCRIBE, "twice", lambda p: described((TOPIC, p.topic("a")), (TOPIC, p.topic("a"))), topics={"a": [[1]]})
one(DESCRIBE, "none", lambda p: described())
one(DESCRIBE, "a bad name", lambda p: described((TOPIC, "bad/name"), (TOPIC, ""), (TOPIC, "x" * 300)))
one(DESCRIBE, "own broker", lambda p: described((BROKER, own(p)), keys=["num.partitions"]))
one(DESCRIBE, "another broker", lambda p: described((BROKER, ANOTHER_BROKER)))
one(DESCRIBE, "no broker", lambda p: described((BROKER, "many")))
one(DESCRIBE, "every broker", lambda p: described((BROKER, "")))
one(DESCRIBE, "loggers of another broker", lambda p: described((LOGGER, ANOTHER_BROKER)))
one(DESCRIBE, "loggers of no broker", lambda p: described((LOGGER, "")))
one(DESCRIBE, "client metrics", lambda p: described((METRICS, "m")))
one(DESCRIBE, "an unknown type", lambda p: described((UNKNOWN, "x"), (TOPIC, "y")))
one(DESCRIBE, "an unknown type, by number", lambda p: described((99, "x")))


# -- both ways of altering ---------------------------------------------------------------------------------------------

BAD_VALUES = (
    "",
    "-2",
    "-1",
    "0",
    "1",
    "many",
    "true",
    "delete",
    "1.5",
    "99999999999999999999",
    "9999999999",
    "x" * 10,
    "0:1",
)
"""Of each of these there are settings that take it, and settings that do not."""


async def see(p: Player, *names: str) -> None:
    await p.ask(DESCRIBE, **described(*((TOPIC, p.topic(name)) for name in names)))


for _api in (ALTER, INCREMENT):

    @scenario(_api, topics={"a": [[1]], "b": [[1]]})
    async def _(p: Player) -> None:
        """And what every client sees then."""
        await p.ask(
            **altered(
                p,
                (TOPIC, p.topic("a"), [("retention.ms", "1000"), ("cleanup.policy", "compact,delete")]),
                (TOPIC, p.topic("b"), [("min.insync.replicas", " 2 ")]),
            )
        )
        await see(p, "a", "b")
        await p.ask(**altered(p, (TOPIC, p.topic("a"), [("segment.ms", "77")])), what="something else")
        await see(p, "a", "b")

    @scenario(_api, "every setting with values of every kind", topics={"a": [[1]]})
    async def _(p: Player) -> None:
        for name in TOPIC_CONFIGS:
            for value in BAD_VALUES:
                await p.ask(
                    **altered(p, (TOPIC, p.topic("a"), [(name, value)]), validate_only=True), what=f"{name} = {value!r}"
                )

    one(
        _api,
        "validate only",
        lambda p: altered(p, (TOPIC, p.topic("a"), [("retention.ms", "1")]), validate_only=True),
        topics={"a": [[1]]},
    )
    one(_api, "none", lambda p: altered(p))
    one(_api, "nothing", lambda p: altered(p, (TOPIC, p.topic("a"), [])), topics={"a": [[1]]})
    one(_api, "unknown topic", lambda p: altered(p, (TOPIC, p.topic("a"), [("retention.ms", "1")])))
    one(_api, "unknown topic, nothing", lambda p: altered(p, (TOPIC, p.topic("a"), [])))
    one(_api, "a bad name", lambda p: altered(p, (TOPIC, "bad/name", [("retention.ms", "1")]), (TOPIC, "", [])))
    one(
        _api, "an unknown setting", lambda p: altered(p, (TOPIC, p.topic("a"), [("no.such", "1")])), topics={"a": [[1]]}
    )
    one(_api, "no value", lambda p: altered(p, (TOPIC, p.topic("a"), [("retention.ms", None)])), topics={"a": [[1]]})
    one(
        _api,
        "the same key twice",
        lambda p: altered(p, (TOPIC, p.topic("a"), [("retention.ms", "1"), ("retention.ms", "2")])),
        topics={"a": [[1]]},
    )
    one(
        _api,
        "the same topic twice",
        lambda p: altered(
            p, (TOPIC, p.topic("a"), [("retention.ms", "1")]), (TOPIC, p.topic("a"), [("segment.ms", "2")])
        ),
        topics={"a": [[1]]},
        unanswered=_api is ALTER,
    )
    one(
        _api,
        "settings that contradict",
        lambda p: altered(p, (TOPIC, p.topic("a"), [("max.compaction.lag.ms", "1"), ("min.compaction.lag.ms", "9")])),
        topics={"a": [[1]]},
    )
    one(
        _api,
        "some",
        lambda p: altered(
            p,
            (TOPIC, p.topic("a"), [("retention.ms", "x")]),
            (TOPIC, p.topic("b"), [("retention.ms", "5")]),
            (TOPIC, p.topic("c"), []),
        ),
        topics={"a": [[1]], "b": [[1]]},
    )
    one(_api, "own broker", lambda p: altered(p, (BROKER, own(p), [("log.retention.ms", "x")])))
    one(_api, "another broker", lambda p: altered(p, (BROKER, ANOTHER_BROKER, [("log.retention.ms", "1000")])))
    one(_api, "no broker", lambda p: altered(p, (BROKER, "many", [("log.retention.ms", "1000")])))
    one(_api, "every broker, a bad value", lambda p: altered(p, (BROKER, "", [("log.retention.ms", "x")])))
    one(
        _api,
        "every broker, a setting that is read once",
        lambda p: altered(p, (BROKER, "", [("broker.id", "5"), ("log.dirs", "/x")])),
    )
    one(
        _api,
        "every broker, an unknown setting",
        lambda p: altered(p, (BROKER, "", [("no.such", "5")]), validate_only=True),
    )
    one(_api, "every broker, a setting of one", lambda p: altered(p, (BROKER, "", [("ssl.keystore.location", "/x")])))
    one(
        _api,
        "every broker, a listener's setting",
        lambda p: altered(p, (BROKER, "", [("listener.name.x.ssl.keystore.location", "/x")])),
    )
    one(
        _api,
        "every broker, a quota",
        lambda p: altered(p, (BROKER, "", [("leader.replication.throttled.rate", "5")]), validate_only=True),
    )
    one(_api, "loggers", lambda p: altered(p, (LOGGER, ANOTHER_BROKER, [("kafka", "INFO")])))
    one(_api, "client metrics", lambda p: altered(p, (METRICS, "m", [("interval.ms", "1")])))
    one(_api, "an unknown type", lambda p: altered(p, (UNKNOWN, "x", []), (TOPIC, "y", [])))
    one(_api, "an unknown type, by number", lambda p: altered(p, (99, "x", [])))

    @scenario(_api, "every broker", topics={"a": [[1]]}, releases=SINCE_2_7)
    async def _(p: Player) -> None:
        """Topics see it too; then it is taken back, which topics of 2.4 do not notice."""
        await p.ask(**altered(p, (BROKER, "", [("log.retention.ms", "777777"), ("max.connections", "999")])))

        async def seen(wanted: bool) -> bool:
            """By topics, to which it comes last."""
            answer = await p.request(DESCRIBE, **described((TOPIC, p.topic("a")), keys=["retention.ms"]))
            return (answer.results[0].configs[0].value == "777777") is wanted

        await p.until(lambda: seen(True), "the setting of every broker")
        await p.ask(DESCRIBE, **described((BROKER, "")))
        await see(p, "a")
        changes = [(name, None, DELETE) for name in ("log.retention.ms", "max.connections")]
        await p.request(INCREMENT, **altered(p, (BROKER, "", changes), api=INCREMENT))
        await p.until(lambda: seen(False), "the setting to be taken back")


# -- IncrementalAlterConfigs -------------------------------------------------------------------------------------------


@scenario(INCREMENT, "lists", topics={"a": [[1]]})
async def _(p: Player) -> None:
    async def change(what: str, *changes: Change) -> None:
        await p.ask(**altered(p, (TOPIC, p.topic("a"), changes)), what=what)

    await change("append", ("cleanup.policy", "compact", APPEND))
    await see(p, "a")
    await change("append again", ("cleanup.policy", "compact", APPEND))
    await change("subtract", ("cleanup.policy", "delete", SUBTRACT))
    await see(p, "a")
    await change("subtract what is not there", ("cleanup.policy", "delete", SUBTRACT))
    await change("append to no list", ("retention.ms", "1", APPEND))
    await change("subtract from no list", ("retention.ms", "1", SUBTRACT))
    await change("append what is wrong", ("cleanup.policy", "none", APPEND))
    await change("append an unknown setting", ("no.such", "x", APPEND))
    await change("delete", ("cleanup.policy", None, DELETE), ("retention.ms", "5", DELETE))
    await see(p, "a")
    await change("delete an unknown setting", ("no.such", None, DELETE))
    await change("append nothing", ("cleanup.policy", None, APPEND))
    await change("set and delete", ("retention.ms", "5", SET), ("retention.ms", None, DELETE))
    await change("several", ("retention.ms", "5", SET), ("segment.ms", "x", SET))
    await change("an unknown operation", ("retention.ms", "5", 9))
    await see(p, "a")


one(
    INCREMENT,
    "a name that no znode can have",
    lambda p: altered(p, *((TOPIC, name, [("retention.ms", "1")]) for name in NO_ZNODE_NAMES)),
)
one(
    INCREMENT,
    "no value, of a name that no znode can have",
    lambda p: altered(p, (TOPIC, "..", [("retention.ms", None)])),
)
one(INCREMENT, "every broker, an unknown operation", lambda p: altered(p, (BROKER, "", [("max.connections", "5", 9)])))
