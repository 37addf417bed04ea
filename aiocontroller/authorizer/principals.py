"""A client's principal, as brokers derive it: from its certificate's subject, by ``ssl.principal.mapping.rules``.

Source: Kafka 3.9, ``DefaultKafkaPrincipalBuilder`` and ``SslPrincipalMapper``; the subject is written as Java's
``X500Principal.getName()`` writes it (RFC 2253), since ACLs and ``super.users`` hold that text.  It is read from the
certificate's DER, because Python's parsed form does not give each part's string type.

Rules are Java's regular expressions.  Constructs that Python reads differently are refused (PrincipalError) rather than
misread.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from aiocontroller.authorizer.certificates import Element, elements, only, subject
from aiocontroller.core.errors import BadInputError

USER = "User"


class PrincipalError(BadInputError):
    """A rule or a certificate is unreadable, or no rule matches a subject."""


# -- the subject's name ------------------------------------------------------------------------------------------------

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes with a keyword in RFC 2253; others are written as their number, with the value in hexadecimal."""
_STRINGS = frozenset((12, 19, 20, 22, 27, 28, 30))
"""UTF8, Printable, T61, IA5, General, Universal and BMPString: Java decodes all of them as UTF-8."""
_OID = 0x06


def distinguished_name(certificate: bytes) -> str:
    """The subject of a DER certificate, as Java writes it: the last part first; PrincipalError if there is none."""
    try:
        name = subject(certificate)
    except (IndexError, ValueError) as error:
        raise PrincipalError(f"found no subject in a certificate of {len(certificate)} bytes ({error})") from None
    return name_of(name)


def name_of(name: bytes) -> str:
    """A DER ``Name`` in the same form; PrincipalError if it is not one."""
    try:
        parts = [
            "+".join(_attribute(attribute) for attribute in elements(rdn.content))
            for rdn in elements(only(name).content)
        ]
    except (IndexError, ValueError) as error:
        raise PrincipalError(f"found a name of {len(name)} bytes that is not an X.500 name ({error})") from None
    return ",".join(reversed(parts))


def _attribute(attribute: Element) -> str:
    kind, value = elements(attribute.content)
    if kind.tag != _OID:
        raise ValueError(f"an attribute of type {kind.tag:#x}")
    oid = _dotted(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", text).replace("\0", "\\00")
    inner = escaped.strip(" \r")
    if not inner:
        return "".join(f"\\{c}" for c in escaped)
    lead = escaped.index(inner)
    before, after = escaped[:lead], escaped[lead + len(inner) :]
    return "".join(f"\\{c}" for c in before) + inner + "".join(f"\\{c}" for c in after)


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# -- mapping rules -----------------------------------------------------------------------------------------------------

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_FOREIGN = re.compile(
    r"(?<!\\)(?:\\\\)*(?P<what>\\[pPQEGXRhHvVZzNk]|\(\?(?!i?[:)])[a-zA-Z-]+[:)]|\(\?[P#(]|&&|\[(?:\\.|[^\]\\])*\[)"
)
"""Named or nested character classes, quotation, flags: Python lacks these or reads them differently."""
_LINE_ENDS = re.compile("[\r\x85\u2028\u2029]")
"""Line terminators at which Java's dot stops and Python's does not."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: ``DEFAULT``, which takes the name as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if _LINE_ENDS.search(name):
            raise PrincipalError(f"found a line end within {name!r}, expected a name on one line")
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda match: _replaced(match, self.replacement), name)
        return {"L": result.lower, "U": result.upper}.get(self.case, lambda: result)()


class SslPrincipalMapper:
    """``RULE:pattern/replacement/[LU]`` and ``DEFAULT``, separated by commas: the first match names the user."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        self.rules = rules
        split = [match[1] for match in _SPLITTER.finditer(rules.strip())]
        self._rules = [rule for text in split if (rule := _parse(text)) is not None]

    def get_name(self, distinguished_name: str) -> str:
        """The name by the first rule that matches; PrincipalError if none does."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise PrincipalError(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}: {self.rules}")

    def principal_of(self, certificate: bytes) -> str:
        """``User:…`` for a DER certificate."""
        return f"{USER}:{self.get_name(distinguished_name(certificate))}"


def _parse(text: str) -> _Rule | None:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise PrincipalError(f"rule {text!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
    default, pattern, replacement, case, _ = match.groups()
    if default is not None:
        return _Rule(None)
    return None if pattern is None else _rule(pattern, replacement, case)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    foreign = _FOREIGN.search(pattern)
    if foreign is not None:
        raise PrincipalError(f"rule pattern {pattern!r}: {foreign['what']!r} has a meaning in Java but not here")
    try:
        # Java's classes and case folding are ASCII
        compiled = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise PrincipalError(f"rule pattern {pattern!r} is not a regular expression: {error}") from None
    replacement = _with_literal_references(replacement, compiled.groups)
    _check_replacement(replacement, compiled)
    return _Rule(compiled, replacement, case)


def _with_literal_references(replacement: str, groups: int) -> str:
    """``$9`` without such a group is literal text; positions are counted in the original text, as in Kafka."""
    if not groups:
        return replacement
    value = replacement
    for match in re.finditer(r"\$([0-9]+)", replacement):
        if match[1].startswith("0"):
            continue
        index = int(match[1])
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            value = value[: match.start()] + "\\" + value[match.start() :]
    return value


_REFERENCE = re.compile(r"\\(.)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$([0-9]+)|([\\$])", re.DOTALL | re.ASCII)


def _check_replacement(replacement: str, pattern: re.Pattern[str]) -> None:
    for match in _REFERENCE.finditer(replacement):
        _, name, number, bare = match.groups()
        if bare or (name and name not in pattern.groupindex) or (number and int(number[0]) > pattern.groups):
            raise PrincipalError(
                f"rule replacement {replacement!r}: {match[0]!r} is not a group of {pattern.pattern!r} "
                f"({pattern.groups} groups)"
            )


def _replaced(found: re.Match[str], replacement: str) -> str:
    def expand(match: re.Match[str]) -> str:
        literal, name, number, _ = match.groups()
        if literal:
            return literal
        if name:
            return found[name] or ""
        digits = 1  # the longest number that names a group
        while digits < len(number) and int(number[: digits + 1]) <= found.re.groups:
            digits += 1
        return (found[int(number[:digits])] or "") + number[digits:]

    return _REFERENCE.sub(expand, replacement)


def parse_principals(text: str) -> tuple[str, ...]:
    """``Type:name``, separated by semicolons (``super.users``); raises ValueError for a principal without a type."""
    found = tuple(part.strip() for part in text.split(";") if part.strip())
    if not all(":" in each for each in found):
        raise ValueError(text)
    return found


def java_address(host: str) -> str:
    """An IP address as ``InetAddress.getHostAddress`` writes it, the form that ACLs' hosts have."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    scope = f"%{address.scope_id}" if address.scope_id else ""
    return ":".join(f"{(int(address) >> shift) & 0xFFFF:x}" for shift in range(112, -16, -16)) + scope
