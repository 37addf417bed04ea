"""Applies the brokers' settings that the controller obeys: at the election, and when they change during a term."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from aiocontroller.controller import leader_elections
from aiocontroller.controller.cluster_settings import obeyed_changes
from aiocontroller.controller.obeyed_settings import Dynamic, dynamic_of, shown
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import ProtocolChange, TopicDeletion, UncleanLeaderElectionEnable
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.broker_configs import BrokerConfigs, read_by_all

log = logging.getLogger(__name__)

FIRST_REPORT_WITHIN_S = 5.0
"""How long a process that has just started waits for the first broker to report its settings."""
POLL_S = 0.02


async def read_dynamic_settings(shell: ControllerShell, brokers: Iterable[int]) -> None:
    """Read the brokers' dynamic settings; those that cannot be read keep their last values."""
    names = [paths.DEFAULT_ENTITY, *map(str, brokers)]
    configs = await shell.zk.get_broker_configs(names)
    found = dynamic_of(configs)
    if configs.bad:
        shell.report_bad_znodes(configs.bad)
        before = shell.settings.dynamic
        kept = {broker: taken for broker, taken in before.of_one.items() if str(broker) not in configs}
        of_all = found.of_all if paths.DEFAULT_ENTITY in configs else before.of_all
        found = Dynamic(of_all, {**kept, **found.of_one})
    shell.settings.read(found)


async def broker_configs(shell: ControllerShell) -> BrokerConfigs:
    """The settings of a broker that has no dynamic settings of its own; the cluster-wide ones are read each time.

    Waits, at most ``FIRST_REPORT_WITHIN_S``, until a broker has reported its settings.
    """
    clock = shell.world.clock
    deadline_s = clock.monotonic() + FIRST_REPORT_WITHIN_S
    while shell.settings.awaited and clock.monotonic() < deadline_s:
        await clock.sleep(POLL_S)
    configs = await shell.zk.get_broker_configs([paths.DEFAULT_ENTITY])
    if configs.bad:
        shell.report_bad_znodes(configs.bad)
    return shell.settings.broker_configs(read_by_all(configs.get(paths.DEFAULT_ENTITY, {})))


def apply_settings(shell: ControllerShell) -> None:
    """Apply the current settings to the shell; during a term, also start the work that they enable."""
    before, now = shell.policy, shell.settings.policy
    if now == before:
        return
    shell.policy = now
    if not shell.is_active:
        return
    for name, was, value in obeyed_changes(before, now):
        log.warning("%s is now %s, as on the brokers; it was %s", name, shown(value), shown(was))
        shell.journal.append("setting", detail=f"{name}: {shown(was)} -> {shown(value)}")
    if now.protocol != before.protocol:
        shell.queue.append(ProtocolChange())
    if before.delete_topic_enable and not now.delete_topic_enable:
        shell.queue.append(TopicDeletion())
    if now.unclean_leader_election_enable and not before.unclean_leader_election_enable:
        shell.queue.append(UncleanLeaderElectionEnable())
    if now.auto_leader_rebalance_enable and not before.auto_leader_rebalance_enable:
        leader_elections.schedule_auto_leader_rebalance(shell)
