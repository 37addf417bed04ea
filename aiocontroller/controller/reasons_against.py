"""Why the role must not be taken, in words for the operator.

What ZooKeeper tells is asked before every election; what only brokers tell, before a takeover from one of them: at a
vacancy they may be gone, and nobody else decides anything either.
"""

from __future__ import annotations

import asyncio
import logging

from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.messages import ApiVersions
from aiocontroller.zookeeper.znodes import BadZNode, ControllerZNode

log = logging.getLogger(__name__)

OLDEST_LEADER_AND_ISR = 2
"""Kafka 2.2's: the first that carries a broker epoch, without which a restarted broker takes old requests for new."""
ANSWER_WITHIN_S = 5.0


async def reasons_of_the_cluster(shell: ControllerShell, holder: ControllerZNode | None) -> list[str]:
    """What is in ZooKeeper; ``holder`` is who would be deposed, if anybody."""
    reasons = []
    if holder is not None and holder.kraft_controller_epoch > 0:
        reasons.append(
            f"controller {holder.controller_id} is KRaft's (kraftControllerEpoch {holder.kraft_controller_epoch}): "
            "a cluster in migration is not taken over"
        )
    migration, broker = await asyncio.gather(shell.zk.get_migration(), shell.zk.get_broker(shell.id, watch=False))
    if migration is not None:
        reasons.append("/migration exists: the cluster is being migrated to KRaft")
    if broker is not None:
        where = "" if isinstance(broker, BadZNode) else f" on {', '.join(dict.fromkeys(_addresses(broker)))}"
        reasons.append(f"aiocontroller.id {shell.id} is the id of a broker{where}: choose one that no broker has")
    return reasons


def _addresses(broker: Broker) -> list[str]:
    return [f"{each.host}:{each.port}" for each in broker.endpoints]


async def reasons_of_brokers(shell: ControllerShell) -> list[str]:
    """What the registered brokers say of themselves; one that does not answer is no reason while another does."""
    found, _bad = await shell.zk.get_all_brokers_in_cluster(watch=False)
    answers = await asyncio.gather(*(_ask(shell, broker) for broker in found))
    if found and not any(isinstance(answer, ApiVersions) for answer in answers):
        return [f"no broker can be reached: {answers[0]}"]
    reasons = []
    for broker, answer in zip(found, answers, strict=True):
        if isinstance(answer, str):
            log.warning("%s; taking the role all the same", answer)
        else:
            reasons += _reasons_of(broker, answer)
    return reasons


def _reasons_of(broker: Broker, answer: ApiVersions) -> list[str]:
    if answer.zk_migration_ready:
        return [f"broker {broker.id} is set up for migration to KRaft (zookeeper.metadata.migration.enable)"]
    offered = answer.versions.get(ApiKey.LEADER_AND_ISR)
    if offered is None:
        return [f"broker {broker.id} takes no LeaderAndIsr requests: Kafka 2.2 to 3.9 in ZooKeeper mode is needed"]
    if offered.max < OLDEST_LEADER_AND_ISR:
        return [f"broker {broker.id} is older than Kafka 2.2 (LeaderAndIsr {offered.max}): not supported"]
    return []


async def _ask(shell: ControllerShell, broker: Broker) -> ApiVersions | str:
    """Its answer, or why there is none."""
    try:
        async with asking(shell, broker, ANSWER_WITHIN_S) as client:
            return await client.api_versions()
    except (OSError, FrameError) as error:
        return f"broker {broker.id} does not answer: {error or type(error).__name__}"
