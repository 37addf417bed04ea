"""Examines a migration, twice for findings, which must not be passing states; makes the report of ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from aiocontroller.check.findings import CheckFinding, Hit, findings, lasting
from aiocontroller.migration.answers import IBP
from aiocontroller.migration.asking import Asker
from aiocontroller.migration.carried import Stored, read_carried
from aiocontroller.migration.kinds import KINDS
from aiocontroller.migration.rules import NEXT, MigrationStep, all_hits, metadata_version_name
from aiocontroller.migration.view import MigrationView
from aiocontroller.migration.ways import NEXT_STEPS, WAY_BACK
from aiocontroller.net.ports import Clock
from aiocontroller.wire.quorum import DescribedQuorum
from aiocontroller.zookeeper.cluster_tree import OnProgress, read_cluster_tree, read_evidence
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

BETWEEN_S = 2.0
"""Between two looks: one look reads at different moments, and a passing state is not a finding."""


class Bootstrap(NamedTuple):
    """Addresses that an operator has given."""

    servers: Sequence[tuple[str, int]] = ()
    controllers: Sequence[tuple[str, int]] = ()


class BrokerLine(msgspec.Struct, frozen=True):
    """One broker."""

    id: int
    registered: bool
    """In ZooKeeper."""
    mode: str
    """``zookeeper``, ``migration``, ``kraft``, or ``?`` if it does not answer."""
    protocol: str | None
    """Its ``inter.broker.protocol.version``; None in KRaft mode, or if it does not report it."""
    log_end_offset: int | None
    """Of its copy of the metadata log; None if it does not fetch the log."""


class MigrationReport(msgspec.Struct, frozen=True):
    """The state of a migration, and the reasons against the step ``before``."""

    at: str
    """UTC, ISO 8601."""
    phase: str
    before: str | None
    """The step that was checked for."""
    controller: int | None
    kraft_controller_epoch: int
    """-1 while no KRaft controller holds the role."""
    controller_epoch: int
    highest_state_epoch: int
    migration: MigrationZNode | None
    quorum: DescribedQuorum | None
    metadata_version: str | None
    behind_records: int | None
    brokers: tuple[BrokerLine, ...]
    topics: int
    partitions: int
    next: tuple[str, ...]
    way_back: tuple[str, ...]
    findings: tuple[CheckFinding, ...] = ()


async def look(
    zk: KafkaZkClient, asker: Asker, bootstrap: Bootstrap, progress: OnProgress | None = None
) -> MigrationView:
    """Look once; AioControllerError if ZooKeeper does not answer."""
    tree = await read_cluster_tree(zk, progress)
    holder = () if tree.holder is None else (tree.holder.controller_id,)
    answers = await asker.ask(
        list(tree.brokers.values()),
        tree.known_controllers.union(n for n in holder if n not in tree.live),
        bootstrap_servers=bootstrap.servers,
        bootstrap_controllers=bootstrap.controllers,
    )
    view = MigrationView(tree, answers, await _stored(zk))
    node = view.node_to_ask
    if node is None:
        return view
    reported = await asker.carried(node, is_broker=node.id in view.kraft_brokers)
    return msgspec.structs.replace(view, reported=reported)


async def _stored(zk: KafkaZkClient) -> Stored | None:
    try:
        return await read_carried(zk)
    except exc.NoAuth:
        return None


async def examine(
    zk: KafkaZkClient,
    asker: Asker,
    clock: Clock,
    bootstrap: Bootstrap,
    *,
    before: MigrationStep | None = None,
    between_s: float = BETWEEN_S,
    progress: OnProgress | None = None,
) -> MigrationReport:
    """Look twice; report what both looks show.  ``before``: the step to check for, by default the next one."""
    first = await look(zk, asker, bootstrap, progress)
    await clock.sleep(between_s)
    second = await look(zk, asker, bootstrap, progress)
    step = before or NEXT[second.phase]
    hits = lasting(all_hits(first, step), all_hits(second, step))
    return msgspec.structs.replace(
        summary(second, clock), before=None if step is None else step.value, findings=await _with_evidence(zk, hits)
    )


async def _with_evidence(zk: KafkaZkClient, hits: Sequence[Hit]) -> tuple[CheckFinding, ...]:
    found, shown_by = findings(hits, KINDS)
    evidence = iter(await read_evidence(zk, [path for some in shown_by for path in some]))
    return tuple(
        msgspec.structs.replace(finding, evidence=tuple(tuple(next(evidence)) for _ in some))
        for finding, some in zip(found, shown_by, strict=True)
    )


def summary(view: MigrationView, clock: Clock) -> MigrationReport:
    """Return the report on a look, without findings."""
    tree, level = view.tree, view.metadata_version
    return MigrationReport(
        at=datetime.fromtimestamp(clock.wall_time_us() / 1e6, UTC).isoformat(timespec="seconds"),
        phase=view.phase.value,
        before=None,
        controller=None if tree.holder is None else tree.holder.controller_id,
        kraft_controller_epoch=-1 if tree.holder is None else tree.holder.kraft_controller_epoch,
        controller_epoch=tree.controller_epoch,
        highest_state_epoch=view.highest_state_epoch,
        migration=tree.migration,
        quorum=view.quorum,
        metadata_version=None if level is None else metadata_version_name(level),
        behind_records=view.behind_records,
        brokers=tuple(_broker_line(view, number) for number in sorted(tree.live.union(view.answers.brokers))),
        topics=len(tree.topics),
        partitions=len(tree.partitions),
        next=NEXT_STEPS[view.phase],
        way_back=WAY_BACK[view.phase],
    )


def _broker_line(view: MigrationView, number: int) -> BrokerLine:
    node = view.answers.brokers.get(number)
    observers = () if view.quorum is None else view.quorum.observers
    replica = next((each for each in observers if each.id == number), None)
    if node is None:
        mode = "?"
    elif node.in_kraft_mode:
        mode = "kraft"
    else:
        mode = "migration" if node.ready else "zookeeper"
    return BrokerLine(
        id=number,
        registered=number in view.tree.live,
        mode=mode,
        protocol=None if node is None or node.in_kraft_mode else node.settings.get(IBP),
        log_end_offset=None if replica is None else replica.log_end_offset,
    )
