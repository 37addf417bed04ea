"""Client quotas: the valid quotas of each kind of entity, and their znodes (Kafka's ``QuotaConfigs``).  Pure.

A quota's entity is a user, a client id, both, or an address; the name None stands for all without a quota of their own.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.config_def import INT_MAX, LONG_MAX, LONG_MIN, ConfigType, java_double
from aiocontroller.zookeeper.topic_rules import TopicError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
Entity = Mapping[str, str | None]
"""Name by type."""
_EPSILON = 1e-6

OF_USERS_AND_CLIENTS: dict[str, tuple[ConfigType, int]] = {
    "consumer_byte_rate": (ConfigType.LONG, LONG_MIN),
    "controller_mutation_rate": (ConfigType.DOUBLE, 0),
    "producer_byte_rate": (ConfigType.LONG, LONG_MIN),
    "request_percentage": (ConfigType.DOUBLE, 0),
}
"""Type and minimum; as in brokers, the minimum of a DOUBLE is not checked."""
OF_ADDRESSES: dict[str, tuple[ConfigType, int]] = {"connection_creation_rate": (ConfigType.INT, 0)}


def _invalid(message: str) -> TopicError:
    return TopicError(KafkaErrorCode.INVALID_REQUEST, message)


def sanitized(name: str | None) -> str:
    """The name as znodes have it; ``<default>`` for None."""
    return paths.DEFAULT_ENTITY if name is None else paths.sanitize(name)


def desanitized(name: str) -> str | None:
    """The name that a znode's name stands for; None for ``<default>``."""
    return None if name == paths.DEFAULT_ENTITY else paths.desanitize(name)


def place(entity: Entity) -> tuple[str, str]:
    """(type, name) under ``/config``; raises INVALID_REQUEST for an invalid entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind[:100]!r}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise _invalid("An IP entity cannot be combined with a user or a client id")
        return "ips", _address(entity[IP])
    if USER not in entity:
        return "clients", sanitized(entity[CLIENT_ID])
    if CLIENT_ID not in entity:
        return "users", sanitized(entity[USER])
    return "users", f"{sanitized(entity[USER])}/clients/{sanitized(entity[CLIENT_ID])}"


def _address(name: str | None) -> str:
    """Check the address; IPv6 addresses are refused, as by brokers, which cannot read them from a znode."""
    if name is None:
        return paths.DEFAULT_ENTITY
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        raise _invalid(f"{name[:100]!r} is not a valid IPv4 address") from None


def quotas_of(entity_type: str) -> Mapping[str, tuple[ConfigType, int]]:
    """Name of each quota of this kind of entity -> its type and minimum."""
    return OF_ADDRESSES if entity_type == "ips" else OF_USERS_AND_CLIENTS


def quota_text(entity_type: str, name: str, value: float) -> str:
    """A quota's text in a znode; raises INVALID_REQUEST for an unknown quota or an invalid value."""
    known = quotas_of(entity_type).get(name)
    if known is None:
        raise _invalid(f"Invalid configuration key {name[:100]!r}")
    kind, least = known
    if math.isnan(value):
        raise _invalid(f"{name} must be a number")
    if kind is ConfigType.DOUBLE:
        return java_double(value)
    most = LONG_MAX if kind is ConfigType.LONG else INT_MAX
    whole = max(least, min(int(value + _EPSILON), most)) if math.isfinite(value) else 0
    if abs(float(whole) - value) > _EPSILON:
        raise _invalid(f"{name} must be a whole number from {least} to {most}")
    return str(whole)


def quota_values(entity_type: str, configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas in an entity's configuration; values that are not numbers are skipped."""
    found = {}
    for name in sorted(configs.keys() & quotas_of(entity_type).keys()):
        try:
            value = float(configs[name])
        except ValueError:
            continue
        if not math.isnan(value):
            found[name] = value
    return found
