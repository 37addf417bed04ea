"""Feature versions (KIP-584): the ``/feature`` znode at failover, and ``UpdateFeatures``.

No feature of Kafka 3.9 exists in ZooKeeper mode, so every update is refused; but brokers from
inter.broker.protocol.version 2.7 on wait for the znode to say whether versioning is on.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import UpdateFeatures
from aiocontroller.zookeeper.cluster_znodes import FEATURES_DISABLED, FEATURES_ENABLED, FeatureZNode
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3


async def set_up_feature_versioning(shell: ControllerShell) -> None:
    """Set ``/feature`` to on, or to off below inter.broker.protocol.version 2.7; feature levels are kept while on.

    The znode is not created where all brokers are older than 2.7, since none of them knows it.
    """
    config = shell.policy
    status = FEATURES_ENABLED if config.feature_versioning_supported else FEATURES_DISABLED
    for _attempt in range(_MAX_ATTEMPTS):
        found, version = await shell.zk.get_feature()
        if isinstance(found, BadZNode):
            shell.report_bad_znodes([found])
            return
        if found is None and shell.settings.every_release_is_older_than((2, 7, 0)):
            return
        kept = found.features if found is not None and found.status == status == FEATURES_ENABLED else {}
        if found is not None and found.features and not kept:
            log.warning("Feature versioning changes: the levels %s are dropped", found.features)
        wanted = FeatureZNode(config.feature_znode_version, status, kept)
        if wanted == found or await shell.zk.set_feature(wanted, version, fence=shell.context.epoch_zk_version):
            return
    log.warning("/feature changed %d times meanwhile and is left as it is", _MAX_ATTEMPTS)


async def update_features(shell: ControllerShell, event: UpdateFeatures) -> None:
    """Refuse each update: in ZooKeeper mode brokers support no feature."""
    message = "Could not apply the update: no feature is supported by brokers in ZooKeeper mode."
    event.reply.answer(dict.fromkeys(event.updates, (KafkaErrorCode.INVALID_REQUEST, message)))
