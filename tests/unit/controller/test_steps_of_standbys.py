"""How long a warm standby keeps the loop busy at a time, by processor time: what it serves waits for no longer.

Everything runs on one loop here; what the modelled ZooKeeper and the brokers take is subtracted.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.zookeeper_model import Connection
from aiocontroller.lab.zookeeper.zookeeper_tree import OPEN, Tree, ZNode
from aiocontroller.zookeeper import paths, znodes
from tests.unit.controller.test_mirror import FIRST, copy_of, warm
from tests.unit.controller.virtual_cluster import stage

TOPICS, EACH = 60, 200
LONGEST_SHARE = 1 / 6
"""Of a load's processor time, some 0.12 s here in steps of up to 12 ms.  A share, since other programs that use the
processor's caches make all steps longer."""


class Steps:
    """The steps of one task, in seconds, without what ``Connection.frame`` takes in them."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.took: list[float] = []
        self._others_s = 0.0

    def watch(self, patched: pytest.MonkeyPatch) -> None:
        run, frame = asyncio.Handle._run, Connection.frame

        def timed_run(handle: Any) -> None:
            task = getattr(handle._callback, "__self__", None)
            before_s, others_s = time.thread_time(), self._others_s
            run(handle)
            if isinstance(task, asyncio.Task) and task.get_name() == self.task:
                self.took.append(time.thread_time() - before_s - (self._others_s - others_s))

        def timed_frame(connection: Connection, payload: bytes, now_ms: int) -> None:
            before_s = time.thread_time()
            frame(connection, payload, now_ms)
            self._others_s += time.thread_time() - before_s

        patched.setattr(asyncio.Handle, "_run", timed_run)
        patched.setattr(Connection, "frame", timed_frame)


def preload(tree: Tree) -> None:
    """Varied assignments, ISRs and epochs."""

    def put(path: str, data: bytes | None) -> None:
        parent, _, name = path.rpartition("/")
        tree.nodes[path] = ZNode(data, OPEN, 1, 0, 0)
        tree.nodes[parent].children[name] = None

    for number in range(TOPICS):
        name = f"topic-{number}"
        replicas = [tuple((number + n * step) % 7 + 1 for step in (1, 2, 3)) for n in range(EACH)]
        replicas = [each if len(set(each)) == 3 else (1, 2, 3) for each in replicas]
        assignment = {n: ReplicaAssignment(each) for n, each in enumerate(replicas)}
        put(paths.topic(name), znodes.encode_topic(TopicAssignment(name, number.to_bytes(16, "big"), assignment)))
        put(f"{paths.topic(name)}/partitions", None)
        states = [LeaderAndIsr(each[0], n * number % 500, each[::-1], 1, -1) for n, each in enumerate(replicas)]
        for n, data in enumerate(znodes.encode_partition_states(states)):
            put(f"{paths.topic(name)}/partitions/{n}", None)
            put(paths.topic_partition_state(name, n), data)


@virtual_time
async def test_steps_of_a_load_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.make_broker_controller(it.client)
        preload(it.zookeeper.model.tree)
        standby = await it.add_controller(aiocontroller_id=FIRST, aiocontroller_standby="warm")
        await warm(it, standby)
        longest = []
        for _ in range(3):
            steps = Steps("copy of the cluster")
            with monkeypatch.context() as patched:
                steps.watch(patched)
                it.network.cut_host(it.hosts[standby].name)
                await it.sleep(1)
                await warm(it, standby)
            assert copy_of(standby).status()["partitions"] == TOPICS * EACH
            longest.append(max(steps.took) / sum(steps.took))
        assert min(longest) < LONGEST_SHARE, longest
