"""What brokers tell about logs, gathered from all of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from aiocontroller.controller import log_gathering
from aiocontroller.controller.log_gathering import gather
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint, TopicPartition
from aiocontroller.core.log_evidence import NO_RECORDS, UNKNOWN_EPOCH, Evidence, LogEnd, Question
from aiocontroller.lab.cluster.logs import Log
from aiocontroller.lab.scripted_peer import PeerConnection, hang_up, silence
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.log_brokers import BEFORE_2_7, Always, LogBroker, asking_shell, log_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    def __init__(self) -> None:
        self.shell: ControllerShell = asking_shell()
        self.brokers: dict[int, LogBroker] = {}
        self.registered: dict[int, Broker] = {}

    async def broker(self, number: int, *logs: Log, offers: Any = None) -> LogBroker:
        """A broker with the logs of t-0, t-1, …"""
        found = {("t", n): log for n, log in enumerate(logs)}
        broker = self.brokers[number] = LogBroker(self.shell.world, number, found, offers)
        self.registered[number] = await broker.start()
        return broker

    async def gather(
        self, *partitions: TopicPartition, leader_epoch: int = 5, within_s: float = 2.0
    ) -> dict[Any, Evidence]:
        questions = [Question(tp, leader_epoch, tuple(self.registered)) for tp in partitions or (T0,)]
        began_s = self.shell.world.clock.monotonic()
        found = await gather(self.shell, self.registered, questions, within_s)
        self.took_s = self.shell.world.clock.monotonic() - began_s
        return found


@virtual_time
async def test_each_log_s_end_with_its_last_epoch_with_records() -> None:
    it = Stage()
    await it.broker(1, log_of((0, 100)), log_of())
    await it.broker(2, log_of((0, 100), (1, 400)), log_of((3, 7), (4, 0)))  # a leader that wrote nothing in 4
    found = await it.gather(T0, T1)
    assert found[T0].ends == {1: LogEnd(0, 100), 2: LogEnd(1, 500)}
    assert found[T1].ends == {1: LogEnd(NO_RECORDS, 0), 2: LogEnd(3, 7)}
    assert found[T0].silent == found[T1].silent == {}
    assert it.took_s < 0.5


@virtual_time
async def test_where_a_worse_log_leaves_the_best_one() -> None:
    """Broker 1 wrote 3 records in epoch 4 that nobody has; broker 2 led in epoch 5 without them."""
    it = Stage()
    await it.broker(1, log_of((0, 100), (2, 50), (4, 3)))
    await it.broker(2, log_of((0, 100), (2, 40), (5, 20)))
    await it.broker(3, log_of((0, 90)))
    found = (await it.gather())[T0]
    assert found.best([1, 2, 3]) == 2
    assert found.diverging == {1: 140, 3: 90}


@virtual_time
async def test_a_broker_that_has_not_received_its_replicas_is_asked_again() -> None:
    it = Stage()
    late = await it.broker(1)
    it.shell.world.clock.call_later(0.7, lambda: late.logs.update({("t", 0): log_of((0, 5))}))
    assert (await it.gather())[T0].ends == {1: LogEnd(0, 5)}
    assert 0.7 <= it.took_s < 1.0


@pytest.mark.parametrize("accepts", [False, True])
@virtual_time
async def test_a_broker_that_has_registered_too_early_is_heard_as_soon_as_it_answers(accepts: bool) -> None:
    """Nothing listens yet; or, as with many releases, connections wait until the broker processes requests."""
    it = Stage()
    broker = await it.broker(1, log_of((0, 5)))
    clock, usual, tasks = it.shell.world.clock, broker.peer.reactions, list[Any]()
    opens_s = clock.monotonic() + 1.2
    if accepts:

        def answer(connection: PeerConnection, header: Any) -> None:
            clock.call_later(opens_s - clock.monotonic(), lambda: usual.popleft()(connection, header))
            broker.peer.reactions = usual

        broker.peer.reactions = Always(answer)  # type: ignore[assignment]
    else:
        broker.peer.refuse()
        port = it.registered[1].endpoints[0].port
        clock.call_later(1.2, lambda: tasks.append(asyncio.ensure_future(broker.peer.listen(port))))
    assert await it.gather() == {T0: Evidence({1: LogEnd(0, 5)})}
    assert 1.2 <= it.took_s < 1.4


@virtual_time
async def test_a_broker_that_hangs_up_first_is_asked_again() -> None:
    it = Stage()
    broker = await it.broker(1, log_of((0, 5)))
    usual = broker.peer.reactions
    broker.peer.reactions = Always(hang_up)  # type: ignore[assignment]

    def recover() -> None:
        broker.peer.reactions = usual

    it.shell.world.clock.call_later(0.5, recover)
    assert (await it.gather())[T0].ends == {1: LogEnd(0, 5)}


@virtual_time
async def test_what_is_silent_has_its_reason_and_delays_no_longer_than_the_limit() -> None:
    it = Stage()
    await it.broker(1, log_of((0, 5)))
    (await it.broker(2)).peer.reactions = Always(silence)  # type: ignore[assignment]
    (await it.broker(3)).missing = KafkaErrorCode.KAFKA_STORAGE_ERROR  # its disk has failed
    it.registered[4] = Broker(4, 104, (Endpoint("PLAINTEXT", "127.0.0.1", 1),))  # nobody listens
    await it.broker(5)  # it never receives its replica
    questions = [Question(T0, 5, (1, 2, 3, 4, 5, 6))]
    began_s = it.shell.world.clock.monotonic()
    found = (await gather(it.shell, it.registered, questions, 2.0))[T0]
    assert it.shell.world.clock.monotonic() - began_s == pytest.approx(2.0, abs=0.2)
    assert found.ends == {1: LogEnd(0, 5)}
    assert list(found.silent) == [2, 3, 4, 5, 6]
    assert found.silent[2] == "it has not answered in time"
    assert found.silent[3] == "it answers KAFKA_STORAGE_ERROR"
    assert found.silent[4] == "nothing listens on 127.0.0.1:1"
    assert found.silent[5] == "it answers NOT_LEADER_OR_FOLLOWER"
    assert found.silent[6] == "it is not registered"
    assert found.unheard == (4, 6), "broker 2 has told its versions, and broker 5 that it knows nothing"


@virtual_time
async def test_a_failed_disk_is_no_reason_to_wait() -> None:
    it = Stage()
    (await it.broker(1)).missing = KafkaErrorCode.KAFKA_STORAGE_ERROR
    await it.gather()
    assert it.took_s < 0.5


@virtual_time
async def test_old_brokers_tell_lengths_only() -> None:
    it = Stage()
    await it.broker(1, log_of((0, 5)), offers=BEFORE_2_7)
    await it.broker(2, log_of((0, 9)))
    found = (await it.gather())[T0]
    assert found.ends == {1: LogEnd(UNKNOWN_EPOCH, 5), 2: LogEnd(0, 9)}
    assert found.diverging == {}


@virtual_time
async def test_a_broker_that_cannot_be_asked_is_given_up_at_once() -> None:
    it = Stage()
    await it.broker(1, log_of((0, 5)), offers={})
    found = (await it.gather())[T0]
    assert (list(found.silent), found.unheard) == ([1], ())
    assert it.took_s < 0.5


@virtual_time
async def test_a_log_that_grows_meanwhile_is_no_evidence() -> None:
    """A follower that still fetches, or a broker that answers nonsense."""
    it = Stage()
    broker = await it.broker(1, log_of((0, 5)))
    broker.before_answering = lambda: broker.logs["t", 0].append(0, 1, 1)
    found = (await it.gather())[T0]
    assert found.ends == {}
    assert "epoch 5" in found.silent[1] or "ends at" in found.silent[1]


@virtual_time
async def test_a_partition_that_is_left_out_is_asked_about_again() -> None:
    """So Kafka answers a Fetch that exceeds a quota."""
    it = Stage()
    broker = await it.broker(1, log_of((0, 5)))
    left_out = 3

    def answer(connection: PeerConnection, header: Any) -> None:
        nonlocal left_out
        if header.api_key != ApiKey.FETCH or not left_out:
            broker.answer(connection, header)
            return
        left_out -= 1
        nothing = cold.response(ApiKey.FETCH, header.api_version, responses=())
        connection.answer(header, cold.encode_response(ApiKey.FETCH, header.api_version, nothing))

    broker.peer.reactions = Always(answer)  # type: ignore[assignment]
    assert (await it.gather())[T0] == Evidence({1: LogEnd(0, 5)})
    assert 0.3 <= it.took_s < 0.5
    left_out = 1000
    assert (await it.gather())[T0].silent == {1: "it leaves the partition out of its answer"}
    assert it.took_s == pytest.approx(2.0, abs=0.2)


@virtual_time
async def test_many_partitions_are_asked_about_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other tasks run between them."""
    monkeypatch.setattr(log_gathering, "PARTITIONS_AT_ONCE", 2)
    it = Stage()
    for number in (1, 2):
        await it.broker(number, *(log_of((0, 5), (number, n)) for n in range(5)))
    found = await it.gather(*(TopicPartition("t", n) for n in range(5)))
    assert [evidence.ends[2].end_offset for evidence in found.values()] == [5, 6, 7, 8, 9]
    assert [evidence.diverging for evidence in found.values()] == [{}, {1: 5}, {1: 5}, {1: 5}, {1: 5}]
    asked = [frame for frame in it.brokers[1].peer.arrived if frame.header.api_key == ApiKey.LIST_OFFSETS]
    assert len(asked) == 6, "where each of three pieces ends, and where it begins"


def hostile_offsets(offsets: Mapping[int, tuple[int, int]]) -> Any:
    """ListOffsets answers of timestamp -> (error code, offset)."""

    def answer(connection: PeerConnection, header: Any) -> None:
        body = connection.peer.arrived[-1].body
        asked = cold.decode_request(ApiKey.LIST_OFFSETS, header.api_version, body)
        code, offset = offsets[asked.topics[0].partitions[0].timestamp]
        rows = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code, "offset": offset}]}]
        message = cold.response(ApiKey.LIST_OFFSETS, header.api_version, topics=rows)
        connection.answer(header, cold.encode_response(ApiKey.LIST_OFFSETS, header.api_version, message))

    return answer


@pytest.mark.parametrize(
    "latest, earliest, words",
    [
        ((0, -1), (0, 0), "it reports a log from 0 to -1"),
        ((0, 5), (0, 9), "it reports a log from 9 to 5"),
        ((0, 5), (0, -3), "it reports a log from -3 to 5"),
        ((0, 5), (2, 0), "it answers error 2"),
        ((-1, 5), (0, 0), "it answers UNKNOWN_SERVER_ERROR"),
    ],
)
def test_impossible_lengths_are_no_evidence(latest: Any, earliest: Any, words: str) -> None:
    @virtual_time
    async def run() -> None:
        it = Stage()
        broker = await it.broker(1)
        broker.peer.reactions = Always(hostile_offsets({-1: latest, -2: earliest}))  # type: ignore[assignment]
        assert (await it.gather())[T0].silent == {1: words}

    run()


@virtual_time
async def test_a_log_that_stops_growing_is_asked_about_again() -> None:
    """A follower fetches from a leader whose session has expired until it is told that nobody leads."""
    it = Stage()
    broker = await it.broker(1, log_of((0, 5)))
    left = 3

    def grow() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            broker.logs["t", 0].append(0, 1, 1)

    broker.before_answering = grow
    assert (await it.gather())[T0] == Evidence({1: LogEnd(0, 8)})
    assert it.took_s < 0.5


@virtual_time
async def test_an_epoch_that_no_leader_has_had_is_no_evidence() -> None:
    """The log of an earlier topic of this name, or a broker that answers nonsense."""
    it = Stage()
    await it.broker(1, log_of((0, 100), (9, 500)))
    await it.broker(2, log_of((0, 100), (5, 20)))
    found = (await it.gather(leader_epoch=5))[T0]
    assert found.ends == {2: LogEnd(5, 120)}
    assert found.silent == {1: "it reports records of epoch 9, and the partition's leader epoch is 5"}
    assert it.took_s < 0.5


@pytest.mark.parametrize("answers_first", [False, True])
@virtual_time
async def test_a_broker_that_hangs_leaves_it_known_where_the_others_diverge(answers_first: bool) -> None:
    it = Stage()
    await it.broker(1, log_of((0, 100), (2, 50)))
    await it.broker(2, log_of((0, 100), (5, 20)))
    hangs = await it.broker(3, log_of((0, 90)))
    if answers_first:
        usual = hangs.answer

        def answer(connection: PeerConnection, header: Any) -> None:
            if header.api_key == ApiKey.LIST_OFFSETS:
                usual(connection, header)

        hangs.peer.reactions = Always(answer)  # type: ignore[assignment]
    else:
        hangs.peer.reactions = Always(silence)  # type: ignore[assignment]
    found = (await it.gather())[T0]
    assert found.ends == {1: LogEnd(2, 150), 2: LogEnd(5, 120)}
    assert found.silent == {3: "it has not answered in time"}
    assert found.diverging == {1: 100}
    assert it.took_s == pytest.approx(2.0, abs=0.2)


@virtual_time
async def test_garbage_is_no_evidence() -> None:
    it = Stage()
    broker = await it.broker(1)
    broker.peer.reactions = Always(lambda connection, header: connection.answer(header, b"\xff" * 40))  # type: ignore[assignment]
    found = (await it.gather())[T0]
    assert "LIST_OFFSETS" in found.silent[1]
    assert it.took_s == pytest.approx(2.0, abs=0.2)


@virtual_time
async def test_a_bug_about_one_broker_leaves_what_the_others_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Stage()
    for number in (1, 2):
        await it.broker(number, log_of((0, 5)))
    usual = log_gathering._AskedBroker._ask_once

    async def ask_once(self: Any, logs: Any, questions: Any) -> Any:
        assert self._broker.id != 2
        return await usual(self, logs, questions)

    monkeypatch.setattr(log_gathering._AskedBroker, "_ask_once", ask_once)
    found = (await it.gather())[T0]
    assert found.ends == {1: LogEnd(0, 5)}
    assert found.silent == {2: "a bug kept it from being asked"}
    assert it.took_s < 0.5


@virtual_time
async def test_nothing_is_asked_for_no_partition() -> None:
    it = Stage()
    assert await gather(it.shell, {}, [], 2.0) == {}
