"""Unclean elections for partitions already offline, when unclean leader election is enabled later.

Inside a broker, the configuration handlers inform Kafka's controller.  Outside, ZooKeeper has the same information:
``/config/changes`` names topics, brokers and the defaults of all brokers.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.obeyed_settings import UNCLEAN
from aiocontroller.controller.obeying import apply_settings, read_dynamic_settings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import trigger_online_partition_state_change
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import MinIsrsForgotten
from aiocontroller.core.events import ConfigChange, TopicUncleanLeaderElectionEnable, UncleanLeaderElectionEnable

log = logging.getLogger(__name__)

BROKERS = "brokers/"


async def load_dynamic_settings(shell: ControllerShell) -> None:
    """Load dynamic settings, which override brokers' files; reading the change notifications arms their watch."""
    shell.config_changes_seen = set(await shell.zk.get_all_config_changes(watch=True))
    await _read_settings(shell)


async def config_change(shell: ControllerShell, event: ConfigChange) -> None:
    """Settings of topics, brokers or clients have changed: obey those that controllers obey."""
    names = await shell.zk.get_all_config_changes(watch=True)
    new = [name for name in names if name not in shell.config_changes_seen]
    shell.config_changes_seen = set(names)
    entities, bad = await shell.zk.get_entities_from_config_changes(new)
    shell.report_bad_znodes(bad)
    for entity in entities:
        shell.mutation_quotas.changed(entity)
    topics = list(dict.fromkeys(e.removeprefix("topics/") for e in entities if e.startswith("topics/")))
    topics = [topic for topic in topics if topic in shell.context.table.topic_by_name]
    apply(shell.context, MinIsrsForgotten(topics))
    for name in topics:
        shell.min_isrs.pop(shell.context.table.topic_by_name[name].id, None)
    if any(entity.startswith(BROKERS) for entity in entities):
        shell.min_isrs.clear()
        await _read_settings(shell)
    if topics:
        configs = await shell.zk.get_topic_configs(topics)
        for topic in topics:
            if _is_true(configs.get(topic, {}).get(UNCLEAN, "false")):
                shell.queue.append(TopicUncleanLeaderElectionEnable(topic))


async def unclean_leader_election_enable(shell: ControllerShell, event: UncleanLeaderElectionEnable) -> None:
    """Unclean election is now allowed by default: elect leaders where there is none."""
    log.info("Unclean leader election has been enabled by default")
    await trigger_online_partition_state_change(shell)


async def topic_unclean_leader_election_enable(shell: ControllerShell, event: TopicUncleanLeaderElectionEnable) -> None:
    """Unclean election is now allowed for one topic: elect leaders where there is none."""
    log.info("Unclean leader election has been enabled for topic %s", event.topic)
    await trigger_online_partition_state_change(shell, event.topic)


async def _read_settings(shell: ControllerShell) -> None:
    """Read the settings of the registered brokers; with none registered, of the last known ones."""
    await read_dynamic_settings(shell, sorted({*shell.context.brokers, *shell.settings.brokers}))
    apply_settings(shell)


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
