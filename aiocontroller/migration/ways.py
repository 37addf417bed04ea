"""What an operator does next in each phase, and how to go back from it, in words and commands."""

from __future__ import annotations

from aiocontroller.migration.view import MigrationPhase

_STOP = "stop all KRaft controllers"
_OUT_OF_MIGRATION_MODE = (
    "restart the brokers one by one without zookeeper.metadata.migration.enable, controller.quorum.voters and "
    "controller.listener.names"
)
_ROLLBACK = (
    _STOP,
    "aiocontroller migration check --before rollback",
    "aiocontroller migration rollback --dry-run    # on a running aiocontroller, which may be a standby",
    "aiocontroller migration rollback",
    _OUT_OF_MIGRATION_MODE,
    "aiocontroller release    # if a broker is to be the controller again",
)
_OUT_OF_KRAFT_MODE = (
    "restart the brokers that are in KRaft mode one by one in migration mode: broker.id and zookeeper.* again, without "
    "process.roles and node.id"
)
_INTO_KRAFT_MODE = (
    "restart the brokers one by one in KRaft mode: process.roles=broker and node.id in the place of broker.id, without "
    "zookeeper.* and inter.broker.protocol.version"
)

NEXT_STEPS: dict[MigrationPhase, tuple[str, ...]] = {
    MigrationPhase.NOT_BEGUN: (
        "aiocontroller migration check",
        "set inter.broker.protocol.version=3.9, and restart the brokers one by one",
        "kafka-storage format --cluster-id CLUSTER --config controller.properties    # on each KRaft controller",
        "start the KRaft controllers, with zookeeper.metadata.migration.enable=true and zookeeper.connect",
    ),
    MigrationPhase.WAITING: (
        "aiocontroller migration hand-over    # if aiocontroller holds the role",
        "restart the brokers one by one with zookeeper.metadata.migration.enable=true, controller.quorum.voters and "
        "controller.listener.names; after the last one the KRaft controller claims the cluster",
    ),
    MigrationPhase.COPYING: ("wait until the copy is complete: aiocontroller migration watch --until dual-write",),
    MigrationPhase.DUAL_WRITE: ("aiocontroller migration check", _INTO_KRAFT_MODE),
    MigrationPhase.MOVING_BROKERS: (_INTO_KRAFT_MODE,),
    MigrationPhase.READY_TO_FINALIZE: (
        "aiocontroller migration check --before finalizing",
        "restart the KRaft controllers one by one without zookeeper.metadata.migration.enable and zookeeper.connect: "
        "there is no way back after that",
    ),
    MigrationPhase.FINALIZED: ("stop ZooKeeper", "raise metadata.version when you are content: kafka-features upgrade"),
    MigrationPhase.ROLLED_BACK: (
        _STOP,
        "aiocontroller migration rollback    # it also raises the epoch above everything that KRaft has written",
    ),
}

WAY_BACK: dict[MigrationPhase, tuple[str, ...]] = {
    MigrationPhase.NOT_BEGUN: (),
    MigrationPhase.WAITING: (
        _STOP,
        "zookeeper-shell ZOOKEEPER delete /migration",
        _OUT_OF_MIGRATION_MODE,
    ),
    MigrationPhase.COPYING: _ROLLBACK,
    MigrationPhase.DUAL_WRITE: _ROLLBACK,
    MigrationPhase.MOVING_BROKERS: (_OUT_OF_KRAFT_MODE, *_ROLLBACK),
    MigrationPhase.READY_TO_FINALIZE: (_OUT_OF_KRAFT_MODE, *_ROLLBACK),
    MigrationPhase.FINALIZED: (),
    MigrationPhase.ROLLED_BACK: (),
}
"""Empty where there is no way back, or none is needed."""
