"""The authorizer against a simple model of Kafka's, and the cases that people rely on, by hand."""

from __future__ import annotations

import time
from itertools import product
from random import Random

import pytest

from aiocontroller.authorizer.acl_authorizer import IMPLIED_BY, AclAuthorizer
from aiocontroller.authorizer.acls import (
    AccessControlEntry,
    AclBindingFilter,
    ResourcePattern,
    named,
    pascal_case,
)
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType

Op, Allow, Deny = AclOperation, AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
Acls = dict[ResourcePattern, list[AccessControlEntry]]


def entry(
    operation: AclOperation, principal: str = "User:alice", permission: AclPermissionType = Allow, host: str = "*"
) -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, permission)


def topic(name: str, pattern: PatternType = LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, pattern)


def authorizer(acls: Acls, *super_users: str, open_without_acls: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(super_users, allow_everyone_if_no_acl_found=open_without_acls)
    made.replace(acls)
    return made


def may(it: AclAuthorizer, operation: AclOperation, name: str, who: str = "User:alice", host: str = "1.2.3.4") -> bool:
    return it.authorize(who, host, operation, TOPIC, name)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_nothing_is_allowed_before_the_acls_are_known_but_to_super_users() -> None:
    it = AclAuthorizer(["User:root"], allow_everyone_if_no_acl_found=True)
    assert not may(it, Op.READ, "t")
    assert not it.authorize_by_resource_type("User:alice", "h", Op.READ, TOPIC)
    assert may(it, Op.READ, "t", "User:root")
    assert it.authorize_by_resource_type("User:root", "h", Op.READ, TOPIC)
    it.replace({})
    assert may(it, Op.READ, "t")


@pytest.mark.parametrize(
    "pattern,matched,others",
    [
        (topic("app"), ["app"], ["app-1", "ap", "*"]),
        (topic("app", PREFIXED), ["app", "app-1"], ["ap", "*", "xapp"]),
        (topic("*"), ["app", "*", ""], []),
        (topic("*", PREFIXED), ["*", "*x"], ["app"]),
    ],
)
def test_patterns(pattern: ResourcePattern, matched: list[str], others: list[str]) -> None:
    it = authorizer({pattern: [entry(Op.READ)]})
    assert [may(it, Op.READ, name) for name in matched + others] == [True] * len(matched) + [False] * len(others)
    assert not it.authorize("User:alice", "h", Op.READ, GROUP, matched[0])


def test_deny_comes_before_allow_wherever_it_stands() -> None:
    it = authorizer({topic("*"): [entry(Op.ALL)], topic("app", PREFIXED): [entry(Op.READ, permission=Deny)]})
    assert not may(it, Op.READ, "app-1")
    assert may(it, Op.WRITE, "app-1")
    assert may(it, Op.READ, "other")
    assert may(it, Op.DESCRIBE, "app-1")  # a denial implies nothing


@pytest.mark.parametrize("asked", list(Op)[3:])
def test_implied_operations(asked: AclOperation) -> None:
    granting = [op for op in list(Op)[2:] if may(authorizer({topic("t"): [entry(op)]}), asked, "t")]
    assert granting == sorted({Op.ALL, asked, *IMPLIED_BY.get(asked, ())})


def test_hosts_and_principals() -> None:
    it = authorizer({topic("t"): [entry(Op.READ, host="1.2.3.4"), entry(Op.WRITE, "User:*")]})
    assert may(it, Op.READ, "t")
    assert not may(it, Op.READ, "t", host="1.2.3.5")
    assert not may(it, Op.READ, "t", "User:bob")
    assert may(it, Op.WRITE, "t", "User:ANONYMOUS", "9.9.9.9")


def test_without_any_acl_the_property_decides() -> None:
    it = authorizer({topic("t"): [entry(Op.READ, "User:bob")]}, open_without_acls=True)
    assert may(it, Op.READ, "u")
    assert not may(it, Op.READ, "t")  # there is one, for another user
    assert not may(authorizer({}), Op.READ, "u")


def test_super_users_are_not_asked_about_acls() -> None:
    it = authorizer({topic("*"): [entry(Op.ALL, "User:*", Deny)]}, "User:root", "User:CN=a,O=b")
    assert may(it, Op.READ, "t", "User:root")
    assert may(it, Op.READ, "t", "User:CN=a,O=b")
    assert not may(it, Op.READ, "t", "User:CN=a")


def test_what_cannot_be_read_denies_what_it_would_have_applied_to() -> None:
    it = AclAuthorizer(["User:root"], allow_everyone_if_no_acl_found=True)
    it.replace({topic("t"): [entry(Op.READ)]}, {topic("app", PREFIXED): "no JSON"})
    assert [may(it, Op.READ, name) for name in ("t", "u", "app", "app-1")] == [True, True, False, False]
    assert may(it, Op.READ, "app", "User:root")
    assert it.patterns() == [topic("t")]
    assert it.entries(topic("app", PREFIXED)) == []
    assert list(it.acls(AclBindingFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Op.ANY, _ANY))) == [
        (topic("t"), entry(Op.READ))
    ]
    it.update(topic("app", PREFIXED), [entry(Op.READ)])
    assert not it.damaged
    assert may(it, Op.READ, "app-1")
    it.damage(topic("*"), "no JSON")
    assert not it.authorize_by_resource_type("User:alice", "h", Op.READ, TOPIC)


_ANY = AclPermissionType.ANY


def test_reading_again_forgets_what_is_gone() -> None:
    it = authorizer({topic("t"): [entry(Op.READ)], topic("p", PREFIXED): [entry(Op.READ)]})
    it.replace({topic("u"): [entry(Op.WRITE)]})
    assert [may(it, Op.READ, "t"), may(it, Op.READ, "p1"), may(it, Op.WRITE, "u")] == [False, False, True]
    assert not it.authorize_by_resource_type("User:alice", "h", Op.READ, TOPIC)


# -- which bindings a filter means -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name,pattern,expected",
    [
        (None, PatternType.ANY, ["*", "app", "app-1", "^app", "^app-"]),
        (None, LITERAL, ["*", "app", "app-1"]),
        ("app-1", LITERAL, ["app-1"]),
        ("app-1", PatternType.MATCH, ["*", "app-1", "^app", "^app-"]),
        ("app", PatternType.ANY, ["app", "^app"]),
        ("app", PREFIXED, ["^app"]),
        ("*", PatternType.MATCH, ["*"]),
    ],
)
def test_pattern_filters(name: str | None, pattern: PatternType, expected: list[str]) -> None:
    patterns = [topic("*"), topic("app"), topic("app-1"), topic("app", PREFIXED), topic("app-", PREFIXED)]
    it = authorizer({each: [entry(Op.READ)] for each in patterns})
    found = it.acls(AclBindingFilter(TOPIC, name, pattern, None, None, Op.ANY, _ANY))
    assert [("^" if b.pattern.pattern == PREFIXED else "") + b.pattern.name for b in found] == expected


def test_entry_filters() -> None:
    entries = [entry(Op.READ), entry(Op.WRITE, "User:bob"), entry(Op.READ, permission=Deny, host="h")]
    it = authorizer({topic("t"): entries})

    def found(*wanted: object) -> list[int]:
        return [
            entries.index(b.entry) for b in it.acls(AclBindingFilter(ResourceType.ANY, None, PatternType.ANY, *wanted))
        ]  # type: ignore[arg-type]

    assert found(None, None, Op.ANY, _ANY) == [0, 1, 2]
    assert found("User:alice", None, Op.ANY, _ANY) == [0, 2]
    assert found(None, "h", Op.ANY, _ANY) == [2]
    assert found(None, None, Op.READ, Allow) == [0]
    assert found(None, None, Op.UNKNOWN, _ANY) == []


def test_names_are_kafkas() -> None:
    assert [pascal_case(each) for each in (ResourceType.TRANSACTIONAL_ID, Op.IDEMPOTENT_WRITE, Deny)] == [
        "TransactionalId",
        "IdempotentWrite",
        "Deny",
    ]
    assert named(AclOperation, "clusteraction") is Op.CLUSTER_ACTION
    assert named(AclOperation, "Any") is Op.ANY
    assert named(AclOperation, "Sing") is Op.UNKNOWN


# -- against a model ---------------------------------------------------------------------------------------------------

PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:g"]
HOSTS = ["1.2.3.4", "1.2.3.5", "*"]
NAMES = ["*", "a", "ab", "abc", "abd", "b", "ba"]
OPERATIONS = [Op.ALL, Op.READ, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS, Op.UNKNOWN]


def random_acls(random: Random) -> Acls:
    acls: Acls = {}
    for _ in range(random.randrange(8)):
        pattern = ResourcePattern(
            random.choice([TOPIC, GROUP]), random.choice(NAMES), random.choice([LITERAL, PREFIXED])
        )
        permission = random.choice([Allow, Allow, Deny])
        acls.setdefault(pattern, []).append(
            entry(random.choice(OPERATIONS), random.choice(PRINCIPALS), permission, random.choice(HOSTS))
        )
    return acls


def model(acls: Acls, open_without_acls: bool, who: str, host: str, operation: AclOperation, name: str) -> bool:
    """Every ACL looked at, one after the other."""
    matching = [
        each
        for (resource, pattern_name, kind), entries in acls.items()
        for each in entries
        if resource == TOPIC and (name.startswith(pattern_name) if kind == PREFIXED else pattern_name in (name, "*"))
    ]
    if not matching:
        return open_without_acls

    def says(permission: AclPermissionType, operations: tuple[AclOperation, ...]) -> bool:
        return any(
            e.permission == permission
            and e.operation in operations
            and e.principal in (who, "User:*")
            and e.host in (host, "*")
            for e in matching
        )

    return not says(Deny, (operation, Op.ALL)) and says(Allow, (operation, Op.ALL, *IMPLIED_BY.get(operation, ())))


@pytest.mark.parametrize("seed", range(20))
def test_random_acls(seed: int) -> None:
    random = Random(seed)
    it = AclAuthorizer()
    for _ in range(20):
        acls, open_without_acls = random_acls(random), random.random() < 0.3
        it.allow_everyone_if_no_acl_found = open_without_acls
        it.replace(acls)  # over those of before: nothing of them may be left
        for who, host, operation, name in product(PRINCIPALS[:2], HOSTS[:2], OPERATIONS[1:5], NAMES[1:]):
            expected = model(acls, open_without_acls, who, host, operation, name)
            assert it.authorize(who, host, operation, TOPIC, name) == expected, (acls, who, host, operation, name)


def test_any_topic_means_that_there_is_a_name_that_is_allowed() -> None:
    """Where the property is off and operations imply nothing, an ALLOW counts that no DENY covers whole."""
    random = Random(9)
    for _ in range(400):
        acls = random_acls(random)
        names = [p.name + tail for p in acls for tail in ("", "zz") if p.name + tail != "*"] + ["zz"]
        expected = any(model(acls, False, "User:alice", "1.2.3.4", Op.READ, name) for name in names)
        found = authorizer(acls).authorize_by_resource_type("User:alice", "1.2.3.4", Op.READ, TOPIC)
        assert found == expected, acls


def test_thousands_of_acls_cost_one_question_no_more_than_a_few() -> None:
    few: Acls = {topic("*"): [entry(Op.READ, "User:v", Deny)]}
    few |= {topic(f"prefix-{'x' * n}", PREFIXED): [entry(Op.READ, "User:u")] for n in range(4)}
    many: Acls = {}
    for n in range(5000):
        many[topic(f"topic-{n}")] = [entry(Op.READ, f"User:u{n}")]
        many[topic(f"prefix-{n}", PREFIXED)] = [entry(Op.WRITE, f"User:u{n}")]
    many[topic("*")] = [entry(Op.READ, f"User:v{n}", Deny) for n in range(5000)]

    def seconds(it: AclAuthorizer) -> float:
        def once() -> float:
            begun_s = time.perf_counter()
            for n in range(500):
                may(it, Op.DESCRIBE, f"prefix-{n}-x")
            return time.perf_counter() - begun_s

        return min(once() for _ in range(5))

    assert seconds(authorizer(many)) < 20 * seconds(authorizer(few))
