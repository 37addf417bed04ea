"""The settings of a plan's brokers, which may differ and change, and what a controller must make of them.

This module implements the rules a second time, as simply as docs/operating.md states them, without the controller's
code:

 * a broker's value comes from ``/config/brokers/N``, otherwise ``/config/brokers/<default>``, otherwise its file;
 * the value of most brokers counts; in a tie, the least harmful one;
 * a controller with a value of its own that no broker has does not take the role while it knows brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from aiocontroller.lab.scenarios.plan import DELETION, DRAWN, UNCLEAN, Plan

if TYPE_CHECKING:
    from aiocontroller.controller.cluster_settings import ClusterSettings
    from aiocontroller.lab.zookeeper.zookeeper_tree import ZNode

DEFAULT_ENTITY = "<default>"
IMBALANCE_CHECK = {"leader.imbalance.check.interval.seconds": "20"}
"""In the file of each simulated broker, unless the plan says otherwise; Kafka's default is too long for a seed."""
DEFAULTS = IMBALANCE_CHECK | {
    UNCLEAN: "false",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.per.broker.percentage": "10",
    "num.partitions": "1",
    DELETION: "true",
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "controller.quota.window.num": "11",
}
"""The values of simulated brokers whose file does not say otherwise."""


class BrokerSettings:
    """``files`` change when a broker gets a new file; ``nodes`` returns ZooKeeper's present znodes."""

    def __init__(self, plan: Plan, nodes: Callable[[], Mapping[str, ZNode]]) -> None:
        self._nodes = nodes
        self.files = {
            broker: dict(plan.settings) | of_number(plan.broker_settings, broker)
            for broker in range(1, plan.brokers + 1)
        }
        self.controllers = {
            controller: of_number(plan.controller_settings, controller) for controller in range(1, plan.controllers + 1)
        }
        """The settings in the controllers' own files."""
        self._ever = {name: set(self._values(name).values()) for name in DRAWN}

    def ever(self, name: str) -> set[str]:
        """Return every value that some broker may have had; each change adds its value."""
        return self._ever[name]

    def wrong(self, settings: ClusterSettings) -> list[str]:
        """Return how a controller's settings differ from what they must be after all brokers have answered."""
        found = []
        for name in DRAWN:
            values = self._values(name)
            expected, here = self.counts(name), settings[name]
            if here.value != expected:
                found.append(f"settings: {name} is {here.value} here, brokers have {values}: {expected} counts")
            if here.differs != (len(set(values.values())) > 1):
                found.append(
                    f"settings: {name} is to {'differ' if here.differs else 'be alike'}, and brokers have {values}"
                )
        return found

    def forbidden(self, controller: int) -> list[str]:
        """Return the settings in this controller's file with values that no broker has ever had.

        Settings that brokers do not have are left to the controller.
        """
        file = self.controllers[controller]
        return [f"{name} {value}" for name, value in file.items() if name in DRAWN and value not in self.ever(name)]

    def counts(self, name: str) -> str:
        votes = Counter(self._values(name).values())
        most = max(votes.values())
        return min((value for value in votes if votes[value] == most), key=DRAWN[name].index)

    def _values(self, name: str) -> dict[int, str]:
        of_all = self._dynamic(DEFAULT_ENTITY)
        return {
            broker: (DEFAULTS | file | of_all | self._dynamic(str(broker)))[name] for broker, file in self.files.items()
        }

    def _dynamic(self, entity: str) -> dict[str, str]:
        node = self._nodes().get(f"/config/brokers/{entity}")
        found: dict[str, str] = msgspec.json.decode(node.data)["config"] if node is not None and node.data else {}
        return found


def of_number(settings: Iterable[tuple[str, str]], number: int) -> dict[str, str]:
    """Return the settings of one process: ``2/delete.topic.enable`` belongs to process 2."""
    found = ((name.partition("/"), value) for name, value in settings)
    return {name: value for (of, _, name), value in found if of == str(number)}
