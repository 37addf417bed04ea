"""Keeps an authorizer up to date with ZooKeeper, as active controller and on standby, while the process lives.

Source: Kafka 3.9, ``AclAuthorizer.loadCache`` and ``ZkNodeChangeNotificationListener``.  The notifications are watched
before the ACLs are read, so that no change is missed.  A new session reads everything again: its watches are gone, and
notifications may have come and gone meanwhile.  Until the first read the authorizer allows super users only; later, if
ZooKeeper is unreachable, it keeps the last known ACLs, as a broker does.

Departure from Kafka, which counts notifications and skips unreadable ones: here a notification is new if it has not
been seen, and an unreadable one means that anything may have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiocontroller.net.ports import World
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.errors import ClientClosedError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.session_events import SessionEvent
from aiocontroller.zookeeper.znode_json import BadZNode

log = logging.getLogger(__name__)

RETRY_S = 0.5


class AclFollower:
    """Follows the ACLs in ``run``; ``wake`` and ``on_session`` report changes to it."""

    def __init__(self, store: AclStore, world: World, on_bad_znode: Callable[[], object]) -> None:
        self._store = store
        self._world = world
        self._on_bad_znode = on_bad_znode
        self._woken = asyncio.Event()
        self._stale = True
        self._seen: set[str] = set()
        """Notifications already processed; membership only."""
        self._named: set[str] = set()
        """Damage already logged that still exists; membership only."""

    def wake(self) -> None:
        """Report new notifications."""
        self._woken.set()

    def on_session(self, event: SessionEvent) -> None:
        """Read everything again in a new session, which has no watches."""
        if event is SessionEvent.NEW_SESSION:
            self._stale = True
            self._woken.set()

    async def run(self) -> None:
        """Read the ACLs, and follow their changes until the client is closed; errors of ZooKeeper are retried."""
        failures = 0
        while True:
            self._woken.clear()
            try:
                await self._catch_up()
            except ClientClosedError:
                return
            except (exc.ZKError, OSError) as error:
                failures += 1
                if failures == 1:
                    log.warning("ACLs cannot be read, trying again: %s", _text_of(error))
                await self._world.clock.sleep(RETRY_S)
                continue
            failures = 0
            await self._woken.wait()

    async def _catch_up(self) -> None:
        notifications = await self._store.changes()
        new = [path for path in notifications if path not in self._seen]
        damaged: list[BadZNode] = []
        if not self._stale:
            patterns, damaged = await self._store.changed_patterns(new)
            if damaged:
                self._stale = True
            elif patterns:
                self._name(await self._store.refresh(patterns))
        if self._stale:
            self._stale = False
            try:
                unreadable = await self._store.load()
            except BaseException:
                self._stale = True
                raise
            self._named &= {str(each) for each in unreadable}
            self._name([*damaged, *unreadable])
            log.info("Loaded ACLs of %d resource patterns", len(self._store.authorizer))
        self._seen = set(notifications)

    def _name(self, damaged: list[BadZNode]) -> None:
        for each in damaged:
            if str(each) not in self._named:
                self._named.add(str(each))
                self._on_bad_znode()
                log.error("%s; the resources to which it would apply are denied", each)


def _text_of(error: Exception) -> str:
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
