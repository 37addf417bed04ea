"""The ids of earlier aiocontrollers in ZooKeeper."""

from __future__ import annotations

import pytest

from tests.unit.controller.pure_cluster import cluster


def test_a_controllers_id_is_kept_in_zookeeper_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1)
    assert it.znodes.known_controllers == {it.shell.id}

    async def refuse(ids: frozenset[int], version: int, *, fence: int) -> bool:
        raise AssertionError("it is there already")

    monkeypatch.setattr(it.znodes, "set_known_controllers", refuse)
    it.failover()
