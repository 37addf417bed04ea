"""Writes topics' assignments to their znodes, together with the debts that a change adds or removes.

Each topic is one atomic write, conditional on the version that was read, so that concurrent additions are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aiocontroller.controller import debts
from aiocontroller.controller.leadership_writes import TOPIC_REPLACED, is_different_topic
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.debts import Changes
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment
from aiocontroller.core.reassignment import debts_of, no_longer_owed
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.errors import CONFLICTS, TOO_LARGE, Code, is_refusal
from aiocontroller.zookeeper.znode_access import answered
from aiocontroller.zookeeper.znodes import topic_znode_bytes

MAX_ATTEMPTS = 16


async def write_assignments(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment], removed: Mapping[int, Sequence[int]]
) -> dict[int, str]:
    """Merge the partitions' assignments into each topic's znode, one write per topic; returns the failures.

    A topic that was created again under the same name is left as it is: the partitions are those of the earlier one.

    The same step adds debts for ``removed`` (row -> brokers), and drops the debts of replicas that are wanted again.
    """
    table = shell.context.table
    by_topic: dict[str, dict[int, int]] = {}
    for row in wanted:
        by_topic.setdefault(table.topic(row).name, {})[table.index_of[row]] = row
    changes = debts_of(shell.context, removed)
    for debt in no_longer_owed(shell.context, wanted):
        changes.forget(debt)
    failed: dict[int, str] = {}
    for _attempt in range(MAX_ATTEMPTS):
        if not by_topic:
            return failed
        read = await shell.zk.get_topic_assignments(list(by_topic), watch=False)
        shell.report_bad_znodes(read.bad)
        found = {assignment.topic: assignment for assignment in read.found}
        for topic, assignment in found.items():
            if await is_different_topic(shell, table.topic_by_name[topic], assignment.topic_id):
                failed |= dict.fromkeys(by_topic.pop(topic).values(), TOPIC_REPLACED)
                shell.auditor.check_soon((topic,))
        for topic in [t for t in by_topic if t not in found]:
            failed |= dict.fromkeys(by_topic.pop(topic).values(), "its topic znode is gone or cannot be read")
        changed = [
            msgspec.structs.replace(
                found[topic], partitions=found[topic].partitions | {n: wanted[row] for n, row in numbers.items()}
            )
            for topic, numbers in by_topic.items()
        ]
        codes = await _write_topics(shell, changed, changes)
        for assignment in changed:
            if codes[assignment.topic] == Code.OK:
                del by_topic[assignment.topic]
            elif codes[assignment.topic] == TOO_LARGE:
                rows = by_topic.pop(assignment.topic).values()
                failed |= dict.fromkeys(rows, too_large(assignment.topic, topic_znode_bytes(assignment), len(rows)))
            elif is_refusal(code := codes[assignment.topic]):
                rows = by_topic.pop(assignment.topic).values()
                failed |= dict.fromkeys(rows, _refused(assignment.topic, code, changes))
    for numbers in by_topic.values():
        failed |= dict.fromkeys(numbers.values(), f"its topic znode changed {MAX_ATTEMPTS} times meanwhile")
    return failed


async def _write_topics(shell: ControllerShell, changed: Sequence[TopicAssignment], changes: Changes) -> dict[str, int]:
    """Write topic znodes, together with their debts where these change; returns ZooKeeper's code by topic."""
    fence = shell.context.epoch_zk_version
    concerned = changes.topics()
    with_debts = {a.topic: changes.wanted(a.topic) for a in changed if a.topic in concerned}
    plain = [assignment for assignment in changed if not with_debts.get(assignment.topic)]
    writes = await shell.zk.set_topic_assignments(plain, fence=fence)
    codes = {assignment.topic: int(code) for assignment, code in zip(plain, writes.code, strict=True)}
    groups = [(a, await debts.prepared(shell, wanted)) for a in changed if (wanted := with_debts.get(a.topic))]
    codes |= {assignment.topic: debts.parent_refused(shell, owed) or int(TOO_LARGE) for assignment, owed in groups}
    fitting = [
        (assignment, owed)
        for assignment, owed in groups
        if codes[assignment.topic] == TOO_LARGE and topic_znode_bytes(assignment) <= MAX_DATA_BYTES
    ]
    if fitting:
        results = await shell.zk.debts.write_with_topics(fitting, fence=fence)
        for (assignment, owed), code in zip(fitting, results, strict=True):
            codes[assignment.topic] = code
            if code == Code.OK:
                debts.written(shell, owed, "reassigned")
            elif code in CONFLICTS:
                await debts.read_again(shell, owed)
    return codes


def too_large(topic: str, size: int, partitions: int) -> str:
    """Why an assignment is not written: its znode would have ``size`` bytes."""
    return (
        f"the znode of topic {topic!r} would have {size} bytes with {partitions} more reassignments in progress, "
        f"{MAX_DATA_BYTES} fit: reassign fewer of them at a time"
    )


def _refused(topic: str, code: int, changes: Changes) -> str:
    """ZooKeeper does not say which of the znodes in a multi it refused, so this names all of them."""
    together = "".join(f", written with {paths.debts(*key)}" for key in list(changes.wanted(topic))[:5])
    return answered(paths.topic(topic), code) + together
