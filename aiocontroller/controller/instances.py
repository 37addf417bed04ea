"""The instances of this program on the cluster, active and standing by, as each reports itself in ZooKeeper.

Every few seconds this process writes its own entry if it has changed, and reads all entries.  Nothing depends on them:
if ZooKeeper refuses access, the page says so.
"""

from __future__ import annotations

import logging
from typing import Any

from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.zookeeper.errors import ClientClosedError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.instances import Instance, read_instances, write_instance

log = logging.getLogger(__name__)

EVERY_S = 5.0
LONGEST = 300


class Instances:
    """Writes the entry of this process, and reads all entries.

    ``host``: the name of this machine; ``http``: the address of this process's page; ``release``: its version.
    """

    def __init__(self, controller: KafkaController, host: str, http: str, release: str) -> None:
        self._controller = controller
        self._host = host[:LONGEST]
        self._http = http[:LONGEST]
        self._release = release[:LONGEST]
        self._started_ms = controller.shell.world.clock.wall_time_us() // 1000
        self._written: tuple[int, Instance] | None = None
        self._known: dict[int, Instance] = {}
        self._problem = ""

    async def run(self) -> None:
        """Write and read entries until the client is closed."""
        clock = self._controller.shell.world.clock
        while True:
            try:
                await self._look()
                self._problem = ""
            except ClientClosedError:
                return
            except Exception as error:  # even a bug here must not end the controller
                bug = None if isinstance(error, (exc.ZKError, OSError)) else error
                problem = "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
                if not self._problem:
                    log.warning("Cannot write or read the list of this program's instances: %s", problem, exc_info=bug)
                self._problem = problem[:LONGEST]
            await clock.sleep(EVERY_S)

    async def _look(self) -> None:
        client = self._controller.shell.zk.client
        entry = client.session_id, self._own()
        if entry != self._written:
            await write_instance(client, entry[1])
            self._written = entry
        self._known = await read_instances(client)
        if self._known.get(entry[0]) != entry[1]:
            self._written = None  # the entry was deleted or overwritten, or the session is a new one

    def _own(self) -> Instance:
        controller = self._controller
        found, mirror = controller.readiness(), controller.election.mirror
        copy: dict[str, Any] = {"state": "cold", "lag_ms": 0} if mirror is None else mirror.status()
        stands_by = not controller.election.active
        return Instance(
            id=controller.shell.id,
            host=self._host,
            http=self._http,
            started_ms=self._started_ms,
            state=found.state,
            reason=found.reasons[0][:LONGEST] if found.reasons and not found.ready else "",
            standby=copy["state"] if stands_by else "",
            lag_s=int(copy["lag_ms"] // 1000) if stands_by else 0,
            release=self._release,
        )

    def shown(self) -> dict[str, Any]:
        """Return what the page shows: the active instance first, then the others by start time."""
        election, own = self._controller.election, self._controller.shell.zk.client.session_id
        known = {**self._known, own: self._own()} if own in self._known else self._known  # a few seconds fresher
        holder = None if election.holder is None else election.holder.owner_session
        rows = [
            {
                "id": each.id,
                "active": session == holder,
                "this": session == own,
                "host": each.host,
                "http": each.http,
                "state": each.state,
                "reason": each.reason,
                "standby": each.standby,
                "lag_s": each.lag_s,
                "release": each.release,
                "started_us": each.started_ms * 1000,
            }
            for session, each in known.items()
        ]
        rows.sort(key=lambda row: (not row["active"], row["started_us"], row["id"]))
        return {"instances": rows, "problem": self._problem}
