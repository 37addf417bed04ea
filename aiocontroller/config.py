"""Configuration by Kafka's property names, so that a broker's ``server.properties`` can be handed over as it is.

Sources, the later wins: defaults (Kafka's own where the property is Kafka's), a properties file, the environment
(``AIOCONTROLLER_ZOOKEEPER_CONNECT`` for ``zookeeper.connect``, ``AIOCONTROLLER_HTTP_PORT`` for
``aiocontroller.http.port``), overrides from the command line.

A bad value is an error that names property, value and what was expected; all errors are reported at once.  Kafka's
properties that we do not use are ignored with one warning for all; an unknown property gets its own warning, with the
name that was probably meant; an unknown one with our prefix is an error, because it must be a typing error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from aiocontroller.authorizer.principals import parse_principals
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Endpoint
from aiocontroller.kafka_property_names import KAFKA_PROPERTIES, TOPIC_DEFAULTS, is_kafkas
from aiocontroller.net.ports import DEBUG_VARIABLE
from aiocontroller.properties_file import Setting, read_properties
from aiocontroller.property_values import (
    SECURITY_PROTOCOLS,
    TLS_PROTOCOLS,
    Secret,
    parse_bool,
    parse_connect,
    parse_counts,
    parse_digest_user,
    parse_endpoint_identification,
    parse_listeners,
    parse_names,
    parse_pem,
    parse_pem_location,
    parse_protocol,
    parse_protocol_map,
    parse_protocol_version,
    parse_protocols,
    parse_text,
)

OWN_PREFIX = "aiocontroller."
DEFAULT_CONTROLLER_ID = 1_000_001
"""Above ``reserved.broker.max.id`` (1000) and any id that brokers generate in practice."""
MAX_INT = 2**31 - 1
MAX_CONTROLLER_ID = 1_000_000_000
"""Java consumers give the connection to their coordinator the id 2**31 - 1 less the broker's."""


class ConfigError(BadInputError):
    """One line for each property that cannot be used."""


Detection = Literal["off", "refused", "full"]
"""``refused``: the connection ended and new ones are refused; ``full``: also silence."""


class Config(msgspec.Struct, frozen=True):
    """Each field is the property with underscores for dots; units are those of Kafka's names."""

    zookeeper_connect: str = "127.0.0.1:2181"
    """The ensemble, with a chroot if the cluster has one."""
    zookeeper_session_timeout_ms: int = 18_000
    """How long the session, and with it the role, outlives this process or its connection."""
    zookeeper_connection_timeout_ms: int | None = None
    """How long to wait for ZooKeeper at start; None: as long as it takes."""
    zookeeper_set_acl: bool = False
    """New znodes belong to their creator; see ``zookeeper.acls``."""
    zookeeper_ssl_client_enable: bool = False
    """TLS to ZooKeeper."""
    zookeeper_ssl_keystore_location: str | None = None
    """PEM: our certificate, its chain and its key, for servers that want one."""
    zookeeper_ssl_keystore_password: Secret | None = None
    """The password of an encrypted key."""
    zookeeper_ssl_keystore_type: str | None = None
    zookeeper_ssl_truststore_location: str | None = None
    """PEM: trusted certificates; None: those that the system trusts."""
    zookeeper_ssl_truststore_password: Secret | None = None
    """Accepted so that it need not be removed, and ignored: PEM certificates have no password."""
    zookeeper_ssl_truststore_type: str | None = None
    zookeeper_ssl_endpoint_identification_algorithm: str = "HTTPS"
    """``HTTPS``: the server's certificate must name its host; empty: no check."""
    zookeeper_ssl_protocol: str = "TLSv1.2"
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = None
    """None: ``zookeeper.ssl.protocol`` and newer."""
    zookeeper_ssl_crl_enable: bool = False
    zookeeper_ssl_ocsp_enable: bool = False
    aiocontroller_zookeeper_sasl_username: str | None = None
    """For SASL DIGEST-MD5, as in section ``Client`` of a broker's JAAS file."""
    aiocontroller_zookeeper_sasl_password: Secret | None = None
    """For SASL DIGEST-MD5: the password that belongs to ``aiocontroller.zookeeper.sasl.username``."""
    aiocontroller_zookeeper_digest_username: str | None = None
    """For ZooKeeper's scheme ``digest``."""
    aiocontroller_zookeeper_digest_password: Secret | None = None
    """The password that belongs to ``aiocontroller.zookeeper.digest.username``."""
    listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "127.0.0.1", 0),)
    """Where brokers and clients connect to this controller; port 0 takes a free one."""
    advertised_listeners: tuple[Endpoint, ...] | None = None
    """The addresses announced to brokers; None: ``listeners``, with the actual port."""
    listener_security_protocol_map: Mapping[str, str] = {}
    """Protocol by listener name; a listener that is not in it, and named as no protocol is, is PLAINTEXT."""
    security_inter_broker_protocol: str | None = None
    """The inter-broker listener by its protocol; ``inter.broker.listener.name`` says the same by its name."""
    inter_broker_listener_name: str = "PLAINTEXT"
    control_plane_listener_name: str | None = None
    """The listener on which the controller reaches brokers, where they have one for it."""
    ssl_keystore_location: str | None = None
    """PEM: our certificate, its chain and its key; see ``security``."""
    ssl_keystore_type: str = "PEM"
    ssl_key_password: Secret | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str = "PEM"
    ssl_client_auth: Literal["none", "requested", "required"] = "none"
    ssl_endpoint_identification_algorithm: str = "HTTPS"
    sasl_enabled_mechanisms: tuple[str, ...] = ("GSSAPI",)
    sasl_mechanism_inter_broker_protocol: str = "GSSAPI"
    sasl_jaas_config: Secret | None = None
    authorizer_class_name: str | None = None
    """That brokers have an authorizer; see ``security.authorizer_of``."""
    authorizer_zookeeper_url: str | None = None
    """The ZooKeeper with the ACLs, if not the brokers'."""
    super_users: tuple[str, ...] = ()
    """``Type:name`` each; allowed everything."""
    allow_everyone_if_no_acl_found: bool = False
    ssl_principal_mapping_rules: str = "DEFAULT"
    principal_builder_class: str | None = None
    listener_overrides: Mapping[tuple[str, str], Any] = {}
    """``listener.name.<listener>.<property>`` by listener (lower case) and property."""
    socket_request_max_bytes: int = 100 * 1024 * 1024
    """A request's size; what is answered here may be less (``server.request_sizes``)."""
    socket_listen_backlog_size: int = 50
    max_connections: int = MAX_INT
    """Connections of brokers and clients; also limited by the operating system's descriptors."""
    max_connections_per_ip: int = MAX_INT
    max_connections_per_ip_overrides: Mapping[str, int] = {}
    """By IP address or host name."""
    connections_max_idle_ms: int = 600_000
    connections_max_reauth_ms: int = 0
    """How long a SASL login lasts (KIP-368); for ever unless positive."""
    connection_failed_authentication_delay_ms: int = 100
    sasl_server_max_receive_size: int = 512 * 1024
    """A request's size before its sender has logged in."""
    queued_max_request_bytes: int = -1
    """Total size of requests being received or answered; -1 is no limit in Kafka, and 256 MiB here."""
    aiocontroller_queued_max_response_bytes: int = 256 * 1024 * 1024
    """Total size of answers that clients have not read."""
    aiocontroller_queued_max_client_requests: int = 4
    """Requests in the event queue; see ``server.admission``."""
    aiocontroller_login_timeout_ms: int = 10_000
    """For TLS handshake and login together."""
    aiocontroller_login_max_bytes: int = 16 * 1024 * 1024
    """Total size of requests from clients that have not logged in."""
    aiocontroller_request_receive_timeout_ms: int = 30_000
    """From a request's first byte to its last."""
    aiocontroller_response_send_timeout_ms: int = 30_000
    """How long answers may wait to be read."""
    inter_broker_protocol_version: str = "3.9"
    """The protocol that all brokers can read."""
    controller_socket_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    controller_quota_window_num: int = 11
    """With ``controller.quota.window.size.seconds``: how many seconds' worth a client may save up of its
    ``controller_mutation_rate``."""
    controller_quota_window_size_seconds: int = 1
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 100 * 1024 * 1024
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 100 * 1024 * 1024
    transaction_state_log_min_isr: int = 2
    create_topic_policy_class_name: str | None = None
    """The brokers'; see ``controller.cluster_settings``: no Java class runs here."""
    alter_config_policy_class_name: str | None = None
    delegation_token_secret_key: Secret | None = None
    """The brokers' own, with which the secrets of delegation tokens are made; None: no tokens are made here."""
    delegation_token_master_key: Secret | None = None
    """The older name of ``delegation.token.secret.key``, which wins."""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    aiocontroller_id: int = DEFAULT_CONTROLLER_ID
    """The id under which this process holds ``/controller``; no broker may have it."""
    aiocontroller_keep_ours: tuple[str, ...] = ()
    """Settings whose values here apply even if the brokers' differ; ``all`` for every one."""
    given: Mapping[str, str] = {}
    """The text of each Kafka property that was set and is used here; no secrets."""
    aiocontroller_http_host: str = "127.0.0.1"
    """The address of the HTTP server for metrics, health and commands."""
    aiocontroller_http_port: int = 0
    """Its port; 0 takes a free one."""
    aiocontroller_http_max_connections: int = 64
    """HTTP connections at once; one more takes the place of the one that has been idle longest."""
    aiocontroller_http_max_request_bytes: int = 1024 * 1024
    """A command's body."""
    aiocontroller_http_timeout_ms: int = 10_000
    """For each of a request's header, its body and the reading of its answer, and how long a connection may idle."""
    aiocontroller_journal_dir: str | None = None
    """The folder for the journal's files (docs/journal.md); ``run --data`` sets it."""
    aiocontroller_takeover_policy: Literal["wait", "takeover", "observe"] = "wait"
    """What to do while a broker is the controller: ``wait`` for a vacancy, ``takeover`` at once, or ``observe`` and
    never stand."""
    aiocontroller_release_linger_ms: int = 30_000
    """How long a process that ends after a release still answers clients that do not know of it yet."""
    aiocontroller_audit_interval_ms: int = 600_000
    """Interval of comparisons of memory with ZooKeeper; 0: only after writes by others."""
    aiocontroller_audit_partitions_per_second: int = 4_000
    """At most so many partitions are compared with ZooKeeper each second."""
    aiocontroller_early_broker_detection: Detection = "off"
    """Whether brokers that seem dead lose their leaders before their session ends (docs/early-detection.md)."""
    aiocontroller_early_controller_detection: Detection = "off"
    """Whether a standby controller takes over as soon as the active one seems dead."""
    aiocontroller_early_detection_heartbeat_interval_ms: int = 200
    """How often each peer is asked."""
    aiocontroller_early_detection_silence_ms: int = 1_500
    """In mode ``full``, a peer that has not answered for so long is suspected."""
    aiocontroller_early_detection_trust_ms: int = 1_000
    """How long a suspect must answer to be trusted again; doubled for each earlier false alarm."""
    aiocontroller_early_detection_max_suspected_percentage: int = 34
    """When more of the brokers than this seem to be dead at once, none is suspected: the fault is probably ours."""
    aiocontroller_early_detection_max_alarms_per_minute: int = 10
    """Further suspicions wait until the minute is over."""
    aiocontroller_early_fast_bounce_ms: int = 0
    """How long a dead broker's listener must refuse before its registration is removed; 0: ZooKeeper removes it."""

    @property
    def protocol(self) -> tuple[int, int, int]:
        """``inter.broker.protocol.version`` as (major, minor, IV)."""
        return parse_protocol_version(self.inter_broker_protocol_version)

    @property
    def topic_ids_supported(self) -> bool:
        """Topic znodes hold topic ids (KIP-516)."""
        return self._protocol_at_least(2, 8, 0)

    @property
    def leader_recovery_supported(self) -> bool:
        """State znodes hold the leader recovery state (KIP-704)."""
        return self._protocol_at_least(3, 2, 0)

    @property
    def feature_versioning_supported(self) -> bool:
        """``/feature`` says that features have versions (KIP-584)."""
        return self._protocol_at_least(2, 7, 0)

    @property
    def feature_znode_version(self) -> int:
        """The layout of ``/feature``: without minimum levels from 3.3 on."""
        return 2 if self._protocol_at_least(3, 3, 0) else 1

    @property
    def alter_partition_supported(self) -> bool:
        """Brokers change ISRs by AlterPartition (KIP-497) and not by writing znodes."""
        return self._protocol_at_least(2, 7, 2)

    def of_listener(self, listener: str, key: str) -> Any:
        """A property as it is for one listener."""
        overridden = self.listener_overrides.get((listener.lower(), key))
        return getattr(self, key.replace(".", "_")) if overridden is None else overridden

    def _protocol_at_least(self, major: int, minor: int, iv: int) -> bool:
        return self.protocol >= (major, minor, iv)


# ---- kinds of values: a parser raises ValueError, ``expected`` describes valid values


class Kind(NamedTuple):
    expected: str
    parse: Callable[[str], Any]


def _whole(least: int, most: int | None = None, unit: str = "") -> Kind:
    def parse(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise ValueError(text)
        return value

    limits = f"at least {least}" if most is None else f"{least} to {most}"
    return Kind(f"a whole number{unit and f' of {unit}'}, {limits}", parse)


def _one_of(*values: str) -> Kind:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return Kind("one of " + ", ".join(values), parse)


_PEM = Kind("PEM, the only type of store that is read here", parse_pem)
_PEM_LOCATION = Kind("a file of certificates in PEM (openssl pkcs12 makes one from a .p12)", parse_pem_location)
_SECRET = Kind("a password", lambda text: Secret(parse_text(text)))
_UNCHECKED = Kind("false: revocation is not checked here", lambda text: {"false": False}[text.lower()])
_BOOL = Kind("true or false", parse_bool)
_TEXT = Kind("a name", parse_text)
_CLASS = Kind("a class, or nothing", lambda text: text or None)
_LISTENER = Kind("a listener's name", lambda text: parse_text(text).upper())
_LISTENERS = Kind("NAME://host:port, separated by commas, each name once", parse_listeners)
_TIMEOUT_MS = _whole(1, unit="milliseconds")
_MAX_BYTES = _whole(1, unit="bytes")
_CONTROLLER_ID = Kind(
    f"a whole number, 0 to {MAX_CONTROLLER_ID}: clients number their own connections down from 2147483647",
    _whole(0, MAX_CONTROLLER_ID).parse,
)

PROPERTIES: dict[str, Kind] = {
    "zookeeper.connect": Kind("host:port,host:port/chroot", parse_connect),
    "zookeeper.session.timeout.ms": _TIMEOUT_MS,
    "zookeeper.connection.timeout.ms": _TIMEOUT_MS,
    "zookeeper.set.acl": _BOOL,
    "zookeeper.ssl.client.enable": _BOOL,
    "zookeeper.ssl.keystore.location": _PEM_LOCATION,
    "zookeeper.ssl.keystore.password": _SECRET,
    "zookeeper.ssl.keystore.type": _PEM,
    "zookeeper.ssl.truststore.location": _PEM_LOCATION,
    "zookeeper.ssl.truststore.password": _SECRET,
    "zookeeper.ssl.truststore.type": _PEM,
    "zookeeper.ssl.endpoint.identification.algorithm": Kind("HTTPS, or nothing", parse_endpoint_identification),
    "zookeeper.ssl.protocol": _one_of(*TLS_PROTOCOLS),
    "zookeeper.ssl.enabled.protocols": Kind(f"some of {', '.join(TLS_PROTOCOLS)}", parse_protocols),
    "zookeeper.ssl.crl.enable": _UNCHECKED,
    "zookeeper.ssl.ocsp.enable": _UNCHECKED,
    "aiocontroller.zookeeper.sasl.username": _TEXT,
    "aiocontroller.zookeeper.sasl.password": _SECRET,
    "aiocontroller.zookeeper.digest.username": Kind("a name without a colon", parse_digest_user),
    "aiocontroller.zookeeper.digest.password": _SECRET,
    "listeners": _LISTENERS,
    "advertised.listeners": _LISTENERS,
    "listener.security.protocol.map": Kind("NAME:PROTOCOL, separated by commas", parse_protocol_map),
    "security.inter.broker.protocol": _one_of(*SECURITY_PROTOCOLS),
    "inter.broker.listener.name": _LISTENER,
    "control.plane.listener.name": _LISTENER,
    "ssl.keystore.location": _TEXT,
    "ssl.keystore.type": _TEXT,
    "ssl.key.password": _SECRET,
    "ssl.truststore.location": _TEXT,
    "ssl.truststore.type": _TEXT,
    "ssl.client.auth": _one_of("none", "requested", "required"),
    "ssl.endpoint.identification.algorithm": Kind("HTTPS, or nothing", parse_endpoint_identification),
    "sasl.enabled.mechanisms": Kind("mechanisms, separated by commas", parse_names(",")),
    "sasl.mechanism.inter.broker.protocol": _TEXT,
    "sasl.jaas.config": _SECRET,
    "authorizer.class.name": _CLASS,
    "authorizer.zookeeper.url": _TEXT,
    "allow.everyone.if.no.acl.found": _BOOL,
    "ssl.principal.mapping.rules": Kind("rules, separated by commas", lambda text: text),
    "principal.builder.class": _CLASS,
    "super.users": Kind("Type:name (User:alice), separated by semicolons", parse_principals),
    "socket.request.max.bytes": _MAX_BYTES,
    "socket.listen.backlog.size": _whole(1),
    "max.connections": _whole(0),
    "max.connections.per.ip": _whole(0),
    "max.connections.per.ip.overrides": Kind("host:number, separated by commas", parse_counts),
    "connections.max.idle.ms": _TIMEOUT_MS,
    "connections.max.reauth.ms": _whole(-(2**63), 2**63 - 1, unit="milliseconds"),
    "connection.failed.authentication.delay.ms": _whole(0, unit="milliseconds"),
    "sasl.server.max.receive.size": _MAX_BYTES,
    "queued.max.request.bytes": Kind("a whole number of bytes, or -1", _whole(-1).parse),
    "aiocontroller.queued.max.response.bytes": _MAX_BYTES,
    "aiocontroller.queued.max.client.requests": _whole(1),
    "aiocontroller.login.timeout.ms": _TIMEOUT_MS,
    "aiocontroller.login.max.bytes": _MAX_BYTES,
    "aiocontroller.request.receive.timeout.ms": _TIMEOUT_MS,
    "aiocontroller.response.send.timeout.ms": _TIMEOUT_MS,
    "inter.broker.protocol.version": Kind("a Kafka version such as 3.9 or 2.7-IV2", parse_protocol),
    "controller.socket.timeout.ms": _TIMEOUT_MS,
    "request.timeout.ms": _TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": _TIMEOUT_MS,
    "auto.leader.rebalance.enable": _BOOL,
    "leader.imbalance.per.broker.percentage": _whole(0),
    "leader.imbalance.check.interval.seconds": _whole(1, unit="seconds"),
    "controller.quota.window.num": _whole(1),
    "controller.quota.window.size.seconds": _whole(1, unit="seconds"),
    "unclean.leader.election.enable": _BOOL,
    "delete.topic.enable": _BOOL,
    "auto.create.topics.enable": _BOOL,
    "num.partitions": _whole(1),
    "default.replication.factor": _whole(1, 2**15 - 1),
    "offsets.topic.num.partitions": _whole(1),
    "offsets.topic.replication.factor": _whole(1, 2**15 - 1),
    "offsets.topic.segment.bytes": _whole(1, unit="bytes"),
    "transaction.state.log.num.partitions": _whole(1),
    "transaction.state.log.replication.factor": _whole(1, 2**15 - 1),
    "transaction.state.log.segment.bytes": _whole(1, unit="bytes"),
    "transaction.state.log.min.isr": _whole(1),
    "create.topic.policy.class.name": _CLASS,
    "alter.config.policy.class.name": _CLASS,
    "delegation.token.secret.key": _SECRET,
    "delegation.token.master.key": _SECRET,
    "delegation.token.max.lifetime.ms": _TIMEOUT_MS,
    "delegation.token.expiry.time.ms": _TIMEOUT_MS,
    "delegation.token.expiry.check.interval.ms": _TIMEOUT_MS,
    "aiocontroller.id": _CONTROLLER_ID,
    "aiocontroller.keep.ours": Kind("names of settings, separated by commas, or all", parse_names(",")),
    "aiocontroller.http.host": _TEXT,
    "aiocontroller.http.port": _whole(0, 65535),
    "aiocontroller.http.max.connections": _whole(1),
    "aiocontroller.http.max.request.bytes": _MAX_BYTES,
    "aiocontroller.http.timeout.ms": _TIMEOUT_MS,
    "aiocontroller.journal.dir": _TEXT,
    "aiocontroller.release.linger.ms": _whole(0, unit="milliseconds"),
    "aiocontroller.takeover.policy": _one_of("wait", "takeover", "observe"),
    "aiocontroller.audit.interval.ms": _whole(0, unit="milliseconds"),
    "aiocontroller.audit.partitions.per.second": _whole(1),
    "aiocontroller.early.broker.detection": _one_of("off", "refused", "full"),
    "aiocontroller.early.controller.detection": _one_of("off", "refused", "full"),
    "aiocontroller.early.detection.heartbeat.interval.ms": _TIMEOUT_MS,
    "aiocontroller.early.detection.silence.ms": _TIMEOUT_MS,
    "aiocontroller.early.detection.trust.ms": _TIMEOUT_MS,
    "aiocontroller.early.detection.max.suspected.percentage": _whole(1, 100),
    "aiocontroller.early.detection.max.alarms.per.minute": _whole(1),
    "aiocontroller.early.fast.bounce.ms": _whole(0, unit="milliseconds"),
}

_OF_LISTENERS = {
    key: kind
    for key, kind in PROPERTIES.items()
    if key.startswith("ssl.") or key in ("sasl.enabled.mechanisms", "principal.builder.class", "max.connections")
} | {
    f"{mechanism}{key}": PROPERTIES[key]
    for mechanism in ("", "plain.", "scram-sha-256.", "scram-sha-512.")
    for key in ("sasl.jaas.config", "connections.max.reauth.ms")
}
"""Properties that may follow ``listener.name.<listener>.``."""


def load_config(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> tuple[Config, list[str]]:
    """The configuration, and warnings for people.  ConfigError with all that is wrong; OSError when the file is not
    readable."""
    settings = [] if file is None else list(read_properties(file))
    environment, warnings = _from_environment(environ or {})
    settings += environment
    settings += [Setting(key, value, "the command line") for key, value in (overrides or {}).items()]
    fields: dict[str, Any] = {}
    given: dict[str, str] = {}
    errors: dict[str, str] = {}
    unused: list[str] = []
    overrides_: dict[tuple[str, str], Any] = {}
    for key, value, source in settings:
        listener, property_ = _of_listener(key)
        kind = PROPERTIES.get(key) if listener is None else _OF_LISTENERS.get(property_)
        if kind is None:
            if key.startswith(OWN_PREFIX):
                errors[key] = f"{key} ({source}): no such property{_did_you_mean(key, PROPERTIES)}"
            elif key in TOPIC_DEFAULTS:
                given[key] = value.strip()
            elif is_kafkas(key if listener is None else _without_mechanism(property_)):
                unused.append(key)
            else:
                name = key if listener is None else property_
                near = _did_you_mean(name, KAFKA_PROPERTIES | PROPERTIES.keys(), before=key.removesuffix(name))
                warnings.append(f"{key} ({source}): neither Kafka nor aiocontroller has it{near}; ignored")
            continue
        errors.pop(key, None)  # what comes later replaces it
        try:
            parsed = kind.parse(value.strip())
            if listener is None:
                fields[key.replace(".", "_")] = parsed
                if not isinstance(parsed, Secret) and not key.startswith(OWN_PREFIX):
                    given[key] = value.strip()
            else:
                overrides_[listener, property_] = parsed
        except (ValueError, KeyError):
            shown = "[hidden]" if kind is _SECRET and value else repr(value)
            errors[key] = f"{key} ({source}): found {shown}, expected {kind.expected}"
    errors.update(_contradictions(fields, errors))
    if errors:
        raise ConfigError("\n".join(errors.values()))
    if unused:
        warnings.append(f"properties that Kafka knows and aiocontroller does not use: {_listed(unused)}")
    return _with_protocols(Config(**fields, listener_overrides=overrides_, given=given)), warnings


def _of_listener(key: str) -> tuple[str | None, str]:
    """``listener.name.internal.ssl.client.auth`` -> (internal, ssl.client.auth); (None, "") for other keys."""
    if not key.startswith("listener.name."):
        return None, ""
    listener, _, property_ = key.removeprefix("listener.name.").partition(".")
    return listener.lower(), property_


def _without_mechanism(property_: str) -> str:
    """``scram-sha-256.sasl.jaas.config``, as it may stand behind a listener, is one of ``sasl.jaas.config``."""
    _, separator, rest = property_.partition(".sasl.")
    return f"sasl.{rest}" if separator else property_


def _with_protocols(config: Config) -> Config:
    """Listeners with their protocols, and the inter-broker listener by its name."""
    by_name = config.listener_security_protocol_map

    def named(endpoints: tuple[Endpoint, ...] | None) -> tuple[Endpoint, ...] | None:
        return endpoints and tuple(
            msgspec.structs.replace(e, security_protocol=by_name.get(e.listener, e.security_protocol))
            for e in endpoints
        )

    by_protocol = config.security_inter_broker_protocol
    if config.inter_broker_listener_name == "PLAINTEXT" and by_protocol is not None:
        config = msgspec.structs.replace(config, inter_broker_listener_name=by_protocol)
    return msgspec.structs.replace(
        config, listeners=named(config.listeners), advertised_listeners=named(config.advertised_listeners)
    )


def _contradictions(fields: Mapping[str, Any], errors: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Contradictions between properties, by the property to change; skips those that are invalid themselves."""

    def given(key: str) -> bool:
        return bool(fields.get(key.replace(".", "_"))) or key in errors

    for kind in ("sasl", "digest"):
        pair = [f"aiocontroller.zookeeper.{kind}.{part}" for part in ("username", "password")]
        for have, lack in (pair, pair[::-1]):
            if given(have) and not given(lack):
                yield lack, f"{lack}: found nothing, expected a value, because {have} is set"
    for key in ("advertised.listeners", "listeners"):
        told = fields.get(key.replace(".", "_"))
        if told:
            everywhere = [e.host for e in told if e.host in ("0.0.0.0", "::")]
            if everywhere:
                yield (
                    "advertised.listeners",
                    f"advertised.listeners: found {everywhere[0]}, expected an address that brokers can connect to",
                )
            break
    tls = "zookeeper.ssl.client.enable"
    if given("zookeeper.ssl.keystore.location") and not given(tls):
        yield tls, f"{tls}: found false, expected true, because zookeeper.ssl.keystore.location is set"
    proofs = (
        "aiocontroller.zookeeper.sasl.username",
        "aiocontroller.zookeeper.digest.username",
        "zookeeper.ssl.keystore.location",
    )
    if given("zookeeper.set.acl") and not any(map(given, proofs)):
        yield (
            "zookeeper.set.acl",
            "zookeeper.set.acl: found true, expected one of "
            + ", ".join(proofs)
            + " with it: znodes must have an owner",
        )


def environment_name(key: str) -> str:
    """The variable for a property."""
    return (key if key.startswith(OWN_PREFIX) else OWN_PREFIX + key).replace(".", "_").upper()


def _from_environment(environ: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    by_name = {environment_name(key): key for key in PROPERTIES}
    prefix = environment_name(OWN_PREFIX)
    ours = sorted(name for name in environ if name.startswith(prefix) and name != DEBUG_VARIABLE)
    found = [Setting(by_name[name], environ[name], f"environment variable {name}") for name in ours if name in by_name]
    endings = [name.removeprefix(prefix) for name in by_name]
    return found, [
        f"environment variable {name}: no property belongs to it"
        f"{_did_you_mean(name.removeprefix(prefix), endings, before=prefix)}; ignored"
        for name in ours
        if name not in by_name
    ]


def _did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """The nearest known name, if one is near; of two equally near names, always the same one."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f"; did you mean {before}{close[0]}?" if close else ""


def _listed(names: Iterable[str], most: int = 8) -> str:
    unique = sorted(set(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + more
