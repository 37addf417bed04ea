"""Changes of brokers' settings: in their files, with a restart, or dynamically, as kafka-configs makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocontroller.lab.scenarios.arguments import StepArgumentError, known_number
from aiocontroller.lab.scenarios.plan import DELETION, DRAWN, UNCLEAN
from aiocontroller.lab.simulation.broker_settings import DEFAULT_ENTITY
from aiocontroller.lab.simulation.steps.releases import Restarts

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation


class SettingSteps(Restarts):
    """Steps that change the settings that controllers obey."""

    async def step_configure_broker(self) -> None:
        """Restart a broker with one setting changed in its file."""
        simulation = self.simulation
        broker = self._broker()
        name, value = self._change(*DRAWN)
        announce(simulation, name, value)
        file = simulation.settings.files[broker]
        if file.get(name) == value:
            return
        file[name] = value
        simulation.history.probe("a broker's file is changed")
        await self._restart(broker)

    async def step_alter_broker_configs(self) -> None:
        """Set one dynamic setting of a broker or of all brokers; an empty value removes it."""
        simulation = self.simulation
        entity = self._given.take("broker")
        if entity is None:
            entity = self.chance.choice((DEFAULT_ENTITY, 1, 2))
        if entity != DEFAULT_ENTITY:
            known_number(entity, simulation.fleet.brokers)
        name, value = self._change(UNCLEAN)
        if name != UNCLEAN:
            raise StepArgumentError(f"found {name}, expected {UNCLEAN}: others cannot be changed while brokers run")
        if value and not self._named and self.chance.random() < 0.3:
            value = ""
        announce(simulation, name, value)
        simulation.history.probe("a dynamic setting is changed")
        configs = {name: value} if value else {}
        await self._administer(simulation.admin.change_entity_configs("brokers", str(entity), configs))

    def _broker(self) -> int:
        brokers = sorted(self.simulation.fleet.brokers)
        named = self._given.take("broker")
        return self.chance.choice(brokers) if named is None else known_number(named, brokers)

    def _change(self, *names: str) -> tuple[str, str]:
        """Return the setting that the step names, otherwise one of these."""
        setting: tuple[str, str] | None = self._given.take("setting")
        self._named = setting is not None
        if setting is not None:
            name, value = setting
            if name not in DRAWN or (value and value not in DRAWN[name]):
                known = " ".join(f"{name}:{'|'.join(values)}" for name, values in DRAWN.items())
                raise StepArgumentError(f"found {name}:{value}, expected one of {known}")
            return name, value
        name = self.chance.choice(names)
        return name, self.chance.choice(DRAWN[name])


def announce(simulation: Simulation, name: str, value: str) -> None:
    """Record that brokers may have this value from now on, so what it allows is no violation."""
    simulation.settings.ever(name).add(value)
    if (name, value) == (UNCLEAN, "true"):
        simulation.history.unclean.by_default = True
    if (name, value) == (DELETION, "true"):
        simulation.history.deletion_forbidden = False
