"""How hits become findings."""

from __future__ import annotations

from aiocontroller.check.findings import MOST_EVIDENCE, Hit, Severity, findings, lasting, worst
from aiocontroller.check.kinds import KINDS


def hit(kind: str, subject: str, why: str = "why") -> Hit:
    return Hit(kind, subject, f"/{subject}", why, "do")


def test_equal_reasons_are_one_finding_and_the_worst_come_first() -> None:
    hits = [hit("debts", "a"), hit("offline", "b", "x"), hit("offline", "c", "y"), hit("offline", "d", "y")]
    found, paths = findings(hits, KINDS)
    assert [(f.kind, f.why, f.subjects) for f in found] == [
        ("offline", "y", ("c", "d")),
        ("offline", "x", ("b",)),
        ("debts", "why", ("a",)),
    ]
    assert paths == [["/c", "/d"], ["/b"], ["/a"]]
    assert worst(found) is Severity.CRITICAL


def test_one_reason_is_one_finding_though_remedies_name_their_topics() -> None:
    hits = [hit("offline", name)._replace(remedy=f"elect --topic {name}") for name in "ab"]
    (found,), _ = findings(hits, KINDS)
    assert (found.subjects, found.remedy) == (("a", "b"), "elect --topic a; likewise for the others")


def test_of_many_subjects_some_are_quoted_and_all_named() -> None:
    found, paths = findings([hit("offline", str(n)) for n in range(100)], KINDS)
    assert [len(f.subjects) for f in found] == [100]
    assert [len(some) for some in paths] == [MOST_EVIDENCE]


def test_only_what_both_looks_show_lasts() -> None:
    before = [hit("offline", "a", "earlier reason"), hit("offline", "b")]
    now = [hit("offline", "a"), hit("not-elected", "b"), hit("offline", "c")]
    assert lasting(before, now) == [hit("offline", "a")]


def test_nothing_found_is_no_severity() -> None:
    assert findings([], KINDS) == ([], [])
    assert worst([]) is None
