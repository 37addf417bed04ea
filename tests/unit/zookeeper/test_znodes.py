"""The controller's znodes: every version that Kafka has written, and every kind of damage as a value."""

import json

import msgspec
import pytest

from aiocontroller.core.ids import (
    MAX_PARTITIONS_PER_TOPIC,
    NO_TOPIC_ID,
    Broker,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper import znodes
from aiocontroller.zookeeper.znode_json import excerpt, topic_id_from_text, topic_id_to_text
from aiocontroller.zookeeper.znodes import BadZNode

STATE_PATH = "/brokers/topics/t/partitions/0/state"


def decode_state(data, version=0):
    return znodes.decode_partition_state(STATE_PATH, data, version)


def state_json(**changes):
    fields = {"version": 1, "leader": 1, "leader_epoch": 2, "controller_epoch": 3, "isr": [1, 2]} | changes
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()


class TestController:
    def test_version_1_has_no_kraft_epoch(self):
        found = znodes.decode_controller(
            b'{"version":1,"brokerid":3,"timestamp":"1700000000000"}', owner_session=9, version=0
        )
        assert found == znodes.ControllerZNode(3, 9, 1_700_000_000_000, 0, -1)

    def test_version_2_of_a_kraft_controller(self):
        data = b'{"version":2,"brokerid":3000,"timestamp":"17","kraftControllerEpoch":5}'
        assert znodes.decode_controller(data, version=4) == znodes.ControllerZNode(3000, 0, 17, 4, 5)

    def test_bare_number_takes_the_time_from_the_stat(self):
        assert znodes.decode_controller(b"7", created_ms=12) == znodes.ControllerZNode(7, 0, 12, 0)

    def test_ours_is_readable_by_kafka_and_marked(self):
        data = znodes.encode_controller(1_000_000, 17)
        assert json.loads(data) == {
            "version": 2,
            "brokerid": 1_000_000,
            "timestamp": "17",
            "kraftControllerEpoch": -1,
            "software": "aiocontroller",
        }
        assert znodes.decode_controller(data) == znodes.ControllerZNode(1_000_000, 0, 17, 0, -1, "aiocontroller")

    def test_as_a_broker_writes_it(self):
        assert set(json.loads(znodes.encode_controller(1, 2, software=""))) == {
            "version",
            "brokerid",
            "timestamp",
            "kraftControllerEpoch",
        }

    @pytest.mark.parametrize(
        "data",
        [
            None,
            b"",
            b"x",
            b"\xff",
            b"{}",
            b'{"brokerid":"1"}',
            b'{"brokerid":-1}',
            b'{"brokerid":1,"timestamp":"soon"}',
        ],
    )
    def test_damage(self, data):
        found = znodes.decode_controller(data)
        assert isinstance(found, BadZNode)
        assert found.path == "/controller"
        assert '"brokerid"' in found.expected

    def test_epoch(self):
        assert znodes.decode_controller_epoch(b"7") == 7
        assert znodes.encode_controller_epoch(8) == b"8"

    @pytest.mark.parametrize("data", [None, b"", b"7 ", b"1_0", b"-1", b"x", b"\xff", b"2147483647", b"9" * 5000])
    def test_damaged_epoch(self, data):
        assert isinstance(znodes.decode_controller_epoch(data), BadZNode)


class TestBroker:
    def test_version_1(self):
        data = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
        assert znodes.decode_broker(4, data, 77) == Broker(4, 77, (Endpoint("PLAINTEXT", "h", 9092),))

    def test_version_2_listeners_are_protocols(self):
        data = (
            b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1",'
            b'"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}'
        )
        assert znodes.decode_broker(4, data, 77) == Broker(
            4, 77, (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "h", 9093, "SSL"))
        )

    def test_version_3_has_a_rack(self):
        data = b'{"version":3,"endpoints":["PLAINTEXT://h:1"],"rack":"dc1","jmx_port":-1,"timestamp":"1"}'
        found = znodes.decode_broker(1, data, 2)
        assert isinstance(found, Broker)
        assert found.rack == "dc1"

    def test_version_4_names_its_listeners(self):
        data = (
            b'{"version":4,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1","rack":null,'
            b'"endpoints":["CLIENT://[::1]:9092","replication://h-2.example:9093","X://:1"],'
            b'"listener_security_protocol_map":{"CLIENT":"SSL","REPLICATION":"PLAINTEXT","X":"SASL_SSL"}}'
        )
        assert znodes.decode_broker(1, data, 2) == Broker(
            1,
            2,
            (
                Endpoint("CLIENT", "::1", 9092, "SSL"),
                Endpoint("REPLICATION", "h-2.example", 9093, "PLAINTEXT"),
                Endpoint("X", "", 1, "SASL_SSL"),
            ),
        )

    def test_version_5_has_features(self):
        data = (
            b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"1",'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
            b'"features":{"b":{"min_version":1,"first_active_version":2,"max_version":3},'
            b'"a":{"min_version":0,"max_version":1}}}'
        )
        found = znodes.decode_broker(1, data, 2)
        assert isinstance(found, Broker)
        assert found.features == (("a", 0, 1), ("b", 1, 3))

    @pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
    def test_round_trip(self, version):
        broker = Broker(
            3,
            99,
            (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "::1", 9093, "SSL")),
            "r" if version >= 3 else None,
            (("f", 1, 2),) if version >= 5 else (),
        )
        data = znodes.encode_broker(znodes.BrokerInfo(broker, 17, version))
        expected = broker if version >= 2 else msgspec.structs.replace(broker, endpoints=broker.endpoints[:1])
        assert znodes.decode_broker(3, data, 99) == expected
        assert json.loads(data)["version"] == version

    def test_keys_of_version_5(self):
        broker = Broker(3, 0, (Endpoint("SSL", "h", 9093, "SSL"),))
        assert json.loads(znodes.encode_broker(znodes.BrokerInfo(broker, 17))) == {
            "version": 5,
            "host": None,
            "port": -1,
            "jmx_port": -1,
            "timestamp": "17",
            "endpoints": ["SSL://h:9093"],
            "listener_security_protocol_map": {"SSL": "SSL"},
            "features": {},
        }

    @pytest.mark.parametrize(
        "data, says",
        [
            (b"", "registration"),
            (b"{", "truncated"),
            (b"[]", "array"),
            (b"{}", "version"),
            (b'{"version":0}', "version 0"),
            (b'{"version":1,"host":"h"}', "port"),
            (b'{"version":2}', "endpoints"),
            (b'{"version":2,"endpoints":["h:1"]}', "LISTENER://host:port"),
            (b'{"version":2,"endpoints":["PLAINTEXT://h:99999"]}', "port"),
            (b'{"version":2,"endpoints":["INTERNAL://h:1"]}', "INTERNAL"),
            (b'{"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"ROT13"}}', "ROT13"),
            (b'{"version":5,"endpoints":["SSL://h:1"],"features":{"f":{"min_version":1}}}', "max_version"),
            (b'{"version":3,"endpoints":["SSL://h:1"],"rack":7}', "rack"),
        ],
    )
    def test_damage(self, data, says):
        found = znodes.decode_broker(1, data, 2)
        assert isinstance(found, BadZNode)
        assert found.path == "/brokers/ids/1"
        assert says in found.expected

    def test_names_below_ids(self):
        assert znodes.decode_broker_id("12") == 12
        for name in ("x", "-1", "01", "2147483648", "1" * 50, "٣"):
            assert isinstance(znodes.decode_broker_id(name), BadZNode)


class TestTopic:
    ID = bytes(range(0xF0, 0x100))

    def test_version_1(self):
        data = b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}'
        found = znodes.decode_topic("t", data, 5)
        assert found == TopicAssignment(
            "t", NO_TOPIC_ID, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))}, 5
        )
        assert list(found.partitions) == [0, 1]

    def test_version_2_in_a_reassignment(self):
        data = (
            b'{"version":2,"partitions":{"0":[3,1,2]},'
            b'"adding_replicas":{"0":[3],"7":[1]},"removing_replicas":{"0":[1]}}'
        )
        found = znodes.decode_topic("t", data)
        assert isinstance(found, TopicAssignment)
        assert found.partitions == {0: ReplicaAssignment((3, 1, 2), (3,), (1,))}

    def test_version_3_has_an_id(self):
        data = (
            b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"8PHy8_T19vf4-fr7_P3-_w",'
            b'"adding_replicas":{},"version":3}'
        )
        found = znodes.decode_topic("t", data)
        assert found == TopicAssignment("t", self.ID, {0: ReplicaAssignment((1,))})
        assert znodes.encode_topic(found) == data

    def test_the_id_alone(self):
        assert znodes.decode_topic_id(znodes.encode_topic(TopicAssignment("t", self.ID, {}))) == self.ID
        for data in (
            b'{"partitions":{"0":[1]}}',
            b"",
            b"{",
            b'{"topic_id":"x"}',
            b'{"topic_id":7}',
            b'{"topic_id":"\xdd"}',
            None,
        ):
            assert znodes.decode_topic_id(data) == NO_TOPIC_ID

    def test_no_id_no_key(self):
        assert "topic_id" not in json.loads(znodes.encode_topic(TopicAssignment("t", NO_TOPIC_ID, {})))

    def test_adding_and_removing_are_written_where_there_are_any(self):
        topic = TopicAssignment("t", self.ID, {0: ReplicaAssignment((1, 2), (2,), (1,)), 1: ReplicaAssignment((1,))})
        written = json.loads(znodes.encode_topic(topic))
        assert written["adding_replicas"] == {"0": [2]}
        assert written["removing_replicas"] == {"0": [1]}
        assert written["partitions"] == {"0": [1, 2], "1": [1]}

    def test_equal_assignments_are_shared(self):
        memo = {}
        first = znodes.decode_topic("a", b'{"partitions":{"0":[1,2],"1":[1,2]}}', 0, memo)
        second = znodes.decode_topic("b", b'{"partitions":{"0":[1,2]}}', 0, memo)
        assert first.partitions[0] is first.partitions[1] is second.partitions[0]

    @pytest.mark.parametrize(
        "data, says",
        [
            (None, "partitions"),
            (b"", "partitions"),
            (b"null", "null"),
            (b"{}", "missing required field `partitions`"),
            (b'{"partitions":[]}', "array"),
            (b'{"partitions":{"-1":[1]}}', ">= 0"),
            (b'{"partitions":{"x":[1]}}', "key"),
            (b'{"partitions":{"%d":[1]}}' % MAX_PARTITIONS_PER_TOPIC, "1048575"),
            (b'{"partitions":{"0":[]}}', "partition 0 has no replicas"),
            (b'{"partitions":{"0":[1],"1":[2,2]}}', "partition 1 names a broker twice: [2, 2]"),
            (b'{"partitions":{"0":[-1]}}', ">= 0"),
            (b'{"partitions":{"0":[2147483648]}}', "2147483647"),
            (b'{"partitions":{"0":["1"]}}', "str"),
            (b'{"partitions":{"0":1}}', "int"),
            (b'{"partitions":{"0":[1]},"adding_replicas":{"0":[1,1]}}', "adding_replicas of partition 0"),
            (b'{"partitions":{"0":[1]},"topic_id":"short"}', "topic_id"),
            (b'{"partitions":{"0":[1]},"topic_id":"8PHy8/T19vf4+fr7/P3+/w"}', "topic_id"),
            (b'{"partitions":{"0":[1]},"topic_id":5}', "topic_id"),
            (b'{"partitions":{"0":[1]}', "truncated"),
            (b"\xfe\xff", "malformed"),
        ],
    )
    def test_damage(self, data, says):
        found = znodes.decode_topic("t", data)
        assert isinstance(found, BadZNode)
        assert found.path == "/brokers/topics/t"
        assert says in found.expected

    def test_topic_ids_in_text(self):
        assert topic_id_to_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
        assert topic_id_from_text("AAAAAAAAAAAAAAAAAAAAAA==") == bytes(16)
        assert topic_id_from_text(None) == NO_TOPIC_ID


class TestPartitionState:
    def test_without_recovery_state(self):
        assert decode_state(state_json(), 9) == LeaderAndIsr(1, 2, (1, 2), 3, 9, 0)

    def test_with_recovery_state(self):
        assert decode_state(state_json(leader_recovery_state=1, isr=[1]), 9) == LeaderAndIsr(1, 2, (1,), 3, 9, 1)

    def test_no_leader_and_an_empty_isr(self):
        assert decode_state(state_json(leader=-1, isr=[])) == LeaderAndIsr(-1, 2, (), 3, 0)

    def test_bytes_written(self):
        recovered, recovering = znodes.encode_partition_states(
            [LeaderAndIsr(1, 2, (1, 2), 3, 77), LeaderAndIsr(-1, 5, (), 4, 77, 1)]
        )
        assert recovered == b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2]}'
        assert recovering == (
            b'{"controller_epoch":4,"leader":-1,"version":1,"leader_epoch":5,"isr":[],"leader_recovery_state":1}'
        )

    def test_column_keeps_damage_in_its_place(self):
        datas = [state_json(), b"junk", state_json(), None]
        states = znodes.decode_partition_states(["t", "t", "u", "u"], [0, 1, 0, 1], datas, [4, 5, 6, 7]).states()
        assert states[0] == LeaderAndIsr(1, 2, (1, 2), 3, 4)
        assert states[2] == LeaderAndIsr(1, 2, (1, 2), 3, 6)
        assert states[0].isr is states[2].isr
        assert [s.path for s in (states[1], states[3])] == [
            "/brokers/topics/t/partitions/1/state",
            "/brokers/topics/u/partitions/1/state",
        ]
        assert states[3].found == "no data"

    @pytest.mark.parametrize(
        "changes, says",
        [
            ({"leader": None}, "missing required field `leader`"),
            ({"leader_epoch": None}, "leader_epoch"),
            ({"controller_epoch": None}, "controller_epoch"),
            ({"isr": None}, "isr"),
            ({"leader": "1"}, "$.leader"),
            ({"leader": -2}, ">= -1"),
            ({"leader": 1.5}, "$.leader"),
            ({"leader_epoch": -1}, "$.leader_epoch"),
            ({"leader_epoch": 2**31}, "$.leader_epoch"),
            ({"isr": [1, 1]}, "isr names a broker twice: [1, 1]"),
            ({"isr": [-1]}, "$.isr"),
            ({"isr": 1}, "$.isr"),
            ({"isr": [None]}, "$.isr"),
            ({"leader_recovery_state": 2}, "leader_recovery_state is 2"),
        ],
    )
    def test_damage(self, changes, says):
        found = decode_state(state_json(**changes))
        assert isinstance(found, BadZNode)
        assert found.path == STATE_PATH
        assert says in found.expected

    @pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff", b"nul", b"{" * 5000, b'"\\ud800"', b"1e999"])
    def test_hostile_bytes(self, data):
        assert isinstance(decode_state(data), BadZNode)


class TestRequestsAndNotifications:
    def test_partitions_once_each_in_order(self):
        data = (
            b'{"version":1,"partitions":[{"topic":"b","partition":1},'
            b'{"topic":"a","partition":0},{"topic":"b","partition":1}]}'
        )
        found = znodes.decode_partitions("/isr_change_notification/isr_change_0000000000", data)
        assert found == [TopicPartition("b", 1), TopicPartition("a", 0)]
        assert json.loads(znodes.encode_partitions(found)) == {
            "version": 1,
            "partitions": [{"topic": "b", "partition": 1}, {"topic": "a", "partition": 0}],
        }

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{}",
            b'{"partitions":[{"topic":"t"}]}',
            b'{"partitions":[{"topic":"","partition":1}]}',
            b'{"partitions":[{"topic":"t","partition":-1}]}',
        ],
    )
    def test_damaged_partitions(self, data):
        found = znodes.decode_partitions("/p", data)
        assert isinstance(found, BadZNode)
        assert found.path == "/p"

    def test_reassignment_passes_on_what_only_the_reassignment_can_refuse(self):
        data = (
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]},'
            b'{"topic":"t","partition":1,"replicas":[]},{"topic":"t","partition":0,"replicas":[2,2]}]}'
        )
        found = znodes.decode_reassignment(data)
        assert found == {TopicPartition("t", 0): (2, 2), TopicPartition("t", 1): ()}
        assert znodes.decode_reassignment(znodes.encode_reassignment(found)) == found

    @pytest.mark.parametrize("data", [None, b"{", b'{"partitions":[{"topic":"t","partition":0}]}'])
    def test_damaged_reassignment(self, data):
        assert isinstance(znodes.decode_reassignment(data), BadZNode)

    def test_log_dir_event(self):
        assert json.loads(znodes.encode_log_dir_event(4)) == {"version": 1, "broker": 4, "event": 1}
        assert znodes.decode_log_dir_event("/p", znodes.encode_log_dir_event(4)) == 4
        assert isinstance(znodes.decode_log_dir_event("/p", b'{"broker":"4"}'), BadZNode)


def test_a_bad_znode_says_it_in_one_line():
    found = decode_state(b'{"leader":\n"x\x00"}')
    assert str(found).startswith(
        f'{STATE_PATH} is unreadable: found {{"leader":\\n"x\\x00"}}, expected a partition state'
    )
    assert "\n" not in str(found)


def test_excerpts_are_short():
    assert excerpt(None) == excerpt(b"") == "no data"
    assert excerpt(b"a" * 1000) == "a" * 160 + "… (840 bytes more)"


def test_a_reason_is_quoted_in_short() -> None:
    found = znodes.decode_topic("a", b'{"partitions":{"0":[1]},"topic_id":"%s"}' % (b"x" * 900_000))
    assert isinstance(found, BadZNode)
    assert "topic_id 'xxx" in found.expected
    assert len(str(found)) < 1000


def test_only_ids_of_brokers_are_unreadable_registrations() -> None:
    """Any client of ZooKeeper may create a child with thousands of digits in its name."""
    names = ("7", "07", "x", "9" * 5000, "2147483648")
    assert znodes.unreadable_brokers([BadZNode(f"/brokers/ids/{name}", "", "") for name in names]) == {7}
