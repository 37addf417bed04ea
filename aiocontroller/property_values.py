"""The types of properties: what a value may be, and how it is read.

Each field of ``Config`` declares its property once, by the field's name, type, default and docstring.  The type defines
the valid values: by itself (bool, str, Secret, Literal), or by the ``ValueKind`` that annotates it.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from aiocontroller.authorizer.principals import parse_principals
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.unclean_recovery import RecoveryStrategy

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_NAME = re.compile(r"(?=.*[a-z])[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?", re.ASCII | re.IGNORECASE)
"""Contains a letter: a host without one must be an IP address."""
TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
MAX_HTTP_PASSWORD = 4_000
"""Bytes: the HTTP server accepts headers of 8,190 bytes, and HTTP Basic encodes three bytes as four."""
RECOVERY_STRATEGIES = get_args(RecoveryStrategy)
MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
"""Java's, and so Kafka's."""
MAX_CONTROLLER_ID = 1_000_000_000
"""Java consumers number the connection to their coordinator 2**31 - 1 minus the broker's id."""

Pick = Callable[[Sequence[Any]], Any]
"""Chooses between values that equally many brokers have."""


class ValueKind(NamedTuple):
    """``expected`` describes valid values; ``parse`` raises ValueError or KeyError for others."""

    expected: str
    parse: Callable[[str], Any]


class FromBrokers(NamedTuple):
    """A property for which the brokers' value applies; in a tie, the one that ``pick`` finds least harmful."""

    pick: Pick
    adopted: bool = True
    """Whether the brokers' value is used; False: ours must be set to the same value by an operator."""


class Secret(str):
    """A password: printed as ``[hidden]``, as Kafka's ``Password`` is."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The password itself."""
        return self[:]

    def __repr__(self) -> str:
        return "[hidden]"

    __str__ = __repr__


@lru_cache(maxsize=100)  # asked for once for each partition
def parse_protocol_version(text: str) -> tuple[int, int, int]:
    """Parse ``3.4-IV0`` into (3, 4, 0); without ``-IVn``, the release's last IV, as in Kafka.  ValueError otherwise."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?(?:-IV(\d+))?", text)
    if match is None:
        raise ValueError(text)
    major, minor, iv = match.groups()
    return int(major), int(minor), 99 if iv is None else int(iv)


def parse_bool(text: str) -> bool:
    """Parse ``true`` or ``false``, ignoring case, as Kafka does; KeyError for other words, even ``1`` and ``yes``."""
    return {"true": True, "false": False}[text.lower()]


def parse_text(text: str) -> str:
    """Return the text unchanged; ValueError if it is empty."""
    if not text:
        raise ValueError(text)
    return text


def parse_http_password(text: str) -> Secret:
    """Parse a password; ValueError if it is empty, or too long for an HTTP header."""
    if len(text.encode(errors="surrogateescape")) > MAX_HTTP_PASSWORD:
        raise ValueError(text)
    return Secret(parse_text(text))


def parse_protocol(text: str) -> str:
    """Return the version unchanged; ValueError if ``parse_protocol_version`` does not know its form."""
    parse_protocol_version(text)
    return text


def parse_connect(text: str) -> str:
    """Return ZooKeeper's connect string unchanged; ValueError for a server without host or with port 0."""
    servers, _, _ = text.partition("/")
    for server in servers.split(","):
        _, port = split_host_port(server.strip(), default_port=2181)
        if port == 0:
            raise ValueError(text)
    return text


def split_host_port(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse ``host:port`` or ``[v6]:port`` into (host, port); ValueError for another form."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]/,]*))(?::(\d{1,5}))?", text)
    if match is None or (match[1] or match[2] or "") == "" or (match[3] is None and default_port is None):
        raise ValueError(text)
    port = default_port if match[3] is None else int(match[3])
    assert port is not None
    if port > 65535:
        raise ValueError(text)
    return match[1] or match[2], port


def parse_listeners(text: str) -> tuple[Endpoint, ...]:
    """Parse Kafka's ``NAME://host:port,…``; an empty host means all interfaces; ``SSL``, ``SASL_SSL`` … name their
    protocol.

    ValueError for another form, and for a name that occurs twice.
    """
    endpoints = []
    for listener in text.split(","):
        name, separator, address = listener.strip().partition("://")
        if not separator or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise ValueError(text)
        host, port = split_host_port(f"0.0.0.0{address}" if address.startswith(":") else address)
        protocol = name.upper() if name.upper() in SECURITY_PROTOCOLS else "PLAINTEXT"
        endpoints.append(Endpoint(name.upper(), host, port, protocol))
    if len({e.listener for e in endpoints}) != len(endpoints):
        raise ValueError(text)
    return tuple(endpoints)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL,…``, ignoring case; ValueError for an unknown protocol."""
    found = {}
    for pair in filter(None, text.split(",")):
        name, _, protocol = pair.strip().partition(":")
        if not name or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ValueError(text)
        found[name.upper()] = protocol.strip().upper()
    return found


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, and strip spaces; empty ones are left out, so the result may be empty."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_broker_ids(text: str) -> tuple[int, ...]:
    """Parse ids of brokers, ``1, 2``; return them ascending, without duplicates, maybe none.  Raises ValueError."""
    ids = [int(name) for name in parse_names(text)]
    if any(each < 0 for each in ids) or "_" in text:
        raise ValueError(text)
    return tuple(sorted(set(ids)))


def parse_command(text: str) -> tuple[str, ...]:
    """Parse a program and its arguments, quoted as for a POSIX shell; no shell runs.  Raises ValueError."""
    command = tuple(shlex.split(text))
    if command and not command[0]:
        raise ValueError(text)
    return command


def parse_counts(text: str) -> dict[str, int]:
    """Parse ``10.0.0.1:200,[fe80::1]:50,host-1:10``: a number by IP address or host name; ValueError otherwise."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, separator, count = pair.rpartition(":")
        if not separator or not address or int(count) < 0:
            raise ValueError(text)
        host = address.strip().strip("[]")
        found[host.lower() if _HOST_NAME.fullmatch(host) else _ip(host)] = int(count)
    return found


def parse_recovery_strategies(text: str) -> dict[str, str]:
    """Parse ``orders:Balanced,audit:None``, a strategy by topic; ValueError otherwise, and for a topic named twice."""
    found: dict[str, str] = {}
    for pair in parse_names(text):
        topic, separator, strategy = (part.strip() for part in pair.rpartition(":"))
        if not separator or not _TOPIC.fullmatch(topic) or topic in found or strategy not in RECOVERY_STRATEGIES:
            raise ValueError(text)
        found[topic] = strategy
    return found


def _ip(host: str) -> str:
    """Return the address as connections show it: an IPv4 address without ``::ffff:``."""
    found = ipaddress.ip_address(host)
    return str(getattr(found, "ipv4_mapped", None) or found)


def is_ip_address(host: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address; a host name is not looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def parse_endpoint_identification(text: str) -> str:
    """Parse ``HTTPS`` or an empty text, which disables the check; ValueError otherwise."""
    if text.upper() not in ("", "HTTPS"):
        raise ValueError(text)
    return text.upper()


def parse_digest_user(text: str) -> str:
    """Parse a user name for ZooKeeper's digest scheme (``user:password``); ValueError if empty or with a colon."""
    if not text or ":" in text:
        raise ValueError(text)
    return text


def parse_protocols(text: str) -> tuple[str, ...]:
    """Parse TLS versions, in the given order; ValueError for one that is not in ``TLS_PROTOCOLS``, or for none."""
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(TLS_PROTOCOLS):
        raise ValueError(text)
    return names


def parse_pem(text: str) -> str:
    """Parse ``PEM``, ignoring case; ValueError for Java's other store types."""
    if text.upper() != "PEM":
        raise ValueError(text)
    return "PEM"


def parse_pem_location(text: str) -> str:
    """Return the name of a file, which is not opened; ValueError if empty, or if its suffix is another store's."""
    if not text or text.lower().endswith((".jks", ".p12", ".pfx", ".bcfks")):
        raise ValueError(text)
    return text


# ---- the types of fields


def whole(least: int, most: int | None = None, unit: str = "") -> ValueKind:
    """Return the kind of whole numbers within limits, both included."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most) or "_" in text:  # Java allows no underscores
            raise ValueError(text)
        return value

    limits = f"at least {least}" if most is None else f"{least} to {most}"
    return ValueKind(f"a whole number{unit and f' of {unit}'}, {limits}", parse)


def one_of(*values: str) -> ValueKind:
    """Return the kind of values that are one of these words."""

    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return ValueKind("one of " + ", ".join(values), parse)


def what_is_set(values: Sequence[Any]) -> Any:
    """Return the first value that is not None; None if there is none."""
    return next((value for value in values if value is not None), None)


SECRET = ValueKind("a password", lambda text: Secret(parse_text(text)))
HTTP_PASSWORD = ValueKind(f"a password of at most {MAX_HTTP_PASSWORD:,} bytes", parse_http_password)
SECRETS = (SECRET, HTTP_PASSWORD)
_BY_TYPE = {
    bool: ValueKind("true or false", parse_bool),
    str: ValueKind("a name", parse_text),
    Secret: SECRET,
}

HttpPassword = Annotated[Secret, HTTP_PASSWORD]
NonNegativeInt = Annotated[int, whole(0)]
PositiveInt = Annotated[int, whole(1)]
PositiveBytes = Annotated[int, whole(1, unit="bytes")]
Milliseconds = Annotated[int, whole(0, MAX_LONG, unit="milliseconds")]
PositiveMilliseconds = Annotated[int, whole(1, MAX_LONG, unit="milliseconds")]
IntMilliseconds = Annotated[int, whole(0, MAX_INT, unit="milliseconds")]
"""Where Kafka or ZooKeeper's protocol has a 32-bit integer."""
PositiveIntMilliseconds = Annotated[int, whole(1, MAX_INT, unit="milliseconds")]
PositiveSeconds = Annotated[int, whole(1, MAX_LONG, unit="seconds")]
ReplicationFactor = Annotated[int, whole(1, 2**15 - 1)]
ControllerId = Annotated[
    int,
    ValueKind(
        f"a whole number, 0 to {MAX_CONTROLLER_ID}: clients number their own connections down from 2147483647",
        whole(0, MAX_CONTROLLER_ID).parse,
    ),
]
BrokerIds = Annotated[tuple[int, ...], ValueKind("ids of brokers, separated by commas", parse_broker_ids)]
CommandLine = Annotated[tuple[str, ...], ValueKind("a program and its arguments, with balanced quotes", parse_command)]
Racks = Annotated[tuple[str, ...], ValueKind("names of racks, separated by commas", parse_names)]
Names = Annotated[tuple[str, ...], ValueKind("names of settings, separated by commas, or all", parse_names)]
HostNames = Annotated[tuple[str, ...], ValueKind("names of hosts, separated by commas", parse_names)]
Mechanisms = Annotated[tuple[str, ...], ValueKind("mechanisms, separated by commas", parse_names)]
MappingRules = Annotated[str, ValueKind("rules, separated by commas", str)]
Principals = Annotated[tuple[str, ...], ValueKind("Type:name (User:alice), separated by semicolons", parse_principals)]
ClassName = Annotated[str | None, ValueKind("a class, or nothing", lambda text: text or None)]
"""The name of a Java class."""
ProtocolVersion = Annotated[str, ValueKind("a Kafka version such as 3.9 or 2.7-IV2", parse_protocol)]
ConnectString = Annotated[str, ValueKind("host:port,host:port/chroot", parse_connect)]
ConnectionCounts = Annotated[Mapping[str, int], ValueKind("host:number, separated by commas", parse_counts)]
RecoveryStrategies = Annotated[
    Mapping[str, RecoveryStrategy],
    ValueKind(
        f"topic:strategy, separated by commas, each topic once; {', '.join(RECOVERY_STRATEGIES)}",
        parse_recovery_strategies,
    ),
]
ListenerName = Annotated[str, ValueKind("a listener's name", lambda text: parse_text(text).upper())]
Listeners = Annotated[
    tuple[Endpoint, ...], ValueKind("NAME://host:port, separated by commas, each name once", parse_listeners)
]
ProtocolMap = Annotated[Mapping[str, str], ValueKind("NAME:PROTOCOL, separated by commas", parse_protocol_map)]
SecurityProtocol = Annotated[str, one_of(*SECURITY_PROTOCOLS)]
TlsProtocol = Annotated[str, one_of(*TLS_PROTOCOLS)]
TlsProtocols = Annotated[tuple[str, ...], ValueKind(f"some of {', '.join(TLS_PROTOCOLS)}", parse_protocols)]
EndpointIdentification = Annotated[str, ValueKind("HTTPS, or nothing", parse_endpoint_identification)]
DigestUser = Annotated[str, ValueKind("a name without a colon", parse_digest_user)]
PemType = Annotated[str, ValueKind("PEM, the only type of store that is read here", parse_pem)]
PemLocation = Annotated[
    str, ValueKind("a file of certificates in PEM (openssl pkcs12 makes one from a .p12)", parse_pem_location)
]
Unchecked = Annotated[
    bool, ValueKind("false: revocation is not checked here", lambda text: {"false": False}[text.lower()])
]


def kind_of(type_: Any) -> ValueKind:
    """Return the kind of a field's type; TypeError if the type does not define its valid values."""
    for part in _parts(type_):
        if isinstance(part, ValueKind):
            return part
        if part in _BY_TYPE:
            return _BY_TYPE[part]
        if get_origin(part) is Literal:
            return one_of(*get_args(part))
    raise TypeError(f"found {type_}, expected a type that says which values it takes")


def from_brokers(type_: Any) -> FromBrokers | None:
    """Return how the brokers' values apply to a field's type; None if they do not."""
    return next((part for part in _parts(type_) if isinstance(part, FromBrokers)), None)


def _parts(type_: Any) -> Iterator[Any]:
    """Yield the annotations and the parts of a type."""
    origin = get_origin(type_)
    if origin is Annotated:
        yield from type_.__metadata__
        yield from _parts(type_.__origin__)
    elif origin in (Union, UnionType):
        for each in get_args(type_):
            yield from _parts(each)
    else:
        yield type_
