"""SCRAM by the example of its RFC, both sides against each other, and credentials as Kafka writes them."""

from __future__ import annotations

import base64

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.wire.scram import (
    DIGESTS,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramServer,
    credential,
    parse_credential,
    salt_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_client_says_what_rfc_7677_says() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.respond(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ScramError, match="does not prove"):
        client.verify(b"v=AAAA")


def known(mechanism: str, password: str) -> ScramCredential:
    digest = DIGESTS[mechanism]
    return credential(digest, SALT, salt_password(digest, password, SALT, 4096), 4096)


@pytest.mark.parametrize("mechanism", DIGESTS)
@pytest.mark.parametrize("user", ["alice", "a=b,c"])
def test_both_sides_agree(mechanism: str, user: str) -> None:
    client, server = ScramClient(mechanism, user, "secret", "cnonce"), ScramServer(mechanism, "snonce")
    server.receive(client.first())
    assert server.user == user
    client.verify(server.verify(client.respond(server.challenge(known(mechanism, "secret")))))


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_wrong_password_is_refused(mechanism: str) -> None:
    client, server = ScramClient(mechanism, "alice", "wrong", "cnonce"), ScramServer(mechanism, "snonce")
    server.receive(client.first())
    with pytest.raises(ScramError, match="invalid credentials"):
        server.verify(client.respond(server.challenge(known(mechanism, "secret"))))


@pytest.mark.parametrize("message", [b"", b"\xff", b"n,,x=1", b"p=tls,,n=a,r=b", b"rubbish"])
def test_rubbish_is_no_first_message(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer("SCRAM-SHA-256", "s").receive(message)


@pytest.mark.parametrize("message", [b"", b"\xff", b"c=biws,r=cs,p=!", b"c=biws,r=cs,p=AAAA", b"c=biws,r=other,p=AAAA"])
def test_rubbish_is_no_proof(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", "s")
    server.receive(b"n,,n=alice,r=c")
    server.challenge(known("SCRAM-SHA-256", "secret"))
    with pytest.raises(ScramError):
        server.verify(message)


def test_credentials_are_texts() -> None:
    kept = known("SCRAM-SHA-512", "secret")
    assert parse_credential(str(kept)) == kept
    assert str(kept).startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert str(kept).endswith(",iterations=4096")
    with pytest.raises(BadInputError, match="expected salt=…") as caught:
        parse_credential("salt=secret,stored_key=x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("acts_as", ["", "a=al=2Cice"])
def test_user_acts_as_itself(acts_as: str) -> None:
    server = ScramServer("SCRAM-SHA-256", "nonce")
    server.receive(f"n,{acts_as},n=al=2Cice,r=abc,extra=x".encode())
    assert (server.user, server.by_token) == ("al,ice", False)


@pytest.mark.parametrize(
    "first", ["n,a=super,n=alice,r=abc", "n,,m=x,n=alice,r=abc", "n,,n=alice,n=super,r=abc", "n,,n=,r=abc", "n,,n=a,r="]
)
def test_user_acts_as_no_other_user(first: str) -> None:
    with pytest.raises(ScramError):
        ScramServer("SCRAM-SHA-256", "nonce").receive(first.encode())


def test_first_name_counts() -> None:
    server = ScramServer("SCRAM-SHA-256", "nonce")
    server.receive(b"n,,n=alice,r=abc,n=super,TokenAuth=true")
    assert (server.user, server.by_token) == ("alice", True)
