"""Connect strings in the form of Kafka's ``zookeeper.connect``: ``host:port,[ipv6]:port,host/chroot``."""

from __future__ import annotations

import re

from aiocontroller.core.errors import BadInputError

DEFAULT_PORT = 2181

_ADDRESS = re.compile(r"^(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d+))?$")


def parse_connect_string(connect: str) -> tuple[list[tuple[str, int]], str]:
    """((host, port) of each server, the chroot or ""); raises BadInputError for an invalid string."""
    servers, slash, chroot = connect.partition("/")
    chroot = "/" + chroot.strip("/") if slash and chroot.strip("/") else ""
    if "//" in chroot:
        raise BadInputError(f"zookeeper.connect: the chroot is {chroot!r}, expected names separated by single slashes")
    hosts = []
    for server in servers.split(","):
        server = server.strip()
        if not server:
            continue
        match = _ADDRESS.match(server)
        if match is None:
            raise BadInputError(f"zookeeper.connect: found {server!r}, expected host:port or [IPv6 address]:port")
        port = int(match["port"] or DEFAULT_PORT)
        if not 0 < port < 65536:
            raise BadInputError(f"zookeeper.connect: the port of {server!r} is {port}, expected 1 to 65535")
        hosts.append((match["ipv6"] or match["host"], port))
    if not hosts:
        raise BadInputError(f"zookeeper.connect: found {connect!r}, expected at least one host:port")
    return hosts, chroot


def format_address(host: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
