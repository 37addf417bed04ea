"""Leaders from outside the ISR, when somebody allows them later than their partition needed one.

Inside a broker, Kafka's controller is told by that broker's own configuration handlers.  From outside, the change
notifications in ZooKeeper say the same: ``/config/changes`` names topics and the cluster-wide default.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import trigger_online_partition_state_change
from aiocontroller.core.events import ConfigChange, TopicUncleanLeaderElectionEnable, UncleanLeaderElectionEnable
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

UNCLEAN = "unclean.leader.election.enable"
DEFAULT_BROKER = "brokers/<default>"


async def load_unclean_default(shell: ControllerShell) -> None:
    """The cluster-wide dynamic default goes before the configured one; reading the changes arms their watch."""
    shell.config_changes_seen = set(await shell.zk.get_all_config_changes(watch=True))
    await _read_unclean_default(shell)


async def config_change(shell: ControllerShell, event: ConfigChange) -> None:
    names = await shell.zk.get_all_config_changes(watch=True)
    new = [name for name in names if name not in shell.config_changes_seen]
    shell.config_changes_seen = set(names)
    entities, bad = await shell.zk.get_entities_from_config_changes(new)
    shell.report_bad_znodes(bad)
    if DEFAULT_BROKER in entities:
        before = shell.unclean_default
        await _read_unclean_default(shell)
        if shell.unclean_default and not before:
            shell.queue.append(UncleanLeaderElectionEnable())
    changed = dict.fromkeys(e.removeprefix("topics/") for e in entities if e.startswith("topics/"))
    topics = [topic for topic in changed if topic in shell.context.table.topic_by_name]
    if topics:
        configs = await shell.zk.get_topic_configs(topics)
        for topic in topics:
            if _is_true(configs.get(topic, {}).get(UNCLEAN, "false")):
                shell.queue.append(TopicUncleanLeaderElectionEnable(topic))


async def unclean_leader_election_enable(shell: ControllerShell, event: UncleanLeaderElectionEnable) -> None:
    log.info("Unclean leader election has been enabled by default")
    await trigger_online_partition_state_change(shell)


async def topic_unclean_leader_election_enable(shell: ControllerShell, event: TopicUncleanLeaderElectionEnable) -> None:
    log.info("Unclean leader election has been enabled for topic %s", event.topic)
    await trigger_online_partition_state_change(shell, event.topic)


async def _read_unclean_default(shell: ControllerShell) -> None:
    found = await shell.zk.get_broker_default_config()
    if isinstance(found, BadZNode):
        shell.report_bad_znodes([found])  # the setting stays what it was
        return
    dynamic = found.get(UNCLEAN)
    shell.unclean_default = shell.config.unclean_leader_election_enable if dynamic is None else _is_true(dynamic)


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
