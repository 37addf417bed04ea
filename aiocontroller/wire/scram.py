"""SCRAM (RFC 5802) as in Kafka: the credentials in ZooKeeper, and both sides of the exchange.

Pure: messages in, messages out; the caller supplies nonces and salts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

import msgspec

from aiocontroller.core.errors import BadInputError

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384


class Mechanism(NamedTuple):
    """A SCRAM mechanism: Kafka's name, and hashlib's name of its digest."""

    name: str
    digest: str


MECHANISMS = {1: Mechanism("SCRAM-SHA-256", "sha256"), 2: Mechanism("SCRAM-SHA-512", "sha512")}
"""By the numbers that Kafka's requests use; 0 is unknown."""
DIGESTS = {mechanism.name: mechanism.digest for mechanism in MECHANISMS.values()}


class ScramError(BadInputError):
    """The peer violates the exchange or does not know the password."""


class ScramCredential(msgspec.Struct, frozen=True):
    """The data that a server stores for a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        """As in the user's znode (Kafka's ``ScramCredentialUtils``)."""
        salt, stored, server = map(_base64, (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Parse a credential; the BadInputError for an invalid one does not quote the text, which is secret."""
    try:
        fields = dict(part.split("=", 1) for part in text.split(","))
        return ScramCredential(
            base64.b64decode(fields["salt"], validate=True),
            base64.b64decode(fields["stored_key"], validate=True),
            base64.b64decode(fields["server_key"], validate=True),
            int(fields["iterations"]),
        )
    except (ValueError, KeyError, binascii.Error):
        raise BadInputError(
            "SCRAM credential: expected salt=…,stored_key=…,server_key=…,iterations=…, found something else"
        ) from None


def credential(digest: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The data that ZooKeeper stores for a password (RFC 5802); ``digest`` is hashlib's name."""
    client_key = _hmac(digest, salted_password, b"Client Key")
    stored_key = hashlib.new(digest, client_key).digest()
    return ScramCredential(salt, stored_key, _hmac(digest, salted_password, b"Server Key"), iterations)


def salt_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi() of RFC 5802: PBKDF2 with as many iterations; tens of milliseconds for Kafka's 4096 and more."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def made_up_credential(secret: bytes, mechanism: str, user: str) -> ScramCredential:
    """A constant credential for an unknown user, which no password matches.

    Its salt looks like those of Kafka's tools: a number of 130 bits in base 36.
    """
    digest = DIGESTS[mechanism]
    seed = _hmac("sha512", secret, f"{mechanism}\0{user}".encode())
    number, salt = int.from_bytes(seed[:17], "big") >> 6, ""
    while number:
        number, rest = divmod(number, 36)
        salt = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + salt
    return ScramCredential(
        salt.encode(), _hmac(digest, secret, seed[17:32]), _hmac(digest, secret, seed[32:]), MIN_ITERATIONS
    )


_FIRST = re.compile(
    "[ny],(?:a=(?P<acts_as>[^,]*))?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)


class ScramServer:
    """One exchange: ``user`` is the client's name, ``challenge`` and ``verify`` make the two answers.

    With ``by_token``, the name is the id of a delegation token and the password is the token's HMAC.
    """

    def __init__(self, mechanism: str, nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._nonce = nonce
        self._client_first = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self.user = ""
        self.by_token = False

    def receive(self, first: bytes) -> None:
        """Receive the client's first message: ``n,,n=user,r=nonce``, and Kafka's extension ``,tokenauth=true``.

        ``n,a=user,…`` names a user to act as, which must be the user itself; ScramError otherwise.
        """
        found = _FIRST.fullmatch(_text(first))
        if found is None:
            raise ScramError("SCRAM: found a first message of another form, expected n,,n=user,r=nonce")
        if found["acts_as"] not in (None, "", found["user"]):
            raise ScramError("SCRAM: found an authorization id that is different from the user's name")
        self._client_first = found["bare"]
        self._nonce = found["nonce"] + self._nonce
        self.user = found["user"].replace("=2C", ",").replace("=3D", "=")
        self.by_token = "tokenauth=true" in found["extensions"].lower().split(",")

    def challenge(self, known: ScramCredential) -> bytes:
        """The server's first message, by the user's credential."""
        self._credential = known
        self._server_first = f"r={self._nonce},s={_base64(known.salt)},i={known.iterations}"
        return self._server_first.encode()

    def verify(self, final: bytes) -> bytes:
        """The last answer; raises ScramError when the client does not know the password."""
        assert self._credential is not None
        without_proof, _, proof = _text(final).rpartition(",p=")
        if _fields(without_proof).get("r") != self._nonce:
            raise ScramError("SCRAM: found another nonce than the one that was given")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = _hmac(self._digest, self._credential.stored_key, signed)
        client_key = _xor(_decode(proof), signature)
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), self._credential.stored_key):
            raise ScramError("SCRAM: invalid credentials")
        return f"v={_base64(_hmac(self._digest, self._credential.server_key, signed))}".encode()


class ScramClient:
    """One exchange: ``first``, ``respond`` to the challenge, ``verify`` the server's last answer."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        """The client's first message, without channel binding."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """The client's last message, with its proof; ScramError if the challenge makes no sense."""
        text = _text(challenge)
        fields = _fields(text)
        if not fields.get("r", "").startswith(self._nonce) or "s" not in fields or not fields.get("i", "").isdecimal():
            raise ScramError(f"SCRAM: found the challenge {text!r}, expected r=nonce,s=salt,i=iterations")
        salted = salt_password(self._digest, self._password, _decode(fields["s"]), int(fields["i"]))
        keys = credential(self._digest, b"", salted, 0)
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        client_key = _hmac(self._digest, salted, b"Client Key")
        proof = _xor(client_key, _hmac(self._digest, keys.stored_key, signed))
        self._expected = _hmac(self._digest, keys.server_key, signed)
        return f"{without_proof},p={_base64(proof)}".encode()

    def verify(self, final: bytes) -> None:
        """Raises ScramError when the server does not know the password."""
        fields = _fields(_text(final))
        if not hmac.compare_digest(_decode(fields.get("v", "")), self._expected):
            raise ScramError(f"SCRAM: {fields.get('e', 'the server does not prove that it knows the password')}")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("SCRAM: found a message that is not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise ScramError("SCRAM: found a value that is not base64") from None


def _hmac(digest: str, key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, digest).digest()


def _xor(a: bytes, b: bytes) -> bytes:
    if len(a) != len(b):
        raise ScramError(f"SCRAM: found a proof of {len(a)} bytes, expected {len(b)}")
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
