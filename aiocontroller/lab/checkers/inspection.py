"""What a controller holds in memory at one moment, for checkers."""

from __future__ import annotations

import msgspec

from aiocontroller.core.invariants import violations
from aiocontroller.service import Service
from aiocontroller.zookeeper.acl_store import CHANGES


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's state at one moment, for checkers; all empty on standby."""

    id: int
    session_id: int
    active: bool
    queued_events: int
    queued_requests: int
    """Requests that wait for brokers."""
    senders: bool
    timers: int
    watches: int
    acl_watches: int = 0
    """The watches on changes of ACLs, among ``watches``; each controller with an authorizer has them."""
    observes: bool = False
    """It does not stand for election, so it keeps no copy."""
    recursive_watches: int = 0
    copy: str = "cold"
    """The state of its copy of the cluster (``controller.mirror``); ``cold`` where it keeps none."""
    behind: int = 0
    """The number of parts of the copy that have to be read again."""
    unsent: int = 0
    """Partitions that brokers have yet to be sent after a warm failover."""
    partitions: int
    brokers: list[int]
    live_brokers: list[int]
    reassigning: int
    deleting: list[str]
    violations: list[str]
    """Broken invariants of the context (``core.invariants``)."""


def inspect(service: Service) -> Inspection:
    shell, context, mirror = service.shell, service.shell.context, service.controller.election.mirror
    copy = {} if mirror is None else mirror.status()
    return Inspection(
        id=shell.id,
        session_id=service.client.session_id,
        active=service.controller.election.active,
        queued_events=len(service.queue),
        queued_requests=sum(each.queued for each in shell.channels.statistics()) if shell.channels else 0,
        senders=shell.channels is not None,
        timers=service.queue.statistics().deferred,
        watches=service.client.statistics().watches,
        acl_watches=0 if shell.acls is None else len(CHANGES),
        observes=service.controller.election.observes,
        recursive_watches=len(service.client.session.registry.recursive),
        copy=copy.get("state", "cold"),
        behind=copy.get("behind", 0),
        unsent=0 if shell.full_metadata is None else shell.full_metadata.left,
        partitions=len(context.table),
        brokers=sorted(context.brokers),
        live_brokers=sorted(context.live),
        reassigning=len(context.partitions_being_reassigned),
        deleting=list(context.topics_to_be_deleted),
        violations=list(violations(context)),
    )
