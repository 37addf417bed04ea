"""The security of listeners by Kafka's properties; errors name the wrong property."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.authorizer import AllowAll
from aiocontroller.config import ConfigError, load_config
from aiocontroller.core.ids import Endpoint
from aiocontroller.security import (
    DEFAULT_PRINCIPAL_BUILDER,
    Security,
    authorizer_of,
    parse_jaas,
    unsupported_authorizer,
)


def security(**properties: str) -> Security:
    return Security(
        load_config(overrides={key.replace("__", "-").replace("_", "."): v for key, v in properties.items()})[0]
    )


def listener(protocol: str) -> Endpoint:
    return Endpoint("INTERNAL", "127.0.0.1", 9092, protocol)


def test_plain_listeners_need_nothing_and_look_at_nothing() -> None:
    broken = security(ssl_keystore_location="/no/store.jks", sasl_enabled_mechanisms="GSSAPI")
    assert not broken.server(listener("PLAINTEXT")).authenticated
    assert broken.client(listener("PLAINTEXT")).credentials is None


@pytest.mark.parametrize(
    "properties,message",
    [
        ({}, "ssl.keystore.location: found nothing, expected PEM, since INTERNAL speaks TLS"),
        ({"ssl_keystore_location": "/a/b.jks"}, "ssl.keystore.location: found '/a/b.jks' of type PEM, expected PEM"),
        ({"ssl_keystore_location": "/a/b", "ssl_keystore_type": "JKS"}, "of type JKS, expected PEM"),
        ({"ssl_keystore_location": "/no/such.pem"}, r"found '/no/such.pem' \(.*No such file"),
    ],
)
def test_tls_needs_a_certificate_in_pem(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        security(**properties).server(listener("SSL"))


def test_sasl_needs_a_mechanism_that_is_known() -> None:
    with pytest.raises(
        ConfigError, match=r"sasl.enabled.mechanisms: found GSSAPI for listener INTERNAL, expected one of"
    ):
        security().server(listener("SASL_PLAINTEXT"))
    with pytest.raises(ConfigError, match=r"sasl.mechanism.inter.broker.protocol: found GSSAPI, expected one of PLAIN"):
        security().client(listener("SASL_PLAINTEXT"))


def test_credentials_are_those_of_the_listener() -> None:
    settings = {
        "listener.name.internal.plain.sasl.jaas.config": 'x required username="i" password="p";',
        "sasl.jaas.config": 'x required username="g" password="p";',
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    config, unused = load_config(overrides=settings)
    assert unused == []
    found = Security(config).client(listener("SASL_PLAINTEXT")).credentials
    assert found is not None
    assert (found.username, found.password.value) == ("i", "p")
    assert "p" not in repr(found.password)
    other = Security(config).client(Endpoint("OTHER", "h", 1, "SASL_PLAINTEXT")).credentials
    assert other is not None
    assert other.username == "g"


def test_missing_credentials_are_named() -> None:
    with pytest.raises(ConfigError, match=r"listener.name.internal.plain.sasl.jaas.config: found nothing"):
        security(sasl_mechanism_inter_broker_protocol="PLAIN").client(listener("SASL_PLAINTEXT"))
    with pytest.raises(ConfigError, match=r"sasl.jaas.config: found no username"):
        security(sasl_mechanism_inter_broker_protocol="PLAIN", sasl_jaas_config="x required;").client(
            listener("SASL_PLAINTEXT")
        )


def test_jaas_options() -> None:
    text = 'org.X required  username="a b"\n password="q\\"uote;d" user_alice=plain serviceName="k";'
    assert parse_jaas(text) == {"username": "a b", "password": 'q"uote;d', "user_alice": "plain", "serviceName": "k"}


@pytest.mark.parametrize("user", ["svc-orders", "team.a", "a_b", "j$", "größe", "7"])
def test_jaas_users_are_named_as_kafkas_parser_allows(user: str) -> None:
    text = f'org.X required user_alice="x" user_{user}="y-{user}" username="u-v";'
    assert parse_jaas(text) == {"user_alice": "x", f"user_{user}": f"y-{user}", "username": "u-v"}


def test_listeners_take_their_protocols_from_the_map() -> None:
    settings = {
        "listeners": "INTERNAL://h:1,CLIENT://h:2,SSL://h:3",
        "listener.security.protocol.map": "internal:SASL_SSL",
    }
    config, _ = load_config(overrides=settings)
    assert [e.security_protocol for e in config.listeners] == ["SASL_SSL", "PLAINTEXT", "SSL"]
    with pytest.raises(
        ConfigError, match=r"listener.security.protocol.map \(the command line\): found 'A:B', expected"
    ):
        load_config(overrides={"listener.security.protocol.map": "A:B"})


def test_inter_broker_listener_by_its_protocol() -> None:
    assert load_config(overrides={"security.inter.broker.protocol": "SSL"})[0].inter_broker_listener_name == "SSL"


def test_wildcard_address_is_nothing_to_tell_brokers() -> None:
    with pytest.raises(ConfigError, match=r"advertised.listeners: found 0.0.0.0, expected an address"):
        load_config(overrides={"listeners": "PLAINTEXT://:9092"})


# -- rights ---------------------------------------------------------------------------------------------------

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def test_authorizer_is_the_brokers() -> None:
    assert isinstance(authorizer_of(load_config()[0]), AllowAll)
    settings = {
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": "User:CN=a,O=b; User:root",
        "allow.everyone.if.no.acl.found": "true",
    }
    found = authorizer_of(load_config(overrides=settings)[0])
    assert isinstance(found, AclAuthorizer)
    assert found.super_users == {"User:CN=a,O=b", "User:root"}
    assert found.allow_everyone_if_no_acl_found
    assert not found.loaded


def test_super_users_have_a_type() -> None:
    with pytest.raises(ConfigError, match=r"super.users \(the command line\): found 'User:a;root', expected Type:name"):
        load_config(overrides={"super.users": "User:a;root"})


@pytest.mark.parametrize(
    "settings,reason",
    [
        ({}, None),
        ({"authorizer.class.name": ""}, None),
        ({"authorizer.class.name": ACL_AUTHORIZER}, None),
        ({"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}, None),
        ({"authorizer.class.name": "com.acme.X"}, "authorizer.class.name is com.acme.X, which cannot run outside"),
        (
            {"authorizer.class.name": ACL_AUTHORIZER, "authorizer.zookeeper.url": "elsewhere:2181"},
            "authorizer.zookeeper.url is elsewhere:2181, and zookeeper.connect 127.0.0.1:2181",
        ),
    ],
)
def test_authorizer_that_cannot_run_here_is_a_reason_against_the_role(
    settings: dict[str, str], reason: str | None
) -> None:
    found = unsupported_authorizer(load_config(overrides=settings)[0])
    assert found == reason if reason is None or found is None else found.startswith(reason)


def test_principal_builder_of_ones_own_is_refused_where_names_matter() -> None:
    settings = {"listener.name.internal.principal.builder.class": "com.acme.X"}
    Security(load_config(overrides=settings)[0]).server(listener("PLAINTEXT"))
    settings["authorizer.class.name"] = ACL_AUTHORIZER
    with pytest.raises(ConfigError, match=r"principal.builder.class: found com.acme.X, which cannot run outside"):
        Security(load_config(overrides=settings)[0]).server(listener("PLAINTEXT"))
    settings["listener.name.internal.principal.builder.class"] = DEFAULT_PRINCIPAL_BUILDER
    Security(load_config(overrides=settings)[0]).server(listener("PLAINTEXT"))


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -keyout {tmp_path}/k -out {tmp_path}/c"
    subprocess.run(command.split(), check=True, capture_output=True)
    (tmp_path / "pem").write_bytes((tmp_path / "k").read_bytes() + (tmp_path / "c").read_bytes())
    return {"ssl.keystore.location": str(tmp_path / "pem"), "ssl.truststore.location": str(tmp_path / "pem")}


@pytest.mark.parametrize(
    "protocol,key,read",
    [
        ("SSL", "ssl.client.auth", True),
        ("SSL", "listener.name.internal.ssl.client.auth", True),
        ("SASL_SSL", "ssl.client.auth", False),
        ("SASL_SSL", "listener.name.internal.ssl.client.auth", False),
        ("SSL", "listener.name.other.ssl.client.auth", False),
    ],
)
@pytest.mark.parametrize("wanted", ["requested", "required"])
def test_where_certificates_name_clients(
    stores: dict[str, str], protocol: str, key: str, read: bool, wanted: str
) -> None:
    """With SASL the login names them; then only the listener's own property asks for certificates, as in Kafka."""
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", key: wanted, **stores}
    found = Security(load_config(overrides=settings)[0]).server(listener(protocol))
    assert (found.principals is not None) == read
    assert found.server_tls is not None
    asked = key == "listener.name.internal.ssl.client.auth" or read
    assert (found.server_tls.verify_mode is not ssl.CERT_NONE) == asked


def test_rules_that_cannot_be_read_are_named(stores: dict[str, str]) -> None:
    settings = {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": "RULE:[/$1/", **stores}
    with pytest.raises(ConfigError, match=r"ssl.principal.mapping.rules: found 'RULE:\[/\$1/' \(rule pattern '\['"):
        Security(load_config(overrides=settings)[0]).server(listener("SSL"))
    del settings["ssl.client.auth"]
    Security(load_config(overrides=settings)[0]).server(listener("SSL"))  # the rules are not used


def test_certificates_are_read_again_all_or_none(stores: dict[str, str]) -> None:
    """Certificates of listeners and of connections to brokers; the file of a second listener is missing."""
    own = {f"listener.name.b.{key}": value for key, value in stores.items()}
    second = Path(own["listener.name.b.ssl.keystore.location"] + "2")
    second.write_bytes(Path(stores["ssl.keystore.location"]).read_bytes())
    own["listener.name.b.ssl.keystore.location"] = str(second)
    found = security(**stores, **own)
    at, beside = Endpoint("A", "h", 1, "SSL"), Endpoint("B", "h", 2, "SSL")
    before = [found.server(at), found.server(beside), found.client(at)]
    second.unlink()
    with pytest.raises(ConfigError, match=r"^ssl\.keystore\.location: found '.*pem2' \(.*No such file"):
        found.read_again()
    assert [found.server(at), found.server(beside), found.client(at)] == before
    second.write_bytes(Path(stores["ssl.keystore.location"]).read_bytes())
    found.read_again()
    after = [found.server(at), found.server(beside), found.client(at)]
    contexts = [each.server_tls or each.client_tls for each in (*before, *after)]
    assert None not in contexts
    assert len(set(contexts)) == 6
