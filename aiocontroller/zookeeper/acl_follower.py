"""Keeps an authorizer at what ZooKeeper says, in office and standing by, for as long as the process lives.

Source: Kafka 3.9, ``AclAuthorizer.loadCache`` and ``ZkNodeChangeNotificationListener``.  The notifications are watched
before all is read, so that no change falls between.  A new session begins with reading all again: its watches are gone,
and what was told meanwhile may be too.  Until the first reading the authorizer allows super users only; later, while
ZooKeeper cannot be reached, it goes on with what it knew, as a broker does.

Departure from Kafka, which counts the notifications and passes over what it cannot read: here new is what has not been
seen, and a notification that cannot be read says that anything may have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiozk import exc

from aiocontroller.net.ports import World
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.errors import ClientClosedError
from aiocontroller.zookeeper.session_events import SessionEvent
from aiocontroller.zookeeper.znode_json import BadZNode

log = logging.getLogger(__name__)

RETRY_S = 0.5


class AclFollower:
    """``run`` never ends by itself; ``wake`` and ``on_session`` tell it of changes."""

    def __init__(self, store: AclStore, world: World, on_bad_znode: Callable[[], object]) -> None:
        self._store = store
        self._world = world
        self._on_bad_znode = on_bad_znode
        self._woken = asyncio.Event()
        self._stale = True
        self._seen: set[str] = set()
        """Notifications that were treated; membership only."""
        self._named: set[str] = set()
        """What was complained about and still holds; membership only."""

    def wake(self) -> None:
        """There are new notifications."""
        self._woken.set()

    def on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.NEW_SESSION:
            self._stale = True
            self._woken.set()

    async def run(self) -> None:
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
                    log.warning("ACLs cannot be read, trying again: %s", _told(error))
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
                log.error("%s; what it would have applied to is denied", each)


def _told(error: Exception) -> str:
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
