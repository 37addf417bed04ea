"""Every watched path with every kind of event: the change it means, or none."""

import pytest

from aiocontroller.zookeeper.changes import ZNodeChange, translate
from aiocontroller.zookeeper.watches import CHANGED, CHILD, CREATED, DELETED

KINDS = (CREATED, DELETED, CHANGED, CHILD)
C = ZNodeChange
PARENTS = {
    "/brokers/ids": C.BROKER_IDS,
    "/brokers/topics": C.TOPICS,
    "/admin/delete_topics": C.TOPIC_DELETIONS,
    "/isr_change_notification": C.ISR_CHANGE,
    "/log_dir_event_notification": C.LOG_DIR_EVENT,
    "/config/changes": C.CONFIG_CHANGES,
}
EXPECTED = {
    **{(path, kind): (change, "") for path, change in PARENTS.items() for kind in (CREATED, DELETED, CHILD)},
    ("/controller", CREATED): (C.CONTROLLER_CHANGED, ""),
    ("/controller", CHANGED): (C.CONTROLLER_CHANGED, ""),
    ("/controller", DELETED): (C.CONTROLLER_DELETED, ""),
    ("/brokers/ids/12", CHANGED): (C.BROKER, "12"),
    ("/brokers/topics/a.b", CHANGED): (C.TOPIC, "a.b"),
    ("/brokers/topics/t-1/partitions/0/state", CHANGED): (C.PARTITION_STATE, "t-1-0"),
    ("/brokers/topics/a.b", DELETED): (C.TOPIC_DELETED, "a.b"),
    **{("/admin/reassign_partitions", kind): (C.REASSIGN_PARTITIONS, "") for kind in (CREATED, DELETED, CHANGED)},
    **{("/admin/preferred_replica_election", kind): (C.PREFERRED_ELECTION, "") for kind in (CREATED, DELETED, CHANGED)},
}
PATHS = (
    *PARENTS,
    "/controller",
    "/controller_epoch",
    "/brokers/ids/12",
    "/brokers/topics/a.b",
    "/brokers/topics/t/partitions",
    "/brokers/topics/t-1/partitions/0/state",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics/t",
    "/isr_change_notification/isr_change_0",
    "/",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_translation(path, kind):
    assert translate(kind, path) == EXPECTED.get((path, kind))


def test_session_events_mean_nothing():
    assert translate(-1, "") is None


def test_every_change_can_happen():
    assert {change for change, _ in EXPECTED.values()} == set(ZNodeChange)
