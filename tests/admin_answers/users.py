"""SCRAM credentials, client quotas, ACLs, delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.wire.apis import ApiKey
from tests.acl_requests import acl, acl_filter
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import one, scenario
from tests.admin_answers.two_clusters import ALICE, BOB

# -- SCRAM -------------------------------------------------------------------------------------------------------------

DESCRIBE_SCRAM, ALTER_SCRAM = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS
SHA_256, SHA_512 = 1, 2


def user(p: Player, name: str = "u") -> str:
    return p.topic(name)


def put(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> Fields:
    password = b"x" * (32 if mechanism == SHA_256 else 64)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": password,
    }


def gone(name: str, mechanism: int = SHA_256) -> Fields:
    return {"name": name, "mechanism": mechanism}


def scram(*upsertions: Fields, deletions: Sequence[Fields] = ()) -> Fields:
    return {"upsertions": list(upsertions), "deletions": list(deletions)}


def users(*names: str) -> Fields:
    return {"users": [{"name": name} for name in names]}


@scenario(ALTER_SCRAM)
async def _(p: Player) -> None:
    a, b, c = (user(p, name) for name in "abc")
    await p.ask(**scram(put(a), put(a, SHA_512, 8192), put(b, SHA_512), put("ü/=% " + c)))
    await p.ask(DESCRIBE_SCRAM, **users(a, b, "ü/=% " + c, "unknown"))
    await p.ask(**scram(put(b), deletions=[gone(a), gone(b, SHA_512)]), what="altered")
    await p.ask(DESCRIBE_SCRAM, **users(a, b))
    await p.ask(DESCRIBE_SCRAM, users=None, what="all")
    await p.ask(DESCRIBE_SCRAM, users=[], what="none named")
    left = [gone(a, SHA_512), gone(b), gone("ü/=% " + c)]
    await p.ask(**scram(deletions=left), what="deleted")
    await p.ask(DESCRIBE_SCRAM, **users(a, b))
    await p.ask(DESCRIBE_SCRAM, users=None, what="all are gone")


one(ALTER_SCRAM, "none", lambda p: scram())
one(ALTER_SCRAM, "of an unknown user", lambda p: scram(deletions=[gone(user(p))]))
one(ALTER_SCRAM, "no name", lambda p: scram(put(""), deletions=[gone("")]))
one(ALTER_SCRAM, "a name of dots", lambda p: scram(put("."), deletions=[gone("..")]))
one(ALTER_SCRAM, "an empty password", lambda p: scram(put(user(p)) | {"salted_password": b""}))
one(ALTER_SCRAM, "an unknown mechanism", lambda p: scram(put(user(p), 9)))
one(ALTER_SCRAM, "an unknown mechanism, deleted", lambda p: scram(deletions=[gone(user(p), 9), gone(user(p, "v"), 0)]))
one(ALTER_SCRAM, "too few iterations", lambda p: scram(put(user(p), iterations=4095), put(user(p, "v"), iterations=-1)))
one(ALTER_SCRAM, "too many iterations", lambda p: scram(put(user(p), iterations=16385)))
one(ALTER_SCRAM, "twice", lambda p: scram(put(user(p)), put(user(p)), put(user(p, "v"), iterations=1)))
one(ALTER_SCRAM, "put and deleted", lambda p: scram(put(user(p)), deletions=[gone(user(p))]))
one(ALTER_SCRAM, "deleted twice", lambda p: scram(deletions=[gone(user(p)), gone(user(p))]))
one(ALTER_SCRAM, "one of two is wrong", lambda p: scram(put(user(p)), put(user(p), SHA_512, 1)))
one(
    ALTER_SCRAM,
    "one is put, another is of an unknown user",
    lambda p: scram(put(user(p)), deletions=[gone(user(p), SHA_512)]),
)
one(ALTER_SCRAM, "wrong in two ways", lambda p: scram(put(user(p), 9, 1), put(user(p), iterations=1)))
one(DESCRIBE_SCRAM, "an unknown user", lambda p: users(user(p)))
one(DESCRIBE_SCRAM, "a name of dots", lambda p: users(".", ".."))
one(DESCRIBE_SCRAM, "no name", lambda p: users("", ""))
one(DESCRIBE_SCRAM, "twice", lambda p: users(user(p), user(p), user(p, "v")))


# -- client quotas -----------------------------------------------------------------------------------------------------

ALTER_QUOTAS, DESCRIBE_QUOTAS = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"
Entity = Sequence[tuple[str, str | None]]


def limit(key: str = RATE, value: float = 1000.0, remove: bool = False) -> Fields:
    return {"key": key, "value": value, "remove": remove}


def entry(entity: Entity, *ops: Fields) -> Fields:
    return {"entity": [{"entity_type": t, "entity_name": n} for t, n in entity], "ops": list(ops or [limit()])}


def quotas(*entries: Fields, validate_only: bool = False) -> Fields:
    return {"entries": list(entries), "validate_only": validate_only}


def sought(*components: tuple[str, int, str | None], strict: bool = False) -> Fields:
    found = [{"entity_type": t, "match_type": kind, "match": match} for t, kind, match in components]
    return {"components": found, "strict": strict}


@scenario(ALTER_QUOTAS)
async def _(p: Player) -> None:
    name, client = user(p), user(p, "c")
    entities: list[Entity] = [
        [("user", name)],
        [("user", name), ("client-id", client)],
        [("user", name), ("client-id", None)],
        [("user", None), ("client-id", client)],
        [("user", None)],
        [("user", None), ("client-id", None)],
        [("client-id", client)],
        [("client-id", None)],
    ]
    await p.ask(**quotas(*(entry(each, limit(), limit("request_percentage", 12.5)) for each in entities)))
    addresses: list[Entity] = [[("ip", "10.1.2.3")], [("ip", None)]]
    await p.ask(**quotas(*(entry(each, limit("connection_creation_rate", 7)) for each in addresses)), what="addresses")
    kinds = [
        (t, k, m)
        for t in ("user", "client-id")
        for k, m in ((EXACT, name), (EXACT, client), (DEFAULT, None), (ANY, None))
    ]
    for strict in (False, True):
        for kind in kinds:
            await p.ask(DESCRIBE_QUOTAS, **sought(kind, strict=strict), what=f"{kind} {strict}")
        for kind in ((EXACT, "10.1.2.3"), (DEFAULT, None), (ANY, None)):
            await p.ask(DESCRIBE_QUOTAS, **sought(("ip", *kind), strict=strict), what=f"ip {kind} {strict}")
        both = sought(("user", ANY, None), ("client-id", ANY, None), strict=strict)
        await p.ask(DESCRIBE_QUOTAS, **both, what=f"user and client {strict}")
        await p.ask(DESCRIBE_QUOTAS, **sought(strict=strict), what=f"all {strict}")
    await p.ask(**quotas(entry(entities[0], limit(remove=True), limit("consumer_byte_rate", 5))), what="one removed")
    await p.ask(DESCRIBE_QUOTAS, **sought(("user", EXACT, name), strict=True), what="changed")
    removed = [limit(remove=True), limit("request_percentage", remove=True), limit("consumer_byte_rate", remove=True)]
    await p.ask(**quotas(*(entry(each, *removed) for each in entities)), what="removed")
    address = limit("connection_creation_rate", remove=True)
    await p.ask(**quotas(*(entry(each, address) for each in addresses)), what="addresses removed")
    await p.ask(DESCRIBE_QUOTAS, **sought(), what="all are gone")


def refused_quota(name: str, *entries: Fields, **more: Any) -> None:
    one(ALTER_QUOTAS, name, lambda p: quotas(*entries, validate_only=True), **more)


refused_quota("none")
refused_quota("of no entity", entry([]))
refused_quota("of no name", entry([("user", "")]), entry([("client-id", "")]), entry([("ip", "")]))
refused_quota("of something else", entry([("colour", "red")]))
refused_quota("of something else and a user", entry([("colour", "red"), ("user", "u")]))
refused_quota("of an address and a user", entry([("ip", "10.0.0.1"), ("user", "u")], limit("connection_creation_rate")))
refused_quota("of no address", entry([("ip", "not an address")], limit("connection_creation_rate")))
refused_quota("of a type twice", entry([("user", "u"), ("user", "v")]))
refused_quota("unknown", entry([("user", "u")], limit("no_such_rate")))
refused_quota("unknown, removed", entry([("user", "u")], limit("no_such_rate", remove=True)))
refused_quota("of an address for a user", entry([("user", "u")], limit("connection_creation_rate")))
refused_quota("of a user for an address", entry([("ip", "10.0.0.1")], limit()))
refused_quota("negative", entry([("user", "u")], limit(value=-1.0)))
refused_quota("of zero", entry([("user", "u")], limit(value=0.0)))
refused_quota("of a fraction of a byte", entry([("user", "u")], limit(value=1.5)))
refused_quota("larger than a long", entry([("user", "u")], limit(value=1e30)))
refused_quota("not a number", entry([("user", "u")], limit(value=float("nan"))))
refused_quota("infinite", entry([("user", "u")], limit(value=float("inf"))))
refused_quota(
    "a connection rate that is no integer", entry([("ip", "10.0.0.1")], limit("connection_creation_rate", 1.5))
)
refused_quota("a password", entry([("user", "u")], limit("SCRAM-SHA-256", 1.0)))
refused_quota("the same key twice", entry([("user", "u")], limit(), limit(value=5.0)))
refused_quota("the same entity twice", entry([("user", "u")]), entry([("user", "u")], limit(value=5.0)))
refused_quota("nothing", {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []})
refused_quota("some", entry([("user", "u")]), entry([("colour", "red")]), entry([("client-id", "c")]))

one(
    ALTER_QUOTAS,
    "removed, of a name of dots",
    lambda p: quotas(*(entry([(t, name)], limit(remove=True)) for t in ("user", "client-id") for name in (".", ".."))),
)
one(ALTER_QUOTAS, "of a name of dots", lambda p: quotas(entry([("user", ".")]), entry([("client-id", "..")])))
one(DESCRIBE_QUOTAS, "by a name of dots", lambda p: sought(("user", EXACT, "."), strict=True))
one(DESCRIBE_QUOTAS, "by a client's name of dots", lambda p: sought(("client-id", EXACT, "..")))
one(DESCRIBE_QUOTAS, "of something else", lambda p: sought(("colour", EXACT, "red")))
one(DESCRIBE_QUOTAS, "of no type", lambda p: sought(("", EXACT, "red")))
one(DESCRIBE_QUOTAS, "of a type twice", lambda p: sought(("user", EXACT, "u"), ("user", EXACT, "v")))
one(DESCRIBE_QUOTAS, "of an address and a user", lambda p: sought(("user", ANY, None), ("ip", ANY, None)))
one(DESCRIBE_QUOTAS, "by an unknown match", lambda p: sought(("user", 9, "u")))
one(DESCRIBE_QUOTAS, "by no name", lambda p: sought(("user", EXACT, None)))
one(DESCRIBE_QUOTAS, "by the default with a name", lambda p: sought(("user", DEFAULT, "u")))


# -- ACLs --------------------------------------------------------------------------------------------------------------

CREATE_ACLS, DESCRIBE_ACLS, DELETE_ACLS = ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS
LITERAL, PREFIXED, MATCH, ANY_PATTERN = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY
READ, ALLOW = AclOperation.READ, AclPermissionType.ALLOW


def acls(*creations: Fields) -> Fields:
    return {"creations": list(creations)}


@scenario(CREATE_ACLS, since=1)
async def _(p: Player) -> None:
    """What is announced is not always there at once: ACLs are read again when a notification has come."""
    name = p.topic("t")
    made = [
        acl(name),
        acl(name, operation=AclOperation.WRITE),
        acl(name, host="10.0.0.1", permission_type=AclPermissionType.DENY),
        acl(name, pattern=PREFIXED),
        acl(name, kind=ResourceType.GROUP),
        acl(name, kind=ResourceType.TRANSACTIONAL_ID, operation=AclOperation.DESCRIBE),
        acl("kafka-cluster", kind=ResourceType.CLUSTER, operation=AclOperation.ALTER),
        acl(name, kind=ResourceType.DELEGATION_TOKEN, operation=AclOperation.DESCRIBE),
        acl("*", principal="User:*", operation=AclOperation.DESCRIBE),
    ]
    await p.ask(**acls(*made))
    await p.ask(**acls(made[0]), what="again")

    async def count(wanted: int) -> bool:
        answer = await p.request(DESCRIBE_ACLS, **acl_filter())
        return sum(len(each.acls) for each in answer.resources) == wanted

    await p.until(lambda: count(len(made)), "the ACLs")
    filters = {
        "all": acl_filter(),
        "by name": acl_filter(name),
        "literal": acl_filter(name, pattern=LITERAL),
        "prefixed": acl_filter(name, pattern=PREFIXED),
        "what matches": acl_filter(name + "-more", kind=ResourceType.TOPIC, pattern=MATCH),
        "of a user": acl_filter(principal_filter="User:*"),
        "from a host": acl_filter(host_filter="10.0.0.1"),
        "of an operation": acl_filter(operation=AclOperation.WRITE),
        "that deny": acl_filter(permission_type=AclPermissionType.DENY),
        "of a type": acl_filter(kind=ResourceType.CLUSTER),
    }
    for what, each in filters.items():
        await p.ask(DESCRIBE_ACLS, **each, what=what)
    await p.ask(DELETE_ACLS, filters=[filters["prefixed"], filters["of an operation"]], what="some")
    await p.ask(DELETE_ACLS, filters=[acl_filter(name), filters["of a user"], acl_filter("kafka-cluster")], what="all")
    await p.until(lambda: count(0), "no ACLs")
    await p.ask(DESCRIBE_ACLS, **acl_filter(), what="none are left")


one(CREATE_ACLS, "none", lambda p: acls())
one(CREATE_ACLS, "of no name", lambda p: acls(acl("")))
one(CREATE_ACLS, "of a name that no znode can have", lambda p: acls(*map(acl, (".", "..", "\0", "a/b"))))
one(CREATE_ACLS, "of a bad principal", lambda p: acls(acl("t", principal="unknown"), acl("t", principal="")))
one(CREATE_ACLS, "of another cluster", lambda p: acls(acl("other", kind=ResourceType.CLUSTER)))
one(CREATE_ACLS, "of an operation that makes no sense", lambda p: acls(acl("t", operation=AclOperation.CLUSTER_ACTION)))
one(CREATE_ACLS, "of no host", lambda p: acls(acl("t", host="")))
one(CREATE_ACLS, "of an unknown operation", lambda p: acls(acl("t", operation=99)))
one(CREATE_ACLS, "of an unknown type", lambda p: acls(acl("t", kind=99)))
one(CREATE_ACLS, "of any operation", lambda p: acls(acl("t", operation=AclOperation.ANY)))
one(CREATE_ACLS, "of any type", lambda p: acls(acl("t", kind=ResourceType.ANY)))
one(CREATE_ACLS, "of any permission", lambda p: acls(acl("t", permission_type=AclPermissionType.ANY)))
one(CREATE_ACLS, "of a pattern to match", lambda p: acls(acl("t", pattern=MATCH)), since=1)
one(CREATE_ACLS, "of an unknown pattern", lambda p: acls(acl("t", pattern=9)), since=1)
one(CREATE_ACLS, "prefixed by everything", lambda p: acls(acl("*", pattern=PREFIXED)), since=1)
one(DESCRIBE_ACLS, "of an unknown type", lambda p: acl_filter(kind=99))
one(DESCRIBE_ACLS, "of an unknown operation", lambda p: acl_filter(operation=99))
one(DESCRIBE_ACLS, "of an unknown pattern", lambda p: acl_filter(pattern=9), since=1)
one(DESCRIBE_ACLS, "of a bad principal", lambda p: acl_filter(principal_filter="unknown"))
one(DELETE_ACLS, "none", lambda p: {"filters": []})
one(DELETE_ACLS, "of no ACL", lambda p: {"filters": [acl_filter("unknown", pattern=LITERAL)]})
one(DELETE_ACLS, "of an unknown type", lambda p: {"filters": [acl_filter("x", kind=99, pattern=LITERAL)]})
one(DELETE_ACLS, "of an unknown operation", lambda p: {"filters": [acl_filter("x", pattern=LITERAL, operation=99)]})


# -- delegation tokens -------------------------------------------------------------------------------------------------

CREATE_TOKEN, RENEW_TOKEN = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE_TOKEN, DESCRIBE_TOKENS = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
HOUR_MS = 3_600_000


def token(owner: str | None = None, renewers: Sequence[tuple[str, str]] = (), lifetime_ms: int = HOUR_MS) -> Fields:
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": t, "principal_name": n} for t, n in renewers],
        "max_lifetime": lifetime_ms,
    }


def owners(*names: str) -> Fields:
    return {"owners": [{"principal_type": "User", "principal_name": name} for name in names]}


@scenario(CREATE_TOKEN)
async def _(p: Player) -> None:
    made = await p.ask(**token(renewers=[("User", "bob")]), way=ALICE)
    hmac = bytes(made.hmac)

    async def known() -> bool:
        found = await p.request(DESCRIBE_TOKENS, **owners("alice"), way=ALICE)
        return made.token_id in {each.token_id for each in found.tokens}

    await p.until(known, "the token")
    await p.ask(DESCRIBE_TOKENS, **owners("alice"), way=ALICE, what="own")
    await p.ask(DESCRIBE_TOKENS, owners=None, way=ALICE, what="all")
    await p.ask(DESCRIBE_TOKENS, owners=None, way=BOB, what="another's")
    await p.ask(RENEW_TOKEN, hmac=hmac, renew_period=HOUR_MS, way=BOB, what="by a renewer")
    await p.ask(RENEW_TOKEN, hmac=hmac, renew_period=-1, way=ALICE, what="for as long as may be")
    await p.ask(EXPIRE_TOKEN, hmac=hmac, expiry_time_period=HOUR_MS, way=BOB, what="later")
    await p.ask(EXPIRE_TOKEN, hmac=hmac, expiry_time_period=-1, way=ALICE, what="at once")

    async def forgotten() -> bool:
        return not await known()

    await p.until(forgotten, "the token to be gone")
    await p.ask(DESCRIBE_TOKENS, **owners("alice"), way=ALICE, what="none is left")
    await p.ask(EXPIRE_TOKEN, hmac=hmac, expiry_time_period=-1, way=ALICE, what="again")


@scenario(CREATE_TOKEN, "that only its owner may renew")
async def _(p: Player) -> None:
    made = await p.ask(**token(), way=ALICE)
    hmac = bytes(made.hmac)

    async def known() -> bool:
        found = await p.request(DESCRIBE_TOKENS, **owners("alice"), way=ALICE)
        return made.token_id in {each.token_id for each in found.tokens}

    await p.until(known, "the token")
    await p.ask(RENEW_TOKEN, hmac=hmac, renew_period=HOUR_MS, way=BOB)
    await p.ask(EXPIRE_TOKEN, hmac=hmac, expiry_time_period=-1, way=BOB)
    await p.request(EXPIRE_TOKEN, hmac=hmac, expiry_time_period=-1, way=ALICE)


one(CREATE_TOKEN, "without a login", lambda p: token())
one(CREATE_TOKEN, "of a renewer of another type", lambda p: token(renewers=[("Group", "g")]), way=ALICE)
one(RENEW_TOKEN, "unknown", lambda p: {"hmac": b"unknown", "renew_period": HOUR_MS}, way=ALICE)
one(RENEW_TOKEN, "without a login", lambda p: {"hmac": b"unknown", "renew_period": HOUR_MS})
one(EXPIRE_TOKEN, "unknown", lambda p: {"hmac": b"unknown", "expiry_time_period": -1}, way=ALICE)
one(EXPIRE_TOKEN, "without a login", lambda p: {"hmac": b"unknown", "expiry_time_period": -1})
one(DESCRIBE_TOKENS, "without a login", lambda p: {"owners": None})
one(DESCRIBE_TOKENS, "of none", lambda p: {"owners": []}, way=ALICE)
one(DESCRIBE_TOKENS, "of an unknown owner", lambda p: owners("unknown"), way=ALICE)
