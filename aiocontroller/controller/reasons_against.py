"""Why the role must not be taken, in words for the operator.

What ZooKeeper tells is asked before every election; what only brokers tell, before a takeover from one of them: at a
vacancy they may be gone, and nobody else decides anything either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.broker_settings import described
from aiocontroller.controller.shell import ControllerShell, inter_broker_listener
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.messages import ApiVersions
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import ControllerZNode

log = logging.getLogger(__name__)

OLDEST_LEADER_AND_ISR = 2
"""Kafka 2.2's: the first that carries a broker epoch, without which a restarted broker takes old requests for new."""
ANSWER_WITHIN_S = 5.0
LISTENS_WITHIN_S = 10.0
ASK_AGAIN_S = 0.2
_SETTINGS = (
    "authorizer.class.name",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "control.plane.listener.name",
)


async def reasons_of_the_cluster(shell: ControllerShell, holder: ControllerZNode | None) -> list[str]:
    """What is in ZooKeeper; ``holder`` is who would be deposed, if anybody."""
    reasons = []
    if holder is not None and holder.kraft_controller_epoch > 0:
        reasons.append(
            f"controller {holder.controller_id} is KRaft's (kraftControllerEpoch {holder.kraft_controller_epoch}): "
            "a cluster in migration is not taken over"
        )
    migration, (brokers, bad) = await asyncio.gather(
        shell.zk.get_migration(), shell.zk.get_all_brokers_in_cluster(watch=False)
    )
    if migration is not None:
        reasons.append("/migration exists: the cluster is being migrated to KRaft")
    namesake = next((broker for broker in brokers if broker.id == shell.id), None)
    if namesake is not None or any(znode.path == paths.broker_id(shell.id) for znode in bad):
        where = "" if namesake is None else " on " + ", ".join(f"{e.host}:{e.port}" for e in namesake.endpoints)
        reasons.append(f"aiocontroller.id {shell.id} is the id of a broker{where}: choose one that none has")
    return reasons + _reasons_of_listeners(shell, brokers)


def _reasons_of_listeners(shell: ControllerShell, brokers: Sequence[Broker]) -> list[str]:
    """Brokers look for the controller on one listener, and speak on it as they do among each other."""
    name = inter_broker_listener(shell.config, brokers)
    protocols = dict.fromkeys(e.security_protocol for b in brokers for e in b.endpoints if e.listener == name)
    if brokers and not protocols:
        found = ", ".join(dict.fromkeys(e.listener for b in brokers for e in b.endpoints))
        return [f"inter.broker.listener.name is {name}, and brokers have the listeners {found}: set it to theirs"]
    own = shell.own_endpoints()
    ours = next((e for e in own if e.listener == name), own[0] if own else None)
    if protocols and ours is not None and ours.security_protocol not in protocols:
        theirs = " and ".join(protocols)
        return [
            f"brokers speak {theirs} on their listener {name}, and ours, {ours.listener}, speaks "
            f"{ours.security_protocol}: set listeners and listener.security.protocol.map"
        ]
    return []


async def reasons_of_brokers(shell: ControllerShell) -> list[str]:
    """What the registered brokers say of themselves; one that does not answer is no reason while another does."""
    found, answers = await _answers(shell)
    if found and not _one_answers(answers):
        return [f"no broker can be reached: {answers[0]}"]
    reasons = []
    for broker, answer in zip(found, answers, strict=True):
        if isinstance(answer, str):
            log.warning("%s; taking the role all the same", answer)
        else:
            reasons += _reasons_of(broker, answer) + await _reasons_of_settings(shell, broker, found)
    return list(dict.fromkeys(reasons))


async def _answers(shell: ControllerShell) -> tuple[list[Broker], list[ApiVersions | str]]:
    """Of the registered brokers; when none answers they are asked again: a broker registers before it listens."""
    clock = shell.world.clock
    deadline_s = clock.monotonic() + LISTENS_WITHIN_S
    while True:
        found, _bad = await shell.zk.get_all_brokers_in_cluster(watch=False)
        answers = await asyncio.gather(*(_ask(shell, broker) for broker in found))
        if not found or _one_answers(answers) or clock.monotonic() >= deadline_s:
            return found, answers
        await clock.sleep(ASK_AGAIN_S)


def _one_answers(answers: Sequence[ApiVersions | str]) -> bool:
    return any(isinstance(answer, ApiVersions) for answer in answers)


async def _reasons_of_settings(shell: ControllerShell, broker: Broker, brokers: Sequence[Broker]) -> list[str]:
    """What a broker's own configuration says that ours has to say too."""
    try:
        told = await described(shell, broker, _SETTINGS)
    except (OSError, FrameError) as error:
        log.warning("Broker %d does not tell its settings: %s", broker.id, error)
        return []
    if not told:
        return []
    reasons = []
    authorizer = told.get("authorizer.class.name")
    if authorizer and shell.config.authorizer_class_name is None:
        reasons.append(
            f"brokers have an authorizer ({authorizer}): set authorizer.class.name and super.users, which say who may "
            "ask this controller for what"
        )
    listener = told.get("inter.broker.listener.name") or told.get("security.inter.broker.protocol")
    ours = inter_broker_listener(shell.config, brokers)
    if listener and listener.upper() != ours:
        reasons.append(f"brokers talk to each other on listener {listener}: set inter.broker.listener.name, now {ours}")
    control = told.get("control.plane.listener.name")
    if (control or None) != shell.config.control_plane_listener_name:
        reasons.append(f"brokers have control.plane.listener.name {control or '(none)'}: set it so here")
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
    except (OSError, FrameError, ConfigError) as error:
        return f"broker {broker.id} does not answer: {error or type(error).__name__}"
