"""What is kept of clients that have a quota."""

from __future__ import annotations

from typing import Any

from aiocontroller.config import Config
from aiocontroller.controller.mutation_quotas import MAX_NAME_CHARACTERS, RATE, MutationQuotas
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics


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
