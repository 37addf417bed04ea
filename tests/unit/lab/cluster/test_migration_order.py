"""Steps of a migration that come too early or too late are refused, before anything is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.lab.cluster.control import CommandError
from aiocontroller.lab.cluster.migrating import MigratingBroker, MigrationController, Mode
from aiocontroller.lab.cluster.migration_order import refuse_mode, refuse_release, refuse_to_finalize


class Kraft(MigrationController):
    """One that runs, or does not, without a process."""

    def __init__(self, *, running: bool = True, migrates: bool = True) -> None:
        super().__init__("", Path())
        self.is_running, self.migrates = running, migrates

    @property
    def running(self) -> bool:
        return self.is_running


STOPPED, FINALIZED = Kraft(running=False), Kraft(migrates=False)


@pytest.mark.parametrize(
    "mode, kraft, is_claimed, why",
    [
        (Mode.ZOOKEEPER, None, False, None),
        (Mode.ZOOKEEPER, Kraft(), False, None),  # the way back from before the claim
        (Mode.ZOOKEEPER, Kraft(), True, "zookeeper mode: found a cluster that a KRaft controller has claimed"),
        (Mode.ZOOKEEPER, STOPPED, True, "'aiocontroller migration rollback' undoes the claim"),
        (Mode.ZOOKEEPER, FINALIZED, True, "zookeeper mode: found a finalized migration"),
        (Mode.MIGRATION, None, False, "migration mode: found no KRaft controller"),
        (Mode.MIGRATION, Kraft(), False, None),
        (Mode.MIGRATION, Kraft(), True, None),
        (Mode.MIGRATION, STOPPED, True, None),  # between the end of the quorum and the rollback
        (Mode.MIGRATION, FINALIZED, True, "migration mode: found a finalized migration, expected --mode kraft"),
        (Mode.KRAFT, None, False, "kraft mode: found no KRaft controller"),
        (Mode.KRAFT, Kraft(), False, "kraft mode: found no claim of the KRaft controller, which waits for all brokers"),
        (Mode.KRAFT, Kraft(), True, None),
        (Mode.KRAFT, STOPPED, True, "kraft mode: found no KRaft controller, expected start-kraft-controller"),
        (Mode.KRAFT, STOPPED, False, "kraft mode: found no KRaft controller, expected start-kraft-controller"),
        (Mode.KRAFT, FINALIZED, True, None),
        (Mode.KRAFT, Kraft(running=False, migrates=False), True, "kraft mode: found no KRaft controller"),
    ],
)
def test_a_broker_starts_only_in_a_mode_in_which_it_can_serve(
    mode: Mode, kraft: Kraft | None, is_claimed: bool, why: str | None
) -> None:
    if why is None:
        refuse_mode(mode, kraft, is_claimed=is_claimed)
    else:
        with pytest.raises(CommandError, match=why):
            refuse_mode(mode, kraft, is_claimed=is_claimed)


def test_a_migration_is_finalized_once_and_only_from_kraft_mode(tmp_path: Path) -> None:
    brokers = {number: MigratingBroker(number, "", tmp_path) for number in (1, 2, 3)}
    brokers[2].mode = Mode.KRAFT
    with pytest.raises(CommandError, match="found brokers 1, 3 in another mode, expected all in kraft mode before it"):
        refuse_to_finalize(brokers, Kraft())
    for broker in brokers.values():
        broker.mode = Mode.KRAFT
    refuse_to_finalize(brokers, Kraft())
    with pytest.raises(CommandError, match="the migration is finalized already"):
        refuse_to_finalize(brokers, FINALIZED)


@pytest.mark.parametrize(
    "kafka, found",
    [
        (None, "simulated ones"),
        ("2.8.2", "those of Kafka 2.8.2"),
        ("3.8.1", "those of Kafka 3.8.1"),
        ("3.9.0", None),
        ("3.10.0", None),
    ],
)
def test_a_release_that_is_no_bridge_to_kraft_does_not_migrate(kafka: str | None, found: str | None) -> None:
    if found is None:
        refuse_release(kafka)
    else:
        with pytest.raises(CommandError, match=f"brokers: found {found}, which do not migrate; expected 'up --kafka"):
            refuse_release(kafka)
