"""The cluster's other znodes: configuration, ids, features, migration, tokens, ACLs."""

import json

import pytest

from aiocontroller.zookeeper import cluster_znodes as znodes
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znode_json import BadZNode


def test_config():
    data = znodes.encode_config({"retention.ms": "1"})
    assert json.loads(data) == {"version": 1, "config": {"retention.ms": "1"}}
    assert znodes.decode_config("/config/topics/t", data) == {"retention.ms": "1"}
    assert znodes.decode_config("/config/topics/t", None) == {}
    assert isinstance(znodes.decode_config("/config/topics/t", b'{"config":{"a":1}}'), BadZNode)
    assert isinstance(znodes.decode_config("/config/topics/t", b"{}"), BadZNode)


def test_config_change():
    data = znodes.encode_config_change("topics/t")
    assert json.loads(data) == {"version": 2, "entity_path": "topics/t"}
    assert znodes.decode_config_change("/p", data) == "topics/t"
    assert znodes.decode_config_change("/p", b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"version":3,"entity_path":"topics/t"}',
        b'{"version":2}',
        b'{"version":1,"entity_type":"brokers","entity_name":"1"}',
    ],
)
def test_damaged_config_change(data):
    assert isinstance(znodes.decode_config_change("/p", data), BadZNode)


def test_cluster_id():
    data = znodes.encode_cluster_id("abc")
    assert json.loads(data) == {"version": "1", "id": "abc"}
    assert znodes.decode_cluster_id(data) == "abc"
    assert isinstance(znodes.decode_cluster_id(b"{}"), BadZNode)


def test_producer_id_block():
    block = znodes.ProducerIdBlock(2, 1000, 1999)
    data = znodes.encode_producer_id_block(block)
    assert json.loads(data) == {"version": 1, "broker": 2, "block_start": "1000", "block_end": "1999"}
    assert znodes.decode_producer_id_block(data) == block


@pytest.mark.parametrize("block", [("x", "1"), ("5", "4"), ("-1", "4"), ("0", str(2**63)), ("0", "9" * 40), ("", "1")])
def test_damaged_producer_id_block(block):
    data = json.dumps({"version": 1, "broker": 1, "block_start": block[0], "block_end": block[1]}).encode()
    assert isinstance(znodes.decode_producer_id_block(data), BadZNode)


def test_features():
    first = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert znodes.decode_feature(first) == znodes.FeatureZNode(1, 1, {"f": 3})
    second = znodes.FeatureZNode(2, 0, {"f": 3})
    assert json.loads(znodes.encode_feature(second)) == {
        "version": 2,
        "status": 0,
        "features": {"f": {"max_version_level": 3}},
    }
    assert znodes.decode_feature(znodes.encode_feature(second)) == second
    third = znodes.FeatureZNode(1, 1, {"f": 3})
    assert znodes.decode_feature(znodes.encode_feature(third)) == third


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":3,"status":1,"features":{}}',
        b'{"version":2,"features":{}}',
        b'{"version":2,"status":2,"features":{}}',
        b'{"version":2,"status":1}',
        b'{"version":1,"status":1,"features":{"f":{"max_version_level":1}}}',
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":2,"max_version_level":1}}}',
        b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}',
    ],
)
def test_damaged_features(data):
    assert isinstance(znodes.decode_feature(data), BadZNode)


def test_known_controllers():
    data = znodes.encode_known_controllers(frozenset((7, 3)))
    assert json.loads(data) == {"version": 1, "ids": [3, 7]}
    assert znodes.decode_known_controllers(data) == {3, 7}
    for damaged in (None, b"", b"[1]", b'{"version":1}', b'{"ids":[-1]}', b'{"ids":["1"]}'):
        assert isinstance(znodes.decode_known_controllers(damaged), BadZNode)


def test_migration():
    migration = znodes.MigrationZNode(3000, 4, 5, 6)
    data = znodes.encode_migration(migration)
    assert json.loads(data) == {
        "version": 0,
        "kraft_controller_id": 3000,
        "kraft_controller_epoch": 4,
        "kraft_metadata_offset": 5,
        "kraft_metadata_epoch": 6,
    }
    assert znodes.decode_migration(data) == migration
    assert isinstance(znodes.decode_migration(data.replace(b'"version":0', b'"version":1')), BadZNode)


def test_delegation_token():
    token = znodes.DelegationToken("id", "User:al ice", "User:bob", ("User:c",), 1, 2, 3)
    data = znodes.encode_delegation_token(token)
    assert json.loads(data)["owner"] == "User%3Aal%20ice"
    assert znodes.decode_delegation_token("/p", data) == token
    old = (
        b'{"version":1,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":3,"tokenId":"id"}'
    )
    assert znodes.decode_delegation_token("/p", old) == znodes.DelegationToken("id", "User:a", "User:a", (), 1, 2, 3)
    for bad in (b"", b"{}", old.replace(b'"version":1', b'"version":3'), old.replace(b'"version":1', b'"version":4')):
        assert isinstance(znodes.decode_delegation_token("/p", bad), BadZNode)


def test_acls():
    entries = [znodes.AclEntry("User:alice", "Allow", "Read", "*")]
    data = znodes.encode_acls(entries)
    assert json.loads(data) == {
        "version": 1,
        "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    assert znodes.decode_acls("/p", data) == entries
    assert znodes.decode_acls("/p", None) == []
    assert isinstance(znodes.decode_acls("/p", b'{"version":2,"acls":[]}'), BadZNode)


@pytest.mark.parametrize(
    "root, pattern_type", [(paths.ACL_CHANGES, "LITERAL"), (paths.EXTENDED_ACL_CHANGES, "PREFIXED")]
)
def test_acl_changes(root, pattern_type):
    path = f"{root}/acl_changes_0000000000"
    data = znodes.encode_acl_change("Topic", "a:b", pattern_type)
    assert znodes.decode_acl_change(path, data) == ("Topic", "a:b", pattern_type)
    assert isinstance(znodes.decode_acl_change(path, b"?"), BadZNode)


def test_paths_of_names_that_may_hold_anything():
    assert paths.sanitize("a b/c~") == "a%20b%2Fc%7E"
    assert paths.desanitize(paths.sanitize("é*~ %")) == "é*~ %"
    assert paths.acl("LITERAL", "Topic", "t") == "/kafka-acl/Topic/t"
    assert paths.acl("PREFIXED", "Group", "g") == "/kafka-acl-extended/prefixed/Group/g"
    assert paths.is_sensitive("/config/users/u")
    assert not paths.is_sensitive("/config/topics/t")
    assert len(set(paths.TOP_LEVEL)) == len(paths.TOP_LEVEL) == 14
