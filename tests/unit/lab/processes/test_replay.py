"""What real processes leave behind, forged here byte by byte: is it read, and would a violation be seen?"""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.journal.records import Record, encode_records
from aiocontroller.lab.processes.observed_broker import Observation
from aiocontroller.lab.processes.replay import Replay
from aiocontroller.lab.processes.transaction_log import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    MULTI,
    SET_DATA,
    read_transactions,
)
from aiocontroller.lab.zookeeper.jute import buffer, string, strings
from aiocontroller.zookeeper import znodes

OURS, THEIRS = 0x100000000000001, 0x100000000000002
STATE = "/brokers/topics/t/partitions/0/state"
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1,2]}}'
Op = tuple[int, bytes]


def create(path: str, data: bytes = b"", *, ephemeral: bool = False) -> Op:
    acl = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
    return CREATE, string(path) + buffer(data) + acl + struct.pack(">?i", ephemeral, 1)


def set_data(path: str, data: bytes, version: int) -> Op:
    return SET_DATA, string(path) + buffer(data) + struct.pack(">i", version)


def check(path: str) -> Op:
    return CHECK, string(path) + struct.pack(">i", 3)


def state(leader: int, epoch: int, isr: tuple[int, ...], controller_epoch: int = 1) -> bytes:
    return znodes.encode_partition_states([LeaderAndIsr(leader, epoch, isr, controller_epoch, 0)])[0]


class Log:
    """One server's transaction log."""

    def __init__(self, folder: Path, first_zxid: int = 1) -> None:
        (folder / "version-2").mkdir(parents=True, exist_ok=True)
        self.path = folder / "version-2" / f"log.{first_zxid:x}"
        self.path.write_bytes(b"ZKLG" + struct.pack(">iq", 2, 0))
        self.zxid = first_zxid - 1

    def add(self, session: int, *ops: Op) -> Log:
        body = struct.pack(">i", len(ops)) + b"".join(struct.pack(">i", kind) + buffer(data) for kind, data in ops)
        return self.add_entry(session, MULTI, body)

    def add_entry(self, session: int, kind: int, body: bytes) -> Log:
        self.zxid += 1
        entry = struct.pack(">qiqqi", session, 0, self.zxid, 1_000 * self.zxid, kind) + body + b"a digest"
        with open(self.path, "ab") as file:
            file.write(struct.pack(">q", 0) + buffer(entry) + b"B")
        return self


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A controller has won epoch 1 and elected 1 as the leader of t-0."""
    made = Log(tmp_path / "zookeeper")
    registered = (create(f"/brokers/ids/{broker}", b"{}") for broker in (1, 2))
    made.add(OURS, create("/controller_epoch", b"0"), *registered)
    won = set_data("/controller_epoch", b"1", 1), create("/controller", b'{"brokerid":1000001}', ephemeral=True)
    made.add(OURS, *won)
    made.add(THEIRS, create("/brokers/topics/t", TOPIC))
    return made.add(OURS, check("/controller_epoch"), create(STATE, state(1, 0, (1, 2))))


@pytest.fixture
def replay(tmp_path: Path, log: Log) -> Replay:
    return Replay([tmp_path / "zookeeper"], [tmp_path / "broker-1"], [tmp_path / "controller-1"])


def observe(tmp_path: Path, *observations: Observation) -> None:
    (tmp_path / "broker-1").mkdir(exist_ok=True)
    with open(tmp_path / "broker-1" / "observed-17.jsonl", "ab") as file:
        file.writelines(msgspec.json.encode(each) + b"\n" for each in observations)


def test_what_is_in_order_is_in_order(tmp_path: Path, log: Log, replay: Replay) -> None:
    observe(
        tmp_path,
        Observation("received", 1, "t", 0, (1, 0, (1, 2), 0)),
        Observation("asked", 1, "t", 0, (1, 0, (1,), 0)),
    )
    log.add(OURS, check("/controller_epoch"), set_data(STATE, state(1, 0, (1,)), 1))
    replay.read()
    assert replay.violations() == []
    assert (replay.transactions, replay.history.writes, replay.observations) == (5, 2, 2)


def test_a_controller_may_give_its_role_back(log: Log, replay: Replay) -> None:
    """It writes the same epoch again and deletes ``/controller``, in one transaction."""
    released = set_data("/controller_epoch", b"1", 2), (DELETE, string("/controller"))
    log.add(OURS, check("/controller_epoch"), *released)
    won = set_data("/controller_epoch", b"2", 3), create("/controller", b'{"brokerid":1000002}', ephemeral=True)
    log.add(THEIRS, *won)
    replay.read()
    assert (replay.violations(), replay.history.controller_epoch) == ([], 2)
    log.add(THEIRS, set_data("/controller_epoch", b"2", 4))  # and still has it
    replay.read()
    assert replay.violations() == ["I2 /controller_epoch: 2 after 2"]


def test_a_refused_multi_changed_nothing(log: Log, replay: Replay) -> None:
    """ZooKeeper logs what came before the refused operation as it was asked for."""
    refused = -1, struct.pack(">i", -110)
    log.add(THEIRS, set_data("/controller_epoch", b"2", 2), refused)
    log.add(OURS, check("/controller_epoch"), set_data(STATE, state(2, 1, (2,)), 1))
    replay.read()
    assert (replay.violations(), replay.history.controller_epoch) == ([], 1)


@pytest.mark.parametrize(
    "session, ops, found",
    [
        (OURS, [set_data(STATE, state(2, 1, (2,)), 1)], "I1 t-0: written without the fence"),
        (THEIRS, [check("/controller_epoch"), set_data(STATE, state(2, 1, (2,)), 1)], "I1 t-0: session"),
        (OURS, [check("/controller_epoch"), set_data(STATE, state(2, 0, (2,)), 1)], "one leader t-0"),
        (OURS, [check("/controller_epoch"), set_data(STATE, state(1, 0, (1,)), 1)], "I3 t-0: ISR (1,) after (1, 2)"),
        (OURS, [(DELETE, string(STATE))], "I8 t-0: its state was deleted"),
    ],
)
def test_what_may_not_be_written_is_found(log: Log, replay: Replay, session: int, ops: list[Op], found: str) -> None:
    replay.read()
    assert replay.violations() == []
    log.add(session, *ops)
    replay.read()
    assert any(violation.startswith(found) for violation in replay.violations()), replay.violations()


def test_what_zookeeper_never_held_is_found(tmp_path: Path, replay: Replay) -> None:
    observe(tmp_path, Observation("received", 1, "t", 0, (2, 7, (2,), 9)))
    replay.read()
    assert [violation[:6] for violation in replay.violations()] == ["I5 t-0"]


def test_half_a_line_and_half_an_entry_wait(tmp_path: Path, log: Log, replay: Replay) -> None:
    observe(tmp_path, Observation("received", 1, "t", 0, (1, 0, (1, 2), 0)))
    whole = log.add(OURS, check("/controller_epoch"), set_data(STATE, state(2, 1, (2,)), 1)).path.read_bytes()
    log.path.write_bytes(whole[:-20])
    with open(tmp_path / "broker-1" / "observed-17.jsonl", "ab") as file:
        file.write(b'["received')
    replay.read()
    assert (replay.transactions, replay.observations) == (4, 1)
    log.path.write_bytes(whole)
    replay.read()
    assert replay.transactions == 5


def test_a_session_takes_its_znodes_along(log: Log, replay: Replay) -> None:
    log.add(THEIRS, create("/brokers/ids/1", b"", ephemeral=True))
    log.add_entry(THEIRS, CLOSE_SESSION, strings(["/brokers/ids/1"]))
    log.add(OURS, check("/controller_epoch"), set_data(STATE, state(2, 1, (2,)), 1))
    replay.read()
    assert replay.violations() == []
    assert replay.measures.leaderless_ms == [1_000]
    assert [span.who for span in replay.measures.all_spans()] == ["broker 1", "broker 2", "controller 1000001"]


def test_a_journal_that_is_not_in_order(tmp_path: Path, replay: Replay) -> None:
    folder = tmp_path / "controller-1" / "journal"
    folder.mkdir(parents=True)
    records = [Record(1, 1, 1, 1, 1, "elected", controller_epoch=1), Record(1, 2, 1, 1, 1, "resigned")]
    records.append(Record(1, 3, 1, 1, 1, "write"))
    (folder / "_journal-1-1-5-000001.jsonl").write_bytes(encode_records(records) + b'{"v":1,"se')
    assert [violation.split(":")[0] for violation in replay.violations()] == ["I12"]


def test_journals_that_are_no_path_of_the_specification(tmp_path: Path, log: Log, replay: Replay) -> None:
    """Two controllers' journals are read together; topics that foreign clients wrote are left out."""

    def record(node: int, leader: int, version: int) -> None:
        folder = tmp_path / "controller-1" / "journal"
        folder.mkdir(parents=True, exist_ok=True)
        elected = Record(1, 1, node, node, 1, "elected", controller_epoch=node)
        leads = Record(1, 2, node, node, 1, "partition", topic="t", partition=0, leader=leader, leader_epoch=0)
        leads.isr, leads.partition_epoch = [1, 2], version
        (folder / f"_journal-{node}-{node}-5-000001.jsonl").write_bytes(encode_records([elected, leads]))

    record(1, 1, 0)
    record(2, 1, 0)
    replay.read()
    assert replay.violations() == []
    record(2, 2, 1)
    assert [violation.split(":")[:2] for violation in replay.violations()] == [["specification", " t-0"]]
    replay.history.written_by_hand["t"] = {STATE: 1}
    assert replay.violations() == []


def test_what_only_a_dead_leader_proposed_never_happened(tmp_path: Path) -> None:
    logs = [Log(tmp_path / str(n), first_zxid=1 << 32) for n in range(3)]
    for made in logs:
        made.add(OURS, create("/a"))
    logs[0].add(OURS, create("/never"))
    folders = [tmp_path / str(n) for n in range(3)]
    assert [t.changes[0].path for t in read_transactions(folders)] == ["/a"]
    logs[1].add(OURS, create("/never"))
    assert [t.changes[0].path for t in read_transactions(folders)] == ["/a", "/never"]
