"""The order of a migration's steps, as far as the cluster of ``up`` keeps it.

Kafka lets an operator take a step too early: then a broker in KRaft mode waits for a claim until it is given up, and a
finalized quorum has lost the brokers that are not in KRaft mode for good.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiocontroller.core.text import brokers_named
from aiocontroller.lab.cluster.control import CommandError
from aiocontroller.lab.cluster.migrating import MigratingBroker, MigrationController, Mode
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

RELEASE = (3, 9)
"""The first that leads to KRaft by the way of ``docs/leaving.md``."""


def refuse_release(kafka: str | None) -> None:
    """Raise CommandError unless these brokers, of a full version, migrate; None: simulated ones."""
    if kafka is None or tuple(map(int, kafka.split(".")))[:2] < RELEASE:
        found = "simulated ones" if kafka is None else f"those of Kafka {kafka}"
        raise CommandError(f"brokers: found {found}, which do not migrate; expected 'up --kafka 3.9'")


async def claimed(zk: KafkaZkClient) -> bool:
    """Whether a KRaft controller has claimed the cluster; still true after it has gone, until a rollback."""
    return getattr(await zk.get_controller(watch=False), "kraft_controller_epoch", -1) > 0


def refuse_mode(mode: Mode, kraft: MigrationController | None, *, is_claimed: bool) -> None:
    """Raise CommandError if a broker that starts in this mode would not serve."""
    if kraft is not None and not kraft.migrates:
        if mode is not Mode.KRAFT:
            raise CommandError(f"{mode} mode: found a finalized migration, expected --mode kraft: there is no way back")
    elif mode is Mode.ZOOKEEPER and is_claimed:
        raise CommandError(
            "zookeeper mode: found a cluster that a KRaft controller has claimed, expected --mode migration or kraft; "
            "'aiocontroller migration rollback' undoes the claim"
        )
    elif mode is Mode.KRAFT and kraft is not None and kraft.running and not is_claimed:
        raise CommandError(
            "kraft mode: found no claim of the KRaft controller, which waits for all brokers in migration mode; "
            "'aiocontroller migration check' says for which"
        )
    if mode is not Mode.ZOOKEEPER and (kraft is None or (mode is Mode.KRAFT and not kraft.running)):
        raise CommandError(f"{mode} mode: found no KRaft controller, expected start-kraft-controller before it")


def refuse_to_finalize(brokers: Mapping[int, MigratingBroker], kraft: MigrationController) -> None:
    """Raise CommandError if the end of the migration has come already, or too early."""
    if not kraft.migrates:
        raise CommandError("the migration is finalized already")
    if others := sorted(number for number, broker in brokers.items() if broker.mode is not Mode.KRAFT):
        raise CommandError(
            f"finalize-migration: found {brokers_named(others)} in another mode, expected all in kraft mode before it: "
            "afterwards there is no way back"
        )
