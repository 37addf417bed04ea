"""The rules of the guard by themselves, and what operators read about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.principals import SslPrincipalMapper
from aiocontroller.config import Config, Secret
from aiocontroller.controller import controller_eligibility
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.controller_eligibility import (
    BrokerAnswer,
    BrokerAnswers,
    ClusterFacts,
    ReasonKind,
    ThisController,
    ineligibility_reasons,
    reasons_not_to_depose,
)
from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.metrics import Metrics
from aiocontroller.security import ACL_AUTHORIZERS, Credentials, ListenerSecurity, authorizer_of
from aiocontroller.wire.apis import VersionRange
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import ControllerZNode
from tests.unit.authorizer.test_principals import CN, ORGANIZATION, attribute, certificate, name

ROOT = Path(__file__).parents[3]


def templates() -> Iterator[tuple[str, list[str]]]:
    """(kind, the constant parts) of each reason in the source."""
    source = Path(controller_eligibility.__file__).read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
            kind, text = node.args
            assert isinstance(kind, ast.Attribute)
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            yield kind.attr, [str(p.value) for p in parts if isinstance(p, ast.Constant)]


def test_every_reason_is_in_the_operators_list() -> None:
    reported = " ".join((ROOT / "docs" / "operating.md").read_text().split())
    found = list(templates())
    assert len(found) > 12
    for kind, parts in found:
        for part in parts:
            # a pair of parentheses may hold what is filled in
            for piece in re.split(r"[()]", part):
                words = " ".join(piece.split())
                assert len(words) < 12 or words in reported, f"{kind}: {words!r} is not in docs/operating.md"


@pytest.mark.parametrize("kind", ReasonKind)
def test_every_kind_is_given_as_a_reason(kind: ReasonKind) -> None:
    assert kind.name in {kind for kind, _ in templates()}


# -- principals --------------------------------------------------------------------------------------------------------

RULES = "RULE:^CN=(.*?),.*$/$1/,DEFAULT"
BROKER = certificate(name([attribute(ORGANIZATION, "us")], [attribute(CN, "broker")]))
SSL = Endpoint("SSL", "us", 1, "SSL")


def reasons(
    super_users: str,
    *,
    rules: str = "DEFAULT",
    reported: str = "DEFAULT",
    how: ListenerSecurity | None = None,
    **more: str,
) -> list[str]:
    """With one broker that shows its certificate, and whose mapping rules are ``reported``."""
    config = msgspec.structs.replace(
        Config(), authorizer_class_name=ACL_AUTHORIZERS[0], super_users=tuple(super_users.split(";"))
    )
    how = how or ListenerSecurity(principals=SslPrincipalMapper(rules))
    security: Any = SimpleNamespace(server=lambda _: how, client=lambda _: how)
    authorizer = authorizer_of(config)
    assert isinstance(authorizer, AclAuthorizer)
    authorizer.replace({})
    broker = Broker(1, 7, (msgspec.structs.replace(SSL, host="b1"),))
    settings = {"authorizer.class.name": ACL_AUTHORIZERS[0], "ssl.principal.mapping.rules": reported, **more}
    answer = BrokerAnswer(1, 7, VersionRange(0, 7), settings, ReportedSettings(), BROKER, "10.0.0.1")
    us = ThisController(1_000_001, config, [SSL], security, authorizer, ClusterSettings(config, Metrics()))
    return [reason.text for reason in ineligibility_reasons(us, ClusterFacts([broker]), BrokerAnswers({1: answer}, {}))]


def test_brokers_principal_must_be_allowed_what_brokers_do() -> None:
    assert reasons("User:CN=broker,O=us") == []
    (reason,) = reasons("User:broker")
    assert reason.startswith("broker 1 authenticates as User:CN=broker,O=us, who lacks ClusterAction here")


def test_mapping_rules_are_the_brokers() -> None:
    """Finding 9: its super user is ``User:broker``, and here it would be its whole distinguished name."""
    assert reasons("User:broker", rules=RULES, reported=RULES) == []
    different, refused = reasons("User:broker", reported=RULES)
    assert different == (
        f"brokers have ssl.principal.mapping.rules {RULES}, and ours, for listener SSL, are DEFAULT: set them to theirs"
    )
    assert "User:CN=broker,O=us" in refused
    of_listener = {"listener.name.ssl.ssl.principal.mapping.rules": RULES}
    assert reasons("User:broker", rules=RULES, **of_listener) == []


def test_subject_without_a_rule_has_no_principal() -> None:
    rules = "RULE:^CN=admin,.*$/admin/"
    (reason,) = reasons("User:admin", rules=rules, reported=rules)
    assert reason.startswith("broker 1 would have no principal here: no rule of ssl.principal.mapping.rules matches")


def test_builder_of_principals_that_runs_in_brokers_only_is_refused() -> None:
    (reason,) = reasons("User:CN=broker,O=us", **{"principal.builder.class": "org.example.Builder"})
    assert "principal.builder.class org.example.Builder" in reason


def test_brokers_share_our_sasl_user_and_are_anonymous_without_a_login() -> None:
    sasl = ListenerSecurity(("PLAIN",), credentials=Credentials("PLAIN", "kafka", Secret("secret")))
    assert reasons("User:kafka", how=sasl) == []
    assert "broker 1 authenticates as User:kafka, who" in reasons("User:admin", how=sasl)[0]
    nothing = ListenerSecurity()
    assert reasons("User:ANONYMOUS", how=nothing) == []
    assert "broker 1 authenticates as User:ANONYMOUS, who" in reasons("User:admin", how=nothing)[0]


def test_the_only_broker_is_not_deposed_if_it_cannot_be_reached() -> None:
    alone = ClusterFacts([Broker(1, 7, (SSL,))])
    (reason,) = reasons_not_to_depose(alone, BrokerAnswers({}, {1: "connection refused"}))
    assert reason.text == "no broker can be reached: broker 1: connection refused"
    answer = BrokerAnswer(1, 7, VersionRange(0, 7), {}, ReportedSettings(), None, "10.0.0.1")
    assert reasons_not_to_depose(alone, BrokerAnswers({1: answer}, {})) == []
    assert reasons_not_to_depose(ClusterFacts(), BrokerAnswers({}, {})) == []


def test_the_id_of_a_broker_whose_registration_is_damaged_is_taken() -> None:
    config = Config()
    us = ThisController(3, config, [], cast(Any, None), authorizer_of(config), ClusterSettings(config, Metrics()))
    damaged = ClusterFacts(bad=[BadZNode("/brokers/ids/3", "{", "JSON")])
    assert [reason.kind for reason in controller_eligibility._id_of_a_broker(us, damaged, BrokerAnswers({}, {}))] == [
        ReasonKind.ID
    ]
    other = ClusterFacts(bad=[BadZNode("/brokers/ids/4", "{", "JSON")])
    assert list(controller_eligibility._id_of_a_broker(us, other, BrokerAnswers({}, {}))) == []


def test_listeners_that_are_not_known_yet_are_no_reason() -> None:
    config = Config()
    us = ThisController(7, config, [], cast(Any, None), authorizer_of(config), ClusterSettings(config, Metrics()))
    cluster = ClusterFacts([Broker(1, 7, (Endpoint("PLAINTEXT", "b", 1),))])
    assert list(controller_eligibility._registered_listeners(us, cluster, BrokerAnswers({}, {}))) == []


@pytest.mark.parametrize("epoch, migrates", [(-1, False), (0, False), (1, True)])
def test_only_a_kraft_controllers_epoch_is_a_migration(epoch: int, migrates: bool) -> None:
    config = Config()
    us = ThisController(7, config, [], cast(Any, None), authorizer_of(config), ClusterSettings(config, Metrics()))
    holder = ControllerZNode(1, 0, 0, 0, kraft_controller_epoch=epoch)
    found = list(controller_eligibility._in_migration(us, ClusterFacts(holder=holder), BrokerAnswers({}, {})))
    assert bool(found) is migrates


def migration_reasons(migration: MigrationZNode | BadZNode | None) -> list[str]:
    config = Config()
    us = ThisController(7, config, [], cast(Any, None), authorizer_of(config), ClusterSettings(config, Metrics()))
    found = controller_eligibility._in_migration(us, ClusterFacts(migration=migration), BrokerAnswers({}, {}))
    return [reason.text for reason in found]


def test_a_migration_that_nobody_has_claimed_is_no_reason() -> None:
    assert migration_reasons(None) == []
    assert migration_reasons(MigrationZNode(-1, -1, -1, -1)) == []
    (reason,) = migration_reasons(MigrationZNode(3000, 2, 1, 1))
    assert "names KRaft controller 3000" in reason
    (reason,) = migration_reasons(BadZNode("/migration", "{", "JSON"))
    assert reason == "/migration: found {, expected JSON: a KRaft controller may be migrating the cluster"
