"""SASL DIGEST-MD5 as ZooKeeper speaks it (RFC 2831, qop "auth"; the server's name and realm are ``zk-sasl-md5``).

Pure: tokens in, tokens out.  The mechanism prescribes MD5; use TLS for more security.
"""

from __future__ import annotations

import re
from hashlib import md5

from aiocontroller.zookeeper.errors import AuthFailedError

SERVICE, SERVER_NAME = "zookeeper", "zk-sasl-md5"

_FIELD = re.compile(r'\s*([a-zA-Z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,]*))\s*(?:,|$)')


class DigestMd5:
    """One exchange: ``respond(challenge)``, then ``verify(last answer)``."""

    def __init__(self, username: str, password: str, cnonce: str) -> None:
        self._username = username
        self._password = password
        self._cnonce = cnonce
        self._uri = f"{SERVICE}/{SERVER_NAME}"
        self._expected = ""

    def respond(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge; raises AuthFailedError for a challenge that we cannot answer."""
        fields = parse_fields(challenge)
        realm, nonce = fields.get("realm", SERVER_NAME), fields.get("nonce")
        if nonce is None or fields.get("algorithm") != "md5-sess":
            raise AuthFailedError(f"SASL: found the challenge {challenge!r}, expected a nonce and algorithm=md5-sess")
        if "auth" not in fields.get("qop", "auth").split(","):
            raise AuthFailedError(f"SASL: the server requires qop {fields['qop']!r}, expected 'auth' among them")
        secret = md5(f"{self._username}:{realm}:{self._password}".encode()).digest()
        ha1 = md5(secret + f":{nonce}:{self._cnonce}".encode()).hexdigest()
        self._expected = self._hash(ha1, nonce, "")
        response = self._hash(ha1, nonce, "AUTHENTICATE")
        return (
            f'charset=utf-8,username="{_quoted(self._username)}",realm="{_quoted(realm)}",nonce="{nonce}",nc=00000001,'
            f'cnonce="{self._cnonce}",digest-uri="{self._uri}",maxbuf=65536,response={response},qop=auth'
        ).encode()

    def verify(self, answer: bytes) -> None:
        """Raises AuthFailedError unless the server knows the password too."""
        if parse_fields(answer).get("rspauth") != self._expected:
            raise AuthFailedError("SASL: the server did not prove that it knows the password")

    def _hash(self, ha1: str, nonce: str, method: str) -> str:
        ha2 = md5(f"{method}:{self._uri}".encode()).hexdigest()
        return md5(f"{ha1}:{nonce}:00000001:{self._cnonce}:auth:{ha2}".encode()).hexdigest()


def parse_fields(token: bytes) -> dict[str, str]:
    """``name=value,name="quoted value"``; names in lower case."""
    found = {}
    for match in _FIELD.finditer(token.decode("utf-8", "replace")):
        name, quoted, plain = match.groups()
        found[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain.strip()
    return found


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
