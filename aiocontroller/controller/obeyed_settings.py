"""The brokers' settings that a controller obeys, and which value counts where brokers or we differ.  Pure.

A controller inside a broker obeys that broker's own configuration (``KafkaConfig``, as ``KafkaController``,
``ControllerChannelManager``, ``TopicDeletionManager``, ``ZkAdminManager``, ``AutoTopicCreationManager`` and
``DelegationTokenManager`` read it).  A controller outside has no such broker, so it considers all brokers:

 * the value of most brokers counts; in a tie, the least harmful one (``FromBrokers`` at the field of ``Config``);
 * the lowest ``inter.broker.protocol.version`` counts, so that every broker can read what is written;
 * our own value has to agree with that, unless it is kept deliberately (``aiocontroller.keep.ours``).

``controlled.shutdown.*`` and ``replica.lag.time.max.ms`` are not included: only brokers obey them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from aiocontroller.config import PROPERTIES
from aiocontroller.property_values import parse_protocol_version
from aiocontroller.wire.config_messages import DescribedSetting
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.broker_configs import THREAD_COUNTS, ConfigSource, read_by_all, read_by_one
from aiocontroller.zookeeper.topic_configs import BROKER_SYNONYMS
from aiocontroller.zookeeper.znode_json import MAX_INT32

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
PROTOCOL = "inter.broker.protocol.version"
CREATE_TOPIC_POLICY = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY = "alter.config.policy.class.name"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
TOKEN_KEYS = ("delegation.token.secret.key", "delegation.token.master.key")
EVERYTHING = "all"
"""Value of ``aiocontroller.keep.ours`` that stands for all names."""
HIDDEN = "[hidden]"

OBEYED = {name: each.from_brokers for name, each in PROPERTIES.items() if each.from_brokers is not None}
"""Settings that ``Config`` has too."""

REMOTE_STORAGE = "remote.log.storage.system.enable"
OF_TOPICS = tuple(name for name in (*BROKER_SYNONYMS, *THREAD_COUNTS, REMOTE_STORAGE) if name not in OBEYED)
"""Defaults of topic configs, and settings that changes of configs are validated against."""
NAMES = (*OBEYED, *OF_TOPICS)
ASKED = (*NAMES, *TOKEN_KEYS, SESSION_TIMEOUT)
_NAMES = frozenset(NAMES)
MAX_DIGITS = 20
"""Of a number that is looked at: some zeros may be in front of it, and Python refuses to read thousands of digits."""


def positive_int(text: str) -> int | None:
    """A setting's value if brokers read it as a positive int; None if they do not obey it, whoever wrote it."""
    digits = text.strip()
    if not digits.isdecimal() or len(digits) > MAX_DIGITS:
        return None
    value = int(digits)
    return value if 1 <= value <= MAX_INT32 else None


class ReportedSettings(msgspec.Struct, frozen=True):
    """One broker's static and default values; None for a setting without a value."""

    static: Mapping[str, str] = {}
    defaults: Mapping[str, str | None] = {}


def reported_by(settings: Iterable[DescribedSetting]) -> ReportedSettings:
    """Static and default values from DescribeConfigs; dynamic settings are left out, as ZooKeeper has them.

    Properties unknown to the broker's release are left out too: it hides them like secrets, and does not obey them.
    """
    static: dict[str, str] = {}
    defaults: dict[str, str | None] = {}
    for setting in settings:
        hidden = setting.value is None and any(synonym.value is None for synonym in setting.synonyms)
        if hidden and setting.name not in TOKEN_KEYS:
            continue
        defaults.setdefault(setting.name, None)
        if not setting.synonyms and setting.value is not None:
            static[setting.name] = setting.value
        for name, value, source in setting.synonyms:
            if source == ConfigSource.STATIC_BROKER_CONFIG:
                static[name] = HIDDEN if value is None else value
            elif source == ConfigSource.DEFAULT_CONFIG:
                defaults[name] = value
    return ReportedSettings(static, defaults)


class Dynamic(msgspec.Struct, frozen=True):
    """Dynamic broker settings (``/config/brokers``), limited to those that brokers read."""

    of_all: Mapping[str, str] = {}
    of_one: Mapping[int, Mapping[str, str]] = {}


def dynamic_of(configs: Mapping[str, Mapping[str, str]]) -> Dynamic:
    """Parse dynamic settings; ``configs`` are by znode name."""
    of_one = {
        int(name): taken
        for name, found in configs.items()
        if name != paths.DEFAULT_ENTITY and (taken := _obeyed(read_by_one(found)))
    }
    return Dynamic(_obeyed(read_by_all(configs.get(paths.DEFAULT_ENTITY, {}))), of_one)


def _obeyed(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in _NAMES}


class Source:
    """Where a value comes from, for display."""

    INSISTED = "insisted"
    OURS = "ours"
    DYNAMIC = "dynamic"
    """Dynamic, of one broker."""
    DYNAMIC_DEFAULT = "dynamic default"
    """Dynamic, of all brokers."""
    BROKERS = "brokers"
    """Their files."""
    DEFAULT = "default"


class EffectiveSetting(msgspec.Struct, frozen=True):
    """One setting with its effective value; an empty string means no value."""

    name: str
    value: str
    source: str
    """See ``Source``."""
    ours: str | None
    """Our own value."""
    brokers: Mapping[int, str]
    """Values of the brokers that have reported theirs."""
    contradicts: bool = False
    """Our value is neither the brokers' effective value nor the one in their files, and is not kept deliberately."""
    unusable: bool = False
    """This controller cannot obey the brokers' value."""

    @property
    def differs(self) -> bool:
        """Whether brokers have different values."""
        return len({comparable(self.name, value) for value in self.brokers.values()}) > 1

    @property
    def matters(self) -> bool:
        """Whether the value differs from every controller's default."""
        return self.source != Source.DEFAULT or self.differs or self.contradicts or self.unusable

    def as_json(self) -> dict[str, Any]:
        """As JSON values; ``brokers`` are grouped by value."""
        return {
            "setting": self.name,
            "value": self.value,
            "from": self.source,
            "brokers": {
                value: [int(each) for each in who.split(", ")] for value, who in by_value(self.brokers).items()
            },
            "ours": self.ours,
            "contradicts": self.contradicts or self.unusable,
        }

    @property
    def of_brokers(self) -> str:
        """The brokers' values, in one string."""
        if not self.differs:
            return shown(next(iter(self.brokers.values()), ""))
        return "; ".join(f"{shown(value)} ({who})" for value, who in by_value(self.brokers).items())


def by_value(brokers: Mapping[int, str]) -> dict[str, str]:
    """Value -> ``1, 2``."""
    found: dict[str, list[str]] = {}
    for broker, value in sorted(brokers.items()):
        found.setdefault(value, []).append(str(broker))
    return {value: ", ".join(who) for value, who in found.items()}


def shown(value: str | None) -> str:
    """A value, for people."""
    return value or "(none)"


class Vote(NamedTuple):
    """A broker's value of one setting, and where it comes from."""

    value: str
    source: str


def vote(broker: int, reported: ReportedSettings, dynamic: Dynamic, name: str) -> Vote | None:
    """A broker's value as its own controller would see it; None when the broker does not know the setting."""
    for level, source in (
        (dynamic.of_one.get(broker, {}), Source.DYNAMIC),
        (dynamic.of_all, Source.DYNAMIC_DEFAULT),
        (reported.static, Source.BROKERS),
    ):
        if name in level:
            return Vote(level[name].strip() if name in OBEYED else level[name], source)
    return Vote(reported.defaults[name] or "", Source.DEFAULT) if name in reported.defaults else None


def parsed(name: str, text: str) -> Any:
    """The value of one of ``OBEYED``, without the spaces around it that brokers report; ValueError, KeyError."""
    return PROPERTIES[name].kind.parse(text.strip())


def comparable(name: str, text: str) -> Any:
    """A value for comparison: equal values mean the same setting; a malformed text is compared as it is."""
    try:
        if name == PROTOCOL:
            return parse_protocol_version(with_last_iv(text))
        if name in OBEYED:
            return parsed(name, text)
    except (ValueError, KeyError):
        pass
    return text.strip().lower() if text.strip().lower() in ("true", "false") else text.strip()


_LAST_IV = {
    (2, 2): 1,
    (2, 3): 1,
    (2, 4): 1,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 3): 3,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
}
"""Last IV of each release that has more than one."""


def with_last_iv(text: str) -> str:
    """Complete a version with its last IV: ``3.5`` becomes ``3.5-IV2``, as brokers report their default."""
    major, minor, _ = parse_protocol_version(text)
    return text if "-IV" in text else f"{major}.{minor}-IV{_LAST_IV.get((major, minor), 0)}"


def settle(name: str, votes: Mapping[int, Vote]) -> Vote:
    """The vote that counts."""
    groups: dict[Any, list[Vote]] = {}
    for _, each in sorted(votes.items()):
        groups.setdefault(comparable(name, each.value), []).append(each)
    most = 0 if name == PROTOCOL else max(map(len, groups.values()))
    candidates = [value for value, group in groups.items() if len(group) >= most]
    chosen = candidates[0]
    if len(candidates) > 1 and name in OBEYED:
        try:
            chosen = OBEYED[name].pick(candidates)
        except TypeError:  # some value could not be parsed
            pass
    return groups[chosen][0]
