"""Makes a ZooKeeper client from the configuration: TLS, credentials and the ACLs of new znodes.

Property names are Kafka's; only the credentials have names of our own, since Kafka keeps them in a JAAS file.
Stores are PEM: Java's own formats cannot be read here.
"""

from __future__ import annotations

import ssl

from aiocontroller.config import Config
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.pem_files import load_pem
from aiocontroller.property_values import Secret
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.znode_acls import kafka_acl

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def zookeeper_client(config: Config, world: World, *, metrics: Metrics | None = None) -> ZooKeeperClient:
    """A client configured by the properties, not started.  Raises ConfigError, naming the invalid property."""
    return ZooKeeperClient(
        config.zookeeper_connect,
        world=world,
        session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
        metrics=metrics,
        ssl=tls_context(config),
        sasl_digest=_pair(config.aiocontroller_zookeeper_sasl_username, config.aiocontroller_zookeeper_sasl_password),
        digest=_pair(config.aiocontroller_zookeeper_digest_username, config.aiocontroller_zookeeper_digest_password),
        acl_rule=kafka_acl if config.zookeeper_set_acl else None,
    )


def _pair(username: str | None, password: Secret | None) -> tuple[str, str] | None:
    return None if username is None or password is None else (username, password.value)


def tls_context(config: Config) -> ssl.SSLContext | None:
    """The TLS context; None without ``zookeeper.ssl.client.enable``.  Raises ConfigError."""
    if not config.zookeeper_ssl_client_enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm == "HTTPS"
    allowed = [_VERSIONS[name] for name in config.zookeeper_ssl_enabled_protocols or ()]
    context.minimum_version = min(allowed, default=_VERSIONS[config.zookeeper_ssl_protocol])
    context.maximum_version = max(allowed, default=ssl.TLSVersion.MAXIMUM_SUPPORTED)
    trusted, own = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    if trusted is None:
        context.load_default_certs()
    else:
        load_pem(
            "zookeeper.ssl.truststore.location",
            trusted,
            "certificates in PEM",
            lambda: context.load_verify_locations(cafile=trusted),
        )
    if own is not None:
        password = config.zookeeper_ssl_keystore_password
        load_pem(
            "zookeeper.ssl.keystore.location",
            own,
            "a certificate and its key in PEM, which zookeeper.ssl.keystore.password opens",
            # a wrong or missing password must raise an error, not prompt on the terminal
            lambda: context.load_cert_chain(own, password="" if password is None else password.value),
        )
    return context
