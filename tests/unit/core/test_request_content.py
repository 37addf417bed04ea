"""What requests carry: values that go into logs, and defaults that an answer shows."""

from __future__ import annotations

from aiocontroller.core.request_content import AlterPartition, ElectionType, Released, ScramUpsertion, TopicResult


def test_a_credential_shows_no_secret() -> None:
    upsertion = ScramUpsertion("alice", 2, 4096, b"the salt", b"the salted password")
    assert "alice" in repr(upsertion)
    assert "salt" not in f"{upsertion} {upsertion!r} {[upsertion]}"


def test_elections_have_kafkas_numbers() -> None:
    assert (ElectionType(0), ElectionType(1)) == (ElectionType.PREFERRED, ElectionType.UNCLEAN)


def test_an_isr_change_is_of_a_partition_that_has_recovered_unless_it_says_otherwise() -> None:
    assert AlterPartition("t", 0, 3, (1, 2), 5).recovery_state == 0


def test_a_topic_that_was_not_created_has_no_partitions() -> None:
    refused = TopicResult(36, "exists")
    assert (refused.partitions, refused.replication_factor, refused.configs) == (-1, -1, ())


def test_a_release_may_leave_nothing_behind() -> None:
    assert (Released(7).left, Released(7).owed) == ((), ())
