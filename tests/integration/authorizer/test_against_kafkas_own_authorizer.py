"""The authorizer and the principals against Kafka's own classes: random questions, the same answers from both.

``KafkasAuthorizer.java`` puts them to ``AclAuthorizer`` and ``SslPrincipalMapper`` of the release's jars, and to Java's
``X500Principal``.  Needs a JDK (its compiler) and the jars; where one is missing the tests say so and are skipped.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.authorizer.principals import PrincipalError, SslPrincipalMapper, java_address, name_of
from tests.java import answers, java_program

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # the jars may have to be fetched first

PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice", "User:CN=a,O=b:c"]
HOSTS = ["1.2.3.4", "::1", "::ffff:9.8.7.6"]
NAMES = ["*", "a", "ab", "abc", "abd", "b", "ba", "ünï", "𝄞x"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
OPERATIONS = [o for o in AclOperation if o not in (AclOperation.ANY, AclOperation.UNKNOWN)]


@pytest.fixture(scope="module")
def command() -> list[str]:
    return java_program(Path(__file__).with_name("KafkasAuthorizer.java"))


def ask(command: list[str], questions: list[list[str]]) -> list[str]:
    return answers(command, ["\t".join(words) for words in questions], timeout_s=110)


# -- authorization -----------------------------------------------------------------------------------------------------


def some_acls(random: Random) -> dict[ResourcePattern, list[AccessControlEntry]]:
    acls: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for _ in range(random.choice((0, 1, 3, 8, 30))):
        kind = random.choice((PatternType.LITERAL, PatternType.PREFIXED))
        pattern = ResourcePattern(random.choice(TYPES), random.choice(NAMES), kind)
        entry = AccessControlEntry(
            random.choice(PRINCIPALS),
            java_address(random.choice((*HOSTS, "*"))),
            random.choice(OPERATIONS),
            random.choice((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
        )
        acls.setdefault(pattern, []).append(entry)
    return acls


def test_authorization(command: list[str]) -> None:
    random = Random(1)
    questions: list[list[str]] = []
    ours: list[str] = []
    for _ in range(400):
        acls = some_acls(random)
        everyone, super_users = random.random() < 0.3, random.sample(PRINCIPALS, random.choice((0, 0, 1)))
        it = AclAuthorizer(super_users, allow_everyone_if_no_acl_found=everyone)
        it.replace(acls)
        fields = [str(int(everyone)), ";".join(super_users)]
        for (resource, name, kind), entries in acls.items():
            for e in entries:
                fields += [resource.name, name, kind.name, e.principal, e.host, e.operation.name, e.permission.name]
        questions.append(["acls", *fields])
        ours.append("ok")
        for _ in range(60):
            who, host, resource = random.choice(PRINCIPALS), random.choice(HOSTS), random.choice(TYPES)
            operation, name = random.choice(OPERATIONS), random.choice(NAMES) + random.choice(("", "", "c", "-x"))
            asked = [who, host, operation.name, resource.name]
            if random.random() < 0.3:
                questions.append(["any", *asked])
                allowed = it.authorize_by_resource_type(who, java_address(host), operation, resource)
            else:
                questions.append(["may", *asked, name])
                allowed = it.authorize(who, java_address(host), operation, resource, name)
            ours.append(str(allowed).lower())
    theirs = ask(command, questions)
    wrong = [(q, o) for q, o, t in zip(questions, ours, theirs, strict=True) if o != t]
    assert wrong == []
    assert 3000 < ours.count("true") < 21_000


# -- principals --------------------------------------------------------------------------------------------------------

OIDS = [
    "550403",
    "550406",
    "550407",
    "550408",
    "550409",
    "55040a",
    "55040b",
    "0992268993f22c640101",
    "2a864886f70d010901",
]
OIDS += ["0992268993f22c640119", "550405", "55042e", "8837038837"]
CHARACTERS = 'ab Z09,=+<>#;"\\\r\n\t/&ü€𝄞\0\u2028'


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    count = (size.bit_length() + 7) // 8
    length = bytes([size]) if size < 128 else bytes([0x80 | count]) + size.to_bytes(count, "big")
    return bytes([tag]) + length + content


def some_name(random: Random) -> bytes:
    def attribute() -> bytes:
        text = "".join(random.choices(CHARACTERS, k=random.choice((0, 1, 2, 5, 40, 150))))
        tag = random.choice((12, 12, 12, 19, 20, 22, 27))
        value = tlv(2, b"\5") if random.random() < 0.05 else tlv(tag, text.encode())
        return tlv(0x30, tlv(6, bytes.fromhex(random.choice(OIDS))) + value)

    rdns = [b"".join(attribute() for _ in range(random.choice((1, 1, 1, 2, 3)))) for _ in range(random.randrange(6))]
    return tlv(0x30, b"".join(tlv(0x31, rdn) for rdn in rdns))


def test_names_of_certificates(command: list[str]) -> None:
    random = Random(2)
    names = [name for name in (some_name(random) for _ in range(6000)) if "\n" not in name_of(name)]
    theirs = ask(command, [["name", name.hex()] for name in names])
    wrong = [(name.hex(), name_of(name), t) for name, t in zip(names, theirs, strict=True) if name_of(name) != t]
    assert wrong == []
    assert len(names) > 2000


PATTERNS = [
    "^CN=(.*?),.*$",
    "^CN=(.*?),OU=(.*?),.*$",
    "CN=([^,]*).*",
    ".*",
    "^.*OU=(?<unit>[^,]*),?.*$",
    "(C)(N)=.*",
    "b+",
]
PATTERNS += [r"^CN=(\\w+)\\.?.*$", r"(?i)^cn=(.*?)\\d?,.*$", "^(.*)$", "^$", "C*"]
REPLACEMENTS = ["$1", "$0", "$1@$2", "$2$1$3$4", "x", "", r"\\$1", r"a\\/b", "$12", "$01", "${unit}", "$x", "$"]
SUBJECTS = ["CN=kafka1.example.com,OU=Ops,O=Acme,C=FR", "CN=b", "OU=Ä,CN=ß", "", r"CN=a\\,b,OU=c", "CN=x1,O=y,OU="]


def some_rules(random: Random) -> str:
    def rule() -> str:
        if random.random() < 0.15:
            return random.choice(("DEFAULT", "", "default", "DEFAULTX"))
        end = random.choice(("/", "/", "/L", "/U", "", "/X", "/LU"))
        return f"RULE:{random.choice(PATTERNS)}/{random.choice(REPLACEMENTS)}{end}"

    separator = random.choice((",", ", ", " , "))
    return separator.join(rule() for _ in range(random.choice((1, 1, 1, 2, 3))))


def mapped(rules: str, subject: str) -> str:
    try:
        return SslPrincipalMapper(rules).get_name(subject)
    except PrincipalError:
        return "refused"


def test_mapping_rules(command: list[str]) -> None:
    """But for rules that fail only for the names that they match: those are refused from the beginning here."""
    random = Random(3)
    asked = [(some_rules(random), random.choice(SUBJECTS)) for _ in range(8000)]
    theirs = ask(command, [["rule", *each] for each in asked])
    ours = [mapped(*each) for each in asked]
    wrong = [(a, o, t) for a, o, t in zip(asked, ours, theirs, strict=True) if o not in (t, "refused")]
    assert wrong == []
    early = [a for a, o, t in zip(asked, ours, theirs, strict=True) if o == "refused" != t]
    assert all(any(f"/{r}/" in rules for r in REPLACEMENTS) for rules, _ in early)
    assert sum(o == t != "refused" for o, t in zip(ours, theirs, strict=True)) > 600
