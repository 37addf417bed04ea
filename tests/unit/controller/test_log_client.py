"""Questions to a broker about the ends of its logs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.config import Config
from aiocontroller.controller import log_client
from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.log_client import LogClient
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker, Endpoint, TopicPartition
from aiocontroller.lab.scripted_peer import Peer, PeerConnection, Reaction
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.security import Security
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.fetch import EpochEndAnswer, EpochQuestion
from aiocontroller.wire.list_offsets import EARLIEST, ListedOffset

MODERN = {ApiKey.LIST_OFFSETS: VersionRange(0, 9), ApiKey.FETCH: VersionRange(0, 17)}


async def peer_and_shell(offers: dict[ApiKey, VersionRange]) -> tuple[Peer, ControllerShell, Broker]:
    peer = Peer(simulated_world(SimulatedNetwork()), offers)
    broker = Broker(1, 7, (Endpoint("PLAINTEXT", "127.0.0.1", await peer.listen()),))
    shell: Any = SimpleNamespace(
        world=peer.world, security=Security(Config()), endpoint_of=lambda broker: next(iter(broker.endpoints), None)
    )
    return peer, cast(ControllerShell, shell), broker


def with_client(offers: dict[ApiKey, VersionRange] = MODERN) -> Callable[[Any], Any]:
    """Runs a test with the broker's side and a client that is connected to it."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        async def run() -> None:
            peer, shell, broker = await peer_and_shell(offers)
            async with asking(shell, broker, 5.0) as client:
                await test(peer, await LogClient.over(client))

        del run.__wrapped__  # type: ignore[attr-defined]  # or pytest would look for the test's arguments
        return virtual_time(run)

    return decorate


def listed(topics: Mapping[str, Mapping[int, tuple[int, int]]]) -> Reaction:
    """Answers ListOffsets with (error code, offset) of each partition."""

    def answer(connection: PeerConnection, header: Any) -> None:
        rows = [
            {
                "name": name,
                "partitions": [{"partition_index": p, "error_code": c, "offset": o} for p, (c, o) in ps.items()],
            }
            for name, ps in topics.items()
        ]
        message = cold.response(ApiKey.LIST_OFFSETS, header.api_version, topics=rows)
        connection.answer(header, cold.encode_response(ApiKey.LIST_OFFSETS, header.api_version, message))

    return answer


def fetched(topics: Mapping[str, Mapping[int, tuple[int, int]]], error_code: int = 0) -> Reaction:
    """Answers Fetch with (epoch, end offset) of each partition."""

    def answer(connection: PeerConnection, header: Any) -> None:
        rows = [
            {
                "topic": name,
                "partitions": [
                    {"partition_index": p, "diverging_epoch": {"epoch": e, "end_offset": o}} for p, (e, o) in ps.items()
                ],
            }
            for name, ps in topics.items()
        ]
        message = cold.response(ApiKey.FETCH, 12, responses=rows, error_code=error_code)
        connection.answer(header, cold.encode_response(ApiKey.FETCH, 12, message))

    return answer


@with_client()
async def test_where_logs_end_and_begin(peer: Peer, client: LogClient) -> None:
    peer.reactions.extend([listed({"a": {0: (0, 100), 5: (6, -1)}}), listed({"a": {0: (0, 3)}})])
    assert await client.offsets({"a": [0, 5]}) == {
        TopicPartition("a", 0): ListedOffset(0, 100),
        TopicPartition("a", 5): ListedOffset(6, -1),
    }
    assert await client.offsets({"a": [0]}, EARLIEST) == {("a", 0): ListedOffset(0, 3)}
    sent = [cold.decode_request(ApiKey.LIST_OFFSETS, 9, body) for body in peer.bodies]
    assert [request.replica_id for request in sent] == [-2, -2]
    assert [request.topics[0].partitions[0].timestamp for request in sent] == [-1, -2]


@with_client()
async def test_where_epochs_end(peer: Peer, client: LogClient) -> None:
    peer.reactions.append(fetched({"a": {0: (3, 70)}}))
    assert await client.epoch_ends({"a": [EpochQuestion(0, 5)]}) == {("a", 0): EpochEndAnswer(0, 0, -1, 3, 70)}


@with_client()
async def test_a_refused_fetch_is_an_error_of_each_partition(peer: Peer, client: LogClient) -> None:
    peer.reactions.append(fetched({}, error_code=70))
    answers = await client.epoch_ends({"a": [EpochQuestion(0, 5), EpochQuestion(1, 5)]})
    assert {tp: end.error_code for tp, end in answers.items()} == {("a", 0): 70, ("a", 1): 70}


@with_client()
async def test_an_answer_that_nobody_asked_for_is_refused(peer: Peer, client: LogClient) -> None:
    peer.reactions.append(listed({"a": {0: (0, 1), 1: (0, 2)}}))
    with pytest.raises(FrameError, match="found an answer about a-1, expected only"):
        await client.offsets({"a": [0]})


@with_client()
async def test_a_partition_without_an_answer_is_missing(peer: Peer, client: LogClient) -> None:
    peer.reactions.append(listed({"a": {0: (0, 1)}}))
    assert await client.offsets({"a": [0, 1]}) == {("a", 0): ListedOffset(0, 1)}


def test_many_partitions_are_split_between_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_client, "PARTITIONS_PER_REQUEST", 4)
    topics = {"a": [0, 1, 2], "b": [0, 1, 2, 3, 4, 5], "c": [], "d": [7]}
    assert list(log_client._pieces(topics)) == [{"a": [0, 1, 2], "b": [0]}, {"b": [1, 2, 3, 4]}, {"b": [5], "d": [7]}]
    assert list(log_client._pieces({"a": [1, 2, 3, 4]})) == [{"a": [1, 2, 3, 4]}]
    assert list(log_client._pieces({})) == []


@with_client()
async def test_the_answers_of_all_pieces_are_joined(peer: Peer, client: LogClient) -> None:
    many = {p: (0, p) for p in range(log_client.PARTITIONS_PER_REQUEST + 1)}
    pieces = [dict(list(many.items())[:-1]), dict(list(many.items())[-1:])]
    peer.reactions.extend(listed({"a": piece}) for piece in pieces)
    answers = await client.offsets({"a": list(many)})
    assert {p: answer.offset for (_, p), answer in answers.items()} == {p: p for p in many}


@with_client({ApiKey.LIST_OFFSETS: VersionRange(0, 5), ApiKey.FETCH: VersionRange(0, 11)})
async def test_a_broker_before_2_7_tells_offsets_only(peer: Peer, client: LogClient) -> None:
    peer.reactions.append(listed({"a": {0: (0, 100)}}))
    assert not client.knows_epochs
    assert await client.offsets({"a": [0]}) == {("a", 0): ListedOffset(0, 100)}
    assert [arrived.header.api_version for arrived in peer.arrived] == [5]
    with pytest.raises(UnsupportedApiError, match="version 12 of Fetch"):
        await client.epoch_ends({"a": [EpochQuestion(0, 5)]})


@virtual_time
async def test_a_broker_that_cannot_list_offsets() -> None:
    _, shell, broker = await peer_and_shell({ApiKey.LIST_OFFSETS: VersionRange(10, 11)})
    async with asking(shell, broker, 5.0) as client:
        with pytest.raises(UnsupportedApiError, match="no version of ListOffsets"):
            await LogClient.over(client)
