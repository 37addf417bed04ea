"""Quotas of controller mutations: when they are read from ZooKeeper, and what is kept of clients that have one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aiocontroller.config import Config
from aiocontroller.controller.mutation_quotas import MAX_NAME_CHARACTERS, RATE, MutationQuotas
from aiocontroller.core.mutation_quotas import ThrottlingQuotaExceededError
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.controller.pure_cluster import StillClock, run
from tests.unit.zookeeper.test_client import connected


class _Clock:
    def monotonic(self) -> float:
        return 1.0


@virtual_time
async def test_long_names_of_many_clients_are_forgotten_before_they_fill_memory() -> None:
    """A client may give itself any client id, of 32 KiB, and another one with each request."""
    metrics = Metrics()
    clock: Any = _Clock()
    zk: Any = None
    quotas = MutationQuotas(zk, clock, Config, metrics)
    quotas._set("clients/<default>", {RATE: "5"})
    quotas._known = True
    for number in range(100):
        quota = await quotas.quota_for("User:alice", f"{number:032000}", strict=True)
        quota.record(1)
    most = MAX_NAME_CHARACTERS // 32000 + 1
    kept = [key for key in quotas._buckets if key[1]]
    assert most - 2 <= len(kept) <= most
    assert kept[-1] == ("", f"{99:032000}"), "those that asked last stay"
    assert len(metrics.render()) < 2 * MAX_NAME_CHARACTERS


async def admits(quotas: MutationQuotas, client: str, mutations: int) -> bool:
    """Whether a strict quota admits one more mutation after so many at once."""
    quota = await quotas.quota_for("User:alice", client, strict=True)
    quota.record(mutations)
    try:
        (await quotas.quota_for("User:alice", client, strict=True)).record(1)
    except ThrottlingQuotaExceededError:
        return False
    return True


@virtual_time
async def test_quotas_are_read_at_the_first_request_and_again_when_they_change() -> None:
    async with connected() as client:
        zk = KafkaZkClient(client)
        await zk.create_top_level_paths()
        admin = AdminZkClient(zk)
        await admin.change_entity_configs("clients", "a", {RATE: "1"})
        await admin.change_entity_configs("users", "alice/clients/b", {RATE: "1"})
        reads = 0
        read = client.get_many

        async def counted(*given: Any, **named: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*given, **named)

        client.get_many = counted  # type: ignore[method-assign]
        clock: Any = _Clock()
        quotas = MutationQuotas(zk, clock, Config, Metrics())
        assert [await admits(quotas, name, 20) for name in ("a", "b", "c")] == [False, False, True]
        before = reads
        assert await admits(quotas, "c", 20)
        assert reads == before, "what is known is not read again"
        await admin.change_entity_configs("clients", "c", {RATE: "1"})
        await admin.change_entity_configs("clients", "a", {})
        assert await admits(quotas, "c", 20), "no notification has come yet"
        for entity in ("clients/c", "clients/a", "topics/t"):
            quotas.changed(entity)
        assert [await admits(quotas, name, 20) for name in ("a", "c")] == [True, False]


@pytest.mark.parametrize(
    "entity, shared",
    [("users/<default>", True), ("users/alice", True), ("users/<default>/clients/<default>", False)],
)
def test_a_users_clients_share_the_quota_that_names_no_client(entity: str, shared: bool) -> None:
    clock = StillClock()
    quotas = MutationQuotas(cast(Any, None), cast(Any, clock), Config, Metrics())
    quotas._known = True
    quotas._set(entity, {RATE: "1"})
    window_s = Config().controller_quota_window_num * Config().controller_quota_window_size_seconds
    run(quotas.quota_for("User:alice", "first", strict=True)).record(window_s + 1)
    second = run(quotas.quota_for("User:alice", "second", strict=True))
    if shared:
        with pytest.raises(ThrottlingQuotaExceededError):
            second.record(1)
    else:
        second.record(1)
