"""``/feature`` at failover: what it says by the brokers' protocol, and whose levels it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.features import set_up_feature_versioning
from aiocontroller.controller.obeyed_settings import PROTOCOL, ReportedSettings
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import UpdateFeatures
from aiocontroller.zookeeper.cluster_znodes import FEATURES_DISABLED, FEATURES_ENABLED, FeatureZNode
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

LEVELS = {"metadata.version": (1, 4)}


class Znode:
    """``/feature``; before each of the first ``losses`` writes, another process writes it."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: FeatureZNode | BadZNode | None = None
        self.version = -1
        self.losses = 0
        self.written: list[FeatureZNode] = []
        self._fence = it.znodes.fence
        monkeypatch.setattr(it.znodes, "get_feature", self._get)
        monkeypatch.setattr(it.znodes, "set_feature", self._set, raising=False)

    async def _get(self) -> tuple[Any, int]:
        return self.found, self.version

    async def _set(self, wanted: FeatureZNode, version: int, *, fence: int) -> bool:
        self._fence(fence)
        self.written.append(wanted)
        if self.losses:
            self.losses -= 1
            self.version += 1
        if version != self.version:
            return False
        self.found, self.version = wanted, version + 1
        return True


@pytest.fixture
def it() -> PureCluster:
    return cluster(1)


@pytest.fixture
def znode(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> Znode:
    return Znode(it, monkeypatch)


@pytest.fixture
def set_up(it: PureCluster, znode: Znode) -> Callable[[str], FeatureZNode | BadZNode | None]:
    def at(protocol: str) -> FeatureZNode | BadZNode | None:
        it.shell.policy = msgspec.structs.replace(Config(), inter_broker_protocol_version=protocol)
        run(set_up_feature_versioning(it.shell))
        return znode.found

    return at


SetUp = Callable[[str], FeatureZNode | BadZNode | None]


@pytest.mark.parametrize("protocol, status", [("2.6", FEATURES_DISABLED), ("2.7", FEATURES_ENABLED)])
def test_status_follows_the_protocol(set_up: SetUp, protocol: str, status: int) -> None:
    found = set_up(protocol)
    assert isinstance(found, FeatureZNode)
    assert (found.status, found.features) == (status, {})


def test_levels_are_kept_while_versioning_stays_on_only(znode: Znode, set_up: SetUp) -> None:
    znode.found, znode.version = FeatureZNode(1, FEATURES_ENABLED, LEVELS), 3
    kept = set_up("3.9")
    assert isinstance(kept, FeatureZNode)
    assert kept.features == LEVELS
    dropped = set_up("2.6")
    assert isinstance(dropped, FeatureZNode)
    assert (dropped.status, dropped.features) == (FEATURES_DISABLED, {})
    znode.found = FeatureZNode(1, FEATURES_DISABLED, LEVELS)  # a broker before 2.7 does not read them
    switched_on = set_up("3.9")
    assert isinstance(switched_on, FeatureZNode)
    assert (switched_on.status, switched_on.features) == (FEATURES_ENABLED, {})


def test_what_is_right_already_is_not_written(znode: Znode, set_up: SetUp) -> None:
    set_up("3.9")
    assert len(znode.written) == 1
    set_up("3.9")
    assert len(znode.written) == 1


def test_a_write_that_another_beat_is_tried_again_but_not_for_ever(znode: Znode, set_up: SetUp) -> None:
    znode.losses = 2
    assert set_up("3.9") == znode.written[-1]
    assert len(znode.written) == 3
    znode.losses = 3
    before = znode.found
    assert set_up("2.6") == before
    assert len(znode.written) == 6


def test_a_damaged_znode_is_reported_and_stays(it: PureCluster, znode: Znode, set_up: SetUp) -> None:
    znode.found = BadZNode("/feature", "{", "JSON")
    assert set_up("3.9") == znode.found
    assert list(it.shell.bad_paths()) == ["/feature"]
    assert znode.written == []


@pytest.mark.parametrize("releases, created", [(["2.6-IV0"], False), (["2.6-IV0", "2.7-IV0"], True), ([], True)])
def test_brokers_that_all_do_not_know_the_znode_get_none(
    it: PureCluster, znode: Znode, set_up: SetUp, releases: list[str], created: bool
) -> None:
    reported = {n: ReportedSettings({}, {PROTOCOL: release}) for n, release in enumerate(releases, 1)}
    it.shell.settings.heard(reported, no_brokers=not reported)
    assert (set_up("2.6") is not None) == created
    znode.found = FeatureZNode(1, FEATURES_ENABLED, LEVELS)  # but one that is there is kept right
    assert getattr(set_up("2.6"), "status", None) == FEATURES_DISABLED


def test_every_update_is_refused_by_its_name(it: PureCluster) -> None:
    answer = it.ask(UpdateFeatures, updates={"metadata.version": 20, "kraft.version": 1})
    assert {name: code for name, (code, _) in answer.items()} == {
        "metadata.version": KafkaErrorCode.INVALID_REQUEST,
        "kraft.version": KafkaErrorCode.INVALID_REQUEST,
    }
