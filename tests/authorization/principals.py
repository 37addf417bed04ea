"""The principals, by which ways they come, and which ACLs there are for them.

The names of topics, groups and transactional ids say what their ACLs make of them; ``tests.authorization.requests``
names all of them in each request.
"""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.authorizer.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)

PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL = LISTENERS = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
"""SSL asks for a certificate, MTLS insists on one and is the one between brokers."""
PROTOCOLS = {"MTLS": "SSL"}
SCRAM, PLAIN, CERTIFICATE, NOTHING = "SCRAM-SHA-256", "PLAIN", "certificate", "nothing"

USERS = ("super", "allow", "deny", "prefix", "part", "none", "broker")
"""``part`` has a few rights on the cluster and no more; ``broker`` is the brokers' principal, and ours."""
STRANGER = "stranger"
"""Its certificate fits no rule of ``ssl.principal.mapping.rules`` but DEFAULT."""
ANONYMOUS = "anonymous"
SUBJECTS = {user: f"/O=Oracle/OU=clients/CN={user}" for user in USERS} | {
    STRANGER: "/O=Oracle/OU=others/CN=stranger",
    "broker": "/O=Oracle/OU=brokers/CN=BROKER",
}
MAPPING_RULES = r"RULE:^CN=([a-z]+),OU=clients,.*$/$1/,RULE:^CN=([A-Z]+),OU=brokers,.*$/$1/L,DEFAULT"
PRINCIPALS = {user: f"User:{user}" for user in USERS} | {
    STRANGER: "User:CN=stranger,OU=others,O=Oracle",
    ANONYMOUS: "User:ANONYMOUS",
}
SUPER_USERS = "User:super"


def password(user: str) -> str:
    return f"{user}-secret"


class Way(NamedTuple):
    """How a client comes."""

    who: str
    listener: str
    proof: str

    def __str__(self) -> str:
        return f"{self.who} by {self.listener}" + (f"/{self.proof}" if self.listener.startswith("SASL") else "")


WAYS: tuple[Way, ...] = (
    Way(ANONYMOUS, PLAINTEXT, NOTHING),
    Way(ANONYMOUS, SSL, NOTHING),
    *(Way(who, listener, CERTIFICATE) for listener in (SSL, MTLS) for who in (*USERS, STRANGER)),
    *(Way(who, at, proof) for at in (SASL_PLAINTEXT, SASL_SSL) for proof in (SCRAM, PLAIN) for who in USERS),
)
SHORT_WAYS = tuple(
    way
    for way in WAYS
    if way.who in ("super", "allow", "deny", "none", "broker", ANONYMOUS)
    and (way.listener == SSL or (way.listener == SASL_PLAINTEXT and way.proof == SCRAM))
)
SUPER_AT_BROKERS = Way("super", SASL_PLAINTEXT, PLAIN)
"""The user that sets the stage; PLAIN needs no user in ZooKeeper."""

TOPICS = (
    "orders",  # allow: All; deny: Deny All
    "secret",  # an unknown user
    "open",  # User:*: Read; deny: Deny Describe
    "elsewhere",  # allow: All, but from another host
    "here",  # allow and stranger: All from this host
    "readable",  # allow: Read, which implies Describe
    "alterable",  # allow: Alter, which implies Describe
    "described",  # allow: Describe
    "configured",  # allow: AlterConfigs, which implies DescribeConfigs
    "half-denied",  # allow: All, and Deny Write
    "hidden-again",  # allow: All, and Deny Describe
    "public",  # anonymous: Read and Write
    "team-a",  # prefix: All on team-
    "team-secret",  # prefix: Deny All
)
MISSING_TOPICS = ("nowhere", "orders-missing", "team-missing")
"""ACLs for the last two; the topics do not exist."""
GROUPS = ("app", "readers", "described-group", "team-group", "other-group")
TRANSACTIONAL_IDS = ("tx", "tx-described", "team-tx", "other-tx")
FRESH = ("made-", "team-", "unowned-")
"""Beginnings of names of what a request makes or destroys: allow, prefix and no other user may do everything to it."""

_ALLOW, _DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID, _USER, _TOKEN = ResourceType.TRANSACTIONAL_ID, ResourceType.USER, ResourceType.DELEGATION_TOKEN


class Acl(NamedTuple):
    who: str
    type: ResourceType
    name: str
    operation: AclOperation
    permission: AclPermissionType = _ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"

    @property
    def fields(self) -> dict[str, object]:
        """Of CreateAcls."""
        return {
            "resource_type": self.type,
            "resource_name": self.name,
            "resource_pattern_type": self.pattern,
            "principal": PRINCIPALS.get(self.who, self.who),
            "host": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }


_Op, _PREFIXED = AclOperation, PatternType.PREFIXED
_CLUSTER_RIGHTS = {
    "allow": (
        _Op.CREATE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
    ),
    "deny": (_Op.ALL,),
    "part": (_Op.CREATE, _Op.ALTER_CONFIGS),
    "broker": (_Op.CLUSTER_ACTION, _Op.DESCRIBE_CONFIGS),
}
ACLS: tuple[Acl, ...] = (
    *(Acl(who, _CLUSTER, CLUSTER_NAME, right) for who, rights in _CLUSTER_RIGHTS.items() for right in rights),
    *(Acl("deny", _CLUSTER, CLUSTER_NAME, right, _DENY) for right in (_Op.ALTER, _Op.CLUSTER_ACTION)),
    Acl("allow", _TOPIC, "orders", _Op.ALL),
    Acl("allow", _TOPIC, "orders-missing", _Op.ALL),
    Acl("allow", _TOPIC, "elsewhere", _Op.ALL, host="10.1.2.3"),
    Acl("allow", _TOPIC, "here", _Op.ALL, host="127.0.0.1"),
    Acl(STRANGER, _TOPIC, "here", _Op.ALL, host="127.0.0.1"),
    Acl("allow", _TOPIC, "readable", _Op.READ),
    Acl("allow", _TOPIC, "alterable", _Op.ALTER),
    Acl("allow", _TOPIC, "described", _Op.DESCRIBE),
    Acl("allow", _TOPIC, "configured", _Op.ALTER_CONFIGS),
    Acl("allow", _TOPIC, "half-denied", _Op.ALL),
    Acl("allow", _TOPIC, "half-denied", _Op.WRITE, _DENY),
    Acl("allow", _TOPIC, "hidden-again", _Op.ALL),
    Acl("allow", _TOPIC, "hidden-again", _Op.DESCRIBE, _DENY),
    Acl("allow", _TOPIC, "made-", _Op.ALL, pattern=_PREFIXED),
    Acl("User:*", _TOPIC, "open", _Op.READ),
    Acl("deny", _TOPIC, "*", _Op.ALL),
    Acl("deny", _TOPIC, "orders", _Op.ALL, _DENY),
    Acl("deny", _TOPIC, "open", _Op.DESCRIBE, _DENY),
    Acl("deny", _TOPIC, "team-", _Op.READ, _DENY, _PREFIXED),
    Acl(ANONYMOUS, _TOPIC, "public", _Op.READ),
    Acl(ANONYMOUS, _TOPIC, "public", _Op.WRITE),
    Acl("prefix", _TOPIC, "team-", _Op.ALL, pattern=_PREFIXED),
    Acl("prefix", _TOPIC, "team-secret", _Op.ALL, _DENY),
    Acl("allow", _GROUP, "app", _Op.ALL),
    Acl("allow", _GROUP, "readers", _Op.READ),
    Acl("allow", _GROUP, "described-group", _Op.DESCRIBE),
    Acl("prefix", _GROUP, "team-", _Op.ALL, pattern=_PREFIXED),
    Acl("deny", _GROUP, "*", _Op.ALL),
    Acl("deny", _GROUP, "app", _Op.READ, _DENY),
    Acl("allow", _TRANSACTIONAL_ID, "tx", _Op.ALL),
    Acl("allow", _TRANSACTIONAL_ID, "tx-described", _Op.DESCRIBE),
    Acl("prefix", _TRANSACTIONAL_ID, "team-", _Op.ALL, pattern=_PREFIXED),
    Acl("deny", _TRANSACTIONAL_ID, "*", _Op.ALL),
    Acl("deny", _TRANSACTIONAL_ID, "tx", _Op.WRITE, _DENY),
    Acl("allow", _USER, "User:prefix", _Op.CREATE_TOKENS),
    Acl("allow", _USER, "User:prefix", _Op.DESCRIBE_TOKENS),
    Acl("deny", _TOKEN, "*", _Op.DESCRIBE),
)
