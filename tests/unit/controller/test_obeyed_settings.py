"""Which of several values counts, and where ours stands against the brokers'.  No broker is asked here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.config import Config, load_config
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.obeyed_settings import (
    ALTER_CONFIG_POLICY,
    CREATE_TOPIC_POLICY,
    HIDDEN,
    MIN_ISR,
    NAMES,
    OBEYED,
    OF_TOPICS,
    PROTOCOL,
    SESSION_TIMEOUT,
    UNCLEAN,
    ReportedSettings,
    Source,
    comparable,
    dynamic_of,
    positive_int,
    reported_by,
    with_last_iv,
)
from aiocontroller.core.errors import BadInputError
from aiocontroller.kafka_property_names import BROKER_PROPERTIES, TOPIC_DEFAULTS
from aiocontroller.metrics import Metrics
from aiocontroller.wire.config_messages import DescribedSetting, DescribedSynonym
from aiocontroller.zookeeper.config_def import NEWEST_RELEASE
from aiocontroller.zookeeper.topic_configs import BROKER_SYNONYMS

DELETE = "delete.topic.enable"
ROOT = Path(__file__).parents[3]


def cluster(*brokers: dict[str, str], dynamic: dict[str, Any] | None = None, **ours: str) -> ClusterSettings:
    """Brokers from 1 on by what stands in their files; ours by Kafka's names with underscores for dots."""
    config, _ = load_config(overrides={name.replace("_", "."): value for name, value in ours.items()})
    made = ClusterSettings(config, Metrics())
    reported = {
        number: ReportedSettings(settings, dict.fromkeys(settings, "")) for number, settings in enumerate(brokers, 1)
    }
    made.heard(reported, no_brokers=not brokers)
    made.read(dynamic_of(dynamic or {}))
    return made


def test_each_is_one_of_kafkas_settings() -> None:
    assert set(NAMES) <= BROKER_PROPERTIES
    assert frozenset(BROKER_SYNONYMS) == TOPIC_DEFAULTS
    assert not set(OF_TOPICS) & set(OBEYED)


@pytest.mark.parametrize("name", [name for name, each in OBEYED.items() if each.adopted])
def test_the_clusters_value_is_adopted_where_ours_is_unset(name: str) -> None:
    default = getattr(Config(), name.replace(".", "_"))
    other = "2.8-IV1" if name == PROTOCOL else "7"
    if isinstance(default, bool | None):
        other = "org.example.Class" if default is None else str(not default).lower()
    found = cluster({name: other}, {name: other})
    assert (found[name].value, found[name].source, found[name].contradicts) == (other, Source.BROKERS, False)
    assert comparable(name, str(getattr(found.policy, name.replace(".", "_")))) == comparable(name, other)
    assert getattr(found.policy, name.replace(".", "_")) != default


@pytest.mark.parametrize("ours", ["true", "false"])
def test_what_needs_credentials_has_to_be_set_here(ours: str) -> None:
    """Else what we create could be written by all, where brokers see to it that it cannot."""
    proof = {"aiocontroller_zookeeper_sasl_username": "u", "aiocontroller_zookeeper_sasl_password": "p"}
    found = cluster({"zookeeper.set.acl": "true"}, zookeeper_set_acl=ours, **proof)
    assert [s.name for s in found.contradicting] == ([] if ours == "true" else ["zookeeper.set.acl"])
    assert [s.name for s in cluster({"zookeeper.set.acl": "true"}).contradicting] == ["zookeeper.set.acl"]
    assert cluster({"zookeeper.set.acl": "true"}, aiocontroller_keep_ours="all").contradicting == []


def test_nothing_is_known_before_the_first_look() -> None:
    made = ClusterSettings(Config(), Metrics())
    assert not made.known
    made.heard({}, no_brokers=True)
    assert made.known


def test_a_setting_that_no_broker_tells_is_ours_or_the_default() -> None:
    found = cluster({}, {}, delete_topic_enable="false")
    assert (found[DELETE].value, found[DELETE].source) == ("false", Source.OURS)
    assert (found[UNCLEAN].value, found[UNCLEAN].source) == ("false", Source.DEFAULT)
    assert not found.policy.delete_topic_enable
    assert found.contradicting == []


# -- ours against theirs -----------------------------------------------------------------------------------------------


def test_ours_that_says_otherwise_contradicts_and_does_not_count() -> None:
    found = cluster({DELETE: "false"}, delete_topic_enable="true")  # what the default is, and set all the same
    assert [setting.name for setting in found.contradicting] == [DELETE]
    assert not found.policy.delete_topic_enable
    assert (found[DELETE].of_brokers, found[DELETE].ours) == ("false", "true")


@pytest.mark.parametrize("keep", [DELETE, "all"])
def test_ours_counts_where_it_is_insisted_on(keep: str) -> None:
    found = cluster({DELETE: "false"}, aiocontroller_keep_ours=keep)
    assert found.policy.delete_topic_enable
    assert found[DELETE].source == Source.INSISTED
    assert found.contradicting == []
    later = cluster({DELETE: "false"}, delete_topic_enable="true")
    later.insist([keep])
    assert later.policy.delete_topic_enable
    assert later.contradicting == []


def test_only_what_is_obeyed_can_be_insisted_on() -> None:
    with pytest.raises(BadInputError, match=r"found 'log.dirs', expected a setting that a controller obeys, or all"):
        cluster().insist(["log.dirs"])


@pytest.mark.parametrize(
    "name, theirs, ours",
    [
        (PROTOCOL, "3.9-IV0", "3.9"),
        (PROTOCOL, "3.5", "3.5-IV2"),
        (DELETE, "true", "TRUE"),
        ("num.partitions", "4", " 4 "),
        ("log.retention.ms", "5", "5"),
    ],
)
def test_the_same_in_other_words_is_no_contradiction(name: str, theirs: str, ours: str) -> None:
    assert cluster({name: theirs}, **{name.replace(".", "_"): ours}).contradicting == []


def test_a_release_alone_stands_for_its_last_version() -> None:
    """As in Kafka's ``MetadataVersion``."""
    last = "2.2-IV1 2.3-IV1 2.4-IV1 2.5-IV0 2.6-IV0 2.7-IV2 2.8-IV1 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV3 3.4-IV0 3.5-IV2"
    for version in (*last.split(), "3.6-IV2", "3.7-IV4", "3.8-IV0", "3.9-IV0"):
        assert with_last_iv(version.partition("-")[0]) == version
        assert with_last_iv(version) == version


def test_ours_that_equals_the_brokers_files_goes_the_way_of_the_brokers_files() -> None:
    """A broker's own server.properties is given to us, and what it says was changed while brokers run."""
    dynamic = {"<default>": {UNCLEAN: "true"}}
    found = cluster({UNCLEAN: "false"}, dynamic=dynamic, unclean_leader_election_enable="false")
    assert found.contradicting == []
    assert (found[UNCLEAN].value, found[UNCLEAN].source) == ("true", Source.DYNAMIC_DEFAULT)
    assert found.policy.unclean_leader_election_enable
    found.read(dynamic_of({}))
    assert not found.policy.unclean_leader_election_enable


def test_a_setting_without_a_default_is_no_synonym_of_a_topics() -> None:
    """Brokers leave it out, and with it what stands behind it."""
    found = cluster({})
    schedule = "log.flush.scheduler.interval.ms"
    found.heard({1: ReportedSettings({}, {"log.flush.interval.ms": None, schedule: "9"})}, no_brokers=False)
    assert found.broker_configs({}).defaults == {schedule: "9"}
    assert found.broker_configs({}).synonyms("log.flush.interval.ms") == []


def test_topics_defaults_can_contradict_too() -> None:
    found = cluster({"log.retention.ms": "5"}, log_retention_ms="6")
    assert [setting.name for setting in found.contradicting] == ["log.retention.ms"]
    assert found.broker_configs({}).static == {"log.retention.ms": "5"}
    found.insist(["log.retention.ms"])
    assert found.broker_configs({"log.retention.ms": "7"}).effective(("log.retention.ms",)) == ("log.retention.ms", "6")


def test_value_that_cannot_be_obeyed_is_not_adopted_and_prevents_the_election() -> None:
    name = "leader.imbalance.check.interval.seconds"
    found = cluster({name: "0"})
    assert found[name].unusable
    assert found.contradicting == [found[name]]
    assert found.policy.leader_imbalance_check_interval_seconds == 300
    found.insist([name])
    assert found.contradicting == []


# -- brokers among each other ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, values, counts",
    [
        (DELETE, ["true", "true", "false"], "true"),
        (DELETE, ["true", "false"], "false"),
        (UNCLEAN, ["true", "false", "true", "false"], "false"),
        ("default.replication.factor", ["1", "3"], "3"),
        (PROTOCOL, ["3.9-IV0", "3.9-IV0", "2.6-IV0"], "2.6-IV0"),
        (CREATE_TOPIC_POLICY, ["", "org.example.Policy"], "org.example.Policy"),
        ("log.retention.ms", ["7", "5"], "7"),
    ],
)
def test_of_different_values_the_most_common_counts_then_what_does_least_harm(
    name: str, values: list[str], counts: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = cluster(*({name: value} for value in values))
    assert found[name].value == counts
    assert found.differing == [found[name]]
    (line,) = [r.getMessage() for r in caplog.records if name in r.getMessage()]
    assert line.startswith(f"Brokers differ in {name}: ")
    assert f"; {counts} counts" in line


def test_differences_are_counted() -> None:
    metrics = Metrics()
    made = ClusterSettings(load_config(overrides={"num.partitions": "9"})[0], metrics)
    made.heard(
        {1: ReportedSettings({DELETE: "true", "num.partitions": "1"}), 2: ReportedSettings({DELETE: "false"})},
        no_brokers=False,
    )
    found = metrics.snapshot()
    assert (found["aiocontroller_settings_differing"], found["aiocontroller_settings_contradicting"]) == (1, 1)


def test_what_was_set_for_one_broker_is_that_brokers_value() -> None:
    dynamic = {"<default>": {UNCLEAN: "true"}, "2": {UNCLEAN: "false"}, "3": {UNCLEAN: "nonsense"}}
    found = cluster({UNCLEAN: "false"}, {}, {}, dynamic=dynamic)
    assert found[UNCLEAN].brokers == {1: "true", 2: "false", 3: "true"}
    assert found[UNCLEAN].value == "true"
    assert found.reported(2, UNCLEAN) == "false"
    assert found.reported(9, UNCLEAN) is None


def test_no_text_that_a_broker_may_tell_breaks_anything() -> None:
    for name in NAMES:
        for value in ("", "x", "-1", "1e9", "9" * 40, "\0", "3.9-IVx", "tRuE"):
            found = cluster({name: value}, {name: "1"}, {name: "-"})
            assert found[name].brokers[1] == value


# -- what cannot be done here ------------------------------------------------------------------------------------------


def test_what_is_not_enforced_is_said() -> None:
    policies = {CREATE_TOPIC_POLICY: "org.example.Create", ALTER_CONFIG_POLICY: "org.example.Alter"}
    found = cluster({**policies, "delegation.token.secret.key": HIDDEN})
    assert found.not_enforced == [
        f"{CREATE_TOPIC_POLICY} org.example.Create: topics that are created here are not checked by it",
        f"{ALTER_CONFIG_POLICY} org.example.Alter: alterations that are asked for here are refused, so that clients "
        "ask a broker",
        "delegation.token.secret.key: it is not set here, so that delegation tokens are neither made nor renewed here",
    ]
    assert cluster({**dict.fromkeys(policies, "")}).not_enforced == []
    assert cluster({"delegation.token.secret.key": HIDDEN}, delegation_token_secret_key="k").not_enforced == []


def test_secrets_are_shown_as_set_without_their_values() -> None:
    secret = DescribedSetting(
        "delegation.token.secret.key", None, [DescribedSynonym("delegation.token.secret.key", None, 4)]
    )
    assert reported_by([secret]).static == {"delegation.token.secret.key": HIDDEN}
    unset = DescribedSetting("delegation.token.secret.key", None, [])
    assert reported_by([unset]) == ReportedSettings({}, {"delegation.token.secret.key": None})


def test_setting_that_a_release_does_not_know_is_not_obeyed() -> None:
    """Kafka 2.2 with ``controller.quota.window.num`` in its file: it tells it as if it were a secret."""
    name = "controller.quota.window.num"
    reported = reported_by([DescribedSetting(name, None, [DescribedSynonym(name, None, 4)])])
    assert reported == ReportedSettings()
    made = cluster()
    made.heard({1: reported}, no_brokers=False)
    assert made.contradicting == []
    assert made.policy.controller_quota_window_num == 11


@pytest.mark.parametrize(
    "protocols, release",
    [
        ([], NEWEST_RELEASE),
        ([None], NEWEST_RELEASE),
        (["2.8-IV1"], (2, 8)),
        (["3.9-IV0", "2.2-IV1", None], (2, 2)),
        (["3.10-IV0", "3.9-IV0"], (3, 9)),
    ],
)
def test_release_is_that_of_the_oldest_broker(protocols: list[str | None], release: tuple[int, int]) -> None:
    """Whatever the protocol is set to."""
    made = cluster()
    reported = {n: ReportedSettings({PROTOCOL: "2.2"}, {PROTOCOL: text}) for n, text in enumerate(protocols)}
    made.heard(reported, no_brokers=not reported)
    assert made.release == release
    assert made.broker_configs({}).release == release
    assert made.known_broker_configs == made.broker_configs({})


@pytest.mark.parametrize(
    "text, value",
    [
        (" 2 ", 2),
        ("0002", 2),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("9" * 5000, None),
        ("0", None),
        ("-1", None),
        ("two", None),
        ("", None),
    ],
)
def test_numbers_that_brokers_cannot_read_are_none(text: str, value: int | None) -> None:
    """Any client of ZooKeeper may have written them."""
    assert positive_int(text) == value


def test_nor_do_they_count_where_a_broker_tells_them() -> None:
    made = cluster()
    absurd = {MIN_ISR: "9" * 5000, SESSION_TIMEOUT: "9" * 5000}
    made.heard({1: ReportedSettings(absurd), 2: ReportedSettings({MIN_ISR: "3"})}, no_brokers=False)
    assert made.lowest_min_isr == 3
    assert made.session_s(1) is None


def test_levels_are_kept_apart() -> None:
    """What was set while the broker runs stands in ZooKeeper, and is read there."""
    synonyms = [
        DescribedSynonym("log.roll.ms", "1", 2),
        DescribedSynonym("log.roll.ms", "2", 3),
        DescribedSynonym("log.roll.hours", "3", 4),
        DescribedSynonym("log.roll.hours", "168", 5),
    ]
    reported = reported_by([DescribedSetting("log.roll.ms", "1", synonyms)])
    assert reported == ReportedSettings({"log.roll.hours": "3"}, {"log.roll.ms": None, "log.roll.hours": "168"})


def test_every_setting_stands_in_the_operators_page() -> None:
    reported = (ROOT / "docs" / "operating.md").read_text()
    missing = [name for name in OBEYED if not re.search(rf"`{re.escape(name)}`", reported)]
    assert missing == []
