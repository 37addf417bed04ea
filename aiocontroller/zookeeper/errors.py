"""Errors of the ZooKeeper client.

A server's error codes are values in bulk results; methods of a single znode raise aiozk's exceptions (``exc``) for
them.  The classes here concern the connection and the session: whether a request may have been applied, and whether
the session (with its ephemerals and watches) still exists.
"""

from __future__ import annotations

from enum import IntEnum

from aiocontroller.core.errors import AioControllerError
from aiocontroller.zookeeper.from_aiozk import exc


class Code(IntEnum):
    """ZooKeeper's error codes (``KeeperException.Code``)."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


SESSION_GONE = (Code.SESSION_EXPIRED, Code.UNKNOWN_SESSION)
"""Codes that a server returns from the end of the session until it closes the connection."""


TOO_LARGE = int(Code.MARSHALLING_ERROR)
"""In results of bulk writes: not sent, because the server would have closed the connection."""


CONFLICTS = (Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS)
"""Codes of writes that lost to a concurrent write, so that reading again is worthwhile."""


def is_refusal(code: int) -> bool:
    """Whether a write with this code was refused, and would be refused again."""
    return code != Code.OK and code not in CONFLICTS


# aiozk lacks these; defining a subclass registers it, so that its own lookup finds it too.
class RequestTimeout(exc.ResponseError):
    """The server did not process the request in time."""

    error_code = -122


class ReconfigDisabled(exc.ResponseError):
    """The server does not allow reconfiguration."""

    error_code = -123


class SessionClosedRequireSaslAuth(exc.ResponseError):
    """The server requires SASL, and ends sessions without it."""

    error_code = -124


class QuotaExceeded(exc.ResponseError):
    """A quota of the znode's path is exceeded."""

    error_code = -125


class ThrottledOp(exc.ResponseError):
    """The server throttled the request and did not process it."""

    error_code = -127


class ZooKeeperError(AioControllerError, exc.ZKError):
    """Base class of the errors below."""


class NotSentError(ZooKeeperError):
    """The request never left this process, or the server refused it unread: it was certainly not applied."""


class ClientClosedError(NotSentError):
    """The client was closed, or never started."""


class MaybeAppliedError(ZooKeeperError):
    """The connection was lost after the request was written: it may or may not have been applied; read to find out."""


class SessionExpiredError(ZooKeeperError):
    """The server says that the session of this call is gone; so are its ephemerals and watches."""


class RequestTooLargeError(ZooKeeperError):
    """The request exceeds the server's limit (``jute.maxbuffer``); it was not sent."""


class AuthFailedError(ZooKeeperError):
    """The server refused the credentials."""


class BadReplyError(ZooKeeperError):
    """A reply is malformed."""


class RecursiveWatchUnsupportedError(ZooKeeperError):
    """The server refuses persistent recursive watches: it is older than 3.6, or configured without them."""


class UnknownCodeError(ZooKeeperError):
    """The server answered with an error code that this client does not know."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ZooKeeper answered with the unknown error code {code}")
        self.error_code = code


def response_error(code: int) -> Exception:
    """The exception for a server's error code: aiozk's class where there is one."""
    found = exc.response_error_xref.get(code)
    return found() if found is not None else UnknownCodeError(code)
