"""A ZooKeeper that refuses connections, logins, or what an ACL does not allow; it relents in peace at the latest."""

from __future__ import annotations

from collections.abc import Callable

from aiocontroller.lab.simulation.steps.base import StepTaker
from aiocontroller.lab.zookeeper.zookeeper_tree import OPEN, READ, Acl
from aiocontroller.zookeeper import paths

ALL = 31
OPERATOR = ("digest", "operator")
CLOSED: tuple[Acl, ...] = ((ALL, *OPERATOR),)
READABLE: tuple[Acl, ...] = (*CLOSED, (READ, "world", "anyone"))
REFUSED_S = (0.5, 2.0, 6.0)
"""How long ZooKeeper refuses: less than a session, and more."""
FIXED_PLACES = (
    paths.CONTROLLER_EPOCH,
    paths.TOPICS,
    paths.DELETE_TOPICS,
    paths.ISR_CHANGE_NOTIFICATION,
    paths.DEBTS,
    paths.BROKER_STARTS,
)


class RefusalSteps(StepTaker):
    def step_refuse_connections(self) -> None:
        """Refuse all new connections: at once, at the handshake, or at the first request without a login.

        At once: too many connections; only those of one controller break.  At the handshake: the servers have lost
        their ensemble.  At the first request: they are configured to require logins, and brokers do not log in.
        """
        simulation, model = self.simulation, self.simulation.model
        how = self._given.take("how", self.chance.choice(("connections", "handshakes", "strangers")))
        duration_s = self._seconds(*REFUSED_S)
        if model.refuses or model.requires_login:
            return
        model.refuses = "" if how == "strangers" else how
        model.requires_login = how == "strangers"
        simulation.history.probe(f"ZooKeeper refuses {how}")
        if how == "connections":
            self._cut(simulation.controllers)
        else:
            for session in model.sessions.values():
                if session.connection is not None:
                    session.connection.end()

        def relent() -> None:
            model.refuses, model.requires_login = "", False

        self._later(duration_s, relent)

    def step_refuse_login(self) -> None:
        """Refuse one controller's SASL login, as after a change of its password, and end its connection."""
        simulation, users = self.simulation, self.simulation.model.users
        controller, duration_s = self._one(simulation.controllers), self._seconds(*REFUSED_S)
        if controller is None or users is None or (name := simulation.login(controller)) not in users:
            return
        password = users.pop(name)
        simulation.history.probe("ZooKeeper refuses a login")
        session = simulation.model.sessions.get(simulation.controllers[controller][0].client.session_id)
        if session is not None and session.connection is not None:
            session.connection.end()

        def relent() -> None:
            users[name] = password

        self._later(duration_s, relent)

    def step_deny_znode(self) -> None:
        """Give a znode an ACL under which only an operator may write it, or even read it."""
        simulation, nodes = self.simulation, self.simulation.model.tree.nodes
        path, acl = self._place(), self.chance.choice((CLOSED, READABLE))
        duration_s = self._seconds(*REFUSED_S)
        if path not in nodes or simulation.denied.get(path):
            return
        simulation.history.probe("a znode is denied")
        simulation.foreign_writes += 1  # the audit may have to repair writes that are refused meanwhile
        self._give(path, acl)
        simulation.denied[path] = True

        def relent() -> None:
            simulation.denied[path] = False
            if path in nodes and nodes[path].acl == acl:
                self._give(path, OPEN)

        self._later(duration_s, relent)

    def _place(self) -> str:
        """Return a znode that only controllers need; but tools write topics, and leaders states before protocol 2.7."""
        places = list(FIXED_PLACES)
        states = sorted(self.simulation.history.states)
        if states:
            topic, number = self.chance.choice(states)
            places += [paths.topic(topic), paths.topic_partition_state(topic, number)] * 2
            places.append(paths.config_entity("topics", topic))
        drawn = self.chance.choice(places)
        path: str = self._given.take("path", drawn)
        return path

    def _give(self, path: str, acl: tuple[Acl, ...]) -> None:
        simulation = self.simulation
        simulation.model.write_by_hand(
            lambda transaction: transaction.set_acl(path, acl, -1), simulation.zookeeper.now_ms(), (OPERATOR,)
        )

    def _later(self, duration_s: float, relent: Callable[[], None]) -> None:
        self.simulation.repairs.append(relent)
        self.simulation.clock.call_later(duration_s, relent)
