"""The readers over kio's schemas: what kio writes comes back, and damage is a FrameError that names the message."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, UnsupportedApiError
from aiocontroller.wire.errors import FrameError

APIS = [
    ApiKey.METADATA,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_TRANSACTIONS,
]
MESSAGES = [
    (api, version, kind)
    for api in APIS
    for version in range(SUPPORTED[api].max + 1)
    for kind in ("request", "response")
]

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=4) | st.just("x" * 130),
    "bytes": st.binary(max_size=4),
    "uuid": st.uuids(),
    "error_code": st.sampled_from([-1, 0, 3, 41, 107]),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "timedelta_i64": st.integers(0, 2**41),
    "datetime_i64": st.integers(0, 2**41),
}


def plain(entity_class: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Plain values for a message of this class."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in cold._fields(entity_class):
        value = plain(field.nested) if field.nested else _VALUES[field.kafka_type]
        if field.is_array:
            value = st.lists(value, max_size=2).map(tuple)
        fields[field.name] = st.none() | value if field.nullable and field.kafka_type != "uuid" else value
    return st.fixed_dictionaries(fields)


def codec(api: ApiKey, version: int, kind: str) -> tuple[Any, Any, Any, Any]:
    """(kio class, build, encode, decode)."""
    if kind == "request":
        return load_request_schema(api, version), cold.request, cold.encode_request, cold.decode_request
    return load_response_schema(api, version), cold.response, cold.encode_response, cold.decode_response


@pytest.mark.parametrize("api, version, kind", MESSAGES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_what_kio_writes_comes_back_and_damage_is_a_frame_error(
    api: ApiKey, version: int, kind: str, data: st.DataObject
) -> None:
    entity_class, build, encode, decode = codec(api, version, kind)
    entity = build(api, version, **data.draw(plain(entity_class)))
    body = encode(api, version, entity)
    assert decode(api, version, body) == entity
    assert decode(api, version, memoryview(body)) == entity
    assert entity_reader(entity_class)(body, 0) == (entity, len(body))

    name = rf"{api.name}\({api:d}\) version {version} {kind}"
    for cut in range(len(body)):
        with pytest.raises(FrameError, match=name):
            decode(api, version, body[:cut])
    if kind == "request":
        assert decode(api, version, body + b"\0") == entity, "librdkafka sends more, and brokers overlook it"
    else:
        with pytest.raises(FrameError, match=rf"{name}, byte {len(body)}: end of message: found 1 bytes more"):
            decode(api, version, body + b"\0")
    if body:
        at, flip = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(1, 255))
        try:  # any other exception is a failure
            decode(api, version, body[:at] + bytes((body[at] ^ flip,)) + body[at + 1 :])
        except FrameError:
            pass


@settings(deadline=None)
@given(st.sampled_from(MESSAGES), st.binary(max_size=40))
def test_noise_is_a_message_or_a_frame_error(message: tuple[ApiKey, int, str], noise: bytes) -> None:
    api, version, kind = message
    try:
        codec(api, version, kind)[3](api, version, noise)
    except FrameError:
        pass


def test_an_array_that_promises_too_much_costs_nothing() -> None:
    """kio's own reader reserves 256 GiB for this and takes the process with it."""
    with pytest.raises(FrameError, match=r"topics: found 34359738366 elements in 0 bytes, expected 0 to 0"):
        cold.decode_request(ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x7f")


# -- building from plain values ----------------------------------------------------------------------------------------


def test_plain_values_become_what_the_schema_wants() -> None:
    made = cold.response(
        ApiKey.METADATA,
        12,
        throttle_time=1500,
        topics=[{"error_code": 3, "name": "t", "topic_id": bytes(15) + b"\1", "is_internal": 1}],
    )
    assert made.throttle_time == timedelta(milliseconds=1500)
    (topic,) = made.topics
    assert (topic.error_code, topic.topic_id, topic.is_internal, topic.partitions) == (3, UUID(int=1), True, ())
    assert (made.controller_id, made.cluster_id, made.brokers) == (-1, None, ())


def test_a_time_that_a_broker_does_not_know_is_none_and_a_late_one_a_frame_error() -> None:
    answer = cold.response(ApiKey.PRODUCE, 3, responses=[{"name": "t", "partition_responses": [{"index": 0}]}])
    body = cold.encode_response(ApiKey.PRODUCE, 3, answer)
    assert cold.decode_response(ApiKey.PRODUCE, 3, body).responses[0].partition_responses[0].log_append_time is None
    token = cold.encode_response(ApiKey.RENEW_DELEGATION_TOKEN, 0, cold.response(ApiKey.RENEW_DELEGATION_TOKEN, 0))
    none = token[:2] + b"\xff" * 8 + token[10:]
    assert cold.decode_response(ApiKey.RENEW_DELEGATION_TOKEN, 0, none).expiry_timestamp.timestamp() == -0.001
    late = token[:2] + (1 << 62).to_bytes(8, "big") + token[10:]
    with pytest.raises(FrameError, match="expiry_timestamp: found 4611686018427387904, expected milliseconds"):
        cold.decode_response(ApiKey.RENEW_DELEGATION_TOKEN, 0, late)


@pytest.mark.parametrize("period_ms", [(1 << 63) - 1, -(1 << 63)])
def test_a_time_too_long_for_python_is_the_longest_there_is(period_ms: int) -> None:
    body = b"\x00\x00\x00\x00" + period_ms.to_bytes(8, "big", signed=True)
    read = cold.decode_request(ApiKey.RENEW_DELEGATION_TOKEN, 0, body)
    assert abs(read.renew_period) == timedelta(days=999_999_999)


def test_the_zero_id_is_none() -> None:
    made = cold.response(ApiKey.METADATA, 12, topics=[{"name": "t", "topic_id": bytes(16)}])
    assert made.topics[0].topic_id is None


def test_what_a_version_lacks_is_left_out() -> None:
    made = cold.response(ApiKey.METADATA, 0, controller_id=1, topics=[{"name": "t", "topic_id": bytes(16)}])
    assert not hasattr(made, "controller_id")
    assert cold.encode_response(ApiKey.METADATA, 0, made)


def test_what_no_version_has_is_a_slip() -> None:
    with pytest.raises(TypeError, match="MetadataResponseTopic: found unknown fields nam"):
        cold.response(ApiKey.METADATA, 12, topics=[{"nam": "t"}])


def test_an_entity_of_another_version_is_refused() -> None:
    with pytest.raises(TypeError, match=r"METADATA\(3\) version 11 request: found .*v12.*expected .*v11"):
        cold.encode_request(ApiKey.METADATA, 11, cold.request(ApiKey.METADATA, 12))


@pytest.mark.parametrize("api_key, version", [(3, 13), (3, -1), (999, 0)])
def test_an_unknown_api_or_version_names_both(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedApiError, match=rf"{api_key}.* version {version}"):
        cold.decode_request(api_key, version, b"")


def test_an_unknown_error_code_is_still_an_error() -> None:
    assert cold.decode_response(ApiKey.UPDATE_METADATA, 5, b"\x30\x00").error_code == -1


def test_tagged_fields_known_and_unknown() -> None:
    offered = cold.response(ApiKey.API_VERSIONS, 3, finalized_features_epoch=5, zk_migration_ready=True)
    body = cold.encode_response(ApiKey.API_VERSIONS, 3, offered)
    assert cold.decode_response(ApiKey.API_VERSIONS, 3, body) == offered
    more = body.replace(b"\x02\x01\x08", b"\x03\x01\x08", 1) + b"\x63\x02hi"
    assert cold.decode_response(ApiKey.API_VERSIONS, 3, more) == offered
    wrong = body.replace(b"\x02\x01\x08", b"\x02\x01\x07", 1)
    with pytest.raises(FrameError, match="tagged field finalized_features_epoch: found its end at byte"):
        cold.decode_response(ApiKey.API_VERSIONS, 3, wrong)


def test_every_supported_version_has_a_codec() -> None:
    for api, known in SUPPORTED.items():
        for version in range(known.min, known.max + 1):
            assert cold._entity_class(api, version, "request") is load_request_schema(api, version)
            assert cold._entity_class(api, version, "response") is load_response_schema(api, version)


def test_preloaded_messages_cost_no_import_later() -> None:
    cold.preload([ApiKey.CONTROLLED_SHUTDOWN])
    before = cold._entity_class.cache_info().misses
    body = cold.encode_request(7, 3, cold.request(7, 3, broker_id=1))
    assert cold.decode_request(7, 3, body).broker_id == 1
    assert cold._entity_class.cache_info().misses == before


@pytest.mark.parametrize("version", [0, 6])
def test_request_with_too_many_elements_is_refused_before_they_are_read(version: int) -> None:
    def body(n: int) -> bytes:
        fields: dict[str, Any] = {"topics": [{}] * n, "topic_names": [""] * n}
        return cold.encode_request(ApiKey.DELETE_TOPICS, version, cold.request(ApiKey.DELETE_TOPICS, version, **fields))

    assert cold.decode_request(ApiKey.DELETE_TOPICS, version, body(9), 9)
    with pytest.raises(FrameError, match="1 elements too many"):
        cold.decode_request(ApiKey.DELETE_TOPICS, version, body(10), 9)


LOADS_MESSAGES = """
import sys
from aiocontroller.wire import cold
cold.preload([7])
sys.exit("hypothesis" in sys.modules)
"""


def test_loading_messages_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    """kio loads hypothesis where it finds it, which keeps its data in the folder of the process."""
    assert importlib.util.find_spec("hypothesis") is not None
    subprocess.run([sys.executable, "-c", LOADS_MESSAGES], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []
