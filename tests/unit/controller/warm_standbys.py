"""Standbys that take over: how they do it, and what the cluster looks like to them after that."""

from __future__ import annotations

from typing import Any

from aiocontroller.core.events import ProtocolChange
from aiocontroller.core.invariants import violations
from aiocontroller.core.states import PartitionState
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.virtual_cluster import Stage, is_active


def steps(service: Service) -> list[str]:
    assert isinstance(service.journal, MemoryJournal)
    return [record.event or "" for record in service.journal.of_kind("failover")]


def was_warm(service: Service) -> bool:
    return "read what has changed" in steps(service)


def content(service: Service) -> dict[str, Any]:
    """Everything about each partition that a failover decides on, by name."""
    context = service.shell.context
    table = context.table
    return {
        str(table.topic_partition(row)): (
            table.topic(row).id,
            table.assignment(row),
            table.leadership(row),
            PartitionState(table.state[row]),
            table.replica_states.values[table.replica_states_of[row]],
        )
        for row in table.rows()
    }


def sent(it: Stage, broker: int, api: ApiKey, since: int = 0) -> set[str]:
    """The partitions that the broker received, in all its requests but the first ``since``."""
    requests = [each.request for each in it.brokers[broker].received[since:] if each.api is api]
    return {
        f"{topic.topic_name}-{state.partition_index}"
        for request in requests
        for topic in request.topic_states
        for state in topic.partition_states
    }


def without_epochs(service: Service) -> dict[str, Any]:
    """A reload raises those of partitions without a leader."""
    return {
        name: (topic_id, assignment, leadership and (leadership.leader, leadership.isr), *states)
        for name, (topic_id, assignment, leadership, *states) in content(service).items()
    }


async def take_over(it: Stage, active: Service, standby: Service) -> None:
    it.crash(active)
    await it.until(lambda: is_active(standby) and "schedule periodic work" in steps(standby))


async def settle(it: Stage, service: Service) -> None:
    await it.until(lambda: service.shell.full_metadata is None and not len(service.queue))
    await it.sleep(0.5)


async def equals_a_reload(it: Stage, service: Service) -> None:
    """What the warm failover made of the cluster is what reading all of it makes."""
    await settle(it, service)
    before = without_epochs(service)
    assert violations(service.shell.context) == []
    service.queue.append(ProtocolChange())
    await it.until(lambda: service.shell.reloaded and not len(service.queue))
    await it.sleep(0.5)
    assert without_epochs(service) == before
