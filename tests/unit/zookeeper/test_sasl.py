"""DIGEST-MD5 by the example in RFC 2831, section 4, with ZooKeeper's service name in the place of IMAP's."""

from __future__ import annotations

import pytest

from aiocontroller.zookeeper import sasl
from aiocontroller.zookeeper.errors import AuthFailedError
from aiocontroller.zookeeper.sasl import DigestMd5, parse_fields

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def test_the_example_of_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl, "SERVICE", "imap")
    monkeypatch.setattr(sasl, "SERVER_NAME", "elwood.innosoft.com")
    exchange = DigestMd5("chris", "secret", "OA6MHXh6VqTrRk")
    fields = parse_fields(exchange.respond(CHALLENGE))
    assert fields["response"] == "d388dad90d4bbd760a152321f2143af7"
    assert (fields["username"], fields["nc"], fields["digest-uri"]) == ("chris", "00000001", "imap/elwood.innosoft.com")
    exchange.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(AuthFailedError, match="prove"):
        exchange.verify(b"rspauth=00000000000000000000000000000000")


@pytest.mark.parametrize("challenge", [b"", b"rubbish", b'nonce="x"', CHALLENGE.replace(b'"auth"', b'"auth-conf"')])
def test_what_cannot_be_answered_is_named(challenge: bytes) -> None:
    with pytest.raises(AuthFailedError, match="SASL"):
        DigestMd5("a", "b", "c").respond(challenge)


def test_quotes_survive() -> None:
    fields = parse_fields(DigestMd5('o"n\\e', "b", "c").respond(CHALLENGE))
    assert fields["username"] == 'o"n\\e'
