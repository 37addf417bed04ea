"""Configuration by Kafka's property names, so that a broker's ``server.properties`` can be handed over as it is.

Sources, the later wins: defaults (Kafka's own where the property is Kafka's), a properties file, the environment
(``AIOCONTROLLER_ZOOKEEPER_CONNECT`` for ``zookeeper.connect``, ``AIOCONTROLLER_HTTP_PORT`` for
``aiocontroller.http.port``), overrides from the command line.

A bad value is an error that names property, value and what was expected; all of them are reported at once.  A property
that Kafka knows and we do not use is passed over with one warning; an unknown one of our own prefix is an error,
because it can only be a slip.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Endpoint

OWN_PREFIX = "aiocontroller."
DEFAULT_CONTROLLER_ID = 1_000_001
"""Above ``reserved.broker.max.id`` (1000) and any id that brokers generate in practice."""


class ConfigError(BadInputError):
    """One line for each property that cannot be used."""


class Config(msgspec.Struct, frozen=True):
    """Each field is the property with underscores for dots; units are those of Kafka's names."""

    zookeeper_connect: str = "127.0.0.1:2181"
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper_connection_timeout_ms: int | None = None
    """How long to wait for ZooKeeper at start; None: as long as it takes."""
    listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "127.0.0.1", 0),)
    """Where brokers and clients reach this controller; port 0 takes a free one."""
    advertised_listeners: tuple[Endpoint, ...] | None = None
    """What brokers are told; None: ``listeners``, with the port that was really taken."""
    inter_broker_listener_name: str = "PLAINTEXT"
    control_plane_listener_name: str | None = None
    inter_broker_protocol_version: str = "3.9"
    controller_socket_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    aiocontroller_id: int = DEFAULT_CONTROLLER_ID
    aiocontroller_http_host: str = "127.0.0.1"
    aiocontroller_http_port: int = 0
    aiocontroller_journal_dir: str | None = None
    aiocontroller_takeover_policy: Literal["wait", "takeover", "observe"] = "wait"

    @property
    def topic_ids_supported(self) -> bool:
        """Topic znodes hold topic ids (KIP-516)."""
        return self._protocol_at_least(2, 8, 0)

    @property
    def leader_recovery_supported(self) -> bool:
        """State znodes hold the leader recovery state (KIP-704)."""
        return self._protocol_at_least(3, 2, 0)

    @property
    def feature_versioning_supported(self) -> bool:
        """``/feature`` says that features have versions (KIP-584)."""
        return self._protocol_at_least(2, 7, 0)

    @property
    def feature_znode_version(self) -> int:
        """The layout of ``/feature``: without minimum levels from 3.3 on."""
        return 2 if self._protocol_at_least(3, 3, 0) else 1

    @property
    def alter_partition_supported(self) -> bool:
        """Brokers change ISRs by AlterPartition (KIP-497) and not by writing znodes."""
        return self._protocol_at_least(2, 7, 2)

    def _protocol_at_least(self, major: int, minor: int, iv: int) -> bool:
        return parse_protocol_version(self.inter_broker_protocol_version) >= (major, minor, iv)


def parse_protocol_version(text: str) -> tuple[int, int, int]:
    """``3.4-IV0`` -> (3, 4, 0); without ``-IVn`` the release's last one, as in Kafka.  ValueError otherwise."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?(?:-IV(\d+))?", text)
    if match is None:
        raise ValueError(text)
    major, minor, iv = match.groups()
    return int(major), int(minor), 99 if iv is None else int(iv)


# ---- what a value may be: a parser raises ValueError, ``expected`` says what would have been right


class Kind(NamedTuple):
    expected: str
    parse: Callable[[str], Any]


def _whole(least: int, most: int | None = None, unit: str = "") -> Kind:
    def parse(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise ValueError(text)
        return value

    limits = f"at least {least}" if most is None else f"{least} to {most}"
    return Kind(f"a whole number{unit and f' of {unit}'}, {limits}", parse)


def _one_of(*values: str) -> Kind:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return Kind("one of " + ", ".join(values), parse)


def _parse_bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _parse_protocol(text: str) -> str:
    parse_protocol_version(text)
    return text


def _parse_connect(text: str) -> str:
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
        protocol = name.upper() if name.upper() in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") else "PLAINTEXT"
        endpoints.append(Endpoint(name.upper(), host, port, protocol))
    if len({e.listener for e in endpoints}) != len(endpoints):
        raise ValueError(text)
    return tuple(endpoints)


_BOOL = Kind("true or false", _parse_bool)
_TEXT = Kind("a name", _parse_text)
_LISTENERS = Kind("NAME://host:port, separated by commas, each name once", parse_listeners)
_TIMEOUT_MS = _whole(1, unit="milliseconds")

PROPERTIES: dict[str, Kind] = {
    "zookeeper.connect": Kind("host:port,host:port/chroot", _parse_connect),
    "zookeeper.session.timeout.ms": _TIMEOUT_MS,
    "zookeeper.connection.timeout.ms": _TIMEOUT_MS,
    "listeners": _LISTENERS,
    "advertised.listeners": _LISTENERS,
    "inter.broker.listener.name": _TEXT,
    "control.plane.listener.name": _TEXT,
    "inter.broker.protocol.version": Kind("a Kafka version such as 3.9 or 2.7-IV2", _parse_protocol),
    "controller.socket.timeout.ms": _TIMEOUT_MS,
    "request.timeout.ms": _TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": _TIMEOUT_MS,
    "auto.leader.rebalance.enable": _BOOL,
    "leader.imbalance.per.broker.percentage": _whole(0),
    "leader.imbalance.check.interval.seconds": _whole(1, unit="seconds"),
    "unclean.leader.election.enable": _BOOL,
    "delete.topic.enable": _BOOL,
    "aiocontroller.id": _whole(0, 2**31 - 1),
    "aiocontroller.http.host": _TEXT,
    "aiocontroller.http.port": _whole(0, 65535),
    "aiocontroller.journal.dir": _TEXT,
    "aiocontroller.takeover.policy": _one_of("wait", "takeover", "observe"),
}

_KAFKA_FAMILIES = frozenset(
    "advertised alter authorizer auto background broker client compression connection connections control controlled "
    "controller create default delegation delete early eligible fetch follower group initial inter leader listener "
    "listeners log max message metadata metric metrics min num offset offsets password port principal process producer "
    "queued quota remote replica replication request reserved sasl security socket ssl telemetry transaction "
    "transactional unclean unstable zookeeper host node".split()
)
"""First words of the properties of Kafka's brokers: what begins otherwise is not Kafka's."""


class Setting(NamedTuple):
    """One property as it was found; ``source`` is where, for messages."""

    key: str
    value: str
    source: str


def load_config(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> tuple[Config, list[str]]:
    """The configuration, and warnings for people.  ConfigError with all that is wrong; OSError when the file is not
    readable."""
    settings = [] if file is None else list(parse_properties(file.read_text(encoding="utf-8"), file.name))
    environment, warnings = _from_environment(environ or {})
    settings += environment
    settings += [Setting(key, value, "the command line") for key, value in (overrides or {}).items()]
    fields: dict[str, Any] = {}
    errors: dict[str, str] = {}
    unused: list[str] = []
    for key, value, source in settings:
        kind = PROPERTIES.get(key)
        if kind is None:
            if key.startswith(OWN_PREFIX):
                errors[key] = f"{key} ({source}): no such property{_did_you_mean(key)}"
            elif key.split(".")[0] in _KAFKA_FAMILIES:
                unused.append(key)
            else:
                warnings.append(
                    f"{key} ({source}): neither Kafka nor aiocontroller has it{_did_you_mean(key)}; ignored"
                )
            continue
        errors.pop(key, None)  # what comes later replaces it
        try:
            fields[key.replace(".", "_")] = kind.parse(value.strip())
        except (ValueError, KeyError):
            errors[key] = f"{key} ({source}): found {value!r}, expected {kind.expected}"
    if errors:
        raise ConfigError("\n".join(errors.values()))
    if unused:
        warnings.append(f"properties that Kafka knows and aiocontroller does not use: {_listed(unused)}")
    return Config(**fields), warnings


def environment_name(key: str) -> str:
    """The variable for a property."""
    return (key if key.startswith(OWN_PREFIX) else OWN_PREFIX + key).replace(".", "_").upper()


def _from_environment(environ: Mapping[str, str]) -> tuple[list[Setting], list[str]]:
    by_name = {environment_name(key): key for key in PROPERTIES}
    ours = sorted(name for name in environ if name.startswith(environment_name(OWN_PREFIX)))
    found = [Setting(by_name[name], environ[name], f"environment variable {name}") for name in ours if name in by_name]
    unknown = [name for name in ours if name not in by_name]
    return found, [f"environment variable {name}: no property belongs to it; ignored" for name in unknown]


def _did_you_mean(key: str) -> str:
    close = difflib.get_close_matches(key, PROPERTIES, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _listed(names: Iterable[str], most: int = 8) -> str:
    unique = sorted(set(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + more


# ---- properties files, as java.util.Properties reads them

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


def parse_properties(text: str, name: str) -> Iterator[Setting]:
    """Each property with its file and line; comments, continued lines and escapes as Java has them."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            _, following = next(lines, (0, ""))
            logical = logical[:-1] + following.lstrip()
        match = _SEPARATOR.match(logical)
        if match is not None:
            yield Setting(_unescaped(match[1]), _unescaped(match[2]), f"{name} line {number}")


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", replace, text)
