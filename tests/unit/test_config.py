"""Configuration: Kafka's names and defaults, and errors that name the property."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.config import (
    PROPERTIES,
    Config,
    ConfigError,
    environment_name,
    load_config,
)
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Endpoint
from aiocontroller.kafka_property_names import KAFKA_PROPERTIES
from aiocontroller.properties_file import LARGEST_BYTES, parse_properties, read_properties
from aiocontroller.property_values import kind_of, split_host_port


@pytest.mark.parametrize("type_", [int, tuple[str, ...], Annotated[int, "at least 1"]])
def test_a_field_whose_type_does_not_say_which_values_it_takes_is_refused(type_: Any) -> None:
    with pytest.raises(TypeError, match="expected a type that says which values it takes"):
        kind_of(type_)


def test_every_default_is_a_value_that_the_property_takes() -> None:
    for name, property_ in PROPERTIES.items():
        default = getattr(Config(), property_.field)
        if isinstance(default, bool | int | str):
            text = str(default).lower() if isinstance(default, bool) else str(default)
            assert property_.kind.parse(text) == default, name


def test_kafkas_defaults() -> None:
    config, warnings = load_config()
    assert config == Config()
    assert warnings == []
    assert config.zookeeper_session_timeout_ms == 18_000
    assert (config.leader_imbalance_per_broker_percentage, config.leader_imbalance_check_interval_seconds) == (10, 300)


def test_command_line_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(
        "zookeeper.connect=file:1\nrequest.timeout.ms=1\ncontroller.socket.timeout.ms=1\naiocontroller.id=5\n"
    )
    environ = {"AIOCONTROLLER_REQUEST_TIMEOUT_MS": "2", "AIOCONTROLLER_CONTROLLER_SOCKET_TIMEOUT_MS": "2"}
    config, _ = load_config(file, environ, {"request.timeout.ms": "3"})
    assert config.zookeeper_connect == "file:1"
    assert config.controller_socket_timeout_ms == 2
    assert config.request_timeout_ms == 3
    assert config.aiocontroller_id == 5


def test_environment_names() -> None:
    assert environment_name("zookeeper.connect") == "AIOCONTROLLER_ZOOKEEPER_CONNECT"
    assert environment_name("aiocontroller.http.port") == "AIOCONTROLLER_HTTP_PORT"
    assert len({environment_name(key) for key in PROPERTIES}) == len(PROPERTIES)


@pytest.mark.parametrize(
    "key,value,expected",
    [
        ("zookeeper.session.timeout.ms", "soon", "a whole number of milliseconds, 1 to 2147483647"),
        ("zookeeper.session.timeout.ms", "6_000", "a whole number of milliseconds, 1 to 2147483647"),
        ("zookeeper.session.timeout.ms", "0", "a whole number of milliseconds, 1 to 2147483647"),
        ("zookeeper.session.timeout.ms", "2147483648", "a whole number of milliseconds, 1 to 2147483647"),
        ("aiocontroller.audit.interval.ms", f"{2**63}", f"a whole number of milliseconds, 0 to {2**63 - 1}"),
        ("leader.imbalance.check.interval.seconds", "9" * 400, f"a whole number of seconds, 1 to {2**63 - 1}"),
        ("zookeeper.connect", "host:port", "host:port,host:port/chroot"),
        ("zookeeper.connect", "", "host:port,host:port/chroot"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("listeners", "localhost:9092", "NAME://host:port"),
        ("listeners", "A://h:1,A://h:2", "each name once"),
        ("aiocontroller.http.port", "70000", "0 to 65535"),
        ("aiocontroller.takeover.policy", "grab", "one of wait, standby, takeover, observe"),
        ("inter.broker.protocol.version", "latest", "a Kafka version such as 3.9"),
    ],
)
def test_a_bad_value_names_property_value_and_expectation(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(overrides={key: value})
    message = str(error.value)
    assert message.startswith(f"{key} (the command line): found {value!r}, expected ")
    assert expected in message


def test_connections_are_counted_by_address_or_host_name() -> None:
    limits = "10.0.0.1:200, [fe80::0:1] : 50,Host-1.example :10, db_2: 0,[::ffff:10.0.0.2]:7"
    config, _ = load_config(overrides={"max.connections.per.ip.overrides": limits})
    assert config.max_connections_per_ip_overrides == {
        "10.0.0.1": 200, "fe80::1": 50, "host-1.example": 10, "db_2": 0, "10.0.0.2": 7,
    }  # fmt: skip


@pytest.mark.parametrize("bad", ["10.0.0:1", "10.0.0.1.2:1", "-a:1", "a b:1", "a:-1", "a", ":1", "[::g]:1", "a/24:1"])
def test_what_is_no_host_has_no_count(bad: str) -> None:
    with pytest.raises(ConfigError, match="host:number"):
        load_config(overrides={"max.connections.per.ip.overrides": bad})


def test_topics_may_have_recovery_strategies_of_their_own() -> None:
    key = "aiocontroller.unclean.recovery.strategy"
    config, _ = load_config(overrides={key: "Aggressive", f"{key}.overrides": " a.b_c-1:Balanced, d:None"})
    assert [config.recovery.of(topic) for topic in ("a.b_c-1", "d", "e")] == ["Balanced", "None", "Aggressive"]
    assert config.recovery.compares
    assert not load_config(overrides={f"{key}.overrides": "d:None"})[0].recovery.compares
    for bad in ("d", "d:", ":None", "d:none", "d:None,d:Balanced", "a:b:None", "a b:None"):
        with pytest.raises(ConfigError, match="expected topic:strategy, separated by commas, each topic once"):
            load_config(overrides={f"{key}.overrides": bad})


def test_all_errors_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "k.properties"
    file.write_text("# comment\nrequest.timeout.ms=x\n\naiocontroller.htp.port=1\n")
    with pytest.raises(ConfigError) as error:
        load_config(file)
    assert str(error.value).splitlines() == [
        "request.timeout.ms (k.properties line 2): found 'x', expected a whole number of milliseconds, 1 to 2147483647",
        "aiocontroller.htp.port (k.properties line 4): no such property; did you mean aiocontroller.http.port?",
    ]


def test_what_kafka_knows_and_we_do_not_use_is_one_warning_and_a_slip_another() -> None:
    overrides = {"log.dirs": "/x", "num.io.threads": "3", "zookeper.connect": "h:1", "AIO": "1"}
    config, warnings = load_config(overrides=overrides, environ={"AIOCONTROLLER_NONE": "1", "PATH": "x"})
    assert config == Config()
    assert warnings == [
        "environment variable AIOCONTROLLER_NONE: no property belongs to it; ignored",
        "zookeper.connect (the command line): neither Kafka nor aiocontroller has it; "
        "did you mean zookeeper.connect?; ignored",
        "AIO (the command line): neither Kafka nor aiocontroller has it; ignored",
        "properties that Kafka knows and aiocontroller does not use: log.dirs, num.io.threads",
    ]


def test_slip_in_a_name_of_kafkas_is_not_taken_for_one_of_kafkas() -> None:
    """`zookeeper.sesion.timeout.ms` was called a property that Kafka knows."""
    overrides = {
        "zookeeper.sesion.timeout.ms": "6000",
        "num.partitons": "3",
        "listener.name.internal.ssl.keystore.locatoin": "/x",
        "listener.name.internal.scram-sha-256.sasl.server.callback.handler.class": "x",
        "rlmm.config.what.the.plugin.likes": "1",
    }
    _, warnings = load_config(overrides=overrides, environ={"AIOCONTROLLER_ZOOKEEPER_SESION_TIMEOUT_MS": "1"})
    unknown = "(the command line): neither Kafka nor aiocontroller has it"
    assert warnings == [
        "environment variable AIOCONTROLLER_ZOOKEEPER_SESION_TIMEOUT_MS: no property belongs to it; "
        "did you mean AIOCONTROLLER_ZOOKEEPER_SESSION_TIMEOUT_MS?; ignored",
        f"zookeeper.sesion.timeout.ms {unknown}; did you mean zookeeper.session.timeout.ms?; ignored",
        f"num.partitons {unknown}; did you mean num.partitions?; ignored",
        f"listener.name.internal.ssl.keystore.locatoin {unknown}; "
        "did you mean listener.name.internal.ssl.keystore.location?; ignored",
        "properties that Kafka knows and aiocontroller does not use: "
        "listener.name.internal.scram-sha-256.sasl.server.callback.handler.class, rlmm.config.what.the.plugin.likes",
    ]


def test_kafkas_names_hold_those_that_we_use() -> None:
    """Except our own properties, such as those of ZooKeeper's SASL login, which Kafka takes from a JAAS file."""
    assert [key for key in PROPERTIES if not key.startswith("aiocontroller.") and key not in KAFKA_PROPERTIES] == []


def test_properties_as_java_reads_them() -> None:
    text = "a = 1\nb:2\nc 3\n  ! no\nd=x\\\n   y\\\\\ne\\:f=g\\u0041\\t\nempty=\nalone\n"
    assert [(s.key, s.value) for s in parse_properties(text, "f")] == [
        ("a", "1"), ("b", "2"), ("c", "3"), ("d", "xy\\"), ("e:f", "gA\t"), ("empty", ""), ("alone", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [
    b"\xef\xbb\xbfzookeeper.connect=zk:1\r\nssl.keystore.key=f\xc3\xbcr\r\n",
    b"zookeeper.connect=zk:1\r\n# f\xfcr\r\nssl.keystore.key=f\xfcr",
    b"zookeeper.connect : zk:1\rssl.keystore.key=f\\u00fcr\r",
])  # fmt: skip
def test_files_of_any_editor_are_read(tmp_path: Path, data: bytes) -> None:
    """A byte order mark hid ``zookeeper.connect``, so that its default applied; ISO 8859-1 gave a traceback."""
    file = tmp_path / "k.properties"
    file.write_bytes(data)
    assert [(s.key, s.value) for s in read_properties(file)] == [
        ("zookeeper.connect", "zk:1"),
        ("ssl.keystore.key", "für"),
    ]


def test_characters_that_only_python_takes_for_line_ends_end_no_value() -> None:
    assert [s.value for s in parse_properties("a=1\x852\x0b3\u20284", "f")] == ["1\x852\x0b3\u20284"]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keystore.jks"
    file.write_bytes(b"\xfe\xed\0\0")
    with pytest.raises(BadInputError, match=r"keystore\.jks: found binary data, expected lines of key=value"):
        load_config(file)


@given(st.text())
def test_any_text_is_read_without_a_crash(text: str) -> None:
    for setting in parse_properties(text, "f"):
        assert isinstance(setting.value, str)


def test_listeners() -> None:
    listeners = {"advertised.listeners": "INTERNAL://[::1]:1,SSL://k:9093"}
    config, _ = load_config(overrides={"listeners": "INTERNAL://[::1]:1, ssl://:9093", **listeners})
    assert config.listeners == (Endpoint("INTERNAL", "::1", 1, "PLAINTEXT"), Endpoint("SSL", "0.0.0.0", 9093, "SSL"))


@pytest.mark.parametrize("text", ["", ":1", "h", "h:", "h:99999", "a b:1", "[::1", "h:1:2"])
def test_no_host_and_port(text: str) -> None:
    with pytest.raises(ValueError):
        split_host_port(text)


@pytest.mark.parametrize(
    "version,ids,recovery,alter",
    [
        ("2.6", False, False, False),
        ("2.7-IV1", False, False, False),
        ("2.7", False, False, True),
        ("2.8-IV0", True, False, True),
        ("3.2", True, True, True),
        ("3.9-IV0", True, True, True),
    ],
)
def test_what_the_protocol_version_brings(version: str, ids: bool, recovery: bool, alter: bool) -> None:
    config = Config(inter_broker_protocol_version=version)
    found = (config.topic_ids_supported, config.leader_recovery_supported, config.alter_partition_supported)
    assert found == (ids, recovery, alter)


SECURED = {
    "zookeeper.set.acl": "true",
    "aiocontroller.zookeeper.sasl.username": "kafka",
    "aiocontroller.zookeeper.sasl.password": "hunter2",
}


def test_a_broker_s_tls_and_acl_properties_are_taken_as_they_are() -> None:
    config, warnings = load_config(
        overrides={
            **SECURED,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/etc/trust.pem",
            "zookeeper.ssl.truststore.password": "unused",
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.keystore.location": "/etc/own.pem",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
            "zookeeper.ssl.crl.enable": "false",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        }
    )
    assert config.zookeeper_set_acl
    assert config.zookeeper_ssl_endpoint_identification_algorithm == ""
    assert config.zookeeper_ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert warnings == ["properties that Kafka knows and aiocontroller does not use: zookeeper.clientCnxnSocket"]


def test_passwords_are_not_shown() -> None:
    config, _ = load_config(overrides=SECURED)
    assert "hunter2" not in repr(config)
    assert f"{config.aiocontroller_zookeeper_sasl_password}" == "[hidden]"
    assert config.aiocontroller_zookeeper_sasl_password is not None
    assert config.aiocontroller_zookeeper_sasl_password.value == "hunter2"


def test_a_password_that_no_header_has_room_for_is_refused_and_not_shown() -> None:
    longest = "ä" * 2_000
    assert load_config(overrides={"aiocontroller.http.password": longest})[0].aiocontroller_http_password == longest
    for wrong, shown in ((longest + "x", "[hidden]"), ("", "''")):
        with pytest.raises(ConfigError, match=re.escape(f"found {shown}, expected a password of at most 4,000 bytes")):
            load_config(overrides={"aiocontroller.http.password": wrong})


@pytest.mark.parametrize(
    "overrides,message",
    [
        (
            {"zookeeper.set.acl": "true"},
            "zookeeper.set.acl: found true, expected one of aiocontroller.zookeeper.sasl.us",
        ),
        (
            {"aiocontroller.zookeeper.digest.username": "kafka"},
            "aiocontroller.zookeeper.digest.password: found nothing, expected a value, because aiocontroller.zoo",
        ),
        (
            {"aiocontroller.zookeeper.sasl.password": "x"},
            "aiocontroller.zookeeper.sasl.username: found nothing, expected a value, because aiocontroller.zoo",
        ),
        ({"zookeeper.ssl.keystore.location": "own.pem"}, "zookeeper.ssl.client.enable: found false, expected true"),
        (
            {"zookeeper.ssl.truststore.location": "trust.jks"},
            "zookeeper.ssl.truststore.location (the command line): found 'trust.jks', expected a file of certificates",
        ),
        ({"zookeeper.ssl.truststore.type": "JKS"}, "zookeeper.ssl.truststore.type (the command line): found 'JKS'"),
        ({"zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable (the command line): found 'true'"),
        (
            {"zookeeper.ssl.protocol": "SSLv3"},
            "zookeeper.ssl.protocol (the command line): found 'SSLv3', expected one of",
        ),
        (
            {"aiocontroller.zookeeper.digest.username": "a:b", "aiocontroller.zookeeper.digest.password": "x"},
            "aiocontroller.zookeeper.digest.username (the command line): found 'a:b', expected a name without a colon",
        ),
    ],
)
def test_what_secures_nothing_is_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(overrides=overrides)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith(message)


def test_what_is_set_is_distinguished_from_what_is_left_out_even_where_it_is_the_default() -> None:
    overrides = {
        "delete.topic.enable": " true",
        "log.retention.hours": "168",
        "aiocontroller.id": "7",
        "delegation.token.secret.key": "secret",
        "log.dirs": "/x",
    }
    config, warnings = load_config(overrides=overrides)
    assert config.given == {"delete.topic.enable": "true", "log.retention.hours": "168"}
    assert warnings == ["properties that Kafka knows and aiocontroller does not use: log.dirs"]
    assert load_config()[0].given == {}
    assert load_config(overrides={"aiocontroller.keep.ours": "num.partitions, all"})[0].aiocontroller_keep_ours == (
        "num.partitions",
        "all",
    )


def test_the_variable_of_debug_mode_is_no_property() -> None:
    assert load_config(environ={"AIOCONTROLLER_DEBUG": "1"})[1] == []


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"/dev/zero: found more than 4,194,304 bytes"):
        list(read_properties(Path("/dev/zero")))
    longest = tmp_path / "server.properties"
    longest.write_bytes(b"#" * LARGEST_BYTES)
    assert list(read_properties(longest)) == []
