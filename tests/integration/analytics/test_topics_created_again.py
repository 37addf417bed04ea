"""Topics that are deleted and created again under the same name, by a controller that left no log.

The brokers' logs show both: which partitions are deleted, and which leader each one begins with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from tests.integration.analytics.test_deletions_in_logs import isr_by_leader, received, taken_down, told
from tests.integration.analytics.test_logs_of_operations import by_controller, line, online, removed, write

END_S = 95
AGAIN_S = 5.5
"""When each topic is created again; the controller has taken the leaders of the old one away by ``GONE_S``."""
GONE_S = 5.3


OLD, AGAIN_ID = "Rn8EVhdbQvqJqMA6oJ9TZQ", "FPCkVfcmTYm3Ho-7VgfVBQ"


def starts(second: float, partition: str, isr: str, topic_id: str = AGAIN_ID, epoch: int = 0) -> str:
    """As releases after 3.0 log it in state-change.log."""
    return line(
        second,
        f"[Broker id=3] Leader {partition} with topic id Some({topic_id}) starts at leader epoch {epoch} from offset 0 "
        f"with partition epoch {epoch}, high watermark 0, ISR [{isr}], adding replicas [] and removing replicas [] "
        ". Previous leader None and previous leader epoch was -1. (state.change.logger)",
    )


def starts_by_an_old_release(second: float, partition: str) -> str:
    """As 1.1 to 2.5 log it in server.log."""
    return line(
        second,
        f"[Partition {partition} broker=3] {partition} starts at leader epoch 0 from offset 0 with high watermark 0. "
        "Previous leader epoch was -1. (kafka.cluster.Partition)",
    )


NOTICED = ("changed-0", "old-release-0", "smaller-0", "traced-0")
AGAIN = (*NOTICED, "completed-0")
"""``changed``: the leader changes the ISR within five seconds; ``smaller``: the new topic has fewer replicas;
``traced``: a follower handles the request after the leader has changed the ISR; ``completed``: only the controller logs
the deletion."""
NAMED = ("repeated-0", "late-0", "ended-0", "told-twice-0", "unseen-0")
"""Leaders name two ids of these topics.  ``repeated``, ``late``: the line that the deletion is complete stands there
again, or only, when the new topic lives; ``told-twice``: so does a broker's line; ``ended``: the new topic is deleted,
too; ``unseen``: nothing is logged of the deletion."""


def done(second: float, topic: str) -> str:
    text = f"Deletion of topic {topic} successfully completed (kafka.controller.TopicDeletionManager)"
    return line(second, f"[Topic Deletion Manager 1] {text}")


def created_again(logs: Path) -> None:
    """Controller 1 dies while it deletes all topics but ``kept``, and another one without a log creates them again."""
    assigned = (
        "Changed partition smaller-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2,3"
    )
    of_controller = [
        by_controller(0.9, assigned),
        *(online(1, key, 1, "1, 2") for key in (*AGAIN, "kept-0") if key != "smaller-0"),
        *(online(1, key, 3, "3, 1") for key in NAMED),
        online(1, "smaller-0", 1, "1, 2, 3"),
        online(1, "restarted-0", 3, "3, 1"),
        *(online(1, "logged-0", 1, "1, 2"), *taken_down(5.2, "logged-0")),
        *(online(5.45, "logged-0", 3, "3, 1"), removed(5.6, "logged-0", 3, "3", 1, 1)),
        *(each for key in AGAIN for each in taken_down(5.2, key)),
        online(END_S, "kept-0", 2, "1, 2", 1, before="Online"),
    ]
    completed = [
        (5.35, "completed"),
        (5.35, "repeated"),
        (6, "repeated"),
        (5.55, "late"),
        (5.35, "ended"),
        (8, "ended"),
    ]
    write(logs / "1", of_controller, [done(second, topic) for second, topic in completed])
    servers = {
        2: [told(5.1, 2, *NOTICED, "logged-0", "older-0", "told-twice-0"), told(6, 2, "told-twice-0")],
        3: [
            told(5.15, 3, *NOTICED, "logged-0", "older-0"),
            starts_by_an_old_release(AGAIN_S, "old-release-0"),
            *(isr_by_leader(7, key, "3", 1) for key in ("changed-0", "smaller-0", "traced-0")),
        ],
    }
    for broker, lines in servers.items():
        (logs / str(broker)).mkdir()
        (logs / str(broker) / "server.log").write_text("".join(lines))
    begun = [starts(AGAIN_S, key, "3,1") for key in ("changed-0", "completed-0", "smaller-0")]
    begun.append(starts(5.7, "logged-0", "3,1"))
    # A broker that is restarted leads in the same epoch again.
    begun += [starts(second, "restarted-0", "3,1") for second in (1.01, AGAIN_S)]
    begun += [starts(1.01, "older-0", "3,1", OLD), starts(AGAIN_S, "older-0", "3,1")]
    begun += [line for key in NAMED for line in (starts(1.01, key, "3,1", OLD), starts(AGAIN_S, key, "3,1"))]
    begun += [starts(7, key, "3,1", epoch=1) for key in NAMED if key != "ended-0"]
    begun += [received(AGAIN_S, "traced-0", 0)]
    (logs / "3" / "state-change.log").write_text("".join(begun))
    late = received(7.5, "traced-0", 0).replace("[Broker id=3]", "[Broker id=2]")
    (logs / "2" / "state-change.log").write_text(late)


@pytest.fixture(scope="module")
def found(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("again")
    created_again(folder / "in")
    batch.run(spark, [str(folder / "in")], str(folder / "out"))
    out = folder / "out"
    (silver,) = out.glob("runs/*/silver")
    tables = {"events": silver, **dict.fromkeys(("windows", "violations", "availability"), out / "gold")}
    return {
        name: [row.asDict() for row in spark.read.parquet(str(where / name)).collect()]
        for name, where in tables.items()
    }


def seconds(found: dict[str, list[Any]], ts_us: int) -> float:
    begun_us = min(row["ts_us"] for row in found["events"] if row["kind"] == "elected") - 500_000
    return float(round((ts_us - begun_us) / 1e6, 3))


def changes(found: dict[str, list[Any]], key: str) -> list[tuple[float, str | None, int | None]]:
    """The changes of a partition, as (second, state, leader)."""
    topic = key.removesuffix("-0")
    rows = [row for row in found["events"] if row["topic"] == topic and row["kind"] in ("partition", "isr")]
    in_time = sorted(rows, key=lambda row: row["ts_us"])
    return [(seconds(found, row["ts_us"]), row["to_state"], row["leader"]) for row in in_time]


def life(found: dict[str, list[Any]], key: str) -> list[tuple[float, str | None, int | None]]:
    """Those from its end on."""
    every = changes(found, key)
    gone = next(n for n, (_, state, _) in enumerate(every) if state == "NonExistentPartition")
    return every[gone:]


@pytest.mark.parametrize("key", AGAIN)
def test_a_new_life_begins_with_its_first_leader(found: dict[str, list[Any]], key: str) -> None:
    """It began with a later change of the ISR, or belonged to the life before, which ended after it."""
    ended = 5.35 if key == "completed-0" else GONE_S
    changed = [] if key in ("completed-0", "old-release-0") else [(7.0, None, 3)]
    expected = [(ended, "NonExistentPartition", None), (AGAIN_S, "OnlinePartition", 3), *changed]
    assert life(found, key) == expected


def test_what_a_controller_logs_of_a_creation_counts(found: dict[str, list[Any]]) -> None:
    """The leader handles the request when the controller has changed the ISR already."""
    gone = (GONE_S, "NonExistentPartition", None)
    assert life(found, "logged-0") == [gone, (5.45, "OnlinePartition", 3), (5.6, None, 3)]


@pytest.mark.parametrize("key, ends", [
    ("repeated-0", [5.35]), ("late-0", [AGAIN_S]), ("told-twice-0", [5.1]), ("unseen-0", [AGAIN_S]),
    ("ended-0", [5.35, 8.0]),
])  # fmt: skip
def test_an_end_is_of_the_life_whose_topic_id_leaders_name(
    found: dict[str, list[Any]], key: str, ends: list[float]
) -> None:
    every = changes(found, key)
    assert [second for second, state, _ in every if state == "NonExistentPartition"] == ends
    begins = [second for second, state, leader in every if state == "OnlinePartition" and leader == 3]
    assert begins == [1.0, AGAIN_S]
    gone = [row for row in found["windows"] if row["topic"] == key.removesuffix("-0") and row["end_us"] is None]
    assert gone == []


def test_a_leader_in_epoch_0_begins_no_life_before_a_deletion(found: dict[str, list[Any]]) -> None:
    """It was restarted; the creation is older than the logs."""
    assert changes(found, "older-0") == [(AGAIN_S, "OnlinePartition", 3)]


def test_it_has_no_window_before(found: dict[str, list[Any]]) -> None:
    """The brokers that the old topic had, and the new one has not, are no replicas that are missing."""
    of_new = [row for row in found["windows"] if row["end_us"] is None or seconds(found, row["end_us"]) > GONE_S]
    of_new = [row for row in of_new if row["topic"] != "completed" or row["end_us"] is None]
    begun = [(row["topic"], row["kind"], seconds(found, row["start_us"])) for row in of_new]
    assert begun == [("traced", "under_replicated", 7.0)]  # a request names its replicas
    assert found["violations"] == []


def test_availability_counts_both_lives(found: dict[str, list[Any]]) -> None:
    of = {row["name"]: row["partitions"] for row in found["availability"] if row["level"] == "topic"}
    assert of == {
        **{key.removesuffix("-0"): 2 for key in (*AGAIN, *NAMED, "logged-0")},
        **dict.fromkeys(("kept", "restarted", "older"), 1),
    }
    led = {row["name"]: row["partitions"] for row in found["availability"] if row["level"] == "broker"}
    assert led["3"] == len([*AGAIN, *NAMED, *NAMED, "restarted-0", "logged-0", "older-0"])
