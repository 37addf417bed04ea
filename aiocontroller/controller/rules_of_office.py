"""What speaks against being the controller of a cluster, in words for the operator.  Pure: nothing is asked here.

The rules (docs/operating.md has them as a table) see what ZooKeeper holds (``Cluster``) and what brokers have said of
themselves (``Answer``).  They are closed: where this controller has no authorizer, it needs to know that no broker has
one, since it would lend its own rights to everybody who comes.
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
from aiocontroller.zookeeper.znodes import BadZNode, ControllerZNode

OLDEST_LEADER_AND_ISR = 2
"""Kafka 2.2's: the first that carries a broker epoch, without which a restarted broker takes old requests for new."""


class Kind(StrEnum):
    """Of a reason; a label of metrics."""

    KRAFT = "kraft"
    MIGRATION = "migration"
    ID = "id"
    LISTENERS = "listeners"
    VERSION = "version"
    AUTHORIZER = "authorizer"
    PRINCIPAL = "principal"
    UNANSWERED = "unanswered"
    UNREACHABLE = "unreachable"


ENDS_A_TERM = frozenset({Kind.MIGRATION, Kind.AUTHORIZER})
"""What is found in office and makes the role go back.  Other reasons are shown: whoever came next would meet them too,
and a missing answer is mostly a broker that is about to die or to start."""


NOT_ASKED = "it has not been asked yet"
DEFAULT_RULES = "DEFAULT"
NOT_READ = "the ACLs have not been read yet"


class Reason(NamedTuple):
    kind: Kind
    text: str

    @property
    def passing(self) -> bool:
        """Nothing is wrong so far: this is how every start begins."""
        return self.text.endswith((NOT_ASKED, NOT_READ))


class Answer(msgspec.Struct, frozen=True):
    """What one registration of a broker said."""

    broker: int
    epoch: int
    zk_migration_ready: bool
    leader_and_isr: VersionRange | None
    """None: it does not take this request."""
    settings: Mapping[str, str | None] | None
    """Those of ``settings_asked`` that it has, always with ``authorizer.class.name``; None: it keeps them to itself,
    and this controller has an authorizer."""
    certificate: bytes | None = None
    """What it shows to its clients, DER: mostly also what it shows as a client, to us."""
    host: str = ""
    """The IP address at which it was reached."""

    @property
    def authorizer(self) -> str | None:
        return (self.settings or {}).get("authorizer.class.name") or None


class Cluster(msgspec.Struct, frozen=True):
    """What ZooKeeper holds."""

    brokers: Sequence[Broker] = ()
    bad: Sequence[BadZNode] = ()
    """Registrations that cannot be read."""
    migration: bool = False
    acls: bool = False
    """``/kafka-acl`` exists: an AclAuthorizer makes it when it starts, and nothing removes it."""
    holder: ControllerZNode | None = None


class Us(NamedTuple):
    """This controller, as the rules see it."""

    id: int
    config: Config
    endpoints: Sequence[Endpoint]
    security: Security
    authorizer: Authorizer

    @property
    def of_brokers(self) -> Endpoint | None:
        """Our listener on which brokers come."""
        names = (self.config.control_plane_listener_name, self.config.inter_broker_listener_name)
        found = (each for name in names for each in self.endpoints if each.listener == name)
        return next(found, self.endpoints[0] if self.endpoints else None)


class Known(NamedTuple):
    """What brokers have said, by broker id."""

    answers: Mapping[int, Answer]
    """The last one, be it of an earlier registration, or of a broker that is not registered any more."""
    why_none: Mapping[int, str]
    """Why the present registration has not answered."""

    def present(self, cluster: Cluster) -> dict[int, Answer]:
        """Answers of the registrations that are there now."""
        found = ((broker, self.answers.get(broker.id)) for broker in cluster.brokers)
        return {broker.id: answer for broker, answer in found if answer is not None and answer.epoch == broker.epoch}


Rule = Callable[[Us, Cluster, Known], Iterator[Reason]]


def reasons_against(us: Us, cluster: Cluster, known: Known) -> list[Reason]:
    """None: nothing speaks against it.  Equal ones of several brokers are one."""
    return list(dict.fromkeys(reason for rule in RULES for reason in rule(us, cluster, known)))


def settings_asked(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """What the rules need to know of a broker's configuration; ``endpoints`` are ours."""
    return (
        "authorizer.class.name",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "control.plane.listener.name",
        *NAMING,
        *(_of_listener(each.listener, key) for each in endpoints for key in NAMING),
    )


NAMING = ("ssl.principal.mapping.rules", "principal.builder.class")
"""What says how a broker names those who come to it."""


def _of_listener(listener: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{key}"


def _in_migration(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    holder = cluster.holder
    if holder is not None and holder.kraft_controller_epoch > 0:
        yield Reason(
            Kind.KRAFT,
            f"controller {holder.controller_id} is KRaft's (kraftControllerEpoch {holder.kraft_controller_epoch}): "
            "a cluster in migration is not taken over",
        )
    if cluster.migration:
        yield Reason(Kind.MIGRATION, f"{paths.MIGRATION} exists: the cluster is being migrated to KRaft")
    for answer in known.present(cluster).values():
        if answer.zk_migration_ready:
            yield Reason(
                Kind.MIGRATION,
                f"broker {answer.broker} is set up for migration to KRaft (zookeeper.metadata.migration.enable)",
            )


def _id_of_a_broker(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    namesake = next((broker for broker in cluster.brokers if broker.id == us.id), None)
    if namesake is not None or any(znode.path == paths.broker_id(us.id) for znode in cluster.bad):
        where = "" if namesake is None else " on " + ", ".join(f"{e.host}:{e.port}" for e in namesake.endpoints)
        yield Reason(Kind.ID, f"aiocontroller.id {us.id} is the id of a broker{where}: choose one that none has")


def _registered_listeners(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    """Brokers look for the controller on one listener, and speak on it as they do among each other."""
    brokers = cluster.brokers
    name = inter_broker_listener(us.config, brokers)
    protocols = dict.fromkeys(e.security_protocol for b in brokers for e in b.endpoints if e.listener == name)
    if brokers and not protocols:
        found = ", ".join(dict.fromkeys(e.listener for b in brokers for e in b.endpoints))
        yield Reason(
            Kind.LISTENERS,
            f"inter.broker.listener.name is {name}, and brokers have the listeners {found}: set it to theirs",
        )
        return
    ours = next((e for e in us.endpoints if e.listener == name), us.endpoints[0] if us.endpoints else None)
    if protocols and ours is not None and ours.security_protocol not in protocols:
        theirs = " and ".join(protocols)
        yield Reason(
            Kind.LISTENERS,
            f"brokers speak {theirs} on their listener {name}, and ours, {ours.listener}, speaks "
            f"{ours.security_protocol}: set listeners and listener.security.protocol.map",
        )


def _configured_listeners(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    for answer in known.present(cluster).values():
        told = answer.settings
        if told is None:
            continue
        listener = told.get("inter.broker.listener.name") or told.get("security.inter.broker.protocol")
        ours = inter_broker_listener(us.config, cluster.brokers)
        if listener and listener.upper() != ours:
            yield Reason(
                Kind.LISTENERS,
                f"brokers talk to each other on listener {listener}: set inter.broker.listener.name, now {ours}",
            )
        control = told.get("control.plane.listener.name")
        if (control or None) != us.config.control_plane_listener_name:
            yield Reason(
                Kind.LISTENERS, f"brokers have control.plane.listener.name {control or '(none)'}: set it so here"
            )


def _too_old(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    for answer in known.present(cluster).values():
        offered = answer.leader_and_isr
        if offered is None:
            yield Reason(
                Kind.VERSION,
                f"broker {answer.broker} takes no LeaderAndIsr requests: Kafka 2.2 to 3.9 in ZooKeeper mode is needed",
            )
        elif offered.max < OLDEST_LEADER_AND_ISR:
            yield Reason(
                Kind.VERSION,
                f"broker {answer.broker} is older than Kafka 2.2 (LeaderAndIsr {offered.max}): not supported",
            )


def _authorizers(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    """An authorizer that is not implemented here, or that we do not know that we should have."""
    ours = us.config.authorizer_class_name
    unsupported = unsupported_authorizer(us.config)
    if unsupported is not None:
        yield Reason(Kind.AUTHORIZER, unsupported)
    present = known.present(cluster)
    # Where nobody can be asked, what was last heard counts, also of brokers that are gone.
    for answer in (present or known.answers).values():
        if answer.authorizer is not None and answer.authorizer not in ACL_AUTHORIZERS:
            yield Reason(
                Kind.AUTHORIZER,
                f"brokers have an authorizer ({answer.authorizer}) that cannot run outside brokers: this controller "
                f"implements {ACL_AUTHORIZERS[0]} only",
            )
        elif answer.authorizer is not None and ours is None:
            yield Reason(
                Kind.AUTHORIZER,
                f"brokers have an authorizer ({answer.authorizer}): set authorizer.class.name and super.users, which "
                "say who may ask this controller for what",
            )


def _answers_missing(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    """Without an authorizer of our own we have to know that no broker has one.

    A broker that said so before it was restarted is believed until it says otherwise: else each restart would leave
    the cluster without anybody who can be elected.  It is not believed where ``/kafka-acl`` says otherwise.
    """
    if us.config.authorizer_class_name is not None:
        return
    present = known.present(cluster)
    silent = [broker for broker in cluster.brokers if broker.id not in present]
    for broker in silent:
        before = known.answers.get(broker.id)
        if before is None or before.authorizer is not None or cluster.acls:
            why = known.why_none.get(broker.id, NOT_ASKED)
            yield Reason(Kind.UNANSWERED, f"broker {broker.id} has not said whether it has an authorizer: {why}")
    if not present and cluster.bad:
        yield Reason(Kind.UNANSWERED, f"{cluster.bad[0].path} cannot be read, and no other broker has said anything")
    if cluster.acls and not cluster.brokers:
        yield Reason(
            Kind.UNANSWERED,
            f"{paths.ACL} exists, so that brokers have or had an authorizer, and none is there to be asked: set "
            "authorizer.class.name and super.users",
        )


def _names_of_clients(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    """ACLs go by names: brokers and we must give the same client the same one."""
    if us.config.authorizer_class_name is None:
        return
    for answer in known.present(cluster).values():
        told = answer.settings
        if told is None:
            continue
        for endpoint in us.endpoints:
            rules, builder = (told.get(_of_listener(endpoint.listener, key)) or told.get(key) for key in NAMING)
            if builder not in (None, DEFAULT_PRINCIPAL_BUILDER):
                yield Reason(
                    Kind.PRINCIPAL,
                    f"brokers have principal.builder.class {builder}, which cannot run outside brokers: clients would "
                    "have other names here",
                )
            principals = us.security.server(endpoint).principals
            if principals is not None and principals.rules.strip() != (rules or DEFAULT_RULES).strip():
                yield Reason(
                    Kind.PRINCIPAL,
                    f"brokers have ssl.principal.mapping.rules {rules or DEFAULT_RULES}, and ours, for listener "
                    f"{endpoint.listener}, are {principals.rules}: set them to theirs",
                )


def _brokers_as_clients(us: Us, cluster: Cluster, known: Known) -> Iterator[Reason]:
    """Brokers come to us for their ISRs and shutdowns: who they are must be allowed that here."""
    if us.config.authorizer_class_name is None or us.of_brokers is None:
        return
    if isinstance(us.authorizer, AclAuthorizer) and not us.authorizer.loaded and cluster.brokers:
        if unsupported_authorizer(us.config) is None:
            yield Reason(Kind.PRINCIPAL, NOT_READ)
        return
    for answer in known.present(cluster).values():
        try:
            principal = _principal(us, answer)
        except BadInputError as error:
            yield Reason(Kind.PRINCIPAL, f"broker {answer.broker} would be nobody here: {error}")
            continue
        if not us.authorizer.authorize(
            principal, answer.host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            yield Reason(
                Kind.PRINCIPAL,
                f"broker {answer.broker} comes as {principal}, who is not allowed ClusterAction here, so that its "
                "requests would be refused: compare super.users and ssl.principal.mapping.rules with the brokers'",
            )


def _principal(us: Us, answer: Answer) -> str:
    """As whom a broker comes: with SASL by the name that brokers share with us, else by its certificate if we look at
    those."""
    assert us.of_brokers is not None
    how = us.security.server(us.of_brokers)
    if how.mechanisms:
        credentials = us.security.client(us.of_brokers).credentials
        assert credentials is not None
        return f"{USER}:{credentials.username}"
    if how.principals is not None and answer.certificate:
        return how.principals.principal_of(answer.certificate)
    return ANONYMOUS


RULES: tuple[Rule, ...] = (
    _in_migration,
    _id_of_a_broker,
    _registered_listeners,
    _configured_listeners,
    _too_old,
    _authorizers,
    _answers_missing,
    _names_of_clients,
    _brokers_as_clients,
)


def reasons_against_deposing(cluster: Cluster, known: Known) -> list[Reason]:
    """What speaks against taking the role from a broker that does its work, beside ``reasons_against``."""
    if not cluster.brokers or known.present(cluster):
        return []
    first = cluster.brokers[0].id
    why = known.why_none.get(first, NOT_ASKED)
    return [Reason(Kind.UNREACHABLE, f"no broker can be reached: broker {first}: {why}")]
