"""Configuration by Kafka's property names, so that a broker's ``server.properties`` can be used unchanged.

Sources, in ascending order of precedence: defaults (Kafka's own, for Kafka's properties), a properties file, the
environment (``AIOCONTROLLER_ZOOKEEPER_CONNECT`` for ``zookeeper.connect``, ``AIOCONTROLLER_HTTP_PORT`` for
``aiocontroller.http.port``), overrides from the command line.

A bad value is an error that names the property, the value and what was expected; all errors are reported at once.
Kafka's properties that the controller does not use are ignored, with one warning for all of them.  An unknown property
gets its own warning, with the name that was probably meant; with our prefix it is an error, because it must be a typo.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.leader_preferences import LeaderPreferences
from aiocontroller.core.unclean_recovery import Recovery, RecoveryStrategy
from aiocontroller.kafka_property_names import KAFKA_PROPERTIES, TOPIC_DEFAULTS, is_kafkas
from aiocontroller.net.ports import DEBUG_VARIABLE
from aiocontroller.properties_file import FoundProperty, read_properties
from aiocontroller.property_values import (
    MAX_INT,
    MAX_LONG,
    SECRETS,
    BrokerIds,
    ClassName,
    CommandLine,
    ConnectionCounts,
    ConnectString,
    ControllerId,
    DigestUser,
    EndpointIdentification,
    FromBrokers,
    HostNames,
    HttpPassword,
    IntMilliseconds,
    ListenerName,
    Listeners,
    MappingRules,
    Mechanisms,
    Milliseconds,
    Names,
    NonNegativeInt,
    PemLocation,
    PemType,
    PositiveBytes,
    PositiveInt,
    PositiveIntMilliseconds,
    PositiveMilliseconds,
    PositiveSeconds,
    Principals,
    ProtocolMap,
    ProtocolVersion,
    Racks,
    RecoveryStrategies,
    ReplicationFactor,
    Secret,
    SecurityProtocol,
    TlsProtocol,
    TlsProtocols,
    Unchecked,
    ValueKind,
    from_brokers,
    kind_of,
    parse_protocol_version,
    what_is_set,
    whole,
)

OWN_PREFIX = "aiocontroller."
DEFAULT_CONTROLLER_ID = 1_000_001
"""Above ``reserved.broker.max.id`` (1000) and any id that brokers generate in practice."""
HTTP_LISTENER = "HTTP"
"""The listener name for the HTTP server's listener properties."""


class ConfigError(BadInputError):
    """Properties that cannot be used; the message has a line for each."""

    exit_code = 2
    """The exit code of wrong arguments: trying again does not help."""


Detection = Literal["off", "refused", "full"]
"""What counts as a sign of death; ``refused``: connections close and new ones are refused; ``full``: also silence."""


class Config(msgspec.Struct, frozen=True):
    """The only declaration of each property: Kafka's name with underscores for dots, its values (the type, see
    ``property_values``), its default, whether brokers' values apply, and its meaning.

    Units are those in Kafka's names.
    """

    zookeeper_connect: ConnectString = "127.0.0.1:2181"
    """The ensemble, with a chroot if the cluster has one."""
    zookeeper_session_timeout_ms: PositiveIntMilliseconds = 18_000
    """How long the session, and with it the role, outlives this process or its connection."""
    zookeeper_connection_timeout_ms: PositiveIntMilliseconds | None = None
    """How long to wait for ZooKeeper at startup; None: as long as it takes."""
    zookeeper_set_acl: Annotated[bool, FromBrokers(max, adopted=False)] = False
    """New znodes belong to their creator; see ``zookeeper.znode_acls``."""
    zookeeper_ssl_client_enable: bool = False
    """TLS to ZooKeeper."""
    zookeeper_ssl_keystore_location: PemLocation | None = None
    """PEM: our certificate, its chain and its key, for servers that ask for one."""
    zookeeper_ssl_keystore_password: Secret | None = None
    """The password of an encrypted key."""
    zookeeper_ssl_keystore_type: PemType | None = None
    zookeeper_ssl_truststore_location: PemLocation | None = None
    """PEM: trusted certificates; None: those that the system trusts."""
    zookeeper_ssl_truststore_password: Secret | None = None
    """Accepted so that it need not be removed, but ignored: PEM certificates have no password."""
    zookeeper_ssl_truststore_type: PemType | None = None
    zookeeper_ssl_endpoint_identification_algorithm: EndpointIdentification = "HTTPS"
    """``HTTPS``: the server's certificate must name its host; empty: no check."""
    zookeeper_ssl_protocol: TlsProtocol = "TLSv1.2"
    zookeeper_ssl_enabled_protocols: TlsProtocols | None = None
    """None: ``zookeeper.ssl.protocol`` and newer."""
    zookeeper_ssl_crl_enable: Unchecked = False
    zookeeper_ssl_ocsp_enable: Unchecked = False
    aiocontroller_zookeeper_sasl_username: str | None = None
    """For SASL DIGEST-MD5, as in section ``Client`` of a broker's JAAS file."""
    aiocontroller_zookeeper_sasl_password: Secret | None = None
    """For SASL DIGEST-MD5: the password that belongs to ``aiocontroller.zookeeper.sasl.username``."""
    aiocontroller_zookeeper_digest_username: DigestUser | None = None
    """For ZooKeeper's scheme ``digest``."""
    aiocontroller_zookeeper_digest_password: Secret | None = None
    """The password that belongs to ``aiocontroller.zookeeper.digest.username``."""
    listeners: Listeners = (Endpoint("PLAINTEXT", "127.0.0.1", 0),)
    """Where brokers and clients connect to this controller; port 0 picks a free one."""
    advertised_listeners: Listeners | None = None
    """The addresses announced to brokers; None: ``listeners``, with the actual port."""
    listener_security_protocol_map: ProtocolMap = {}
    """Security protocol of each listener name.  A listener that is not in it has the protocol of its name, or PLAINTEXT
    if its name is not that of a protocol."""
    security_inter_broker_protocol: SecurityProtocol | None = None
    """Selects the inter-broker listener by its protocol; ``inter.broker.listener.name`` selects it by its name."""
    inter_broker_listener_name: ListenerName = "PLAINTEXT"
    control_plane_listener_name: ListenerName | None = None
    """The listener on which the controller connects to brokers, if they have a separate one for it."""
    ssl_keystore_location: str | None = None
    """PEM: our certificate, its chain and its key; see ``security``."""
    ssl_keystore_type: str = "PEM"
    ssl_key_password: Secret | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str = "PEM"
    ssl_client_auth: Literal["none", "requested", "required"] = "none"
    ssl_endpoint_identification_algorithm: EndpointIdentification = "HTTPS"
    sasl_enabled_mechanisms: Mechanisms = ("GSSAPI",)
    sasl_mechanism_inter_broker_protocol: str = "GSSAPI"
    sasl_jaas_config: Secret | None = None
    authorizer_class_name: ClassName = None
    """The brokers' authorizer; see ``security.authorizer_of`` for the classes that the controller replaces."""
    authorizer_zookeeper_url: str | None = None
    """The ZooKeeper that holds the ACLs, if it is not the brokers'."""
    allow_everyone_if_no_acl_found: bool = False
    ssl_principal_mapping_rules: MappingRules = "DEFAULT"
    principal_builder_class: ClassName = None
    super_users: Principals = ()
    """Principals (``Type:name``) that are allowed everything."""
    socket_request_max_bytes: PositiveBytes = 100 * 1024 * 1024
    """Maximum size of a request; some APIs have a lower limit (``server.request_sizes``)."""
    socket_listen_backlog_size: PositiveInt = 50
    max_connections: NonNegativeInt = MAX_INT
    """Maximum number of connections of brokers and clients; descriptors of the operating system limit it, too."""
    max_connections_per_ip: NonNegativeInt = MAX_INT
    max_connections_per_ip_overrides: ConnectionCounts = {}
    """Maximum number of connections by IP address or host name."""
    connections_max_idle_ms: PositiveMilliseconds = 600_000
    connections_max_reauth_ms: Annotated[int, whole(-MAX_LONG - 1, MAX_LONG, unit="milliseconds")] = 0
    """How long a SASL login lasts (KIP-368); without a limit unless positive."""
    connection_failed_authentication_delay_ms: IntMilliseconds = 100
    sasl_server_max_receive_size: PositiveBytes = 512 * 1024
    """Maximum size of a request of a client that has not logged in."""
    queued_max_request_bytes: Annotated[int, ValueKind("a whole number of bytes, or -1", whole(-1).parse)] = -1
    """Maximum total size of requests being received or answered; -1 is no limit in Kafka, and 256 MiB here."""
    aiocontroller_queued_max_response_bytes: PositiveBytes = 256 * 1024 * 1024
    """Maximum total size of answers that clients have not read."""
    aiocontroller_queued_max_client_requests: PositiveInt = 4
    """Maximum number of clients' requests in the event queue; see ``server.admission``."""
    aiocontroller_login_timeout_ms: PositiveMilliseconds = 10_000
    """How long a client may take for the TLS handshake and the login together."""
    aiocontroller_login_max_bytes: PositiveBytes = 16 * 1024 * 1024
    """Maximum total size of requests from clients that have not logged in."""
    aiocontroller_request_receive_timeout_ms: PositiveMilliseconds = 30_000
    """How long a client may take to send a request, from its first byte to its last."""
    aiocontroller_response_send_timeout_ms: PositiveMilliseconds = 30_000
    """How long a client may take to read an answer."""
    inter_broker_protocol_version: Annotated[ProtocolVersion, FromBrokers(min)] = "3.9"
    """The newest protocol version that all brokers support."""
    controller_socket_timeout_ms: Annotated[PositiveIntMilliseconds, FromBrokers(max)] = 30_000
    request_timeout_ms: Annotated[PositiveIntMilliseconds, FromBrokers(max)] = 30_000
    socket_connection_setup_timeout_ms: Annotated[PositiveMilliseconds, FromBrokers(max)] = 10_000
    auto_leader_rebalance_enable: Annotated[bool, FromBrokers(min)] = True
    leader_imbalance_per_broker_percentage: Annotated[NonNegativeInt, FromBrokers(max)] = 10
    leader_imbalance_check_interval_seconds: Annotated[PositiveSeconds, FromBrokers(max)] = 300
    controller_quota_window_num: Annotated[PositiveInt, FromBrokers(max)] = 11
    """Times ``controller.quota.window.size.seconds``: for how many seconds a client may save up its unused
    ``controller_mutation_rate``."""
    controller_quota_window_size_seconds: Annotated[PositiveSeconds, FromBrokers(max)] = 1
    unclean_leader_election_enable: Annotated[bool, FromBrokers(min)] = False
    delete_topic_enable: Annotated[bool, FromBrokers(min)] = True
    auto_create_topics_enable: Annotated[bool, FromBrokers(min)] = True
    num_partitions: Annotated[PositiveInt, FromBrokers(min)] = 1
    default_replication_factor: Annotated[ReplicationFactor, FromBrokers(max)] = 1
    offsets_topic_num_partitions: Annotated[PositiveInt, FromBrokers(max)] = 50
    offsets_topic_replication_factor: Annotated[ReplicationFactor, FromBrokers(max)] = 3
    offsets_topic_segment_bytes: Annotated[PositiveBytes, FromBrokers(min)] = 100 * 1024 * 1024
    transaction_state_log_num_partitions: Annotated[PositiveInt, FromBrokers(max)] = 50
    transaction_state_log_replication_factor: Annotated[ReplicationFactor, FromBrokers(max)] = 3
    transaction_state_log_segment_bytes: Annotated[PositiveBytes, FromBrokers(min)] = 100 * 1024 * 1024
    transaction_state_log_min_isr: Annotated[PositiveInt, FromBrokers(max)] = 2
    create_topic_policy_class_name: Annotated[ClassName, FromBrokers(what_is_set)] = None
    """The brokers' policy.  Java classes cannot run here; ``controller.cluster_settings`` says what happens instead."""
    alter_config_policy_class_name: Annotated[ClassName, FromBrokers(what_is_set)] = None
    delegation_token_secret_key: Secret | None = None
    """The brokers' key, from which the secrets of delegation tokens are made; None: no tokens are created here."""
    delegation_token_master_key: Secret | None = None
    """The older name of ``delegation.token.secret.key``, which takes precedence."""
    delegation_token_max_lifetime_ms: Annotated[PositiveMilliseconds, FromBrokers(min)] = 604_800_000
    delegation_token_expiry_time_ms: Annotated[PositiveMilliseconds, FromBrokers(min)] = 86_400_000
    delegation_token_expiry_check_interval_ms: Annotated[PositiveMilliseconds, FromBrokers(min)] = 3_600_000
    aiocontroller_id: ControllerId = DEFAULT_CONTROLLER_ID
    """The id with which this process holds ``/controller``; no broker may have it."""
    aiocontroller_keep_ours: Names = ()
    """Settings whose values here apply even if the brokers' differ; ``all``: all settings."""
    aiocontroller_http_host: str = "127.0.0.1"
    """The address of the HTTP server for metrics, health and commands."""
    aiocontroller_http_port: Annotated[int, whole(0, 65535)] = 0
    """The port of the HTTP server; 0 picks a free one."""
    aiocontroller_http_security_protocol: Literal["PLAINTEXT", "SSL"] = "PLAINTEXT"
    """SSL: HTTPS, with the ``ssl.…`` properties of a listener named HTTP (``listener.name.http.ssl.…``)."""
    aiocontroller_http_allowed_hosts: HostNames = ()
    """Host names that browsers may use to read the cluster's state, besides IP addresses and localhost
    (docs/operating.md)."""
    aiocontroller_http_password: HttpPassword | None = None
    """The password that clients on other machines without a certificate need to read the page and the cluster's state
    (HTTP Basic)."""
    aiocontroller_http_actor_password: HttpPassword | None = None
    """The password for actions on the page, even from this machine; they also need a name for the journal
    (docs/operating.md)."""
    aiocontroller_http_actors: Principals = ()
    """Principals of certificates whose owners may act on the page without that password."""
    aiocontroller_http_max_connections: PositiveInt = 64
    """Maximum number of HTTP connections; another one replaces the one that has been idle longest."""
    aiocontroller_http_max_request_bytes: PositiveBytes = 1024 * 1024
    """Maximum size of a command's body."""
    aiocontroller_http_timeout_ms: PositiveMilliseconds = 10_000
    """Time limit for each of: a request's header, its body, the reading of its answer, an idle connection."""
    aiocontroller_journal_dir: str | None = None
    """The folder for the journal's files (docs/journal.md); ``run --data`` sets it."""
    aiocontroller_journal_retention_bytes: Annotated[int, whole(-1, unit="bytes")] = 10 * 1024 * 1024 * 1024
    """Maximum total size of the journal's files; beyond it the oldest ones are deleted.  -1: no limit."""
    aiocontroller_release_linger_ms: Milliseconds = 30_000
    """After a release, how long the ending process still answers clients that have not found the new controller."""
    aiocontroller_takeover_policy: Literal["wait", "standby", "takeover", "observe"] = "wait"
    """What to do while a broker is the controller: ``wait`` for a vacancy; ``standby``: wait, but take over at once
    from a broker that has succeeded an aiocontroller; ``takeover``: take over at once; ``observe``: never become the
    controller."""
    aiocontroller_standby: Literal["cold", "warm"] = "warm"
    """Whether a standby keeps a copy of the cluster, so that a failover need not read it (docs/operating.md).  This
    needs ZooKeeper 3.6 or later."""
    aiocontroller_audit_interval_ms: Milliseconds = 600_000
    """Interval at which memory is compared with ZooKeeper; 0: only after foreign writes."""
    aiocontroller_audit_partitions_per_second: PositiveInt = 4_000
    """Maximum number of partitions that are compared with ZooKeeper per second."""
    aiocontroller_early_broker_detection: Detection = "off"
    """Whether brokers that seem dead lose their leaders before their session expires (docs/early-detection.md)."""
    aiocontroller_early_controller_detection: Detection = "off"
    """Whether a standby controller takes over as soon as the active one seems dead."""
    aiocontroller_early_detection_heartbeat_interval_ms: PositiveMilliseconds = 200
    """How often each peer gets a heartbeat request."""
    aiocontroller_early_detection_silence_ms: PositiveMilliseconds = 1_500
    """In mode ``full``, a peer that has not answered for this long is suspected."""
    aiocontroller_early_detection_trust_ms: PositiveMilliseconds = 1_000
    """How long a suspect must answer to be trusted again; doubled for each earlier false alarm, up to a minute."""
    aiocontroller_early_detection_max_suspected_percentage: Annotated[int, whole(1, 100)] = 34
    """When more of the brokers than this seem dead at once, none is suspected: the fault is probably on our side.
    One of two or more brokers may always be suspected."""
    aiocontroller_early_detection_max_alarms_per_minute: PositiveInt = 10
    """Maximum number of suspicions per minute; further ones wait until the minute is over."""
    aiocontroller_fence_command: CommandLine = ()
    """The command that ends a broker that hangs; ``{broker}`` and ``{host}`` are replaced (docs/early-detection.md)."""
    aiocontroller_fence_after_ms: Milliseconds = 500
    """How long a suspected broker must stay silent before the command is run."""
    aiocontroller_fence_timeout_ms: PositiveMilliseconds = 10_000
    """A command that runs longer is killed."""
    aiocontroller_fence_dry_run: bool = False
    """Only report which command would be run."""
    aiocontroller_early_fast_bounce_ms: Milliseconds = 0
    """How long a dead broker's listener must refuse connections before its registration is removed; 0: it is left to
    ZooKeeper."""
    aiocontroller_sickness_mode: Literal["off", "advise", "act"] = "off"
    """Whether to find brokers that are live but slow others down, and what to do: ``advise`` only reports them, ``act``
    also moves their leaders away and removes them from ISRs (docs/sick-brokers.md)."""
    aiocontroller_sickness_staleness_ms: PositiveMilliseconds = 1_000
    """How old the records that a follower lacks must be to count as evidence against it or its leader."""
    aiocontroller_sickness_latency_ms: PositiveMilliseconds = 100
    """A broker is slow if its median response time is longer than this, and four times that of the others."""
    aiocontroller_sickness_healthy_ms: PositiveMilliseconds = 10_000
    """How long a sick broker must look healthy before it counts as such; doubled for each relapse, up to five
    minutes."""
    aiocontroller_unclean_recovery_strategy: RecoveryStrategy = "None"
    """Which replica leads when no in-sync replica is left, or the only ones have started uncleanly.  ``None``: no
    replica, or the live one with the best log; ``Balanced``: the one with the best log, once all that were last in sync
    have reported the ends of their logs; ``Aggressive``: the one with the best log of those known after
    ``aiocontroller.unclean.recovery.timeout.ms``; see docs/recovery.md."""
    aiocontroller_unclean_recovery_strategy_overrides: RecoveryStrategies = {}
    """Strategies of single topics: ``orders:Balanced,audit:None``."""
    aiocontroller_unclean_recovery_timeout_ms: PositiveMilliseconds = 300_000
    """How long ``Aggressive`` waits for the logs of the replicas that were last in sync, while another one is live."""
    aiocontroller_leader_avoid_brokers: BrokerIds = ()
    """Brokers that lead a partition only if no other replica can lead it (docs/operating.md)."""
    aiocontroller_leader_preferred_racks: Racks = ()
    """Racks whose brokers are preferred as leaders."""
    aiocontroller_eligible_leader_replicas: bool = True
    """Whether replicas outside the ISR that still hold everything committed may lead (KIP-966); only while
    inter.broker.protocol.version is 3.7 or newer (docs/eligible-replicas.md)."""
    listener_overrides: Mapping[tuple[str, str], Any] = {}
    """``listener.name.<listener>.<property>`` by listener (lower case) and property."""
    given: Mapping[str, str] = {}
    """The text of each Kafka property that was set and is used here; no secrets."""

    @property
    def http_endpoint(self) -> Endpoint:
        """The address of the HTTP server, as if it were a listener."""
        host, port = self.aiocontroller_http_host, self.aiocontroller_http_port
        return Endpoint(HTTP_LISTENER, host, port, self.aiocontroller_http_security_protocol)

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
        """``/feature`` records that features have versions (KIP-584)."""
        return self._protocol_at_least(2, 7, 0)

    @property
    def feature_znode_version(self) -> int:
        """The layout of ``/feature``: without minimum levels from 3.3 on."""
        return 2 if self._protocol_at_least(3, 3, 0) else 1

    @property
    def alter_partition_supported(self) -> bool:
        """Brokers change ISRs by AlterPartition (KIP-497) and not by writing znodes."""
        return self._protocol_at_least(2, 7, 2)

    @property
    def recovery(self) -> Recovery:
        """How replicas' logs decide which replica leads, by topic."""
        own = self.aiocontroller_unclean_recovery_strategy_overrides
        return Recovery(self.aiocontroller_unclean_recovery_strategy, own)

    @property
    def eligible_leader_replicas(self) -> bool:
        """Whether to keep eligible leader replicas: brokers commit nothing below min.insync.replicas (KAFKA-15583)."""
        return self.aiocontroller_eligible_leader_replicas and self.commits_at_min_isr

    @property
    def commits_at_min_isr(self) -> bool:
        """Whether leaders commit nothing while fewer than ``min.insync.replicas`` are in sync (KAFKA-15583)."""
        return self._protocol_at_least(3, 7, 0)

    @property
    def leader_preferences(self) -> LeaderPreferences:
        """Which brokers should lead."""
        return LeaderPreferences(
            frozenset(self.aiocontroller_leader_avoid_brokers), frozenset(self.aiocontroller_leader_preferred_racks)
        )

    def of_listener(self, listener: str, key: str) -> Any:
        """Return the value of a property for one listener."""
        overridden = self.listener_overrides.get((listener.lower(), key))
        return getattr(self, key.replace(".", "_")) if overridden is None else overridden

    def _protocol_at_least(self, major: int, minor: int, iv: int) -> bool:
        return self.protocol >= (major, minor, iv)


class Property(NamedTuple):
    """A property as a field of ``Config`` declares it."""

    field: str
    kind: ValueKind
    from_brokers: FromBrokers | None


PROPERTIES = {
    field.replace("_", "."): Property(field, kind_of(type_), from_brokers(type_))
    for field, type_ in get_type_hints(Config, include_extras=True).items()
    if field not in ("listener_overrides", "given")
}
"""Kafka's name of a property -> its declaration."""

_OF_LISTENERS = {
    key: declared
    for key, declared in PROPERTIES.items()
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
    """Return the configuration, and warnings for people.

    Raises ConfigError, with all that is wrong, and OSError if the file is not readable.
    """
    settings = [] if file is None else list(read_properties(file))
    environment, warnings = _from_environment(environ or {})
    settings += environment
    settings += [FoundProperty(key, value, "the command line") for key, value in (overrides or {}).items()]
    fields: dict[str, Any] = {}
    given: dict[str, str] = {}
    errors: dict[str, str] = {}
    unused: list[str] = []
    overrides_: dict[tuple[str, str], Any] = {}
    for key, value, source in settings:
        listener, property_ = _of_listener(key)
        declared = PROPERTIES.get(key) if listener is None else _OF_LISTENERS.get(property_)
        if declared is None:
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
        errors.pop(key, None)  # the later value replaces the wrong one
        try:
            parsed = declared.kind.parse(value.strip())
            if listener is None:
                fields[declared.field] = parsed
                if not isinstance(parsed, Secret) and not key.startswith(OWN_PREFIX):
                    given[key] = value.strip()
            else:
                overrides_[listener, property_] = parsed
        except (ValueError, KeyError):
            shown = "[hidden]" if declared.kind in SECRETS and value else repr(value)
            errors[key] = f"{key} ({source}): found {shown}, expected {declared.kind.expected}"
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
    """Return ``sasl.jaas.config`` for ``scram-sha-256.sasl.jaas.config``, the form of some listeners' properties."""
    _, separator, rest = property_.partition(".sasl.")
    return f"sasl.{rest}" if separator else property_


def _with_protocols(config: Config) -> Config:
    """Return the configuration with the listeners' protocols, and the inter-broker listener's name, filled in."""
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
    """Yield contradictions between properties, by the property to change; skip properties with invalid values."""

    def given(key: str) -> bool:
        return bool(fields.get(key.replace(".", "_"))) or key in errors

    for kind in ("sasl", "digest"):
        pair = [f"aiocontroller.zookeeper.{kind}.{part}" for part in ("username", "password")]
        for have, lack in (pair, pair[::-1]):
            if given(have) and not given(lack):
                yield lack, f"{lack}: found nothing, expected a value, because {have} is set"
    detection, fence = "aiocontroller.early.broker.detection", "aiocontroller.fence.command"
    mode = fields.get(detection.replace(".", "_"), "off")
    if given(fence) and mode != "full" and detection not in errors:
        yield detection, f"{detection}: found {mode}, expected full, because {fence} is set"
    for key in ("advertised.listeners", "listeners"):
        endpoints = fields.get(key.replace(".", "_"))
        if endpoints:
            everywhere = [e.host for e in endpoints if e.host in ("0.0.0.0", "::")]
            if everywhere:
                yield (
                    "advertised.listeners",
                    f"advertised.listeners: found {everywhere[0]}, expected an address that brokers can connect to",
                )
            break
    https, listeners = "aiocontroller.http.security.protocol", fields.get("listeners") or ()
    if fields.get(https.replace(".", "_")) == "SSL" and any(e.listener.upper() == HTTP_LISTENER for e in listeners):
        yield https, f"{https}: found SSL, expected PLAINTEXT, because a listener has the name {HTTP_LISTENER} already"
    actors = "aiocontroller.http.actors"
    if given(actors) and fields.get(https.replace(".", "_")) != "SSL" and https not in errors:
        yield https, f"{https}: found PLAINTEXT, expected SSL, because {actors} is set: they show certificates"
    reads, acts = "aiocontroller.http.password", "aiocontroller.http.actor.password"
    if given(acts) and fields.get(reads.replace(".", "_")) == fields.get(acts.replace(".", "_")):
        yield acts, f"{acts}: found the value of {reads}, expected another one: who reads must not be able to act"
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
    """Return the environment variable for a property."""
    return (key if key.startswith(OWN_PREFIX) else OWN_PREFIX + key).replace(".", "_").upper()


def _from_environment(environ: Mapping[str, str]) -> tuple[list[FoundProperty], list[str]]:
    by_name = {environment_name(key): key for key in PROPERTIES}
    prefix = environment_name(OWN_PREFIX)
    ours = sorted(name for name in environ if name.startswith(prefix) and name != DEBUG_VARIABLE)
    found = [
        FoundProperty(by_name[name], environ[name], f"environment variable {name}") for name in ours if name in by_name
    ]
    endings = [name.removeprefix(prefix) for name in by_name]
    return found, [
        f"environment variable {name}: no property belongs to it"
        f"{_did_you_mean(name.removeprefix(prefix), endings, before=prefix)}; ignored"
        for name in ours
        if name not in by_name
    ]


def _did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """Suggest the most similar known name, if one is similar; of two equally similar ones, always the same."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f"; did you mean {before}{close[0]}?" if close else ""


def _listed(names: Iterable[str], most: int = 8) -> str:
    unique = sorted(set(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + more
