"""What brokers forward for their clients is answered as if the clients had asked themselves."""

from __future__ import annotations

from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.moves import elect, move, moves
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one
from tests.admin_answers.settings import BROKER, TOPIC, altered
from tests.admin_answers.topics import assigned, create, delete, grow, more, new
from tests.admin_answers.two_clusters import ALICE, CAROL, LISTENING

ALTER, INCREMENT = ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS


def created(p: Player) -> Fields:
    """One that can be made, and others that cannot."""
    return create(new(p.topic("a"), **assigned([1, 2])), new("bad/name"), new(p.topic("b"), 1, 9), new(p.topic("c"), 0))


for _way, _who in ((ALICE, ""), (CAROL, ", for a user without rights")):
    _how = {"way": _way, "forwarded": True}
    one(ApiKey.CREATE_TOPICS, f"forwarded{_who}", created, **_how)
    one(
        ApiKey.DELETE_TOPICS,
        f"forwarded{_who}",
        lambda p: delete(p.topic("a"), p.topic("b")),
        topics={"a": [[1]]},
        **_how,
    )
    one(
        ApiKey.CREATE_PARTITIONS,
        f"forwarded{_who}",
        lambda p: grow(more(p, "a", 2), more(p, "b", 1), more(p, "c", 2)),
        topics={"a": [[1]], "b": [[1]]},
        **_how,
    )
    for _api in (ALTER, INCREMENT):
        one(
            _api,
            f"forwarded{_who}",
            lambda p: altered(
                p,
                (TOPIC, p.topic("a"), [("retention.ms", "5")]),
                (TOPIC, p.topic("b"), [("retention.ms", "x")]),
                (TOPIC, p.topic("c"), [("retention.ms", "5")]),
                (BROKER, "1", [("log.retention.ms", "5")]),
            ),
            topics={"a": [[1]], "b": [[1]]},
            **_how,
        )
    one(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        f"forwarded{_who}",
        lambda p: moves(move(p, "a", [LISTENING]), move(p, "b", [1])),
        topics={"a": [[1]]},
        **_how,
    )
    one(ApiKey.ELECT_LEADERS, f"forwarded{_who}", lambda p: elect(p, "a", "b"), topics={"a": [[1]]}, **_how)
