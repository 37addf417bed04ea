"""The server's side of SASL DIGEST-MD5 (RFC 2831), as a ZooKeeper server with a ``DigestLoginModule`` speaks it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import md5

REALM = "zk-sasl-md5"
_FIELD = re.compile(r'([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))')


class LoginRefusedError(Exception):
    pass


class DigestLogin:
    """One exchange: ``challenge``, then ``answer`` to the client's response."""

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        """``users``: name -> password."""
        self._users = users
        self._nonce = nonce

    def challenge(self) -> bytes:
        return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()

    def answer(self, response: bytes) -> tuple[str, bytes]:
        """Return the user and the last token, which shows that the server knows the password.

        LoginRefusedError for an unknown user, a wrong password, or a malformed response.
        """
        found = {name: quoted or plain for name, quoted, plain in _FIELD.findall(response.decode("utf-8", "replace"))}
        user, cnonce, uri = found.get("username", ""), found.get("cnonce", ""), found.get("digest-uri", "")
        if user not in self._users:
            raise LoginRefusedError(user)
        secret = md5(f"{user}:{REALM}:{self._users[user]}".encode(), usedforsecurity=False).digest()
        ha1 = _hex(secret + f":{self._nonce}:{cnonce}".encode())
        proof, own = (
            _hex(f"{ha1}:{self._nonce}:00000001:{cnonce}:auth:{_hex(f'{method}:{uri}'.encode())}".encode())
            for method in ("AUTHENTICATE", "")
        )
        if found.get("response") != proof:
            raise LoginRefusedError(user)
        return user, f"rspauth={own}".encode()


def _hex(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()
