"""The ids of this and earlier aiocontrollers, kept in ZooKeeper: a broker may have taken one for a broker id."""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import ControllersKnown
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 16


Found = tuple[frozenset[int] | BadZNode, int]
"""The ids, and the version of the znode."""


async def load_known_controllers(shell: ControllerShell) -> None:
    """Read the ids, add this controller's, and drop those of registered brokers."""
    await take_known_controllers(shell, await read_known_controllers(shell))


async def read_known_controllers(shell: ControllerShell) -> Found:
    """Read the ids."""
    return await shell.zk.get_known_controllers()


async def take_known_controllers(shell: ControllerShell, read: Found) -> None:
    """Add this controller's id, and drop those of registered brokers."""
    context = shell.context
    for _attempt in range(MAX_ATTEMPTS):
        found, version = read
        if isinstance(found, BadZNode):
            shell.report_bad_znodes([found])  # our own id is known anyway
            return
        apply(context, ControllersKnown(found.difference(context.brokers) | {shell.id}))
        if context.controllers == found or await shell.zk.set_known_controllers(
            context.controllers, version, fence=context.epoch_zk_version
        ):
            return
        read = await read_known_controllers(shell)
    log.warning("The ids of earlier controllers changed %d times meanwhile and are left as they are", MAX_ATTEMPTS)
