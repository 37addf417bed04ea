"""Decides whether this process may be the controller of a cluster, with reasons for the operator.  Pure: no I/O.

The rules (a table in docs/operating.md) judge the content of ZooKeeper (``ClusterFacts``) and the brokers' answers
(``BrokerAnswer``).  They fail closed: a controller without an authorizer must know that no broker has one, since it
would otherwise grant its own rights to every client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, Authorizer, ResourceType
from aiocontroller.authorizer.principals import USER
from aiocontroller.config import Config
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.obeyed_settings import CREATE_TOPIC_POLICY, EVERYTHING, ReportedSettings, shown
from aiocontroller.controller.shell import inter_broker_listener
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.security import (
    ACL_AUTHORIZERS,
    ANONYMOUS,
    DEFAULT_PRINCIPAL_BUILDER,
    Security,
    unsupported_authorizer,
)
from aiocontroller.wire.apis import VersionRange
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.znodes import BadZNode, ControllerZNode

OLDEST_LEADER_AND_ISR = 2
"""Kafka 2.2's version: the first with a broker epoch, without which a restarted broker obeys outdated requests."""


class ReasonKind(StrEnum):
    """Kind of a reason; a label of metrics."""

    KRAFT = "kraft"
    MIGRATION = "migration"
    ID = "id"
    LISTENERS = "listeners"
    VERSION = "version"
    AUTHORIZER = "authorizer"
    PRINCIPAL = "principal"
    SETTINGS = "settings"
    POLICY = "policy"
    UNANSWERED = "unanswered"
    UNREACHABLE = "unreachable"


ENDS_A_TERM = frozenset({ReasonKind.AUTHORIZER})
"""Reasons that make an active controller give the role back.  Others are only shown: the next controller would meet
them too, a missing answer mostly means that a broker is about to die or to start, and a KRaft controller that migrates
the cluster deposes us by itself."""

CLAIMED_BY_KRAFT = frozenset({ReasonKind.KRAFT, ReasonKind.MIGRATION})
"""Reasons that a rollback removes, so that they do not count against it."""


NOT_ASKED = "it has not been asked yet"
DEFAULT_RULES = "DEFAULT"
NOT_READ = "the ACLs have not been read yet"


class Reason(NamedTuple):
    """A reason against being the controller."""

    kind: ReasonKind
    text: str

    @property
    def is_normal_at_startup(self) -> bool:
        """Whether this is a normal state at startup, not a problem."""
        return self.text.endswith((NOT_ASKED, NOT_READ))


class BrokerAnswer(msgspec.Struct, frozen=True):
    """What one incarnation of a broker has answered."""

    broker: int
    epoch: int
    leader_and_isr: VersionRange | None
    """None: the broker does not support this request."""
    settings: Mapping[str, str | None] | None
    """The broker's values of ``settings_asked``, always with ``authorizer.class.name``; None: it does not report them,
    and this controller has an authorizer."""
    reported: ReportedSettings | None = None
    """Static and default values of the settings that a controller obeys; None where ``settings`` is None."""
    certificate: bytes | None = None
    """Its server certificate (DER), usually also its client certificate when it connects to us."""
    host: str = ""
    """The broker's IP address."""

    @property
    def authorizer(self) -> str | None:
        """The broker's authorizer class; None if it has none, or does not report it."""
        return (self.settings or {}).get("authorizer.class.name") or None


class ClusterFacts(msgspec.Struct, frozen=True):
    """The relevant content of ZooKeeper."""

    brokers: Sequence[Broker] = ()
    bad: Sequence[BadZNode] = ()
    """Unreadable registrations."""
    migration: MigrationZNode | BadZNode | None = None
    acls: bool = False
    """``/kafka-acl`` exists: an AclAuthorizer creates it at startup, and nothing removes it."""
    holder: ControllerZNode | None = None


class ThisController(NamedTuple):
    """This controller, as the rules see it."""

    id: int
    config: Config
    endpoints: Sequence[Endpoint]
    security: Security
    authorizer: Authorizer
    settings: ClusterSettings

    @property
    def broker_listener(self) -> Endpoint | None:
        """Our listener for brokers."""
        names = (self.config.control_plane_listener_name, self.config.inter_broker_listener_name)
        found = (each for name in names for each in self.endpoints if each.listener == name)
        return next(found, self.endpoints[0] if self.endpoints else None)


class BrokerAnswers(NamedTuple):
    """What brokers have answered, by broker id."""

    answers: Mapping[int, BrokerAnswer]
    """The latest answer, possibly of an earlier incarnation or of a broker that is no longer registered."""
    why_unanswered: Mapping[int, str]
    """Why the current incarnation has not answered."""

    def present(self, cluster: ClusterFacts) -> dict[int, BrokerAnswer]:
        """Answers of the current incarnations."""
        found = ((broker, self.answers.get(broker.id)) for broker in cluster.brokers)
        return {broker.id: answer for broker, answer in found if answer is not None and answer.epoch == broker.epoch}


Rule = Callable[[ThisController, ClusterFacts, BrokerAnswers], Iterator[Reason]]


def ineligibility_reasons(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> list[Reason]:
    """All reasons against being the controller; equal reasons of several brokers are merged."""
    return list(dict.fromkeys(reason for rule in RULES for reason in rule(us, cluster, known)))


def settings_asked(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """The names of the broker settings that the rules need; ``endpoints`` are ours."""
    return (
        "authorizer.class.name",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "control.plane.listener.name",
        *PRINCIPAL_SETTINGS,
        *(_listener_setting(each.listener, key) for each in endpoints for key in PRINCIPAL_SETTINGS),
    )


PRINCIPAL_SETTINGS = ("ssl.principal.mapping.rules", "principal.builder.class")
"""Settings that determine the principals of a broker's clients."""


def _listener_setting(listener: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{key}"


def _in_migration(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """A KRaft controller has claimed the cluster.

    A KRaft controller that has not claimed it is no reason, nor are brokers in migration mode: this controller serves
    those brokers as Kafka's own does, until the claim deposes it.
    """
    holder = cluster.holder
    if holder is not None and holder.kraft_controller_epoch > 0:
        yield Reason(
            ReasonKind.KRAFT,
            f"controller {holder.controller_id} is KRaft's (kraftControllerEpoch {holder.kraft_controller_epoch}): "
            "a cluster in migration is not taken over",
        )
    if isinstance(cluster.migration, BadZNode):
        bad = cluster.migration
        yield Reason(
            ReasonKind.MIGRATION,
            f"{bad.path}: found {bad.found}, expected {bad.expected}: a KRaft controller may be migrating the cluster",
        )
    elif cluster.migration is not None and cluster.migration.claimed:
        yield Reason(
            ReasonKind.MIGRATION,
            f"{paths.MIGRATION} names KRaft controller {cluster.migration.controller_id}: it is migrating the cluster, "
            "or the migration was rolled back by hand and its znode forgotten (aiocontroller migration rollback)",
        )


def _id_of_a_broker(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    namesake = next((broker for broker in cluster.brokers if broker.id == us.id), None)
    if namesake is not None or any(znode.path == paths.broker_id(us.id) for znode in cluster.bad):
        where = "" if namesake is None else " on " + ", ".join(f"{e.host}:{e.port}" for e in namesake.endpoints)
        yield Reason(ReasonKind.ID, f"aiocontroller.id {us.id} is the id of a broker{where}: choose an unused one")


def _registered_listeners(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Brokers reach the controller on their inter-broker listener, with that listener's security protocol."""
    brokers = cluster.brokers
    name = inter_broker_listener(us.config, brokers)
    protocols = dict.fromkeys(e.security_protocol for b in brokers for e in b.endpoints if e.listener == name)
    if brokers and not protocols:
        found = ", ".join(dict.fromkeys(e.listener for b in brokers for e in b.endpoints))
        yield Reason(
            ReasonKind.LISTENERS,
            f"inter.broker.listener.name is {name}, and brokers have the listeners {found}: set it to theirs",
        )
        return
    ours = next((e for e in us.endpoints if e.listener == name), us.endpoints[0] if us.endpoints else None)
    if protocols and ours is not None and ours.security_protocol not in protocols:
        theirs = " and ".join(protocols)
        yield Reason(
            ReasonKind.LISTENERS,
            f"brokers speak {theirs} on their listener {name}, and ours, {ours.listener}, speaks "
            f"{ours.security_protocol}: set listeners and listener.security.protocol.map",
        )


def _configured_listeners(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    for answer in known.present(cluster).values():
        reported = answer.settings
        if reported is None:
            continue
        listener = reported.get("inter.broker.listener.name") or reported.get("security.inter.broker.protocol")
        ours = inter_broker_listener(us.config, cluster.brokers)
        if listener and listener.upper() != ours:
            yield Reason(
                ReasonKind.LISTENERS,
                f"brokers talk to each other on listener {listener}: set inter.broker.listener.name, now {ours}",
            )
        control = reported.get("control.plane.listener.name")
        if (control or None) != us.config.control_plane_listener_name:
            yield Reason(
                ReasonKind.LISTENERS, f"brokers have control.plane.listener.name {control or '(none)'}: set it here too"
            )


def _broker_versions(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    for answer in known.present(cluster).values():
        offered = answer.leader_and_isr
        if offered is None:
            yield Reason(
                ReasonKind.VERSION,
                f"broker {answer.broker} does not take LeaderAndIsr requests: Kafka 2.2 to 3.9 on ZooKeeper is needed",
            )
        elif offered.max < OLDEST_LEADER_AND_ISR:
            yield Reason(
                ReasonKind.VERSION,
                f"broker {answer.broker} is older than Kafka 2.2 (LeaderAndIsr {offered.max}): not supported",
            )


def _authorizers(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Brokers have an authorizer that is not implemented, or not configured, here."""
    ours = us.config.authorizer_class_name
    unsupported = unsupported_authorizer(us.config)
    if unsupported is not None:
        yield Reason(ReasonKind.AUTHORIZER, unsupported)
    present = known.present(cluster)
    # With no broker to ask, the last answers count, even of brokers that are gone.
    for answer in (present or known.answers).values():
        if answer.authorizer is not None and answer.authorizer not in ACL_AUTHORIZERS:
            yield Reason(
                ReasonKind.AUTHORIZER,
                f"brokers have an authorizer ({answer.authorizer}) that cannot run outside brokers: this controller "
                f"implements {ACL_AUTHORIZERS[0]} only",
            )
        elif answer.authorizer is not None and ours is None:
            yield Reason(
                ReasonKind.AUTHORIZER,
                f"brokers have an authorizer ({answer.authorizer}): set authorizer.class.name and super.users, which "
                "decide who may send requests to this controller",
            )


def _answers_missing(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Without an authorizer of our own, we must know that no broker has one.

    A broker's answer from before its restart counts until it answers again: otherwise no standby could be elected
    during a restart.  It does not count if ``/kafka-acl`` exists.
    """
    if us.config.authorizer_class_name is not None:
        return
    present = known.present(cluster)
    silent = [broker for broker in cluster.brokers if broker.id not in present]
    for broker in silent:
        before = known.answers.get(broker.id)
        if before is None or before.authorizer is not None or cluster.acls:
            why = _why_silent(
                known,
                broker.id,
                "set authorizer.class.name and super.users here and insist on our settings (--keep-ours all)",
            )
            yield Reason(ReasonKind.UNANSWERED, f"broker {broker.id} has not said whether it has an authorizer: {why}")
    if not present and cluster.bad:
        yield Reason(ReasonKind.UNANSWERED, f"{cluster.bad[0].path} cannot be read, and no other broker has answered")
    if cluster.acls and not cluster.brokers:
        yield Reason(
            ReasonKind.UNANSWERED,
            f"{paths.ACL} exists, so brokers have or had an authorizer, and there is no broker to ask: set "
            "authorizer.class.name and super.users",
        )


def _why_silent(known: BrokerAnswers, broker: int, remedy: str) -> str:
    """Why the broker has not answered, and what an operator can do if waiting does not help."""
    why = known.why_unanswered.get(broker)
    return NOT_ASKED if why is None else f"{why}; restart or stop it, or {remedy}"


def _settings_missing(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Every broker's settings must be known, at least from an earlier incarnation."""
    if us.settings.keeps(EVERYTHING):
        return
    for broker in cluster.brokers:
        before = known.answers.get(broker.id)
        if before is None:
            if us.config.authorizer_class_name is not None:  # else ``_answers_missing`` says so
                why = _why_silent(known, broker.id, "insist on ours (--keep-ours all)")
                yield Reason(ReasonKind.UNANSWERED, f"broker {broker.id} has not reported its settings: {why}")
        elif before.reported is None:
            yield Reason(
                ReasonKind.SETTINGS,
                f"broker {broker.id} refuses to describe its settings (DescribeConfigs on the cluster): allow it, "
                "or insist on ours (--keep-ours all)",
            )


def _settings(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """The brokers' settings contradict ours, or cannot be obeyed."""
    for setting in us.settings.contradicting:
        if setting.unusable:
            yield Reason(
                ReasonKind.SETTINGS,
                f"brokers have {setting.name} {setting.of_brokers}, which cannot be obeyed here: insist on ours, "
                f"{shown(setting.value)} (--keep-ours {setting.name})",
            )
        else:
            yield Reason(
                ReasonKind.SETTINGS,
                f"brokers have {setting.name} {setting.of_brokers}, and it is {shown(setting.ours)} here: set it to "
                f"theirs, leave it out, or insist on ours (--keep-ours {setting.name})",
            )


def _policies(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Policies, Java classes that decide which topics may be created."""
    policy = us.settings.of_brokers(CREATE_TOPIC_POLICY)
    if policy and not us.settings.keeps(CREATE_TOPIC_POLICY):
        yield Reason(
            ReasonKind.POLICY,
            f"brokers have create.topic.policy.class.name {policy}, which runs in brokers only: topics that are "
            "created here would not be checked; insist on that (--keep-ours create.topic.policy.class.name)",
        )


def _principals_of_clients(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """ACLs name principals, so a client must have the same principal on brokers and here."""
    if us.config.authorizer_class_name is None:
        return
    for answer in known.present(cluster).values():
        reported = answer.settings
        if reported is None:
            continue
        for endpoint in us.endpoints:
            rules, builder = (
                reported.get(_listener_setting(endpoint.listener, key)) or reported.get(key)
                for key in PRINCIPAL_SETTINGS
            )
            if builder not in (None, DEFAULT_PRINCIPAL_BUILDER):
                yield Reason(
                    ReasonKind.PRINCIPAL,
                    f"brokers have principal.builder.class {builder}, which cannot run outside brokers: clients would "
                    "have other names here",
                )
            principals = us.security.server(endpoint).principals
            if principals is not None and principals.rules.strip() != (rules or DEFAULT_RULES).strip():
                yield Reason(
                    ReasonKind.PRINCIPAL,
                    f"brokers have ssl.principal.mapping.rules {rules or DEFAULT_RULES}, and ours, for listener "
                    f"{endpoint.listener}, are {principals.rules}: set them to theirs",
                )


def _brokers_as_clients(us: ThisController, cluster: ClusterFacts, known: BrokerAnswers) -> Iterator[Reason]:
    """Brokers send us AlterPartition and ControlledShutdown: their principals must be allowed to."""
    if us.config.authorizer_class_name is None or us.broker_listener is None:
        return
    if isinstance(us.authorizer, AclAuthorizer) and not us.authorizer.loaded and cluster.brokers:
        if unsupported_authorizer(us.config) is None:
            yield Reason(ReasonKind.PRINCIPAL, NOT_READ)
        return
    for answer in known.present(cluster).values():
        try:
            principal = _principal(us, answer)
        except BadInputError as error:
            yield Reason(ReasonKind.PRINCIPAL, f"broker {answer.broker} would have no principal here: {error}")
            continue
        if not us.authorizer.authorize(
            principal, answer.host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            yield Reason(
                ReasonKind.PRINCIPAL,
                f"broker {answer.broker} authenticates as {principal}, who lacks ClusterAction here, so its requests "
                "would be refused: compare super.users and ssl.principal.mapping.rules with the brokers'",
            )


def _principal(us: ThisController, answer: BrokerAnswer) -> str:
    """The principal that a broker has here: with SASL, the user name that brokers share with us; otherwise that of its
    certificate, if our listener requests one."""
    assert us.broker_listener is not None
    server = us.security.server(us.broker_listener)
    if server.mechanisms:
        credentials = us.security.client(us.broker_listener).credentials
        assert credentials is not None
        return f"{USER}:{credentials.username}"
    if server.principals is not None and answer.certificate:
        return server.principals.principal_of(answer.certificate)
    return ANONYMOUS


RULES: tuple[Rule, ...] = (
    _in_migration,
    _id_of_a_broker,
    _registered_listeners,
    _configured_listeners,
    _broker_versions,
    _authorizers,
    _answers_missing,
    _settings_missing,
    _settings,
    _policies,
    _principals_of_clients,
    _brokers_as_clients,
)


def reasons_not_to_depose(cluster: ClusterFacts, known: BrokerAnswers) -> list[Reason]:
    """Further reasons, beside ``ineligibility_reasons``, against deposing a working broker."""
    if not cluster.brokers or known.present(cluster):
        return []
    first = cluster.brokers[0].id
    why = known.why_unanswered.get(first, NOT_ASKED)
    return [Reason(ReasonKind.UNREACHABLE, f"no broker can be reached: broker {first}: {why}")]
