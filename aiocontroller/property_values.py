"""Parsers of property values: each function raises ValueError for invalid text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from aiocontroller.core.ids import Endpoint

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_NAME = re.compile(r"(?=.*[a-z])[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?", re.ASCII | re.IGNORECASE)
"""Contains a letter: a host without one must be an IP address."""
TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")


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


def parse_protocol_version(text: str) -> tuple[int, int, int]:
    """``3.4-IV0`` -> (3, 4, 0); without ``-IVn`` the release's last one, as in Kafka.  ValueError otherwise."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?(?:-IV(\d+))?", text)
    if match is None:
        raise ValueError(text)
    major, minor, iv = match.groups()
    return int(major), int(minor), 99 if iv is None else int(iv)


def parse_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def parse_text(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def parse_protocol(text: str) -> str:
    parse_protocol_version(text)
    return text


def parse_connect(text: str) -> str:
    servers, _, _ = text.partition("/")
    for server in servers.split(","):
        _, port = split_host_port(server.strip(), default_port=2181)
        if port == 0:
            raise ValueError(text)
    return text


def split_host_port(text: str, default_port: int | None = None) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` -> (host, port); ValueError when it is neither."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]/,]*))(?::(\d{1,5}))?", text)
    if match is None or (match[1] or match[2] or "") == "" or (match[3] is None and default_port is None):
        raise ValueError(text)
    port = default_port if match[3] is None else int(match[3])
    assert port is not None
    if port > 65535:
        raise ValueError(text)
    return match[1] or match[2], port


def parse_listeners(text: str) -> tuple[Endpoint, ...]:
    """Kafka's ``NAME://host:port,…``; an empty host is every interface; ``SSL``, ``SASL_SSL`` … name their protocol."""
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
    """``NAME:PROTOCOL,…``."""
    found = {}
    for pair in filter(None, text.split(",")):
        name, _, protocol = pair.strip().partition(":")
        if not name or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ValueError(text)
        found[name.upper()] = protocol.strip().upper()
    return found


def parse_names(separator: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(name.strip() for name in text.split(separator) if name.strip())


def parse_counts(text: str) -> dict[str, int]:
    """``10.0.0.1:200,[fe80::1]:50,host-1:10``: a number for each IP address or host name."""
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, separator, count = pair.rpartition(":")
        if not separator or not address or int(count) < 0:
            raise ValueError(text)
        host = address.strip().strip("[]")
        found[host.lower() if _HOST_NAME.fullmatch(host) else _ip(host)] = int(count)
    return found


def _ip(host: str) -> str:
    """The address as connections show it: without ``::ffff:`` where it is one of IPv4."""
    found = ipaddress.ip_address(host)
    return str(getattr(found, "ipv4_mapped", None) or found)


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def parse_endpoint_identification(text: str) -> str:
    if text.upper() not in ("", "HTTPS"):
        raise ValueError(text)
    return text.upper()


def parse_digest_user(text: str) -> str:
    if not text or ":" in text:
        raise ValueError(text)
    return text


def parse_protocols(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(TLS_PROTOCOLS):
        raise ValueError(text)
    return names


def parse_pem(text: str) -> str:
    if text.upper() != "PEM":
        raise ValueError(text)
    return "PEM"


def parse_pem_location(text: str) -> str:
    if not text or text.lower().endswith((".jks", ".p12", ".pfx", ".bcfks")):
        raise ValueError(text)
    return text
