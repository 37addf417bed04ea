"""How listeners are to be spoken, from Kafka's properties; what is wrong is named by its property."""

from __future__ import annotations

import pytest

from aiocontroller.config import ConfigError, load_config
from aiocontroller.core.ids import Endpoint
from aiocontroller.security import Security, parse_jaas


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
    told = {
        "listener.name.internal.plain.sasl.jaas.config": 'x required username="i" password="p";',
        "sasl.jaas.config": 'x required username="g" password="p";',
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    config, unused = load_config(overrides=told)
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


def test_listeners_take_their_protocols_from_the_map() -> None:
    told = {"listeners": "INTERNAL://h:1,CLIENT://h:2,SSL://h:3", "listener.security.protocol.map": "internal:SASL_SSL"}
    config, _ = load_config(overrides=told)
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


def test_super_users_are_separated_by_semicolons() -> None:
    told = {"authorizer.class.name": "A", "super.users": "User:CN=a,O=b; User:root"}
    trusts = Security(load_config(overrides=told)[0]).trusts
    assert [trusts(p) for p in ("User:CN=a,O=b", "User:root", "User:CN=a", "User:ANONYMOUS")] == [
        True,
        True,
        False,
        False,
    ]
    assert Security(load_config()[0]).trusts("User:anybody")
