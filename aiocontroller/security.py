"""The security of each listener, as server and as client: TLS, SASL, and authorization.

Property names are Kafka's, including those under ``listener.name.<listener>.``, so that a broker's file works.  Stores
are PEM, mechanisms PLAIN and SCRAM.  Properties that a listener does not need are not read: a file may name Java stores
and GSSAPI for other listeners.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.authorizer import AllowAll, Authorizer
from aiocontroller.authorizer.principals import PrincipalError, SslPrincipalMapper
from aiocontroller.config import Config, ConfigError
from aiocontroller.core.ids import Endpoint
from aiocontroller.pem_files import load_pem
from aiocontroller.property_values import Secret
from aiocontroller.wire.scram import DIGESTS

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *DIGESTS)
ANONYMOUS = "User:ANONYMOUS"
ACL_AUTHORIZERS = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""Kafka's own, and its name in older releases."""
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

_JAAS_OPTION = re.compile(r'([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


class Credentials(msgspec.Struct, frozen=True):
    """The credentials with which this controller connects to brokers."""

    mechanism: str
    username: str
    password: Secret


class ListenerSecurity(msgspec.Struct, frozen=True):
    """A listener's SASL and TLS, according to its properties."""

    mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms offered; empty: no SASL."""
    plain_users: Mapping[str, Secret] = {}
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    max_reauth_ms: Mapping[str, int] = {}
    """``connections.max.reauth.ms`` by SASL mechanism; no limit unless positive."""
    principals: SslPrincipalMapper | None = None
    """Maps client certificates to principals; not used on a listener with SASL."""

    @property
    def authenticated(self) -> bool:
        """Whether clients are always authenticated: by SASL, or by TLS if a certificate is required."""
        certified = self.server_tls is not None and self.server_tls.verify_mode is ssl.CERT_REQUIRED
        return bool(self.mechanisms) or certified


class Security:
    """The security of all listeners, read from the configuration when first needed.

    ``server`` and ``client`` raise ConfigError naming the wrong property.  Call them for each connection, since
    ``read_again`` changes what they return.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._servers: dict[str, tuple[Endpoint, ListenerSecurity]] = {}
        self._clients: dict[tuple[str, str], tuple[Endpoint, ListenerSecurity]] = {}

    def server(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return the security of a listener of ours."""
        known = self._servers.get(endpoint.listener)
        if known is None:
            known = self._servers[endpoint.listener] = endpoint, self._server(endpoint)
        return known[1]

    def client(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return the security for connecting to a broker's listener."""
        key = endpoint.listener, endpoint.security_protocol
        known = self._clients.get(key)
        if known is None:
            known = self._clients[key] = endpoint, self._client(endpoint)
        return known[1]

    def read_again(self) -> None:
        """Read the certificates and keys of all listeners again; ConfigError if one is wrong, and then none changes."""
        servers = {key: (at, self._server(at)) for key, (at, _) in self._servers.items()}
        clients = {key: (at, self._client(at)) for key, (at, _) in self._clients.items()}
        self._servers, self._clients = servers, clients

    def _server(self, endpoint: Endpoint) -> ListenerSecurity:
        tls, sasl = needs(endpoint)
        self._check_principal_builder(endpoint.listener)
        if not sasl:
            is_http = endpoint == self._config.http_endpoint
            server_tls = self._server_tls(endpoint.listener, own_auth=is_http) if tls else None
            certificates = server_tls is not None and server_tls.verify_mode is not ssl.CERT_NONE
            return ListenerSecurity(
                server_tls=server_tls, principals=self._principals(endpoint.listener) if certificates else None
            )
        offered = self._config.of_listener(endpoint.listener, "sasl.enabled.mechanisms")
        mechanisms = tuple(name for name in offered if name in MECHANISMS)
        if not mechanisms:
            raise ConfigError(
                f"sasl.enabled.mechanisms: found {', '.join(offered)} for listener {endpoint.listener}, "
                f"expected one of {', '.join(MECHANISMS)} among them"
            )
        users = self._plain_users(endpoint.listener) if PLAIN in mechanisms else {}
        return ListenerSecurity(
            mechanisms,
            users,
            server_tls=self._server_tls(endpoint.listener, own_auth=True) if tls else None,
            max_reauth_ms={name: self._max_reauth_ms(endpoint.listener, name) for name in mechanisms},
        )

    def _client(self, endpoint: Endpoint) -> ListenerSecurity:
        tls, sasl = needs(endpoint)
        return ListenerSecurity(
            client_tls=self._client_tls(endpoint.listener) if tls else None,
            credentials=self._credentials(endpoint.listener) if sasl else None,
        )

    # -- principals ------------------------------------------------------------------------------------------------

    def _principals(self, listener: str) -> SslPrincipalMapper:
        rules = self._config.of_listener(listener, "ssl.principal.mapping.rules")
        try:
            return SslPrincipalMapper(rules)
        except PrincipalError as error:
            raise ConfigError(
                f"ssl.principal.mapping.rules: found {rules!r} ({error}), expected rules that both Java and this "
                f"controller understand, since listener {listener} reads certificates"
            ) from error

    def _check_principal_builder(self, listener: str) -> None:
        """ConfigError for a custom class: it may give clients other principals than we do, and ACLs name principals."""
        builder = self._config.of_listener(listener, "principal.builder.class")
        if builder not in (None, DEFAULT_PRINCIPAL_BUILDER) and self._config.authorizer_class_name is not None:
            raise ConfigError(
                f"principal.builder.class: found {builder}, which cannot run outside brokers, expected nothing or "
                f"{DEFAULT_PRINCIPAL_BUILDER}, since authorizer.class.name is set"
            )

    # -- SASL ------------------------------------------------------------------------------------------------------

    def _jaas(self, listener: str, mechanism: str) -> tuple[str, dict[str, str]]:
        """Return the property with the JAAS configuration, and its options."""
        key = f"{mechanism.lower()}.sasl.jaas.config"
        found = self._config.listener_overrides.get((listener.lower(), key))
        if found is None:
            key, found = "sasl.jaas.config", self._config.of_listener(listener, "sasl.jaas.config")
        if found is None:
            raise ConfigError(
                f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config: found nothing, expected a "
                f'login module with username="…" password="…", since listener {listener} speaks {mechanism}'
            )
        return key, parse_jaas(found.value)

    def _max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return the mechanism's value on this listener, else the listener's, else the general one."""
        key = "connections.max.reauth.ms"
        of_mechanism = self._config.listener_overrides.get((listener.lower(), f"{mechanism.lower()}.{key}"))
        return int(self._config.of_listener(listener, key) if of_mechanism is None else of_mechanism)

    def _plain_users(self, listener: str) -> dict[str, Secret]:
        _, options = self._jaas(listener, PLAIN)
        return {name[5:]: Secret(value) for name, value in options.items() if name.startswith("user_")}

    def _credentials(self, listener: str) -> Credentials:
        mechanism = self._config.sasl_mechanism_inter_broker_protocol
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"sasl.mechanism.inter.broker.protocol: found {mechanism}, expected one of {', '.join(MECHANISMS)}, "
                f"since connections to brokers use listener {listener}"
            )
        key, options = self._jaas(listener, mechanism)
        if not options.get("username") or "password" not in options:
            raise ConfigError(
                f'{key}: found no username="…" and password="…", expected the credentials for connections to brokers'
            )
        return Credentials(mechanism, options["username"], Secret(options["password"]))

    # -- TLS -------------------------------------------------------------------------------------------------------

    def _server_tls(self, listener: str, *, own_auth: bool) -> ssl.SSLContext:
        """``own_auth``: only this listener's own property can ask for certificates, as in Kafka with SASL."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._own_certificate(context, listener, required=True)
        own = self._config.listener_overrides.get((listener.lower(), "ssl.client.auth"))
        wanted = (own or "none") if own_auth else self._config.of_listener(listener, "ssl.client.auth")
        if wanted != "none":
            context.verify_mode = ssl.CERT_REQUIRED if wanted == "required" else ssl.CERT_OPTIONAL
            self._trust(context, listener)
        return context

    def _client_tls(self, listener: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        algorithm = self._config.of_listener(listener, "ssl.endpoint.identification.algorithm")
        context.check_hostname = algorithm == "HTTPS"
        self._trust(context, listener)
        self._own_certificate(context, listener, required=False)
        return context

    def _own_certificate(self, context: ssl.SSLContext, listener: str, *, required: bool) -> None:
        path = self._pem(listener, "ssl.keystore")
        if path is None:
            if required:
                raise ConfigError(f"ssl.keystore.location: found nothing, expected PEM, since {listener} speaks TLS")
            return
        password = self._config.of_listener(listener, "ssl.key.password")
        # a wrong or missing password must raise an error, not prompt on the terminal
        opened = "" if password is None else password.value
        expected = "a certificate and its key in PEM, which ssl.key.password opens"
        load_pem("ssl.keystore.location", path, expected, lambda: context.load_cert_chain(path, password=opened))

    def _trust(self, context: ssl.SSLContext, listener: str) -> None:
        path = self._pem(listener, "ssl.truststore")
        if path is None:
            context.load_default_certs()
            return
        load: Callable[[], Any] = lambda: context.load_verify_locations(cafile=path)  # noqa: E731
        load_pem("ssl.truststore.location", path, "certificates in PEM", load)

    def _pem(self, listener: str, store: str) -> str | None:
        path: str | None = self._config.of_listener(listener, f"{store}.location")
        kind: str = self._config.of_listener(listener, f"{store}.type")
        if path is not None and (kind.upper() != "PEM" or path.lower().endswith((".jks", ".p12", ".pfx"))):
            raise ConfigError(
                f"{store}.location: found {path!r} of type {kind}, expected PEM with {store}.type=PEM "
                f"(openssl pkcs12 makes one), since listener {listener} speaks TLS"
            )
        return path


def authorizer_of(config: Config) -> Authorizer:
    """Return the same authorizer as brokers with these properties have.

    If its class cannot run here or its ACLs are elsewhere (``unsupported_authorizer``), it never loads any ACLs, and so
    allows only super users.
    """
    if config.authorizer_class_name is None:
        return AllowAll()
    return AclAuthorizer(config.super_users, allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)


def unsupported_authorizer(config: Config) -> str | None:
    """Return why authorization is not possible here, which is a reason against taking the role; None if it is."""
    name = config.authorizer_class_name
    if name is None:
        return None
    if name not in ACL_AUTHORIZERS:
        return (
            f"authorizer.class.name is {name}, which cannot run outside brokers: this controller implements "
            f"{ACL_AUTHORIZERS[0]} only"
        )
    elsewhere = config.authorizer_zookeeper_url
    if elsewhere not in (None, config.zookeeper_connect):
        return (
            f"authorizer.zookeeper.url is {elsewhere}, and zookeeper.connect {config.zookeeper_connect}: ACLs in "
            "another ZooKeeper are not read here"
        )
    return None


def needs(endpoint: Endpoint) -> tuple[bool, bool]:
    """Return whether an endpoint needs TLS, and whether it needs SASL."""
    protocol = endpoint.security_protocol
    return protocol in ("SSL", "SASL_SSL"), protocol.startswith("SASL_")


def parse_jaas(text: str) -> dict[str, str]:
    """Return the options of ``…LoginModule required name="value" …;``."""
    _, _, options = text.partition(" required")
    return {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in _JAAS_OPTION.findall(options)}
