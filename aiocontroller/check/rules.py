"""The rules of ``check``.  Each yields hits in the tree of znodes; all are pure, and none needs a broker.

``min.insync.replicas`` is the topic's own, else the dynamic default of all brokers, else 1, since brokers' files are
not in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from shlex import quote

import msgspec

from aiocontroller.check.findings import Hit
from aiocontroller.core.ids import NO_LEADER, NO_TOPIC_ID, RECOVERING, ReplicaAssignment
from aiocontroller.core.text import brokers_named, not_registered, plural
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition
from aiocontroller.zookeeper.topic_configs import TOPIC_CONFIGS
from aiocontroller.zookeeper.znode_access import SHOWN
from aiocontroller.zookeeper.znode_json import excerpt

Rule = Callable[[ClusterTree], Iterator[Hit]]

MANY_NOTIFICATIONS = 100
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
ELECT_UNCLEAN = "aiocontroller elect --unclean --topic {topic}, which loses what only the dead replicas hold"


def all_hits(tree: ClusterTree) -> list[Hit]:
    """Return the hits of all rules, rule by rule."""
    converted = _with_old_moves(tree)
    return list(chain.from_iterable(rule(converted) for rule in RULES))


def _with_old_moves(tree: ClusterTree) -> ClusterTree:
    """Return the tree with the reassignments of a controller older than 2.4 in the form that later controllers write.

    Such a controller adds the new replicas to the assignment without recording which ones are new, waits for them, and
    finally removes the old replicas and the request.
    """
    if not tree.reassignment:
        return tree
    partitions = []
    for partition in tree.partitions:
        replicas, target = partition.assignment.replicas, tree.reassignment.get(partition.name, ())
        if target and set(target) < set(replicas) and not partition.assignment.being_reassigned:
            isr = () if partition.state is None else partition.state.isr
            adding = tuple(broker for broker in target if broker not in isr)
            removing = tuple(broker for broker in replicas if broker not in target)
            partition = partition._replace(assignment=ReplicaAssignment(replicas, adding, removing))
        partitions.append(partition)
    return msgspec.structs.replace(tree, partitions=partitions)


def _state(partition: Partition) -> str:
    return paths.topic_partition_state(*partition.name)


def _remedy_for_absent(away: Collection[int], tree: ClusterTree) -> str:
    """Return the remedy for replicas on ids that are not registered; an aiocontroller never registers as a broker."""
    ours = tree.known_controllers.intersection(away)
    brokers = set(away).difference(ours)
    remedies = []
    if brokers:
        remedies.append(f"start broker {_names(brokers)}, or move its replicas: aiocontroller reassign")
    if ours:
        remedies.append(f"{_names(ours)} is an aiocontroller, not a broker: aiocontroller migration move-replicas")
    return "; ".join(remedies)


def _names(brokers: object) -> str:
    return ", ".join(map(str, sorted(brokers)))  # type: ignore[call-overload]


# -- the cluster -------------------------------------------------------------------------------------------------------


def controller(tree: ClusterTree) -> Iterator[Hit]:
    """A missing ``/controller``, and one that would stay if its controller died.

    In a migration a KRaft controller's ``/controller`` is persistent, and names its epoch.
    """
    if tree.holder is None:
        yield Hit(
            "no-controller",
            "the cluster",
            paths.CONTROLLER,
            f"{paths.CONTROLLER} does not exist, or cannot be read; the last epoch was {tree.controller_epoch}",
            "start a broker, or aiocontroller run; read the logs of those that run",
        )
    elif not tree.holder.owner_session and (tree.holder.kraft_controller_epoch < 0 or tree.migration is None):
        yield Hit(
            "controller-without-session",
            "the cluster",
            paths.CONTROLLER,
            f"{paths.CONTROLLER} names {tree.holder.controller_id} and is not ephemeral",
            f"delete {paths.CONTROLLER}: the brokers, or a standby, elect a controller at once",
        )


def epochs(tree: ClusterTree) -> Iterator[Hit]:
    """States with a higher epoch than ``/controller_epoch``.  A KRaft controller writes its own epoch into states."""
    of_kraft = tree.holder is not None and tree.holder.kraft_controller_epoch > 0
    if of_kraft or any(bad.path == paths.CONTROLLER_EPOCH for bad in tree.bad):
        return
    for partition in tree.partitions:
        if partition.state is not None and partition.state.controller_epoch > tree.controller_epoch:
            yield Hit(
                "epoch-regression",
                str(partition.name),
                _state(partition),
                f"controller epoch {partition.state.controller_epoch}, and {paths.CONTROLLER_EPOCH} is "
                f"{tree.controller_epoch}",
                "have aiocontroller take the role over: it raises the epoch above all states",
            )


def unreadable(tree: ClusterTree) -> Iterator[Hit]:
    """Damaged znodes, and those that this process may not read."""
    for bad in tree.bad:
        if bad.expected == SHOWN:
            kind = "defaults-not-shown" if bad.path.startswith(paths.config_entities("brokers")) else "not-shown"
            remedy = "name credentials in AIOCONTROLLER_ZOOKEEPER_…, as for a controller"
            yield Hit(kind, bad.path, bad.path, bad.found, remedy)
            continue
        why = f"found {bad.found}, expected {bad.expected}"
        yield Hit("unreadable", bad.path, bad.path, why, f"repair or delete it: get {bad.path}, then set or delete it")


# -- partitions --------------------------------------------------------------------------------------------------------


def leaders(tree: ClusterTree) -> Iterator[Hit]:
    """Partitions that clients cannot use."""
    live = tree.live
    for partition in _not_deleting(tree):
        name, state = partition.name, partition.state
        if state is None:
            if name in tree.without_state:
                remedy = (
                    _remedy_for_absent(set(partition.assignment.replicas) - live, tree)
                    if (live.isdisjoint(partition.assignment.replicas))
                    else "the controller creates it; if it does not: aiocontroller takeover, or restart the controller"
                )
                yield Hit("never-led", str(name), paths.topic(name.topic), "there is no state znode", remedy)
        elif state.leader not in live:
            alive = [broker for broker in state.isr if broker in live and broker in partition.assignment.replicas]
            dead = _names(set(state.isr) - live)
            if alive:
                yield Hit(
                    "not-elected",
                    str(name),
                    _state(partition),
                    f"leader {state.leader}, although {_names(alive)} of the ISR is alive",
                    f"aiocontroller elect --unclean --topic {quote(name.topic)}, which prefers replicas in sync; or "
                    "have aiocontroller take over, which elects at once",
                )
            else:
                problem = (
                    "no leader" if state.leader == NO_LEADER else f"leader {state.leader}, which is not registered"
                )
                yield Hit(
                    "offline",
                    str(name),
                    _state(partition),
                    f"it has {problem}; in sync: {dead or 'no replica'}, not registered",
                    f"start broker {dead}; if it never returns: " + ELECT_UNCLEAN.format(topic=quote(name.topic)),
                )


def in_sync(tree: ClusterTree) -> Iterator[Hit]:
    """Partitions with too few replicas in sync, or just enough.

    As in Kafka, a reassignment's new replicas do not count as missing while the original ones are in sync, nor do the
    original ones once the target is in sync.
    """
    live, minimum = tree.live, min_isr(tree)
    for partition in _not_deleting(tree):
        name, state, assignment = partition.name, partition.state, partition.assignment
        if state is None or state.leader not in live:
            continue
        wanted, alive = minimum[name.topic], [broker for broker in state.isr if broker in live]
        target = assignment.target
        late = set(target).difference(alive)
        missing = min(late, set(assignment.origin).difference(alive), key=len)
        if wanted > len(target) > 0:
            pass  # reported as min-isr-above-replicas
        elif len(alive) < wanted:
            yield Hit(
                "under-min-isr",
                str(name),
                _state(partition),
                f"{len(alive)} in sync, {MIN_ISR} is {wanted}",
                _remedy_for_absent(late, tree) if late.isdisjoint(live) else _slow(late & live),
            )
        elif missing and len(alive) == wanted > 1:
            yield Hit(
                "at-min-isr",
                str(name),
                _state(partition),
                f"{len(alive)} in sync, {MIN_ISR} is {wanted}, {len(target)} replicas",
                _remedy_for_absent(missing, tree) if missing.isdisjoint(live) else _slow(missing & live),
            )
        if missing:
            away = missing - live
            why = (
                f"broker {_names(away)} is not registered"
                if away
                else f"broker {_names(missing)} is alive, not in sync"
            )
            yield Hit(
                "under-replicated",
                str(name),
                _state(partition),
                why,
                _remedy_for_absent(away, tree) if away else _slow(missing),
            )
        if missing and len(alive) == 1 < len(target):
            yield Hit(
                "lost-with-a-broker",
                str(name),
                _state(partition),
                f"only broker {alive[0]} is in sync",
                f"do not stop broker {alive[0]}; bring the others back first",
            )


def _slow(brokers: object) -> str:
    return f"look at the logs, disks and network of broker {_names(brokers)}"


def _not_deleting(tree: ClusterTree) -> Iterator[Partition]:
    """The partitions of topics that are not being deleted."""
    deleting = set(tree.deletions)
    return (partition for partition in tree.partitions if partition.name.topic not in deleting)


def consistency(tree: ClusterTree) -> Iterator[Hit]:
    """States and assignments that contradict themselves."""
    for partition in tree.partitions:
        name, state, replicas = partition.name, partition.state, partition.assignment.replicas
        if not replicas or len(set(replicas)) != len(replicas):
            yield Hit(
                "damaged-assignment",
                str(name),
                paths.topic(name.topic),
                f"replicas {list(replicas)}",
                "restore the topic's znode from a backup, with each replica once",
            )
        if state is None:
            continue
        if state.leader != NO_LEADER and state.leader not in state.isr:
            yield Hit(
                "leader-outside-isr",
                str(name),
                _state(partition),
                f"leader {state.leader}, ISR {list(state.isr)}",
                "reassign the partition to the same replicas, which elects among them",
            )
        if non_replicas := set(state.isr) - set(replicas):
            yield Hit(
                "isr-outside-replicas",
                str(name),
                _state(partition),
                f"ISR {list(state.isr)}, replicas {list(replicas)}",
                f"reassign the partition, with broker {_names(non_replicas)} or without",
            )


def racks(tree: ClusterTree) -> Iterator[Hit]:
    """Partitions with all replicas in one rack, if every broker has a rack and there are several racks."""
    rack = {broker.id: broker.rack for broker in tree.brokers.values()}
    in_use = set(rack.values())
    if None in in_use or len(in_use) < 2:
        return
    for partition in _not_deleting(tree):
        replicas = partition.assignment.target
        own = {rack.get(broker) for broker in replicas}
        if len(replicas) > 1 and len(own) == 1 and None not in own:
            yield Hit(
                "lost-with-a-rack",
                str(partition.name),
                paths.topic(partition.name.topic),
                f"all replicas are in rack {own.pop()}",
                "move one to another rack: aiocontroller reassign",
            )


def notable(tree: ClusterTree) -> Iterator[Hit]:
    """Harmless facts that an operator may want to know."""
    live = tree.live
    for partition in _not_deleting(tree):
        name, state, replicas = partition.name, partition.state, partition.assignment.replicas
        if len(partition.assignment.target) == 1:
            why = "its assignment names one broker"
            remedy = "add a replica: aiocontroller reassign"
            yield Hit("single-replica", str(name), paths.topic(name.topic), why, remedy)
        if state is None:
            continue
        if state.recovery_state == RECOVERING:
            why = "its leader was elected from outside the ISR"
            yield Hit("recovering", str(name), _state(partition), why, _slow((state.leader,)))
        if replicas and state.leader in live and state.leader != replicas[0] and replicas[0] in state.isr:
            why = f"broker {replicas[0]} is preferred and in sync"
            yield Hit("not-preferred", str(name), _state(partition), why, "aiocontroller elect --preferred --all")


# -- brokers -----------------------------------------------------------------------------------------------------------


def absent(tree: ClusterTree) -> Iterator[Hit]:
    """Brokers that have replicas but are not registered."""
    counts: dict[int, int] = {}
    live = tree.live
    for partition in tree.partitions:
        for broker in partition.assignment.replicas:
            if broker not in live:
                counts[broker] = counts.get(broker, 0) + 1
    for broker, count in sorted(counts.items()):
        yield Hit(
            "broker-away",
            f"broker {broker}",
            paths.broker_id(broker),
            f"it has {plural(count, 'replica')}",
            _remedy_for_absent((broker,), tree),
        )


# -- topics ------------------------------------------------------------------------------------------------------------


def min_isr(tree: ClusterTree, defaults: Mapping[str, str] | None = None) -> dict[str, int]:
    """Topic -> its ``min.insync.replicas``; ``defaults`` replace the dynamic defaults of all brokers."""
    default = _number(tree.broker_configs.get(paths.DEFAULT_ENTITY, {}) if defaults is None else defaults, 1)
    return {name: _number(tree.topic_configs.get(name, {}), default) for name in tree.topics}


def _number(configs: Mapping[str, str], default: int) -> int:
    text = configs.get(MIN_ISR, "")
    return int(text) if is_valid(MIN_ISR, text) else default


def is_valid(name: str, value: str) -> bool:
    """Whether a broker can read this value of a topic's setting; brokers ignore settings that they do not know."""
    return name not in TOPIC_CONFIGS or TOPIC_CONFIGS[name].rule(value) is None


def is_true(configs: Mapping[str, str], name: str) -> bool:
    """Whether a setting is present and true, ignoring case, as Kafka does."""
    return configs.get(name, "").strip().lower() == "true"


def topics(tree: ClusterTree) -> Iterator[Hit]:
    """Topics that contradict themselves or each other."""
    minimum, ids = min_isr(tree), dict[bytes, str]()
    with_ids = any(topic.topic_id != NO_TOPIC_ID for topic in tree.topics.values())
    for name, topic in tree.topics.items():
        path, numbers = paths.topic(name), set(topic.partitions)
        least = min((len(a.target) for a in topic.partitions.values()), default=0)
        if least and minimum[name] > least:
            yield Hit(
                "min-isr-above-replicas",
                name,
                paths.config_entity("topics", name),
                f"{MIN_ISR} is {minimum[name]}, a partition has {least} replicas",
                f"aiocontroller topics alter {quote(name)} --config {MIN_ISR}={least}, or add replicas",
            )
        if topic.topic_id == NO_TOPIC_ID:
            if with_ids:
                remedy = "the next controller of 2.8 or later, or aiocontroller, gives it one"
                yield Hit("topic-without-id", name, path, "its znode has no topic_id", remedy)
        elif (other := ids.setdefault(topic.topic_id, name)) != name:
            why = f"topic {other} has the same id"
            yield Hit("duplicate-topic-id", name, path, why, f"delete {name} or {other}, and create it again")
        if not numbers:
            remedy = "write its partitions into the topic's znode, or delete the topic"
            yield Hit("damaged-assignment", name, path, "it has no partitions", remedy)
        if numbers != set(range(len(numbers))):
            gaps = sorted(set(range(max(numbers) + 1)) - numbers)
            remedy = "write the missing partitions into the topic's znode, with their replicas"
            yield Hit("partition-gap", name, path, f"without partition {_names(gaps[:10])}", remedy)
        expected = set(map(str, numbers))
        for child in tree.znodes_below.get(name, ()):
            if child not in expected:
                stray = f"{paths.topic_partitions(name)}/{child}"
                yield Hit("stray-partition", f"{name}-{child}", stray, "the topic's znode does not name it",
                          f"deleteall {stray}, once no broker holds it")  # fmt: skip


def configs(tree: ClusterTree) -> Iterator[Hit]:
    """Settings below ``/config/topics``."""
    unread = {bad.path for bad in tree.bad}
    for name, found in tree.topic_configs.items():
        path = paths.config_entity("topics", name)
        if name not in tree.topics and found and paths.topic(name) not in unread:
            yield Hit("stray-config", name, path, f"there is no topic {name}", f"delete {path}")
            continue
        for key in sorted(key for key, value in found.items() if not is_valid(key, value)):
            why = f"{key} is {excerpt(found[key].encode())}, expected {TOPIC_CONFIGS[key].rule(found[key])}"
            yield Hit(
                "invalid-setting", name, path, why, f"aiocontroller topics alter {quote(name)} --delete-config {key}"
            )
        if is_true(found, UNCLEAN):
            remedy = f"aiocontroller topics alter {quote(name)} --delete-config {UNCLEAN}"
            yield Hit("unclean-elections", name, path, "by its own setting", remedy)
    path = paths.config_entity("brokers", paths.DEFAULT_ENTITY)
    if is_true(tree.broker_configs.get(paths.DEFAULT_ENTITY, {}), UNCLEAN):
        remedy = f"kafka-configs --entity-type brokers --entity-default --alter --delete-config {UNCLEAN}"
        yield Hit("unclean-elections", "all topics without a setting of their own", path, "by the default", remedy)


# -- what operators asked for ------------------------------------------------------------------------------------------


def deletions(tree: ClusterTree) -> Iterator[Hit]:
    """Topics that are still to be deleted, and what they wait for."""
    for name in tree.deletions:
        path, topic = paths.delete_topics_topic(name), tree.topics.get(name)
        if topic is None:
            why, remedy = "there is no such topic", "the controller removes the request; restart it if it does not"
        else:
            hosts = {broker for a in topic.partitions.values() for broker in a.replicas}
            moving = any(a.being_reassigned for a in topic.partitions.values())
            away = hosts - tree.live
            if away:
                why, remedy = not_registered(sorted(away)), f"start {brokers_named(sorted(away))}"
            elif moving:
                why, remedy = "partitions of it are being moved", "wait for that, or cancel it: aiocontroller reassign"
            else:
                why, remedy = "its brokers are alive", "read the controller's log; restart the controller"
        yield Hit("deletion-stuck", name, path, why, remedy)


def reassignments(tree: ClusterTree) -> Iterator[Hit]:
    """Reassignments: those that wait for an absent broker or for the controller, and those that advance."""
    live = tree.live
    for partition in tree.partitions:
        if not partition.assignment.being_reassigned:
            continue
        isr = () if partition.state is None else partition.state.isr
        late = set(partition.assignment.target) - set(isr)
        path, away = paths.topic(partition.name.topic), late - live
        kind = "moving" if late and not away else "reassignment-stuck"
        if away:
            why, remedy = f"broker {_names(away)} is not registered", f"start broker {_names(away)}, or cancel the move"
        elif late:
            why, remedy = f"broker {_names(late)} has not caught up", _slow(late) + "; raise the throttle"
        else:
            why, remedy = "all new replicas are in sync", "the controller ends it; restart it if it does not"
        yield Hit(kind, str(partition.name), path, why, remedy)


def requests(tree: ClusterTree) -> Iterator[Hit]:
    """Requests and notifications in ZooKeeper that no controller has handled.

    Kafka keeps a request for reassignments until they have ended, so it is reported only if some are not in progress.
    """
    moving = {partition.name for partition in tree.partitions if partition.assignment.being_reassigned}
    waiting = None if tree.reassignment is None or moving.issuperset(tree.reassignment) else tree.reassignment
    gone = "the controller takes it within a second; delete the znode if none does"
    for path, found in (
        (paths.REASSIGN_PARTITIONS, waiting),
        (paths.PREFERRED_REPLICA_ELECTION, tree.preferred_election),
    ):
        if found is not None:
            yield Hit("request-left", path, path, f"it names {len(found):,} partitions", gone)
    if len(tree.isr_notifications) > MANY_NOTIFICATIONS:
        why = f"{len(tree.isr_notifications):,} znodes"
        path = paths.ISR_CHANGE_NOTIFICATION
        yield Hit("notifications-pile-up", path, path, why, "restart the controller, or have aiocontroller take over")
    for owed in tree.debts:
        yield Hit(
            "debts",
            f"broker {owed.broker}: {owed.topic}",
            paths.debts_of_broker(owed.broker),
            f"{'alive' if owed.broker in tree.live else 'not registered'}",
            f"it deletes them when it answers; if it never returns: aiocontroller debts drop {owed.broker}",
        )


# -- the way to KRaft --------------------------------------------------------------------------------------------------


def migration(tree: ClusterTree) -> Iterator[Hit]:
    """Obstacles to a migration to KRaft (KIP-866), and a migration under way."""
    if tree.migration is not None and tree.migration.controller_id >= 0:
        why = f"{paths.MIGRATION} names KRaft controller {tree.migration.controller_id}"
        yield Hit(
            "migration-running",
            "the cluster",
            paths.MIGRATION,
            why,
            "aiocontroller migration status, check; after a rollback by hand: aiocontroller migration rollback",
        )
    ids = tree.known_controllers
    for partition in tree.partitions:
        if named := ids.intersection(partition.assignment.replicas):
            yield Hit(
                "migration-blocked",
                str(partition.name),
                paths.topic(partition.name.topic),
                f"a replica is assigned to {_names(named)}, an aiocontroller, not a broker",
                "aiocontroller migration move-replicas",
            )
    for name in tree.deletions:
        why = "a topic is being deleted"
        yield Hit("migration-blocked", name, paths.delete_topics_topic(name), why, "let the deletion end first")


RULES: tuple[Rule, ...] = (
    controller,
    epochs,
    unreadable,
    leaders,
    in_sync,
    consistency,
    racks,
    notable,
    absent,
    topics,
    configs,
    deletions,
    reassignments,
    requests,
    migration,
)
