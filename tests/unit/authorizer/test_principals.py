"""Principals from certificates: names as Java writes them, rules as Kafka reads them."""

from __future__ import annotations

import pytest

from aiocontroller.authorizer.principals import (
    PrincipalError,
    SslPrincipalMapper,
    distinguished_name,
    java_address,
    name_of,
    parse_principals,
)

UTF8, PRINTABLE, IA5, INTEGER = 12, 19, 22, 2
CN, ORGANIZATION, EMAIL = "550403", "55040a", "2a864886f70d010901"


def tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    head = bytes([length]) if length < 128 else bytes([0x82]) + length.to_bytes(2, "big")
    return bytes([tag]) + head + content


def attribute(oid: str, value: str, tag: int = UTF8) -> bytes:
    return tlv(0x30, tlv(6, bytes.fromhex(oid)) + tlv(tag, value.encode()))


def name(*rdns: list[bytes]) -> bytes:
    return tlv(0x30, b"".join(tlv(0x31, b"".join(rdn)) for rdn in rdns))


def certificate(subject: bytes, version: bytes = tlv(0xA0, tlv(2, b"\2"))) -> bytes:
    rest = [tlv(2, b"\1"), tlv(0x30, b""), name([attribute(CN, "ca")]), tlv(0x30, b""), subject, tlv(0x30, b"key")]
    return tlv(0x30, tlv(0x30, version + b"".join(rest)) + tlv(0x30, b"") + tlv(3, b"\0"))


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [tlv(0xA0, tlv(2, b"\2")), b""])
def test_subject_of_a_certificate(version: bytes) -> None:
    subject = name(
        [attribute("550406", "FR", PRINTABLE)], [attribute(ORGANIZATION, "Acme")], [attribute(CN, "kafka-1")]
    )
    assert distinguished_name(certificate(subject, version)) == "CN=kafka-1,O=Acme,C=FR"


@pytest.mark.parametrize(
    "value,written",
    [
        ("a,b", r"a\,b"),
        ('a=b+c<d>e#f;g"h\\i', r"a\=b\+c\<d\>e\#f\;g\"h\\i"),
        ("  a b ", r"\ \ a b\ "),
        (" ", r"\ "),
        ("", ""),
        ("Zoë", "Zoë"),
        ("a\0b", r"a\00b"),
    ],
)
def test_values_are_escaped_as_java_does(value: str, written: str) -> None:
    assert name_of(name([attribute(CN, value)])) == f"CN={written}"


def test_parts_that_stand_together_and_attributes_without_a_keyword() -> None:
    together = [attribute(CN, "a"), attribute("55040b", "b")]
    assert name_of(name(together, [attribute(EMAIL, "a@b", IA5)])) == "1.2.840.113549.1.9.1=#1603614062,CN=a+OU=b"
    assert name_of(name([attribute(CN, "\5", INTEGER)])) == "CN=#020105"
    assert name_of(name()) == ""


@pytest.mark.parametrize("junk", [b"", b"\x30", b"\x30\x05abc", b"\x02\x01\x05", b"\x30\x88" + bytes(9), b"\x30\x80"])
def test_rubbish_is_no_certificate(junk: bytes) -> None:
    with pytest.raises(PrincipalError, match=f"found no subject in a certificate of {len(junk)} bytes"):
        distinguished_name(junk)


# -- rules -------------------------------------------------------------------------------------------------------------

DN = "CN=kafka1.example.com,OU=Ops,O=Acme,C=FR"


@pytest.mark.parametrize(
    "rules,found",
    [
        ("DEFAULT", DN),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka1.example.com"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "KAFKA1.EXAMPLE.COM@OPS"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "kafka1.example.com@ops"),
        ("RULE:^CN=unknown$/x/,RULE:^.*OU=(.*?),.*$/$1/", "Ops"),
        (r"RULE:^CN=(.*?)\.example\.com,.*$/$1\/x/", "kafka1/x"),
        ("RULE:^CN=(?<name>[^,]*),.*$/${name}/", "kafka1.example.com"),
        ("RULE:^CN=(.*?),.*$/$1-$2/", "kafka1.example.com-$2"),
        ("RULE:^CN=(.*?),.*$/$12/", "kafka1.example.com2"),
        ("RULE:^(.*)$/$0/", DN),
        ("RULE:.*/x/", "xx"),  # Java replaces the empty rest too
        (" RULE:^CN=x$/y/ , , DEFAULT ", DN),
    ],
)
def test_rules(rules: str, found: str) -> None:
    assert SslPrincipalMapper(rules).get_name(DN) == found


@pytest.mark.parametrize(
    "rules",
    [
        "FOO",
        "DEFAULTS",
        "RULE:^CN=(.*)$/$1",
        "RULE:^CN=(.*)$/$1/LU",
        "RULE:(/x/",
        "RULE:abc/$1/",
        "RULE:(a)/$x/",
        r"RULE:\p{Alpha}*/x/",
        "RULE:[a-z&&[^b]]/x/",
        "RULE:(?x)a/b/",
        "RULE:(a)/${name}/",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(PrincipalError, match="rule"):
        SslPrincipalMapper(rules)


def test_subject_that_no_rule_names() -> None:
    with pytest.raises(PrincipalError, match=r"no rule of ssl\.principal\.mapping\.rules matches 'CN=a'"):
        SslPrincipalMapper("RULE:^CN=b$/b/").get_name("CN=a")


def test_line_ends_pass_no_rule() -> None:
    """Java's dot stops at them, Python's does not."""
    with pytest.raises(PrincipalError, match="line end"):
        SslPrincipalMapper("RULE:^CN=(.*?),.*$/$1/,DEFAULT").get_name("CN=admin,O=\u2028")


def test_principal_of_a_certificate() -> None:
    der = certificate(name([attribute(ORGANIZATION, "Acme")], [attribute(CN, "broker")]))
    assert SslPrincipalMapper().principal_of(der) == "User:CN=broker,O=Acme"
    assert SslPrincipalMapper("RULE:^CN=(.*?),.*$/$1/").principal_of(der) == "User:broker"


# -- super users, hosts ------------------------------------------------------------------------------------------------


def test_principals_are_separated_by_semicolons() -> None:
    assert parse_principals("User:CN=a,O=b; User:root;") == ("User:CN=a,O=b", "User:root")
    assert parse_principals("") == ()
    with pytest.raises(ValueError, match="root"):
        parse_principals("User:a;root")


@pytest.mark.parametrize(
    "address,written",
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::A:0", "2001:db8:0:0:0:0:a:0"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_addresses_are_written_as_java_does(address: str, written: str) -> None:
    assert java_address(address) == written
