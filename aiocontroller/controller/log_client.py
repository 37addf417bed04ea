"""Asks a broker where its logs and their epochs end, on a connection of its own.

A broker answers for every replica that it holds, even if the partition has no leader.  Questions about many partitions
are split, so that no encoding or decoding step takes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from aiocontroller.controller.broker_client import BrokerClient
from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire import fetch, list_offsets
from aiocontroller.wire.apis import ApiKey, negotiate
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.fetch import EpochEndAnswer, EpochQuestion
from aiocontroller.wire.list_offsets import DEBUGGING_CONSUMER, LATEST, ListedOffset
from aiocontroller.wire.messages import decode_api_versions_response

PARTITIONS_PER_REQUEST = 5000
_Q = TypeVar("_Q")
_A = TypeVar("_A")


class LogClient:
    """Questions about logs to one broker, one at a time.

    Each raises OSError if the connection is lost, and FrameError for an answer that is malformed or about a partition
    that was not asked for.  No time limit.  A partition may be missing from the answer.
    """

    def __init__(self, client: BrokerClient, version: int, *, knows_epochs: bool) -> None:
        self._client = client
        self._version = version
        self.knows_epochs = knows_epochs
        """False before Kafka 2.7: where epochs end is unknown."""

    @classmethod
    async def over(cls, client: BrokerClient) -> LogClient:
        """Learn which versions the broker offers; UnsupportedApiError if it cannot be asked about logs."""
        answer = decode_api_versions_response(0, await client.request(ApiKey.API_VERSIONS, 0, b""))
        version = negotiate(list_offsets.VERSIONS, answer.versions.get(ApiKey.LIST_OFFSETS))
        if version is None:
            raise UnsupportedApiError(ApiKey.LIST_OFFSETS, 1, "it offers no version of ListOffsets that is used here")
        fetches = answer.versions.get(ApiKey.FETCH)
        return cls(client, version, knows_epochs=fetches is not None and fetches.min <= fetch.VERSION <= fetches.max)

    async def offsets(
        self, topics: Mapping[str, Sequence[int]], timestamp_ms: int = LATEST, replica: int = DEBUGGING_CONSUMER
    ) -> dict[TopicPartition, ListedOffset]:
        """Return where logs end (or begin, with EARLIEST); ``topics``: name -> partitions."""
        answers: dict[TopicPartition, ListedOffset] = {}
        for some in _pieces(topics):
            body = list_offsets.encode_list_offsets_request(self._version, some, timestamp_ms, replica)
            answer = await self._client.request(ApiKey.LIST_OFFSETS, self._version, body)
            found = list_offsets.decode_list_offsets_response(self._version, answer)
            answers.update(_asked_for(found, {topic: set(partitions) for topic, partitions in some.items()}))
        return answers

    async def epoch_ends(
        self, topics: Mapping[str, Sequence[EpochQuestion]], replica: int = DEBUGGING_CONSUMER
    ) -> dict[TopicPartition, EpochEndAnswer]:
        """Return where epochs end; ``topics``: name -> one question per partition.

        UnsupportedApiError before Kafka 2.7.  If a broker refuses the whole request, every partition gets that error.
        """
        if not self.knows_epochs:
            raise UnsupportedApiError(ApiKey.FETCH, fetch.VERSION, "it does not offer version 12 of Fetch")
        answers: dict[TopicPartition, EpochEndAnswer] = {}
        for some in _pieces(topics):
            body = fetch.encode_fetch_request(some, replica)
            code, found = fetch.decode_fetch_response(await self._client.request(ApiKey.FETCH, fetch.VERSION, body))
            asked = {topic: {q.partition for q in questions} for topic, questions in some.items()}
            if code:
                refused = EpochEndAnswer(code, -1, -1)
                found = {TopicPartition(topic, p): refused for topic, numbers in asked.items() for p in numbers}
            answers.update(_asked_for(found, asked))
        return answers


def _pieces(topics: Mapping[str, Sequence[_Q]]) -> Iterator[dict[str, Sequence[_Q]]]:
    """Split into mappings of at most PARTITIONS_PER_REQUEST partitions each, in order."""
    piece: dict[str, Sequence[_Q]] = {}
    room = PARTITIONS_PER_REQUEST
    for topic, questions in topics.items():
        at = 0
        while at < len(questions):
            piece[topic] = questions[at : at + room]
            at += len(piece[topic])
            room -= len(piece[topic])
            if room == 0:
                yield piece
                piece, room = {}, PARTITIONS_PER_REQUEST
    if piece:
        yield piece


def _asked_for(found: dict[TopicPartition, _A], asked: Mapping[str, set[int]]) -> dict[TopicPartition, _A]:
    for topic, partition in found:
        if partition not in asked.get(topic, ()):
            raise FrameError(f"found an answer about {topic}-{partition}, expected only partitions that were asked for")
    return found
