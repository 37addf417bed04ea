"""The settings of KRaft nodes."""

from __future__ import annotations

from pathlib import Path

from aiocontroller.lab.cluster.kraft import FIRST_CONTROLLER, KRaftCluster


def test_brokers_and_controllers_know_the_same_voters_and_no_zookeeper(tmp_path: Path) -> None:
    cluster = KRaftCluster(3, tmp_path, overrides={"replica.lag.time.max.ms": "30000"})
    nodes = [*cluster.brokers.values(), *cluster.controllers.values()]
    all_properties = [node.properties() for node in nodes]
    assert [p["node.id"] for p in all_properties] == ["1", "2", "3", *(str(FIRST_CONTROLLER + n) for n in range(3))]
    assert [p["process.roles"] for p in all_properties] == ["broker"] * 3 + ["controller"] * 3
    assert len({p["controller.quorum.voters"] for p in all_properties}) == 1
    for properties, controller in zip(all_properties[3:], cluster.controllers.values(), strict=True):
        assert properties["listeners"] == f"CONTROLLER://127.0.0.1:{controller.port}"
        assert f"{controller.id}@127.0.0.1:{controller.port}" in properties["controller.quorum.voters"].split(",")
    assert not [key for p in all_properties for key in p if key.startswith("zookeeper") or key == "broker.id"]
    assert {p["replica.lag.time.max.ms"] for p in all_properties} == {"30000"}
