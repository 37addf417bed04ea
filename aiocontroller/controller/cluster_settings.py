"""The single source of the cluster's settings: the brokers' configuration combined with our own.

``survey`` supplies the brokers' answers, the guard and the consumer supply ``/config/brokers``; ``policy`` is the
configuration that results from both and from our own.  Other code reads it here, or from ``ControllerShell.policy``,
the version that the consumer adopted last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aiocontroller.config import PROPERTIES, Config
from aiocontroller.controller.obeyed_settings import (
    ALTER_CONFIG_POLICY,
    CREATE_TOPIC_POLICY,
    EVERYTHING,
    MIN_ISR,
    NAMES,
    OBEYED,
    OF_TOPICS,
    PROTOCOL,
    SESSION_TIMEOUT,
    TOKEN_KEYS,
    UNCLEAN,
    Dynamic,
    EffectiveSetting,
    ReportedSettings,
    Source,
    Vote,
    comparable,
    parsed,
    positive_int,
    settle,
    shown,
    vote,
)
from aiocontroller.core.errors import BadInputError
from aiocontroller.metrics import Metrics
from aiocontroller.property_values import parse_protocol_version
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.config_def import NEWEST_RELEASE, KafkaRelease

log = logging.getLogger(__name__)

_DEFAULTS = Config()


class ClusterSettings:
    """``settings``, ``policy`` and the other properties reflect the latest ``heard``, ``read`` or ``insist``."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._keep_ours: dict[str, None] = {}
        self._reported: Mapping[int, ReportedSettings] = {}
        self._last_reported: dict[int, ReportedSettings] = {}
        """The last report of each broker, even of those that are gone."""
        self._dynamic = Dynamic()
        self._no_brokers = False
        self.awaited = True
        """Brokers are being asked, and their first answers may arrive at any moment."""
        self._looked = False
        self._differing: dict[str, str] = {}
        self._settings: dict[str, EffectiveSetting] = {}
        self._of_topics = BrokerConfigs()
        self.insist(config.aiocontroller_keep_ours)
        for name, names in (("Differing", lambda: self.differing), ("Contradicting", lambda: self.contradicting)):
            metrics.gauge("aiocontroller", "Settings", name, lambda names=names: len(names()))  # type: ignore[misc]

    # -- inputs ----------------------------------------------------------------------------------------------------

    def heard(self, reported: Mapping[int, ReportedSettings], *, no_brokers: bool, awaited: bool = False) -> None:
        """Take the brokers' answers; ``no_brokers``: no broker is registered; ``awaited``: brokers are being asked."""
        self.awaited = awaited
        self._last_reported.update(reported)
        if not self._looked or reported != self._reported or no_brokers != self._no_brokers:
            self._looked, self._reported, self._no_brokers = True, dict(reported), no_brokers
            self._resolve()

    def read(self, dynamic: Dynamic) -> None:
        """Take the dynamic settings read from ZooKeeper."""
        if dynamic != self._dynamic:
            self._dynamic = dynamic
            self._resolve()

    def insist(self, names: Iterable[str]) -> None:
        """From now on use our own values of exactly these settings; BadInputError for an unknown name."""
        names = list(names)
        self.check_names(names)
        self._keep_ours = dict.fromkeys(names)
        self._resolve()

    @staticmethod
    def check_names(names: Iterable[str]) -> None:
        """BadInputError for a name that ``insist`` would refuse."""
        for name in names:
            if name not in NAMES and name != EVERYTHING:
                raise BadInputError(f"keep ours: found {name!r}, expected a setting that a controller obeys, or all")

    # -- results ---------------------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether some broker has reported its settings, or no broker is known to be registered."""
        return bool(self._reported) or self._no_brokers

    def undecided(self, name: str) -> bool:
        """Whether the first broker to report its settings may forbid what our own value allows."""
        return self._looked and not self._reported and not self.keeps(name)

    @property
    def brokers(self) -> list[int]:
        """The brokers whose settings count."""
        return sorted(self._reported)

    @property
    def dynamic(self) -> Dynamic:
        """The dynamic settings, as they were read last."""
        return self._dynamic

    @property
    def keep_ours(self) -> list[str]:
        """The settings that an operator insists on, even if the brokers' differ."""
        return list(self._keep_ours)

    def keeps(self, name: str) -> bool:
        """Whether our own value is kept whatever the brokers have (``insist``)."""
        return name in self._keep_ours or EVERYTHING in self._keep_ours

    @property
    def settings(self) -> list[EffectiveSetting]:
        """All settings that a controller obeys, in a fixed order."""
        return list(self._settings.values())

    def __getitem__(self, name: str) -> EffectiveSetting:
        return self._settings[name]

    @property
    def differing(self) -> list[EffectiveSetting]:
        """Settings for which brokers have different values."""
        return [setting for setting in self._settings.values() if setting.differs]

    @property
    def contradicting(self) -> list[EffectiveSetting]:
        """Settings whose brokers' values keep this process from being the controller."""
        return [setting for setting in self._settings.values() if setting.contradicts or setting.unusable]

    @property
    def not_enforced(self) -> list[str]:
        """Brokers' settings that their own controller would enforce and this one cannot."""
        found = []
        creation, alteration = self.of_brokers(CREATE_TOPIC_POLICY), self.of_brokers(ALTER_CONFIG_POLICY)
        if creation:
            found.append(f"{CREATE_TOPIC_POLICY} {creation}: topics that are created here are not checked by it")
        if alteration:
            kept = self.keeps(ALTER_CONFIG_POLICY)
            what = "are not checked by it" if kept else "are refused, so that clients ask a broker"
            found.append(f"{ALTER_CONFIG_POLICY} {alteration}: alterations that are asked for here {what}")
        keyed = next(
            (key for key in TOKEN_KEYS if any(key in reported.static for reported in self._reported.values())), None
        )
        if keyed and not (self._config.delegation_token_secret_key or self._config.delegation_token_master_key):
            found.append(f"{keyed}: it is not set here, so that delegation tokens are neither made nor renewed here")
        return found

    def summary(self) -> dict[str, list[str]]:
        """Settings that an operator should look at."""
        return {
            "differing": [setting.name for setting in self.differing],
            "contradicting": [setting.name for setting in self.contradicting],
            "keep_ours": self.keep_ours,
            "not_enforced": self.not_enforced,
        }

    def every_release_is_older_than(self, protocol: tuple[int, int, int]) -> bool:
        """Whether every broker has reported its default protocol, which is its newest, and all are older than this."""
        newest = [reported.defaults.get(PROTOCOL) for reported in self._reported.values()]
        return bool(newest) and all(text and parse_protocol_version(text) < protocol for text in newest)

    @property
    def release(self) -> KafkaRelease:
        """The oldest broker's release, by its default protocol; the newest release if no broker has reported one.

        The configured protocol does not show the release: it may be older than every broker.
        """
        newest = [reported.defaults.get(PROTOCOL) for reported in self._reported.values()]
        return min((parse_protocol_version(text)[:2] for text in newest if text), default=NEWEST_RELEASE)

    @property
    def policy(self) -> Config:
        """Our configuration with the cluster's values applied."""
        return self._policy

    def reported(self, broker: int, name: str) -> str | None:
        """One broker's value; None when it has not reported it."""
        reported = self._reported.get(broker)
        found = None if reported is None else vote(broker, reported, self._dynamic, name)
        return None if found is None else found.value

    def broker_configs(self, of_all: Mapping[str, str]) -> BrokerConfigs:
        """Settings of a broker without dynamic settings of its own, when ``of_all`` is set for all brokers."""
        if self._keep_ours:
            of_all = {name: value for name, value in of_all.items() if not self.keeps(name)}
        return msgspec.structs.replace(self._of_topics, dynamic_default=of_all)

    @property
    def known_broker_configs(self) -> BrokerConfigs:
        """The same with the last known cluster-wide dynamic settings."""
        return self.broker_configs(self._dynamic.of_all)

    # -- resolution ------------------------------------------------------------------------------------------------

    def of_brokers(self, name: str) -> str:
        """The brokers' effective value, regardless of ours."""
        votes = self._votes(name)
        return settle(name, votes).value if votes else ""

    @property
    def lowest_min_isr(self) -> int | None:
        """The lowest ``min.insync.replicas`` of any broker, as the leader's own counts; None if none is reported."""
        known = [value for each in self._votes(MIN_ISR).values() if (value := positive_int(each.value)) is not None]
        return min(known, default=None)

    def session_s(self, broker: int) -> float | None:
        """The ``zookeeper.session.timeout.ms`` that the broker last reported, even if it is gone; None if none."""
        reported = vote(broker, self._last_reported.get(broker, ReportedSettings()), Dynamic(), SESSION_TIMEOUT)
        timeout_ms = None if reported is None else positive_int(reported.value)
        return None if timeout_ms is None else timeout_ms / 1000

    def _votes(self, name: str, dynamic: Dynamic | None = None) -> dict[int, Vote]:
        votes = {
            broker: vote(broker, reported, self._dynamic if dynamic is None else dynamic, name)
            for broker, reported in self._reported.items()
        }
        return {broker: each for broker, each in votes.items() if each is not None}

    def _resolve(self) -> None:
        self._settings = {name: self._setting(name) for name in NAMES}
        changes: dict[str, Any] = {
            PROPERTIES[name].field: parsed(name, setting.value)
            for name, each in OBEYED.items()
            for setting in (self._settings[name],)
            if each.adopted and not setting.unusable and setting.source not in (Source.OURS, Source.INSISTED)
        }
        self._policy = msgspec.structs.replace(self._config, **changes)
        self._of_topics = self._levels()
        self._log_differences()

    def _setting(self, name: str) -> EffectiveSetting:
        votes = self._votes(name)
        brokers = {broker: each.value for broker, each in votes.items()}
        to_be_set = name in OBEYED and not OBEYED[name].adopted
        ours = self._own_value(name) if votes and to_be_set else self._ours(name)
        if self.keeps(name):
            return EffectiveSetting(name, self._own_value(name), Source.INSISTED, ours, brokers)
        if name == UNCLEAN and self.undecided(name):  # the default loses no messages
            return EffectiveSetting(
                name, _text(getattr(_DEFAULTS, PROPERTIES[name].field)), Source.DEFAULT, ours, brokers
            )
        if not votes:
            # Dynamic settings are the brokers' own, even while no broker is up.
            found = vote(-1, ReportedSettings(), self._dynamic, name)
            if found is not None:
                return EffectiveSetting(name, found.value, found.source, ours, brokers)
            return EffectiveSetting(
                name, self._own_value(name), Source.DEFAULT if ours is None else Source.OURS, ours, brokers
            )
        chosen = settle(name, votes)
        if not _usable(name, chosen.value):
            return EffectiveSetting(name, self._own_value(name), Source.OURS, ours, brokers, unusable=True)
        contradicts = ours is not None and comparable(name, ours) not in (
            comparable(name, chosen.value),
            comparable(name, settle(name, self._votes(name, Dynamic())).value),
        )
        return EffectiveSetting(name, chosen.value, chosen.source, ours, brokers, contradicts)

    def _ours(self, name: str) -> str | None:
        """Our configured value; None when it is not set."""
        given = self._config.given.get(name)
        if given is not None or name not in OBEYED:
            return given
        own = self._own_value(name)
        return None if own == _text(getattr(_DEFAULTS, PROPERTIES[name].field)) else own

    def _own_value(self, name: str) -> str:
        given = self._config.given.get(name)
        if given is not None or name not in OBEYED:
            return given or ""
        return _text(getattr(self._config, PROPERTIES[name].field))

    def _levels(self) -> BrokerConfigs:
        """Values that apply where a topic has no config of its own."""
        static: dict[str, str] = {}
        defaults: dict[str, str | None] = {}
        for name in (*OF_TOPICS, UNCLEAN, ALTER_CONFIG_POLICY):
            if self.keeps(name):
                own = self._own_value(name)
                if own:
                    static[name] = own
                continue
            votes = self._votes(name, Dynamic())
            if votes:
                chosen = settle(name, votes)
                if chosen.source == Source.BROKERS:
                    static[name] = chosen.value
            known = {
                broker: Vote(reported.defaults[name] or "", "")
                for broker, reported in self._reported.items()
                if name in reported.defaults
            }
            value = settle(name, known).value if known else ""
            if value:  # brokers list no synonym for a topic config whose broker setting has no default
                defaults[name] = value
        return BrokerConfigs({}, static, defaults, self.release)

    def _log_differences(self) -> None:
        """Log each difference between brokers once, when it appears or changes."""
        found = {setting.name: setting.of_brokers for setting in self.differing}
        for name, what in found.items():
            if self._differing.get(name) != what:
                setting = self._settings[name]
                log.warning(
                    "Brokers differ in %s: %s; %s counts (%s)", name, what, shown(setting.value), setting.source
                )
        self._differing = found


def obeyed_changes(before: Config, now: Config) -> list[tuple[str, str, str]]:
    """(name, value before, value now) of each setting that differs."""
    found = ((name, _text(before_value), _text(value)) for name, before_value, value in _values(before, now))
    return [change for change in found if change[1] != change[2]]


def _values(before: Config, now: Config) -> Iterable[tuple[str, Any, Any]]:
    for name in OBEYED:
        field = PROPERTIES[name].field
        yield name, getattr(before, field), getattr(now, field)


def _usable(name: str, value: str) -> bool:
    if name in OBEYED:
        try:
            parsed(name, value)
        except (ValueError, KeyError):
            return False
    return True


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
