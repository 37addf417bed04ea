"""Plans of any size are asked for in requests that the controller takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.cli import reassign
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.reassignments import Targets, encode_alter_partition_reassignments_request


def test_plan_is_asked_for_in_parts_and_nothing_is_lost() -> None:
    targets: Targets = {TopicPartition("t" * (n % 249 + 1), n): (1, 2, 3) for n in range(20_000)}
    parts = list(reassign.in_parts(targets))
    assert len(parts) > 5
    assert [each for part in parts for each in part.items()] == list(targets.items())
    assert all(
        len(encode_alter_partition_reassignments_request(0, part)) <= reassign.REQUEST_BYTES + 1_000 for part in parts
    )
    assert list(reassign.in_parts({})) == []
    assert list(reassign.in_parts({TopicPartition("t", 0): None})) == [{TopicPartition("t", 0): None}]


def test_plan_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    with plan.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadInputError, match="found 1,099,511,627,776 bytes, expected a plan of 104,857,600 at most"):
        reassign.read_plan(plan)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"version": 1, "x": ' + b"[" * 100_000, b'{"version": 1, "partitions": [{"topic": "\xdd"}]}'],
)
def test_a_plan_that_is_nested_too_deep_or_in_another_encoding_is_named(tmp_path: Path, text: bytes) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(text)
    with pytest.raises(BadInputError, match=r"plan\.json: .*expected Kafka's reassignment plan"):
        reassign.read_plan(plan)
