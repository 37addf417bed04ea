"""A rehearsal tells what a run would send and write, each once, and changes nothing."""

from __future__ import annotations

from typing import Any

from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.moves.history import History
from aiocontroller.moves.mover import Mover
from aiocontroller.moves.rehearsed import RehearsedCluster
from tests.unit.moves.memory import BEFORE, BOUNDS, PLAN, Memory, VirtualClock


@virtual_time
async def test_each_request_and_each_setting_is_told_once() -> None:
    memory, requests = Memory(), list[dict[str, Any]]()
    memory.configs = {("topics", "t"): {FOLLOWER_REPLICAS: "9:9"}}
    cluster = RehearsedCluster(memory, requests.append)
    mover = Mover(
        cluster,
        memory,
        VirtualClock(),
        PLAN,
        "digest",
        History(),
        lambda past: BOUNDS._replace(hold_s=0),
        look_every_s=0,
    )
    assert (await mover.run()).result == "moved"
    assert [len(each["partitions"]) for each in requests if "send" in each] == [2, 2, 1]
    written = [(each["write"], each["settings"]) for each in requests if "write" in each]
    leaders = ",".join(f"{tp.partition}:{broker}" for tp in PLAN for broker in (1, 2))
    followers = ",".join(["9:9", *(f"{tp.partition}:3" for tp in PLAN)])
    rates = [(f"/config/brokers/{broker}", dict.fromkeys(RATES, "200")) for broker in (1, 2, 3)]
    none = [(f"/config/brokers/{broker}", dict.fromkeys(RATES)) for broker in (1, 2, 3)]
    assert written == [
        ("/config/topics/t", {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}),
        *rates,
        ("/config/topics/t", {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: "9:9"}),
        *none,
    ]
    assert memory.replicas() == BEFORE
    assert memory.throttles() == {("topics", "t"): {FOLLOWER_REPLICAS: "9:9"}}
